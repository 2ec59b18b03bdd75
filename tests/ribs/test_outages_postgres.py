"""A server that goes away and comes back, connections that are ended at any instant, and holders that are cancelled."""
# ruff: noqa: E402 - without the library nothing else can be imported

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.otlp_receiver import receiving
from tests.postgres import Server, running
from tests.ribs.test_stores_postgres import Apart, Child, InlineApart, child, closing_store, taken_over  # noqa: F401

psycopg = pytest.importorskip("psycopg")

import gesta
from gesta.address import drive
from gesta.bridges.otlp.following import Exporter
from gesta.bridges.otlp.settings import settings
from gesta.bridges.pushing import push
from gesta.compare.forks import Fork, fork
from gesta.errors import LeaseLost, RecordBusy, RecordError, RunError, RunHeld, ServerGone, WriteFailed
from gesta.kinds import SystemContent
from gesta.perform.execution import LiveRun, Task
from gesta.record.followers import Target
from gesta.record.turns import Turns
from gesta.store import Batch, Lease, Letter
from gesta.stores.postgres import InlinePostgresStore, PostgresStore
from gesta.stores.postgres_open import connect, located, number
from gesta.stores.postgres_transaction import Transaction
from gesta.stores.run_index import RunIndex
from gesta.testing import make_batch, make_row, refused
from gesta.tools.person import ask_person
from gesta.workflow.verbs import Verbs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of this module alone, for it is stopped."""
    with running(wal_writer_delay="10s") as started:  # so that a crash takes whatever waited for no disk
        yield started


@pytest.fixture
def address(server: Server) -> Iterator[str]:
    """The address of an empty record."""
    with server.emptied() as place:
        yield place
        if server.process is None:  # a test that failed left it stopped
            server.start()


def end_all(address: str) -> None:
    """Have the server end every connection but the one that says so."""
    with closing(connect(located(address), readonly=False)) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


# ------------------------------------------------------------------------------------------------- a server restarts


@pytest.mark.sample(2)
@pytest.mark.parametrize("at_once", [True, False])
def test_an_append_that_meets_a_restart_waits_for_the_server(server: Server, address: str, at_once: bool) -> None:
    with closing_store(address) as store, ThreadPoolExecutor(1) as pool:
        lease = drive(store.lease("r"))
        drive(store.append(Batch(lease, 0, [make_row("r", 1, "end")])))
        server.stop(at_once=at_once)
        work = pool.submit(lambda: drive(store.append(make_batch(lease, 1))))
        server.start()
        assert work.result() == 2
        assert [row.seq for row in drive(store.read("r"))] == [1, 2]


@pytest.mark.parametrize("lost", [False, True])
def test_of_batches_in_one_exchange_the_refused_one_alone_is_refused_and_none_is_added_twice(
    address: str, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, sent = Transaction.add_at_once, list[list[int | None]]()

    def cut(transaction: Transaction, works: Any, *, synced: bool) -> Any:
        """As if the connection had ended after the server carried out the commit, and before its answer came."""
        given = send(transaction, works, synced=synced)
        sent.append(given[0])
        if lost:
            transaction._connection.close()
            raise psycopg.OperationalError("the connection was lost")
        return given

    with closing_store(address) as store:
        first, second, third = (drive(store.lease(run)) for run in ("a", "b", "c"))
        monkeypatch.setattr(Transaction, "add_at_once", cut)
        before = store.commits
        works = [make_batch(first, 0), make_batch(second, 7), make_batch(third, 0)]
        added, denied, more = store.writer.commit(works, synced=True)
        assert (added, more, sent) == (1, 2, [[1, None, 2]])
        assert isinstance(denied, LeaseLost)
        assert str(denied).count("head 7") == 1
        assert [[row.seq for row in drive(store.read(run))] for run in ("a", "b", "c")] == [[1], [], [1]]
        assert store.commits == before + 1


def test_a_batch_that_was_added_is_told_as_added_whatever_comes_of_a_refused_one_beside_it(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **_options: Any) -> None:
        raise psycopg.errors.DiskFull("no space left")

    with closing_store(address) as store:
        first, second = drive(store.lease("a")), drive(store.lease("b"))
        monkeypatch.setattr(Transaction, "begin", full)
        added, denied = store.writer.commit([make_batch(first, 0), make_batch(second, 7)], synced=True)
        monkeypatch.undo()
        assert (added, type(denied), len(drive(store.read("a")))) == (1, WriteFailed, 1)


def test_what_is_committed_beside_a_row_that_cannot_be_stored_is_told_as_committed(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = Transaction.begin, list[None]()

    def full(*given: Any, **options: Any) -> None:
        begun.append(None)
        if len(begun) > 1:
            raise psycopg.errors.DiskFull("no space left")
        begin(*given, **options)

    with closing_store(address) as store:
        leases = [drive(store.lease(run)) for run in ("a", "b")]
        rows = [make_row("a", 1), make_row("b", 1, content="\0")]
        letters = [Letter("a", key, "{}", "") for key in "xy"]
        works = [*(Batch(lease, 0, [row]) for lease, row in zip(leases, rows, strict=True)), *letters]
        monkeypatch.setattr(Transaction, "begin", full)
        added, *others = store.writer.commit(works, synced=True)
        monkeypatch.undo()
        assert (added, [type(each) for each in others]) == (1, [WriteFailed] * 3)
        assert [len(drive(store.read(run))) for run in ("a", "b")] == [1, 0]


def test_a_lease_that_a_broken_server_forgot_stands_if_nobody_took_it(server: Server, address: str) -> None:
    with closing_store(address) as store, closing_store(address, InlineApart) as other:
        lease, lent = drive(store.lease("r")), drive(store.lease("q"))
        store.writer._connection.execute("DELETE FROM leases")  # as if its commit had not reached the disk
        drive(store.append(make_batch(lease, 0)))
        assert drive(other.lease("q")).epoch == 1
        with pytest.raises(LeaseLost):
            drive(store.append(make_batch(lent, 0)))
        with pytest.raises(RunHeld):
            drive(other.lease("r"))


@pytest.mark.parametrize("broken", ["before the child run begins", "after it ended"])
async def test_no_other_run_relies_on_what_a_broken_server_forgot(
    server: Server, address: str, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program notes how often it began, so a step that it must begin again would get another seq."""
    answers: Iterator[Any] = iter([gesta.call("ask_person", question="How much?"), "12", "13"])
    began = list[int]()
    clerk = gesta.Agent("clerk", model=gesta.function(lambda *_: next(answers)), tools=[ask_person()])

    async def program(verbs: Verbs, task: str) -> str:
        began.append(len(began))
        for each in began:
            verbs.now(f"beginning {each}")
        first = await verbs.go_on(clerk, SystemContent(value=task), "first", thread="clerk")
        then = await verbs.go_on(clerk, SystemContent(value="And then?"), "then", thread="clerk")
        return f"{first.text} {then.text}"

    def crash() -> None:
        server.stop(at_once=True)
        server.start()

    desk, runs, take, work = gesta.Agent("desk", program=program), list[str](), PostgresStore.lease, Turns.child

    async def lease(store: PostgresStore, run: str, *, mirror: bool = False) -> Lease:
        runs.append(run)
        if broken.startswith("before") and len(runs) == 2:
            crash()
        return await take(store, run, mirror=mirror)

    async def done(turns: Turns, agent: gesta.Agent, task: Task, live: LiveRun) -> gesta.Outcome:
        ended = await work(turns, agent, task, live)
        if broken.startswith("after") and ended.end is not None and len(began) == 2:
            crash()
        return ended

    monkeypatch.setattr(PostgresStore, "lease", lease)
    monkeypatch.setattr(Turns, "child", done)
    async with gesta.open(address, durability="normal") as record:
        outcome = await record.run(desk, "Count.", session="s", key="m")
        assert [each.what for each in outcome.waiting] == ["question"]
        await record.answer(outcome.waiting[0], "twelve", by="ann")
        for _ in range(3):
            with suppress(LeaseLost):
                outcome = await record.run(desk, "Count.", session="s", key="m")
        assert (outcome.reason, outcome.answer) == ("answered", "12 13")
        assert not (await record.verify())


