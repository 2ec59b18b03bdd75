"""The leases of a process. The lease of a child run is kept until the process leaves the run above it.

So a task that calls another agent again and again acquires the lease of that child run once, which saves two commits
for each call. No other process has to write the child run meanwhile, and letters need no lease. If the turn of the
child run stays open, its lease is released with it, because another process may have to continue the turn.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

import anyio
from anyio.lowlevel import RunVar

from gesta.errors import RunHeld
from gesta.perform.execution import GONE_OPTION
from gesta.state.opening import shielded
from gesta.store import Lease, Store

KEPT = 64  # leases that stay with one run, at most


_QUEUES: RunVar[WeakValueDictionary[str, anyio.Lock]] = RunVar("gesta_queues")


def queue_of(record: int, run: str) -> anyio.Lock:
    """Return the lock for which the messages to one run of an opened record wait, in this event loop."""
    try:
        queues = _QUEUES.get()
    except LookupError:
        _QUEUES.set(queues := WeakValueDictionary())
    return queues.setdefault(f"{record} {run}", anyio.Lock())


class Leases:
    """The leases of one process."""

    def __init__(self, store: Store, gone: Callable[[str], bool | None]) -> None:
        self.store = store
        self._gone = gone
        self._kept: dict[str, dict[str, Lease]] = {}
        """Leases that are kept and not in use: for each held run, the leases of the runs below it, by their id."""

    @asynccontextmanager
    async def leased(self, run: str, above: str | None = None) -> AsyncIterator[Lease]:
        """Hold the lease of a run in the block. Afterwards release it, and the leases kept for the runs below it."""
        lease = self._kept.get(above or "", {}).pop(run, None) or await self._taken(run)
        self._kept[run] = {}
        try:
            yield lease
        finally:
            own = [] if run in self._kept.get(above or "", ()) else [lease]
            with shielded():
                async with AsyncExitStack() as back:  # an error for one lease must not keep the others
                    for each in [*own, *self._kept.pop(run, {}).values()]:
                        back.push_async_callback(self.store.release, each)

    async def _taken(self, run: str) -> Lease:
        """Acquire a lease. If it is not known whether its holder still runs, ask `open(gone=...)`. Raises RunHeld."""
        try:
            return await self.store.lease(run)
        except RunHeld as held:
            if held.unknown is None or self._gone(held.unknown) is not True:
                raise
            await self.store.declare_gone(held.unknown, GONE_OPTION)
        return await self.store.lease(run)

    def keep(self, lease: Lease, above: str | None) -> None:
        """Keep a lease, at its present head, until the run above it is left.

        If that run is not held, it is not kept.
        """
        kept = self._kept.get(above or "")
        if kept is not None and len(kept) < KEPT:
            kept[lease.run] = lease
