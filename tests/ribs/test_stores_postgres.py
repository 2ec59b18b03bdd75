"""PostgreSQL keeps the contract, and what only a server can be asked: kills, lost connections, other writers."""
# ruff: noqa: E402 - without the library nothing else can be imported

import math
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import anyio
import msgspec
import pytest
from tests import programs
from tests.conftest import sampled
from tests.postgres import Server

psycopg = pytest.importorskip("psycopg")

import gesta
from gesta.address import drive
from gesta.errors import (
    BadAddress,
    BrokenRecord,
    LeaseLost,
    MissingExtra,
    NewerRecord,
    NoRecord,
    RecordBusy,
    RecordError,
    RunHeld,
    ServerGone,
    WriteFailed,
)
from gesta.kinds import (
    AssistantContent,
    KeyValueContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.store import Batch, BlobRow, Lease, Letter, QueryBounds, Statements, Store, TransactionalEffect
from gesta.stores.postgres import InlinePostgresStore, PostgresStore
from gesta.stores.postgres_holding import Holding
from gesta.stores.postgres_leases import GRANT
from gesta.stores.postgres_open import STALLED_S, WORDS, connect, located, number, told
from gesta.stores.postgres_tables import NAMES, WORDING, placed
from gesta.stores.sqlite import InlineSqliteStore
from gesta.stores.tables import TABLES
from gesta.testing import StoreContract, append_many, make_batch, make_opening, make_row, refused

SOURCE = str(Path(next(iter(gesta.__path__))).parent)


@pytest.fixture
def address(postgres: Server) -> str:
    """Where no record stands yet."""
    return postgres.address()


class Apart(PostgresStore):
    """A store as another process would open it: it shares nothing with the others of this one."""

    @classmethod
    def holding(cls, *_: Any) -> Holding:
        return Holding()


class InlineApart(InlinePostgresStore):
    """The same, without an event loop."""

    @classmethod
    def holding(cls, *_: Any) -> Holding:
        return Holding()


def ended(store: InlinePostgresStore) -> None:
    """Wait until the server has ended the session that shows that a store's process lives."""
    keeper, reading = store.writer.holding._keeper, store.reader._connection
    assert keeper is not None
    pid = keeper.info.backend_pid
    keeper.close()
    while reading.execute("SELECT 1 FROM pg_stat_activity WHERE pid = $1", (pid,)).fetchall():
        pass


KINDS: dict[str, tuple[type[InlinePostgresStore], type[InlinePostgresStore]]] = {
    "loop": (PostgresStore, Apart),
    "inline": (InlinePostgresStore, InlineApart),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of the contract with one of both stores in short runs, and with each in full ones."""
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", sampled(KINDS, 2, crc32(metafunc.function.__name__.encode())))


@pytest.mark.sample(4, over="parent")
class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, emptied: str, kind: str) -> None:
        self.address = emptied
        self.kind, self.apart = KINDS[kind]

    async def open_store(self) -> Store:
        return self.kind.open(self.address)

    async def open_again(self, store: Store) -> Store:
        return self.apart.open(self.address)

    async def end_owner(self, store: Store) -> None:
        assert isinstance(store, InlinePostgresStore)
        ended(store)

    async def break_off(self, store: Store) -> Callable[[], None]:
        assert isinstance(store, InlinePostgresStore)
        holder = connect(located(self.address), readonly=False)  # of the lock that every commit needs
        holder.execute("SET idle_in_transaction_session_timeout = 0; BEGIN")
        holder.execute("SELECT pg_advisory_xact_lock($1)", (number(store.info.id),))
        store.writer._connection.execute("SET lock_timeout = 20")
        return holder.close


async def test_a_tail_whose_store_is_closed_while_it_begins_to_listen_ends(address: str) -> None:
    class Closing(InlinePostgresStore):
        async def _wait(self, work: Callable[[], Any]) -> Any:
            if work == self.reader.listen:
                await self.close()
            return await super()._wait(work)

    assert [rows async for rows in Closing.open(address).tail()] == []


# ---------------------------------------------------------------------------------------------------------- order


def test_who_follows_never_meets_an_earlier_pos_later(address: str) -> None:
    """Rows of four writers come as 1, 2, 3, … to one who looks all the time: none is seen before the one before it."""

    def write(name: int) -> None:
        with closing_store(address) as store:
            for run in range(5):
                drive(append_many(store, f"{name}-{run}", 8))

    with closing_store(address) as store, ThreadPoolExecutor(4) as pool:
        work = [pool.submit(write, name) for name in range(4)]
        seen: list[int] = []
        while len(seen) < 160:
            seen += [row.pos for row in store.reader.page(len(seen), 500)]
            assert seen == list(range(1, len(seen) + 1))
            assert not any(one.done() and one.exception() for one in work)
        assert [one.result() for one in work] == [None] * 4


def closing_store(address: str, kind: type[InlinePostgresStore] = InlinePostgresStore, **how: Any) -> Any:
    """Open a store for a block."""
    store = kind.open(address, **how)

    class Block:
        def __enter__(self) -> InlinePostgresStore:
            return store

        def __exit__(self, *_: object) -> None:
            drive(store.close())

    return Block()


def test_appends_that_come_together_share_commits(address: str) -> None:
    async def main() -> None:
        store = PostgresStore.open(address)
        leases = [await store.lease(f"r{number}") for number in range(40)]
        before = store.commits
        async with anyio.create_task_group() as tasks:
            for lease in leases:
                tasks.start_soon(store.append, make_batch(lease, 0))
        assert store.commits - before < 5
        assert (await store.sql("SELECT count(*) FROM entries")).rows == [(40,)]
        await store.close()

    anyio.run(main)


def test_a_row_that_cannot_be_stored_fails_alone(address: str) -> None:
    async def append(store: Store, batch: Batch, outcomes: dict[str, Any]) -> None:
        try:
            outcomes[batch.lease.run] = await store.append(batch)
        except RecordError as error:
            outcomes[batch.lease.run] = error

    async def main() -> None:
        store, outcomes = PostgresStore.open(address), dict[str, Any]()
        texts = {"good": "{}", "nul": "\0", "half": "\ud800", "other": "{}"}
        batches = [Batch(await store.lease(run), 0, [make_row(run, 1, content=text)]) for run, text in texts.items()]
        batches.append(Batch(await store.lease("begin"), 0, [make_row("begin", 1, "begin", "no JSON")]))
        async with anyio.create_task_group() as tasks:
            for batch in batches:
                tasks.start_soon(append, store, batch, outcomes)
        failed = {run for run, outcome in outcomes.items() if isinstance(outcome, WriteFailed)}
        assert failed == {"nul", "half", "begin"}
        assert sorted(row.run for row in [*await store.read("good"), *await store.read("other")]) == ["good", "other"]
        await refused(store.send(Letter("r", "a\0key", "{}", "")), WriteFailed)
        for odd in ("\0", "\ud800"):
            assert (await store.runs(odd), await store.read(odd), await store.inbox(odd)) == ([], [], [])
        await store.close()

    anyio.run(main)


class Large(bytes):
    """Bytes that say to be more than a message to the server can hold."""

    def __len__(self) -> int:
        return 2**30


def test_a_value_that_no_message_to_the_server_can_hold_fails_alone(address: str) -> None:
    with closing_store(address) as store:
        leases = [drive(store.lease(run)) for run in ("large", "small")]
        large, small = (
            Batch(lease, 0, [make_row(lease.run, 1)], [BlobRow("b", b"s" * 16, b"abc")]) for lease in leases
        )
        large = msgspec.structs.replace(large, blobs=[BlobRow("b", b"s" * 16, Large(b"abc"))])
        failed, pos = store.writer.commit([large, small])
        assert (type(failed), pos) == (WriteFailed, 1)
        assert "1,073,741,824 bytes, more than 536,870,912" in str(failed)
        assert drive(store.get_blob("small", "b")) == small.blobs[0]


@pytest.mark.parametrize("seconds", [1e8, math.inf])
def test_a_bound_beyond_what_a_server_takes_is_its_longest(address: str, seconds: float) -> None:
    def work(ask: Statements) -> tuple[Batch, bool]:
        ask("SELECT 1")
        ask.check()
        return make_batch(lease, 0), True

    with closing_store(address, busy_s=seconds) as store:
        lease = drive(store.lease("r"))
        drive(store.transact(TransactionalEffect("r", work, seconds)))
        store.queries = QueryBounds(seconds=seconds)
        assert drive(store.sql("SELECT count(*) FROM entries")).rows == [(1,)]


def test_what_no_text_column_can_hold_comes_back_as_it_was(address: str) -> None:
    odd = {"a\0b": "\0", "half": "\ud800", "none": float("nan"), "huge": 2**80, "raw": b"\0\xff", "🙂": "\u2028"}
    with gesta.open_sync(address) as record, record.span("app", session="s") as span:
        span.log(KeyValueContent(key="odd", value=odd))
    with gesta.open_sync(address) as record:
        entry = record.read(record.find("s").run)[1]
    assert isinstance(entry.content, KeyValueContent)
    assert repr(entry.content.value) == repr(odd)


# ------------------------------------------------------------------------------------------------------ the tables


def recorded(address: str) -> None:
    """Record a bit of everything that the tables tell of."""
    with gesta.open_sync(address) as record:
        for session in ("one", "two"):
            with record.span("app", session=session, version='"2"\n', deep={"a": [1, None, 0.5]}) as span:
                span.log(UserContent(value="Is it dry? Ü 🙂"), channel="chat", deep=True)
                with span.span("look", version="3") as look:
                    look.log(ToolCallContent(tool_name="weather", tool_args={"city": "Rome"}, tool_call_id="x"))
                    look.log(ToolCallContent(tool_name="weather", tool_args={"city": "Rom"}))
                    look.log(ToolResultContent(tool_result="dry", status="success"))
                    first = look.log(ToolCallContent(tool_name="pay", tool_args={}))
                    assert first is not None
                    look.log(ToolResultContent(call=first.seq, tool_result={"paid": 1}))
                    look.log(ToolResultContent(tool_call_id="x", tool_result=None))
                    look.log(ToolResultContent(tool_result="to nobody"))
                span.log(AssistantContent(value="It is."))
                span.log(AssistantContent(value="And warm."))
                span.log(UserContent(value="And now?"))
        with record.span("other", session="two") as span:
            span.log(AssistantContent(value="Nobody asked."))


def test_the_tables_say_what_those_of_sqlite_say(address: str, tmp_path: Path) -> None:
    recorded(str(tmp_path / "a.gesta"))
    sqlite = InlineSqliteStore.open(tmp_path / "a.gesta", readonly=True)
    with closing_store(address) as store:
        for row in drive(sqlite.runs()):
            lease = drive(store.lease(row.run))
            drive(store.append(Batch(lease, 0, drive(sqlite.read(row.run)))))
        assert {"spans", "sessions", "exchanges", "tool_invocations"} < set(NAMES)
        for name in ("runs", *NAMES):
            here, there = (drive(each.sql(f"SELECT * FROM {name}")) for each in (store, sqlite))
            assert here.columns == there.columns
            assert sorted(map(repr, here.rows)) == sorted(map(repr, there.rows)), name
            assert name == "spans" or here.rows == there.rows, "in the same order"
    drive(sqlite.close())


def test_every_difference_of_the_tables_is_one() -> None:
    text = TABLES
    for old, new in WORDING:
        assert old in text, old
        text = text.replace(old, new)


def test_views_of_another_release_are_put_anew_by_who_writes(address: str) -> None:
    with closing_store(address) as store:
        store.writer._connection.execute("DROP VIEW last_session; UPDATE record SET views = 'older'")
    drive(InlinePostgresStore.open(address, readonly=True).close())
    with closing_store(address) as store:
        assert drive(store.sql("SELECT * FROM last_session")).columns == ("sid",)


def test_marks_for_parameters_are_numbered_outside_of_quotes() -> None:
    query = """SELECT '?', "?", /* ? */ ? -- ?\n, ?"""
    assert placed(query, 2) == """SELECT '?', "?", /* ? */ $1 -- ?\n, $2"""
    assert placed("SELECT $1", 1) == "SELECT $1"
    assert placed("SELECT '{}'::jsonb ? 'a'", 0) == "SELECT '{}'::jsonb ? 'a'"


def test_values_are_told_as_sqlite_tells_them(address: str) -> None:
    with closing_store(address) as store:
        query = (
            "SELECT 1.0::numeric, 1.5::numeric, 'x'::bytea, NULL, '{\"a\":1}'::json, true, '2026-01-02'::date, ? || ''"
        )
        assert drive(store.sql(query, ["é"])).rows == [(1, 1.5, b"x", None, '{"a":1}', True, "2026-01-02", "é")]


ESCAPING = """COMMIT
ROLLBACK
SET TRANSACTION READ WRITE
SET default_transaction_read_only = off
SELECT set_config('transaction_read_only', 'off', true)
COMMIT; DELETE FROM entries
WITH gone AS (DELETE FROM entries RETURNING 1) SELECT * FROM gone
SELECT query_to_xml('DELETE FROM entries', true, true, '')
DO 'BEGIN DELETE FROM entries; END'
CREATE TEMP TABLE escaped(x int)
SELECT * INTO escaped FROM entries
LOCK TABLE entries
TRUNCATE entries
SELECT * FROM entries FOR UPDATE
PREPARE TRANSACTION 'x'""".splitlines()


def test_no_query_changes_the_record(address: str) -> None:
    with closing_store(address) as store:
        lease = drive(store.lease("r"))
        for head, query in enumerate(ESCAPING):
            drive(store.append(make_batch(lease, head)))
            with suppress(RecordError):
                drive(store.sql(query))
            assert drive(store.sql("SELECT count(*) FROM entries")).rows == [(head + 1,)], query
            assert drive(store.sql("SELECT count(*) FROM pg_class WHERE relname = 'escaped'")).rows == [(0,)], query


def test_a_query_whose_caller_is_cancelled_is_interrupted(address: str) -> None:
    async def main() -> None:
        store = PostgresStore.open(address)
        with anyio.move_on_after(0.1):
            await store.sql("SELECT pg_sleep(60)")
        working = (
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE ? AND state = 'active' AND pid <> pg_backend_pid()"
        )
        while (await store.sql(working, ["SELECT pg_sleep%"])).rows != [(0,)]:
            pass  # the limit for each test is shorter than that sleep
        await store.close()

    anyio.run(main)


# --------------------------------------------------------------------------------------------- kills and processes


PRELUDE = """
import os, sys, time, anyio
from gesta.address import drive
from gesta.stores.postgres import InlinePostgresStore, PostgresStore
from gesta.testing import make_batch
store = InlinePostgresStore.open(sys.argv[1])
"""


class Child:
    """Python in a process of its own, that tells lines."""

    def __init__(self, code: str, address: str) -> None:
        self.process = programs.Program(["-c", PRELUDE + code, address])

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def kill(self) -> list[str]:
        """Kill it, and give the lines that it had told."""
        self.process.kill()
        with self.process:
            return self.process.stdout.read().splitlines()


@pytest.fixture
def child(address: str) -> Iterator[Callable[[str], Child]]:
    def start(code: str) -> Child:
        started.append(Child(code, address))
        return started[-1]

    started: list[Child] = []
    yield start
    for one in started:
        if not one.process.stdout.closed:
            one.kill()


def taken_over(store: InlinePostgresStore, run: str) -> Lease:
    """Acquire the run of a killed process, as soon as the server has noticed."""
    while True:
        with suppress(RunHeld):
            return drive(store.lease(run))


APPENDING = """
lease = drive(store.lease("r"))
print(lease.epoch, flush=True)
for head in range(10**6):
    drive(store.append(make_batch(lease, lease.head + head)))
    print(lease.head + head + 1, flush=True)
"""


def test_after_a_kill_every_acknowledged_row_is_there_and_the_run_is_taken_over(
    address: str, child: Callable[[str], Child]
) -> None:
    for wanted in (1, 20):
        writer = child(APPENDING)
        epoch = int(writer.line())
        lines = [writer.line() for _ in range(wanted)]
        with closing_store(address) as store:
            with pytest.raises(RunHeld, match=f"process {writer.process.pid} on ") as held:
                drive(store.lease("r"))
            assert held.value.since.endswith("Z")
            lines += writer.kill()
            lease = taken_over(store, "r")
            assert [row.seq for row in drive(store.read("r"))] == list(range(1, lease.head + 1))
            assert int(lines[-1]) <= lease.head <= int(lines[-1]) + 1
            assert lease.epoch == epoch + 1
            drive(store.append(make_batch(lease, lease.head)))


def test_a_process_that_stands_still_keeps_its_run_and_nobody_else_waits(
    address: str, child: Callable[[str], Child]
) -> None:
    writer = child('lease = drive(store.lease("r"))\nprint("held", flush=True)\ntime.sleep(60)')
    assert writer.line() == "held"
    writer.process.send_signal(signal.SIGSTOP)
    with closing_store(address) as store:
        drive(append_many(store, "another", 3))
        with pytest.raises(RunHeld):
            drive(store.lease("r"))
        writer.kill()
        assert taken_over(store, "r").epoch == 2


def test_who_vanishes_in_a_commit_or_holds_a_lease_is_given_up_in_time(address: str) -> None:
    connection = connect(located(address), readonly=False)
    (idle,) = connection.execute("SHOW idle_in_transaction_session_timeout").fetchall()
    assert idle == (f"{STALLED_S}s",)
    connection.execute("SET idle_in_transaction_session_timeout = 50; BEGIN")
    select.select([connection.pgconn.socket], [], [])  # until the server has said its last words
    with pytest.raises(psycopg.Error) as lost:
        connection.execute("SELECT 1")
    assert "stood still" in str(told(lost.value, address, writing=True))


def test_of_those_who_race_for_a_dead_owners_run_one_wins(address: str) -> None:
    dead = InlinePostgresStore.open(address)
    drive(dead.lease("r"))
    ended(dead)
    stores = [InlineApart.open(address) for _ in range(4)]
    together = threading.Barrier(4)

    def race(store: InlinePostgresStore) -> str:
        together.wait()
        try:
            return str(drive(store.lease("r")).epoch)
        except RunHeld:
            return "held"

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(race, stores)) == ["2", "held", "held", "held"]
    for store in (*stores, dead):
        drive(store.close())


FORKING = """
lease = drive(store.lease("r"))
store.writer._turn.acquire(), store.reader._turn.acquire()  # as a thread in the middle of a commit and of a query
if not os.fork():
    for work in (lambda: store.append(make_batch(lease, 0)), lambda: store.read("r")):
        try:
            drive(work())
        except Exception as error:
            print(os.getpid(), type(error).__name__, error, flush=True)
    drive(store.close())
    print("closed", flush=True)
time.sleep(60)
"""


def test_a_forked_child_neither_writes_nor_keeps_its_dead_parent_alive(
    address: str, child: Callable[[str], Child]
) -> None:
    parent = child(FORKING)
    told_ = [parent.line(), parent.line()]
    assert all("before this process was forked" in line for line in told_)
    assert [line.split()[1] for line in told_] == ["WriteFailed", "RecordError"]
    assert parent.line() == "closed"
    grandchild = int(told_[0].split()[0])
    try:
        with closing_store(address) as store:
            with pytest.raises(RunHeld, match=f"process {parent.process.pid} on "):
                drive(store.lease("r"))
            parent.process.kill()
            parent.process.wait()
            os.kill(grandchild, 0)  # it lives
            assert taken_over(store, "r").epoch == 2
    finally:
        os.kill(grandchild, signal.SIGKILL)
        parent.kill()


# ------------------------------------------------------------------------------------------------ lost connections


def cut(store: InlinePostgresStore) -> None:
    """Have the server end all connections of a store."""
    with closing(connect(located(store.info.address), readonly=False)) as other:
        for own in (store.writer._connection, store.reader._connection, store.writer.holding._keeper):
            assert own is not None
            other.execute("SELECT pg_terminate_backend($1, 2000)", (own.info.backend_pid,))


def test_a_record_that_is_opened_again_leaves_nothing_more_to_do_at_a_fork(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = list[dict[str, Any]]()
    with closing_store(address):
        monkeypatch.setattr(os, "register_at_fork", lambda **hooks: added.append(hooks))
    with closing_store(address):
        assert added == []


def test_a_connection_that_was_cut_is_opened_anew_and_the_lease_stands_if_nobody_took_it(address: str) -> None:
    with closing_store(address) as store, closing_store(address, InlineApart) as other:
        lease = drive(store.lease("r"))
        drive(store.append(make_batch(lease, 0)))
        cut(store)
        assert len(drive(store.read("r"))) == 1
        drive(store.append(make_batch(lease, 1)))
        with pytest.raises(RunHeld):
            drive(other.lease("r"))
        cut(store)
        taken = drive(other.lease("r"))
        assert taken.lost
        assert drive(other.gone(lease.owner)) is False, "the process lives, and with it what it has begun"
        with pytest.raises(LeaseLost):
            drive(store.append(make_batch(lease, 2)))
        drive(other.append(make_batch(taken, 2)))
        with pytest.raises(RunHeld):
            drive(store.lease("r"))
        assert drive(store.lease("q")).epoch == 1


def test_who_follows_goes_on_after_the_connection_was_cut(address: str) -> None:
    async def main() -> None:
        store = PostgresStore.open(address)
        lease, seen = await store.lease("r"), []
        await store.append(make_batch(lease, 0))
        with anyio.fail_after(5):
            async for page in store.tail():
                seen += [row.seq for row in page]
                if len(seen) == 3:
                    break
                with closing(connect(located(address), readonly=False)) as other:
                    others = "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
                    other.execute(others)
                await store.append(make_batch(lease, len(seen)))
        await store.close()
        assert seen == [1, 2, 3]

    anyio.run(main)


class Cutting:
    """A connection that is lost at a statement: before the server has heard it, or after."""

    def __init__(self, real: Any, at: str, *, heard: bool) -> None:
        self._real, self._at, self._heard, self._done = real, at, heard, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute(self, query: Any, *values: Any) -> Any:
        if self._done or query != self._at:
            return self._real.execute(query, *values)
        self._done = True
        if self._heard:
            self._real.execute(query, *values)
            self._real._pipeline.sync()
        self._real.close()
        raise psycopg.OperationalError("the line went dead")


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("statement", ["COMMIT", "BEGIN ISOLATION LEVEL READ COMMITTED", GRANT])
def test_what_became_of_a_commit_in_which_the_connection_was_lost_is_found_out(
    address: str, statement: str, heard: bool
) -> None:
    with closing_store(address) as store:
        lease = drive(store.lease("r"))
        store.writer._connection = Cutting(store.writer._connection, statement, heard=heard)
        if statement == GRANT:
            other = drive(store.lease("q"))
            assert (other.epoch, other.lost) == (1, False)
            drive(store.append(make_batch(other, 0)))
        assert drive(store.append(make_batch(lease, 0, 2))) == 2 + (statement == GRANT)
        assert len(drive(store.read("r"))) == 2
        drive(store.append(make_batch(lease, 2)))


@pytest.mark.parametrize("heard", [True, False])
def test_a_lease_and_a_letter_are_found_again_after_a_lost_commit(address: str, heard: bool) -> None:
    with closing_store(address) as store:
        store.writer._connection = Cutting(store.writer._connection, "COMMIT", heard=heard)
        lease = drive(store.lease("r"))
        assert (lease.epoch, lease.lost) == (1, False) if heard else (lease.lost is False)
        drive(store.append(make_batch(lease, 0)))
        store.writer._connection = Cutting(store.writer._connection, "COMMIT", heard=heard)
        assert drive(store.send(Letter("r", "key", "{}", "")))
        assert not drive(store.send(Letter("r", "key", "{}", "")))
        assert len(drive(store.inbox("r"))) == 1
        store.writer._connection = Cutting(store.writer._connection, "COMMIT", heard=heard)
        drive(store.release(lease))
        assert not drive(store.lease("r")).lost


# --------------------------------------------------------------------------------------------- opening, and errors


def classes(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for each in kind.__subclasses__():
        yield from classes(each)


BROKEN = ("DataCorrupted", "IndexCorrupted", "UndefinedTable", "UndefinedColumn", "InvalidSchemaName")


def test_every_error_of_psycopg_is_told_as_one_of_ours() -> None:
    found = set(classes(psycopg.Error))
    assert len(found) > 200
    for kind in found:
        error, broken = kind("the reason\nand more"), kind.__name__ in BROKEN
        written, read = told(error, "a", writing=True), told(error, "a", writing=False)
        assert type(written) in ((BrokenRecord,) if broken else (WriteFailed, ServerGone, RecordBusy))
        assert type(read) in ((BrokenRecord,) if broken else (RecordError, ServerGone))
        words = next(words for each, words in WORDS if issubclass(kind, each))
        assert f"{words} (the reason)" in str(written)
        assert f"{words} (the reason)" in str(read)


def test_every_word_is_said_of_some_error() -> None:
    for place, (kind, _) in enumerate(WORDS):
        assert not any(issubclass(kind, earlier) for earlier, _ in WORDS[:place]), kind


def test_an_address_shows_no_password() -> None:
    for address in (
        "postgresql://ann:s3cret@host:5432/db?schema=shop&sslmode=require",
        "postgres://ann@host/db?password=s3cret&sslpassword=s3cret",
        "postgresql://ann:s3cret@one,two/db",
    ):
        place = located(address)
        assert "s3cret" not in place.address
        assert "s3cret" in place.conninfo
        assert located(place.address).schema == place.schema
    assert located("postgresql://h/d?schema=shop").schema == "shop"
    assert located("postgresql://h/d").schema == "gesta"


@pytest.mark.parametrize(
    "address", ["postgresql://u:s3cret@[::1/d", "postgresql://h/d?no=s3cret", 'postgresql://h/d?schema=a"b']
)
def test_an_address_that_is_none_is_refused_in_words(address: str) -> None:
    with pytest.raises(BadAddress) as refusal:
        InlinePostgresStore.open(address)
    assert "s3cret" not in str(refusal.value)


def test_what_is_not_there_is_made_or_refused(address: str) -> None:
    with pytest.raises(NoRecord):
        InlinePostgresStore.open(address, readonly=True)
    with closing_store(address) as store:
        reading = InlinePostgresStore.open(address, readonly=True)
        assert reading.info == store.info
        with pytest.raises(WriteFailed, match="opened for reading only"):
            drive(reading.lease("r"))
        drive(reading.close())
    for wrong in (address.replace("/postgres?", "/nothing?"), "postgresql://nobody@localhost:1/x"):
        for readonly in (True, False):
            with pytest.raises(ServerGone, match="cannot be reached"):
                InlinePostgresStore.open(wrong, readonly=readonly)


def test_a_user_without_rights_is_told_so(address: str) -> None:
    role = f"reader{uuid4().hex}"  # roles belong to the server, which other tests have too
    with closing_store(address) as store:
        store.writer._connection.execute(f"CREATE ROLE {role} LOGIN")
        schema = located(address).schema
        granted = f"GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
        store.writer._connection.execute(granted)
        drive(append_many(store, "r", 2))
    theirs = address.replace("postgres@", f"{role}@")
    with pytest.raises(WriteFailed, match="no right"):
        InlinePostgresStore.open(theirs.replace(schema, "elsewhere"))
    reading = InlinePostgresStore.open(theirs, readonly=True)
    assert len(drive(reading.read("r"))) == 2
    drive(reading.close())
    with closing_store(theirs) as store, pytest.raises(WriteFailed, match="no right"):
        drive(store.lease("r"))
    with closing_store(address) as store:
        store.writer._connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("UPDATE record SET format = 99", NewerRecord),
        ("DELETE FROM record", BrokenRecord),
        ("ALTER TABLE record DROP COLUMN created_at", BrokenRecord),
    ],
)
@pytest.mark.parametrize("readonly", [True, False])
def test_what_is_no_record_is_refused(address: str, change: str, error: type[Exception], readonly: bool) -> None:
    with closing_store(address) as store:
        store.writer._connection.execute(change)
    with pytest.raises(error):
        InlinePostgresStore.open(address, readonly=readonly)


def test_those_who_make_one_record_at_once_make_one(address: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: InlinePostgresStore.open(address), range(6)))
    assert len({store.info.id for store in stores}) == 1
    for store in stores:
        drive(store.close())


def test_long_names_are_found(address: str) -> None:
    with closing_store(address) as store:
        for name in ("x" * 5000, "x" * 5000 + "y"):
            drive(store.append(Batch(drive(store.lease(name[-3:])), 0, [make_opening(name[-3:], name, name)])))
        assert [row.run for row in drive(store.runs("x" * 5000 + "y"))] == ["xxy"]
        assert [row.run for row in drive(store.runs(name="x" * 5000))] == ["xxx"]


def test_damage_is_looked_for_in_every_table(address: str) -> None:
    with closing_store(address) as store:
        drive(append_many(store, "r", 2))
        assert drive(store.damage()) == []


def test_without_the_library_the_extra_is_named() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
from gesta.address import store
store("postgresql://h/d")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={"PYTHONPATH": SOURCE}
    )
    assert f"{MissingExtra.__name__}: A record in PostgreSQL needs 'psycopg'" in done.stderr
    assert "pip install 'gesta[postgres]'" in done.stderr