@pytest.fixture
def counting() -> gesta.Agent:
    """An agent whose answers differ."""
    answers = count(1)
    return gesta.Agent("clerk", model=gesta.function(lambda *_: f"Answer {next(answers)}."))


async def test_no_fork_continues_from_what_a_broken_server_forgot(
    server: Server, address: str, counting: gesta.Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gesta.open(address, durability="normal") as record:
        base = await record.find((await record.run(counting, "go", session="s")).run)

        async def lease(store: PostgresStore, run: str, *, mirror: bool = False) -> Lease:
            server.stop(at_once=True)
            server.start()
            return await take(store, run, mirror=mirror)

        take = PostgresStore.lease
        with monkeypatch.context() as patched:
            patched.setattr(PostgresStore, "lease", lease)
            with pytest.raises(RunError, match="no longer as it was read"):
                await fork(record, base, Fork())
        await record.run(counting, "go", session="s")
        await fork(record, await record.find("s"), Fork())
        assert not await record.verify()


async def test_no_copy_is_ahead_of_a_broken_server(
    server: Server, address: str, counting: gesta.Agent, tmp_path: Path
) -> None:
    async with gesta.open(address, durability="normal") as record, gesta.open(tmp_path / "copy.gesta") as copy:
        for _ in range(3):
            await record.run(counting, "go", session="s")
            pushed = await push(record.store, copy.store)
            assert (pushed.runs, pushed.refused) == (1, [])
            server.stop(at_once=True)
            server.start()


def test_a_read_that_meets_a_restart_waits_for_the_server(server: Server, address: str) -> None:
    with closing_store(address) as store, ThreadPoolExecutor(3) as pool:
        drive(store.append(Batch(drive(store.lease("r")), 0, [make_row("r", 1, "end")])))
        server.stop(at_once=True)
        works = [pool.submit(lambda: len(drive(store.read("r"))))]
        works.append(pool.submit(lambda: len(drive(store.sql("SELECT 1")).rows)))
        server.start()
        assert [work.result() for work in works] == [1, 1]


async def test_who_follows_goes_on_after_a_restart(server: Server, address: str) -> None:
    store = PostgresStore.open(address)
    lease, seen = await store.lease("r"), []
    await store.append(make_batch(lease, 0))
    with anyio.fail_after(20):
        async for page in store.tail():
            seen += [row.seq for row in page]
            if len(seen) == 3:
                break
            await anyio.to_thread.run_sync(server.stop)
            await anyio.to_thread.run_sync(server.start)
            await store.append(make_batch(lease, len(seen)))
    await store.close()
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("grown", [1, 3])
async def test_who_read_what_a_broken_server_forgot_is_told(server: Server, address: str, grown: int) -> None:
    store, read = PostgresStore.open(address, durability="normal"), list[int]()

    async def write(run: str, *, synced: bool = False) -> None:
        await store.append(Batch(await store.lease(run), 0, [make_row(run, 1)], synced=synced))

    async def follow() -> None:
        async for page in store.tail():
            read.extend(row.pos for row in page)
            if len(read) == 3:
                await anyio.to_thread.run_sync(lambda: server.stop(at_once=True))
                await anyio.to_thread.run_sync(server.start)
                for run in "cde"[:grown]:
                    await write(run)

    await write("r", synced=True)
    await write("a")
    await write("b")
    with anyio.fail_after(20), pytest.raises(RecordError, match="lost entries that were read before"):
        await follow()
    await store.close()
    assert read == [1, 2, 3]


async def test_who_follows_from_where_a_broken_server_is_no_longer_hears_what_comes(
    server: Server, address: str, counting: gesta.Agent
) -> None:
    async with gesta.open(address, durability="normal") as record:
        last = [event.id async for event in record.stream(counting, "go", session="s")][-1]
        server.stop(at_once=True)
        server.start()
        heard = list[str]()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(record.run, counting, "go", session="s"))
                async for event in record.follow(Target(session="s", whole=True, until_end=True), after=last or 0):
                    heard.append(event.type)
        assert heard[-1] == "end"


