"""Protects a record, the file with all runs, when other code in this process opens or removes the file.

POSIX drops all locks of a process on a file when any descriptor of it is closed. So a tool that copies the record drops
SQLite's locks. Then another process that closes the record deletes the write-ahead log to which this process commits.
Also, a second copy of SQLite in this process, such as the module sqlite3, truncates the index of the log. See
sqlite.org/howtocorrupt.html, sections 2.2 and 2.2.1. So each commit locks the file again and checks that the log is the
same. A second copy of SQLite is refused. Windows has other locks.

Each process that writes also has a shared lock on the byte LOG of the file until it ends. So a process that opens the
file can find out whether another one writes to a log that was removed.

All stores of this process that write one file share a `Hold`: two descriptors, which are closed last. Their locks show
to other processes that this process is running, and decide who writes next.
"""

import errno
import gc
import os
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apsw

from gesta.errors import RecordError
from gesta.stores.common import PRIVATE
from gesta.stores.locks import NEXT, Presence, Turn, free, share, unlock
from gesta.stores.sqlite_open import OPENING

SHARED_FIRST, SHARED_SIZE = 0x40000002, 510  # the bytes that SQLite locks; sqlite.org/fileformat.html, 1.2

LOG = NEXT - 1
"""The place of the byte on which all processes that write to the log share a lock."""
INDEX = struct.Struct("=12xB3xI76xI")
"""Fields of a log's index: whether it is complete, number of frames in the log, number of frames copied into the file.
Source: sqlite.org/walformat.html, 2.1."""

UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)

ENDING_S = (0.001, 0.01, 0.1)
"""Seconds of each wait for a thread that has returned its result, but still uses the file."""

File = tuple[int, int]


class Hold:
    """The two open descriptors of a file, with their locks. All stores of this process that write it share them."""

    def __init__(self, path: Path) -> None:
        """Open the file twice, and create it if it does not exist. Raises OSError."""
        self.process = os.getpid()
        self.path = path
        self.stores = 0
        self.logs = 0
        """The number of stores of this process that write to the log."""
        self.log: File | None = None
        """Device and inode of the log that these stores write to."""
        self.kept = 0
        """The number of running threads that `Store.keep` counts."""
        self.left = (0, 0)
        """Modification time (ns) and size (bytes) of the file after the last commit of this process."""
        self.descriptor = opened(path)
        """The descriptor for locks that no subprocess may inherit. It is closed last, because closing it drops the
        locks of SQLite in this process."""
        self.turn = Turn(self.descriptor)
        try:
            self.presence = Presence(opened(path))
        except OSError:
            os.close(self.descriptor)
            raise

    def idle(self) -> bool:
        """Return whether nothing in this process uses the file: no store, no running thread, and no connection."""
        return not self.stores and not self.kept and not opened_here(self.path)

    def keep(self) -> Callable[[], None]:
        """Keep the file open for a running thread, until the returned function is called; see `Store.keep`."""
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
        """Close both descriptors. For other processes it then looks as if this process has ended."""
        os.close(self.presence.descriptor)
        os.close(self.descriptor)


def indexed(path: Path) -> tuple[int, int] | None:
    """Return the number of frames in a file's log, and how many of them were copied into the file.

    `None` means that there is no index of the log (the file `NAME-shm`). No connection in this process may have the
    index open, because reading it here would drop the connection's locks.
    """
    try:
        with path.with_name(f"{path.name}-shm").open("rb") as file:
            whole, frames, moved = INDEX.unpack(file.read(INDEX.size))
    except (OSError, struct.error):
        return None
    return (frames, moved) if whole else (0, 0)


_HOLDS: dict[File, Hold] = {}


