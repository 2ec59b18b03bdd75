"""The order in which processes write one file: each waits behind the processes that already wait.

SQLite has no queue: when its lock is free, any process that tries gets it. So Gesta uses two more locks, on the bytes
TURN and NEXT beyond the end of the file. A process that writes first locks TURN, and then takes SQLite's own lock. A
process that has to wait first locks NEXT, and keeps it until it has TURN. So a process that wants to write again finds
NEXT locked, and waits behind the process that locked it.

Only a program that does not lock these bytes can still have SQLite's lock. The kernel unlocks the bytes when the
process ends. Within a process all stores of one file share one open file, so there a Python lock keeps the order.
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
"""Mean seconds between two tries: `FIRST_S` for the process that waits for TURN, `BEHIND_S` for those behind it."""


class Turn:
    """The right to write one file next. One thread of one process has it at a time."""

    def __init__(self, descriptor: int) -> None:
        """Use an open file.

        Args:
            descriptor: a descriptor of the file that no subprocess inherits, because the subprocess would share the
                locks.
        """
        self.descriptor = descriptor
        self._here = threading.Lock()

    def taken_at_once(self) -> bool:
        """Acquire the turn if it is free and no process waits for it. Return whether it was acquired. Cost: 2 us."""
        if not self._here.acquire(blocking=False):
            return False
        if free(self.descriptor, NEXT) and taken(self.descriptor, TURN):
            return True
        self._here.release()
        return False

    def taken_by(self, until: float) -> bool:
        """Wait for the turn, and return whether this thread has it now.

        Args:
            until: the end of the wait, by `time.monotonic`.
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
        """Wait for the turn, and keep it inside the block.

        Args:
            address: the address of the record, for the error.
            busy_s: seconds to wait.
            until: end of the wait by `time.monotonic`, if the wait has begun before.

        Raises:
            RecordBusy: the turn could not be taken in time.
        """
        if not self.taken_by(time.monotonic() + busy_s if until is None else until):
            raise RecordBusy(address, busy("other processes have", busy_s))
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Release the turn, so that the next process can take it."""
        unlock(self.descriptor, TURN)
        self._here.release()

    def _locked(self, byte: int, every_s: float, until: float) -> bool:
        while not taken(self.descriptor, byte):
            if time.monotonic() > until:
                return False
            time.sleep(random.uniform(0.5, 1.5) * every_s)  # noqa: S311 - so that waiting processes do not all try at once
        return True


def left(until: float) -> float:
    """Return the seconds until a time (by `time.monotonic`), but no more than a Python lock can wait."""
    return min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)


def busy(who: str, busy_s: float) -> str:
    """Return the text of the error for a wait that was too long because others were writing.

    Args:
        who: the other writers with an auxiliary verb, such as "other processes have".
        busy_s: seconds that this process waited.
    """
    return f"{who} been writing to it without a pause for {busy_s:g} s, the `busy_s` of gesta.open"