async def test_traces_of_what_replaced_what_a_broken_server_forgot_are_sent(
    server: Server, address: str, counting: gesta.Agent, tmp_path: Path
) -> None:
    with receiving() as receiver:
        async with gesta.open(address, durability="normal") as record, anyio.create_task_group() as tasks:
            found = settings(receiver.address, environment={})
            assert found is not None
            exporter = Exporter(record.store, found, tmp_path / "place.json", told=lambda _: None)
            tasks.start_soon(exporter.follow)
            await record.run(counting, "go", session="a")
            await anyio.to_thread.run_sync(receiver.wait, 2)
            await anyio.to_thread.run_sync(lambda: server.stop(at_once=True))
            await anyio.to_thread.run_sync(server.start)
            await record.run(counting, "go", session="b")
            await anyio.to_thread.run_sync(receiver.wait, 4)
            tasks.cancel_scope.cancel()


async def test_a_list_of_sessions_has_none_that_a_broken_server_forgot(
    server: Server, address: str, counting: gesta.Agent
) -> None:
    async with gesta.open(address, durability="normal") as record:
        index = RunIndex(record.store)
        for sessions in ("ab", "cde"):
            for session in sessions:
                await record.run(counting, "go", session=session)
            await index.update()
            if sessions == "ab":
                server.stop(at_once=True)
                server.start()
        assert index.all("SELECT session FROM sessions ORDER BY session") == [("c",), ("d",), ("e",)]


