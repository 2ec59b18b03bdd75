"""A store in memory: the contract of `Store` in plain Python. The record belongs to one process and ends with it.

A record is the stored history of all runs (conversations of agents). This store accepts the same calls as a store on
disk, so programs run on both. It is used from one thread. Its coroutines never wait, except `tail`. Queries run on an
SQLite database in memory, into which each query first copies the new entries.

A row is an encoded entry (one event) of a run. `seq` numbers the rows of one run, `pos` all rows of the record. A lease
is the right to write a run. A letter is a message in the inbox of a run. A mirror is a copy of a run that continues in
another record.
"""

import os
import socket
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import apsw
import msgspec

from gesta.entry import GENESIS, Row, utc_text
from gesta.errors import BrokenRecord, LeaseLost, RecordError, RunHeld, RunMirrored, WriteFailed
from gesta.log.journal import Clock, utc_now
from gesta.store import (
    Batch,
    BlobRow,
    Foreign,
    Info,
    Lease,
    Letter,
    Prune,
    QueryBounds,
    RunRow,
    Table,
    TransactionalEffect,
)
from gesta.stores.common import News, checked, follow, forks, new_id
from gesta.stores.effects import Sql
from gesta.stores.tables import ADD_BLOB, ADD_LETTER, ADD_RECORD, FORMAT, ROW, TABLES, ask

ADDRESS = ":memory:"


class Beginning(msgspec.Struct):
    """The fields of a `begin` entry (the first of a run) that `MemoryStore.runs` needs to describe the run."""

    opened: dict[str, Any] | None = None


