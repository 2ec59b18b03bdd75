"""What really happened, in a file beside the record: an effect is counted by its order number, never by its key.

Each line is one write to a file that is only appended to, and it is on the disk before anything follows. The order
number stands in the arguments that the model chose, so a second call for the same order cannot hide behind a new key.
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
"""`begun` and `over`: a function that may act began and ended; `told`: a person answered about an order."""
Truth = Literal["done", "not done", "unknown"]
ALONE_S = 2.0
"""How long a writer waits for another one, which may be standing still."""


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened."""

    what: What
    order: int = -1
    tool: str = ""
    effect: str = ""
    """Policy of the tool when it acted."""
    key: str = ""
    """Idempotency key of the call; of an answered turn, that of its message."""
    run: str = ""
    attempt: int = 0
    """Seq of the attempt; of a late approval, that of its request."""
    token: str = ""
    """One call of a function: joins its lines."""
    process: int = 0
    """Number of the process that may act."""
    fault: str = ""
    """Kind of the strike."""
    place: str = ""
    text: str = ""
    at: float = 0.0
    """Seconds since the epoch."""


class Witness:
    """The file, as one process writes and reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_RDWR, 0o644)
        self._count = itertools.count()
        weakref.finalize(self, os.close, self._file).atexit = False

    def tell(self, line: Line) -> None:
        """Write a line, and wait for the disk where others will count on it."""
        told = msgspec.structs.replace(line, at=line.at or time.time(), process=line.process or os.getpid())
        os.write(self._file, msgspec.json.encode(told) + b"\n")
        if line.what == "effect":
            os.fsync(self._file)

    def wrong(self, text: str) -> None:
        """Write down what must not be."""
        self.tell(Line(what="wrong", text=text))

    def token(self) -> str:
        """Make a name for one call of a function."""
        return f"{os.getpid()}.{next(self._count)}"

    def act(self, line: Line) -> bool:
        """Write an effect down, unless its key was made void before."""
        with self._alone():
            if any(each.what == "void" and each.key == line.key for each in self.lines()):
                return False
            self.tell(line)
        return True

    def void(self, key: str) -> bool:
        """Make a key void, unless it has acted before."""
        with self._alone():
            if any(each.what == "effect" and each.key == key for each in self.lines()):
                return False
            self.tell(Line(what="void", key=key))
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others out, but no longer than that: whoever has the lock may be standing still."""
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
        """Read all lines; one that a dying process had not written to its end is none."""
        found = []
        for line in self.path.read_bytes().splitlines():
            with suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line, type=Line))
        return found

    def truth(self, order: int) -> Truth:
        """Find out whether an order was carried out; not known while something that may act for it is alive."""
        return truth(self.lines(), order)


def truth(lines: Iterable[Line], order: int) -> Truth:
    """Find out the same from lines."""
    mine = [line for line in lines if line.order == order]
    if any(line.what == "effect" for line in mine):
        return "done"
    over = {line.token for line in mine if line.what == "over"}
    acting = [line for line in mine if line.what == "begun" and line.token not in over]
    return "unknown" if any(alive(line.process) for line in acting) else "not done"


def alive(process: int) -> bool:
    """Find out whether a process may still act; a dead one that nobody has waited for may not."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}
