"""The one writing connection of a store: works are carried out in groups, one transaction a group.

A work is a batch, a letter, a run to take or a lease to give back. Each looks at the database before it writes, so one
that is refused fails alone. Synchronous, and under a lock: it may be called from any thread, and waits for the thread
that is writing. What our own last commit left is remembered, and used while SQLite's data version says that nobody
else has written since.
"""

import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
from msgspec.structs import astuple

from gesta.entry import GENESIS, utc_text
from gesta.errors import GestaError, LeaseLost, RunHeld, WriteFailed
from gesta.log import Clock
from gesta.store import Batch, Effect, Lease, Letter, Prune
from gesta.stores.common import checked, new_id
from gesta.stores.effects import Sql
from gesta.stores.oslock import OwnerLock, bury, left_behind
from gesta.stores.sharing import Take, Work
from gesta.stores.sqlite_guard import LOST, Guard
from gesta.stores.sqlite_open import CLOSING_MS, told
from gesta.stores.tables import ADD_BLOB, ADD_ROW, FORGET_WORDS, PRUNE, WORDS_KNOWN

LOCK = ".lock"
WAITING = "SELECT run, key, content, at, id FROM inbox WHERE run = ? ORDER BY id"
FAULTY = (
    *(apsw.ConstraintError, apsw.TooBigError, apsw.MismatchError, apsw.BindingsError, apsw.SQLError),
    *(TypeError, ValueError, OverflowError),
)
"""What one work is to blame for: the others of its group are carried out without it."""


