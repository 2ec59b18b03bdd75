"""What keeps a record whole when something else in our own process touches its file, or takes it away.

POSIX drops all locks of a process on a file when any descriptor of it is closed. So a tool that copies the record
frees it, and another process that closes it then takes the log away which our commits go to; and a second copy of
SQLite in our process, such as that of the module sqlite3, cuts the index of the log under the first one. See
sqlite.org/howtocorrupt.html, sections 2.2 and 2.2.1. We take our lock again and look for our log at each commit, and
refuse the second copy. Windows has other locks.

All stores of this process that write one file share a `Hold`: two descriptors, which are closed last, for the locks by
which other processes see this one and wait for it.
"""

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apsw

from gesta.errors import RecordError
from gesta.stores.presence import Presence
from gesta.stores.sqlite_open import OPENING
from gesta.stores.sqlite_turn import Turn

SHARED_FIRST, SHARED_SIZE = 0x40000002, 510  # the bytes that SQLite locks; sqlite.org/fileformat.html, 1.2

UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)

File = tuple[int, int]


class Hold:
    """A file that stores of this process write."""

    def __init__(self, path: Path) -> None:
        """Open it twice, making it if there is none. Raises OSError."""
        self.process = os.getpid()
        self.path = path
        self.stores = 0
        self.kept = 0
        """Threads that count for this process, as `Store.keep` says."""
        self.left = (0, 0)
        """Time and size of the file after the last commit from here."""
        self.descriptor = opened(path)
        """For locks that no subprocess may inherit. Closed last, for that drops the locks of our copy of SQLite."""
        self.turn = Turn(self.descriptor)
        try:
            self.presence = Presence(opened(path))
        except OSError:
            os.close(self.descriptor)
            raise

    def idle(self) -> bool:
        """Whether no store writes the file, nobody keeps us, and nothing here reads it by our copy of SQLite."""
        return not self.stores and not self.kept and not opened_here(self.path)

    def keep(self) -> Callable[[], None]:
        """Count a thread until the returned function is called; see `Store.keep`."""
        with OPENING:
            self.kept += 1
        kept = [self]

        def leave() -> None:
            with OPENING:
                if kept and kept.pop().process == os.getpid():
                    self.kept -= 1
                    sweep()

        return leave

    def close(self) -> None:
        """Close both descriptors: from now on this process counts as ended."""
        os.close(self.presence.descriptor)
        os.close(self.descriptor)


_HOLDS: dict[File, Hold] = {}


class Guard:
    """The part of one writing store in the hold on its file, and the log that it writes to."""

    def __init__(self, path: Path) -> None:
        """Hold the file, making it if there is none. Raises OSError, and RecordError as `refuse_first`."""
        watch()
        self._path, self._log = path, f"{path}-wal"
        self._ours: File | None = None
        with OPENING:
            refuse_first(path)
            sweep()
            hold = held(path) or Hold(path)
            self._file = identified(path)
            self.hold = _HOLDS.setdefault(self._file, hold)
            """What all stores of this process share that write the file."""
            self.hold.stores += 1

    def begin(self) -> None:
        """Note which log lies beside the file, now that SQLite has opened it. Raises OSError."""
        self._ours = identified(self._log)
        self._note()

    def stands(self) -> bool:
        """Take the lock again, and return whether file and log are still those that we write. Cost: 10 us."""
        try:
            relock(self.hold.descriptor)
            return identified(self._log) == self._ours and identified(self._path) == self._file
        except OSError:
            return False

    def reached(self) -> bool:
        """Return whether what was just committed went to a log that others see. Cost: 6 us."""
        try:
            if identified(self._log) != self._ours:
                return False
            self._note()
        except OSError:
            return False
        return True

    def untouched(self) -> bool:
        """Return whether only the log was taken away, and nobody has written the file since our last commit."""
        try:
            found = self._path.stat()
        except OSError:
            return False
        ours = (found.st_dev, found.st_ino) == self._file and (found.st_mtime_ns, found.st_size) == self.hold.left
        return ours and not Path(self._log).exists()

    def release(self) -> None:
        """Let the file go, after SQLite has closed it; while others here have it open, it stays held."""
        with OPENING:
            self.hold.stores -= 1
            sweep()

    def _note(self) -> None:
        found = os.fstat(self.hold.descriptor)
        self.hold.left = found.st_mtime_ns, found.st_size


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
        """Return whether a descriptor may be written to, as those of SQLite may. Raises OSError."""
        return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_RDWR)


