"""The order in which processes write one file: each waits behind those that wait already.

SQLite has no queue: of those who want to write, the one wins that happens to look when the lock is free. So a byte of
the file, TURN, is locked before SQLite is asked. Who has to wait for it takes another one first, NEXT, until it has
TURN. A process that has just written finds NEXT taken by somebody who waits, and waits too.
SQLite's own lock is then free, except for programs that know nothing of this. Both bytes lie beyond the end of any
file, and the kernel frees them at the death of the process.

Within a process, where all stores of one file share one opened file, a lock of Python does the same.
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
"""How often who is first looks whether the turn is free, and who is behind whether it is the first; on average."""


class Turn:
    """The right of this process to write one file next."""

    def __init__(self, descriptor: int) -> None:
        """Use an opened file, of which no subprocess ever inherits the descriptor."""
        self.descriptor = descriptor
        self._here = threading.Lock()

    def taken_at_once(self) -> bool:
        """Return whether the right to commit is free, and take it if so. Cost: 2 us."""
        if not self._here.acquire(blocking=False):
            return False
        if free(self.descriptor, NEXT) and taken(self.descriptor, TURN):
            return True
        self._here.release()
        return False

    def taken_by(self, until: float) -> bool:
        """Wait for the turn, and return whether it came.

        Args:
            until: how long to wait, as `time.monotonic` counts.
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
            address: of the record, for the error.
            busy_s: how long to wait.
            until: end of the wait, if it has begun before.

        Raises:
            RecordBusy: the turn did not come in time.
        """
        if not self.taken_by(time.monotonic() + busy_s if until is None else until):
            raise RecordBusy(address, busy("other processes have", busy_s))
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Pass the right to commit to the next writer."""
        unlock(self.descriptor, TURN)
        self._here.release()

    def _locked(self, byte: int, every_s: float, until: float) -> bool:
        while not taken(self.descriptor, byte):
            if time.monotonic() > until:
                return False
            time.sleep(random.uniform(0.5, 1.5) * every_s)  # noqa: S311 - so that waiting processes do not all look at once
        return True


def left(until: float) -> float:
    """Return the seconds that are left, as the timeout of a Python lock."""
    return min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)


def busy(who: str, busy_s: float) -> str:
    """Return the text of the error for others who wrote longer than this process waited."""
    return f"{who} been writing to it without a pause for {busy_s:g} s, the `busy_s` of gesta.open"
