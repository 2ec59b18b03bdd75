"""A record in one SQLite file: a store for an event loop, and one without a loop.

A record is the stored history of all runs (conversations of agents). Appends of many runs that come at the same time
share one commit; see `sharing`. Reads run in the thread of the loop, since they take microseconds. A query of `sql` may
take long, so it runs in a thread of its own.

A row is an encoded entry (one event) of a run. `seq` numbers the rows of one run, `pos` all rows of the record. A lease
is the right of one process to write a run. A letter is a message in the inbox of a run. A mirror is a copy of a run
that continues in another record.
"""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import anyio
import apsw
from anyio import to_thread
from msgspec.structs import replace

from gesta.entry import Row, utc_text
from gesta.errors import BrokenRecord, GestaError, NoRecord, RecordError, WriteFailed
from gesta.log.journal import Clock, utc_now
from gesta.store import Batch, BlobRow, Foreign, Info, Lease, Letter, QueryBounds, RunRow, Table, TransactionalEffect
from gesta.stores.common import News, checked, follow, new_id
from gesta.stores.sharing import Adopt, Declare, Mirror, Sharing, Take, Work
from gesta.stores.sqlite_guard import Guard
from gesta.stores.sqlite_open import (
    connect_writing,
    disconnect,
    identity,
    located,
    make,
    migrate,
    sniff,
    steady,
    told,
    turn_on_log,
)
from gesta.stores.sqlite_reader import Reader
from gesta.stores.sqlite_saving import refuse_lost, refuse_missing, refuse_saved
from gesta.stores.sqlite_sight import gone, leave
from gesta.stores.sqlite_writer import Terms, Writer

Durability = Literal["synced", "normal"]
QUERIES = 4  # greatest number of users' queries that run at the same time
SETTLED = frozenset({"end", "request", "attempt", "tool-result", "assistant"})
"""Kinds of entries that end a span, come before an effect, or say what came of it. In a store without an event loop, a
batch with such an entry waits for the disk."""


