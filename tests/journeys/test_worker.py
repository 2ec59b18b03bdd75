"""One run that fails ends no other: its failure is told, it is looked at again later, and the others go on."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from msgspec.structs import replace
from tests.commands import gesta_command

import gesta
from gesta import address
from gesta.decide.waiting import Waiting
from gesta.entry import Row
from gesta.errors import BrokenRecord, LeaseLost, OtherProgram, ServerGone, WriteFailed
from gesta.kinds import AnswerContent
from gesta.record.record import Record
from gesta.store import Batch, Info, RunRow
from gesta.stores.memory import MemoryStore
from gesta.tools.person import ask_person
from gesta.worker import Failed, Worker


class PanicError(BaseException):
    """What a library that is not Python may raise."""


FAILURES: list[Callable[[], BaseException]] = [
    lambda: OtherProgram("pay", "a note of kind timer is on record", "one of kind question"),
    lambda: LeaseLost("r", "epoch 1", "epoch 2"),
    lambda: WriteFailed("r.gesta", "the disk is full"),
    lambda: PanicError("rust"),
    lambda: SystemExit(3),
]


@asynccontextmanager
async def waiting(*agents: gesta.Agent) -> AsyncIterator[tuple[Record, list[str]]]:
    """A record in which a run of each agent waited for an answer, and has it."""
    async with gesta.open() as record:
        runs = []
        for agent in agents:
            outcome = await record.run(agent, "Go.", session=agent.name)
            answer = AnswerContent(of=outcome.waiting[0].of or 0, value="go on", by="ann")
            await record.send(outcome.run, answer, key="go on")
            runs.append(outcome.run)
        yield record, runs


def asking(name: str, then: Callable[[], Any]) -> gesta.Agent:
    """Make an agent that asks, and does something when it was answered."""

    async def program(verbs: gesta.Verbs, _text: str) -> str:
        await verbs.ask("go", "May I?")
        done = then()
        return str(await done if hasattr(done, "__await__") else done)

    return gesta.Agent(name, program=program)


async def test_as_many_turns_as_it_has_jobs_are_at_work_at_once() -> None:
    at_work, most, enough = 0, 0, anyio.Event()

    async def work() -> str:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if at_work == 2:
            enough.set()
        await enough.wait()
        for _ in range(100):
            await anyio.lowlevel.checkpoint()  # others may begin now
        at_work -= 1
        return "done"

    agents = [asking(name, work) for name in "abcde"]
    async with waiting(*agents) as (record, _):
        assert await Worker(record, agents, jobs=2).look(lambda _: None) == 5
    assert most == 2


@pytest.mark.parametrize("failure", FAILURES, ids=lambda make: type(make()).__name__)
async def test_a_run_that_fails_ends_no_other(failure: Callable[[], BaseException]) -> None:
    told, failed = list[gesta.Outcome](), list[Failed]()
    fallen = anyio.Event()

    def fell(found: Failed) -> None:
        failed.append(found)
        fallen.set()

    async def slow() -> str:
        await fallen.wait()  # at work while the other one fails
        return "fine"

    def fail() -> str:
        raise failure()

    async with waiting(asking("good", slow), asking("bad", fail), asking("fine", slow)) as (record, runs):
        agents = [asking("good", slow), asking("bad", fail), asking("fine", slow)]
        worker = Worker(record, agents, failed=fell)
        assert await worker.look(told.append) == 2
        assert [outcome.answer for outcome in told] == ["fine", "fine"]
        assert [(found.run, found.session, found.tries) for found in failed] == [(runs[1], "bad", 1)]
        assert type(failed[0].failure) is type(failure())
        assert (await record.state(runs[1])).open, "nobody wanted it to end"
        kinds = [entry.kind for entry in await record.read(runs[1])]
    assert "signal" not in kinds
    assert "end" not in kinds


async def test_a_run_that_fails_is_looked_at_again_after_growing_waits() -> None:
    now, failed, tries = datetime(2026, 1, 1, tzinfo=UTC), list[Failed](), list[int]()

    def fail() -> str:
        tries.append(1)
        if len(tries) == 12:
            return "mended"
        raise LeaseLost("r", "epoch 1", "epoch 2")

    agent = asking("bad", fail)
    async with waiting(agent) as (record, _):
        record.turns.clock = lambda: now
        told = list[gesta.Outcome]()
        worker = Worker(record, [agent], failed=failed.append)
        while not told:
            await worker.look(told.append)
            before = len(tries)
            await worker.look(told.append)
            assert len(tries) == before, "it is not due yet"
            now += timedelta(seconds=failed[-1].again_s)
        assert told[0].answer == "mended"
        assert [found.again_s for found in failed] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
        assert await worker.look(told.append) == 0


async def test_without_a_callback_a_failure_is_a_warning_of_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> str:
        raise PanicError("rust")

    agent = asking("bad", fail)
    async with waiting(agent) as (record, (run,)):
        with caplog.at_level(logging.WARNING, logger="gesta"):
            assert await Worker(record, [agent]).look(lambda _: None) == 0
    assert caplog.messages == [f"run {run}, session bad: PanicError: rust; looked at again in 1 s"]


async def test_a_callback_that_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    heard = []

    def told(outcome: gesta.Outcome) -> None:
        heard.append(outcome.answer)
        raise ConnectionError("nobody reads")

    agents = [asking("one", lambda: 1), asking("two", lambda: 2)]
    async with waiting(*agents) as (record, _):
        assert await Worker(record, agents).look(told) == 2
    assert sorted(map(str, heard)) == ["1", "2"]
    assert caplog.messages == ["Who was told an outcome raised ConnectionError: nobody reads"] * 2


async def test_a_run_that_somebody_else_writes_is_no_failure(tmp_path: Path) -> None:
    place, agent, failed = str(tmp_path / "r.gesta"), asking("one", lambda: 1), list[Failed]()
    async with gesta.open(place) as record, gesta.open(place) as other:
        outcome = await record.run(agent, "Go.", session="s")
        lease = await other.store.lease(outcome.run)
        worker, told = Worker(record, [agent], failed=failed.append), list[gesta.Outcome]()
        assert await worker.look(told.append) == 0
        await other.store.release(lease)
        assert await worker.look(told.append) == 1
    assert failed == []


class Counted(MemoryStore):
    """A store that counts the rows that are read from it."""

    rows = 0

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Read rows, and count them."""
        found = await super().read(run, after, until, limit)
        self.rows += len(found)
        return found


