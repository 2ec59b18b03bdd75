"""Shared commits: operations that come together from one event loop are carried out in one transaction.

An operation is a batch of entries, a message, or a request for a lease (the right to write a run). A record is the
store of all runs. The first task of a group leads: it yields once so that other tasks can join, and commits for all of
them. While a commit runs in a thread, the next group gathers. A run that writes alone commits at once, without a group.

If a write is cancelled before its commit has begun, nothing is committed, and the cancellation is raised. If it is
cancelled later, it completes and returns, and the cancellation is raised where the task waits next. The release of a
lease always completes.
"""

import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint
from msgspec import Struct

from gesta.errors import GestaError, WriteFailed
from gesta.store import Batch, Lease, Letter, TransactionalEffect
from gesta.stores.common import News

GROUP = 256  # greatest number of operations in one commit
HASTY = 4  # up to so many operations are committed in the thread of the loop while the disk is quick
QUICK_S = 0.001  # a disk that syncs faster is quick: a thread would cost 0.1 ms of processor time
FADING = 0.7  # factor that reduces the remembered time of a slow commit at each later commit
YIELD_S = 0.005  # seconds after which other tasks get the loop, even if one run never waits
AGAIN_S = 0.002  # seconds between two checks of a thread whose end cannot be awaited


class Take(Struct, frozen=True):
    """A request for the lease of a run, which is the right to write the run."""

    run: str
    mirror: bool = False


class Mirror(Struct, frozen=True):
    """A request to make a run a mirror: a copy of a run that continues only in the record with the id `of`.

    If `of` is `None`, the run becomes an ordinary run again.
    """

    lease: Lease
    of: str | None


class Declare(Struct, frozen=True):
    """A request to store a person's statement that a process has ended. Then other processes may take its leases."""

    process: str
    by: str


class Adopt(Struct, frozen=True):
    """A request to store a person's decision that a copy of a record replaces the original."""

    by: str


Work = Batch | Letter | Take | Lease | TransactionalEffect | Mirror | Declare | Adopt
"""The operations of a commit. A `Lease` means that this lease is released."""
AtOnce = Callable[[Sequence[Work], bool], list[Any] | None]
"""A function like `Commits.commit` that never waits: it returns `None` and does nothing if it would have to wait."""


class Commits(Protocol):
    """The interface of a store's synchronous writer. Only one thread at a time uses the writer."""

    synced: bool

    def commit(self, works: Sequence[Work], *, synced: bool) -> list[Any]:
        """Carry out operations in one transaction.

        Returns for each operation its result, or a GestaError if that operation alone was refused.

        Args:
            synced: whether the commit waits for the disk.
        """


def one_by_one(works: Sequence[Work], commit: Callable[[Sequence[Work]], list[Any]]) -> list[Any]:
    """Carry out each operation in a transaction of its own, and return a result or a GestaError for each.

    If a transaction fails, its error is the result of all operations that are left. So those before it, which are
    committed, are not reported as failed.

    Args:
        commit: carries out operations in one transaction. Returns a list like this function, or raises GestaError.
    """
    outcomes: list[Any] = []
    for work in works:
        try:
            outcomes += commit((work,))
        except GestaError as failure:
            return outcomes + [failure] * (len(works) - len(outcomes))
    return outcomes


class Ticket:
    """An operation that waits in the queue for its commit. After the commit, it holds the outcome."""

    __slots__ = ("bell", "outcome", "settled", "synced", "work")

    def __init__(self, work: Work, *, synced: bool) -> None:
        self.work = work
        self.synced = synced
        self.settled = False
        self.outcome: Any = None
        self.bell: anyio.Event | None = None

    def settle(self, outcome: Any) -> None:
        """Set the result or error of the operation. May be called from any thread; `ring` then wakes the task."""
        self.outcome, self.settled = outcome, True

    async def wait(self) -> None:
        """Wait until `ring` is called. Then the outcome is set, or the waiting task has to commit the next group."""
        self.bell = anyio.Event()
        await self.bell.wait()

    def ring(self) -> None:
        """Wake the task that waits for this ticket, if there is one."""
        if self.bell is not None:
            self.bell.set()


