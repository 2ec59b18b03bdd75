"""Shows whether a process has ended: each process that writes a record locks one byte of the record's file.

A record is the stored history of all runs (conversations of agents). The byte is far beyond the end of the file. Its
place is computed from the process's name. The name is random and not the process id, because the operating system uses
ids again. The kernel releases the lock when the last copy of the file descriptor is closed: when the process and every
subprocess that inherited the descriptor have ended. Deleting the file does not release the lock. But a new file at the
same path is another file, and shows nothing about processes that locked the old file.

Windows and macOS need other calls, which are written below and have not been tried.
"""

import os
import secrets
import struct
import sys
import threading
from functools import lru_cache

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

    A lease is the right to write one run. Its epoch is a number that grows each time that the lease is taken.
    """

    def __init__(self, descriptor: int) -> None:
        """Lock a byte of the file. Raises OSError where the file system has no such locks.

        Args:
            descriptor: opened for reading and writing; the byte is unlocked when all its copies are closed.
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
        if process == self.process:
            return False
        name, _, where = process.partition(".")
        if where != place(self.descriptor) or len(name) != 16:
            return None
        try:
            return free(self.descriptor, byte_of(process))
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