async def test_a_reader_that_is_cancelled_waits_for_no_server(server: Server, address: str) -> None:
    store = PostgresStore.open(address)
    server.stop()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.read, "r")
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await store.close()
    server.start()


async def test_after_an_outage_every_run_is_free_without_closing_the_record(server: Server, address: str) -> None:
    store, other = PostgresStore.open(address, busy_s=0.05), Apart.open(address)
    leases = [await store.lease(run) for run in "abcd"]
    await store.append(make_batch(leases[0], 0))
    server.stop(at_once=True)
    with pytest.raises(ServerGone, match="server"):
        await store.append(make_batch(leases[0], 1))
    with pytest.raises(ServerGone):
        await store.lease("e")
    with pytest.raises(ServerGone):
        await store.read("a")
    for lease in leases:
        await store.release(lease)
    server.start()
    again = await store.lease("a")
    assert (again.lost, again.head) == (False, 1)
    await store.append(make_batch(again, 1))
    for run in "bcde":
        assert not (await other.lease(run)).lost, "what could not be given back rode with the next commit"
    await store.close()
    await other.close()


def test_a_run_whose_release_a_broken_server_forgot_is_free(server: Server, address: str) -> None:
    with closing_store(address) as store, closing_store(address, InlineApart) as other:
        leases = [drive(store.lease(run)) for run in "rq"]
        drive(store.append(Batch(leases[0], 0, [make_row("r", 1, "end")])))
        for lease in leases:
            drive(store.release(lease))  # which waits for no disk
        server.stop(at_once=True)
        server.start()
        drive(store.lease("another"))
        again = drive(store.lease("r"))
        assert (again.head, again.lost) == (1, False)
        with pytest.raises(RunHeld):
            drive(other.lease("another"))
        assert not drive(other.lease("q")).lost


def test_no_letter_is_taken_for_one_that_a_broken_server_forgot(server: Server, address: str) -> None:
    with closing_store(address, durability="normal") as store:
        lease = drive(store.lease("r"))
        drive(store.append(Batch(lease, 0, [make_row("r", 1)], synced=True)))
        drive(store.send(Letter("r", "lost", "{}", "")))
        (lost,) = drive(store.inbox("r"))
        server.stop(at_once=True)
        server.start()
        drive(store.send(Letter("r", "next", "{}", "")))
        drive(store.send(Letter("r", "last", "{}", "")))
        with pytest.raises(LeaseLost):
            drive(store.append(Batch(lease, 1, [make_row("r", 2)], letters=[lost.id])))
        assert [letter.key for letter in drive(store.inbox("r"))] == ["next", "last"]