class InlineSqliteStore:
    """A store in one SQLite file. Its coroutines never wait for another task, so they need no event loop.

    Each append is committed before it returns. With `synced`, an append with an entry of a kind in `SETTLED` also
    waits until all commits so far are on disk. Several threads may use one store.
    """

    def __init__(self, path: Path, info: Info, writer: Writer | None, reader: Reader) -> None:
        self.path = path
        self.reader = reader
        """The synchronous reader, which runs the queries."""
        self.queries = QueryBounds()
        self._info = info
        self._writer = writer
        self._news = News()

    @classmethod
    def open(
        cls,
        address: str | os.PathLike[str],
        *,
        durability: Durability = "synced",
        readonly: bool = False,
        clock: Clock = utc_now,
        busy_s: float = 60.0,
    ) -> Self:
        """Open a record, and create it if it does not exist. Cost: 1 ms, and 10 ms to create it.

        Args:
            durability: `synced` waits for the disk at each commit. `normal` does not. Then loss of power, or a crash of
                the whole system, may lose the last commits, but never one without all commits after it. A crash of the
                process loses none.
            readonly: refuse to write. No file is created beside the record either, unless a process is writing it.
            clock: returns the present time, for the times in the record.
            busy_s: seconds to wait for other writers of the file.

        Raises:
            RecordBusy: others wrote the file for `busy_s` seconds, or have a record of an older format open.
            NoRecord: there is no record to read.
            BrokenRecord: the file is not a record, or is damaged; it was not changed.
            NewerRecord: a later release made the record; it was not changed.
            WriteFailed: the file cannot be made or written here or by this user, or lacks its last commits.
        """
        path = located(address, readonly=readonly)
        try:
            there = sniff(path)
            if readonly:
                if not there:
                    raise BrokenRecord(str(path), "it is empty")
                reader = steady(path, lambda: Reader(path, still=True))
                return cls(path, reader.identity(), None, reader)
            if not there:
                refuse_missing(path)
            return cls(path, *opened(path, Terms(durability == "synced", clock, busy_s), new=not there))
        except (apsw.Error, OSError, UnicodeError) as error:
            raise told(error, str(path), writing=not readonly) from error

    @property
    def info(self) -> Info:
        """The identity of the store: its id, its address, and the time of its creation."""
        return self._info

    @property
    def writer(self) -> Writer:
        """The synchronous writer. Raises WriteFailed if the record was opened for reading only."""
        if self._writer is None:
            raise WriteFailed(str(self.path), "it was opened for reading only")
        return self._writer

    @property
    def commits(self) -> int:
        """The number of transactions of this store that changed something."""
        return self._writer.commits if self._writer is not None else 0

    async def append(self, batch: Batch) -> int:
        """Commit a batch, and return the pos of its last row; see `Store.append`."""
        return int(await self._write(checked(batch), synced=any(row.kind in SETTLED for row in batch.rows)))

    async def transact(self, effect: TransactionalEffect) -> None:
        """Run `effect.work`, and commit its changes and entries together; see `Store.transact`. Other writes wait."""
        (outcome,) = self.writer.commit((effect,))
        self._news.ring()
        if isinstance(outcome, GestaError):
            raise outcome

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Return the rows of a run in the order of seq; see `Store.read`. Cost: 20 us, and 1.5 us for each row."""
        return self.reader.read(run, after, until, limit)

    async def head(self, run: str) -> tuple[int, bytes]:
        """Return the seq and the digest (hash) of the last entry of a run; see `Store.head`."""
        return self.reader.head(run)

    async def last(self) -> int:
        """Return the pos of the last entry in the record; see `Store.last`."""
        return self.reader.last()

    async def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return the runs in the order in which they were opened; see `Store.runs`. Cost: 10 us for each run."""
        return self.reader.runs(session, name)

    async def get_blob(self, run: str, name: str) -> BlobRow:
        """Return a blob (a large value) of a run; see `Store.get_blob`."""
        return self.reader.get_blob(run, name)

    async def send(self, letter: Letter) -> bool:
        """Add a letter to a run's inbox. Return `False` if a letter with this key was sent before; see `Store.send`."""
        return bool(await self._write(letter, synced=True))

    def deliver(self, letter: Letter) -> bool:
        """Add a letter to an inbox, from any thread; see `Store.deliver`.

        If this store is closed, the file is opened again for the letter only.
        """
        if self._news.over:
            if not self.path.exists():
                raise NoRecord(str(self.path))
            opened = InlineSqliteStore.open(self.path)
            try:
                return opened.deliver(letter)
            finally:
                opened.close_now()
        (outcome,) = self.writer.commit((letter,), synced=True)
        if isinstance(outcome, GestaError):
            raise outcome
        return bool(outcome)

    async def inbox(self, run: str) -> list[Letter]:
        """Return the letters in the inbox of a run; see `Store.inbox`."""
        waiting = self._writer.inbox(run) if self._writer is not None else None
        return self.reader.inbox(run) if waiting is None else waiting

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        """Acquire the lease of a run; see `Store.lease`.

        The lease is committed without waiting for the disk. It is on the disk with the next commit that waits.
        """
        lease: Lease = await self._write(Take(run, mirror), synced=False)
        if self._info.mark is not None:
            await self._look_for_mark()
        return lease

    async def release(self, lease: Lease) -> None:
        """Release the lease of a run; see `Store.release`.

        If the commit fails, no error is raised, and a thread tries again.
        """
        if self._writer is None or not self._writer.leave(lease):
            return
        try:
            await self._write(lease, synced=False)
        except RecordError:
            pass
        finally:
            self._writer.give_back(lease)

    async def holds(self, lease: Lease) -> bool:
        """Return `True`: in a file, a process keeps its leases until it ends.

        If a lease was lost anyway, `append` raises.
        """
        return bool(lease.run)

    async def mirror(self, lease: Lease, of: str | None) -> None:
        """Mark a run as a mirror of its original in the record with id `of`; `None` unmarks it. See `Store.mirror`."""
        await self._write(Mirror(lease, of), synced=True)

    async def gone(self, process: str) -> bool | None:
        """Return whether a process has ended; `None` if that is not known. See `Store.gone`. Cost: 30 us."""
        if self.reader.declared(process):
            return True
        return gone(self.path, process)

    async def declare_gone(self, process: str, by: str) -> None:
        """Store a person's statement that a process has ended; see `Store.declare_gone`."""
        await self._write(Declare(process, by), synced=True)

    async def adopt(self, by: str) -> None:
        """Store a person's decision that this copy replaces the original record; see `Store.adopt`."""
        await self._write(Adopt(by), synced=True)
        await self._look_for_mark()

    async def _look_for_mark(self) -> None:
        """Read the mark of this copy again, because any process can adopt the copy."""
        self._info = replace(self._info, mark=(await self.sql("SELECT mark FROM record")).rows[0][0])

    def keep(self) -> Callable[[], None]:
        """Keep the lock which shows that this process runs, until the returned function is called; see `Store.keep`."""
        return self._writer.keep() if self._writer is not None else lambda: None

    def descriptor(self) -> int | None:
        """Return the file descriptor whose lock shows that this process runs; `None` if the store only reads."""
        return self._writer.descriptor() if self._writer is not None else None

    def tail(self, after: int = 0) -> AsyncGenerator[list[Row], None]:
        """Yield pages of the rows of all runs after the pos `after`, until the store is closed. Needs an event loop.

        Commits of this store from the same thread are yielded at once, all others within 5 to 200 ms.
        """
        return follow(self.reader.page, self._news, after)

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Run a query that only reads, and return its rows; see `Store.sql`. Raises RecordError if it fails."""
        return self.reader.ask(self.reader.connect(), query, parameters, self.queries)

    async def shrink(self) -> int:
        """Rewrite the file without its free space, in this thread; see `Store.shrink`.

        Cost: reads and writes the whole file.
        """
        return self.writer.shrink()

    async def damage(self) -> list[str]:
        """Return a text for each damage that SQLite finds in the file; see `Store.damage`."""
        return self.reader.damage()

    async def foreign(self) -> Foreign:
        """Return the objects in the file that Gesta did not make, such as tables and views; see `Store.foreign`."""
        return self.reader.foreign()

    async def close(self) -> None:
        """Release all leases and close the file; see `Store.close`."""
        self._news.close()
        self.close_now()

    async def _write(self, work: Work, *, synced: bool) -> Any:
        (outcome,) = self.writer.commit((work,), synced=synced)
        self._news.ring()
        if isinstance(outcome, GestaError):
            raise outcome
        return outcome

    def close_now(self) -> None:
        """Release all leases and close the file, in this thread."""
        self.reader.close()  # first, so that the writer is the last and leaves one file
        if self._writer is not None:
            self._writer.close()
        leave()


class SqliteStore(InlineSqliteStore):
    """A store in one SQLite file for the tasks of one event loop, which share commits.

    A slow disk does not block the loop. A write that is cancelled before its commit has begun is not
    committed; see `sharing`.
    """

    def __init__(self, path: Path, info: Info, writer: Writer | None, reader: Reader) -> None:
        super().__init__(path, info, writer, reader)
        self.sharing = Sharing(str(path), self._news, at_once=writer.at_once if writer is not None else None)
        """Passes the operations of all tasks to the writer, in groups."""
        self._closing = anyio.CapacityLimiter(1)  # own thread, because tools may occupy all shared ones
        self._asking = anyio.CapacityLimiter(QUERIES)

    async def append(self, batch: Batch) -> int:
        """Commit a batch together with batches of other runs, and return the pos of its last row; see `Store.append`.

        Raises:
            LeaseLost: as in `Store.append`, or a letter of this batch already became an entry.
            WriteFailed: nothing was committed.
            ValueError: the rows do not follow each other.
        """
        return int(await self.sharing.share(self._writer or self.writer, checked(batch), synced=True))

    async def transact(self, effect: TransactionalEffect) -> None:
        """Run `effect.work` in this thread, and commit its changes and its entries together; see `Store.transact`.

        If other processes are writing, another thread waits for them, so the event loop is not blocked.
        """
        while (outcomes := self.writer.at_once((effect,), self.writer.synced)) is None:
            await to_thread.run_sync(self.writer.wait, limiter=self._closing)
        self._news.ring()
        if isinstance(outcomes[0], GestaError):
            raise outcomes[0]

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Run a query that only reads, in a thread; see `Store.sql`. Raises RecordError if it fails.

        If the caller is cancelled, the query is interrupted.
        """
        connection = self.reader.connect()
        try:
            work = partial(self.reader.ask, connection, query, parameters, self.queries)
            return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._asking)
        except anyio.get_cancelled_exc_class():
            with suppress(apsw.Error):  # it may have ended meanwhile
                connection.interrupt()
            raise

    async def shrink(self) -> int:
        """Rewrite the file without its free space, in a thread; see `Store.shrink`."""
        return await to_thread.run_sync(self.writer.shrink, limiter=self._closing)

    async def close(self) -> None:
        """Release all leases and close the file, in a thread; see `Store.close`. Uncommitted writes are refused."""
        self._news.close()
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self.close_now, limiter=self._closing)

    async def _write(self, work: Work, *, synced: bool) -> Any:
        return await self.sharing.share(self.writer, work, synced=synced)


def opened(path: Path, terms: Terms, *, new: bool) -> tuple[Info, Writer, Reader]:
    """Open a file for writing, and return the identity, the writer and the reader of its record.

    An empty file becomes a record, and an older format is migrated to the present one. Meanwhile no other process can
    write the file. Raises the errors of `InlineSqliteStore.open`.

    Args:
        terms: the options with which the store was opened.
        new: whether the file is empty or does not exist.
    """
    guard = Guard(path)
    connection, reader = None, None
    try:
        with guard.hold.turn.waited(str(path), terms.busy_s):
            refuse_lost(path, guard)
            connection = connect_writing(path, synced=terms.synced)
            if new:
                make(connection, Info(new_id(), str(path), utc_text(terms.clock())))
            identity(connection, path)
            refuse_saved(connection, path)
            migrate(connection, path)
            turn_on_log(connection, path)
            guard.begin()
            reader = Reader(path, still=False)
        return identity(connection, path), Writer(path, connection, guard, terms), reader
    except BaseException:
        guard.end()
        if reader is not None:
            reader.close()
        if connection is not None:
            disconnect(connection)
        guard.release()
        raise
