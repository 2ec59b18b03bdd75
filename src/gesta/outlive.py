"""A function in a thread can outlive the one who waits for it; what it returns then is handed on, never thrown away.

Nobody can stop a thread from outside. Whoever gives up on one (a timeout, a cancellation) calls `leave`: it gives the
result if there is one already, and else the thread hands its result on when it is done.
"""

import math
import sys
from collections.abc import Callable
from threading import Lock
from typing import Any

from anyio import NoEventLoopError, current_effective_deadline, from_thread, get_cancelled_exc_class
from msgspec import Struct

Thread = Callable[[], Any]
"""What is called in a thread."""


class Returned(Struct, frozen=True):
    """How a function ended."""

    value: Any = None
    failure: BaseException | None = None


class Outliving:
    """A call that may go on after nobody waits for it any more."""

    def __init__(self, call: Thread, late: Callable[[Returned], Any]) -> None:
        self._call = call
        self._late = late
        self._lock = Lock()
        self.left = False
        """Whether nobody waits any more."""
        self._returned: Returned | None = None

    def __call__(self) -> Any:
        """Make the call, in the worker thread."""
        try:
            returned = Returned(self._call())
        except BaseException as failure:  # noqa: BLE001 - raised again below, or handed on
            returned = Returned(failure=failure)
        with self._lock:
            self._returned = returned
            left = self.left
        if left:
            self._hand_on(returned)
        elif returned.failure is not None:
            raise returned.failure
        return returned.value

    def leave(self) -> Returned | None:
        """Stop waiting: give what it returned, or none if it is still going on."""
        with self._lock:
            self.left = True
            return self._returned

    def _hand_on(self, returned: Returned) -> None:
        try:
            from_thread.run(self._late, returned)
        except (NoEventLoopError, RuntimeError):
            return  # the loop has ended, and with it the program that asked: the call stays in doubt


def strayed(stop: BaseException) -> bool:
    """Say whether a tool let a cancellation out that nobody asked for: that of a future which it awaited.

    Only asyncio has those; there the task itself knows whether it was cancelled.
    """
    if not isinstance(stop, get_cancelled_exc_class()) or current_effective_deadline() == -math.inf:
        return False
    loop = sys.modules.get("asyncio")
    task = loop.current_task() if loop is not None else None
    return task is not None and task.cancelling() == 0
