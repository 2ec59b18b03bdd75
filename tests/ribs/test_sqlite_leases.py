"""A run is free as soon as its holder is done, whatever happened to that one: cancelled, failed, or kept waiting."""

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import apsw
import pytest
from tests import programs
from tests.conftest import tried

import gesta
from gesta.address import drive
from gesta.errors import RecordBusy, RecordError, RunHeld, WriteFailed
from gesta.store import Batch, Lease, Letter, Statements, TransactionalEffect
from gesta.stores.locks import NEXT, Turn, free
from gesta.stores.sqlite import InlineSqliteStore, SqliteStore
from gesta.testing import make_batch, refused

pytestmark = pytest.mark.sample(2, over="parent")

SOURCE = str(Path(next(iter(gesta.__path__))).parent)
WRITING = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("writing", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""
PROCESSES, RUNS = tried((2, 2), (2, 4), (3, 8))
"""Of each process that contends for one file."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.gesta"


@pytest.fixture
def foreign(path: Path) -> Iterator[Callable[[], Callable[[], None]]]:
    """Another program, which opens a write transaction, until the function that it gives is called."""

    def begin() -> Callable[[], None]:
        process = programs.Program(["-c", WRITING, str(path)])
        started.append(process)
        assert process.stdout.readline() == "writing\n"

        def end() -> None:
            process.communicate("\n")

        return end

    started: list[programs.Program] = []
    yield begin
    for process in started:
        process.kill()
        process.communicate()


def owners(path: Path) -> dict[str, str | None]:
    """Owners of leases, by run, as any other program reads them."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        return dict(db.execute("SELECT run, owner FROM leases").fetchall())  # type: ignore[arg-type]


async def until(happened: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not happened():  # noqa: ASYNC110 - what another program sees rings no bell
            await anyio.sleep(0.01)


async def hold(store: SqliteStore, run: str) -> None:
    """Hold a run as the spine does."""
    lease = await store.lease(run)
    try:
        for count in range(3):
            await store.append(make_batch(lease, lease.head + count))
        await anyio.sleep(60)
    finally:
        with anyio.CancelScope(shield=True):
            await store.release(lease)


@pytest.mark.sample(3)
@pytest.mark.parametrize("slowest_s", [0.0, 1e9], ids=["in place", "in a thread"])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_task_that_is_cancelled_again_and_again_leaves_no_run_held(path: Path, slowest_s: float, times: int) -> None:
    async def main() -> None:
        store = SqliteStore.open(path, durability="normal")
        for step in range(30):
            store.sharing._slowest_s = slowest_s
            tasks = [asyncio.create_task(hold(store, run)) for run in ("a", "b", "c")]
            for _ in range(step):
                await asyncio.sleep(0)
            for _ in range(times):
                for task in tasks:
                    task.cancel()
                await asyncio.sleep(0)
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(end) for end in ends} == {asyncio.CancelledError}
            assert set(owners(path).values()) <= {None}, "others see it too"
            for run in ("a", "b", "c"):
                lease = await store.lease(run)
                assert not lease.lost
                await store.release(lease)
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_scope_that_is_left_leaves_no_run_held(path: Path, backend: str) -> None:
    if backend == "trio":
        pytest.importorskip("trio")

    async def main() -> None:
        store = SqliteStore.open(path, durability="normal")
        for step in range(20):
            async with anyio.create_task_group() as tasks:
                for run in ("a", "b"):
                    tasks.start_soon(hold, store, run)
                for _ in range(step):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            assert set(owners(path).values()) <= {None}
        await store.close()

    anyio.run(main, backend=backend)


def test_a_release_that_nobody_drives_on_is_committed_all_the_same(path: Path) -> None:
    async def main() -> None:
        store = SqliteStore.open(path, durability="normal")
        lease = await store.lease("r")
        giving = store.release(lease)
        giving.send(None)
        giving.close()  # as a loop does that ends
        await until(lambda: owners(path) == {"r": None})
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("opening", [SqliteStore.open, InlineSqliteStore.open], ids=["loop", "inline"])
def test_what_could_not_be_given_back_is_tried_again_by_itself(path: Path, opening: Callable[..., Any]) -> None:
    async def main() -> None:
        store = opening(path)
        lease = await store.lease("r")
        await store.append(make_batch(lease, 0))
        store.writer._connection.set_commit_hook(lambda: True)  # as a disk that is full
        await refused(store.append(make_batch(lease, 1)), WriteFailed)
        await store.release(lease)
        assert owners(path)["r"] == lease.owner
        store.writer._connection.set_commit_hook(None)
        await until(lambda: owners(path) == {"r": None})
        await until(lambda: all(thread.name != "gesta leases" for thread in threading.enumerate()))
        await store.close()

    anyio.run(main)


def test_closing_ends_the_thread_that_tries_again(path: Path) -> None:
    store = InlineSqliteStore.open(path)
    lease = drive(store.lease("r"))
    store.writer._connection.set_commit_hook(lambda: True)
    drive(store.release(lease))
    (trying,) = [thread for thread in threading.enumerate() if thread.name == "gesta leases"]
    store.writer._connection.set_commit_hook(None)
    drive(store.close())
    trying.join(5)
    assert not trying.is_alive()
    again = InlineSqliteStore.open(path)
    assert not drive(again.lease("r")).lost
    drive(again.close())


def test_two_stores_of_a_process_see_what_each_other_holds(path: Path) -> None:
    one, two = InlineSqliteStore.open(path), InlineSqliteStore.open(path)
    lease = drive(one.lease("r"))
    with pytest.raises(RunHeld, match=f"process {os.getpid()} on "):
        drive(two.lease("r"))
    one.writer._connection.set_commit_hook(lambda: True)
    drive(one.release(lease))
    taken = drive(two.lease("r"))
    assert (taken.lost, taken.owner, taken.epoch) == (False, lease.owner, lease.epoch + 1)
    one.writer._connection.set_commit_hook(None)
    drive(one.release(lease))  # of old
    with pytest.raises(RunHeld):
        drive(one.lease("r"))
    drive(one.close())
    with pytest.raises(RunHeld):
        drive(two.lease("r"))
    drive(two.close())


def test_a_run_is_taken_once_of_those_who_ask_at_the_same_time(path: Path) -> None:
    async def main() -> None:
        store = SqliteStore.open(path)
        found: list[Lease | RunHeld] = []

        async def take() -> None:
            try:
                found.append(await store.lease("r"))
            except RunHeld as error:
                found.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(take)
        assert sorted(type(one).__name__ for one in found) == ["Lease"] + ["RunHeld"] * 4
        await store.close()

    anyio.run(main)


def test_another_program_that_writes_for_long_is_waited_for_and_the_loop_goes_on(
    path: Path, foreign: Callable[[], Callable[[], None]]
) -> None:
    async def main() -> None:
        store = SqliteStore.open(path)
        lease = await store.lease("r")
        end, turns, done = foreign(), 0, anyio.Event()

        async def append() -> None:
            await store.append(make_batch(lease, 0))
            done.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append)
            while turns < 100:
                await anyio.lowlevel.checkpoint()
                turns += 1
            assert not done.is_set()
            assert (await store.head("r"))[0] == 0, "what is on record can be read meanwhile"
            end()
            with anyio.fail_after(10):
                await done.wait()
        assert (await store.head("r"))[0] == 1
        await store.close()

    anyio.run(main)


