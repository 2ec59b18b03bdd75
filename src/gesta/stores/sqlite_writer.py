"""The one writing connection of a store: works are carried out in groups, one transaction a group.

A work is a batch, a letter, a run to take or a lease to give back. Each looks at the database before it writes, so one
that is refused fails alone. Synchronous, and under a lock: it may be called from any thread, and waits for the thread
that is writing, and for its turn among processes. What our own last commit left is remembered, and used while SQLite's
data version says that nobody else has written since.

A lease is given back at once, for this process. That others can see it rides with the next commit, whichever that is;
where the next one failed, a thread tries again until it is done.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct
from msgspec.structs import astuple

from gesta.entry import GENESIS, utc_text
from gesta.errors import GestaError, LeaseLost, RecordBusy, RunHeld, RunMirrored, WriteFailed
from gesta.log import Clock
from gesta.store import Batch, Effect, Lease, Letter, Prune
from gesta.stores.common import checked
from gesta.stores.effects import Sql
from gesta.stores.sharing import Adopt, Declare, Mirror, Take, Work
from gesta.stores.sqlite_guard import Guard
from gesta.stores.sqlite_open import AGAIN_S, disconnect, told
from gesta.stores.sqlite_saving import save, saved_in_place
from gesta.stores.sqlite_turn import busy
from gesta.stores.tables import ADD_BLOB, ADD_ROW, FORGET_WORDS, PRUNE, WORDS_KNOWN

CLOSING_S = 0.1  # how long a closing store waits for readers, before it leaves the log beside the file
RETRY_S = 0.5  # between two tries to give leases back whose commit failed
WAITING = "SELECT run, key, content, at, id FROM inbox WHERE run = ? ORDER BY id"
GIVE_BACK = "UPDATE leases SET owner = NULL WHERE run = ? AND owner = ? AND epoch = ?"
FAULTY = (
    *(apsw.ConstraintError, apsw.TooBigError, apsw.MismatchError, apsw.BindingsError, apsw.SQLError),
    *(TypeError, ValueError, OverflowError),
)
"""What one work is to blame for: the others of its group are carried out without it."""


class NotNow(Exception):
    """Another program is writing, and this commit is not to wait."""


class Terms(Struct, frozen=True):
    """How a store writes."""

    synced: bool
    """Whether commits wait for the disk, where they are not told otherwise."""
    clock: Clock
    busy_s: float
    """How long to wait for others who write."""


class Writer:
    """Who writes a record's file, and holds leases in it."""

    def __init__(self, path: Path, connection: apsw.Connection, guard: Guard, terms: Terms) -> None:
        self.commits = 0
        """Transactions that changed something."""
        self.synced = terms.synced
        """Whether commits wait for the disk, where they are not told otherwise."""
        self.presence = guard.hold.presence
        """This process, as others see it in the file."""
        self._path = path
        self._connection = connection
        self._guard = guard
        self._terms = terms
        self._full = terms.synced  # what `synchronous` is set to
        self._process = os.getpid()
        self._closed = False
        self._lost: WriteFailed | None = None  # the file or its log was taken away
        self._turn = threading.Lock()
        self._until = 0.0  # when to wait no longer for a program that knows nothing of turns
        self._clean = False  # whether we have looked for what dead processes left
        self._mine: dict[str, int] = {}  # epochs of the leases that this store took and did not give back, by run
        self._took: dict[str, int] = {}  # the same, in this transaction
        self._seen = -1  # data version after our last commit
        self._heads: dict[str, tuple[str, int, int]] = {}  # run: owner, epoch and head as our last commit left them
        self._quiet: set[str] = set()  # runs whose inbox was empty at the data version `_quiet_at`, and is so by us
        self._quiet_at = -1
        self._ending = threading.Event()
        self._returning: threading.Thread | None = None
        self._one = connection.cursor()
        self._many = connection.cursor()
        connection.set_busy_handler(self._patient)

    def commit(self, works: Sequence[Work], *, synced: bool = True) -> list[Any]:
        """Carry out works in their order, in one transaction, after those who wait already.

        Args:
            synced: False leaves it to a later commit to wait for the disk.

        Returns:
            For each work what it gave, or the GestaError that it alone met: a batch gives the pos of its last row,
            a letter whether its key was new, a take its lease, a lease given back nothing.

        Raises:
            RecordBusy: others wrote for as long as is waited; none of the works happened.
            WriteFailed: the same, for another reason. BrokenRecord: the same, and the file is damaged.

        Cost: 20 us for the transaction and 10 us for a batch of three rows; waiting for the disk comes on top.
        """
        until = time.monotonic() + self._terms.busy_s
        with self._waited(until):
            self._until = until
            return self._carried(works, synced=synced)

    def at_once(self, works: Sequence[Work], synced: bool = True) -> list[Any] | None:  # noqa: FBT001, FBT002
        """Carry out works as `commit` does; `None`, and nothing happened, where that would have to wait for others."""
        if not self._turn.acquire(blocking=False):
            return None
        try:
            self._usable()
            if not self._guard.hold.turn.taken_at_once():
                return None
            try:
                self._until = 0.0
                return self._carried(works, synced=synced)
            except NotNow:
                return None
            finally:
                self._guard.hold.turn.release()
        finally:
            self._turn.release()

    def wait(self) -> None:
        """Wait until `at_once` would have had its turn. Raises RecordBusy, WriteFailed."""
        until = time.monotonic() + self._terms.busy_s
        with self._waited(until):
            self._until = until
            self._begin(synced=self._full)
            self._one.execute("ROLLBACK")

    def leave(self, lease: Lease) -> bool:
        """Have nobody in this process use a lease any more; return whether a commit is to say so."""
        if self._closed or lease.owner != self.presence.process:
            return False
        if self._mine.get(lease.run) == lease.epoch:
            del self._mine[lease.run]
        self.presence.leave(lease.run, lease.epoch)
        return lease.run in self.presence.back

    def keep(self) -> Callable[[], None]:
        """Count a thread of this process; see `Store.keep`."""
        return self._guard.hold.keep()

    def descriptor(self) -> int | None:
        """Return the descriptor of our presence; see `Store.descriptor`."""
        return None if self._closed or os.getpid() != self._process else self.presence.descriptor

    def give_back(self) -> None:
        """See to it that leases whose return is not yet committed are given back, in a thread that tries again."""
        with self._turn:
            if self.presence.back and not self._closed and self._returning is None:
                self._returning = threading.Thread(target=self._give_back, name="gesta leases", daemon=True)
                self._returning.start()

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
        self._ending.set()
        with self._turn:
            closed, self._closed = self._closed, True
            if closed or os.getpid() != self._process:  # a forked child closes nothing of its parent's
                return
            for run, epoch in self._mine.items():
                self.presence.leave(run, epoch)
            patience_s = self._terms.busy_s if self.presence.back else CLOSING_S
            turn = self._guard.hold.turn
            ours = turn.taken_by(time.monotonic() + patience_s)
            try:
                with suppress(apsw.Error, GestaError):
                    self._put_away(patience_s)
                disconnect(self._connection)
            finally:
                if ours:
                    turn.release()
            self._guard.release()

    def shrink(self) -> int:
        """Write the file anew without what is free in it; return the bytes by which it became smaller.

        Raises:
            WriteFailed: somebody else is writing or reading it just now.
        """
        until = time.monotonic() + self._terms.busy_s
        with self._waited(until):
            self._until = until
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

    @contextmanager
    def _waited(self, until: float) -> Iterator[None]:
        """Be the one thread of this store that writes, and the one process. Raises RecordBusy, WriteFailed."""
        if not self._turn.acquire(timeout=max(0.0, until - time.monotonic())):
            raise self._busy("another thread of this process has")
        try:
            self._usable()
            with self._guard.hold.turn.waited(str(self._path), self._terms.busy_s, until):
                yield
        finally:
            self._turn.release()

    def _busy(self, who: str) -> RecordBusy:
        return RecordBusy(str(self._path), busy(who, self._terms.busy_s))

    def _patient(self, _count: int) -> bool:
        """Say to SQLite whether to try again to get a lock that another program has."""
        if time.monotonic() >= self._until:
            return False
        time.sleep(AGAIN_S)
        return True

    def _usable(self) -> None:
        if self._closed:
            raise WriteFailed(str(self._path), "it was closed")
        if os.getpid() != self._process:
            raise WriteFailed(str(self._path), "it was opened before this process was forked; open it again here")

    def _carried(self, works: Sequence[Work], *, synced: bool) -> list[Any]:
        wanted = any(isinstance(work, Batch) and work.synced for work in works)
        return self._commit(works, synced=(synced and self.synced) or wanted)

    def _commit(self, works: Sequence[Work], *, synced: bool) -> list[Any]:
        self._begin(synced=synced)
        self._took = {}
        given = dict(self.presence.back)
        try:
            for run, epoch in given.items():
                self._return(run, epoch)
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
            self._until = time.monotonic() + self._terms.busy_s  # what is done cannot be taken back: wait for the rest
            return [outcome for work in works for outcome in self._commit((work,), synced=synced)]
        if not self._guard.reached() and not saved_in_place(self._connection, self._guard):
            raise self._gone()
        self.presence.returned(given)
        for run, epoch in self._took.items():
            self.presence.take(run, epoch)
        self._mine |= self._took
        self._seen = self._connection.data_version()
        self.commits += any(not isinstance(outcome, GestaError) for outcome in outcomes)
        return outcomes

    def _begin(self, *, synced: bool) -> None:
        """Start a transaction as the only writer, and forget what others may have changed."""
        if self._lost is not None or not self._guard.stands():
            raise self._gone()  # what we commit would reach neither the file nor any other process
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
            self._heads.clear()

    def _gone(self) -> WriteFailed:
        """Save what was committed, once, and say where it is."""
        self._heads.clear()
        if self._lost is None:
            self._lost = save(self._connection, self._guard, self._path)
        return self._lost

    def _put_away(self, patience_s: float) -> None:
        """Commit what is to be committed at the end, and move the log into the file. Raises apsw.Error, GestaError."""
        if self._lost is not None or not self._guard.stands():
            # what the lost log holds was saved, or is older than the file, or was never told to be on record
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            return
        self._until = time.monotonic() + patience_s
        last = self._guard.hold.stores == 1 and not self._guard.hold.kept
        with suppress(apsw.Error, GestaError):
            if self.presence.back or (last and self._clean):
                self._begin(synced=False)
                given = dict(self.presence.back)
                for run, epoch in given.items():
                    self._return(run, epoch)
                if last:
                    self._one.execute(
                        "DELETE FROM owners WHERE owner = ? AND gone_by IS NULL", (self.presence.process,)
                    )
                self._one.execute("COMMIT")
                self.presence.returned(given)
        self._undo()
        self._until = time.monotonic() + CLOSING_S
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _give_back(self) -> None:
        """Try to give leases back until it is done, or the store is closed. Runs in a thread."""
        while not self._ending.wait(RETRY_S):
            with suppress(GestaError):
                self.at_once((), synced=False)
            with self._turn:
                if not self.presence.back or self._closed:
                    self._returning = None
                    return

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
                    return self._take(work)
                case Lease():
                    return None  # every commit says which leases were given back
                case Mirror():
                    return self._mirror(work)
                case Declare():
                    return self._declare(work)
                case Adopt():
                    self._one.execute("UPDATE record SET mark = NULL, adopted_by = ?", (work.by,))
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

    def _allow(self, batch: Batch, *, anywhere: bool = False) -> None:
        """Refuse a batch whose writer is no longer the writer, or, unless `anywhere`, not where the run is."""
        lease, run = batch.lease, batch.lease.run
        query = "SELECT owner, epoch, (SELECT max(seq) FROM entries WHERE run = ?1) FROM leases WHERE run = ?1"
        owner, epoch, last = self._first(query, run) or (None, 0, None)
        if (owner, epoch) != (lease.owner, lease.epoch):
            raise LeaseLost(run, f"the lease of epoch {lease.epoch}", f"epoch {epoch}" if owner else "it free")
        forking = last is None and batch.rows and batch.rows[0].kind == "begin"
        if (last or 0) != batch.head and not forking and not anywhere:
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
        values = (letter.run, letter.key, letter.content, utc_text(self._terms.clock()))
        self._one.execute("INSERT INTO inbox(run, key, content, at) VALUES(?, ?, ?, ?)", values)
        return True

    def _take(self, wish: Take) -> Lease:
        run, process = wish.run, self.presence.process
        last = self._first("SELECT seq, digest FROM entries WHERE run = ? ORDER BY seq DESC LIMIT 1", run)
        head, digest = last or (0, GENESIS)
        query = "SELECT epoch, since, owner, mirror_of FROM leases WHERE run = ?"
        epoch, since, owner, mirror_of = self._first(query, run) or (0, "", None, None)
        if mirror_of is not None and not wish.mirror:
            raise RunMirrored(run, mirror_of)
        if owner == process:
            if run in self.presence.using or run in self._took:
                raise RunHeld(run, self._told(owner), since, head)
        elif owner is not None and (gone := self._ended(owner)) is not True:
            unknown = f", which cannot be looked up from here (if it has ended: gesta gone {owner}),"
            raise RunHeld(run, self._told(owner) + (unknown if gone is None else ""), since, head)
        now = utc_text(self._terms.clock())
        self._show(now)
        self._one.execute(
            """INSERT INTO leases(run, owner, epoch, since) VALUES(?1, ?2, ?3, ?4)
            ON CONFLICT(run) DO UPDATE SET owner = ?2, epoch = ?3, since = ?4""",
            (run, process, epoch + 1, now),
        )
        self._took[run] = epoch + 1
        self._heads[run] = (process, epoch + 1, head)
        return Lease(run, process, epoch + 1, head, digest, lost=owner is not None)

    def _return(self, run: str, epoch: int) -> None:
        self._heads.pop(run, None)
        self._quiet.discard(run)
        self._one.execute(GIVE_BACK, (run, self.presence.process, epoch))

    def _mirror(self, wish: Mirror) -> None:
        self._allow(Batch(wish.lease, 0, ()), anywhere=True)
        self._one.execute("UPDATE leases SET mirror_of = ? WHERE run = ?", (wish.of, wish.lease.run))

    def _declare(self, said: Declare) -> None:
        self._one.execute(
            """INSERT INTO owners(owner, process, host, since, gone_by) VALUES(?1, 0, '', ?2, ?3)
            ON CONFLICT(owner) DO UPDATE SET gone_by = coalesce(gone_by, ?3)""",
            (said.process, utc_text(self._terms.clock()), said.by),
        )

    def _ended(self, process: str) -> bool | None:
        """Return whether a process has ended, or a person said so; `None` where that is not known."""
        if self._first("SELECT 1 FROM owners WHERE owner = ? AND gone_by IS NOT NULL", process):
            return True
        return self.presence.gone(process)

    def _told(self, process: str) -> str:
        """Name a process for a person."""
        number, host = self._first("SELECT process, host FROM owners WHERE owner = ?", process) or (0, "")
        return f"process {number} on {host}" if number else f"process {process!r}"

    def _show(self, now: str) -> None:
        """Write down which process this is, for people. The first time, clean up after the dead."""
        if not self._clean:
            known = self._one.execute("SELECT owner FROM owners WHERE gone_by IS NULL").fetchall()
            dead = [(owner,) for (owner,) in known if self.presence.gone(owner)]
            self._many.executemany("DELETE FROM owners WHERE owner = ?", dead)
            self._clean = True
        values = (self.presence.process, self._process, socket.gethostname(), now)
        self._one.execute("INSERT OR IGNORE INTO owners(owner, process, host, since) VALUES(?, ?, ?, ?)", values)

    def _first(self, query: str, *values: str) -> tuple[Any, ...] | None:
        rows = self._one.execute(query, values).fetchall()
        return rows[0] if rows else None
