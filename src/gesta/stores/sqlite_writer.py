"""The one writing connection of a store. Operations that come together are carried out in one transaction.

A record is the stored history of all runs (conversations of agents). An operation is a batch of entries, a message, or
a request for a lease (the right to write a run). Any thread may call the writer, and waits for the thread that is
writing. Then the writer waits for the turn, which is the right to write next among all processes. See `sqlite_works`
for the operations and the leases, and `locks` for the turn.

Inside this process, a released lease is free at once. For other processes it is free after the next commit here. If
that commit fails, a thread tries again until a commit succeeds.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from gesta.errors import BrokenRecord, GestaError, RecordBusy, WriteFailed
from gesta.log.journal import Clock
from gesta.store import Batch, Lease, Letter, TransactionalEffect
from gesta.stores.common import letters_of, turn_of
from gesta.stores.locks import busy, left
from gesta.stores.sharing import Work, one_by_one
from gesta.stores.sqlite_guard import Guard
from gesta.stores.sqlite_open import AGAIN_S, disconnect, told
from gesta.stores.sqlite_saving import in_file, save, saved_in_place
from gesta.stores.sqlite_works import Leases, Works

CLOSING_S = 0.1  # seconds that a closing store waits for readers, before it leaves the log beside the file
LAST_S = 5.0  # seconds that closing waits to commit released leases; when the process ends, they are free anyway
READERS_S = 2.0  # seconds that `shrink` waits for readers
RETRY_S = 0.5  # seconds between two tries to commit released leases
WAITING = "SELECT run, key, content, at, id FROM main.inbox WHERE run = ? ORDER BY id"
FAULTY = (
    *(apsw.ConstraintError, apsw.TooBigError, apsw.MismatchError, apsw.BindingsError, apsw.SQLError),
    *(TypeError, ValueError, OverflowError),
)
"""Errors that one operation of a transaction can cause. The other operations are then carried out without it."""


class NotNow(Exception):
    """Raised if another program is writing the file, and the commit may not wait for that program."""


class Terms(Struct, frozen=True):
    """The options with which a store was opened for writing."""

    synced: bool
    """Whether every commit waits for the disk. A commit with a batch whose `synced` is true waits in any case."""
    clock: Clock
    busy_s: float
    """Seconds to wait for other writers."""


class Writer:
    """The writing connection of a record's file, which carries out operations in transactions."""

    def __init__(self, path: Path, connection: apsw.Connection, guard: Guard, terms: Terms) -> None:
        self.commits = 0
        """The number of transactions that changed something."""
        self.synced = terms.synced
        """Whether commits wait for the disk; see `Terms.synced`."""
        self._path = path
        self._connection = connection
        self._guard = guard
        self._terms = terms
        self._full = terms.synced  # whether the pragma `synchronous` is FULL now
        self._process = os.getpid()
        self._closed = False
        self._lost: WriteFailed | None = None  # set once the file or its log was removed
        self._turn = turn_of(self)
        self._queue = guard.hold.turn  # orders the processes that write
        self._until = 0.0  # end of the wait for a program that does not use the turn
        self._leases = Leases(connection, guard.hold.presence, terms.clock)
        self._works = Works(connection, self._leases, terms.clock)
        self._seen = -1  # data version after our last commit
        self._quiet_at = -1
        self._giving = threading.Lock()
        self._ending = threading.Event()
        self._returning: threading.Thread | None = None
        self._one = connection.cursor()
        connection.set_busy_handler(self._patient)

    def commit(self, works: Sequence[Work], *, synced: bool = True) -> list[Any]:
        """Carry out operations in their order, in one transaction, after the writers that already wait.

        Args:
            synced: with `False` the commit does not wait for the disk; a later commit then saves this one too.

        Returns:
            For each operation its result, or a GestaError if that operation alone was refused. The result of a batch is
            the pos (number in the record) of its last entry. That of a letter (a message to a run) is whether its key
            was new. That of a `Take`, a request for a lease, is the lease. That of a release is `None`.

        Raises:
            RecordBusy: others wrote for `busy_s` seconds; nothing was committed. BrokenRecord: the file is damaged.
            WriteFailed: the commit failed. Or the file was removed: the error says where the committed entries were
                saved.

        Cost: 20 us for the transaction and 10 us for a batch of three rows; waiting for the disk comes on top.
        """
        synced = self._full_for(works, synced)
        outcomes = self.at_once(works, synced)
        if outcomes is not None:
            return outcomes
        until = time.monotonic() + self._terms.busy_s
        with self._waited(until):
            self._until = until
            return self._commit(works, synced=synced)

    def at_once(self, works: Sequence[Work], synced: bool) -> list[Any] | None:  # noqa: FBT001
        """Carry out operations as `commit` does. If that would have to wait, return `None` and do nothing.

        Args:
            synced: whether the commit waits for the disk.
        """
        if not self._turn.acquire(blocking=False):
            return None
        try:
            if self._closed or os.getpid() != self._process:
                self._usable()
            if not self._queue.taken_at_once():
                return None
            try:
                self._until = 0.0
                return self._commit(works, synced=synced)
            except NotNow:
                return None
            finally:
                self._queue.release()
        finally:
            self._turn.release()

    def wait(self) -> None:
        """Wait until other writers have finished. Then `at_once`, which does not wait, can be tried again.

        Raises RecordBusy, WriteFailed.
        """
        until = time.monotonic() + self._terms.busy_s
        with self._waited(until):
            self._until = until
            self._begin(synced=self._full)
            self._one.execute("ROLLBACK")

    def leave(self, lease: Lease) -> bool:
        """Mark a lease as no longer used by this process. Return whether a commit has to free it for others."""
        return not self._closed and self._leases.leave(lease)

    def keep(self) -> Callable[[], None]:
        """Keep the lock which shows that this process runs, until the returned function is called; see `Store.keep`."""
        return self._guard.hold.keep()

    def descriptor(self) -> int | None:
        """Return the file descriptor whose lock shows that this process runs; `None` once the writer is closed."""
        return None if self._closed or os.getpid() != self._process else self._leases.presence.descriptor

    def give_back(self, lease: Lease) -> None:
        """Start a thread that commits the release of a lease, and tries again until it succeeds.

        If such a thread runs already, do nothing.
        """
        with self._giving:
            if self._leases.presence.back.get(lease.run) == lease.epoch and self._returning is None:
                self._returning = threading.Thread(target=self._give_back, name="gesta leases", daemon=True)
                self._returning.start()

    def inbox(self, run: str) -> list[Letter] | None:
        """Return the letters (messages) in a run's inbox; `None` if the caller must use `Reader.inbox` instead.

        `None` is returned while a thread is writing, after an error, after `close`, and in a forked process.
        Cost: 3 us while an empty inbox stays empty and no other connection writes.
        """
        if not self._turn.acquire(blocking=False):
            return None
        try:
            if self._closed or os.getpid() != self._process:
                return None
            ((version,),) = self._one.execute("PRAGMA data_version")  # checks the disk, unlike `data_version()`
            if version != self._quiet_at:
                self._works.quiet.clear()
                self._quiet_at = version
            if run in self._works.quiet:
                return []
            rows: list[Any] = self._one.execute(WAITING, (run,)).fetchall()
            if not rows:
                self._works.quiet.add(run)
            return letters_of(str(self._path), rows)
        except (apsw.Error, UnicodeError, BrokenRecord):  # the reader raises the error
            return None
        finally:
            self._turn.release()

    def close(self) -> None:
        """Release all leases and move the log into the file. One file remains, unless others have it open.

        Entries that cannot be moved now (a full disk, a reader elsewhere) stay in the log. A second call does nothing.

        Raises:
            WriteFailed: the file was removed; the error says where the committed entries are. The leases are free.
        """
        self._ending.set()
        with self._turn:
            closed, self._closed = self._closed, True
            if closed or os.getpid() != self._process:  # a forked child must not close the parent's connection
                return
            self._leases.leave_all()
            patience_s = min(self._terms.busy_s, LAST_S) if self._leases.presence.back else CLOSING_S
            ours = self._queue.taken_by(time.monotonic() + patience_s)
            failure: WriteFailed | None = None
            try:
                with suppress(apsw.Error):
                    failure = self._put_away(patience_s)
                self._guard.end()
                disconnect(self._connection)
            finally:
                if ours:
                    self._queue.release()
            self._guard.release()
            if failure is not None:
                raise failure

    def shrink(self) -> int:
        """Rewrite the file without its free space, and return by how many bytes the file became smaller.

        Raises:
            WriteFailed: another process is writing or reading the file, so pruned entries may still be in it.
        """
        until = time.monotonic() + self._terms.busy_s
        with self._waited(until):
            self._until = until
            self._begin(synced=self.synced)
            self._one.execute("ROLLBACK")
            self._until = time.monotonic() + min(self._terms.busy_s, READERS_S)
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                before = self._path.stat().st_size
                self._one.execute("VACUUM")
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.Error as error:
                raise told(error, str(self._path), writing=True) from error
            finally:
                self._works.forget()
            return before - self._path.stat().st_size

    @contextmanager
    def _waited(self, until: float) -> Iterator[None]:
        """Wait until no other thread or process writes, and keep them from writing inside the block.

        Raises RecordBusy if others still write at `until`, a time of `time.monotonic`; raises WriteFailed.
        """
        if not self._turn.acquire(timeout=left(until)):
            raise self._busy("another thread of this process has")
        try:
            self._usable()
            with self._queue.waited(str(self._path), self._terms.busy_s, until):
                yield
        finally:
            self._turn.release()

    def _busy(self, who: str) -> RecordBusy:
        return RecordBusy(str(self._path), busy(who, self._terms.busy_s))

    def _patient(self, _count: int) -> bool:
        """Return whether SQLite should try again to get a lock that another program holds. SQLite calls this."""
        if time.monotonic() >= self._until:
            return False
        time.sleep(AGAIN_S)
        return True

    def _usable(self) -> None:
        if self._closed:
            raise WriteFailed(str(self._path), "it was closed")
        if os.getpid() != self._process:
            raise WriteFailed(str(self._path), "it was opened before this process was forked; open it again here")

    def _full_for(self, works: Sequence[Work], synced: bool) -> bool:  # noqa: FBT001
        if synced and self.synced:
            return True
        for work in works:  # noqa: SIM110 - at each commit: a generator takes longer
            if isinstance(work, Batch) and work.synced:
                return True
        return False

    def _commit(self, works: Sequence[Work], *, synced: bool) -> list[Any]:
        self._begin(synced=synced)
        try:
            given = self._works.begin() if self._leases.presence.back else {}
            outcomes = list(map(self._works.carry_out, works))
            self._one.execute("COMMIT")
        except BaseException as error:
            self._undo()
            if not isinstance(error, apsw.Error) and any(isinstance(work, TransactionalEffect) for work in works):
                raise
            if not isinstance(error, Exception):
                raise
            failure = told(error, str(self._path), writing=True)
            failure.__cause__ = error
            if not isinstance(error, FAULTY):
                raise failure from error
            if len(works) == 1:
                return [failure]
            self._until = time.monotonic() + self._terms.busy_s  # no undo once one operation is committed: wait
            return one_by_one(works, partial(self._commit, synced=synced))
        if not self._guard.reached() and not saved_in_place(self._connection, self._guard):
            raise self._gone()
        self._leases.committed(given)
        self._seen = self._connection.data_version()
        for outcome in outcomes:
            if not isinstance(outcome, GestaError):
                self.commits += 1
                break
        return outcomes

    def _begin(self, *, synced: bool) -> None:
        """Begin a transaction as the only writer. Raises NotNow, RecordBusy, WriteFailed.

        If another connection has written, the number of each run's last entry is no longer remembered, but read again.
        """
        if self._lost is not None or not self._guard.stands():
            raise self._gone()  # a commit would reach neither the file nor any other process
        try:
            if synced is not self._full:
                self._one.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
                self._full = synced
            self._one.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            if not self._until:
                raise NotNow from error
            raise self._busy("another program has") from error
        except apsw.Error as error:
            raise told(error, str(self._path), writing=True) from error
        if self._connection.data_version() != self._seen:
            self._works.forget()

    def _gone(self) -> WriteFailed:
        """Save the committed entries after the file was removed, and return the error that says where they are."""
        self._works.forget()
        if self._lost is not None:
            return self._lost
        failure, saved = save(self._connection, self._guard, self._path)
        self._lost = failure if saved else None
        return failure

    def _put_away(self, patience_s: float) -> WriteFailed | None:
        """Commit the release of the leases, and move the log into the file.

        If the file was removed or replaced, return an error, unless an earlier error reported it; else return `None`.
        Raises apsw.Error.

        Args:
            patience_s: seconds to wait for other writers.
        """
        if self._lost is not None or not self._guard.stands():
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # keep the entries of another process
            told_of = self._lost is not None or not self._path.parent.exists()
            return None if told_of or in_file(self._connection, self._guard, self._path) else self._gone()
        if not self._guard.alone():  # SQLite may take us for the only process, and delete the log of the others
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._until = time.monotonic() + patience_s
        last = self._guard.hold.stores == 1 and not self._guard.hold.kept
        with suppress(apsw.Error, GestaError):
            if last or self._leases.presence.back:
                self._begin(synced=False)
                given = self._works.begin()
                if last:
                    self._leases.hide()
                self._one.execute("COMMIT")
                self._leases.committed(given)
        self._undo()
        self._until = time.monotonic() + CLOSING_S
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return None

    def _give_back(self) -> None:
        """Try to commit the release of leases until that succeeds, or the store is closed. Runs in a thread."""
        while not self._ending.wait(RETRY_S):
            with suppress(GestaError):
                self.at_once((), synced=False)
            with self._giving:
                if not self._leases.presence.back:
                    self._returning = None
                    return

    def _undo(self) -> None:
        self._works.forget()
        with suppress(apsw.Error):
            if self._connection.in_transaction:
                self._one.execute("ROLLBACK")
