"""What keeps a record whole when something else in our own process touches its file.

POSIX drops all locks of a process on a file when any descriptor of it is closed. So a tool that copies the record
frees it, and another process that closes it then takes the log away which our commits go to; and a second copy of
SQLite in our process, such as that of the module sqlite3, cuts the index of the log under the first one. See
sqlite.org/howtocorrupt.html, sections 2.2 and 2.2.1. We take our lock again and look for our log at each commit, and
refuse the second copy. Windows has other locks.
"""

import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apsw
from msgspec import Struct

from gesta.errors import RecordError

SHARED_FIRST, SHARED_SIZE = 0x40000002, 510  # the bytes that SQLite locks; sqlite.org/fileformat.html, 1.2
LOST = (
    "the file or its log is not the one that was opened: it was moved or deleted, or its log was taken away while its "
    "lock was lost, because something in this process opened and closed the file; close the record and open it again"
)

File = tuple[int, int]


class Hold(Struct):
    """A file that stores of this process write."""

    process: int
    descriptor: int  # never closed before the last connection, for that would drop the locks of the others
    path: Path
    stores: int = 0

    def idle(self) -> bool:
        """Whether no store writes the file, and nothing of this process reads it by our copy of SQLite."""
        return not self.stores and not opened_here(self.path)


_HOLDS: dict[File, Hold] = {}


class Guard:
    """The lock of one writing store on its file, and the log that it writes to."""

    def __init__(self, path: Path) -> None:
        """Hold the file. The log lies beside it already. Raises OSError."""
        self._path, self._log = str(path), f"{path}-wal"
        self._ours = identified(self._log)
        self._file = identified(path)
        for file, hold in list(_HOLDS.items()):
            if hold.process == os.getpid() and hold.idle():
                let_go(file)
        if self._file not in _HOLDS or _HOLDS[self._file].process != os.getpid():
            _HOLDS[self._file] = Hold(os.getpid(), os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
        self._hold = _HOLDS[self._file]
        self._hold.stores += 1
        watch()

    def stands(self) -> bool:
        """Take the lock again, and tell whether file and log are still those that we write. Cost: 10 us."""
        try:
            relock(self._hold.descriptor)
            return identified(self._log) == self._ours and identified(self._path) == self._file
        except OSError:
            return False

    def reached(self) -> bool:
        """Tell whether what was just committed went to a log that others see. Cost: 4 us."""
        try:
            return identified(self._log) == self._ours
        except OSError:
            return False

    def release(self) -> None:
        """Let the file go, after SQLite has closed it; while others here have it open, it stays held."""
        self._hold.stores -= 1
        if self._hold.process == os.getpid() and self._hold.idle():
            let_go(self._file)


if sys.platform == "win32":

    def relock(descriptor: int) -> None:
        """Nothing: locks belong to the handle."""

    def writable(descriptor: int) -> bool:
        """Nobody asks."""
        del descriptor
        return False

else:
    import fcntl

    def relock(descriptor: int) -> None:
        """Share the bytes that every open SQLite shares. Raises OSError: somebody is taking the file for itself."""
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, SHARED_SIZE, SHARED_FIRST)

    def writable(descriptor: int) -> bool:
        """Tell whether a descriptor may be written to, as those of SQLite may. Raises OSError."""
        return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_RDWR)


def identified(path: str | Path) -> File:
    """Name a file in a way that no other file has while it is open. Raises OSError."""
    found = os.stat(path)  # noqa: PTH116 - at each commit
    return found.st_dev, found.st_ino


def let_go(file: File) -> None:
    """Hold a file no longer."""
    hold = _HOLDS.pop(file, None)
    if hold is not None:
        os.close(hold.descriptor)


def opened_here(path: Path) -> bool:
    """Tell whether our copy of SQLite has a file open in this process; one that a thread is using just now counts."""
    for connection in apsw.connections():
        with suppress(apsw.ConnectionClosedError):
            try:
                if connection.filename == str(path):
                    return True
            except apsw.ThreadingViolationError:
                return True
    return False


@cache
def watch() -> None:
    """Watch for connections of the module sqlite3, from now on and once: an audit hook cannot be taken back."""
    sys.addaudithook(refuse_second)


def refuse_second(event: str, values: tuple[Any, ...]) -> None:
    """An audit hook: let the module sqlite3 not open what a store of this process writes. Raises RecordError."""
    if event != "sqlite3.connect" or not _HOLDS:
        return
    try:
        name = os.fsdecode(values[0])
        file = identified(unquote(urlsplit(name).path) if name.startswith("file:") else name)
    except (OSError, TypeError, ValueError):
        return
    hold = _HOLDS.get(file)
    if hold is None or hold.process != os.getpid():
        return
    if hold.idle():
        let_go(file)
    else:
        raise RecordError(
            f"{name!r} is open here, and the module sqlite3 has a copy of SQLite of its own: two in one "
            "process destroy each other's locks. Ask `record.store.sql`, use `apsw.Connection` (the copy that Gesta "
            "uses), or close the record first. Other processes may use any SQLite."
        )


def refuse_first(path: Path) -> None:
    """Do not open what another copy of SQLite has open in this process. Known on Linux only. Raises RecordError.

    One that was opened and never asked has no index yet, but the file itself.
    """
    if opened_here(path):
        return  # that is us, and a second copy was refused since
    index = path.with_name(f"{path.name}-shm")
    opened = Path("/proc/self/fd")
    for one in opened.iterdir() if opened.is_dir() else ():
        with suppress(OSError):  # closed meanwhile
            found = one.readlink()
            if found == index or (found == path and writable(int(one.name))):
                raise RecordError(
                    f"{str(path)!r} is open in this process by another copy of SQLite, such as that of the module "
                    "sqlite3. Close that connection first (`with` does not): two in one process destroy each other's "
                    "locks."
                )
