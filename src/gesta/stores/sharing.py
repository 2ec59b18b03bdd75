"""Commits that are shared: what comes together from one event loop is carried out in one transaction.

The first to come leads, yields once so that others can join, and commits for all of them. While a commit waits in a
thread, the next group gathers. A write that is cancelled before a commit has begun with it never happened, and raises
the cancellation. One that is cancelled later is seen through and returns; the cancellation is raised where the task
waits next.
"""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint
from msgspec import Struct

from gesta.errors import GestaError, WriteFailed
from gesta.store import Batch, Effect, Lease, Letter
from gesta.stores.common import News

GROUP = 256  # works in one commit, at most
HASTY = 4  # as many batches, or fewer, are committed in place while the disk is quick
QUICK_S = 0.001  # a thread costs 0.1 ms of processor time, so a quicker disk is not worth one
FADING = 0.7  # of what a slow commit counts, with each one after it


class Take(Struct, frozen=True):
    """The wish to write a run."""

    run: str
    mirror: bool = False


Work = Batch | Letter | Take | Lease | Effect
"""What a commit carries: a lease among works is one that is given back."""


class Commits(Protocol):
    """The synchronous core that carries out works, used by one thread at a time."""

    synced: bool

    def commit(self, works: Sequence[Work], *, synced: bool) -> list[Any]:
        """Carry out works in one transaction: for each what it gave, or the GestaError that it alone met."""


class Ticket:
    """A work that waits for the commit which carries it."""

    __slots__ = ("bell", "outcome", "settled", "synced", "work")

    def __init__(self, work: Work, *, synced: bool) -> None:
        self.work = work
        self.synced = synced
        self.settled = False
        self.outcome: Any = None
        self.bell: anyio.Event | None = None

    def settle(self, outcome: Any) -> None:
        """Say what came of it; may be called from a thread."""
        self.outcome, self.settled = outcome, True

    async def wait(self) -> None:
        """Wait for a ring: the ticket is settled, or it is its turn to lead."""
        self.bell = anyio.Event()
        await self.bell.wait()

    def ring(self) -> None:
        """Wake who waits, if somebody does."""
        if self.bell is not None:
            self.bell.set()


class Sharing:
    """The half of a store for one event loop that brings works to its writer."""

    def __init__(self, address: str, news: News, *, remote: bool = False) -> None:
        self._address = address
        self._ring = news
        self._remote = remote  # each commit waits for a network, so that none is made in place
        self._queue: list[Ticket] = []
        self._leading = False
        self._slowest_s = 0.0  # of the last synced commits, fading
        self._carrying = threading.Lock()
        self._thread = anyio.CapacityLimiter(1)  # threads of its own, for tools may have used up the others

    async def share(self, commits: Commits, work: Work, *, synced: bool) -> Any:
        """Carry out a work together with those of others, and give what came of it. Raises what it alone met."""
        ticket = Ticket(work, synced=synced and commits.synced)
        self._queue.append(ticket)
        try:
            while not ticket.settled:
                await (ticket.wait() if self._leading else self._lead(commits))
        except anyio.get_cancelled_exc_class() as error:
            if ticket in self._queue:
                self._queue.remove(ticket)
                self._hand_on()
                raise
            await self._see_through(ticket, error)
        if isinstance(ticket.outcome, GestaError):
            raise ticket.outcome
        return ticket.outcome

    async def _lead(self, commits: Commits) -> None:
        """Commit for all who queue, then hand the lead to the first who came meanwhile."""
        self._leading = True
        group: list[Ticket] = []
        try:
            await checkpoint()
            group, self._queue = self._queue[:GROUP], self._queue[GROUP:]
            if group and self._slow(group):
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(self._carry, commits, group, limiter=self._thread)
        finally:
            try:
                self._carry(commits, group)  # in place, unless the thread has done it; waits for it if it is at it
            finally:
                self._leading = False
                for ticket in group:
                    ticket.ring()
                self._hand_on()
                self._ring.ring()

    def _hand_on(self) -> None:
        if self._queue and not self._leading:
            self._queue[0].ring()

    async def _see_through(self, ticket: Ticket, error: BaseException) -> None:
        """Wait for a commit that has begun, and leave the cancellation for this task's next wait."""
        with anyio.CancelScope(shield=True):
            while not ticket.settled:
                try:
                    await ticket.wait()
                except anyio.get_cancelled_exc_class() as again:  # asyncio's own go through a shield
                    error = again
        if not anyio.get_current_task().has_pending_cancellation():
            cancel_again(error)

    def _slow(self, group: list[Ticket]) -> bool:
        """Tell whether to commit in a thread: the disk is slow, or there are others whose work can go on meanwhile."""
        disk = any(ticket.synced for ticket in group) and (len(group) > HASTY or self._slowest_s > QUICK_S)
        return self._remote or disk

    def _carry(self, commits: Commits, group: list[Ticket]) -> None:
        """Commit what a group brings and settle it; a settled group is let be. Runs in the loop or in a thread."""
        with self._carrying:
            if not group or group[-1].settled:
                return
            synced, began = any(ticket.synced for ticket in group), time.perf_counter()
            try:
                outcomes = commits.commit([ticket.work for ticket in group], synced=synced)
            except GestaError as failure:
                outcomes = [failure] * len(group)
            except BaseException as error:
                broken = WriteFailed(self._address, f"the commit was broken off by {type(error).__name__}")
                outcomes = [broken] * len(group)
                raise
            finally:
                for ticket, outcome in zip(group, outcomes, strict=True):
                    ticket.settle(outcome)
            if synced:
                self._slowest_s = max(time.perf_counter() - began, FADING * self._slowest_s)


def cancel_again(error: BaseException) -> None:
    """Cancel this task of asyncio once more, so that a cancellation of its own is raised at its next wait.

    Those of a cancel scope come again by themselves.
    """
    task = sys.modules["asyncio"].current_task()
    task.uncancel()
    task.cancel(*error.args)
