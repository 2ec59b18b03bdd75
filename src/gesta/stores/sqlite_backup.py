"""Copies a record's file as it is at one moment, while other processes write it.

A record is the stored history of all runs (conversations of agents). SQLite's online backup copies it in one
transaction. So the copy has no half of a commit, and no writer waits. The copy has a temporary name of its own until
it is complete and on the disk. So a killed process leaves no file that looks like a record, and of two processes that
copy to one name, one makes the copy and the other one is refused.

A copy cannot know whether the original goes on. So each copy is marked with the `pos` (number in the record) of its
last entry. Then a person decides whether the copy goes on in place of the original; see `Store.adopt`.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import apsw

from gesta.errors import WriteFailed
from gesta.stores.common import private
from gesta.stores.sqlite_door import harden
from gesta.stores.sqlite_open import busy, connect_reading, disconnect, identity, located, migrate, sniff, steady, told
from gesta.stores.tables import FORMAT

PAGES = 4096  # number of pages that are copied in one step
PART = ".part"
TAKEN = "something lies there already; name a new file"


def backup(source: str, target: str, progress: Callable[[int, int], None] = lambda *_: None) -> int:
    """Copy a record into a new file, and return the size of the copy in bytes. Cost: reads and writes the file once.

    Args:
        progress: called with the number of pages copied so far, and the number of all pages.

    Raises:
        NoRecord, BrokenRecord, NewerRecord: there is no record that can be copied.
        WriteFailed: the target exists already, or cannot be made; nothing was changed.
    """
    path, made = located(source, readonly=True), located(target, readonly=False)
    if made.exists():
        raise WriteFailed(str(made), TAKEN)
    part = made.with_name(f"{made.name}.{secrets.token_hex(8)}{PART}")
    try:
        steady(path, lambda: _made(path, part, progress))
        _keep(part, made)
    except (apsw.Error, OSError) as error:
        raise told(error, target, writing=True) from error
    finally:
        part.unlink(missing_ok=True)
    return made.stat().st_size


def _made(path: Path, part: Path, progress: Callable[[int, int], None]) -> None:
    """Copy the record at `path` into `part`. If no process writes the record, no file is created beside it."""
    sniff(path)
    reading = connect_reading(path, still=not busy(path))
    try:
        identity(reading, path)
        os.close(private(part))
        part.chmod(path.stat().st_mode & 0o777)
        writing = apsw.Connection(str(part))
        try:
            _copy(reading, writing, progress)
            mark(writing, part)
        finally:
            writing.close(force=True)
    finally:
        disconnect(reading)


def _copy(reading: apsw.Connection, writing: apsw.Connection, progress: Callable[[int, int], None]) -> None:
    reading.execute("BEGIN")
    reading.execute("SELECT 1 FROM main.record").fetchall()  # the first read fixes the state that is copied
    with writing.backup("main", reading, "main") as copy:
        while not copy.done:
            copy.step(PAGES)
            progress(copy.page_count - copy.remaining, copy.page_count)
    reading.execute("COMMIT")


def mark(copy: apsw.Connection, path: Path) -> None:
    """Mark a file as a copy of a record.

    The pos of the last entry is stored, the leases (rights to write runs) are free, and the write-ahead log is removed.

    Args:
        copy: connection to the file.
        path: path of the file.

    Raises:
        apsw.Error: the file cannot be written.
    """
    harden(copy)  # the record may hold triggers of other programs
    free(copy)
    if copy.pragma("user_version") < FORMAT:
        copy.execute("DELETE FROM main.owners")  # format 1 does not record which processes have ended
        migrate(copy, path)
    copy.execute("UPDATE main.record SET mark = (SELECT coalesce(max(pos), 0) FROM main.entries), adopted_by = NULL")
    copy.pragma("journal_mode", "delete")


def free(copy: apsw.Connection) -> None:
    """Free the leases (rights to write runs) in a copy: their holders cannot write this file."""
    copy.execute("UPDATE main.leases SET owner = NULL")
    if copy.pragma("user_version") > 1:
        copy.execute("DELETE FROM main.owners WHERE gone_by IS NULL")


def _keep(part: Path, made: Path) -> None:
    """Sync the finished copy to the disk, and then give it its final name. Raises WriteFailed if the name is taken."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    try:
        os.link(part, made)  # unlike a rename, it never replaces a file
    except FileExistsError as error:
        raise WriteFailed(str(made), TAKEN) from error
    except OSError:  # a file system without hard links, as on a memory stick
        part.rename(made)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(made.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
