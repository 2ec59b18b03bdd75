"""Where a process is struck: agents, tools, models and the store come to named places, and the next strike waits there.

A strike in the process itself (a kill, a cancellation, a failed write) is made here. One from outside (a full disk, a
server that restarts, a file that is taken away) is asked of the parent over a pipe, which answers once it is made.
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
"""Cancellations: of an asyncio task, by `asyncio.wait_for`, of an anyio scope."""
LINGER_S = 0.004
"""A process that is struck in a place stays there so long, so that the strike meets it there."""


class Strike(Struct, frozen=True, kw_only=True):
    """One strike that is planned."""

    fault: str
    place: str = ""
    """Place where it is made; empty for any."""
    tool: str = ""
    """Tool whose place it is; empty for any."""
    count: int = 1
    """It is made when the place is come to so many times."""
    times: int = 1
    """Of a cancellation: number of times in a row."""
    after: bool = False
    """Of a failed write: whether it fails after the commit."""


class Striker:
    """The strikes of one process, one after the other."""

    def __init__(self, witness: Witness, strikes: Sequence[Strike] = (), pipe: tuple[int, int] | None = None) -> None:
        self.witness = witness
        self.cancel: Callable[[Strike], None] | None = None
        """Cancels what is at work; the driver sets it."""
        self._left = list(strikes)
        self._count = 0
        self._pipe = pipe
        self._lock = threading.RLock()
        self._failing: Strike | None = None

    def reach(self, place: str, tool: str = "") -> bool:
        """Come to a place; returns whether a strike was made there."""
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
        """Come to a place in a thread, and stay there a moment if it is struck."""
        if self.reach(place, tool):
            time.sleep(LINGER_S)

    def failing(self) -> Strike | None:
        """Return the failure that the next write has to meet, once."""
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
    """A store whose commits come to places, and one of which fails where that is planned."""

    def __init__(self, store: Any, striker: Striker) -> None:
        self._store = store
        self._striker = striker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, batch: Any) -> int:
        """Commit a batch."""
        kinds = {row.kind for row in batch.rows}
        self._striker.reach("before a commit", "attempt" if "attempt" in kinds else "")
        pos: int = await self._fail(lambda: self._store.append(batch))
        self._striker.reach("after a commit", "attempt" if "attempt" in kinds else "")
        return pos

    async def transact(self, effect: Any) -> None:
        """Commit an effect with its entries."""
        self._striker.reach("before a transaction")
        await self._fail(lambda: self._store.transact(effect))
        self._striker.reach("after a transaction")

    async def lease(self, run: str, **options: Any) -> Any:
        """Acquire the right to write."""
        self._striker.reach("before a lease")
        lease = await self._store.lease(run, **options)
        self._striker.reach("after a lease")
        return lease

    async def release(self, lease: Any) -> None:
        """Release it."""
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
