"""Laws 1, 2, 4 and 6: from every prefix of every run, the same facts; and no finished effect happens twice."""

from collections.abc import Iterator, Sequence
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import COSTLY
from tests.laws.scenes import Tape, World, again, agent, doubtful, facts, play

import gesta
from gesta.entry import Entry
from gesta.kinds import AttemptContent, EndContent, RequestContent, ToolResultContent
from gesta.prompt import rebuild
from gesta.record.record import Record
from gesta.record.waits import LastTurn, last_turn, state_of
from gesta.store import Batch
from gesta.stores.memory import MemoryStore

number = st.integers(0, 3)
effects = st.sampled_from(["look", "put", "pay", "fail"])
calls = st.builds(lambda name, x: gesta.call(name, x=x), effects, number)
odd = st.sampled_from([gesta.call("nope", x=1), gesta.call("look", y=1), gesta.call("look")])
turns = st.lists(st.one_of(calls, odd), min_size=1, max_size=4)
scripts = st.lists(turns, min_size=0, max_size=4).map(lambda steps: [*steps, "done"])


async def whole(script: Sequence[Any]) -> tuple[Tape, World, list[Entry]]:
    """Play a script without interruption."""
    tape, world = Tape(), World()
    (outcome,) = await play(tape, agent(world, script))
    return tape, world, await Record(tape, lambda made: made).read(outcome.run)


def rebuilt(world: World, entries: Sequence[Entry], *, lost: bool) -> World:
    """Make the world again as it was at a prefix: the effects of finished calls, and, if `lost`, of open attempts."""
    made, open_calls = World(), doubtful(entries)
    for entry in entries:
        if isinstance(entry.content, AttemptContent):
            call, key = entry.content.of, entry.content.key
            assert key is not None
            if key in world.rows and (call not in open_calls or lost) and key not in made.rows:
                made.rows[key] = world.rows[key]
                made.fired[key] += 1
    return made


async def from_prefix(
    script: Sequence[Any], batches: Sequence[Batch], world: World, *, lost: bool
) -> tuple[World, list[Entry]]:
    """Resume from the commits of a prefix."""
    store = await again(batches)
    run = batches[0].lease.run if batches else None
    before = await Record(store, lambda made: made).read(run) if run else []
    fresh = rebuilt(world, before, lost=lost) if before else World()
    (outcome,) = await play(store, agent(fresh, script))
    return fresh, await Record(store, lambda made: made).read(outcome.run)


def prefixes(batches: Sequence[Batch]) -> Iterator[Sequence[Batch]]:
    """Every prefix of a run, at each of its commits."""
    return (batches[:end] for end in range(len(batches) + 1))


@COSTLY
@given(scripts)
def test_resuming_from_every_commit_reaches_the_same_facts_and_fires_nothing_twice(script: list[Any]) -> None:
    async def main() -> None:
        tape, world, entries = await whole(script)
        for prefix in prefixes(tape.tape):
            for lost in (False, True):
                fresh, resumed = await from_prefix(script, prefix, world, lost=lost)
                assert facts(resumed) == facts(entries)
                assert all(count == 1 for count in fresh.fired.values())

    anyio.run(main)


@given(scripts)
def test_seqs_are_contiguous_and_causes_point_back(script: list[Any]) -> None:
    async def main() -> None:
        _, _, entries = await whole(script)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert all(isinstance(cause, int) and 0 < cause < entry.seq for entry in entries for cause in entry.causes)

    anyio.run(main)


@given(scripts)
def test_each_request_extends_the_one_before_and_can_be_built_again(script: list[Any]) -> None:
    async def main() -> None:
        world = World()
        _, _, entries = await whole(script)
        acting = agent(world, script)
        before: list[bytes] = []
        for entry in entries:
            if isinstance(entry.content, RequestContent):
                made = rebuild(entries, entry.seq, acting.formats(), acting.asked())
                assert made.digest == entry.content.body_digest
                blocks = list(made.blocks)
                assert blocks[: len(before)] == before
                assert len(blocks) == len(before) + len(entry.content.blocks)
                before = blocks

    anyio.run(main)


@given(scripts)
def test_every_turn_ends_with_a_reason_and_every_call_has_one_result(script: list[Any]) -> None:
    async def main() -> None:
        _, _, entries = await whole(script)
        assert isinstance(entries[-1].content, EndContent)
        assert entries[-1].content.reason == "answered"
        assert not doubtful(entries)
        answered = [entry.content.call for entry in entries if isinstance(entry.content, ToolResultContent)]
        assert len(answered) == len(set(answered))

    anyio.run(main)


@pytest.mark.parametrize("lost", [False, True])
def test_a_once_tool_that_cannot_be_asked_is_never_run_again(lost: bool) -> None:
    async def main() -> None:
        script = [gesta.call("wire", x=1), "done"]
        tape, world, _ = await whole(script)
        stuck = 0
        for prefix in prefixes(tape.tape):
            store = await again(prefix)
            entries = await Record(store, lambda made: made).read(tape.tape[0].lease.run)
            fresh = rebuilt(world, entries, lost=lost) if entries else World()
            (outcome,) = await play(store, agent(fresh, script))
            assert max(fresh.fired.values(), default=0) <= 1
            if doubtful(entries):
                stuck += 1
                assert outcome.reason == "waiting"
                assert [waiting.what for waiting in outcome.waiting] == ["doubt"]
                assert sum(fresh.fired.values()) == lost
            else:
                assert outcome.answer == "done"
        assert stuck == 1

    anyio.run(main)


def test_a_message_with_a_known_key_gives_its_outcome_and_asks_nobody() -> None:
    async def main() -> None:
        store = MemoryStore()
        acting = agent(World(), ["one", "two"])
        first = await play(store, acting, ["a", "b"])
        again_ = await play(store, acting, ["a", "b"])
        assert [outcome.answer for outcome in first] == ["one", "two"]
        assert again_ == first

    anyio.run(main)


@COSTLY
@given(scripts)
def test_decide_handles_prefixes_that_no_commit_leaves_as_long_as_a_reply_is_whole(script: list[Any]) -> None:
    async def main() -> None:
        tape, world, entries = await whole(script)
        rows = [row for batch in tape.tape for row in batch.rows]
        first = tape.tape[0]
        for end in range(2, len(rows)):  # a turn begins with its message
            if rows[end].kind == "tool-call":
                continue
            prefix = [msgspec.structs.replace(first, rows=rows[:end])]
            for lost in (False, True):
                fresh, resumed = await from_prefix(script, prefix, world, lost=lost)
                assert facts(resumed) == facts(entries), f"after {rows[end - 1].kind}"
                assert all(count == 1 for count in fresh.fired.values())

    anyio.run(main)


@given(st.lists(scripts, min_size=1, max_size=3), st.data())
def test_whether_a_turn_is_open_is_known_from_what_was_written_since_the_last_look(
    texts: list[list[Any]], data: st.DataObject
) -> None:
    async def main() -> None:
        tape, world = Tape(), World()
        acting = agent(world, [said for script in texts for said in script])
        outcome = (await play(tape, acting, [f"Go {place}." for place in range(len(texts))]))[0]
        batches = [batch for batch in tape.tape if batch.lease.run == outcome.run]
        looks, known = data.draw(st.sets(st.integers(0, len(batches)))), LastTurn()
        for place in sorted(looks | {len(batches)}):
            store = await again(batches[:place])
            known = await last_turn(store, outcome.run, known)
            state = await state_of(store, outcome.run)
            assert (known.begin > 0, known.head) == (state.open, state.head)

    anyio.run(main)
