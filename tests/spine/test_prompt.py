"""A prompt grows by what is new, whether entries come one by one or all at once."""

import gesta
from gesta import address
from gesta.entry import Entry
from gesta.kinds import CompactionContent, RequestContent
from gesta.prompt import Prompt, prompt_at, rebuild

AGENT = address.bind(gesta.Agent("a", model=gesta.scripted("one", "two")))


async def talk() -> list[Entry]:
    async with gesta.open(":memory:") as record:
        for text in ("first", "second"):
            outcome = await record.run(AGENT, text, session="s")
        return await record.read(outcome.run)


async def test_the_same_entries_give_the_same_blocks_one_by_one_and_all_at_once() -> None:
    entries, prompt = await talk(), Prompt(AGENT.formats(), AGENT.asked())
    for entry in entries:
        prompt.add(entry)
        if isinstance(entry.content, RequestContent):
            again = prompt_at(entries, entry.seq, AGENT.formats(), AGENT.asked())
            assert prompt.blocks == again.blocks
            assert rebuild(entries, entry.seq, AGENT.formats(), AGENT.asked()).digest == entry.content.body_digest


async def test_a_compaction_hides_blocks_and_its_summary_stands_in_their_place() -> None:
    entries, prompt = await talk(), Prompt(AGENT.formats(), AGENT.asked())
    for entry in entries:
        prompt.add(entry)
    prompt.close()
    before, last = len(prompt.blocks), entries[-1]
    content = CompactionContent(from_seq=1, to_seq=last.seq, summary="all of it")
    prompt.add(Entry(run=last.run, seq=last.seq + 1, at=last.at, span=last.span, content=content))
    assert before == 4
    assert len(prompt.blocks) == 1
    assert b"all of it" in prompt.blocks[0]
