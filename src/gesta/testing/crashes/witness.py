"""The log of the harness, and the kill of a process at a chosen point.

A line is one write to a file that is only appended to, so the lines of several processes do not mix. `tell` returns
once the line is on disk. So every logged event has happened, even if the process dies at the next instruction.
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
"""Signal that ends a process at once; a system without SIGKILL ends processes as suddenly with SIGTERM."""
Strike = Literal["killed", "cancelled", "failed"]
"""What happens at a point: the process is killed, its turn is cancelled, or its next write fails."""
Told = Literal["committing", "committed", "sent", "started", "returned", "raised", "undone", "ended", "lived"]
What = Told | Strike
"""The event of a line. `undone`: a tool's `reconcile` said that a call did not happen."""


class Written(Struct, frozen=True, array_like=True):
    """An entry as the store received it."""

    seq: int
    kind: str
    digest: str


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log: an event that the harness saw."""

    what: What
    life: int = 0
    """Number of the process; negative for a process that only sends."""
    point: str = ""
    """Where the process was killed, its turn cancelled, or a write failed."""
    run: str = ""
    entries: tuple[Written, ...] = ()
    letter: Letter | None = None
    tool: str = ""
    effect: str = ""
    key: str = ""
    """Idempotency key of the call; for a turn that ended, the key of its message."""
    attempt: int = 0
    """Seq of the attempt."""
    reason: str = ""
    """How a turn ended."""
    waits: tuple[str, ...] = ()
    """What the turn waits for."""
    points: int = 0
    """Number of points of a process that was not killed."""


def written(rows: Sequence[Row]) -> tuple[Written, ...]:
    """Return seq, kind and digest of each row."""
    return tuple(Written(row.seq, row.kind, row.digest.hex()) for row in rows)


def read(path: Path) -> list[Line]:
    """Return the lines of the harness's log."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Line) for line in lines]


def die() -> NoReturn:
    """End this process at once, without cleaning up or writing anything."""
    os.kill(os.getpid(), KILL)
    raise AssertionError("still here")


class Life:
    """One process of the harness.

    At one of its points it may be killed, its turn cancelled, or a write made to fail.
    """

    def __init__(self, path: Path, number: int, last: int | None = None, strike: Strike = "killed") -> None:
        self.number = number
        self.points = 0
        """Number of points so far."""
        self.cancel: Callable[[], object] | None = None
        """Cancels the running turn, from any thread."""
        self._last, self._strike = last, strike
        self._failing = False
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
        self._lock = threading.RLock()

    def tell(self, line: Line) -> None:
        """Write a line, and sync it to disk unless the line only announces a commit."""
        told = msgspec.structs.replace(line, life=self.number)
        os.write(self._file, msgspec.json.encode(told) + b"\n")
        if line.what != "committing":
            os.fsync(self._file)

    def fails(self) -> bool:
        """Return whether the next write has to fail. After that, return False."""
        with self._lock:
            failing, self._failing = self._failing, False
        return failing

    def reach(self, point: str) -> None:
        """Count a point. If it is the chosen one, kill the process, cancel its turn or make a write fail.

        Thread-safe.
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
