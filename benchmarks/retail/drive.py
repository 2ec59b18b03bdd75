"""Drives recorded conversations through Gesta's own loop: the model says what was recorded, the tools really run."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import gesta
from benchmarks.retail.agent import desk
from benchmarks.retail.corpus import Conversation, load_conversations, load_database, split
from benchmarks.retail.reexecute import Tally, count_end_state, equal_results
from benchmarks.retail.world import World
from gesta.kinds import ToolCallContent, ToolResultContent
from gesta.prompt import observation_text


async def converse(record: gesta.Record, conversation: Conversation, world: World) -> list[gesta.Outcome]:
    """Send every customer message, each under its own key, and give the outcomes."""
    agent = desk(conversation, world)
    outcomes = []
    for place, turn in enumerate(split(conversation).turns):
        text = turn.user.content or ""
        outcomes.append(await record.run(agent, text, session=conversation.id, key=f"m{place}"))
    return outcomes


def results(entries: Iterable[gesta.Entry]) -> list[str]:
    """Read the tool results of a run, in the order of their calls."""
    calls = [entry.seq for entry in entries if isinstance(entry.content, ToolCallContent)]
    by_call = {
        entry.content.call: observation_text(entry.content.tool_result)
        for entry in entries
        if isinstance(entry.content, ToolResultContent) and entry.content.outcome != "late"
    }
    return [by_call.get(call, "(no result)") for call in calls]


def compare(conversation: Conversation, found: list[str], tally: Tally) -> None:
    """Count how the results of a run agree with the recorded ones."""
    recorded = list(conversation.answered())
    tally.conversations += 1
    for place, (call, answer) in enumerate(recorded):
        tally.calls += 1
        if answer.injected:
            tally.injected += 1
            continue
        result = found[place] if place < len(found) else "(not called)"
        equal = equal_results(result, answer.content or "")
        tally.compared += 1
        tally.equal += equal
        tally.bytes += result == (answer.content or "")
        if not equal:
            print(f"{conversation.id}: {call.name} {call.args}\n  recorded {answer.content}\n  now      {result}")


async def drive_file(file: str, folder: Path) -> Tally:
    """Drive all conversations of one recording, each with a fresh world, on one record."""
    conversations = load_conversations(file)
    template = folder / "template.db"
    World.create(template, load_database(conversations[0].dialect)).close()
    tally = Tally(file.rsplit("/", 1)[-1].removesuffix(".json.gz"))
    async with gesta.open(str(folder / "retail.gesta"), durability="normal") as record:
        for place, conversation in enumerate(conversations):
            with World.copy(template, folder / f"{place}.db") as world:
                outcomes = await converse(record, conversation, world)
                entries = await record.read(outcomes[0].run)
                compare(conversation, results(entries), tally)
                with World.copy(template, folder / "expected.db") as expected:
                    count_end_state(conversation, world, expected, tally)
    return tally


async def drive(file: str) -> Tally:
    """Drive one recording in a folder that is removed again."""
    with tempfile.TemporaryDirectory() as folder:
        return await drive_file(file, Path(folder))
