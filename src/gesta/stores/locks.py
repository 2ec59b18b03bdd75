"""Locks on single bytes of a record's file: they show which processes run, and decide which process writes next.

The bytes are far beyond the end of the file. The kernel releases a lock when the last copy of the file descriptor is
closed: when the process and every subprocess that inherited the descriptor have ended. Deleting the file does not
release the lock. But a new file at the same path is another file, and shows nothing about processes that locked the old
one. Windows and macOS need other calls, which are written below and have not been tried.
"""

import os
import random
import secrets
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from gesta.errors import RecordBusy

START = 1 << 62
"""The lowest place of a byte that is locked for a process. No file is so large."""

if sys.platform == "win32":
    import msvcrt

    def taken(descriptor: int, byte: int) -> bool:
        """Lock a byte without waiting, and return whether that succeeded."""
        os.lseek(descriptor, byte, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def share(descriptor: int, byte: int) -> None:
        """Do nothing: a lock on Windows is never shared."""

    def unlock(descriptor: int, byte: int) -> None:
        """Free a byte that was locked through this descriptor. Raises OSError."""
        os.lseek(descriptor, byte, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def free(descriptor: int, byte: int) -> bool:
        """Return whether a byte is not locked."""
        if not taken(descriptor, byte):
            return False
        unlock(descriptor, byte)
        return True

else:
    import fcntl

    FLOCK = "hhqqi4x" if sys.platform == "linux" else "qqihh4x"
    """`struct flock` of fcntl(2): type, whence, start, length, process; elsewhere start, length, process first."""

    @lru_cache(64)
    def request(kind: int, byte: int) -> bytes:
        """Return a `struct flock` about one byte."""
        if sys.platform == "linux":
            return struct.pack(FLOCK, kind, os.SEEK_SET, byte, 1, 0)
        return struct.pack(FLOCK, byte, 1, 0, kind, os.SEEK_SET)

    def taken(descriptor: int, byte: int) -> bool:
        """Lock a byte without waiting, and return whether that succeeded."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request(fcntl.F_WRLCK, byte))
        except OSError:
            return False
        return True

    def share(descriptor: int, byte: int) -> None:
        """Lock a byte with a lock that others can share. Raises OSError."""
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request(fcntl.F_RDLCK, byte))

    def unlock(descriptor: int, byte: int) -> None:
        """Free a byte that was locked through this descriptor. Raises OSError."""
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request(fcntl.F_UNLCK, byte))

    def free(descriptor: int, byte: int) -> bool:
        """Return whether a byte is not locked through another opening of the file. Raises OSError."""
        told = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, request(fcntl.F_WRLCK, byte))
        kind = struct.unpack(FLOCK, told)[0 if sys.platform == "linux" else 3]
        return bool(kind == fcntl.F_UNLCK)


class Presence:
    """The locked byte by which other processes see that this process runs, and the leases of this process.

    The place of the byte is computed from the name of the process. The name is random and not the process id, because
    the operating system uses ids again. A lease is the right to write one run. Its epoch is a number that grows each
    time that the lease is taken.
    """

    def __init__(self, descriptor: int) -> None:
        """Lock a byte of the file. Raises OSError where the file system has no such locks.

        Args:
            descriptor: open for reading and writing; the lock is released when it and all copies of it are closed.
        """
        self.descriptor = descriptor
        self.process = f"{secrets.token_hex(8)}.{place(descriptor)}"
        """Name of this process: 16 random hex digits, then the inode and the id of the file system of the file, in
        hex."""
        self.using: dict[str, int] = {}
        """By run, the epoch of the lease that this process is using."""
        self.back: dict[str, int] = {}
        """By run, the epoch of a lease that this process has released. The next commit frees it for other processes."""
        self.lock = threading.Lock()
        """Held while `using` and `back` change together."""
        if not taken(descriptor, byte_of(self.process)):
            raise OSError("this file system cannot lock a byte of a file")

    def take(self, run: str, epoch: int) -> None:
        """Mark the lease of a run as in use by this process. Then no other task of the process takes the lease."""
        with self.lock:
            self.using[run] = epoch
            self.back.pop(run, None)

    def leave(self, run: str, epoch: int) -> None:
        """Mark the lease of a run as no longer needed by this process.

        The next commit of this process frees the lease for other processes.
        """
        with self.lock:
            if self.using.get(run) == epoch:
                del self.using[run]
                self.back[run] = epoch

    def returned(self, given: dict[str, int]) -> None:
        """Remove leases from `back`, after a commit of this process has freed them for other processes.

        Args:
            given: by run, the epoch of the freed lease.
        """
        with self.lock:
            for run, epoch in given.items():
                if self.back.get(run) == epoch:
                    del self.back[run]

    def gone(self, process: str) -> bool | None:
        """Return whether a process has ended; `None` if that process locked a byte of another file.

        Args:
            process: the name, in the form of `Presence.process`.
        """
        return False if process == self.process else ended(self.descriptor, process)


def ended(descriptor: int, process: str) -> bool | None:
    """Return whether another process has ended; `None` if that process locked a byte of another file.

    Args:
        descriptor: of the file, open for reading at least.
        process: the name, in the form of `Presence.process`.
    """
    name, _, where = process.partition(".")
    if where != place(descriptor) or len(name) != 16:
        return None
    try:
        return free(descriptor, byte_of(process))
    except (OSError, ValueError):
        return None


def place(descriptor: int) -> str:
    """Return a text that identifies an open file: its inode number, and the id of its file system, in hex."""
    system = os.fstatvfs(descriptor).f_fsid if hasattr(os, "fstatvfs") else 0
    return f"{os.fstat(descriptor).st_ino:x}.{system & (2**64 - 1):x}"


def byte_of(process: str) -> int:
    """Return the offset of the byte that a process locks, computed from its name.

    Raises ValueError if the name does not begin with 16 hex digits.
    """
    return START + (int(process[:16], 16) >> 4)


TURN, NEXT = START - 1, START - 2
FIRST_S, BEHIND_S = 0.0003, 0.003
"""Mean seconds between two tries: `FIRST_S` for the process that waits for TURN, `BEHIND_S` for those behind it."""


class Turn:
    """The right to write one file next. One thread of one process has it at a time.

    SQLite has no queue: when its lock is free, any process that tries gets it. So Gesta uses two more locks, on the
    bytes TURN and NEXT. A process that writes first locks TURN, and then takes SQLite's own lock. A process that has to
    wait first locks NEXT, and keeps it until it has TURN. So a process that wants to write again finds NEXT locked, and
    waits behind the process that locked it.

    Only a program that does not lock these bytes can still have SQLite's lock. Within a process all stores of one file
    share one open file, so there a Python lock keeps the order.
    """

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
