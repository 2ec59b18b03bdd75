"""The order in which processes write one file: each waits behind the processes that already wait.

SQLite has no queue: when its lock is free, any process that tries gets it. So the byte TURN of the file is locked
before SQLite's own lock. A process that has to wait first locks the byte NEXT, until it has TURN. A process that has
just written finds NEXT locked by a waiting process, and waits too.

SQLite's own lock is then free, unless a program holds it that does not lock these bytes. Both bytes are beyond the end
of any file, and the kernel unlocks them when the process ends.

Within a process all stores of one file share one open file, so there a Python lock keeps the order.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gesta.errors import RecordBusy
from gesta.stores.presence import START, free, taken, unlock

TURN, NEXT = START - 1, START - 2
FIRST_S, BEHIND_S = 0.0003, 0.003
"""Mean seconds between two tries of the process that waits for TURN, and of the processes that wait for NEXT."""


class Turn:
    """The right of this process to write one file next."""

    def __init__(self, descriptor: int) -> None:
        """Use an open file whose descriptor no subprocess inherits."""
        self.descriptor = descriptor
        self._here = threading.Lock()

    def taken_at_once(self) -> bool:
        """Lock the turn if it is free and no process waits for it, and return whether that was done. Cost: 2 us."""
        if not self._here.acquire(blocking=False):
            return False
        if free(self.descriptor, NEXT) and taken(self.descriptor, TURN):
            return True
        self._here.release()
        return False

    def taken_by(self, until: float) -> bool:
        """Wait for the turn, and return whether it was locked in time.

        Args:
            until: the end of the wait, as `time.monotonic` counts.
        """
        if not self._here.acquire(timeout=left(until)):
            return False
        if self._locked(NEXT, BEHIND_S, until):
            try:
                if self._locked(TURN, FIRST_S, until):
                    return True
            finally:
                unlock(self.descriptor, NEXT)
        self._here.release()
        return False

    @contextmanager
    def waited(self, address: str, busy_s: float, until: float | None = None) -> Iterator[None]:
        """Hold the turn inside the block.

        Args:
            address: the address of the record, for the error.
            busy_s: seconds to wait.
            until: end of the wait by `time.monotonic`, if the wait has begun before.

        Raises:
            RecordBusy: the turn could not be locked in time.
        """
        if not self.taken_by(time.monotonic() + busy_s if until is None else until):
            raise RecordBusy(address, busy("other processes have", busy_s))
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Release the turn, so that the next writer gets it."""
        unlock(self.descriptor, TURN)
        self._here.release()

    def _locked(self, byte: int, every_s: float, until: float) -> bool:
        while not taken(self.descriptor, byte):
            if time.monotonic() > until:
                return False
            time.sleep(random.uniform(0.5, 1.5) * every_s)  # noqa: S311 - so that waiting processes do not all look at once
        return True


def left(until: float) -> float:
    """Return the number of seconds until a time, as the timeout of a Python lock."""
    return min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)


def busy(who: str, busy_s: float) -> str:
    """Return the text of the error if other writers were busy for longer than this process waited."""
    return f"{who} been writing to it without a pause for {busy_s:g} s, the `busy_s` of gesta.open"
