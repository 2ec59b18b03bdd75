"""The one writing connection of a store: works are carried out in groups, one transaction a group.

Each transaction first takes the record's one lock, which is held until what it wrote can be seen. So `pos` is given
and seen in commit order, without gaps: who has read up to a pos never meets an earlier one later. What a group needs
to know is asked in one go, and what it writes goes out with the commit.

The lease of a run is held by an owner, and an owner lives while its session holds the lock of its name: that ends
with the connection. Whatever happens to locks, the epoch of a run is checked in the transaction that appends, so a
writer that was taken for dead is refused. A lost connection is opened anew; whether a commit in which it was lost has
happened, is asked of the server.
"""

import os
import socket
import time
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

import psycopg
from msgspec.structs import astuple

from gesta.entry import GENESIS, Row, utc_text
from gesta.errors import GestaError, LeaseLost, RunHeld, WriteFailed
from gesta.log import Clock
from gesta.store import Batch, Effect, Info, Lease, Letter, Prune
from gesta.stores.common import checked, new_id
from gesta.stores.postgres_effects import PostgresSql
from gesta.stores.postgres_open import STALLED_S, Connection, Place, connect, told
from gesta.stores.postgres_tables import ADD_BLOBS, ADD_ROWS, PRUNE
from gesta.stores.sharing import Take, Work

FAULTY = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError, UnicodeError, ValueError, TypeError)
"""What one work is to blame for: the others of its group are carried out without it."""

ASKING_S = 0.05  # between questions for the fate of a commit

SIZE = "SELECT pg_total_relation_size('entries') + pg_total_relation_size('blobs')"
LEASES = """SELECT run, owner, epoch, (SELECT max(seq) FROM entries WHERE entries.run = leases.run)
    FROM leases WHERE run = ANY($1)"""