def test_a_store_that_is_closed_in_an_outage_waits_for_nothing(server: Server, address: str) -> None:
    store = InlinePostgresStore.open(address)
    lease = drive(store.lease("r"))
    server.stop(at_once=True)
    failed = threading.Event()

    def append() -> None:
        with pytest.raises(WriteFailed):
            drive(store.append(make_batch(lease, 0)))
        failed.set()

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(append)
        drive(store.close())
        work.result()
    assert failed.is_set()


async def test_a_turn_stops_where_the_server_stays_away_and_goes_on_when_it_is_back(
    server: Server, address: str
) -> None:
    fired = []

    @gesta.tool(effect="once")
    async def pay(x: int) -> str:
        fired.append(x)
        if x == 1 and not fired.count(2):
            server.stop(at_once=True)
        return "paid"

    model = gesta.scripted(gesta.call("pay", x=0), gesta.call("pay", x=1), "Done.")
    agent = gesta.Agent("a", model=model, tools=[pay])
    async with gesta.open(address, busy_s=0.05) as record:
        with pytest.raises(ServerGone):
            await record.run(agent, "go", session="s", key="m")
        with pytest.raises(ServerGone):
            await record.run(agent, "go", session="t")
        assert fired == [0, 1]
        server.start()
        outcome = await record.run(agent, "go", session="s", key="m")
        assert outcome.reason == "answered", "the result of the second one was kept until it could be written"
        assert fired == [0, 1]
        assert await record.verify() == []


# ------------------------------------------------------------------------------------- connections end at any instant


async def test_connections_that_are_ended_at_any_instant_lose_nothing_and_repeat_nothing(address: str) -> None:
    store = PostgresStore.open(address)

    async def write(run: str) -> None:
        lease = await store.lease(run)
        for head in range(12):
            async with anyio.create_task_group() as tasks:
                if run == "a":
                    tasks.start_soon(anyio.to_thread.run_sync, end_all, address)
                await store.append(make_batch(lease, head))
                assert await store.send(Letter(run, str(head), "{}", ""))
        await store.release(lease)

    async with anyio.create_task_group() as writers:
        for run in ("a", "b", "c"):
            writers.start_soon(write, run)
    rows = (await store.sql("SELECT run, count(*), max(seq) FROM entries GROUP BY run ORDER BY run")).rows
    assert rows == [(run, 12, 12) for run in "abc"]
    assert (await store.sql("SELECT count(*) FROM inbox")).rows == [(36,)]
    for run in "abc":
        assert not (await store.lease(run)).lost
    await store.close()


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_holder_that_is_cancelled_while_connections_end_leaves_nothing_held(address: str, backend: str) -> None:
    async def hold(store: PostgresStore, run: str, started: anyio.Event) -> None:
        lease = await store.lease(run)
        try:
            started.set()
            head = lease.head
            while True:
                await store.append(make_batch(lease, head))
                head += 1
        finally:
            with anyio.CancelScope(shield=True):
                await store.release(lease)

    async def main() -> None:
        store = PostgresStore.open(address)
        for step in range(12):
            async with anyio.create_task_group() as tasks:
                started = anyio.Event()
                for run in ("a", "b"):
                    tasks.start_soon(hold, store, run, started)
                if step % 3:
                    await started.wait()
                if step % 2:
                    await anyio.to_thread.run_sync(end_all, address)
                for _ in range(step):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            for run in ("a", "b"):
                lease = await store.lease(run)
                assert not lease.lost
                await store.release(lease)
        await store.close()

    pytest.importorskip(backend)
    anyio.run(main, backend=backend)


def test_a_session_that_shows_life_is_opened_again_before_the_next_commit(address: str) -> None:
    with closing_store(address) as store, closing_store(address, InlineApart) as other:
        lease = drive(store.lease("r"))
        keeper = store.writer.holding._keeper
        with closing(connect(located(address), readonly=False)) as third:
            third.execute("SELECT pg_terminate_backend($1, 2000)", (keeper.info.backend_pid,))
        drive(store.append(make_batch(lease, 0)))
        assert store.writer.holding._keeper is not keeper
        with pytest.raises(RunHeld):
            drive(other.lease("r"))