async def test_a_long_run_that_another_process_writes_is_not_read_again_at_each_look() -> None:
    store, told, looked = Counted(), list[gesta.Outcome](), list[int]()
    asked = [gesta.call("ask_person", question="May I?")] * 3
    agent = gesta.Agent("a", model=gesta.scripted(*asked, "Done."), tools=[ask_person()])
    record, worker = Record(store, address.bind), Worker(Record(store, address.bind), [agent])
    for place in range(3):
        outcome = await record.run(agent, "Go.", session="s") if not place else await record.resume("s", agent)
        lease = await store.lease(outcome.run)
        for _ in range(3):
            store.rows = 0
            assert await worker.look(told.append) == 0
            looked.append(store.rows)
        await store.release(lease)
        await record.answer(outcome.waiting[0], "yes", by="ann")
    head = (await record.state(outcome.run)).head
    assert looked[1:3] == [2, 2]
    assert sum(looked) <= head + 2 * len(looked), "each entry is read once, and at each look the first and the last one"
    assert await worker.look(told.append) == 1
    assert [each.answer for each in told] == ["Done."]


class Torn(MemoryStore):
    """A store of which one run cannot be read, and which may be out of reach."""

    torn = ""
    away = 0

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Read rows; those of one run are broken."""
        if run == self.torn:
            raise BrokenRecord(":memory:", "entry 3 holds no JSON")
        return await super().read(run, after, until, limit)

    async def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """List the runs, if the server can be reached."""
        if self.away:
            self.away -= 1
            raise ServerGone("db", "no route to host")
        return await super().runs(session, name)


async def test_a_run_that_was_pruned_and_reaches_the_same_entry_again_is_looked_at(tmp_path: Path) -> None:
    """A server that crashes may lose the last entries of a run, and then others take their places, too."""
    path = tmp_path / "a.gesta"
    agent = gesta.Agent("a", model=gesta.scripted("Hello."))
    asks = gesta.Agent(
        "a", model=gesta.scripted(gesta.call("ask_person", question="May I?"), "Yes."), tools=[ask_person()]
    )
    async with gesta.open(path) as record:
        worker, told = Worker(record, [asks]), list[gesta.Outcome]()
        ended = await record.run(agent, "go", session="s")
        assert await worker.look(told.append) == 0
        prune = ("prune", ended.run, "--yes", "--record", str(path))
        assert (await anyio.to_thread.run_sync(gesta_command, *prune)).exit_code == 0
        outcome = await record.run(asks, "go", session="s")
        assert (await record.state(outcome.run)).head == ended.end
        await record.answer(outcome.waiting[0], "yes", by="ann")
        assert await worker.look(told.append) == 1
    assert [each.answer for each in told] == ["Yes."]


async def test_a_run_that_cannot_be_read_ends_no_other() -> None:
    store, agents = Torn(), [asking("torn", lambda: 1), asking("whole", lambda: 2)]
    record, failed, told = Record(store, address.bind), list[Failed](), list[gesta.Outcome]()
    for agent in agents:
        outcome = await record.run(agent, "Go.", session=agent.name)
        store.torn = store.torn or outcome.run
        if outcome.run != store.torn:
            await record.send(outcome.run, AnswerContent(of=outcome.waiting[0].of or 0, value="", by="ann"), key="a")
    assert await Worker(record, agents, failed=failed.append).look(told.append) == 1
    assert told[0].answer == "2"
    assert [found.run for found in failed] == [store.torn]


async def test_a_record_out_of_reach_is_looked_at_again() -> None:
    store, agent = Torn(), asking("one", lambda: 1)
    record, failed = Record(store, address.bind), list[Failed]()
    await record.run(agent, "Go.", session="s")
    store.away = 3
    with anyio.CancelScope() as scope:
        await Worker(record, [agent], failed=failed.append).work(lambda _: scope.cancel(), every_s=0.0)
    assert [(found.run, found.tries) for found in failed] == [("", 1), ("", 2), ("", 3)]


async def test_a_turn_that_takes_long_keeps_no_other_waiting() -> None:
    begun, told, stopped = anyio.Event(), list[str](), list[int]()

    async def long() -> str:
        begun.set()
        await anyio.sleep_forever()
        return ""

    agents = [asking("long", long), asking("short", lambda: "short")]
    async with waiting(agents[0]) as (record, _), anyio.create_task_group() as group:

        def heard(outcome: gesta.Outcome) -> None:
            if outcome.answer is not None:
                told.append(outcome.answer)
                group.cancel_scope.cancel()

        async def later() -> None:
            await begun.wait()
            outcome = await record.run(agents[1], "Go.", session="later")
            await record.send(outcome.run, AnswerContent(of=outcome.waiting[0].of or 0, value="", by="ann"), key="a")

        group.start_soon(later)
        await Worker(record, agents).work(heard, every_s=0.0, stopping=stopped.append)
    assert told == ["short"]
    assert stopped == [1], "the long one was still at work"


class Left(Record):
    """A record whose turns end as they are told to."""

    ends: list[str]

    async def resume(
        self, run: str, agent: gesta.Agent[Any], *, listener: Any = None, by: str | None = "resume", **options: Any
    ) -> gesta.Outcome[Any]:
        """Return an outcome that waits for the next of `ends`."""
        assert by is None, "a worker is not a person"
        del agent, listener, options
        what = (Waiting(cast("Any", self.ends.pop(0)), None, "turn"),)
        return gesta.Outcome(run=run, session="s", turn=1, reason="waiting", waiting=what)


async def test_a_turn_that_its_program_left_is_taken_up_and_one_that_keeps_dying_is_not() -> None:
    now, agent, told = datetime(2026, 1, 1, tzinfo=UTC), asking("one", lambda: 1), list[str]()
    record = Left(MemoryStore(), address.bind)
    await record.run(agent, "Go.", session="s")
    record.ends, record.turns.clock = ["resume", "resume", "deaths"], lambda: now
    worker = Worker(record, [agent])
    for _ in range(4):
        await worker.look(lambda outcome: told.append(outcome.waiting[0].what))
        now += timedelta(seconds=2)
    now += timedelta(days=1)
    assert await worker.look(lambda outcome: told.append(outcome.waiting[0].what)) == 0
    assert told == ["resume", "resume", "deaths"]


async def test_a_write_that_fails_once_below_a_turn_stops_the_turn_for_no_longer_than_a_pause() -> None:
    class Failing(MemoryStore):
        failed = False

        async def append(self, batch: Batch) -> int:
            if not self.failed and any(row.kind == "tool-result" for row in batch.rows):
                self.failed = True
                raise WriteFailed(":memory:", "the disk is full")
            return await super().append(batch)

    paid, told, now = list[int](), list[gesta.Outcome](), datetime(2026, 1, 1, tzinfo=UTC)

    @gesta.tool(effect="once")
    def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    payer = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
    model = gesta.scripted(gesta.call("payer", task="pay"), "All is paid.")
    desk = gesta.Agent("desk", model=model, tools=[payer.as_tool()])
    record = Record(Failing(), address.bind, clock=lambda: now)
    assert [each.what for each in (await record.run(desk, "go", session="s")).waiting] == ["running"]
    worker = Worker(record, [desk])
    for _ in range(3):
        await worker.look(told.append)
        now += timedelta(seconds=1)
    assert (told[-1].answer, len(paid)) == ("All is paid.", 1)


async def test_a_worker_whose_record_was_replaced_says_so_and_goes_on_when_it_is_put_back(tmp_path: Path) -> None:
    class Placed(MemoryStore):
        @property
        def info(self) -> Info:
            return replace(super().info, address=str(path))

    path, away, other = (tmp_path / f"{name}.gesta" for name in ("r", "away", "other"))
    path.touch()
    other.touch()
    agent, told = asking("one", lambda: "fine"), list[gesta.Outcome]()
    record = Record(Placed(), address.bind)
    outcome = await record.run(agent, "Go.", session="s")
    worker = Worker(record, [agent])
    path.rename(away)
    for there in (False, True):
        if there:
            other.rename(path)
        with pytest.raises(WriteFailed, match="is not the file that was opened: it was moved, deleted or replaced"):
            await worker.look(told.append)
    away.rename(path)
    await record.answer(outcome.waiting[0], "yes", by="ann")
    assert await worker.look(told.append) == 1
    assert told[-1].answer == "fine"


def test_one_who_only_reads_reads_the_file_that_took_the_place_of_the_one_that_was_opened(tmp_path: Path) -> None:
    path, other, agent = tmp_path / "r.gesta", tmp_path / "other.gesta", asking("one", lambda: "fine")
    with gesta.open_sync(other) as record:
        record.run(agent, "Go.", session="new")
    with ExitStack() as readers:
        with gesta.open_sync(path) as record:
            record.run(agent, "Go.", session="s")
            reader = readers.enter_context(gesta.open_sync(path, readonly=True))
            assert [each.name for each in reader.sessions()] == ["s"]
        path.unlink()
        assert reader.find("s").session == "s", "what is open can still be read"
        other.rename(path)
        assert [each.name for each in reader.sessions()] == ["new"]


async def test_a_worker_tells_no_turn_that_others_ended() -> None:
    told, others = list[gesta.Outcome](), list[gesta.Outcome]()
    chat = gesta.Agent("chat", model=gesta.scripted("one", "two"))
    asks = asking("asks", lambda: "went on")
    async with gesta.open() as record:
        await record.run(chat, "Hello", session="chat")
        (waiting,) = (await record.run(asks, "Go.", session="asks")).waiting
        worker, other = Worker(record, [chat, asks]), Worker(record, [chat, asks])
        assert await worker.look(told.append) == 1
        assert [outcome.reason for outcome in told] == ["waiting"]
        assert (await record.run(chat, "And?", session="chat")).answer == "two"
        await record.answer(waiting, "yes", by="ann")
        assert await other.look(others.append) == 1
        assert [outcome.answer for outcome in others] == ["went on"]
        assert await worker.look(told.append) == 0
        assert len(told) == 1


@pytest.mark.parametrize("started", ["before", "after"])
async def test_a_message_that_is_queued_behind_a_cancelled_turn_is_answered_by_a_worker(started: str) -> None:
    @gesta.tool(effect="once", approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = gesta.Agent("clerk", model=gesta.scripted(gesta.call("pay"), "You are welcome."), tools=[pay])
    async with gesta.open() as record:
        worker, told = Worker(record, [agent]), list[gesta.Outcome]()
        first = await record.run(agent, "Pay.", session="s")
        assert (await record.run(agent, "Thank you.", session="s")).queued
        if started == "before":
            await worker.look(lambda _outcome: None)
        assert await record.cancel(first.run, by="eva") is not None
        assert await worker.look(told.append) == 1
        assert [each.answer for each in told] == ["You are welcome."]
        assert await worker.look(told.append) == 0
