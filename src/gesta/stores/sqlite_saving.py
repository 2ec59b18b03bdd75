"""Saves committed entries if the file or its log was removed while this process wrote the record.

A record is the stored history of all runs (conversations of agents). SQLite keeps the newest commits in a log beside
the file, named `NAME-wal`. The kernel keeps a deleted file until the last process closes it. So only this process can
still read what it committed. If only the log was deleted, its entries are moved into the file. If the file itself was
replaced or written, all entries are saved into a new file beside it. A `Guard` watches the file and its log.

Until then, no other process may continue the record: the file lacks the last tool calls, which would be made a second
time. So opening a record for writing checks that its log is there, and that no saved file has more entries. If one of
these checks fails, an error says what a person has to do.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

import apsw

from gesta.errors import RecordError, WriteFailed
from gesta.stores.common import private
from gesta.stores.sqlite_backup import free
from gesta.stores.sqlite_door import harden
from gesta.stores.sqlite_guard import Guard
from gesta.stores.sqlite_open import busy, connect_reading, disconnect, sniff, steady

LOST = (
    "the file or its log is not the one that was opened: it was moved or deleted, or its log was taken away while its "
    "lock was lost, because something in this process opened and closed the file; "
)
AGAIN = "close the record and open it again"
SAVED = ".saved"
SAVES = 10  # greatest number of saved files that are looked for
ROWS = "SELECT pos, digest FROM main.entries"
ID = "SELECT id FROM main.record"
LAST = "What was committed last stands in that log alone"


def save(connection: apsw.Connection, guard: Guard, path: Path) -> tuple[WriteFailed, bool]:
    """Save the committed entries of a record whose log was removed while it was open.

    Returns two values: an error whose message says where the entries are now, and whether all entries were saved.

    Cost: reads all entries, and may write them all.
    """
    if in_file(connection, guard, path):
        return WriteFailed(str(path), f"{LOST}all entries that were committed are in the file; {AGAIN}"), True
    made = spare(path)
    try:
        os.close(private(made))
        connection.execute("VACUUM INTO ?", (str(made),))
        copy = apsw.Connection(str(made))
        try:
            harden(copy)
            free(copy)
        finally:
            disconnect(copy)
    except (apsw.Error, OSError) as error:
        made.unlink(missing_ok=True)
        found = f"{LOST}what was committed could not be saved into {str(made)!r} ({error})"
        stands = "It is in this process alone and ends with it; what is written next tries to save it again"
        return WriteFailed(str(path), found, stands=stands), False
    guard.clear()
    found = f"{LOST}what was committed was saved into {str(made)!r}; close it, then `{moving(made, path)}` takes it in"
    return WriteFailed(str(path), found, stands="What was committed before stands in the saved file alone"), True


def refuse_lost(path: Path, guard: Guard) -> None:
    """Raise WriteFailed if the log of a file was removed. This must be called before SQLite opens the file."""
    if guard.beside():
        return
    log, name = f"{path}-wal", shlex.quote(str(path))
    if guard.hold.logs or not guard.alone():
        found = (
            f"its log {log!r}, or the index of that, was taken away from a process that writes it. Close the record "
            f"there, which moves what was committed into the file; `fuser -v {name}` names the process"
        )
        raise WriteFailed(str(path), found, stands="What was committed last stands in that process alone")
    found = (
        f"its log {log!r} is missing, and the process that wrote it ended before all of it was in the file. Put the "
        f"log back. If it is lost, look at what is left (`gesta runs --record {name}`). Then `rm {name}-shm` goes on "
        "with that, and calls that stood in the log alone may be made again"
    )
    raise WriteFailed(str(path), found, stands=LAST)


def refuse_missing(path: Path) -> None:
    """Raise WriteFailed if the file at this path was removed while a process was writing it."""
    saved = next((each for each in saved_beside(path) if read_saved(each) is not None), None)
    if saved is not None:
        found = f"it was taken away while it was written, and saved into {str(saved)!r}"
        raise WriteFailed(str(path), f"{found}; `{moving(saved, path)}` takes it in")
    if busy(path) and not sniff(path):
        name = shlex.quote(str(path))
        found = (
            f"its log {str(path) + '-wal'!r} is there, and the file is missing. Put it back, or close the record where "
            f"it is open. If it is lost, `rm {name}-wal {name}-shm` makes room for a new one"
        )
        raise WriteFailed(str(path), found, stands=LAST)


def refuse_saved(connection: apsw.Connection, path: Path) -> None:
    """Raise WriteFailed if the file at `path` lacks entries that were saved into a file beside it.

    Raises apsw.Error if the file cannot be read.
    """
    for saved in saved_beside(path):
        theirs = read_saved(saved)
        if theirs is None or connection.execute(ID).fetchall() != theirs[0]:
            continue
        ours = set(connection.execute(ROWS).fetchall())
        lacks, more = len(theirs[1] - ours), len(ours - theirs[1])
        if lacks:
            aside = saved.with_name(saved.name.replace(SAVED, ".aside"))
            found = (
                f"it lacks {lacks} entries that were saved into {str(saved)!r} when it was taken away while it was "
                f"written, and has {more} that are not there. Look at both, and close both everywhere. Then "
                f"`{moving(saved, path)}` goes on with the saved file alone; `{moving(saved, aside)}` goes on with "
                "this one, and calls that only the saved one tells of may be made again"
            )
            raise WriteFailed(str(path), found, stands="What was committed before stands in these two files")


def in_file(connection: apsw.Connection, guard: Guard, path: Path) -> bool:
    """Move the entries of a deleted log into the file if possible. Return whether the file has all entries now."""
    return saved_in_place(connection, guard) or _holds(connection, path)


def saved_in_place(connection: apsw.Connection, guard: Guard) -> bool:
    """Move the entries of a deleted log into the file, and return whether that was done.

    If the file was written since this store's last commit, nothing is moved.
    """
    if not guard.untouched():
        return False
    with suppress(apsw.Error):
        pages, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        return bool(pages == moved)
    return False


def saved_beside(path: Path) -> Iterator[Path]:
    """Yield the files beside a record into which entries of the record were saved. Cost: 20 us."""
    return (Path(each) for each in islice(_names(path), SAVES) if os.path.exists(each))  # noqa: PTH110 - see `_names`


def read_saved(path: Path) -> tuple[list[Any], set[tuple[Any, ...]]] | None:
    """Return the record id in a saved file, and the pos and digest of each entry; `None` if it is not a record."""
    with suppress(apsw.Error, OSError, RecordError):
        return steady(path, lambda: (_asked(path, ID), set(_asked(path, ROWS))))
    return None


def moving(saved: Path, path: Path) -> str:
    """Return the shell command that moves a saved file to a path."""
    return shlex.join(("mv", str(saved), str(path)))


def spare(path: Path) -> Path:
    """Return a free name for a saved file beside a record: `NAME.saved.gesta`, `NAME.saved1.gesta` and so on."""
    return next(Path(name) for name in _names(path) if not os.path.exists(name))  # noqa: PTH110 - see `_names`


def _names(path: Path) -> Iterator[str]:
    """Yield the possible names of saved files of a record.

    The names are texts, because making a `Path` would take as long as looking for the file.
    """
    start, end = str(path.with_name(path.stem + SAVED)), path.suffix
    return (f"{start}{number or ''}{end}" for number in count())


def _holds(connection: apsw.Connection, path: Path) -> bool:
    """Return whether the file at a path, without its log, has every entry that this connection reads."""
    try:
        ours = set(connection.execute(ROWS).fetchall())
        return ours <= set(steady(path, lambda: _asked(path, ROWS)))
    except (apsw.Error, OSError, RecordError):
        return False


def _asked(path: Path, query: str) -> list[tuple[Any, ...]]:
    reading = connect_reading(path, still=True)
    try:
        return reading.execute(query).fetchall()
    finally:
        disconnect(reading)
