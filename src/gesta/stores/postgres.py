"""A record in PostgreSQL, shared by processes on many machines: a store for an event loop, and one without a loop.

A record is the stored history of all runs (conversations of agents). Both stores use the same tables as a record in
SQLite. Appends of many runs that come at the same time share one commit; see `sharing`. Calls that wait for the server
run in a thread. After a commit, the server notifies each `tail`, which yields new rows.

A row is an encoded entry (one event) of a run. `seq` numbers the rows of one run, `pos` all rows of the record. A lease
is the right of one process to write a run. A letter is a message in the inbox of a run. A mirror is a copy of a run
that continues in another record.
"""

import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeVar

import anyio
from anyio import to_thread

from gesta.errors import GestaError, MissingExtra, RecordError, ServerGone, WriteFailed

try:
    import psycopg
except ImportError as missing:  # also where psycopg finds no libpq
    raise MissingExtra("A record in PostgreSQL", "psycopg", "postgres") from missing

from gesta.entry import Row
from gesta.store import Batch, BlobRow, Foreign, Info, Lease, Letter, QueryBounds, RunRow, Table, TransactionalEffect
from gesta.stores.common import LONGEST_S, News, checked
from gesta.stores.postgres_holding import Holding
from gesta.stores.postgres_open import (
    BUSY_S,
    Connection,
    Place,
    allow_role,
    connect,
    located,
    prepared,
    seen,
    server_of,
    told,
)
from gesta.stores.postgres_reader import Pages, Reader
from gesta.stores.postgres_writer import Options, Writer
from gesta.stores.sharing import Adopt, Declare, Looks, Mirror, Sharing, Take, Work

Durability = Literal["synced", "normal"]
Failover = Literal["synchronous"]
READINGS = 8  # greatest number of reads that wait in threads at the same time
QUERIES = 4  # greatest number of users' queries that run at the same time
LOOKING_S = 2.0  # seconds between two queries of a tail, in case a notification of the server is lost
SETTLED = frozenset({"end", "request", "attempt", "tool-result", "assistant"})
"""Kinds of entries that end a span, come before an effect, or say what came of it. In a store without an event loop, a
batch with such an entry waits for the disk."""
T = TypeVar("T")