def opened(path: Path) -> int:
    """Open a file for reading and writing, making it if there is none; no subprocess inherits it.

    Raises OSError, and apsw.ReadOnlyError where it may only be read.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o644)
    except OSError as error:
        if error.errno in UNWRITABLE and path.exists():
            raise apsw.ReadOnlyError("it can be opened with readonly=True") from error
        raise


def identified(path: str | Path) -> File:
    """Name a file in a way that no other file has while it is open. Raises OSError."""
    found = os.stat(path)  # noqa: PTH116 - at each commit
    return found.st_dev, found.st_ino


def held(path: Path) -> Hold | None:
    """Return what stores of this process share that write a file; `None` when none does."""
    with suppress(OSError):
        return _HOLDS.get(identified(path))
    return None


def sweep() -> None:
    """Close the files that nothing of this process uses any more. Called with `OPENING`."""
    for file, hold in list(_HOLDS.items()):
        if hold.idle():
            del _HOLDS[file]
            hold.close()


def forget() -> None:
    """Close a forked child's copies, so that it neither keeps a dead parent alive nor uses its name."""
    for hold in _HOLDS.values():
        with suppress(OSError):
            hold.close()
    _HOLDS.clear()
    OPENING.release()


def opened_here(path: Path) -> bool:
    """Return whether our copy of SQLite has a file open in this process; one that a thread is using now counts."""
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
    """Watch for forks, and for connections of the module sqlite3. Once: neither can be taken back."""
    sys.addaudithook(refuse_second)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=OPENING.acquire, after_in_parent=OPENING.release, after_in_child=forget)


def refuse_second(event: str, values: tuple[Any, ...]) -> None:
    """An audit hook: let the module sqlite3 not open what a store of this process writes. Raises RecordError."""
    if event != "sqlite3.connect" or not _HOLDS:
        return
    try:
        name = os.fsdecode(values[0])
        file = identified(unquote(urlsplit(name).path) if name.startswith("file:") else name)
    except (OSError, TypeError, ValueError):
        return
    with OPENING:
        sweep()
        if file not in _HOLDS:
            return
    raise RecordError(
        f"{name!r} is open here, and the module sqlite3 has a copy of SQLite of its own: two in one "
        "process destroy each other's locks. Ask `record.store.sql`, use `apsw.Connection` (the copy that Gesta "
        "uses), or close the record first. Other processes may use any SQLite."
    )


def refuse_first(path: Path) -> None:
    """Do not open what another copy of SQLite has open in this process. Known on Linux only. Raises RecordError.

    One that was opened and never asked has no index yet, but the file itself. Called with `OPENING`, so that no
    connection of ours is half open.
    """
    if opened_here(path):
        return  # that is us, and a second copy was refused since
    ours = {one for hold in _HOLDS.values() for one in (hold.descriptor, hold.presence.descriptor)}
    index = path.with_name(f"{path.name}-shm")
    listed = Path("/proc/self/fd")
    for one in listed.iterdir() if listed.is_dir() else ():
        with suppress(OSError):  # closed meanwhile
            found = one.readlink()
            if found == index or (found == path and int(one.name) not in ours and writable(int(one.name))):
                raise RecordError(
                    f"{str(path)!r} is open in this process by another copy of SQLite, such as that of the module "
                    "sqlite3. Close that connection first (`with` does not): two in one process destroy each other's "
                    "locks."
                )