def test_others_that_write_without_a_pause_are_waited_for_and_then_named(address: str) -> None:
    with closing_store(address, busy_s=0.05) as store, closing(connect(located(address), readonly=False)) as other:
        lease = drive(store.lease("r"))
        other.execute("BEGIN")
        other.execute("SELECT pg_advisory_xact_lock($1)", (number(store.info.id),))
        with pytest.raises(RecordBusy, match="others have been writing to it without a pause"):
            drive(store.append(make_batch(lease, 0)))
        drive(store.release(lease))
        other.execute("ROLLBACK")
        again = drive(store.lease("r"))
        assert not again.lost
        drive(store.append(make_batch(again, 0)))


# --------------------------------------------------------------------------------------------- holders and processes


def test_stores_of_one_process_share_what_is_in_use(address: str) -> None:
    with closing_store(address) as one, closing_store(address) as two:
        lease = drive(one.lease("r"))
        with pytest.raises(RunHeld, match="which is this one"):
            drive(two.lease("r"))
        drive(one.release(lease))
        taken = drive(two.lease("r"))
        assert (taken.owner, taken.lost) == (lease.owner, False)
        drive(one.lease("q"))
        drive(one.close())
        assert not drive(two.lease("q")).lost
        assert drive(two.gone(lease.owner)) is False


def test_a_run_that_no_living_holder_uses_is_taken_and_counts_as_lost(address: str) -> None:
    with closing_store(address) as store:
        drive(store.append(make_batch(drive(store.lease("r")), 0)))
        store.writer.holding.presence.using.clear()
        assert drive(store.lease("r")).lost


HOLDING = """
lease = drive(store.lease("r"))
print(lease.owner, flush=True)
"""


def test_a_process_is_gone_when_it_has_ended_and_not_when_its_connection_has(address: str, child: Any) -> None:  # noqa: F811
    writer = child(HOLDING + "time.sleep(60)")
    owner = writer.line()
    with closing_store(address) as store:
        assert drive(store.gone(owner)) is False
        end_all(address)
        assert taken_over(store, "r").lost
        assert drive(store.gone(owner)) is False
        writer.kill()
        assert drive(store.gone(owner)) is True


def test_a_process_that_closed_its_record_lives_for_as_long_as_that_is_kept(address: str, child: Any) -> None:  # noqa: F811
    writer = child(
        HOLDING
        + """
end = store.keep()
drive(store.release(lease))
drive(store.close())
print(store.descriptor(), flush=True)
sys.stdin.readline()
end()
end()
print("ended", flush=True)
time.sleep(60)
"""
    )
    owner = writer.line()
    assert int(writer.line())
    with closing_store(address) as store:
        assert drive(store.gone(owner)) is False
        assert not drive(store.lease("r")).lost
        writer.process.stdin.write("\n")
        writer.process.stdin.flush()
        assert writer.line() == "ended"
        assert drive(store.gone(owner)) is True


def test_a_forked_child_that_closes_its_copy_of_a_store_ends_nothing(address: str, child: Any) -> None:  # noqa: F811
    writer = child(
        HOLDING
        + """
end = store.keep()
if not os.fork():
    drive(store.close())
    end()
    print("closed", flush=True)
    os._exit(0)
os.wait()
print(store.descriptor(), flush=True)
time.sleep(60)
"""
    )
    owner = writer.line()
    assert writer.line() == "closed"
    assert int(writer.line())
    with closing_store(address) as store:
        assert drive(store.gone(owner)) is False
        with pytest.raises(RunHeld):
            drive(store.lease("r"))


def test_a_subprocess_that_inherits_the_descriptor_keeps_its_dead_parent_counted_as_living(
    address: str,
    child: Any,  # noqa: F811
) -> None:
    writer = child(
        HOLDING
        + """
import subprocess
descriptor = store.descriptor()
code = "import sys; print('here', flush=True); sys.stdin.read()"
more = subprocess.Popen([sys.executable, "-c", code], pass_fds=[descriptor])
time.sleep(60)
"""
    )
    owner = writer.line()
    assert writer.line() == "here"
    with closing_store(address) as store:
        writer.process.kill()
        writer.process.wait()
        assert drive(store.gone(owner)) is False
        assert taken_over(store, "r").lost
        writer.process.stdin.close()  # the subprocess reads to its end
        assert writer.process.stdout.read() == ""
        while drive(store.gone(owner)) is False:
            pass
        assert drive(store.gone(owner)) is True
    writer.process.stdout.close()


