"""The one writing connection of a store. Operations that come together are carried out in one transaction.

A record is the stored history of all runs (conversations of agents). An operation is a batch of entries, a message, or
a request for a lease (the right to write a run). Each transaction first takes the record's lock, and holds it until its
rows are visible. So the rows are committed in the order of `pos`, their number in the record: a reader never sees a
smaller pos after a greater one.

If the connection is lost, the transaction is repeated on a new connection, until a timeout. If it was lost during the
commit, the new transaction first looks for the rows of the old one. Each append checks the epoch of its lease, a number
that grows each time that the lease is taken. So an append is refused if another process has taken the lease.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import compress
from threading import Event
from typing import Any

import psycopg
from msgspec import Struct, field
from msgspec.structs import replace

from gesta.errors import BrokenRecord, GestaError, ServerGone, WriteFailed
from gesta.store import Batch, Info, Lease, TransactionalEffect
from gesta.stores.common import batches_of, checked, turn_of
from gesta.stores.postgres_effects import PostgresSql
from gesta.stores.postgres_holding import Holding, silence, watch_forks
from gesta.stores.postgres_leases import clean, recall
from gesta.stores.postgres_open import Connection, Place, connect, kind_of, marked, server_of, standing, told
from gesta.stores.postgres_transaction import Transaction, simple
from gesta.stores.sharing import Take, Work, one_by_one

FAULTY = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError, UnicodeError, ValueError, TypeError)
"""Errors that one operation of a transaction can cause. The other operations are then carried out without it."""

ASKING_S = 0.05  # seconds between two tries to reach a server

SIZE = "SELECT pg_total_relation_size('entries') + pg_total_relation_size('blobs')"


class Options(Struct, frozen=True):
    """The options with which a writer was opened."""

    synced: bool = True
    """Whether every commit waits for the disk. A commit with a batch whose `synced` is true waits in any case."""
    failover: bool = False
    """Whether the record stays the original when its server, or the server's timeline, changes."""
    tool_role: str | None = None
    """The role of the server under which statements of transactional tools run; `None` for the role of the
    connection."""


class Trial(Struct):
    """Operations for one transaction, and how far the transaction got before its connection was lost."""

    works: Sequence[Work]
    outcomes: list[Any] = field(default_factory=list)
    asked: bool = False
    """Whether the commit was sent to the server, so that it may have succeeded."""
    at_once: bool = False
    """Whether the operations were sent in one exchange with their commit. Then some of them may have been carried out,
    and others not."""
    played: bool = False
    """Whether the `work` of a transactional effect was called. It cannot be called a second time."""
    raised: BaseException | None = None
    """The error that the `work` of a transactional effect raised."""
    until: float = 0.0
    """The end of the wait for an unreachable server, by `time.monotonic`; 0 if there was no wait yet."""


