"""Acquires and releases leases. A lease is the right to write one run; one process at a time holds it.

A record is the store of all runs. A run is the recorded conversation or task of one agent. A child run is a run that
another run, its parent, started. The lease of a child run is kept until its parent run is released, because the parent
may call the same agent again. Each further call then saves two commits. No other process has to write the child run
meanwhile, and sending letters to it needs no lease. If the turn of the child run stays open, its lease is not kept,
because another process may have to continue the turn.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

import anyio
from anyio.lowlevel import RunVar

from gesta.errors import LeaseLost, RunHeld
from gesta.perform.execution import GONE_OPTION
from gesta.state.opening import shielded
from gesta.store import Lease, Store

KEPT = 64  # greatest number of leases that are kept for one parent run


_QUEUES: RunVar[WeakValueDictionary[str, anyio.Lock]] = RunVar("gesta_queues")


def queue_of(record: int, run: str) -> anyio.Lock:
    """Return the lock that is held during a turn, so that a run has one turn at a time in this event loop.

    Args:
        record: a number that names the opened record in this process.
        run: id of the run.
    """
    try:
        queues = _QUEUES.get()
    except LookupError:
        _QUEUES.set(queues := WeakValueDictionary())
    return queues.setdefault(f"{record} {run}", anyio.Lock())


class Leases:
    """The leases that one opened record holds.

    Args:
        gone: function that returns whether the process with a given id has ended, or `None` if that is not known.
    """

    def __init__(self, store: Store, gone: Callable[[str], bool | None]) -> None:
        self.store = store
        self._gone = gone
        self._kept: dict[str, dict[str, Lease]] = {}
        """Kept leases that are not in use, by the id of the parent run and then by the id of the child run."""

        self._marks: dict[str, int | None] = {}
        """By run, the mark of the record when its lease was taken. A server may be restored while a turn goes on."""

    @asynccontextmanager
    async def leased(self, run: str, above: str | None = None) -> AsyncIterator[Lease]:
        """Hold the lease of a run while the block runs. Then release this lease and those kept for its child runs.

        Raises RunHeld if somebody else holds the lease. Raises LeaseLost if the record was replaced by a copy since the
        lease of the parent run was taken: the copy may lack what the child run has done.

        Args:
            run: id of the run.
            above: id of the parent run; `None` for a root run. A lease that was kept for the parent run is used again.
        """
        lease = self._kept.get(above or "", {}).pop(run, None) or await self._taken(run)
        self._kept[run] = {}
        self._marks[run] = mark = self.store.info.mark
        try:
            if above is not None and mark not in (None, self._marks.get(above)):
                raise LeaseLost(above, "the record as it was", "a copy of it")
            yield lease
        finally:
            own = [] if run in self._kept.get(above or "", ()) else [lease]
            del self._marks[run]
            with shielded():
                async with AsyncExitStack() as back:  # an error for one lease must not stop the release of the others
                    for each in [*own, *self._kept.pop(run, {}).values()]:
                        back.push_async_callback(self.store.release, each)

    async def _taken(self, run: str) -> Lease:
        """Acquire the lease of a run.

        If the store cannot know whether the process that holds the lease still runs, ask the function `gone`.

        Raises RunHeld if somebody else holds the lease.
        """
        try:
            return await self.store.lease(run)
        except RunHeld as held:
            if held.unknown is None or self._gone(held.unknown) is not True:
                raise
            await self.store.declare_gone(held.unknown, GONE_OPTION)
        return await self.store.lease(run)

    def keep(self, lease: Lease, above: str | None) -> None:
        """Keep an unused lease until the lease of the parent run `above` is released.

        If the lease of `above` is not held, or `KEPT` leases are kept for `above` already, it is not kept: then
        `leased` releases it when its block ends, as without this call.
        """
        kept = self._kept.get(above or "")
        if kept is not None and len(kept) < KEPT:
            kept[lease.run] = lease