class Guard:
    """Watches the file and the log that one store writes, and keeps the file open for that store."""

    def __init__(self, path: Path) -> None:
        """Open the file or share its `Hold`, and create the file if it does not exist.

        Raises OSError, and RecordError if another copy of SQLite in this process has the file open.
        """
        watch()
        self._path, self._name, self._log = path, str(path), f"{path}-wal"
        self._ours: File | None = None
        with OPENING:
            refuse_first(path)
            sweep()
            hold = held(path) or Hold(path)
            self._file = identified(path)
            self.hold = _HOLDS.setdefault(self._file, hold)
            """The `Hold` that this store shares with the other stores of the process that write the file."""
            self.hold.stores += 1

    def begin(self) -> None:
        """Begin to watch the log that SQLite has opened, and show other processes that it is used.

        Raises OSError.
        """
        self._ours = self.hold.log = identified(self._log)
        with OPENING:
            share(self.hold.descriptor, LOG)
            self.hold.logs += 1
        self._note()

    def alone(self) -> bool:
        """Return whether no other process writes to the log."""
        return free(self.hold.descriptor, LOG)

    def beside(self) -> bool:
        """Return whether the log is in its place, or all its commits were copied into the file before it was removed.

        The caller has the right to write, and SQLite has not opened the file yet. If the log is empty
        although its index lists commits, it counts as removed if another process writes to the log, and else as in its
        place, because a loss of power can leave it empty.
        """
        try:
            log = Path(self._log).stat()
        except OSError:
            log = None
        if self.hold.logs:
            return log is not None and (log.st_dev, log.st_ino) == self.hold.log
        index = (0, 0) if opened_here(self._path) else indexed(self._path)
        if not self.alone():
            return log is not None and index is not None and (log.st_size > 0 or not index[0])
        return log is not None or index is None or index[0] <= index[1]

    def stands(self) -> bool:
        """Lock the file again. Return whether file and log are the ones that this store opened. Cost: 10 us."""
        try:
            relock(self.hold.descriptor)
            log, file = os.stat(self._log), os.stat(self._name)  # noqa: PTH116 - as `identified`, at each commit
            return (log.st_dev, log.st_ino) == self._ours and (file.st_dev, file.st_ino) == self._file
        except OSError:
            return False

    def reached(self) -> bool:
        """Return whether the last commit is in the log that other processes read. Cost: 6 us."""
        try:
            log = os.stat(self._log)  # noqa: PTH116 - as `identified`, at each commit
            if (log.st_dev, log.st_ino) != self._ours:
                return False
            found = os.fstat(self.hold.descriptor)  # as `_note`, at each commit
            self.hold.left = found.st_mtime_ns, found.st_size
        except OSError:
            return False
        return True

    def untouched(self) -> bool:
        """Return whether only the log was removed, and nobody has written the file since this store's last commit."""
        try:
            found = self._path.stat()
        except OSError:
            return False
        ours = (found.st_dev, found.st_ino) == self._file and (found.st_mtime_ns, found.st_size) == self.hold.left
        try:
            return ours and not Path(self._log).stat().st_size  # a reader may have made an empty log
        except OSError:
            return ours

    def clear(self) -> None:
        """Remove the log to which this store wrote, and the log's index. Another log at the same path is not removed.

        The caller has copied all entries of the log into another file.
        """
        with suppress(OSError):
            if identified(self._log) != self._ours:
                return
        for name in (self._log, f"{self._path}-shm"):
            Path(name).unlink(missing_ok=True)

    def end(self) -> None:
        """Stop watching the log. This must be called before SQLite closes the file. A second call does nothing."""
        with OPENING:
            if self._ours is not None:
                self._ours = None
                self.hold.logs -= 1
                if not self.hold.logs:
                    unlock(self.hold.descriptor, LOG)

    def release(self) -> None:
        """Stop using the file, after SQLite has closed it. The last user in this process closes the `Hold`."""
        with OPENING:
            self.hold.stores -= 1
            sweep()

    def _note(self) -> None:
        found = os.fstat(self.hold.descriptor)
        self.hold.left = found.st_mtime_ns, found.st_size


if sys.platform == "win32":

    def relock(descriptor: int) -> None:
        """Do nothing: on Windows a lock belongs to the handle, so it is never lost."""

    def writable(descriptor: int) -> bool:
        """Return `False`; no caller needs the answer on Windows."""
        del descriptor
        return False

else:
    import fcntl

    def relock(descriptor: int) -> None:
        """Lock the file again with the shared lock that every connection of SQLite has on the file.

        Raises:
            OSError: a process has locked the file exclusively.
        """
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, SHARED_SIZE, SHARED_FIRST)

    def writable(descriptor: int) -> bool:
        """Return whether a descriptor is open for writing, as SQLite's descriptors are. Raises OSError."""
        return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_RDWR)


