"""The harness's own log, and the kill of a process at a chosen point.

A line is one write to a file that is only appended to, so the lines of several processes do not mix. It is on the disk
before `tell` returns: what a line says has happened, also when the process dies at the next instruction.
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
"""Where there is no SIGKILL, ending a process is as sudden."""
Strike = Literal["killed", "cancelled", "failed"]
"""What happens at a point: the process dies, its turn is cancelled, or its next write fails."""
Told = Literal["committing", "committed", "sent", "started", "returned", "raised", "undone", "ended", "lived"]
What = Told | Strike
"""`undone`: a tool that was asked what became of a call said that it had not happened."""


class Written(Struct, frozen=True, array_like=True):
    """An entry as the store received it."""

    seq: int
    kind: str
    digest: str


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that the harness saw."""

    what: What
    life: int = 0
    """Number of the process; below 0, one that only sends."""
    point: str = ""
    """Where the process was killed, its turn cancelled, or a write failed."""
    run: str = ""
    entries: tuple[Written, ...] = ()
    letter: Letter | None = None
    tool: str = ""
    effect: str = ""
    key: str = ""
    """Idempotency key of the call; of a turn that ended, that of its message."""
    attempt: int = 0
    """Seq of the attempt."""
    reason: str = ""
    """How a turn ended."""
    waits: tuple[str, ...] = ()
    """What it waits for."""
    points: int = 0
    """How many a process came to that was not killed."""


def written(rows: Sequence[Row]) -> tuple[Written, ...]:
    """Return seq, kind and digest of these entries."""
    return tuple(Written(row.seq, row.kind, row.digest.hex()) for row in rows)


def read(path: Path) -> list[Line]:
    """Read the harness's log."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Line) for line in lines]


def die() -> NoReturn:
    """End this process at once, without cleaning up or writing anything."""
    os.kill(os.getpid(), KILL)
    raise AssertionError("still here")


class Life:
    """One process of the harness. It is killed at one of the points that it comes to."""

    def __init__(self, path: Path, number: int, last: int | None = None, strike: Strike = "killed") -> None:
        self.number = number
        self.points = 0
        """How many it came to."""
        self.cancel: Callable[[], object] | None = None
        """Cancels the turn that is at work, from any thread."""
        self._last, self._strike = last, strike
        self._failing = False
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
        self._lock = threading.RLock()

    def tell(self, line: Line) -> None:
        """Write a line, and wait for the disk unless the line is only an intention."""
        told = msgspec.structs.replace(line, life=self.number)
        os.write(self._file, msgspec.json.encode(told) + b"\n")
        if line.what != "committing":
            os.fsync(self._file)

    def fails(self) -> bool:
        """Return whether the next write has to fail. It fails once."""
        with self._lock:
            failing, self._failing = self._failing, False
        return failing

    def reach(self, point: str) -> None:
        """Mark a point at which the process may be killed. Tools reach theirs in threads."""
        with self._lock:
            self.points += 1
            if self.points == self._last:
                self.tell(Line(what=self._strike, point=point))
                if self._strike == "killed":
                    die()
                self._failing = self._strike == "failed"
                if self._strike == "cancelled" and self.cancel is not None:
                    self.cancel()
