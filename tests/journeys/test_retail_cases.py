"""Real retail conversations as cases: all pass; of a tool that gives one other character, exactly those fail that used it."""

import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from benchmarks.retail.agent import desk
from benchmarks.retail.corpus import FILES, Conversation, load_conversations, load_database
from benchmarks.retail.drive import converse
from benchmarks.retail.transcripts import FILE, load_transcripts
from benchmarks.retail.world import World
from tests.conftest import FULL

import gesta
from gesta.compare.cases import Case, Head, check, read, taken, written
from gesta.kinds import ToolCallContent, ToolResultContent

TAU2 = "tau2-bench/results/retail-gpt-4.1.json.gz"
PLAYED = [*FILES, FILE] if FULL else [TAU2, FILE]
"""In full 340 conversations: 115 + 40 + 114 + 1 + 1, and 69 transcripts."""
CONVERSATIONS = 1000 if FULL else 8
"""Of each file, at most."""
CHANGED = "get_product_details"


def worlds(conversations: Sequence[Conversation], folder: Path) -> Iterator[World]:
    """Fresh worlds, as many as are asked for."""
    template, number = folder / "template.db", 0
    World.create(template, load_database(conversations[0].dialect)).close()
    while True:
        number += 1
        with World.copy(template, folder / f"{number}.db") as world:
            yield world


def one_other(text: str) -> str:
    """The same text but for one character: a digit of the first price, or else the last letter."""
    price = re.search(r'"price": (\d)', text)
    place = price.start(1) if price is not None else len(text) - 1
    return f"{text[:place]}{'8' if text[place] == '9' else '9'}{text[place + 1 :]}"


def changed(agent: gesta.Agent) -> gesta.Agent:
    """The same agent, but one tool gives one other character."""

    def other(tool: gesta.Tool) -> gesta.Tool:
        @functools.wraps(tool.function)
        def give(*args: object, **kwargs: object) -> str:
            return one_other(str(tool.function(*args, **kwargs)))

        return msgspec.structs.replace(tool, function=give) if tool.name == CHANGED else tool

    return msgspec.structs.replace(agent, tools=[other(tool) for tool in agent.tools])


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.timeout(1800 if FULL else 120)
@pytest.mark.parametrize("file", PLAYED)
async def test_exactly_the_conversations_that_used_a_changed_tool_fail(corpus: Path, file: str, tmp_path: Path) -> None:
    conversations = (load_transcripts() if file == FILE else load_conversations(file))[:CONVERSATIONS]
    fresh = worlds(conversations, tmp_path)
    used, failed = set[str](), dict[str, list[str]]()
    for conversation in conversations:
        case = await recorded(conversation, next(fresh), tmp_path)
        assert await check(case, desk(conversation, next(fresh))) == []
        entries = case.runs[case.head.run]
        results = {
            entry.content.call
            for entry in entries
            if isinstance(entry.content, ToolResultContent) and entry.content.outcome == "ok"
        }
        if any(
            isinstance(entry.content, ToolCallContent) and entry.content.tool_name == CHANGED and entry.seq in results
            for entry in entries
        ):
            used.add(conversation.id)
        drift = await check(case, changed(desk(conversation, next(fresh))))
        if drift:
            failed[conversation.id] = drift
    assert set(failed) == used
    assert used
    assert len(used) < len(conversations) or len(conversations) == 1
    print(f"{file}: {len(conversations)} cases, {len(used)} used it")
    assert all(understood(drift) for drift in failed.values())


def understood(drift: Sequence[str]) -> bool:
    """Return whether a difference names the entry, the call and the place in its result, and shows both sides, briefly."""
    head = (
        rf"entry \d+ of run [0-9a-f]{{16}}, result of {CHANGED}\(product_id=\"\d+\"\): \$\.tool_result(\.\S+\.price)?"
    )
    named, before, after = drift
    return re.fullmatch(head, named) is not None and [before[:4], after[:4]] == ["  - ", "  + "] and len(after) < 200


def test_of_every_transcript_nearly_every_call_is_told_by_its_result(corpus: Path) -> None:
    calls = [call for each in load_transcripts() for call, _ in each.answered()]
    lost = [call.name for call in calls if "?" in str(call.args)]
    assert (len(calls), len(lost)) == (479, 36)


async def recorded(conversation: Conversation, world: World, folder: Path) -> Case:
    """Have a conversation, and make a case of it, as a file and back."""
    async with gesta.open() as record:
        outcomes = await converse(record, conversation, world)
        names = [tool.name for tool in desk(conversation, world).tools]
        head = Head(agent="desk.py:desk", run=outcomes[0].run, live=names)
        path = folder / "case.jsonl"
        path.write_text(written(Case(head, await taken(record, outcomes[0].run))))
    return read(path)
