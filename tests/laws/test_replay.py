"""Law 10: a run taken again against its own record has no effect and gives the same entries, or names the first other one."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import COSTLY
from tests.laws.random_agents import agent
from tests.laws.scenes import Tape, World, play
from tests.laws.scenes import agent as actor
from tests.laws.test_everything import lived
from tests.laws.test_resume import scripts

import gesta
from gesta import address
from gesta.address import Record
from gesta.compare.replaying import Replayed, replay_run
from gesta.entry import Entry
from gesta.kinds import (
    CompactionContent,
    Content,
    KeyValueContent,
    SignalContent,
    SystemContent,
    ToolCallContent,
    UserContent,
)
from gesta.store import Letter
from gesta.stores.memory import MemoryStore


async def every(store: MemoryStore) -> dict[str, list[Entry]]:
    """The entries of a record, by run."""
    record = Record(store, address.bind)
    return {row.run: await record.read(row.run) for row in await store.runs()}


@COSTLY
@given(st.integers(0, 10_000), st.lists(st.integers(1, 12), max_size=3))
def test_whatever_an_agent_is_and_wherever_it_died_its_runs_are_replayed(seed: int, deaths: list[int]) -> None:
    with tempfile.TemporaryDirectory() as lived_in, tempfile.TemporaryDirectory() as untouched:

        async def main() -> None:
            runs = await every(await lived(seed, deaths, Path(lived_in)))
            root = next(run for run, entries in runs.items() if entries[0].content.opened.parent_run is None)  # type: ignore[union-attr]
            found = await replay_run(runs, root, agent(seed, Path(untouched)))
            assert found.first is None, described(found)
            assert all(each.entries == len(runs[each.run]) for each in found.every())
            assert len(found.every()) == len(runs)

        anyio.run(main)
        assert list(Path(untouched).iterdir()) == []


def described(found: Replayed) -> Any:
    assert found.first is not None
    return found.first.run, found.first.seq, found.first.difference, found.first.recorded, found.first.replayed


@COSTLY
@given(scripts)
def test_every_prefix_of_a_run_is_replayed(script: list[Any]) -> None:
    async def main() -> None:
        tape, world = Tape(), World()
        (outcome,) = await play(tape, actor(world, script))
        entries = (await every(tape))[outcome.run]
        fired = world.fired.copy()
        for end in range(1, len(entries) + 1):
            found = await replay_run({outcome.run: entries[:end]}, outcome.run, actor(world, script))
            assert found.first is None, described(found)
            assert found.entries == end
        assert world.fired == fired

    anyio.run(main)


@pytest.mark.parametrize(
    "said",
    [
        UserContent(value="Quick!"),
        SystemContent(value="Be brief."),
        KeyValueContent(key="customer", value=7),
        CompactionContent(from_seq=2, to_seq=2, summary="Pay."),
        SignalContent(name="wake", by="ann"),
    ],
    ids=lambda said: str(said.kind),
)
@pytest.mark.anyio
async def test_what_was_sent_to_a_run_is_sent_to_its_replay(said: Content) -> None:
    @gesta.tool(effect="once", approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return f"{euros} paid"

    clerk = gesta.Agent("clerk", model=gesta.scripted(gesta.call("pay", euros=5), "Paid."), tools=[pay])
    async with gesta.open() as record:
        waits = await record.run(clerk, "Pay.", session="s")
        await record.send(waits.run, said, key="said")
        await record.approve("s", by="ann")
        done = await record.resume(waits.run, clerk)
        entries = await record.read(done.run)
        found = await replay_run({done.run: entries}, done.run, clerk)
    assert found.first is None, described(found)
    assert (found.entries, said.kind in [each.kind for each in entries]) == (len(entries), True)


@given(scripts, st.data())
def test_a_changed_call_is_named_at_its_entry_with_its_path(script: list[Any], data: st.DataObject) -> None:
    async def main() -> None:
        tape, world = Tape(), World()
        (outcome,) = await play(tape, actor(world, script))
        entries = (await every(tape))[outcome.run]
        calls = [entry for entry in entries if isinstance(entry.content, ToolCallContent)]
        if not calls:
            return
        entry = data.draw(st.sampled_from(calls))
        other = msgspec.structs.replace(entry, content=msgspec.structs.replace(entry.content, status="odd"))
        changed = [other if each is entry else each for each in entries]
        found = await replay_run({outcome.run: changed}, outcome.run, actor(world, script))
        assert found.first is not None
        assert (found.first.seq, found.first.difference.path) == (entry.seq, "$.status")
        assert found.first.recorded == other
        assert found.first.replayed is not None
        assert found.first.difference.before == "odd"

    anyio.run(main)


class Distant(MemoryStore):
    """A store that takes a while to read an inbox, as a server does."""

    async def inbox(self, run: str) -> list[Letter]:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        return await super().inbox(run)


@pytest.mark.anyio
async def test_a_time_that_a_program_noted_is_the_time_that_its_replay_goes_on_with() -> None:
    helper = gesta.Agent("helper", gesta.scripted("Helped."))
    times = (datetime(2030, 1, 1, microsecond=each, tzinfo=UTC) for each in range(1000))

    async def program(verbs: gesta.Verbs, _text: str) -> dict[str, str]:
        began, noted = verbs.now("began"), verbs.now("noted")
        said = await verbs.call(helper, f"It is {noted.isoformat()}.", "help")
        await verbs.ask("ok", f"{said.text} At {verbs.now('helped').isoformat()}?")
        return {"began": began.isoformat(), "ended": verbs.now("ended").isoformat()}

    acting = gesta.Agent("boss", program=program, output=dict[str, str])
    record = Record(MemoryStore(), address.bind, clock=lambda: next(times))
    run = (await record.run(acting, "Go.", session="s")).run
    await record.answer("s", "yes", by="ann")
    assert (await record.resume(run, acting)).value["began"] < "2030-01-01T00:00:01"
    found = await replay_run({row.run: await record.read(row.run) for row in await record.store.runs()}, run, acting)
    assert found.first is None, described(found)


@pytest.mark.anyio
@pytest.mark.parametrize("store", [MemoryStore, Distant])
@pytest.mark.parametrize("first", ["call", "notes"])
async def test_notes_and_questions_beside_a_step_are_replayed_in_the_order_of_the_record(
    store: type[MemoryStore], first: str
) -> None:
    async def program(verbs: gesta.Verbs, text: str) -> str:
        async def notes() -> None:
            verbs.pick("way", ["fast", "slow"])
            verbs.now("begun")
            await verbs.ask("ok", "May I?")

        async with anyio.create_task_group() as group:
            if first == "notes":
                group.start_soon(notes)
            group.start_soon(verbs.call, gesta.Agent("helper", gesta.scripted("Helped.")), text, "help")
            if first == "call":
                group.start_soon(notes)
        return "Done."

    acting, record = gesta.Agent("boss", program=program), Record(store(), address.bind)
    run = (await record.run(acting, "Go.", session="s")).run
    await record.answer("s", "yes", by="ann")
    assert (await record.resume(run, acting)).answer == "Done."
    found = await replay_run({row.run: await record.read(row.run) for row in await record.store.runs()}, run, acting)
    assert found.first is None, described(found)