class InlinePostgresStore:
    """A store in PostgreSQL. Its coroutines never wait for another task, so they need no event loop.

    Each append is committed before it returns. With `synced`, an append with an entry of a kind in `SETTLED` also
    waits until all commits so far are on disk. Several threads may use one store.
    """

    holdings: ClassVar[dict[tuple[int, str, str], Holding]] = {}
    """The name and lock of this process on each record, by process id (a process may fork), server and record id."""

    def __init__(self, info: Info, writer: Writer | None, reader: Reader, holding: Holding) -> None:
        self.reader = reader
        """The synchronous reader, which runs the queries."""
        self.queries = QueryBounds()
        self._info = info
        self._holding = holding
        self._closed = False
        holding.enter(writing=writer is not None)
        self._writer = writer
        self._news = News()
        self._given = ""  # the address with its password

    @classmethod
    def open(
        cls,
        address: str,
        *,
        durability: Durability = "synced",
        readonly: bool = False,
        busy_s: float = BUSY_S,
        failover: Failover | None = None,
        tool_role: str | None = None,
    ) -> Self:
        """Open a record, and create it if it does not exist. Cost: 15 ms, 50 ms to create it, and more over a network.

        Args:
            address: as libpq reads it, `postgresql://user@host:5432/database`; `?schema=NAME` says which record.
            durability: `synced` waits for the disk at each commit. `normal` does not. Then a crash of the server may
                lose the last commits, but never one without all commits after it. A crash of this process loses none.
            readonly: refuse to write.
            busy_s: seconds to wait for other writers, and for a server that cannot be reached.
            failover: `synchronous` says that a server that replaces this one has all its commits. The record on the new
                server is then used like the original. Without it, that record is treated as a copy.
            tool_role: role under which the statements of transactional tools run.

        Raises:
            BadAddress: the address cannot be read.
            NoRecord, BrokenRecord, NewerRecord: there is no record that this release reads; nothing was changed.
            WriteFailed, RecordError: there is no such server or database, or this user has no access to it.
        """
        place = located(address, busy_s)
        opened: list[Connection] = []
        try:
            opened.append(connect(place, readonly=True))
            if readonly:
                info = seen(opened[0], place)
                return cls(info, None, Reader(place, info, opened[0]), cls.holding(opened[0], place, info))
            opened.append(connect(place, readonly=False))
            options = Options(durability == "synced", failover == "synchronous", tool_role)
            info = prepared(opened[1], place, failover=options.failover)
            if tool_role is not None:
                allow_role(opened[1], place, tool_role)
            holding = cls.holding(opened[1], place, info)
            writer = Writer(place, info, opened[1], holding, options)
            made = cls(info, writer, Reader(place, info, opened[0]), holding)
            made._given = address
            return made
        except BaseException as error:
            for connection in opened:
                connection.close()
            if isinstance(error, psycopg.Error):
                raise told(error, place.address, writing=not readonly) from error
            raise

    @classmethod
    def holding(cls, connection: Connection, place: Place, info: Info) -> Holding:
        """Return the name and the lock of this process, which all its stores on one record share."""
        server, *rest = (server_of(connection, place) or f"{place.conninfo}/{place.schema}").split("/")
        where = "/".join([server, *rest[1:]])  # without the timeline, because a failover changes it
        return cls.holdings.setdefault((os.getpid(), where, info.id), Holding())

    @property
    def info(self) -> Info:
        """The identity of the store: its id, its address, and when it was made."""
        return self._writer.info if self._writer is not None else self._info

    @property
    def writer(self) -> Writer:
        """The synchronous writer. Raises WriteFailed if the record was opened for reading only."""
        if self._writer is None:
            raise WriteFailed(self._info.address, "it was opened for reading only")
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
        (outcome,) = self.writer.commit((effect,), synced=True)
        if isinstance(outcome, GestaError):
            raise outcome

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Return the rows of a run in the order of seq; see `Store.read`."""
        return await self._read(partial(self.reader.read, run, after, until, limit))

    async def head(self, run: str) -> tuple[int, bytes]:
        """Return the seq and the digest (hash) of the last entry of a run; see `Store.head`."""
        return await self._read(partial(self.reader.head, run))

    async def last(self) -> int:
        """Return the pos of the last entry in the record; see `Store.last`."""
        return await self._read(self.reader.last)

    async def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return the runs in the order in which they were opened; see `Store.runs`."""
        return await self._read(partial(self.reader.runs, session, name))

    async def get_blob(self, run: str, name: str) -> BlobRow:
        """Return a blob (a large value) of a run; see `Store.get_blob`."""
        return await self._read(partial(self.reader.get_blob, run, name))

    async def send(self, letter: Letter) -> bool:
        """Add a letter to a run's inbox. Return `False` if a letter with this key was sent before; see `Store.send`."""
        return bool(await self._write(letter, synced=True))

    def deliver(self, letter: Letter) -> bool:
        """Add a letter to an inbox, from any thread; see `Store.deliver`.

        A closed store opens the record for this call.
        """
        if self._news.over:
            opened = InlinePostgresStore.open(self._given, failover="synchronous")  # else it may be marked as a copy
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
        return (await self._read(partial(self.reader.inboxes, [run])))[run]

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        """Acquire the lease of a run; see `Store.lease`.

        The lease is committed without waiting for the disk. It is on the disk with the next commit that waits.
        """
        lease: Lease = await self._write(Take(run, mirror), synced=False)
        return lease

    async def release(self, lease: Lease) -> None:
        """Release the lease of a run; see `Store.release`. If the commit fails, the next commit releases the lease."""
        self.writer.leave(lease)
        with suppress(WriteFailed):
            await self._write(lease, synced=False)

    async def holds(self, lease: Lease) -> bool:
        """Return whether this process still holds a lease; see `Store.holds`. Cost: one exchange with the server."""
        return await self._read(partial(self.reader.holds, lease))

    async def mirror(self, lease: Lease, of: str | None) -> None:
        """Mark a run as a mirror of its original in the record with id `of`; `None` unmarks it. See `Store.mirror`."""
        await self._write(Mirror(lease, of), synced=True)

    async def gone(self, process: str) -> bool | None:
        """Return whether a process has ended; `None` for a process of another machine that nobody declared ended."""
        known = self._holding.gone(process)
        if known is not None:
            return known
        return True if await self._read(partial(self.reader.declared, process)) else None

    async def declare_gone(self, process: str, by: str) -> None:
        """Store a person's statement that a process has ended; see `Store.declare_gone`. Raises WriteFailed."""
        await self._write(Declare(process, by), synced=True)

    async def adopt(self, by: str) -> None:
        """Store a person's decision that this copy replaces the original record; see `Store.adopt`."""
        await self._write(Adopt(by), synced=True)

    def keep(self) -> Callable[[], None]:
        """Keep the lock which shows that this process runs, until the returned function is called; see `Store.keep`."""
        return self._holding.keep()

    def descriptor(self) -> int | None:
        """Return the file descriptor whose lock shows that this process runs; `None` if it has no lock yet."""
        return self._holding.presence.descriptor if self._holding.holds else None

    async def tail(self, after: int = 0) -> AsyncGenerator[list[Row], None]:
        """Yield pages of the rows of all runs after the pos `after`, until the store is closed.

        New rows are yielded as soon as the server has reported their commit.
        """
        listening: Connection | None = None
        pages = Pages(self.reader, self.info.address, after)
        try:
            while not self._news.over:
                rows = await self._read(pages.next)
                if rows:
                    yield rows
                elif listening is None or listening.closed:
                    with suppress(ServerGone):  # the next read waits for the server, and raises when its time is over
                        listening = await self._wait(self.reader.listen)
                else:
                    await self._news_of(listening)
        except RecordError:
            if not self._news.over:  # an error after `close` is expected
                raise
        finally:
            if listening is not None:
                listening.close()

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Run a query that only reads, and return its rows; see `Store.sql`. Raises RecordError if it fails."""
        return self.reader.ask(self.reader.connect(), query, parameters, self.queries)

    async def shrink(self) -> int:
        """Free the space of pruned (removed) runs on the server. Return the number of bytes; see `Store.shrink`."""
        return await self._wait(self.writer.shrink)

    async def damage(self) -> list[str]:
        """Read all tables. Return the server's message about each damaged one; see `Store.damage`."""
        return await self._wait(self.reader.damage)

    async def foreign(self) -> Foreign:
        """Return the objects in the schema that Gesta did not make, such as tables and views; see `Store.foreign`."""
        return await self._wait(self.reader.foreign)

    async def close(self) -> None:
        """Release all leases of this store and close its connections; see `Store.close`."""
        self._news.close()
        self.close_now()

    async def _write(self, work: Work, *, synced: bool) -> Any:
        (outcome,) = self.writer.commit((work,), synced=synced)
        if isinstance(outcome, GestaError):
            raise outcome
        return outcome

    async def _wait(self, work: Callable[[], T]) -> T:
        return work()

    async def _read(self, work: Callable[[], T]) -> T:
        return await self._wait(work)

    async def _news_of(self, listening: Connection) -> None:
        """Wait until the server reports a commit, or until it is time to query the record again."""
        until = time.monotonic() + LOOKING_S
        while not self._news.over and time.monotonic() < until:
            try:
                with anyio.move_on_after(LONGEST_S):
                    await anyio.wait_readable(listening.fileno())
                if list(listening.notifies(timeout=0)):
                    return
            except (psycopg.Error, OSError):
                listening.close()
                return

    def close_now(self) -> None:
        """Release all leases of this store and close its connections, in this thread."""
        self.reader.close()
        if self._writer is not None:
            self._writer.close()
        closed, self._closed = self._closed, True
        if not closed:
            self._holding.leave(writing=self._writer is not None)


