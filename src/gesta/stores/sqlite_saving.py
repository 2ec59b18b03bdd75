"""What was committed is saved where the file or its log was taken away from under this process.

The kernel keeps a file that was deleted for as long as somebody has it open, and so do we: what was told to be on
record can still be read here, by nobody else, and until this process ends. If only the log was deleted, it is moved
into the file. If the file itself is another one by now, or was written since, all goes into a new file beside it.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from gesta.errors import RecordError, WriteFailed
from gesta.stores.sqlite_backup import free
from gesta.stores.sqlite_guard import Guard
from gesta.stores.sqlite_open import connect_reading, disconnect, steady

LOST = (
    "the file or its log is not the one that was opened: it was moved or deleted, or its log was taken away while its "
    "lock was lost, because something in this process opened and closed the file; "
)
AGAIN = "close the record and open it again"
SAVED = ".saved"
ROWS = "SELECT pos, digest FROM entries"


def save(connection: apsw.Connection, guard: Guard, path: Path) -> tuple[WriteFailed, bool]:
    """Save what was committed; return the error that says where it is now, and whether it is saved.

    Cost: reads all, and may write it.
    """
    if in_file(connection, guard, path):
        return WriteFailed(str(path), f"{LOST}all entries that were committed are in the file; {AGAIN}"), True
    made = spare(path)
    try:
        connection.execute("VACUUM INTO ?", (str(made),))
        copy = apsw.Connection(str(made))
        try:
            free(copy)
        finally:
            disconnect(copy)
    except apsw.Error as error:
        made.unlink(missing_ok=True)
        found = f"{LOST}what was committed could not be saved into {str(made)!r} ({error})"
        stands = "It is in this process alone and ends with it; what is written next tries to save it again"
        return WriteFailed(str(path), found, stands=stands), False
    found = f"{LOST}what was committed was saved into {str(made)!r}; look at both, put the one that you want in place"
    return WriteFailed(str(path), found, stands="What was committed before stands in the saved file alone"), True


def in_file(connection: apsw.Connection, guard: Guard, path: Path) -> bool:
    """Return whether what was committed is in the file, after moving it there if that is possible."""
    return saved_in_place(connection, guard) or _holds(connection, path)


def saved_in_place(connection: apsw.Connection, guard: Guard) -> bool:
    """Move a log that was deleted into the file, if nobody has written the file since; return whether it is there."""
    if not guard.untouched():
        return False
    with suppress(apsw.Error):
        pages, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        return bool(pages == moved)
    return False


def saved_beside(path: Path) -> str | None:
    """Return the name of what was saved of a record whose file is missing; `None` when nothing was."""
    saved = path.with_name(f"{path.stem}{SAVED}{path.suffix}")
    return str(saved) if saved.exists() else None


def spare(path: Path) -> Path:
    """Name a file beside a record that does not exist yet: `NAME.saved.gesta`, or with a number."""
    names = (path.with_name(f"{path.stem}{SAVED}{number or ''}{path.suffix}") for number in range(10**6))
    return next(name for name in names if not name.exists())


def _holds(connection: apsw.Connection, path: Path) -> bool:
    """Return whether the file that lies there by now has every entry that we see, its own log left out."""
    try:
        ours = set(connection.execute(ROWS).fetchall())
        return ours <= steady(path, lambda: _rows(path))
    except (apsw.Error, OSError, RecordError):
        return False


def _rows(path: Path) -> set[tuple[Any, ...]]:
    reading = connect_reading(path, still=True)
    try:
        return set(reading.execute(ROWS).fetchall())
    finally:
        disconnect(reading)