def test_one_that_writes_for_longer_is_an_error_that_names_the_option_and_every_run_is_free_afterwards(
    path: Path, foreign: Callable[[], Callable[[], None]]
) -> None:
    async def main() -> None:
        store = SqliteStore.open(path, busy_s=0.05)
        leases = [await store.lease(run) for run in ("a", "b")]
        end = foreign()
        for lease in leases:
            error = await refused(store.append(make_batch(lease, 0)), RecordBusy)
            assert "another program has been writing to it without a pause for 0.05 s, the `busy_s` of" in str(error)
            await store.release(lease)
        await refused(store.lease("a"), RecordBusy)
        end()
        for lease in leases:
            again = await store.lease(lease.run)
            assert not again.lost
            await store.append(make_batch(again, 0))
        await store.close()

    anyio.run(main)


def test_a_cancelled_wait_for_another_program_never_happened(
    path: Path, foreign: Callable[[], Callable[[], None]]
) -> None:
    async def main() -> None:
        store = SqliteStore.open(path)
        lease = await store.lease("r")
        end = foreign()
        task = asyncio.create_task(store.append(make_batch(lease, 0)))
        other = asyncio.create_task(store.append(make_batch(lease, 0)))
        for _ in range(5):
            await asyncio.sleep(0)
        for _ in range(20):
            task.cancel()
            await asyncio.sleep(0)
        end()
        await asyncio.wait([task, other])
        assert (await store.head("r"))[0] == 1, "the first was under way, and is seen through"
        await store.close()

    asyncio.run(main())