def opened(path: Path) -> int:
    """Open a file for reading and writing, and return its descriptor. A missing file is created.

    No subprocess inherits the descriptor.

    Raises OSError, and apsw.ReadOnlyError if this user may only read the file.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), PRIVATE)
    except OSError as error:
        if error.errno in UNWRITABLE and path.exists():
            raise apsw.ReadOnlyError("it can be opened with readonly=True") from error
        raise


def identified(path: str | Path) -> File:
    """Return device and inode of a file, which identify it as long as it exists. Raises OSError."""
    found = os.stat(path)  # noqa: PTH116 - at each commit
    return found.st_dev, found.st_ino


def held(path: Path) -> Hold | None:
    """Return the `Hold` that this process's stores of a file share; `None` if no store writes the file."""
    with suppress(OSError):
        return _HOLDS.get(identified(path))
    return None


def sweep() -> None:
    """Close each `Hold` whose file this process no longer uses. The caller has locked `OPENING`."""
    for file, hold in list(_HOLDS.items()):
        if hold.idle():
            del _HOLDS[file]
            hold.close()


def forget() -> None:
    """Close all `Hold` objects in a forked child.

    Otherwise other processes would take the child for its parent, even after the parent has ended.
    """
    for hold in _HOLDS.values():
        with suppress(OSError):
            hold.close()
    _HOLDS.clear()
    OPENING.release()


def opened_here(path: Path) -> bool:
    """Return whether this process has a file open through apsw.

    If another thread is using a connection, the connection's file is unknown, and the result is `True`.
    """
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
    """Add hooks for forks and for connections of the module sqlite3. Only the first call adds them."""
    sys.addaudithook(refuse_second)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=OPENING.acquire, after_in_parent=OPENING.release, after_in_child=forget)


def refuse_second(event: str, values: tuple[Any, ...]) -> None:
    """Raise RecordError if the module sqlite3 opens a file that a store writes. Runs as an audit hook."""
    if event != "sqlite3.connect" or not _HOLDS:
        return
    try:
        name = os.fsdecode(values[0])
        file = identified(unquote(urlsplit(name).path) if name.startswith("file:") else name)
    except (OSError, TypeError, ValueError):
        return
    if not _in_use(file):
        return
    raise RecordError(
        f"{name!r} is open here, and the module sqlite3 has a copy of SQLite of its own: two in one "
        "process destroy each other's locks. Ask `record.store.sql`, use `apsw.Connection` (the copy that Gesta "
        "uses), or close the record first. Other processes may use any SQLite."
    )


def _in_use(file: File) -> bool:
    """Return whether this process uses a file.

    If no store uses it, but a thread or a connection still does, wait a short time until these have ended.
    """
    for wait_s in ENDING_S:
        with OPENING:
            sweep()
            hold = _HOLDS.get(file)
            if hold is None:
                return False
            if hold.stores:
                return True
        gc.collect()  # an exception may keep an unused connection alive
        time.sleep(wait_s)
    return True


def refuse_first(path: Path) -> None:
    """Raise RecordError if another copy of SQLite in this process has a file open. Works on Linux only.

    The caller has locked `OPENING`, so that no thread is just opening the file through apsw.
    """
    if opened_here(path):
        return  # this process has it open through apsw, and has refused a second copy since
    if opened_elsewhere(path):
        gc.collect()  # an unused connection may still be open until it is collected
    if opened_elsewhere(path):
        raise RecordError(
            f"{str(path)!r} is open in this process by another copy of SQLite, such as that of the module sqlite3. "
            "Close that connection first (`with` does not): two in one process destroy each other's locks."
        )


def opened_elsewhere(path: Path) -> bool:
    """Return whether another copy of SQLite in this process has a file open."""
    ours = {one for hold in _HOLDS.values() for one in (hold.descriptor, hold.presence.descriptor)}
    file, index, listed = str(path), f"{path}-shm", "/proc/self/fd"
    for number in os.listdir(listed) if os.path.isdir(listed) else ():  # noqa: PTH112, PTH208 - at each opening
        with suppress(OSError):  # closed meanwhile
            found = os.readlink(f"{listed}/{number}")  # noqa: PTH115 - a third of the time of a `Path`
            if found == index or (found == file and int(number) not in ours and writable(int(number))):
                return True
    return False