class Writer:
    """Who writes a record's file, and holds leases in it."""

    def __init__(self, path: Path, connection: apsw.Connection, guard: Guard, *, synced: bool, clock: Clock) -> None:
        self.commits = 0
        """Transactions that changed something."""
        self._path = path
        self._connection = connection
        self._guard = guard
        self.synced = synced
        """Whether commits wait for the disk, where they are not told otherwise."""
        self._full = synced  # what `synchronous` is set to
        self._clock = clock
        self._process = os.getpid()
        self._closed = False
        self._turn = threading.Lock()
        self._owner = ""  # until the first lease: who only reads leaves no trace
        self._sign = OwnerLock(path)
        self._seen = -1  # data version after our last commit
        self._heads: dict[str, tuple[str, int, int]] = {}  # run: owner, epoch and head as our last commit left them
        self._quiet: set[str] = set()  # runs whose inbox was empty at the data version `_quiet_at`, and is so by us
        self._quiet_at = -1
        self._one = connection.cursor()
        self._many = connection.cursor()

    def commit(self, works: Sequence[Work], *, synced: bool = True) -> list[Any]:
        """Carry out works in their order, in one transaction.

        Args:
            synced: False leaves it to a later commit to wait for the disk.

        Returns:
            For each work what it gave, or the GestaError that it alone met: a batch gives the pos of its last row,
            a letter whether its key was new, a take its lease, a lease given back nothing.

        Raises:
            WriteFailed: none of them happened. BrokenRecord: the same, and the file is damaged.

        Cost: 15 us for the transaction and 10 us for a batch of three rows; waiting for the disk comes on top.
        """
        with self._turn:
            return self._commit(works, synced=synced and self.synced)

    def inbox(self, run: str) -> list[Letter] | None:
        """Letters that wait, or None for somebody else to look: a thread is writing, or something is wrong here.

        Cost: 3 us while an inbox that was empty stays so, for only what others wrote is looked at.
        """
        if not self._turn.acquire(blocking=False):
            return None
        try:
            if self._closed or os.getpid() != self._process:
                return None
            ((version,),) = self._one.execute("PRAGMA data_version")  # not the one below: this one looks at the disk
            if version != self._quiet_at:
                self._quiet.clear()
                self._quiet_at = version
            if run in self._quiet:
                return []
            rows: list[Any] = self._one.execute(WAITING, (run,)).fetchall()
            if not rows:
                self._quiet.add(run)
            return [Letter(*row) for row in rows]
        except (apsw.Error, UnicodeEncodeError):
            return None
        finally:
            self._turn.release()

    def close(self) -> None:
        """Free all leases and move the log into the file, so that one file remains unless others have it open.

        What cannot be moved now (a full disk, a reader elsewhere) stays safe in the log. Twice does nothing.
        """
        with self._turn:
            closed, self._closed = self._closed, True
            if closed or os.getpid() != self._process:  # a forked child closes nothing of its parent's
                return
            with suppress(apsw.Error):
                if self._guard.stands():
                    self._connection.set_busy_timeout(CLOSING_MS)
                    if self._owner:
                        self._one.execute("DELETE FROM owners WHERE owner = ?", (self._owner,))
                    self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                else:  # what the lost log holds is older than the file, or was never told to be on record
                    self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._sign.release()
            self._connection.close(force=True)
            self._guard.release()

    def shrink(self) -> int:
        """Write the file anew without what is free in it; give the bytes by which it became smaller.

        Raises:
            WriteFailed: somebody else is writing or reading it just now.
        """
        with self._turn:
            self._begin(synced=self.synced)
            self._one.execute("ROLLBACK")
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                before = self._path.stat().st_size
                self._one.execute("VACUUM")
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.Error as error:
                raise told(error, str(self._path), writing=True) from error
            finally:
                self._heads.clear()
            return before - self._path.stat().st_size

    def _commit(self, works: Sequence[Work], *, synced: bool) -> list[Any]:
        self._begin(synced=synced)
        try:
            outcomes = [self._carry_out(work) for work in works]
            self._one.execute("COMMIT")
        except BaseException as error:
            self._undo()
            if not isinstance(error, Exception):
                raise
            failure = told(error, str(self._path), writing=True)
            failure.__cause__ = error
            if not isinstance(error, FAULTY):
                raise failure from error
            if len(works) == 1:
                return [failure]
            return [outcome for work in works for outcome in self._commit((work,), synced=synced)]
        if not self._guard.reached():
            raise WriteFailed(str(self._path), LOST)
        self._seen = self._connection.data_version()
        self.commits += any(not isinstance(outcome, GestaError) for outcome in outcomes)
        return outcomes

    def _begin(self, *, synced: bool) -> None:
        """Start a transaction as the only writer, and forget what others may have changed."""
        if self._closed:
            raise WriteFailed(str(self._path), "it was closed")
        if os.getpid() != self._process:
            raise WriteFailed(str(self._path), "it was opened before this process was forked; open it again here")
        if not self._guard.stands():  # what we commit would reach neither the file nor any other process
            raise WriteFailed(str(self._path), LOST)
        try:
            if synced is not self._full:
                self._one.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
                self._full = synced
            self._one.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise told(error, str(self._path), writing=True) from error
        if self._connection.data_version() != self._seen:
            self._heads.clear()

    def _undo(self) -> None:
        self._heads.clear()
        with suppress(apsw.Error):
            if self._connection.in_transaction:
                self._one.execute("ROLLBACK")

    def _carry_out(self, work: Work) -> Any:
        try:
            match work:
                case Batch():
                    return self._append(work)
                case Effect():
                    return self._transact(work)
                case Letter():
                    return self._send(work)
                case Take():
                    return self._take(work.run)
                case Lease():
                    return self._release(work)
        except GestaError as refused:  # before it had written anything
            return refused

    def _append(self, batch: Batch) -> int:
        lease, rows, run = batch.lease, batch.rows, batch.lease.run
        if self._heads.get(run) != (lease.owner, lease.epoch, batch.head):
            self._allow(batch)
        for gone in batch.prunes:
            self._allow_prune(gone)
        if batch.letters:
            self._take_in(run, set(batch.letters))
        if batch.blobs:
            self._many.executemany(ADD_BLOB, [(run, blob.name, blob.salt, blob.data) for blob in batch.blobs])
        self._many.executemany(ADD_ROW, [astuple(row)[:-1] for row in rows])
        self._heads[run] = (lease.owner, lease.epoch, rows[-1].seq if rows else batch.head)
        pos = self._connection.last_insert_rowid() if rows else 0
        for gone in batch.prunes:  # after the rows, so that their places lie behind all that were ever given
            self._prune(gone.lease.run)
        return pos

    def _transact(self, effect: Effect) -> int:
        """Do an effect, and append what it says of itself; what it did is undone where it says so."""
        sql = Sql(self._connection)
        self._one.execute("SAVEPOINT effect")
        with sql.guarded(effect.timeout_s):
            batch, kept = effect.work(sql)
        if not kept:
            self._one.execute("ROLLBACK TO effect")
        self._one.execute("RELEASE effect")
        return self._append(checked(batch))

    def _allow_prune(self, gone: Prune) -> None:
        """Refuse to take a run away that is not ours, or to which something was added meanwhile."""
        self._allow(Batch(gone.lease, gone.lease.head, ()))
        waiting = {one for (one,) in self._one.execute("SELECT id FROM inbox WHERE run = ?", (gone.lease.run,))}
        if waiting != set(gone.letters):
            raise LeaseLost(gone.lease.run, f"letters {sorted(gone.letters)} in its inbox", f"{sorted(waiting)}")

    def _prune(self, run: str) -> None:
        self._heads.pop(run, None)
        if self._one.execute(WORDS_KNOWN).fetchall():
            self._one.execute(FORGET_WORDS, (run,))
        for statement in PRUNE:
            self._one.execute(statement, (run,))

    def _allow(self, batch: Batch) -> None:
        """Refuse a batch whose writer is no longer the writer, or does not know where the run is."""
        lease, run = batch.lease, batch.lease.run
        query = "SELECT owner, epoch, (SELECT max(seq) FROM entries WHERE run = ?1) FROM leases WHERE run = ?1"
        owner, epoch, last = self._first(query, run) or (None, 0, None)
        if (owner, epoch) != (lease.owner, lease.epoch):
            raise LeaseLost(run, f"the lease of epoch {lease.epoch}", f"epoch {epoch}" if owner else "it free")
        forking = last is None and batch.rows and batch.rows[0].kind == "begin"
        if (last or 0) != batch.head and not forking:
            raise LeaseLost(run, f"head {batch.head}", f"head {last or 0}")

    def _take_in(self, run: str, letters: set[int]) -> None:
        waiting = {one for (one,) in self._one.execute("SELECT id FROM inbox WHERE run = ?", (run,))}
        if letters - waiting:
            raise LeaseLost(run, f"letters {sorted(letters - waiting)} in its inbox", "them taken in before")
        self._many.executemany("DELETE FROM inbox WHERE id = ?", [(one,) for one in letters])

    def _send(self, letter: Letter) -> bool:
        self._one.execute("INSERT OR IGNORE INTO inbox_keys(run, key) VALUES(?, ?)", (letter.run, letter.key))
        if not self._connection.changes():
            return False
        self._quiet.discard(letter.run)
        values = (letter.run, letter.key, letter.content, letter.at)
        self._one.execute("INSERT INTO inbox(run, key, content, at) VALUES(?, ?, ?, ?)", values)
        return True

    def _take(self, run: str) -> Lease:
        last = self._first("SELECT seq, digest FROM entries WHERE run = ? ORDER BY seq DESC LIMIT 1", run)
        head, digest = last or (0, GENESIS)
        query = """SELECT leases.epoch, leases.since, owners.owner, owners.process, owners.host
            FROM leases LEFT JOIN owners ON owners.owner = leases.owner WHERE run = ?"""
        epoch, since, owner, process, host = self._first(query, run) or (0, None, None, None, None)
        if owner is not None and (owner == self._owner or not self._bury(owner)):
            raise RunHeld(run, f"process {process} on {host}", since, head)
        now = utc_text(self._clock())
        self._live(now)
        self._one.execute(
            """INSERT INTO leases(run, owner, epoch, since) VALUES(?1, ?2, ?3, ?4)
            ON CONFLICT(run) DO UPDATE SET owner = ?2, epoch = ?3, since = ?4""",
            (run, self._owner, epoch + 1, now),
        )
        self._heads[run] = (self._owner, epoch + 1, head)
        return Lease(run, self._owner, epoch + 1, head, digest)

    def _release(self, lease: Lease) -> None:
        self._heads.pop(lease.run, None)
        self._quiet.discard(lease.run)
        values = (lease.run, lease.owner, lease.epoch)
        self._one.execute("UPDATE leases SET owner = NULL WHERE run = ? AND owner = ? AND epoch = ?", values)

    def _live(self, now: str) -> None:
        """Show that this owner lives: its file locked, its row there. The first time, clean up after the dead."""
        try:
            if not self._owner:
                owner = new_id()[:16]
                self._sign = OwnerLock(self._lock_file(owner))
                self._sign.hold()
                self._owner = owner
                known = {str(other) for (other,) in self._one.execute("SELECT owner FROM owners")}
                for other in known.union(left_behind(self._path, LOCK)) - {owner}:
                    self._bury(other)
            else:
                self._sign.hold()
        except OSError as error:
            raise told(error, str(self._path), writing=True) from error
        values = (self._owner, self._process, socket.gethostname(), now)
        self._one.execute("INSERT OR IGNORE INTO owners(owner, process, host, since) VALUES(?, ?, ?, ?)", values)

    def _bury(self, owner: str) -> bool:
        """Free what an owner held if it is dead, and tell whether it is. As sole writer, so nobody races us."""
        dead = bury(self._lock_file(owner))
        if dead:
            self._one.execute("DELETE FROM owners WHERE owner = ?", (owner,))
        return dead

    def _lock_file(self, owner: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{owner}{LOCK}")

    def _first(self, query: str, *values: str) -> tuple[Any, ...] | None:
        rows = self._one.execute(query, values).fetchall()
        return rows[0] if rows else None
