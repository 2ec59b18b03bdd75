"""The calls of a synchronous record that run turns, each in an event loop of the thread that makes the call.

A turn is one message to an agent and all the work up to its answer. When the block that opened a record ends, other
threads may still be at work on turns. These turns are asked to stop: nothing new starts, and tools with effects may go
on for some seconds (the grace), so that their results are written. Then the record can be closed.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Condition
from typing import TypeVar

import anyio
from anyio import RunFinishedError, from_thread
from anyio.lowlevel import EventLoopToken, current_token

from gesta.errors import GestaError
from gesta.record.stream import CLOSED_TURN

T = TypeVar("T")


class Calls:
    """The calls that are running now, in any thread."""

    def __init__(self) -> None:
        self._running: dict[anyio.CancelScope, EventLoopToken] = {}
        self._changed = Condition()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await `work` in an event loop of its own, and return its value. Raises GestaError if `close` stops it."""

        async def main() -> T:
            with anyio.CancelScope() as scope:
                with self._changed:
                    self._running[scope] = current_token()
                try:
                    return await work()
                finally:
                    with self._changed:
                        del self._running[scope]
                        self._changed.notify_all()
            raise GestaError(CLOSED_TURN)

        return anyio.run(main)

    def close(self) -> None:
        """Ask the running calls to stop, and wait until they have ended, because the record is being closed."""
        with self._changed:
            running = list(self._running.items())
        for scope, token in running:
            with suppress(RunFinishedError):
                from_thread.run_sync(scope.cancel, token=token)
        with self._changed:
            self._changed.wait_for(lambda: not self._running)
