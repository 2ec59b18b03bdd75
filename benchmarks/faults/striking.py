"""Causes faults in a process. Agents, tools, models and the store report named places, and a planned fault waits there.

A strike is one planned fault. Those inside the process (a kill, a cancellation, a failed write) are made here. For one
from outside (a full disk, a restarted server, a file that is moved away), the process asks its parent over a pipe and
waits until the parent has made it.
"""

import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from benchmarks.faults.witness import Line, Witness
from gesta.errors import WriteFailed

IN_PROCESS = ("cancel", "wait_for", "scope")
"""Ways to cancel: the asyncio task, `asyncio.wait_for`, or an anyio scope."""
LINGER_S = 0.004
"""Seconds for which a process stays at a place after a strike, so that the fault meets it there."""


class Strike(Struct, frozen=True, kw_only=True):
    """One planned fault: its kind, its place, and when it happens."""

    fault: str
    place: str = ""
    """Name of the place; empty for any place."""
    tool: str = ""
    """Name of the tool or agent at that place; empty for any."""
    count: int = 1
    """The fault happens when the place is reached for this many times."""
    times: int = 1
    """For a cancellation: how often it is repeated."""
    after: bool = False
    """For a failed write: whether it fails after its commit."""


class Striker:
    """The planned faults of one process, which happen one after another."""

    def __init__(self, witness: Witness, strikes: Sequence[Strike] = (), pipe: tuple[int, int] | None = None) -> None:
        self.witness = witness
        self.cancel: Callable[[Strike], None] | None = None
        """Cancels all work in progress; the driver sets it."""
        self._left = list(strikes)
        self._count = 0
        self._pipe = pipe
        self._lock = threading.RLock()
        self._failing: Strike | None = None

    def reach(self, place: str, tool: str = "") -> bool:
        """Report that a place was reached. Return whether a fault happened there."""
        with self._lock:
            if not self._left:
                return False
            strike = self._left[0]
            if strike.place not in ("", place) or strike.tool not in ("", tool):
                return False
            self._count += 1
            if self._count < strike.count:
                return False
            self._left.pop(0)
            self._count = 0
        self._make(strike, place)
        return True

    def pause(self, place: str, tool: str = "") -> None:
        """Report from a thread that a place was reached, and stay there for a moment if a fault happened."""
        if self.reach(place, tool):
            time.sleep(LINGER_S)

    def failing(self) -> Strike | None:
        """Return the planned failure of the next write, and forget it; `None` if none is planned."""
        with self._lock:
            failing, self._failing = self._failing, None
        return failing

    def _make(self, strike: Strike, place: str) -> None:
        self.witness.tell(Line(what="strike", fault=strike.fault, place=place))
        if strike.fault in ("kill", "second kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif strike.fault == "write":
            self._failing = strike
        elif strike.fault in IN_PROCESS:
            assert self.cancel is not None
            self.cancel(strike)
        elif strike.fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._pipe is not None:
            with self._lock:
                os.write(self._pipe[1], b"x")
                os.read(self._pipe[0], 1)


class Struck:
    """A store that reports places before and after its operations, and fails the writes that are planned to fail."""

    def __init__(self, store: Any, striker: Striker) -> None:
        self._store = store
        self._striker = striker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, batch: Any) -> int:
        """Commit a batch, and return the position of its last entry."""
        kinds = {row.kind for row in batch.rows}
        self._striker.reach("before a commit", "attempt" if "attempt" in kinds else "")
        pos: int = await self._fail(lambda: self._store.append(batch))
        self._striker.reach("after a commit", "attempt" if "attempt" in kinds else "")
        return pos

    async def transact(self, effect: Any) -> None:
        """Commit a transactional effect with its entries."""
        self._striker.reach("before a transaction")
        await self._fail(lambda: self._store.transact(effect))
        self._striker.reach("after a transaction")

    async def lease(self, run: str, **options: Any) -> Any:
        """Acquire the lease of a run."""
        self._striker.reach("before a lease")
        lease = await self._store.lease(run, **options)
        self._striker.reach("after a lease")
        return lease

    async def release(self, lease: Any) -> None:
        """Release a lease."""
        self._striker.reach("before a release")
        await self._store.release(lease)
        self._striker.reach("after a release")

    async def _fail(self, work: Callable[[], Awaitable[Any]]) -> Any:
        failing = self._striker.failing()
        if failing is not None and not failing.after:
            raise WriteFailed(self._store.info.address, "the campaign fails this write")
        found = await work()
        if failing is not None:
            raise WriteFailed(self._store.info.address, "the campaign fails this write after its commit")
        return found
