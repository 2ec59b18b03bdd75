"""The witness file says what really happened. It counts an effect by its order number, never by its key.

Each line is one write to a file that is only appended to, and it is on the disk before the next step. The order number
is in the arguments that the model chose, so a second call for the same order is noticed even under a new key.
"""

import fcntl
import itertools
import os
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

What = Literal["begun", "effect", "over", "void", "strike", "answered", "told", "late", "wrong", "done"]
"""Kinds of lines.

`begun` and `over`: a function that may act began and ended. `told`: a person answered about an order.
"""
Truth = Literal["done", "not done", "unknown"]
ALONE_S = 2.0
"""Seconds for which a writer waits for another one, which may be a stopped process."""


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened in a case."""

    what: What
    order: int = -1
    tool: str = ""
    effect: str = ""
    """Effect policy of the tool when it acted."""
    key: str = ""
    """Idempotency key of the call; for an answered turn, the key of its message."""
    run: str = ""
    attempt: int = 0
    """Seq of the attempt; for a late approval, seq of its request."""
    token: str = ""
    """Name of one call of a function, the same in all lines about it."""
    process: int = 0
    """Id of the process that may act."""
    fault: str = ""
    """Kind of the fault."""
    place: str = ""
    text: str = ""
    at: float = 0.0
    """Time in seconds since 1970."""


class Witness:
    """The witness file, as one process writes and reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_RDWR, 0o644)
        self._count = itertools.count()
        weakref.finalize(self, os.close, self._file).atexit = False

    def tell(self, line: Line) -> None:
        """Write a line. If it is an effect, wait until it is on the disk."""
        told = msgspec.structs.replace(line, at=line.at or time.time(), process=line.process or os.getpid())
        os.write(self._file, msgspec.json.encode(told) + b"\n")
        if line.what == "effect":
            os.fsync(self._file)

    def wrong(self, text: str) -> None:
        """Note a broken promise."""
        self.tell(Line(what="wrong", text=text))

    def token(self) -> str:
        """Return a new name for one call of a function."""
        return f"{os.getpid()}.{next(self._count)}"

    def act(self, line: Line) -> bool:
        """Note an effect unless its key was made void. Return whether it was noted."""
        with self._alone():
            if any(each.what == "void" and each.key == line.key for each in self.lines()):
                return False
            self.tell(line)
        return True

    def void(self, key: str) -> bool:
        """Make a key void unless there was an effect under it. Return whether it was made void."""
        with self._alone():
            if any(each.what == "effect" and each.key == key for each in self.lines()):
                return False
            self.tell(Line(what="void", key=key))
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of the file for the block.

        After `ALONE_S` seconds go on without it, as its holder may be stopped.
        """
        until = time.monotonic() + ALONE_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    break
                time.sleep(0.002)
            else:
                break
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def lines(self) -> list[Line]:
        """Return all lines. A last line that a dying process did not finish is left out."""
        found = []
        for line in self.path.read_bytes().splitlines():
            with suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line, type=Line))
        return found

    def truth(self, order: int) -> Truth:
        """Return whether an order was carried out; "unknown" while a process that may still carry it out is alive."""
        return truth(self.lines(), order)


def truth(lines: Iterable[Line], order: int) -> Truth:
    """Return whether the lines say that an order was carried out; see `Witness.truth`."""
    mine = [line for line in lines if line.order == order]
    if any(line.what == "effect" for line in mine):
        return "done"
    over = {line.token for line in mine if line.what == "over"}
    acting = [line for line in mine if line.what == "begun" and line.token not in over]
    return "unknown" if any(alive(line.process) for line in acting) else "not done"


def alive(process: int) -> bool:
    """Return whether a process may still act. A dead process that nobody has waited for (a zombie) may not."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}
