"""Stores keep their contract, and SQLite what only a file can be asked: kills, damage, full disks, other tools."""

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import apsw
import msgspec
import pytest
from tests import programs

import gesta
from gesta.address import drive
from gesta.errors import (
    BrokenRecord,
    GestaError,
    LeaseLost,
    NewerRecord,
    NoRecord,
    RecordBusy,
    RecordError,
    RunHeld,
    WriteFailed,
)
from gesta.store import Batch, Lease, Letter, Store
from gesta.stores.memory import MemoryStore
from gesta.stores.sqlite import InlineSqliteStore, SqliteStore
from gesta.stores.sqlite_open import WORDS, steady, told
from gesta.stores.tables import APPLICATION_ID
from gesta.testing import StoreContract, append_many, make_batch, make_opening, make_row, refused

pytestmark = pytest.mark.sample(2, over="parent")

SOURCE = str(Path(next(iter(gesta.__path__))).parent)
MEMORY = Path("/dev/shm")  # the contract asks nothing of a disk, and a slow one would make the tests slow


class TestMemoryStore(StoreContract):
    async def open_store(self) -> Store:
        return MemoryStore()


class TestSqliteStore(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> Iterator[None]:
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as folder:
            self.path = Path(folder, "a.gesta")
            yield
            assert left(self.path.parent) == {"a.gesta"}, "a closed record is one file"

    async def open_store(self) -> Store:
        return SqliteStore.open(self.path)

    async def open_again(self, store: Store) -> Store:
        return SqliteStore.open(self.path)

    async def end_owner(self, store: Store) -> None:
        assert isinstance(store, InlineSqliteStore)
        store.writer._guard.hold.presence.using.clear()

    async def break_off(self, store: Store) -> Callable[[], None]:
        assert isinstance(store, InlineSqliteStore)
        connection = store.writer._connection
        connection.set_commit_hook(lambda: True)  # as a disk that is full, or a file that became read-only
        return lambda: connection.set_commit_hook(None)


@pytest.mark.sample(3, over="parent")
class TestUnsyncedSqliteStore(TestSqliteStore):
    async def open_store(self) -> Store:
        return SqliteStore.open(self.path, durability="normal")


@pytest.mark.sample(3, over="parent")
class TestThreadedSqliteStore(TestSqliteStore):
    async def open_store(self) -> Store:
        store = SqliteStore.open(self.path)
        store.sharing._slowest_s = 1e9  # as if the disk were slow, so that each commit has the thread
        return store


@pytest.mark.sample(3, over="parent")
class TestInlineSqliteStore(TestSqliteStore):
    async def open_store(self) -> Store:
        return InlineSqliteStore.open(self.path)


# ------------------------------------------------------------------------------------------------------- processes


class Child:
    """Python in a process of its own, on some code that may tell and be told lines."""

    def __init__(self, code: str, *arguments: object) -> None:
        prelude = "import os, sys, time, anyio\nfrom gesta.stores.sqlite import InlineSqliteStore, SqliteStore\n"
        prelude += "from gesta.testing import make_batch\nfrom gesta.sync import drive\n"
        self.process = programs.Program(["-c", prelude + code, *map(str, arguments)])

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def rest(self) -> list[str]:
        """End what it waits for, and give the lines that it has told."""
        self.process.stdin.close()
        with self.process:
            return self.process.stdout.read().splitlines()

    def kill(self) -> list[str]:
        self.process.kill()
        return self.rest()


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    def start(code: str, *arguments: object) -> Child:
        started.append(Child(code, *arguments))
        return started[-1]

    started: list[Child] = []
    yield start
    for one in started:
        if not one.process.stdout.closed:
            one.kill()


def left(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


APPENDING = """
async def main():
    store = SqliteStore.open(sys.argv[1], durability=sys.argv[2])
    lease = await store.lease("r")
    print(lease.epoch, flush=True)
    for head in range(10**6):
        await store.append(make_batch(lease, lease.head + head))
        print(lease.head + head + 1, flush=True)
anyio.run(main)
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("durability", ["synced", "normal"])
def test_after_a_kill_every_acknowledged_row_is_there_and_the_run_is_free_at_once(
    tmp_path: Path, child: Callable[..., Child], durability: str
) -> None:
    async def go_on(acknowledged: int, epoch: int) -> None:
        store = SqliteStore.open(path)
        lease = await store.lease("r")
        rows = await store.read("r")
        assert [row.seq for row in rows] == list(range(1, lease.head + 1))
        assert acknowledged <= lease.head <= acknowledged + 1
        assert (lease.epoch, lease.lost) == (epoch + 1, True)
        await store.append(make_batch(lease, lease.head))
        await store.close()
        assert left(tmp_path) == {"a.gesta"}

    path = tmp_path / "a.gesta"
    for wanted in (1, 7, 40):
        writer = child(APPENDING, path, durability)
        epoch = int(writer.line())
        lines = [writer.line() for _ in range(wanted)]
        lines += writer.kill()
        anyio.run(go_on, int(lines[-1]), epoch)


RACING = """
store = InlineSqliteStore.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
try:
    print(drive(store.lease("r")).epoch, flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
sys.stdin.readline()
drive(store.close())
"""


def test_of_those_who_race_for_a_dead_owners_run_one_wins(tmp_path: Path, child: Callable[..., Child]) -> None:
    path = tmp_path / "a.gesta"
    dead = child(APPENDING, path, "normal")
    assert dead.line() == "1"
    dead.kill()
    racers = [child(RACING, path) for _ in range(3)]
    assert [racer.line() for racer in racers] == ["ready"] * 3
    for racer in racers:
        racer.go()
    assert sorted(racer.line() for racer in racers) == ["2", "RunHeld", "RunHeld"]
    for racer in racers:
        racer.rest()
    assert left(tmp_path) == {"a.gesta"}


@pytest.mark.slow
def test_processes_that_make_one_record_at_once_make_one(tmp_path: Path, child: Callable[..., Child]) -> None:
    making = """
print("ready", flush=True)
sys.stdin.readline()
store = InlineSqliteStore.open(sys.argv[1])
print(store.info.id, flush=True)
drive(store.close())
"""
    makers = [child(making, tmp_path / "a.gesta") for _ in range(4)]
    assert [maker.line() for maker in makers] == ["ready"] * 4
    for maker in makers:
        maker.go()
    found = [maker.rest() for maker in makers]
    assert all(len(lines) == 1 for lines in found)
    assert len({lines[0] for lines in found}) == 1


def test_opening_waits_for_another_process_that_turns_on_the_log(tmp_path: Path) -> None:
    path = tmp_path / "a.gesta"
    drive(InlineSqliteStore.open(path).close())
    with closing(apsw.Connection(str(path))) as other:
        other.pragma("journal_mode", "delete")
        other.execute("BEGIN IMMEDIATE")
        ending = threading.Timer(0.1, other.execute, ["COMMIT"])
        ending.start()
        drive(InlineSqliteStore.open(path).close())
        ending.join()


FORKING = """
store = InlineSqliteStore.open(sys.argv[1])
lease = drive(store.lease("r"))
store.writer._turn.acquire(), store.reader._turn.acquire()  # as a thread in the middle of a commit and of a query
if os.fork() == 0:
    for write in (store.append(make_batch(lease, 0)), store.read("r")):
        try:
            drive(write)
        except Exception as error:
            print(os.getpid(), type(error).__name__, error, flush=True)
    drive(store.close())
    print("closed", flush=True)
time.sleep(60)
"""


def test_a_forked_child_neither_writes_nor_keeps_its_dead_parent_alive(
    tmp_path: Path, child: Callable[..., Child]
) -> None:
    path = tmp_path / "a.gesta"
    parent = child(FORKING, path)
    told = [parent.line(), parent.line()]
    assert all("before this process was forked" in line for line in told)
    assert [line.split()[1] for line in told] == ["WriteFailed", "RecordError"]
    assert parent.line() == "closed"
    grandchild = int(told[0].split()[0])
    try:
        store = InlineSqliteStore.open(path)
        with pytest.raises(RunHeld, match=f"process {parent.process.pid} on "):
            drive(store.lease("r"))
        parent.process.kill()
        parent.process.wait()
        os.kill(grandchild, 0)  # it lives
        assert drive(store.lease("r")).epoch == 2
        drive(store.close())
    finally:
        os.kill(grandchild, signal.SIGKILL)
        parent.rest()


def test_a_process_counts_as_living_until_it_and_its_subprocesses_have_ended(
    tmp_path: Path, child: Callable[..., Child]
) -> None:
    starting = """
import subprocess
store = InlineSqliteStore.open(sys.argv[1])
lease = drive(store.lease("r"))
fd = store.descriptor()
under = subprocess.Popen(["sleep", "60"], pass_fds=[fd], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
alone = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(lease.owner, under.pid, alone.pid, flush=True)
sys.stdin.readline()
"""
    path = tmp_path / "a.gesta"
    parent = child(starting, path)
    owner, under, alone = parent.line().split()
    store = InlineSqliteStore.open(path)
    try:
        assert drive(store.gone(owner)) is False
        parent.kill()
        assert drive(store.gone(owner)) is False, "its subprocess may be at work"
        with pytest.raises(RunHeld):
            drive(store.lease("r"))
        drive(store.append(make_batch(drive(store.lease("q")), 0)))
    finally:
        os.kill(int(under), signal.SIGKILL)
    while drive(store.gone(owner)) is False:  # until the kernel has closed its files
        os.sched_yield()
    os.kill(int(alone), signal.SIGKILL)
    assert drive(store.lease("r")).lost
    drive(store.close())


def test_nobody_takes_a_run_from_a_living_process_by_deleting_a_file(
    tmp_path: Path, child: Callable[..., Child]
) -> None:
    path = tmp_path / "a.gesta"
    holding = child(APPENDING, path, "normal")
    assert holding.line() == "1"
    store = InlineSqliteStore.open(path)
    assert left(tmp_path) <= {"a.gesta", "a.gesta-wal", "a.gesta-shm"}, "there is no lock file"
    with pytest.raises(RunHeld, match=f"process {holding.process.pid} on "):
        drive(store.lease("r"))
    holding.kill()
    assert drive(store.lease("r")).lost
    drive(store.close())


def test_a_thread_that_outlives_its_record_keeps_its_process_counted_as_living(tmp_path: Path) -> None:
    path = tmp_path / "a.gesta"
    one = InlineSqliteStore.open(path)
    process = drive(one.lease("r")).owner
    leave = one.keep()
    drive(one.close())
    two = InlineSqliteStore.open(path)
    assert drive(two.lease("r")).owner == process
    drive(two.close())
    three = InlineSqliteStore.open(path)
    leave()
    leave()
    assert drive(three.gone(process)) is False
    drive(three.close())
    four = InlineSqliteStore.open(path)
    assert drive(four.gone(process)) is True
    assert drive(four.lease("r")).owner != process
    drive(four.close())


def test_a_process_of_another_file_is_not_known_and_a_person_can_say_that_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.gesta"
    elsewhere = "0123456789abcdef.7.7"
    store = InlineSqliteStore.open(path)
    drive(store.release(drive(store.lease("r"))))
    store.writer._connection.execute("UPDATE leases SET owner = ?", (elsewhere,))
    with pytest.raises(RunHeld, match=f"cannot be looked up from here .*gesta gone {elsewhere}"):
        drive(store.lease("r"))
    drive(store.declare_gone(elsewhere, "ann"))
    assert drive(store.lease("r")).lost
    assert drive(store.sql("SELECT owner, gone_by FROM owners WHERE gone_by <> ''")).rows == [(elsewhere, "ann")]
    drive(store.close())


def test_a_marked_copy_says_so_until_it_is_adopted(tmp_path: Path) -> None:
    path = tmp_path / "a.gesta"
    drive(InlineSqliteStore.open(path).close())
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE record SET mark = 7")
        db.commit()
    assert InlineSqliteStore.open(path, readonly=True).info.mark == 7
    store, other = InlineSqliteStore.open(path), InlineSqliteStore.open(path)
    assert store.info.mark == other.info.mark == 7
    drive(store.adopt("ann"))
    assert store.info.mark is None
    drive(other.lease("r"))
    assert other.info.mark is None
    drive(other.close())
    assert drive(store.sql("SELECT mark, adopted_by FROM record")).rows == [(None, "ann")]
    drive(store.close())
    assert InlineSqliteStore.open(path, readonly=True).info.mark is None


# --------------------------------------------------------------------------------------------------------- commits


@pytest.mark.parametrize("durability", ["synced", "normal"])
def test_appends_that_come_together_share_commits(tmp_path: Path, durability: Any) -> None:
    async def main() -> None:
        store = SqliteStore.open(tmp_path / "a.gesta", durability=durability)
        leases = [await store.lease(f"r{number}") for number in range(100)]
        before = store.commits
        async with anyio.create_task_group() as tasks:
            for lease in leases:
                tasks.start_soon(store.append, make_batch(lease, 0, 3))
        assert store.commits - before <= 3
        before = store.commits
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(append_many, store, f"q{number}", 3)
        assert store.commits - before <= 25
        assert (await store.sql("SELECT count(*) FROM entries")).rows == [(600,)]
        await store.close()

    anyio.run(main)


def test_a_row_that_cannot_be_stored_fails_alone(tmp_path: Path) -> None:
    async def append(store: Store, batch: Batch, outcomes: dict[str, Any]) -> None:
        try:
            outcomes[batch.lease.run] = await store.append(batch)
        except GestaError as error:
            outcomes[batch.lease.run] = error

    async def main() -> None:
        store = SqliteStore.open(tmp_path / "a.gesta")
        batches = [make_batch(await store.lease(f"r{number}"), 0, 2) for number in range(5)]
        bad: dict[str, Any] = {"r1": {"content": "\ud800"}, "r3": {"kind": "begin", "content": "no JSON"}}
        for number, change in ((1, bad["r1"]), (3, bad["r3"])):
            rows = [batches[number].rows[0], msgspec.structs.replace(batches[number].rows[1], **change)]
            batches[number] = msgspec.structs.replace(batches[number], rows=rows)
        outcomes: dict[str, Any] = {}
        async with anyio.create_task_group() as tasks:
            for batch in batches:
                tasks.start_soon(append, store, batch, outcomes)
        assert {run for run, outcome in outcomes.items() if isinstance(outcome, int)} == {"r0", "r2", "r4"}
        assert {type(outcomes[run]) for run in bad} == {WriteFailed}
        assert all(outcomes[run].__cause__ is not None for run in bad)
        assert (await store.sql("SELECT DISTINCT run FROM entries ORDER BY run")).rows == [("r0",), ("r2",), ("r4",)]
        await store.append(make_batch(batches[1].lease, 0))
        await store.close()

    anyio.run(main)


def test_what_is_committed_beside_a_row_that_cannot_be_stored_is_told_as_committed(tmp_path: Path) -> None:
    store = InlineSqliteStore.open(tmp_path / "a.gesta")
    with closing(store.writer), closing(store.reader):
        rows = [make_row("a", 1), make_row("b", 1, content="\ud800"), make_row("c", 1, content="x" * 1_000_000)]
        works = [Batch(drive(store.lease(row.run)), 0, [row]) for row in [*rows, make_row("d", 1)]]
        store.writer._connection.execute("PRAGMA max_page_count = 60")
        added, odd, full, left = store.writer.commit(works)
        assert (added, isinstance(odd.__cause__, UnicodeError), left) == (1, True, full)
        assert isinstance(full.__cause__, apsw.FullError)
        assert [len(drive(store.read(run))) for run in "abcd"] == [1, 0, 0, 0]


async def append_for_ever(store: Store, lease: Lease, heads: dict[str, int]) -> None:
    while True:
        await store.append(make_batch(lease, heads[lease.run]))
        heads[lease.run] += 1


@pytest.mark.parametrize("slowest_s", [0.0, 1e9], ids=["in place", "in a thread"])
def test_a_cancellation_of_asyncio_comes_before_a_commit_or_after_it(tmp_path: Path, slowest_s: float) -> None:
    async def append(store: Store, batch: Batch, known: set[str]) -> None:
        await store.append(batch)
        known.add(batch.lease.run)
        await asyncio.sleep(60)

    async def main() -> None:
        store = SqliteStore.open(tmp_path / "a.gesta")
        leases = [await store.lease(f"r{number}") for number in range(3)]
        heads, counts = {lease.run: 0 for lease in leases}, set()
        for step in range(40):
            store.sharing._slowest_s = slowest_s
            known: set[str] = set()
            tasks = [asyncio.create_task(append(store, make_batch(lease, heads[lease.run]), known)) for lease in leases]
            for _ in range(step % 8):
                await asyncio.sleep(0)
            for task in tasks:
                assert task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(end) for end in ends} == {asyncio.CancelledError}
            for run in heads:
                heads[run] += run in known
            assert {run: (await store.head(run))[0] for run in heads} == heads, "who is not told, has nothing on record"
            counts.add(len(known))
        assert counts >= {0, 3}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(append_for_ever(store, leases[0], heads), 0.01)
        assert (await store.head("r0"))[0] == heads["r0"]
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("slowest_s", [0.0, 1e9], ids=["in place", "in a thread"])
def test_a_loop_of_appends_can_be_cancelled(tmp_path: Path, slowest_s: float) -> None:
    async def main() -> None:
        store = SqliteStore.open(tmp_path / "a.gesta")
        leases = [await store.lease(f"r{number}") for number in range(3)]
        heads = {lease.run: 0 for lease in leases}
        for _ in range(20):
            store.sharing._slowest_s = slowest_s
            with anyio.move_on_after(0.003):
                async with anyio.create_task_group() as tasks:
                    for lease in leases:
                        tasks.start_soon(append_for_ever, store, lease, heads)
            assert {run: (await store.head(run))[0] for run in heads} == heads
        assert min(heads.values()) > 1
        await store.close()

    anyio.run(main)


def test_who_queues_behind_a_leader_that_is_cancelled_leads(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore.open(tmp_path / "a.gesta")
        one, two = await store.lease("one"), await store.lease("two")
        with anyio.fail_after(5):
            leading = asyncio.create_task(store.append(make_batch(one, 0)))
            following = asyncio.create_task(store.append(make_batch(two, 0)))
            await asyncio.sleep(0)
            leading.cancel()
            assert await following == 1
            with pytest.raises(asyncio.CancelledError):
                await leading
        assert await store.read("one") == []
        await store.close()

    asyncio.run(main())


def test_who_comes_while_a_leader_commits_leads_next(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore.open(tmp_path / "a.gesta")
        leases = [await store.lease(f"r{number}") for number in range(3)]
        for head in range(20):
            store.sharing._slowest_s = 1e9
            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    for lease in leases:
                        tasks.start_soon(store.append, make_batch(lease, head))
                        for _ in range(4):
                            await anyio.lowlevel.checkpoint()
        await store.close()

    anyio.run(main)


def test_threads_share_an_inline_store(tmp_path: Path) -> None:
    def work(number: int) -> None:
        lease = drive(store.lease(f"r{number}"))
        for head in range(30):
            drive(store.append(make_batch(lease, head)))
            assert len(drive(store.read(lease.run))) == head + 1
            assert drive(store.inbox(lease.run)) == []

    store = InlineSqliteStore.open(tmp_path / "a.gesta", durability="normal")
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert drive(store.sql("SELECT run, max(seq) FROM entries GROUP BY run")).rows == [(f"r{n}", 30) for n in range(4)]
    drive(store.close())


@pytest.mark.parametrize("opening", [lambda _: MemoryStore(), InlineSqliteStore.open], ids=["memory", "inline"])
def test_without_an_event_loop_no_coroutine_waits(tmp_path: Path, opening: Callable[[Path], Store]) -> None:
    store = opening(tmp_path / "a.gesta")
    lease = drive(store.lease("r"))
    drive(store.send(Letter("r", "k", "{}", "")))
    (letter,) = drive(store.inbox("r"))
    drive(store.append(Batch(lease, 0, [make_opening("r", "s", "n")], (), [letter.id])))
    drive(store.append(Batch(lease, 1, [make_row("r", 2, "end")])))
    assert drive(store.head("r"))[0] == len(drive(store.read("r"))) == 2
    assert [row.session for row in drive(store.runs())] == ["s"]
    assert drive(store.sql("SELECT 1")).rows == [(1,)]
    drive(store.release(lease))
    drive(store.close())


def test_without_an_event_loop_the_end_of_a_span_waits_for_the_disk(tmp_path: Path) -> None:
    store = InlineSqliteStore.open(tmp_path / "a.gesta")
    lease = drive(store.lease("r"))
    for head, (kind, synchronous) in enumerate({"thought": 1, "end": 2, "key-value": 1, "attempt": 2}.items()):
        drive(store.append(Batch(lease, head, [make_row("r", head + 1, kind)])))
        assert store.writer._connection.pragma("synchronous") == synchronous
    drive(store.close())


def test_a_query_whose_caller_is_cancelled_is_interrupted(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore.open(tmp_path / "a.gesta")
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
        threads = threading.active_count()
        with anyio.move_on_after(0.1):
            await store.sql(endless)
        assert (await store.sql("SELECT 1")).rows == [(1,)]
        assert threading.active_count() <= threads + 2
        await store.close()

    anyio.run(main)


# ---------------------------------------------------------------------------------------------------------- faults


def make_record(path: Path) -> bytes:
    store = InlineSqliteStore.open(path)
    lease = drive(store.lease("r"))
    drive(store.append(Batch(lease, 0, [make_opening("r", "s", "n")])))
    drive(store.append(make_batch(lease, 1, 200)))
    drive(store.close())
    return path.read_bytes()


def make_other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs(x)")


def make_empty_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs(x)")
        connection.execute("DROP TABLE theirs")


def make_newer(path: Path) -> None:
    make_record(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")


def make_hollow(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")


def truncate(path: Path) -> None:
    path.write_bytes(make_record(path)[:20_000])


BROKEN: dict[str, tuple[Callable[[Path], Any], type[RecordError], str]] = {
    "garbage": (
        lambda path: path.write_bytes(b"certainly not a database" * 100),
        BrokenRecord,
        "it is not an SQLite database",
    ),
    "short": (lambda path: path.write_bytes(b"hm"), BrokenRecord, "begins with b'hm'"),
    "other": (make_other_database, BrokenRecord, "an SQLite database of something else"),
    "empty database": (make_empty_database, BrokenRecord, "an SQLite database of something else"),
    "hollow": (make_hollow, BrokenRecord, "its tables are not those of a record"),
    "truncated": (truncate, BrokenRecord, "damaged or cut off"),
    "folder": (lambda path: path.mkdir(), BrokenRecord, "it is a folder"),
    "newer": (make_newer, NewerRecord, "has format 7; this release reads up to 2"),
}


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_record_is_refused_in_words_and_not_changed(tmp_path: Path, name: str, readonly: bool) -> None:
    make, error, words = BROKEN[name]
    path = tmp_path / "a.gesta"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(error, match=words):
        SqliteStore.open(path, readonly=readonly)
    assert before == (path.read_bytes() if path.is_file() else None)
    assert left(tmp_path) == {"a.gesta"}


def test_what_is_not_there_is_made_or_refused(tmp_path: Path) -> None:
    with pytest.raises(NoRecord, match=r"No record at '.*a\.gesta'"):
        SqliteStore.open(tmp_path / "a.gesta", readonly=True)
    for readonly, error in ((True, NoRecord), (False, WriteFailed)):
        with pytest.raises(error, match="missing"):
            SqliteStore.open(tmp_path / "missing" / "a.gesta", readonly=readonly)
    (tmp_path / "empty.gesta").touch()
    with pytest.raises(BrokenRecord, match="it is empty"):
        SqliteStore.open(tmp_path / "empty.gesta", readonly=True)
    drive(InlineSqliteStore.open(tmp_path / "empty.gesta").close())  # what a crash in the making leaves
    assert (tmp_path / "empty.gesta").stat().st_size > 0


def test_a_page_that_was_damaged_is_told_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.gesta"
    pages = bytearray(make_record(path))
    pages[-8192:] = b"\xff" * 8192
    path.write_bytes(pages)
    store = InlineSqliteStore.open(path)
    with pytest.raises(BrokenRecord, match="damaged"):
        drive(store.read("r"))
    with pytest.raises(BrokenRecord, match="damaged"):
        drive(store.sql("SELECT sum(length(content)) FROM entries"))
    drive(store.close())


def test_a_record_that_cannot_be_opened_to_the_end_stays_open_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise apsw.IOError("the disk failed")

    path = tmp_path / "a.gesta"
    InlineSqliteStore.open(path).close_now()
    monkeypatch.setattr("gesta.stores.sqlite.Writer", failing)
    with pytest.raises(WriteFailed, match="the disk failed"):
        InlineSqliteStore.open(path)
    assert [each for each in apsw.connections() if each.filename == str(path)] == []
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_full_disk_stops_writing_and_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore.open(tmp_path / "a.gesta")
        lease, head = await store.lease("r"), 0
        store.writer._connection.execute("PRAGMA max_page_count = 60")
        big = "x" * 10_000
        error: Exception | None = None
        while error is None:
            try:
                await store.append(Batch(lease, head, [make_row("r", head + 1, content=big)]))
                head += 1
            except WriteFailed as failure:
                error = failure
        assert "the disk is full" in str(error)
        assert isinstance(error.__cause__, apsw.FullError)
        assert [row.seq for row in await store.read("r")] == list(range(1, head + 1))
        await refused(store.append(Batch(lease, head, [make_row("r", head + 1, content=big)])), WriteFailed)
        other = await store.lease("other")
        with pytest.raises(WriteFailed):
            store.writer.commit([make_batch(other, 0), Batch(lease, head, [make_row("r", head + 1, content=big)])])
        store.writer._connection.execute("PRAGMA max_page_count = 6000")
        await refused(store.append(make_batch(other, 1)), LeaseLost)  # the failed group left nothing to go on from
        await store.append(Batch(lease, head, [make_row("r", head + 1, content=big)]))
        await store.close()

    anyio.run(main)


LOCKING = """
store = InlineSqliteStore.open(sys.argv[1])
store.writer._connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
"""


def test_a_file_that_another_keeps_locked_is_told_so(tmp_path: Path, child: Callable[..., Child]) -> None:
    store = InlineSqliteStore.open(tmp_path / "a.gesta", busy_s=0.02)
    lease = drive(store.lease("r"))
    other = child(LOCKING, tmp_path / "a.gesta")
    assert other.line() == "locked"
    with pytest.raises(
        RecordBusy, match=r"another program has been writing .* for 0\.02 s, the `busy_s` of gesta.open"
    ):
        drive(store.append(make_batch(lease, 0)))
    other.kill()
    assert drive(store.append(make_batch(lease, 0))) == 1
    drive(store.close())


ERRORS = [found for found in vars(apsw).values() if isinstance(found, type) and issubclass(found, apsw.Error)]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_of_sqlite_is_told_as_one_of_ours(kind: type[apsw.Error]) -> None:
    error = kind("the reason")
    broken = kind in (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
    written, read = told(error, "a.gesta", writing=True), told(error, "a.gesta", writing=False)
    busy = kind in (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
    assert type(written) is (BrokenRecord if broken else RecordBusy if busy else WriteFailed)
    assert type(read) is (BrokenRecord if broken else RecordError)
    for answer in (written, read):
        assert "'a.gesta'" in str(answer)
        assert "the reason" in str(answer)
        assert WORDS.get(kind, kind.__name__) in str(answer)


# ------------------------------------------------------------------------------------------------------- read-only


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose parents everybody may enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="gesta-"))
    path.chmod(0o755)
    yield path
    path.chmod(0o700)
    shutil.rmtree(path)


UNPRIVILEGED = """
from gesta.errors import GestaError
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
for readonly in (True, False):
    try:
        store = InlineSqliteStore.open(sys.argv[1], readonly=readonly)
        print(len(drive(store.read("r"))), flush=True)
        drive(store.close())
    except GestaError as error:
        print(type(error).__name__, error, flush=True)
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("rights", [0o555, 0o777], ids=["a folder too", "the file alone"])
def test_a_record_that_cannot_be_written_is_read_and_not_written(
    folder: Path, child: Callable[..., Child], rights: int
) -> None:
    path = folder / "a.gesta"
    make_record(path)
    path.chmod(0o444)
    folder.chmod(rights)
    told = child(UNPRIVILEGED, path).rest()
    assert told[0] == "201"
    assert told[1].startswith("WriteFailed Could not write to")
    assert "read-only" in told[1]
    assert left(folder) == {"a.gesta"}


def test_a_record_whose_folder_alone_cannot_be_written_is_refused_for_writing(
    folder: Path, child: Callable[..., Child]
) -> None:
    path = folder / "a.gesta"
    make_record(path)
    path.chmod(0o666)
    folder.chmod(0o555)
    told = child(UNPRIVILEGED, path).rest()
    assert told[0] == "201"
    assert told[1].startswith("WriteFailed Could not write to")
    missing = child(UNPRIVILEGED, folder / "new.gesta").rest()
    assert [line.split()[0] for line in missing] == ["NoRecord", "WriteFailed"]


def test_a_record_that_this_user_may_not_read_is_refused(folder: Path, child: Callable[..., Child]) -> None:
    path = folder / "a.gesta"
    make_record(path)
    path.chmod(0)
    told = child(UNPRIVILEGED, path).rest()
    assert [line.split()[0] for line in told] == ["BrokenRecord", "BrokenRecord"]
    assert "may not read it" in told[0]


def test_reading_changes_nothing_and_sees_what_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "a.gesta"
    make_record(path)
    before = path.stat()
    store = InlineSqliteStore.open(path, readonly=True)
    assert len(drive(store.read("r"))) == 201
    with pytest.raises(WriteFailed, match="it was opened for reading only"):
        drive(store.lease("r"))
    assert drive(store.sql("SELECT count(*) FROM entries")).rows == [(201,)]
    assert left(tmp_path) == {"a.gesta"}
    assert (path.stat().st_mtime_ns, path.stat().st_size) == (before.st_mtime_ns, before.st_size)

    make_record_longer(path, 201)  # opened, written and closed meanwhile
    assert len(drive(store.read("r"))) == 202
    writer = InlineSqliteStore.open(path)  # and now it is live
    lease = drive(writer.lease("r"))
    for head in range(202, 210):
        drive(writer.append(make_batch(lease, head)))
        assert drive(store.head("r"))[0] == head + 1
        assert drive(store.sql("SELECT max(seq) FROM entries")).rows == [(head + 1,)]
    drive(store.close())
    drive(writer.close())
    assert left(tmp_path) == {"a.gesta"}


def test_a_reading_of_a_still_file_that_is_written_meanwhile_is_done_again(tmp_path: Path) -> None:
    def read() -> int:
        found = path.stat().st_size
        if found == 3:
            path.write_bytes(b"longer")
        if found == 6:
            path.write_bytes(b"longest")
            raise apsw.CorruptError
        return found

    path = tmp_path / "a.gesta"
    path.write_bytes(b"now")
    assert steady(path, read) == 7
    with pytest.raises(apsw.CorruptError):
        steady(path, lambda: (_ for _ in ()).throw(apsw.CorruptError))


def make_record_longer(path: Path, head: int) -> None:
    store = InlineSqliteStore.open(path)
    drive(store.append(make_batch(drive(store.lease("r")), head)))
    drive(store.close())


def test_what_a_killed_writer_left_in_its_log_is_read(tmp_path: Path, child: Callable[..., Child]) -> None:
    path = tmp_path / "a.gesta"
    writer = child(APPENDING, path, "synced")
    lines = [writer.line() for _ in range(5)]
    writer.kill()
    store = InlineSqliteStore.open(path, readonly=True)
    assert len(drive(store.read("r"))) >= int(lines[-1])
    drive(store.close())
    assert "a.gesta-wal" in left(tmp_path), "reading leaves it to the next writer"


# ----------------------------------------------------------------------------------------------------- other tools


def test_any_sqlite_reads_a_closed_record(tmp_path: Path) -> None:
    path = tmp_path / "a.gesta"
    make_record(path)
    connection = sqlite3.connect(path.as_uri() + "?mode=ro", uri=True)
    assert connection.execute("SELECT run, session, name, head FROM runs").fetchall() == [("r", "s", "n", 201)]
    rows = connection.execute("SELECT seq, typeof(content), typeof(digest), typeof(at) FROM entries").fetchall()
    assert rows == [(seq, "text", "blob", "text") for seq in range(1, 202)]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_a_copy_that_another_tool_made_is_the_same_record(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.gesta", tmp_path / "copy.gesta"
    make_record(path)
    connection = sqlite3.connect(path)
    connection.execute("VACUUM INTO ?", (str(copy),))  # without a write-ahead log
    connection.close()
    reading = InlineSqliteStore.open(copy, readonly=True)
    store = InlineSqliteStore.open(copy)
    assert store.info.id == InlineSqliteStore.open(path, readonly=True).info.id
    for head in (201, 202):
        make_record_longer(copy, head)
        assert drive(reading.head("r"))[0] == drive(store.head("r"))[0] == head + 1
    drive(reading.close())
    drive(store.close())
    assert left(tmp_path) == {"a.gesta", "copy.gesta"}


def test_the_table_of_runs_is_found_through_its_index(tmp_path: Path) -> None:
    path = tmp_path / "a.gesta"
    make_record(path)
    store = InlineSqliteStore.open(path, readonly=True)
    for where in ("session = 's'", "session = 's' AND name = 'n'", "true"):
        plan = drive(store.sql(f"EXPLAIN QUERY PLAN SELECT * FROM runs WHERE {where} ORDER BY pos"))
        assert "INDEX opened" in str(plan.rows), (where, plan.rows)
    drive(store.close())


def test_names_of_all_kinds_lead_to_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a b%41?#ü.gesta"
    make_record(path)
    link = tmp_path / "elsewhere" / "link.gesta"
    link.parent.mkdir()
    link.symlink_to(path)
    monkeypatch.chdir(tmp_path)
    one, two = InlineSqliteStore.open(path.name), InlineSqliteStore.open(link)
    assert one.info == two.info
    assert one.info.address == str(path)
    drive(one.lease("r"))
    with pytest.raises(RunHeld):
        drive(two.lease("r"))
    assert left(link.parent) == {link.name}
    reading = InlineSqliteStore.open(link, readonly=True)
    assert len(drive(reading.read("r"))) == 201
    for store in (reading, one, two):
        drive(store.close())
    assert left(tmp_path) == {path.name, "elsewhere"}


def test_a_record_is_nobodys_secret_by_accident(tmp_path: Path) -> None:
    """The file has the rights that the user's mask gives, and is not handed to child processes."""
    path = tmp_path / "a.gesta"
    store = InlineSqliteStore.open(path)
    drive(store.lease("r"))
    assert not any(
        os.get_inheritable(one)
        for one in (store.writer._guard.hold.presence.descriptor, store.writer._guard.hold.descriptor)
    )
    assert stat.S_IMODE(path.stat().st_mode) & 0o111 == 0
    drive(store.close())