class Writer:
    """Who writes a record in PostgreSQL, and holds leases in it."""

    def __init__(self, place: Place, info: Info, connection: Connection, *, synced: bool, clock: Clock) -> None:
        self.commits = 0
        """Transactions that changed something."""
        self.synced = synced
        """Whether commits wait for the disk, where they are not told otherwise."""
        self._place = place
        self._lock = number(info.id)
        self._channel = channel(info)
        self._connection = connection
        self._clock = clock
        self._process = os.getpid()
        self._closed = False
        self._turn = Lock()
        self._owner = ""  # until the first lease: who only reads leaves no trace
        self._shown: Connection | None = None  # the connection that holds the lock of our name
        self._pos = 0  # of the last row, in this transaction
        self._rows: list[Row] = []  # that go out together
        self._known: dict[str, tuple[str | None, int, int]] = {}  # run: owner, epoch and head, in this transaction
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=Forgetting(self))

    def commit(self, works: Sequence[Work], *, synced: bool = True) -> list[Any]:
        """Carry out works in their order, in one transaction; see the writer of SQLite.

        Raises:
            WriteFailed: none of them happened, or the server is gone and cannot be asked. BrokenRecord: the tables
                are not those of a record.

        Cost: two exchanges with the server, and one more for each letter, lease, or batch that takes letters in.
        """
        with self._turn:
            return self._commit(works, synced=synced and self.synced)

    def shrink(self) -> int:
        """Have the server use the space of what was pruned again, and give back what it can; see `Store.shrink`."""
        with self._turn:
            self._reach()
            try:
                ((before,),) = self._all(SIZE)
                for table in ("entries", "blobs", "inbox", "inbox_keys"):
                    self._connection.execute(f"VACUUM {table}")
                ((after,),) = self._all(SIZE)
            except psycopg.Error as error:
                raise told(error, self._place.address, writing=True) from error
            return int(before - after)

    def close(self) -> None:
        """Free all leases and close the connection. Twice does nothing."""
        with self._turn:
            closed, self._closed = self._closed, True
            if closed or os.getpid() != self._process:  # a forked child closes nothing of its parent's
                return
            with suppress(psycopg.Error):
                if self._owner and not self._connection.closed:
                    self._connection.execute("DELETE FROM owners WHERE owner = $1", (self._owner,))
            self._connection.close()

    def forget(self) -> None:
        """Give up a forked child's copy of the connection, so that it does not keep a dead parent alive."""
        with suppress(OSError, psycopg.Error), open(os.devnull, "rb") as nothing:  # noqa: PTH123 - before all else
            os.dup2(nothing.fileno(), self._connection.fileno())

    def _commit(self, works: Sequence[Work], *, synced: bool) -> list[Any]:
        transaction = ""
        try:
            runs = [work.lease.run for work in works if isinstance(work, Batch)]
            runs += [work.run for work in works if isinstance(work, Effect)]
            runs += [gone.lease.run for work in works if isinstance(work, Batch) for gone in work.prunes]
            transaction = self._start(runs, synced=synced)
            works = [self._transact(work) if isinstance(work, Effect) else work for work in works]
            with self._connection.pipeline():
                outcomes = [self._carry_out(work) for work in works]
                self._flush()
                self._connection.execute("COMMIT")
        except BaseException as error:
            lost = self._undo()
            if isinstance(error, GestaError) or not isinstance(error, Exception):
                raise
            failure = told(error, self._place.address, writing=True)
            failure.__cause__ = error
            if isinstance(error, FAULTY):
                if len(works) == 1:
                    return [failure]
                return [outcome for work in works for outcome in self._commit((work,), synced=synced)]
            if not (lost and transaction and self._happened(transaction)):
                raise failure from error
        self.commits += any(not isinstance(outcome, GestaError) for outcome in outcomes)
        return outcomes

    def _reach(self) -> None:
        """See to it that there is a connection. Raises psycopg.Error and WriteFailed."""
        if self._closed:
            raise WriteFailed(self._place.address, "it was closed")
        if os.getpid() != self._process:
            raise WriteFailed(self._place.address, "it was opened before this process was forked; open it again here")
        if self._connection.closed:
            self._connection = connect(self._place, readonly=False)
            if self._owner and self._tried("pg_try_advisory_lock", self._owner):
                self._shown = self._connection

    def _start(self, runs: Iterable[str], *, synced: bool) -> str:
        """Begin, on a new connection if the one that we had was lost while nobody used it."""
        self._reach()
        try:
            return self._begin(runs, synced=synced)
        except psycopg.Error:
            if not self._undo():
                raise
        self._reach()
        return self._begin(runs, synced=synced)

    def _begin(self, runs: Iterable[str], *, synced: bool) -> str:
        """Start a transaction as the only writer, learn where its runs are, and give the transaction's own id."""
        connection = self._connection
        with connection.pipeline():
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            connection.execute("SELECT pg_advisory_xact_lock($1)", (self._lock,))
            if not synced:
                connection.execute("SET LOCAL synchronous_commit = off")
            leases = connection.execute(LEASES, (sorted(set(runs)),))
            last = connection.execute("SELECT coalesce(max(pos), 0), pg_current_xact_id()::text FROM entries")
            self._rows = []
            self._known = {run: (owner, epoch, head or 0) for run, owner, epoch, head in leases.fetchall()}
            ((self._pos, transaction),) = last.fetchall()
        return str(transaction)

    def _undo(self) -> bool:
        """Leave a failed transaction, and tell whether the connection was lost."""
        with suppress(psycopg.Error):
            if not self._connection.closed:
                self._connection.rollback()
        lost = self._connection.closed or self._connection.broken
        if lost:
            self._connection.close()
        return lost

    def _happened(self, transaction: str) -> bool:
        """Ask the server what became of a commit in which the connection was lost.

        Raises:
            WriteFailed: it cannot be asked.
        """
        until = time.monotonic() + STALLED_S
        words, cause = "the connection was lost in a commit, and the server still has it open", None
        while time.monotonic() < until:
            try:
                self._reach()
                found = self._connection.execute("SELECT pg_xact_status($1::xid8)", (transaction,)).fetchall()
            except psycopg.Error as error:
                self._undo()
                words, cause = "the connection was lost in a commit, and the server cannot be asked", error
            else:
                if found != [("in progress",)]:
                    return found == [("committed",)]
            time.sleep(ASKING_S)
        raise WriteFailed(self._place.address, f"{words} whether it happened; read the run to see") from cause

    def _carry_out(self, work: Work) -> Any:
        try:
            if isinstance(work, Batch):
                return self._append(work)
            self._flush()
            match work:
                case Letter():
                    return self._send(work)
                case Take():
                    return self._take(work.run)
                case Lease():
                    return self._release(work)
        except GestaError as refused:  # before it had written anything
            return refused

    def _transact(self, effect: Effect) -> Batch:
        """Do an effect, and give what it says of itself; what it did is undone where it says so."""
        self._connection.execute("SAVEPOINT effect")
        batch, kept = effect.work(PostgresSql(self._connection, effect.timeout_s))
        if not kept:
            self._connection.execute("ROLLBACK TO effect")
        return checked(batch)

    def _append(self, batch: Batch) -> int:
        lease, rows, run = batch.lease, batch.rows, batch.lease.run
        self._allow(batch)
        for gone in batch.prunes:
            self._allow_prune(gone)
        if batch.letters:
            self._take_in(run, set(batch.letters))
        if batch.blobs:
            columns = zip(*map(astuple, batch.blobs), strict=True)
            self._connection.execute(ADD_BLOBS, (run, *map(list, columns)))
        if not rows:
            return 0
        self._rows += rows
        self._pos += len(rows)
        self._known[run] = (lease.owner, lease.epoch, rows[-1].seq)
        for gone in batch.prunes:
            self._prune(gone.lease.run)
        return self._pos

    def _flush(self) -> None:
        """Send the rows of the batches so far."""
        if self._rows:
            places = list(range(self._pos - len(self._rows) + 1, self._pos + 1))
            columns = zip(*(astuple(row)[:-1] for row in self._rows), strict=True)
            self._connection.execute(ADD_ROWS, (places, *map(list, columns)))
            self._connection.execute("SELECT pg_notify($1, '')", (self._channel,))  # sent with the commit
            self._rows = []

    def _allow_prune(self, gone: Prune) -> None:
        """Refuse to take a run away that is not ours, or to which something was added meanwhile."""
        self._allow(Batch(gone.lease, gone.lease.head, ()))
        waiting = {one for (one,) in self._all("SELECT id FROM inbox WHERE run = $1", gone.lease.run)}
        if waiting != set(gone.letters):
            raise LeaseLost(gone.lease.run, f"letters {sorted(gone.letters)} in its inbox", f"{sorted(waiting)}")

    def _prune(self, run: str) -> None:
        self._flush()
        self._known.pop(run, None)
        for statement in PRUNE:
            self._connection.execute(statement, (run,))

    def _allow(self, batch: Batch) -> None:
        """Refuse a batch whose writer is no longer the writer, or does not know where the run is."""
        lease, run = batch.lease, batch.lease.run
        owner, epoch, last = self._known.get(run, (None, 0, 0))
        if (owner, epoch) != (lease.owner, lease.epoch):
            raise LeaseLost(run, f"the lease of epoch {lease.epoch}", f"epoch {epoch}" if owner else "it free")
        forking = not last and batch.rows and batch.rows[0].kind == "begin"
        if last != batch.head and not forking:
            raise LeaseLost(run, f"head {batch.head}", f"head {last}")

    def _take_in(self, run: str, letters: set[int]) -> None:
        waiting = {one for (one,) in self._all("SELECT id FROM inbox WHERE run = $1", run)}
        if letters - waiting:
            raise LeaseLost(run, f"letters {sorted(letters - waiting)} in its inbox", "them taken in before")
        self._connection.execute("DELETE FROM inbox WHERE id = ANY($1)", (sorted(letters),))

    def _send(self, letter: Letter) -> bool:
        query = "INSERT INTO inbox_keys(run, key) VALUES($1, $2) ON CONFLICT DO NOTHING RETURNING 1"
        if not self._all(query, letter.run, letter.key):
            return False
        values = (letter.run, letter.key, letter.content, letter.at)
        self._connection.execute("INSERT INTO inbox(run, key, content, at) VALUES($1, $2, $3, $4)", values)
        return True

    def _take(self, run: str) -> Lease:
        last = self._all("SELECT seq, digest FROM entries WHERE run = $1 ORDER BY seq DESC LIMIT 1", run)
        head, digest = last[0] if last else (0, GENESIS)
        query = """SELECT leases.epoch, leases.since, owners.owner, owners.process, owners.host
            FROM leases LEFT JOIN owners ON owners.owner = leases.owner WHERE run = $1"""
        found = self._all(query, run)
        epoch, since, owner, process, host = found[0] if found else (0, "", None, None, None)
        if owner is not None and (self._lives() if owner == self._owner else not self._bury(owner)):
            raise RunHeld(run, f"process {process} on {host}", since, head)
        now = utc_text(self._clock())
        self._live(now)
        self._connection.execute(
            """INSERT INTO leases(run, owner, epoch, since) VALUES($1, $2, $3, $4)
            ON CONFLICT(run) DO UPDATE SET owner = $2, epoch = $3, since = $4""",
            (run, self._owner, epoch + 1, now),
        )
        self._known[run] = (self._owner, epoch + 1, head)
        return Lease(run, self._owner, epoch + 1, head, digest)

    def _release(self, lease: Lease) -> None:
        self._known.pop(lease.run, None)
        values = (lease.run, lease.owner, lease.epoch)
        self._connection.execute("UPDATE leases SET owner = NULL WHERE run = $1 AND owner = $2 AND epoch = $3", values)

    def _lives(self) -> bool:
        """Tell whether our name is held, by this connection or by one that the server has not yet given up."""
        return self._shown is self._connection or not self._tried("pg_try_advisory_xact_lock", self._owner)

    def _live(self, now: str) -> None:
        """Show that this owner lives: its name locked, its row there. The first time, clean up after the dead."""
        if self._shown is not self._connection:
            if not self._owner or not self._tried("pg_try_advisory_lock", self._owner):
                self._owner = new_id()[:16]
                self._tried("pg_try_advisory_lock", self._owner)
            self._shown = self._connection
            for (other,) in self._all("SELECT owner FROM owners WHERE owner <> $1", self._owner):
                self._bury(other)
        self._connection.execute(
            "INSERT INTO owners(owner, process, host, since) VALUES($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            (self._owner, self._process, socket.gethostname(), now),
        )

    def _bury(self, owner: str) -> bool:
        """Free what an owner held if it is dead, and tell whether it is. As sole writer, so nobody races us."""
        dead = self._tried("pg_try_advisory_xact_lock", owner)
        if dead:
            self._connection.execute("DELETE FROM owners WHERE owner = $1", (owner,))
        return dead

    def _tried(self, way: str, owner: str) -> bool:
        return bool(self._all(f"SELECT {way}($1)", number(owner))[0][0])

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._connection.execute(query, values).fetchall()


class Forgetting:
    """What a forked child does first: it gives up its copy of a connection, which frees nothing for the parent."""

    def __init__(self, writer: Writer) -> None:
        self._writer = weakref.ref(writer)

    def __call__(self) -> None:
        """Give it up."""
        writer = self._writer()
        if writer is not None:
            writer.forget()


def number(name: str) -> int:
    """Make of a random name of hex digits the number of a lock, as PostgreSQL counts them."""
    return int.from_bytes(bytes.fromhex(name[:16]), "big", signed=True)


def channel(info: Info) -> str:
    """Name the channel on which commits to a record are announced."""
    return f"gesta_{info.id}"