@pytest.mark.parametrize("other", ["another folder", "a copy of the file"])
def test_of_a_process_on_another_machine_nothing_is_known(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setenv("GESTA_STATE", str(tmp_path / "one"))
    with closing_store(address) as store:
        owner = drive(store.lease("r")).owner
        assert (tmp_path / "one" / "processes").exists()
        (tmp_path / "two").mkdir()
        if other != "another folder":
            (tmp_path / "two" / "processes").write_bytes((tmp_path / "one" / "processes").read_bytes())
        monkeypatch.setenv("GESTA_STATE", str(tmp_path / "two"))
        with closing_store(address, InlineApart) as there:
            assert drive(there.gone(owner)) is None
            drive(there.declare_gone(owner, "ann"))
            assert drive(there.gone(owner)) is True
            assert drive(there.lease("r")).lost, "a person says so"
        assert drive(store.gone(owner)) is False, "the process itself knows better"


def test_without_a_folder_for_state_no_run_is_taken(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GESTA_STATE", str(tmp_path / "file"))
    with closing_store(address, InlineApart) as store:
        with pytest.raises(WriteFailed, match="set GESTA_STATE to a folder on a local disk"):
            drive(store.lease("r"))
        assert drive(store.gone("0123456789abcdef.1.1.0")) is None
        monkeypatch.setenv("GESTA_STATE", str(tmp_path / "folder"))
        drive(store.lease("r"))


# ------------------------------------------------------------------------------------------------ time, and the disk


def test_a_letter_bears_the_time_of_the_server(address: str) -> None:
    with closing_store(address) as store:
        clock = "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
        ((before,),) = drive(store.sql(clock)).rows
        drive(store.send(Letter("r", "key", "{}", "2001-01-01T00:00:00.000000Z")))
        ((after,),) = drive(store.sql(clock)).rows
        assert before < drive(store.inbox("r"))[0].at < after
        assert len(before) == len("2001-01-01T00:00:00.000000Z")


@pytest.mark.parametrize("kind", ["attempt", "tool-result"])
def test_no_crash_of_a_server_takes_the_attempt_or_the_result_of_a_call(
    server: Server, address: str, kind: str
) -> None:
    with closing_store(address) as store:
        drive(store.append(Batch(drive(store.lease("r")), 0, [make_row("r", 1, kind)])))
        server.stop(at_once=True)
        server.start()
        assert drive(store.head("r"))[0] == 1


class Listening:
    """A connection that notes what it is told to do."""

    def __init__(self, real: Any) -> None:
        self._real, self.heard = real, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute(self, query: Any, *values: Any) -> Any:
        self.heard.append(str(query))
        return self._real.execute(query, *values)


@pytest.mark.parametrize("kind", [PostgresStore, InlinePostgresStore])
async def test_a_batch_that_must_not_be_forgotten_waits_for_the_disk(
    address: str, kind: type[InlinePostgresStore]
) -> None:
    store = kind.open(address, durability="normal")
    lease = await store.lease("r")
    store.writer._connection = heard = Listening(store.writer._connection)  # type: ignore[assignment]
    await store.append(Batch(lease, 0, [make_row("r", 1)]))
    assert "'synchronous_commit', 'off'" in " ".join(heard.heard)
    assert len(heard.heard) == 4, "begin, lock, what is known of the run, commit; its rows come on top"
    heard.heard.clear()
    await store.append(Batch(lease, 1, [make_row("r", 2)], synced=True))
    assert "synchronous_commit" not in " ".join(heard.heard)
    await store.close()


async def test_a_lease_that_is_no_longer_held_is_let_be(address: str) -> None:
    store = PostgresStore.open(address)
    await store.release(Lease("r", "0123456789abcdef", 1, 0, b""))
    await store.close()
    with suppress(WriteFailed):
        await store.release(Lease("r", "0123456789abcdef", 1, 0, b""))
    await refused(store.lease("r"), WriteFailed)