class PostgresStore(InlinePostgresStore):
    """A store in PostgreSQL for the tasks of one event loop, which share commits.

    All calls wait in a thread; only `transact` blocks the loop. A write that is cancelled before its commit starts is
    dropped; see `sharing`.
    """

    def __init__(self, info: Info, writer: Writer | None, reader: Reader, holding: Holding) -> None:
        super().__init__(info, writer, reader, holding)
        self._sharing = Sharing(info.address, self._news, remote=True)
        self._reading = anyio.CapacityLimiter(READINGS)  # own threads, because tools may occupy all shared ones
        self._asking = anyio.CapacityLimiter(QUERIES)
        self._looks = Looks(lambda runs: self._read(partial(self.reader.inboxes, runs)))

    async def append(self, batch: Batch) -> int:
        """Commit a batch together with batches of other runs, and return the pos of its last row; see `Store.append`.

        Raises:
            LeaseLost: as in `Store.append`, or a letter of this batch already became an entry.
            WriteFailed: nothing was committed; or the connection was lost, and it is not known whether it was
                committed.
            ValueError: the rows do not follow each other.
        """
        return int(await self._write(checked(batch), synced=True))

    async def inbox(self, run: str) -> list[Letter]:
        """Return the letters in the inbox of a run; see `Store.inbox`."""
        return await self._looks.look(run)

    async def transact(self, effect: TransactionalEffect) -> None:
        """Run `effect.work` in this thread, once the connection is open; see `Store.transact`."""
        if not self.writer.ready():
            await self._wait(partial(self.writer.commit, (), synced=False))
        await super().transact(effect)

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Run a query that only reads, in a thread; see `Store.sql`. Cancelling the call interrupts the query.

        Raises RecordError if the query fails.
        """
        connection = await to_thread.run_sync(self.reader.connect, limiter=self._asking)
        try:
            work = partial(self.reader.ask, connection, query, parameters, self.queries)
            return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._asking)
        except anyio.get_cancelled_exc_class():
            with suppress(psycopg.Error):  # it may have ended meanwhile
                connection.cancel_safe(timeout=1.0)
            raise

    async def close(self) -> None:
        """Release all leases and close the connections, in a thread. Writes that are not yet committed are refused."""
        self._news.close()
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self.close_now, limiter=self._reading)

    async def _write(self, work: Work, *, synced: bool) -> Any:
        return await self._sharing.share(self.writer, work, synced=synced)

    async def _wait(self, work: Callable[[], T]) -> T:
        return await to_thread.run_sync(work, limiter=self._reading)

    async def _read(self, work: Callable[[], T]) -> T:
        """Run a reading function in a thread, and return its result. A cancelled caller does not wait for it."""
        return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._reading)
