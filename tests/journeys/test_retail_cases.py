"""Real retail conversations as cases: all pass; of a tool that gives one other character, exactly those fail that used it."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from benchmarks.retail.agent import desk
from benchmarks.retail.corpus import FILES, Conversation, load_conversations, load_database
from benchmarks.retail.drive import converse
from benchmarks.retail.world import World
from tests.conftest import FULL

import gesta
from gesta.compare.cases import Case, Head, check, read, taken, written
from gesta.compare.forks import Change, Fork, fork, go_on
from gesta.kinds import AttemptContent, ToolCallContent, ToolResultContent
from gesta.models.replay import replay

RETAIL = list(FILES)
PLAYED = RETAIL if FULL else RETAIL[1:2]
CONVERSATIONS = 1000 if FULL else 12
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


def changed(agent: gesta.Agent) -> gesta.Agent:
    """The same agent, but one tool gives one other character."""

    def other(tool: gesta.Tool) -> gesta.Tool:
        @functools.wraps(tool.function)
        def give(*args: object, **kwargs: object) -> str:
            return str(tool.function(*args, **kwargs)).replace("a", "e", 1)

        return msgspec.structs.replace(tool, function=give) if tool.name == CHANGED else tool

    return msgspec.structs.replace(agent, tools=[other(tool) for tool in agent.tools])


@pytest.mark.timeout(1800 if FULL else 120)
@pytest.mark.parametrize("file", PLAYED)
async def test_exactly_the_conversations_that_used_a_changed_tool_fail(corpus: Path, file: str, tmp_path: Path) -> None:
    conversations = load_conversations(file)[:CONVERSATIONS]
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
    assert all(f"result of {CHANGED}(" in drift[0] and len(drift) == 3 for drift in failed.values())


async def recorded(conversation: Conversation, world: World, folder: Path) -> Case:
    """Have a conversation, and make a case of it, as a file and back."""
    async with gesta.open() as record:
        outcomes = await converse(record, conversation, world)
        names = [tool.name for tool in desk(conversation, world).tools]
        head = Head(agent="desk.py:desk", run=outcomes[0].run, live=names)
        path = folder / "case.jsonl"
        path.write_text(written(Case(head, await taken(record, outcomes[0].run))))
    return read(path)


async def test_a_fork_of_a_real_conversation_with_one_result_changed_fires_nothing(
    corpus: Path, tmp_path: Path
) -> None:
    conversation = load_conversations(RETAIL[1])[0]
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        fresh = worlds([conversation], tmp_path)
        with contextlib.closing(next(fresh)) as world:
            outcomes = await converse(record, conversation, world)
            before = world.dump()
            base = await record.find(outcomes[0].run)
            entries = await record.read(base.run)
            result = [entry for entry in entries if isinstance(entry.content, ToolResultContent)][-1]
            assert isinstance(result.content, ToolResultContent)
            other = Change(result.seq, "tool_result", f"{result.content.tool_result} (checked)")
            made = await fork(record, base, Fork(changes=[other]))
            agent = msgspec.structs.replace(desk(conversation, world), model=replay(entries))
            await go_on(record, made, agent)
            own = await record.store.read(made.run)
            assert own[0].seq == result.seq
            assert not any(
                isinstance(entry.content, AttemptContent) for entry in await record.read(made.run, result.seq)
            )
            assert world.dump() == before
        assert await record.verify() == []