class Writer:
    """The writing connection of a record in PostgreSQL, with the leases that were taken through this connection."""

    def __init__(self, place: Place, info: Info, connection: Connection, holding: Holding, options: Options) -> None:
        self.commits = 0
        """The number of transactions that changed something."""
        self.synced = options.synced
        """Whether commits wait for the disk; see `Options.synced`."""
        self.info = info
        """The identity of the record, as it was last read from the server."""
        self.holding = holding
        """The name and the locks of this process in the record."""
        self._options = options
        self._place = place
        self._connection = connection
        self._server = server_of(connection, place)
        self._process = os.getpid()
        self._closed = Event()
        self._turn = turn_of(self)
        self._taken: dict[str, int] = {}  # epochs of the leases that this store took, by run
        watch_forks(self)

    def commit(self, works: Sequence[Work], *, synced: bool = True) -> list[Any]:
        """Carry out operations in their order, in one transaction. Return a result or a GestaError for each operation.

        The results are those of `sqlite_writer.Writer.commit`.

        Args:
            synced: whether the commit waits for the disk, if `Options.synced` is set.

        Raises:
            ServerGone: the server could not be reached within `busy_s`.
            WriteFailed: no operation was committed. BrokenRecord: the tables are not those of a record.

        Cost: one exchange with the server if the operations only add rows. Else two exchanges, and one more for each
            letter, lease, or batch that deletes letters.
        """
        waits = any(isinstance(work, Batch) and work.synced for work in works)
        with self._turn:
            return self._commit(works, synced=waits or (synced and self.synced))

    def leave(self, lease: Lease) -> None:
        """Mark a lease as no longer used by this process. The process's next commit frees it for others."""
        if self._taken.get(lease.run) == lease.epoch:
            del self._taken[lease.run]
        if self.holding.holds:
            self.holding.presence.leave(lease.run, lease.epoch)

    def ready(self) -> bool:
        """Return whether a commit can begin at once: no thread is writing, and the connection seems to be open."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            return not self._connection.closed and standing(self._connection)
        finally:
            self._turn.release()

    def shrink(self) -> int:
        """Free the space of pruned (removed) runs on the server, and return the number of freed bytes."""
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
        """Free the leases that were taken through this store, and close the connection. A second call does nothing."""
        closed = self._closed.is_set()
        self._closed.set()  # also ends a wait for the server in another thread
        with self._turn:
            if closed or os.getpid() != self._process:  # a forked child must not close the parent's connection
                return
            try:
                for run, epoch in list(self._taken.items()):
                    self.holding.presence.leave(run, epoch)
                with suppress(psycopg.Error, GestaError):
                    if not self._connection.closed:
                        self._farewell()
            finally:
                self._connection.close()

    def forget(self) -> None:
        """Close a forked child's copy of the connection.

        Otherwise the connection, and with it the parent's locks, would stay open after the parent has ended.
        """
        silence(self._connection)

    def _commit(self, works: Sequence[Work], *, synced: bool, at_once: bool = False) -> list[Any]:
        """Do what `commit` does. With `at_once`, the operations were tried in one exchange before."""
        trial = Trial(works, at_once=at_once)
        while True:
            try:
                outcomes = self._try(trial, synced=synced)
                break
            except BaseException as error:
                lost = self._undo() or (isinstance(error, psycopg.Error) and kind_of(error) is ServerGone)
                ours = isinstance(error, Exception) and error is not trial.raised and not isinstance(error, GestaError)
                if ours and lost and self._again(trial):
                    continue
                self._disown(trial)
                if not ours:
                    raise
                failure = self._failure(error, asked=lost and trial.asked)
                if lost or not isinstance(error, FAULTY):
                    raise failure from error
                if len(works) == 1:
                    failure.__cause__ = error
                    return [failure]
                return one_by_one(works, partial(self._commit, synced=synced))
        self.commits += any(not isinstance(outcome, GestaError) for outcome in outcomes)
        return outcomes

    def _again(self, trial: Trial) -> bool:
        """Return whether to repeat a transaction that lost its connection. May wait a short time before it returns.

        A transaction that only releases leases is repeated once, because the next commit releases them too. A
        transactional tool runs inside the transaction that stores its result. Such a transaction is repeated only if
        its commit was sent: the repetition finds out whether the commit succeeded, and does not run the tool again.
        """
        if trial.played and not trial.asked:
            return False
        if not trial.until:
            trial.until = time.monotonic() + self._place.busy_s
            return not self._closed.is_set()
        if all(isinstance(work, Lease) for work in trial.works) and not trial.asked:
            return False
        return time.monotonic() < trial.until and not self._closed.wait(ASKING_S)

    def _failure(self, error: Any, *, asked: bool) -> GestaError:
        """Return Gesta's error for a transaction that failed.

        Args:
            asked: whether the commit was sent to the server, so that nobody knows whether it succeeded.
        """
        if not asked:
            return told(error, self._place.address, writing=True)
        words = "the connection was lost in a commit, and the server cannot be asked whether it happened"
        return ServerGone(self._place.address, f"{words} ({error}); read the run to see")

    def _try(self, trial: Trial, *, synced: bool) -> list[Any]:
        """Run a transaction once, and return the results of its operations.

        If an earlier try was committed after all, its results are returned, and nothing is carried out again.
        """
        works, connection = trial.works, self._reach(trial)
        runs = [each.lease.run for work in works if isinstance(work, Batch) for each in batches_of(work)]
        runs += [work.run for work in works if isinstance(work, TransactionalEffect)]
        runs += [gone.lease.run for work in works if isinstance(work, Batch) for gone in work.prunes]
        transaction = Transaction(connection, self.info, self.holding, self._server)
        if not trial.at_once and not trial.asked and not trial.played and self.info.mark is None and simple(works):
            trial.asked = trial.at_once = True
            outcomes, given = transaction.add_at_once(works, synced=synced)
            trial.asked = False
            self._returned(given)
            return self._with_refused(works, outcomes, synced=synced)
        transaction.begin(runs, synced=synced)
        # this process now has the lock, so an earlier transaction has ended
        if trial.asked and not trial.at_once and transaction.happened(works, trial.outcomes):
            connection.execute("ROLLBACK")
            return trial.outcomes
        trial.asked = False
        self._disown(trial)
        if trial.played:
            raise ServerGone(self._place.address, "the connection was lost in the commit of a tool's effect")
        effects = {place for place, work in enumerate(works) if isinstance(work, TransactionalEffect)}
        works = trial.works = [
            self._transact(work, trial) if isinstance(work, TransactionalEffect) else work for work in works
        ]
        with connection.pipeline():
            for place, work in enumerate(works):
                before = transaction.added(work) if trial.at_once else None
                trial.outcomes.append(outcome := transaction.carry_out(work) if before is None else before)
                if place in effects and isinstance(outcome, GestaError):
                    raise outcome  # the changes of a tool are committed together with its entries, or not at all
                if isinstance(outcome, Lease):
                    self._taken[outcome.run] = outcome.epoch
            given = transaction.give_back()
            transaction.flush()
            mark = connection.execute("SELECT mark FROM record") if self.info.mark is not None else None
            trial.asked = True
            connection.execute("COMMIT")
        self._returned(given)
        if mark is not None:  # this process or another one may have adopted the copy
            self.info = replace(self.info, mark=mark.fetchall()[0][0])
        return trial.outcomes

    def _with_refused(self, works: Sequence[Work], outcomes: list[Any], *, synced: bool) -> list[Any]:
        """Carry out the batches that were not added in one exchange, and return the results of all operations.

        The transaction for them says why each was refused. The batches that were added are committed, whatever becomes
        of it.

        Args:
            works: the operations of the exchange.
            outcomes: their results, as `Transaction.add_at_once` returns them.
        """
        refused = [isinstance(work, Batch) and outcome is None for work, outcome in zip(works, outcomes, strict=True)]
        if not any(refused):
            return outcomes
        try:
            found = self._commit(list(compress(works, refused)), synced=synced, at_once=True)
        except GestaError as failure:
            found = [failure] * sum(refused)
        others = iter(found)
        return [next(others) if gone else outcome for outcome, gone in zip(outcomes, refused, strict=True)]

    def _returned(self, given: dict[str, int]) -> None:
        if given:
            self.holding.presence.returned(given)

    def _disown(self, trial: Trial) -> None:
        """Release the leases that a try of a transaction acquired, because the try was not committed."""
        outcomes, trial.outcomes = trial.outcomes, []
        for outcome in outcomes:
            if isinstance(outcome, Lease):
                self.leave(outcome)

    def _reach(self, trial: Trial) -> Connection:
        """Return an open connection, reopened if it was lost. If this process uses leases, also lock its name.

        Raises:
            psycopg.Error: the server cannot be reached.
            WriteFailed: the store was closed, or was opened before this process was forked.
        """
        if self._closed.is_set():
            raise WriteFailed(self._place.address, "it was closed")
        if os.getpid() != self._process:
            raise WriteFailed(self._place.address, "it was opened before this process was forked; open it again here")
        if self._connection.closed:
            connection = connect(self._place, readonly=False)
            try:
                info = marked(connection, self._place, failover=self._options.failover)
                self.info, self._server = same(self.info, info), server_of(connection, self._place)
                recall(connection, self.holding)
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

    def _undo(self) -> bool:
        """Roll a failed transaction back, and return whether the connection was lost."""
        with suppress(psycopg.Error):
            if not self._connection.closed:
                self._connection.rollback()
        lost = self._connection.closed or self._connection.broken
        if lost:
            self._connection.close()
        return lost

    def _farewell(self) -> None:
        """Release this store's leases before the store closes.

        If no other store of this process writes the record, also delete the row about this process.
        """
        transaction = Transaction(self._connection, self.info, self.holding, self._server)
        transaction.begin()
        given = transaction.give_back()
        if self.holding.holds and self.holding.last():
            me = self.holding.process
            self._connection.execute("DELETE FROM owners WHERE owner = $1 AND gone_by IS NULL", (me,))
            clean(self._connection, me)
        self._connection.execute("COMMIT")
        self._returned(given)

    def _transact(self, effect: TransactionalEffect, trial: Trial) -> Batch:
        """Call the `work` of an effect, and return the batch of entries that `work` returns.

        If `work` returns `False` as its second value, the tool's changes are undone.
        """
        trial.played = True
        tables = PostgresSql(self._connection, self._place.schema, self._options.tool_role, effect.timeout_s)
        # with this limit, the server would end every transaction in which a tool works long
        self._connection.execute("SAVEPOINT effect; SET LOCAL idle_in_transaction_session_timeout = 0")
        try:
            batch, kept = effect.work(tables)
        except BaseException as error:
            trial.raised = error
            raise
        finally:
            tables.over = True
        if kept:
            tables.check()
        else:
            self._connection.execute("ROLLBACK TO effect")
        return checked(batch)

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._connection.execute(query, values).fetchall()


def same(known: Info, found: Info) -> Info:
    """Return the identity of the record after a reconnection. Raises BrokenRecord if another record is there now.

    Args:
        known: the identity that the lost connection had found.
        found: the identity that the new connection has found.
    """
    if found.id != known.id:
        raise BrokenRecord(known.address, f"expected the record {known.id}, found {found.id} in its place")
    return found
