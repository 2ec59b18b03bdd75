"""The leases of a process. The lease of a child run with several turns is kept as long as the run above is held.

So a task that asks another one again and again takes that one's lease once, in place of two commits for each answer.
Nobody else has anything to write there meanwhile, and letters need no lease. Where a turn stays open the lease is given
back with it: somebody else may have to go on. A child run that is asked once gives its own back at once.
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
    """Return the lock at which the messages for one run of an opened record queue up, in this event loop."""
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
        """Leases that are kept and not in use, by the run above, which is held, and by their run."""

    @asynccontextmanager
    async def leased(self, run: str, above: str | None = None) -> AsyncIterator[Lease]:
        """Hold the lease of a run in the block; release it afterwards, with the leases kept for runs below it."""
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
        """Acquire a lease. If nobody knows whether its holder lives, ask `open(gone=...)`. Raises RunHeld."""
        try:
            return await self.store.lease(run)
        except RunHeld as held:
            if held.unknown is None or self._gone(held.unknown) is not True:
                raise
            await self.store.declare_gone(held.unknown, GONE_OPTION)
        return await self.store.lease(run)

    def keep(self, lease: Lease, above: str | None) -> None:
        """Keep a lease at its present head until the run above is left; it is not kept if that run is not held."""
        kept = self._kept.get(above or "")
        if kept is not None and len(kept) < KEPT:
            kept[lease.run] = lease
