"""The one writing connection of a store: works are carried out in groups, one transaction a group.

Each transaction first takes the record's one lock, which is held until what it wrote can be seen. So `pos` is given
and seen in commit order, without gaps: a reader that has read up to a pos never meets an earlier one later. What a
group needs to know is asked in one go, and what it writes goes out with the commit.

A transaction in which the connection is lost is made again on a new one, for as long as the server is waited for. If
it was lost in the commit, the new transaction first looks for what the old one wrote: the lock says that it is over.
The epoch of a run is checked in the transaction that appends, so a writer whose run was taken meanwhile is refused.
"""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Event, Lock
from typing import Any

import psycopg
from msgspec import Struct, field
from msgspec.structs import astuple, replace

from gesta.entry import Row
from gesta.errors import BrokenRecord, GestaError, LeaseLost, ServerGone, WriteFailed
from gesta.store import Batch, Effect, Info, Lease, Letter, Prune
from gesta.stores.common import checked
from gesta.stores.postgres_effects import PostgresSql
from gesta.stores.postgres_holding import Holding, silence, watch_forks
from gesta.stores.postgres_leases import GIVE_BACK, clean, mirror, take
from gesta.stores.postgres_open import Connection, Place, connect, marked, number, server_of, standing, told
from gesta.stores.postgres_tables import ADD_BLOBS, ADD_ROWS, LETTER, PRUNE
from gesta.stores.sharing import Take, Work

FAULTY = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError, UnicodeError, ValueError, TypeError)
"""What one work is to blame for: the others of its group are carried out without it."""

ASKING_S = 0.05  # between tries to reach a server that is away

SIZE = "SELECT pg_total_relation_size('entries') + pg_total_relation_size('blobs')"
LEASES = """SELECT run, owner, epoch, (SELECT max(seq) FROM entries WHERE entries.run = leases.run)
    FROM leases WHERE run = ANY($1)"""
WRITTEN = "SELECT 1 FROM entries WHERE run = $1 AND seq = $2 AND digest = $3"
GRANTED = "SELECT 1 FROM leases WHERE run = $1 AND owner = $2 AND epoch = $3"
ADOPT = "UPDATE record SET mark = NULL, adopted_by = $1, server = coalesce($2, server)"
SENT = "SELECT 1 FROM inbox_keys WHERE run = $1 AND key = $2"


class Mirror(Struct, frozen=True):
    """The wish to make a run a mirror of one in the record `of`, or an ordinary one."""

    lease: Lease
    of: str | None


class Order(Struct, frozen=True):
    """A statement that may be carried out twice."""

    statement: str
    values: tuple[Any, ...]


class Options(Struct, frozen=True):
    """How a writer was opened."""

    synced: bool = True
    """Whether commits wait for the disk, where they are not told otherwise."""
    failover: bool = False
    """Whether another server, or timeline of one, counts as the same."""
    tool_role: str | None = None
    """Role under which statements of tools run."""


class Trial(Struct):
    """Works on their way into one transaction, which may have to be made more than once."""

    works: Sequence[Work | Mirror | Order]
    outcomes: list[Any] = field(default_factory=list)
    asked: bool = False
    """Whether the commit was asked for, so that it may have happened."""
    played: bool = False
    """Whether a tool has done its work, which cannot be done again."""
    raised: BaseException | None = None
    """What that work raised."""
    until: float = 0.0
    """When to give the server up, as `time.monotonic` counts; 0 while it is there."""