def test_who_waits_comes_before_who_has_just_written(tmp_path: Path) -> None:
    descriptors = [os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    one, two = map(Turn, descriptors)
    assert one.taken_at_once()
    assert not two.taken_at_once()
    waiting = threading.Thread(target=two.taken_by, args=(time.monotonic() + 60,))
    waiting.start()
    while waiting.is_alive():
        one.release()
        if not one.taken_at_once():  # because the other one waits, or has its turn
            break
    waiting.join(10)
    assert not one.taken_at_once()
    with (
        pytest.raises(RecordBusy, match=r"other processes have been writing to it .* for 0\.01 s"),
        one.waited("a", 0.01),
    ):
        pass
    two.release()
    with one.waited("a", 0.01):
        pass
    for descriptor in descriptors:
        os.close(descriptor)


def test_threads_of_a_process_use_one_record_with_run_sync(path: Path) -> None:
    fired: list[str] = []

    @gesta.tool(effect="once")
    def pay(context: gesta.Context) -> str:
        """Pay."""
        fired.append(context.key)
        return "paid"

    def go(number: int) -> None:
        agent = gesta.Agent("a", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
        for count in range(3):
            try:
                done = gesta.run_sync(agent, "x", record=str(path), session=f"s{number}-{count}", key="k")
                reasons.append(done.reason)
            except RecordError as error:
                reasons.append(str(error))

    reasons: list[str] = []
    threads = [threading.Thread(target=go, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(reasons) == {"answered"}
    assert len(reasons) == len(fired) == len(set(fired)) == 24


def test_threads_each_with_a_store_of_their_own_write_one_record(path: Path) -> None:
    def work(number: int) -> None:
        try:
            for count in range(10):
                store = InlineSqliteStore.open(path, durability="normal")
                lease = drive(store.lease(f"r{number}"))
                drive(store.append(make_batch(lease, count)))
                drive(store.release(lease))
                drive(store.close())
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    errors: list[BaseException] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    store = InlineSqliteStore.open(path, readonly=True)
    assert drive(store.sql("SELECT count(*) FROM entries")).rows == [(60,)]
    drive(store.close())
    assert {file.name for file in path.parent.iterdir()} == {"a.gesta"}


@pytest.mark.slow
def test_processes_that_write_one_file_all_end_their_runs(tmp_path: Path) -> None:
    from benchmarks.contention import contend

    for opening in ("once", "each", "together"):
        (tmp_path / opening).mkdir()
        found = contend(tmp_path / opening, PROCESSES, RUNS, "normal", opening)
        assert (found["ended"], found["fired"], found["errors"]) == (PROCESSES * RUNS, 4 * PROCESSES * RUNS, [])


def test_a_run_that_writes_alone_commits_at_once_and_lets_others_have_the_loop_now_and_then(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count(step=0.001)
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        store = SqliteStore.open(path, durability="normal")
        lease = await store.lease("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            await anyio.lowlevel.checkpoint()
            before = turns
            for head in range(60):
                await store.append(make_batch(lease, head=head))
            tasks.cancel_scope.cancel()
        assert 5 < turns - before < 40
        assert len(await store.read("a")) == 60
        await store.release(lease)
        await store.close()

    anyio.run(main)


SENDING = """
import sys
from pathlib import Path
from gesta.address import drive
from gesta.store import Letter
from gesta.stores.sqlite import InlineSqliteStore
store = InlineSqliteStore.open(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.readline()
drive(store.send(Letter("r", "theirs", "1")))
drive(store.close())
"""


def test_a_process_that_waits_writes_before_the_one_that_has_just_written(path: Path) -> None:
    store = InlineSqliteStore.open(path)
    lease, looking = drive(store.lease("r")), path.open("rb+")
    with looking, programs.Program(["-c", SENDING, str(path)]) as other:
        assert other.stdout.readline() == "open\n"

        go = other.stdin

        def work(_sql: Statements) -> tuple[Batch, bool]:
            go.write("\n")
            go.flush()
            while free(looking.fileno(), NEXT):  # until it waits behind us; a lock tells nobody who waits for it
                time.sleep(0.001)
            return make_batch(lease, 0), True

        drive(store.transact(TransactionalEffect("r", work)))
        drive(store.send(Letter("r", "ours", "2")))
    assert [letter.key for letter in drive(store.inbox("r"))] == ["theirs", "ours"]
    drive(store.release(lease))
    drive(store.close())