class Sharing:
    """Collects the operations of the tasks of one event loop, and passes them to the writer in groups."""

    def __init__(self, address: str, news: News, *, remote: bool = False, at_once: AtOnce | None = None) -> None:
        """Start with an empty queue.

        Args:
            address: the address of the record, for errors.
            news: wakes the tasks that wait for new entries, after each commit.
            remote: whether each commit waits for a network. If so, no commit is made in the thread of the event loop.
            at_once: makes the commits that run in the thread of the event loop; `None` to use `Commits.commit`.
        """
        self._address = address
        self._ring = news
        self._remote = remote
        self._at_once = at_once
        self._queue: list[Ticket] = []
        self._leading = False
        self._slowest_s = 0.0  # the longest time of the last synced commits, fading
        self._last = ""  # id of the run of the last batch
        self._yields_at = 0.0  # time after which the next commit first yields to other tasks
        self._carrying = threading.Lock()
        self._thread = anyio.CapacityLimiter(1)  # own thread, because tools may occupy all shared ones

    async def share(self, commits: Commits, work: Work, *, synced: bool) -> Any:
        """Carry out an operation together with the operations of other tasks, and return its result.

        Raises the error of this operation, or of the whole commit.
        """
        synced = synced and commits.synced
        match work:
            case Batch():
                synced = synced or work.synced
                outcomes = self._alone(work, synced=synced)
                if outcomes is not None:
                    if isinstance(outcomes[0], GestaError):
                        raise outcomes[0]
                    return outcomes[0]
        ticket = Ticket(work, synced=synced)
        self._queue.append(ticket)
        try:
            await self._settle(commits, ticket)
        except anyio.get_cancelled_exc_class() as error:
            if ticket in self._queue and not isinstance(work, Lease):
                self._queue.remove(ticket)
                self._hand_on()
                raise
            await self._see_through(commits, ticket, error)
        if isinstance(ticket.outcome, GestaError):
            raise ticket.outcome
        return ticket.outcome

    def _alone(self, batch: Batch, *, synced: bool) -> list[Any] | None:
        """Commit a batch at once in this thread, and return a list with its outcome.

        Returns `None`, and commits nothing, if the batch before it was of another run, if another task waits for a
        commit, or if the commit would have to wait. It also returns `None` if no commit has let other tasks run for
        `YIELD_S` seconds, because a commit in this thread does not. The caller then commits the batch in a group.
        """
        last, self._last = self._last, batch.lease.run
        if last != self._last or self._queue or self._leading or self._remote or self._at_once is None:
            return None
        began = time.perf_counter()
        slow = synced and self._slowest_s > QUICK_S
        if slow or began > self._yields_at or not self._carrying.acquire(blocking=False):
            return None
        try:
            outcomes = self._at_once((batch,), synced)
        finally:
            self._carrying.release()
        if synced:
            self._slowest_s = max(time.perf_counter() - began, FADING * self._slowest_s)
        if outcomes is not None:
            self._ring.ring()
        return outcomes

    async def _settle(self, commits: Commits, ticket: Ticket) -> None:
        while not ticket.settled:
            await (ticket.wait() if self._leading else self._lead(commits))

    async def _lead(self, commits: Commits) -> None:
        """Commit for the tasks in the queue. Then wake the first task that has joined since, to lead the next group."""
        self._leading = True
        group: list[Ticket] = []
        try:
            await checkpoint()
            self._yields_at = time.perf_counter() + YIELD_S
            group, self._queue = self._queue[:GROUP], self._queue[GROUP:]
            if group and (self._slow(group) or not self._carry(commits, group, waiting=False)):
                await self._in_thread(commits, group)
        finally:
            try:
                self._carry(commits, group)  # does nothing if the commit is done; it is not if the loop was ended
            finally:
                self._leading = False
                for ticket in group:
                    ticket.ring()
                self._hand_on()
                self._ring.ring()

    async def _in_thread(self, commits: Commits, group: list[Ticket]) -> None:
        """Commit in a thread, and wait for it.

        If this task is cancelled, the cancellation is raised after the commit.
        """
        stop: BaseException | None = None
        alone = False
        while not group[-1].settled:
            try:
                with anyio.CancelScope(shield=True):
                    if self._carrying.locked():  # an earlier thread, whose end could not be awaited, still commits
                        await anyio.sleep(AGAIN_S)
                    else:
                        await to_thread.run_sync(self._carry, commits, group, limiter=self._thread)
            except anyio.get_cancelled_exc_class() as error:  # cancellations by asyncio itself pass through a shield
                stop = error
                if not alone:  # a task that is cancelled in each cycle of the loop starts no thread by awaiting
                    alone = True
                    threading.Thread(target=self._carry, args=(commits, group)).start()
        if stop is not None:
            raise stop

    def _hand_on(self) -> None:
        if self._queue and not self._leading:
            self._queue[0].ring()

    async def _see_through(self, commits: Commits, ticket: Ticket, error: BaseException) -> None:
        """Wait for a commit that has begun, although this task was cancelled.

        The cancellation `error` was caught. It is raised again when the task waits next.
        """
        with anyio.CancelScope(shield=True):
            while not ticket.settled:
                try:
                    await self._settle(commits, ticket)
                except anyio.get_cancelled_exc_class() as again:  # asyncio's own pass through a shield
                    error = again
        if not anyio.get_current_task().has_pending_cancellation():
            cancel_again(error)

    def _slow(self, group: list[Ticket]) -> bool:
        """Return whether to commit in a thread: the store is remote, the disk is slow, or the group is large."""
        disk = any(ticket.synced for ticket in group) and (len(group) > HASTY or self._slowest_s > QUICK_S)
        return self._remote or disk

    def _carry(self, commits: Commits, group: list[Ticket], *, waiting: bool = True) -> bool:
        """Commit the operations of a group that have no outcome yet, and set their outcomes.

        Runs in the thread of the loop or in another one.

        Returns `False`, and does nothing, if the commit would have to wait and `waiting` is `False`.
        """
        with self._carrying:
            if not group or group[-1].settled:
                return True
            synced, began = any(ticket.synced for ticket in group), time.perf_counter()
            works = [ticket.work for ticket in group]
            outcomes: list[Any] | None = None
            try:
                if waiting or self._at_once is None:
                    outcomes = commits.commit(works, synced=synced)
                else:
                    outcomes = self._at_once(works, synced)
                    if outcomes is None:
                        return False
            except GestaError as failure:
                outcomes = [failure] * len(group)
            except BaseException as error:
                broken = WriteFailed(self._address, f"the commit was broken off by {type(error).__name__}")
                outcomes = [broken] * len(group)
                raise
            finally:
                for ticket, outcome in zip(group, outcomes or (), strict=outcomes is not None):
                    ticket.settle(outcome)
            if synced:
                self._slowest_s = max(time.perf_counter() - began, FADING * self._slowest_s)
            return True


