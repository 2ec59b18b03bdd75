"""A lock on a file of its own tells whether the process that took it is alive: the kernel frees it at death.

Neither a process number that was given out again nor a lock file that was left behind can mislead. `flock` belongs
to the opened file, so that two stores of one process exclude each other too; a forked child gives up its copy, so
that it does not keep a dead parent alive. Windows has another call for it, written below and not yet tried.
"""

import os
import sys
import weakref
from contextlib import suppress
from io import FileIO
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def lock(file: FileIO) -> bool:
        """Lock an opened file without waiting, and tell whether that could be done."""
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def lock(file: FileIO) -> bool:
        """Lock an opened file without waiting, and tell whether that could be done."""
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


class OwnerLock:
    """Sign of life of one owner: a locked file beside the record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: FileIO | None = None

    def hold(self) -> None:
        """See to it that the file exists and is locked by us, also after somebody deleted it. Raises OSError."""
        if self._file is not None:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
                    return
            self._file.close()
        self._file = FileIO(self.path, "a+")  # not inheritable, as all that Python opens
        if not lock(self._file):
            raise OSError(f"{str(self.path)!r} cannot be locked on this file system")
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=Forgetting(self))

    def forget(self) -> None:
        """Close the file and leave it where it is, as a death would."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def release(self) -> None:
        """Remove the file and free the lock; twice does nothing."""
        if self._file is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            self.forget()


class Forgetting:
    """What a forked child does first: it closes its copy of a lock, which frees nothing while the parent lives."""

    def __init__(self, owner: OwnerLock) -> None:
        self._owner = weakref.ref(owner)

    def __call__(self) -> None:
        """Close the copy."""
        owner = self._owner()
        if owner is not None:
            owner.forget()


def bury(path: Path) -> bool:
    """Remove the lock file of a dead owner. False, and nothing removed, if its owner lives; True without a file."""
    try:
        file = FileIO(path, "r")
    except FileNotFoundError:
        return True
    except OSError:  # not ours to open, so not ours to judge
        return False
    with file:
        if not lock(file):
            return False
        with suppress(OSError):
            path.unlink()
    return True


def left_behind(record: Path, suffix: str) -> list[str]:
    """Name the owners whose lock files lie beside a record, living or dead. Cost: reads the folder."""
    prefix = record.name + "."
    with suppress(OSError), os.scandir(record.parent) as found:
        names = [entry.name for entry in found if entry.name.startswith(prefix) and entry.name.endswith(suffix)]
        owners = [name[len(prefix) : -len(suffix)] for name in names]
        return [owner for owner in owners if owner and "." not in owner]  # with a dot, it is beside another record
    return []