class Writer:
    """A connection that writes a record in PostgreSQL, and the leases that were taken through it."""

    def __init__(self, place: Place, info: Info, connection: Connection, holding: Holding, options: Options) -> None:
        self.commits = 0
        """Transactions that changed something."""
        self.synced = options.synced
        """Whether commits wait for the disk, where they are not told otherwise."""
        self.info = info
        """What the record says of itself, as this connection last read it."""
        self.holding = holding
        """What this process holds in the record."""
        self._options = options
        self._place = place
        self._lock = number(info.id)
        self._channel = channel(info)
        self._connection = connection
        self._process = os.getpid()
        self._closed = Event()
        self._turn = Lock()
        self._taken: dict[str, int] = {}  # epochs of the leases that were taken through this store, by run
        self._cleaned = False
        self._pos = 0  # of the last row, in this transaction
        self._rows: list[Row] = []  # that go out together
        self._known: dict[str, tuple[str | None, int, int]] = {}  # run: owner, epoch and head, in this transaction
        holding.enter()
        watch_forks(self)

    def commit(self, works: Sequence[Work | Mirror | Order], *, synced: bool = True) -> list[Any]:
        """Carry out works in their order, in one transaction; see the writer of SQLite.

        Raises:
            ServerGone: the server could not be reached for as long as it is waited for. WriteFailed: none of them
                happened. BrokenRecord: the tables are not those of a record.

        Cost: two exchanges with the server, and one more for each letter, lease, or batch that takes letters in.
        """
        waits = any(isinstance(work, Batch) and work.synced for work in works)
        with self._turn:
            return self._commit(works, synced=waits or (synced and self.synced))

    def leave(self, lease: Lease) -> None:
        """Have nobody use a lease any more; the next commit says so to others."""
        if self._taken.get(lease.run) == lease.epoch:
            del self._taken[lease.run]
        self.holding.presence.leave(lease.run, lease.epoch)

    def adopt(self, by: str) -> None:
        """Write down that this copy goes on, on the server that it stands on. Raises WriteFailed."""
        (outcome,) = self.commit((Order(ADOPT, (by, server_of(self._connection, self._place))),))
        if isinstance(outcome, GestaError):
            raise outcome
        self.info = replace(self.info, mark=None)

    def ready(self) -> bool:
        """Return whether a commit can be made at once, as far as can be said without asking the server."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            return not self._connection.closed and standing(self._connection)
        finally:
            self._turn.release()

    def shrink(self) -> int:
        """Have the server use the space of what was pruned again, and give back what it can; see `Store.shrink`."""
        with self._turn:
            try:
                self._reach(Trial(()))
                ((before,),) = self._all(SIZE)
                for table in ("entries", "blobs", "inbox", "inbox_keys"):
                    self._connection.execute(f"VACUUM {table}")
                ((after,),) = self._all(SIZE)
            except psycopg.Error as error:
                raise told(error, self._place.address, writing=True) from error
            return int(before - after)

    def close(self) -> None:
        """Free the leases that were taken through this store, and close the connection. Twice does nothing."""
        closed = self._closed.is_set()
        self._closed.set()  # ends also the waiting for a server
        with self._turn:
            if closed or os.getpid() != self._process:  # a forked child closes nothing of its parent's
                return
            try:
                for run, epoch in list(self._taken.items()):
                    self.holding.presence.leave(run, epoch)
                with suppress(psycopg.Error, GestaError):
                    if not self._connection.closed:
                        self._farewell()
            finally:
                self._connection.close()
                self.holding.leave()

    def forget(self) -> None:
        """Give up a forked child's copy of the connection, so that it does not keep a dead parent alive."""
        silence(self._connection)

    def _commit(self, works: Sequence[Work | Mirror | Order], *, synced: bool) -> list[Any]:
        trial = Trial(works)
        while True:
            try:
                outcomes = self._try(trial, synced=synced)
                break
            except BaseException as error:
                lost = self._undo()
                if lost and isinstance(error, psycopg.Error) and error is not trial.raised and self._again(trial):
                    continue
                self._disown(trial)
                if error is trial.raised or isinstance(error, GestaError) or not isinstance(error, Exception):
                    raise
                failure = self._failure(error, trial)
                if lost or not isinstance(error, FAULTY):
                    raise failure from error
                if len(works) == 1:
                    failure.__cause__ = error
                    return [failure]
                return [outcome for work in works for outcome in self._commit((work,), synced=synced)]
        self.commits += any(not isinstance(outcome, GestaError) for outcome in outcomes)
        return outcomes

    def _again(self, trial: Trial) -> bool:
        """Return whether to make a lost transaction again, when it is time to. Leases given back are not waited for."""
        if trial.played and not trial.asked:
            return False
        if not trial.until:
            trial.until = time.monotonic() + self._place.busy_s
            return not self._closed.is_set()
        if all(isinstance(work, Lease) for work in trial.works) and not trial.asked:
            return False
        return time.monotonic() < trial.until and not self._closed.wait(ASKING_S)

    def _failure(self, error: Exception, trial: Trial) -> GestaError:
        """Put into words why a transaction was not made, and whether that is known."""
        if not trial.asked:
            return told(error, self._place.address, writing=True)
        words = "the connection was lost in a commit, and the server cannot be asked whether it happened"
        return ServerGone(self._place.address, f"{words} ({error}); read the run to see")

    def _try(self, trial: Trial, *, synced: bool) -> list[Any]:
        """Make the transaction, unless an earlier try has made it."""
        works, connection = trial.works, self._reach(trial)
        runs = [work.lease.run for work in works if isinstance(work, Batch)]
        runs += [work.run for work in works if isinstance(work, Effect)]
        runs += [gone.lease.run for work in works if isinstance(work, Batch) for gone in work.prunes]
        self._begin(runs, synced=synced)
        if trial.asked:  # the lock is ours, so that transaction is over
            if self._happened(trial):
                self._connection.execute("ROLLBACK")
                return trial.outcomes
            self._disown(trial)
            trial.asked = False
        if trial.played:
            raise ServerGone(self._place.address, "the connection was lost in the commit of a tool's effect")
        works = trial.works = [self._transact(work, trial) if isinstance(work, Effect) else work for work in works]
        trial.outcomes = []
        with connection.pipeline():
            for work in works:
                trial.outcomes.append(self._carry_out(work))
            given = self._give_back()
            self._flush()
            trial.asked = True
            self._connection.execute("COMMIT")
        if given:
            self.holding.presence.returned(given)
        return trial.outcomes

    def _happened(self, trial: Trial) -> bool:
        """Return whether a transaction is on record whose commit was asked for. All of its works are, or none is."""
        for work, outcome in zip(trial.works, trial.outcomes, strict=True):
            if isinstance(work, Batch) and work.rows and isinstance(outcome, int):
                last = work.rows[-1]
                return bool(self._all(WRITTEN, last.run, last.seq, last.digest))
        for work, outcome in zip(trial.works, trial.outcomes, strict=True):
            if isinstance(work, Take) and isinstance(outcome, Lease):
                return bool(self._all(GRANTED, outcome.run, outcome.owner, outcome.epoch))
            if isinstance(work, Letter) and outcome is True:  # or the same letter of somebody else is, which is as good
                return bool(self._all(SENT, work.run, work.key))
        return False  # nothing that could not be done twice

    def _disown(self, trial: Trial) -> None:
        """Have nobody use the leases that a try took, for it may not have happened."""
        for outcome in trial.outcomes:
            if isinstance(outcome, Lease):
                self.leave(outcome)

    def _reach(self, trial: Trial) -> Connection:
        """See to it that there is a connection, and a session that holds the name of this process if it holds runs.

        Raises:
            psycopg.Error: the server cannot be reached. WriteFailed: the store is closed, or of another process.
        """
        if self._closed.is_set():
            raise WriteFailed(self._place.address, "it was closed")
        if os.getpid() != self._process:
            raise WriteFailed(self._place.address, "it was opened before this process was forked; open it again here")
        if self._connection.closed:
            connection = connect(self._place, readonly=False)
            try:
                self.info = same(self.info, marked(connection, self._place, failover=self._options.failover))
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        if self._taken or any(isinstance(work, Take) for work in trial.works):
            try:
                self.holding.hold(self._place)
            except OSError as error:
                words = f"this process cannot show that it lives: {error}; set GESTA_STATE to a folder on a local disk"
                raise WriteFailed(self._place.address, words) from error
        return self._connection

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

    def _carry_out(self, work: Work | Mirror | Order) -> Any:
        try:
            if isinstance(work, Batch):
                return self._append(work)
            self._flush()
            match work:
                case Letter():
                    return self._send(work)
                case Take():
                    return self._take(work)
                case Mirror():
                    return mirror(self._connection, work.lease, work.of)
                case Order():
                    self._connection.execute(work.statement, work.values)
        except GestaError as refused:  # before it had written anything
            return refused

    def _take(self, work: Take) -> Lease:
        lease = take(self._connection, self.holding, work)
        self._taken[work.run] = lease.epoch
        self._known[work.run] = (lease.owner, lease.epoch, lease.head)
        if not self._cleaned:
            clean(self._connection, lease.owner)
            self._cleaned = True
        return lease

    def _give_back(self) -> dict[str, int]:
        """Free the runs whose leases were given back, and return their epochs."""
        if not self.holding.holds:
            return {}
        presence = self.holding.presence
        with presence.lock:
            given = dict(presence.back)
        for run, epoch in given.items():
            self._connection.execute(GIVE_BACK, (run, self.holding.process, epoch))
        return given

    def _farewell(self) -> None:
        """Free what this store held, and the name of the process if it was its last store."""
        self._begin((), synced=False)
        given = self._give_back()
        if self.holding.holds and self.holding.last():
            values = (self.holding.process,)
            self._connection.execute("DELETE FROM owners WHERE owner = $1 AND gone_by IS NULL", values)
        self._connection.execute("COMMIT")
        if given:
            self.holding.presence.returned(given)

    def _transact(self, effect: Effect, trial: Trial) -> Batch:
        """Do an effect, and return what it says of itself; what it did is undone where it says so."""
        trial.played = True
        tables = PostgresSql(self._connection, self._place.schema, self._options.tool_role, effect.timeout_s)
        self._connection.execute("SAVEPOINT effect")
        try:
            batch, kept = effect.work(tables)
        except BaseException as error:
            trial.raised = error
            raise
        if kept:
            tables.check()
        else:
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
        self._connection.execute(LETTER, (letter.run, letter.key, letter.content))
        return True

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._connection.execute(query, values).fetchall()


def same(known: Info, found: Info) -> Info:
    """Return what is found where a record stood before. Raises BrokenRecord: it is another one."""
    if found.id != known.id:
        raise BrokenRecord(known.address, f"expected the record {known.id}, found {found.id} in its place")
    return found


def channel(info: Info) -> str:
    """Name the channel on which commits to a record are announced."""
    return f"gesta_{info.id}"