class Look(Struct):
    """One query for the inboxes (waiting messages) of several runs, which several tasks share."""

    runs: list[str]
    done: anyio.Event
    found: dict[str, list[Letter]] | None = None
    """The letters by run; `None` if the query was cancelled or failed. Then the other tasks query again."""


class Looks:
    """Reads the inboxes of runs from a server. Tasks that ask while a query is running share the next query."""

    def __init__(self, ask: Callable[[Sequence[str]], Awaitable[dict[str, list[Letter]]]]) -> None:
        self._ask = ask
        self._next: Look | None = None
        self._asking = anyio.Lock(fast_acquire=True)

    async def look(self, run: str) -> list[Letter]:
        """Return the letters in the inbox of a run, from a query that begins after this call."""
        while (look := self._next) is not None:
            look.runs.append(run)
            await look.done.wait()
            if look.found is not None:
                return look.found[run]
        look = self._next = Look([run], anyio.Event())
        try:
            async with self._asking:
                self._next = None
                look.found = await self._ask(look.runs)
                return look.found[run]
        finally:
            if self._next is look:
                self._next = None
            look.done.set()


def cancel_again(error: BaseException) -> None:
    """Cancel this asyncio task once more, so that a cancellation that was caught is raised at its next wait.

    A cancel scope cancels its task again by itself; a cancellation by asyncio is raised only once.

    Args:
        error: the cancellation that was caught.
    """
    task = sys.modules["asyncio"].current_task()
    task.uncancel()
    task.cancel(*error.args)
