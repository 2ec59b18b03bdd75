"""The crash test's own log, and the kill of a process at a chosen point.

A point is a moment before or after a write to the record, or a call of a tool's function. A line is written by a single
write at the end of the file, so lines of several processes do not mix. `tell` returns when the line is on disk. So
every event in the log has happened, even if the process died right after it.
"""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NoReturn

import msgspec
from msgspec import Struct

from gesta.entry import Row
from gesta.store import Letter

KILL = int(getattr(signal, "SIGKILL", signal.SIGTERM))
"""The signal that ends a process at once. Where there is no SIGKILL (Windows), SIGTERM does the same."""
Strike = Literal["killed", "cancelled", "failed"]
"""What happens to a process at the chosen point: it is killed, its turn is cancelled, or its next write fails."""
Told = Literal["committing", "committed", "sent", "started", "returned", "raised", "undone", "ended", "lived"]
What = Told | Strike
"""What a line reports. `undone` means that a tool's `reconcile` said that a call did not happen."""


class Written(Struct, frozen=True, array_like=True):
    """An entry that the store was asked to write: its seq (number in the run), kind and digest."""

    seq: int
    kind: str
    digest: str


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log: an event that the test saw."""

    what: What
    life: int = 0
    """Number of the process. It is negative for a process that only sends letters."""
    point: str = ""
    """The point at which the process was killed, its turn was cancelled, or a write failed."""
    run: str = ""
    entries: tuple[Written, ...] = ()
    letter: Letter | None = None
    tool: str = ""
    effect: str = ""
    key: str = ""
    """Idempotency key of the call; for a turn that ended, the key of its message."""
    attempt: int = 0
    """Seq of the attempt: the entry which says that the call is about to run."""
    reason: str = ""
    """Why a turn ended."""
    waits: tuple[str, ...] = ()
    """What a turn waits for."""
    points: int = 0
    """Number of points that an unharmed process passed."""


def written(rows: Sequence[Row]) -> tuple[Written, ...]:
    """Return the seq (number in the run), kind and digest of each row."""
    return tuple(Written(row.seq, row.kind, row.digest.hex()) for row in rows)


def read(path: Path) -> list[Line]:
    """Return the lines of a log; an empty list if the file does not exist."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Line) for line in lines]


def die() -> NoReturn:
    """End this process at once. Nothing is cleaned up or written."""
    os.kill(os.getpid(), KILL)
    raise AssertionError("still here")


class Life:
    """One process of the crash test.

    A life counts the points that it reaches. At the chosen point its process is killed, its turn is cancelled, or its
    next write fails.
    """

    def __init__(self, path: Path, number: int, last: int | None = None, strike: Strike = "killed") -> None:
        self.number = number
        self.points = 0
        """Number of points so far."""
        self.cancel: Callable[[], object] | None = None
        """A function that cancels the running turn, from any thread; `None` while no turn runs."""
        self._last, self._strike = last, strike
        self._failing = False
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
        self._lock = threading.RLock()

    def tell(self, line: Line) -> None:
        """Write a line to the log. The line is on disk when `tell` returns, unless the line only announces a commit."""
        told = msgspec.structs.replace(line, life=self.number)
        os.write(self._file, msgspec.json.encode(told) + b"\n")
        if line.what != "committing":
            os.fsync(self._file)

    def fails(self) -> bool:
        """Return whether the next write must fail.

        Only the first call of `fails` after the chosen point returns `True`.
        """
        with self._lock:
            failing, self._failing = self._failing, False
        return failing

    def reach(self, point: str) -> None:
        """Count a point of this process.

        At the chosen point, kill the process, cancel the turn that it runs, or make its next write fail. Thread-safe.
        """
        with self._lock:
            self.points += 1
            if self.points == self._last:
                self.tell(Line(what=self._strike, point=point))
                if self._strike == "killed":
                    die()
                self._failing = self._strike == "failed"
                if self._strike == "cancelled" and self.cancel is not None:
                    self.cancel()