class MemoryStore:
    """A store that keeps a record in memory; the record ends with this object."""

    def __init__(self, *, clock: Clock = utc_now, new_id: Callable[[], str] = new_id) -> None:
        self._clock = clock
        self._owner = new_id()
        self.queries = QueryBounds()
        self._info = Info(new_id(), ADDRESS, utc_text(clock()))
        self._rows: list[Row] = []
        self._runs: dict[str, list[Row]] = {}
        self._opened: list[RunRow] = []
        self._blobs: dict[tuple[str, str], BlobRow] = {}
        self._inbox: dict[str, list[Letter]] = {}
        self._keys: dict[tuple[str, str], int] = {}
        self._numbers = 0  # number of the last letter
        self._leases: dict[str, tuple[int, str]] = {}
        self._held: set[str] = set()
        self._mirrors: dict[str, str] = {}
        self._gone: set[str] = set()
        self._tables: apsw.Connection | None = None
        self._own: apsw.Connection | None = None  # holds the tables of transactional tools
        self._filled = 0  # pos of the last row in the tables
        self._last = 0  # pos that was assigned last
        self._news = News()
        self.commits = 0
        """The number of changes that were accepted: batches, letters and leases."""

    @property
    def info(self) -> Info:
        """The identity of the store: its id, its address, and the time of its creation."""
        return self._info

    async def append(self, batch: Batch) -> int:
        """Append a batch, and return the pos of its last row; 0 if the batch has no rows.

        Raises:
            LeaseLost: the lease is no longer held, the run has newer entries, or a letter of the batch has left the
                inbox.
            ValueError: the rows do not follow each other.
            WriteFailed: the store is closed, or the content of a `begin` entry is not a JSON object.
        """
        return self._append(batch)

    def _append(self, batch: Batch) -> int:
        self._open(writing=True)
        self._allow(checked(batch))
        opened = [found for row in batch.rows if row.kind == "begin" and (found := self._opening(row, batch.head))]
        for each in batch.beside:
            self._allow(each)
            for row in each.rows:
                _ = row.kind == "begin" and self._opening(row, each.head)
        run = batch.lease.run
        placed = [msgspec.structs.replace(row, pos=pos) for pos, row in enumerate(batch.rows, self._last + 1)]
        self._last += len(placed)
        self._rows += placed
        self._runs.setdefault(run, []).extend(placed)
        self._opened += opened
        for blob in batch.blobs:
            self._blobs.setdefault((run, blob.name), blob)
        if batch.letters:
            self._inbox[run] = [letter for letter in self._inbox[run] if letter.id not in batch.letters]
        for letter in batch.mail:
            self._add(letter, letter.at)
        if batch.prunes:
            self._prune({gone.lease.run for gone in batch.prunes})
        self.commits += 1
        self._news.ring()
        last = placed[-1].pos if placed else 0
        for each in batch.beside:
            last = self._append(each)
        return last

    async def transact(self, effect: TransactionalEffect) -> None:
        """Run `effect.work` on tables of a separate database, and append its entries; see `Store.transact`."""
        self._open(writing=True)
        if self._own is None:
            self._own = apsw.Connection(":memory:")
            self._own.execute("PRAGMA foreign_keys = ON")
        sql = Sql(self._own)
        self._own.execute("BEGIN")
        try:
            with sql.guarded(effect.timeout_s):
                batch, kept = effect.work(sql)
            if kept:
                sql.check()
            self._append(batch)
            if self._own.in_transaction:
                self._own.execute("COMMIT" if kept else "ROLLBACK")
        except BaseException:
            if self._own.in_transaction:
                self._own.execute("ROLLBACK")
            raise

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Return the rows of a run in the order of seq: from `after` + 1 to `until`, at most `limit` rows."""
        self._open()
        rows = self._runs.get(run, [])
        before = rows[0].seq - 1 if rows else 0
        start = max(0, after - before)
        stop = len(rows) if until is None else max(0, until - before)
        return rows[start : stop if limit is None else min(stop, start + limit)]

    async def head(self, run: str) -> tuple[int, bytes]:
        """Return the seq and the digest (hash) of a run's last entry; 0 and 32 zero bytes if there is no such run."""
        self._open()
        return self._head(run)

    async def last(self) -> int:
        """Return the pos of the last entry in the store; see `Store.last`."""
        return self._last

    async def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return the runs in the order in which they were opened.

        With `session` or `name`, return only the runs that match.
        """
        self._open()
        found = []
        for row in self._opened:
            if session in (None, row.session) and name in (None, row.name):
                last = self._runs[row.run][-1]
                found.append(msgspec.structs.replace(row, head=last.seq, last_at=last.at))
        return found

    async def get_blob(self, run: str, name: str) -> BlobRow:
        """Return a blob (a large value) of a run. Raises BrokenRecord if the run has no such blob."""
        self._open()
        if (run, name) not in self._blobs:
            raise BrokenRecord(ADDRESS, f"run {run!r} has no blob {name!r}")
        return self._blobs[run, name]

    async def send(self, letter: Letter) -> bool:
        """Add a letter to an inbox; no lease is needed. Return `False` if a letter with this key was sent before."""
        return self.deliver(letter)

    def deliver(self, letter: Letter) -> bool:
        """Add a letter to an inbox, from any thread; see `Store.deliver`. Raises WriteFailed after `close`."""
        self._open(writing=True)
        added = self._add(letter, utc_text(self._clock()))
        self.commits += added
        return added

    def _add(self, letter: Letter, at: str) -> bool:
        if (letter.run, letter.key) in self._keys:
            return False
        number = self._keys[letter.run, letter.key] = self._numbers = self._numbers + 1
        self._inbox.setdefault(letter.run, []).append(msgspec.structs.replace(letter, id=number, at=at))
        return True

    async def holds(self, lease: Lease) -> bool:
        """Return whether this process still holds a lease."""
        return lease.run in self._held and self._leases.get(lease.run, (0, ""))[0] == lease.epoch

    async def inbox(self, run: str) -> list[Letter]:
        """Return the letters that wait in the inbox of a run, in the order in which they came."""
        self._open()
        return list(self._inbox.get(run, ()))

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        """Acquire the lease of a run; see `Store.lease`.

        Raises RunHeld while the lease is held, and RunMirrored if the run is a mirror and `mirror` is not set.
        """
        self._open(writing=True)
        head, digest = self._head(run)
        epoch, since = self._leases.get(run, (0, ""))
        if run in self._mirrors and not mirror:
            raise RunMirrored(run, self._mirrors[run])
        if run in self._held:
            raise RunHeld(run, f"process {os.getpid()} on {socket.gethostname()}", since, head)
        self._leases[run] = (epoch + 1, utc_text(self._clock()))
        self._held.add(run)
        self.commits += 1
        return Lease(run, self._owner, epoch + 1, head, digest)

    async def release(self, lease: Lease) -> None:
        """Release the lease of a run. If the lease is no longer held, do nothing."""
        if self._leases.get(lease.run, (0, ""))[0] == lease.epoch and lease.owner == self._owner:
            self._held.discard(lease.run)

    async def mirror(self, lease: Lease, of: str | None) -> None:
        """Mark a run as a mirror of its original in the record with id `of`; `None` unmarks it.

        Raises LeaseLost if the lease is no longer held.
        """
        self._open(writing=True)
        self._allow(Batch(lease, self._head(lease.run)[0], ()))
        self._mirrors.pop(lease.run, None)
        if of is not None:
            self._mirrors[lease.run] = of

    async def gone(self, process: str) -> bool | None:
        """Return whether a process has ended; `None` if that is not known.

        It is known of the present process, and of processes that were passed to `declare_gone`.
        """
        return True if process in self._gone else False if process == self._owner else None

    async def declare_gone(self, process: str, by: str) -> None:
        """Store a person's statement that a process has ended; see `Store.declare_gone`."""
        self._open(writing=True)
        self._gone.add(process)

    async def adopt(self, by: str) -> None:
        """Do nothing: only a copy of a record can be adopted, and a record in memory is none."""
        self._open(writing=True)

    def keep(self) -> Callable[[], None]:
        """Return a function that does nothing: no other process has to know that this one runs."""
        return lambda: None

    def descriptor(self) -> int | None:
        """Return `None`: there is no file, and no other process uses a record in memory."""
        return None

    def tail(self, after: int = 0) -> AsyncGenerator[list[Row], None]:
        """Yield pages of the rows of all runs after the pos `after`, until the store is closed."""
        return follow(self._page, self._news, after)

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Run a query that only reads, and return its rows and columns.

        Raises:
            RecordError: the query would write, or SQLite refuses it.

        Cost: the entries and blobs that are new since the last query are copied into tables.
        """
        self._open()
        if self._tables is None:
            self._tables = apsw.Connection(ADDRESS)
            self._tables.execute(TABLES)
            self._tables.execute(ADD_RECORD, (self._info.id, FORMAT, self._info.created_at))
        self._tables.authorizer = None
        self._fill(self._tables)
        return ask(self._tables, query, parameters, self.queries)

    async def shrink(self) -> int:
        """Return 0: pruning leaves no space to free."""
        self._open(writing=True)
        return 0

    async def damage(self) -> list[str]:
        """Return an empty list: a record in memory has no pages on disk that can be damaged."""
        return []

    async def foreign(self) -> Foreign:
        """Return an empty `Foreign`: memory holds only objects that Gesta made."""
        return Foreign()

    async def close(self) -> None:
        """Close the record. A second call does nothing."""
        self._news.close()
        if self._tables is not None:
            self._tables.close()
            self._tables = None

    def _open(self, *, writing: bool = False) -> None:
        if self._news.over:
            raise WriteFailed(ADDRESS, "it was closed") if writing else RecordError(f"{ADDRESS!r} was closed.")

    def _head(self, run: str) -> tuple[int, bytes]:
        rows = self._runs.get(run)
        return (rows[-1].seq, rows[-1].digest) if rows else (0, GENESIS)

    def _page(self, after: int, most: int) -> list[Row]:
        start = bisect_right(self._rows, after, key=lambda row: row.pos)
        return self._rows[start : start + most]

    def _prune(self, runs: set[str]) -> None:
        self._rows = [row for row in self._rows if row.run not in runs]
        self._opened = [row for row in self._opened if row.run not in runs]
        self._blobs = {key: blob for key, blob in self._blobs.items() if key[0] not in runs}
        self._keys = {key: number for key, number in self._keys.items() if key[0] not in runs}
        for run in runs:
            self._runs.pop(run, None)
            self._inbox.pop(run, None)
        self._held -= runs
        self._mirrors = {run: of for run, of in self._mirrors.items() if run not in runs}
        if self._tables is not None:  # the next query makes and fills them again
            self._tables.close()
            self._tables, self._filled = None, 0

    def _allow_prune(self, gone: Prune) -> None:
        self._allow(Batch(gone.lease, gone.lease.head, ()))
        waiting = {letter.id for letter in self._inbox.get(gone.lease.run, ())}
        if waiting != set(gone.letters):
            raise LeaseLost(gone.lease.run, f"letters {sorted(gone.letters)} in its inbox", f"{sorted(waiting)}")

    def _allow(self, batch: Batch) -> None:
        """Check that a batch has its run's current lease and follows the run's last entry. Raises LeaseLost."""
        for each in batch.prunes:
            self._allow_prune(each)
        lease, run = batch.lease, batch.lease.run
        epoch, _ = self._leases.get(run, (0, ""))
        if (lease.owner, lease.epoch) != (self._owner if run in self._held else "", epoch):
            held = f"epoch {epoch}" if run in self._held else "it free"
            raise LeaseLost(run, f"the lease of epoch {lease.epoch}", held)
        head, _ = self._head(run)
        forking = head == 0 and forks(batch)
        if head != batch.head and not forking:
            raise LeaseLost(run, f"head {batch.head}", f"head {head}")
        waiting = {letter.id for letter in self._inbox.get(run, ())}
        gone = set(batch.letters) - waiting
        if gone:
            raise LeaseLost(run, f"letters {sorted(gone)} in its inbox", "them taken in before")

    def _opening(self, row: Row, head: int) -> RunRow | None:
        try:
            opened = msgspec.json.decode(row.content, type=Beginning).opened
        except msgspec.MsgspecError as error:
            raise WriteFailed(ADDRESS, f"entry {row.run}.{row.seq} is not a begin: {error}") from error
        if opened is None or opened.get("session") is None:
            return None
        session, name, record, parent = (text(opened.get(key)) for key in ("session", "name", "record", "parent_run"))
        pos = self._last + row.seq - head
        return RunRow(row.run, session or "", name or "", record or "", parent, row.at, row.seq, row.at, pos)

    def _fill(self, tables: apsw.Connection) -> None:
        add = f"INSERT INTO entries({ROW}, pos) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        with tables:
            tables.executemany(add, map(msgspec.structs.astuple, self._page(self._filled, len(self._rows))))
            self._filled = self._last
            blobs = ((run, *msgspec.structs.astuple(blob)) for (run, _), blob in self._blobs.items())
            tables.executemany(ADD_BLOB, blobs)
            tables.execute("DELETE FROM inbox")
            waiting = (letter for letters in self._inbox.values() for letter in letters)
            tables.executemany(ADD_LETTER, ((one.id, one.run, one.key, one.content, one.at) for one in waiting))


def text(value: Any) -> str | None:
    """Return a value of a JSON object as `json_extract` of SQLite: a text and `None` unchanged, others as JSON text."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
