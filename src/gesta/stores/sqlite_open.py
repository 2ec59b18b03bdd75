"""Opens a record's file, after a check of its first bytes, and turns SQLite's errors into errors of Gesta.

A record is the stored history of all runs (conversations of agents). A file that is not a record is never changed. A
record is made in one transaction, so that no crash leaves half of one. The header (the file's first 100 bytes) is read
through SQLite's own file layer: if Python opened and closed the file, POSIX would drop all locks of this process on it,
SQLite's included.
"""

import os
import shlex
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from gesta.errors import BadAddress, BrokenRecord, NewerRecord, NoRecord, RecordBusy, RecordError, SetAside, WriteFailed
from gesta.store import Info
from gesta.stores.sqlite_door import admit, harden
from gesta.stores.tables import ADD_RECORD, APPLICATION_ID, FORMAT, MIGRATIONS, TABLES

BUSY_MS = 5000  # how long a reader, or a process that opens the file, waits for other processes
AGAIN_S = 0.002  # seconds between two tries where SQLite itself does not wait
MAGIC = b"SQLite format 3\0"
NO_LOG = 1
"""The byte at place 18 of a file that never had a log of its own, as each backup until it is opened."""
HELD = "another program has been writing to it without a pause"
OPENING = threading.RLock()
"""Held while a connection is opened or closed, so that no thread sees a connection that is half open."""

WORDS: dict[type[Exception], str] = {
    apsw.FullError: "the disk is full, or the file has reached its largest size",
    apsw.ReadOnlyError: "the file or its folder is read-only",
    apsw.PermissionsError: "this user has no right to it",
    apsw.BusyError: HELD,
    apsw.LockedError: HELD,
    apsw.ProtocolError: HELD,
    apsw.IOError: "the disk or file system failed",
    apsw.CantOpenError: "the file, or one that SQLite needs beside it, cannot be opened",
    apsw.CorruptError: "its pages are damaged or cut off",
    apsw.NotADBError: "it is not an SQLite database",
    apsw.FormatError: "it is not an SQLite database",
    apsw.NoMemError: "there is no memory left",
    apsw.TooBigError: "a value is larger than SQLite takes (1 GB)",
    apsw.ConnectionClosedError: "it was closed",
    apsw.CursorClosedError: "it was closed",
    apsw.InterruptError: "it was interrupted",
}
BUSY = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
T = TypeVar("T")


def told(error: Exception, address: str, *, writing: bool) -> RecordError:
    """Return Gesta's error for an error of SQLite or the system. The caller raises it `from` that error.

    Args:
        writing: whether the failed call was a write.
    """
    words = next((words for kind, words in WORDS.items() if isinstance(error, kind)), "")
    found = f"{words} ({error})" if words and str(error) else words or f"{type(error).__name__}: {error}"
    if isinstance(error, DAMAGED):
        return BrokenRecord(address, found)
    if writing:
        return RecordBusy(address, found) if isinstance(error, BUSY) else WriteFailed(address, found)
    return RecordError(f"Could not read {address!r}: {found}.")


def sniff(path: Path) -> bool:
    """Return whether a file is a record, without changing anything. An empty or missing file is not a record yet.

    Raises:
        BrokenRecord: the file is not a record, or cannot be read.
        NewerRecord: a later release made it.
    """
    if not path.exists():
        return False
    if not path.is_file():
        raise BrokenRecord(str(path), "it is a folder" if path.is_dir() else "it is not a file")
    logged = busy(path)  # before the header is read: SQLite marks the header before it makes a log
    try:
        file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
        try:
            header = file.xRead(100, 0)
        finally:
            file.xClose()
    except apsw.Error as error:
        raise BrokenRecord(str(path), f"this user may not read it, or the disk failed ({error})") from error
    if not header:
        return False
    if header[:16] != MAGIC:
        found = f"it is not an SQLite database, but begins with {bytes(header[:16])!r}"
        exported = bytes(header).startswith(b'{"gesta":')
        raise BrokenRecord(str(path), found + (f". Such lines are read by: gesta import {path}" if exported else ""))
    refuse_others(path, int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big"))
    if header[59] > 1:
        raise BrokenRecord(str(path), "its text is UTF-16, and every release of Gesta writes UTF-8")
    if logged and header[18] == NO_LOG:
        log, name = f"{path}-wal", shlex.quote(str(path))
        found = f"it is a copy, and the log {log!r} is of the file in whose place it was put; SQLite would mix the two"
        raise BrokenRecord(str(path), f"{found}. `rm -f {name}-wal {name}-shm` goes on with the copy")
    return True


def refuse_others(path: Path, application: int, format: int) -> None:
    """Raise BrokenRecord for a file that Gesta did not make, and NewerRecord for a file of a later release.

    Args:
        application: the application id in the file's header.
        format: the user version in the header, which is the format of the tables.
    """
    if application != APPLICATION_ID:
        raise BrokenRecord(str(path), f"it is an SQLite database of something else (application id {application:#x})")
    if format > FORMAT:
        raise NewerRecord(repr(str(path)), format, FORMAT)


def connect_writing(path: Path, *, synced: bool) -> apsw.Connection:
    """Open a file for reading and writing, and create it if it does not exist. Raises apsw.Error, BrokenRecord.

    With `synced`, each commit waits until it is on the disk.
    """
    with OPENING:
        connection = apsw.Connection(str(path))
    if connection.readonly("main"):  # SQLite opens such a file too, and would fail at the first append
        connection.close()
        raise apsw.ReadOnlyError("it can be opened with readonly=True")
    enter(connection, path)
    connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
    connection.execute("PRAGMA secure_delete = ON")  # pruned entries and letters leave no trace in free pages
    connection.execute("PRAGMA fullfsync = ON")  # macOS; no effect elsewhere
    connection.execute("PRAGMA foreign_keys = ON")  # for tables of transactional tools; the record's tables have none
    return connection


def connect_reading(path: Path, *, still: bool) -> apsw.Connection:
    """Open a file for reading only. Raises apsw.Error, BrokenRecord.

    Args:
        still: whether no process writes the file. Then it is read without locks, and no files are made beside it. The
            caller has to use `steady`, which notices a write.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with OPENING:
        connection = apsw.Connection(path.as_uri() + ("?immutable=1" if still else ""), flags=flags)
    enter(connection, path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def enter(connection: apsw.Connection, path: Path) -> None:
    """Prepare a new connection: forbid code in the file to run, and check the schema. A refused connection is closed.

    Raises:
        apsw.Error: the file cannot be read. BrokenRecord: the file holds code that is refused.
    """
    try:
        connection.set_busy_timeout(BUSY_MS)
        harden(connection)
        aside = admit(connection, str(path)).aside
        if aside:
            warnings.warn(SetAside(str(path), list(map(str, aside))), stacklevel=2)
    except BaseException as error:
        disconnect(connection)
        if isinstance(error, UnicodeDecodeError):
            raise BrokenRecord(str(path), "what describes its tables is not text") from error
        raise


def disconnect(connection: apsw.Connection) -> None:
    """Close a connection under the lock `OPENING`, so that no other thread sees it half closed."""
    with OPENING:
        connection.close(force=True)


def make(connection: apsw.Connection, info: Info) -> None:
    """Create the tables in one transaction. If another process has made them, do nothing. Raises apsw.Error."""
    connection.execute("BEGIN EXCLUSIVE")
    if not connection.execute("SELECT 1 FROM sqlite_schema").fetchall():
        connection.execute(TABLES)
        connection.execute(ADD_RECORD, (info.id, FORMAT, info.created_at))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Change a record of an older format to this format, in one transaction.

    After that, an older release refuses to write the record. It could not see which process has the lease of a run (the
    right to write the run).

    Raises:
        RecordBusy: another process has it open. apsw.Error: the file cannot be written.
    """
    if connection.pragma("user_version") >= FORMAT:
        return
    try:
        connection.pragma("journal_mode", "delete")
        connection.execute("BEGIN EXCLUSIVE")
    except BUSY as error:
        raise RecordBusy(
            str(path),
            f"it has format 1, and is brought to format {FORMAT} when nobody else has it open; close it there",
        ) from error
    if connection.pragma("user_version") < FORMAT:
        for statement in MIGRATIONS:
            connection.execute(statement)
        # a lease was released if its owner has no row any more: the owner deleted it when it closed the record
        connection.execute("UPDATE main.leases SET owner = NULL WHERE owner NOT IN (SELECT owner FROM main.owners)")
        connection.execute("UPDATE main.owners SET gone_by = 'gesta, which found that nobody had the record open'")
        connection.execute("UPDATE main.leases SET owner = NULL")  # 0.1.0 left the leases of processes that had ended
        connection.execute(f"UPDATE main.record SET format = {FORMAT}; PRAGMA user_version = {FORMAT}")  # noqa: S608
    connection.execute("COMMIT")


def turn_on_log(connection: apsw.Connection, path: Path) -> None:
    """Turn SQLite's write-ahead log on, also in a copy that another tool made. Raises apsw.Error.

    In a new record this is the last step: a crash before it leaves an empty file or a complete record. If another
    process is turning the log on at the same time, SQLite fails at once. So this function waits and tries again.
    """
    until = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            mode = connection.pragma("journal_mode", "wal")
            break
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)
    if mode != "wal":
        raise WriteFailed(str(path), f"this file system cannot keep a write-ahead log (journal mode {mode!r})")
    connection.execute("SELECT 1 FROM main.record").fetchall()  # the first read creates the log beside the file


def identity(connection: apsw.Connection, path: Path) -> Info:
    """Return the identity of a record, and check its header again. Raises apsw.Error, and the errors of `sniff`."""
    refuse_others(path, connection.pragma("application_id"), connection.pragma("user_version"))
    try:
        header = connection.pragma("user_version")  # a process that only reads also reads format 1
        mark_of = "NULL" if header == 1 else "mark"
        rows = connection.execute(f"SELECT id, created_at, {mark_of}, format FROM main.record").fetchall()  # noqa: S608
    except apsw.SQLError as error:
        raise BrokenRecord(str(path), f"its tables are not those of a record ({error})") from error
    except UnicodeDecodeError as error:
        raise BrokenRecord(str(path), f"what it says of itself is not UTF-8 text ({error})") from error
    if not rows:
        raise BrokenRecord(str(path), "it has lost its own id")
    id, created_at, mark, format = rows[0]
    if format != header:
        raise BrokenRecord(str(path), f"its header says format {header}, and its tables say {format}")
    return Info(str(id), str(path), str(created_at), mark if isinstance(mark, int) else None)


def located(address: str | os.PathLike[str], *, readonly: bool) -> Path:
    """Return the absolute path of a file. All links are resolved, so that every user of the file gets the same path.

    Raises:
        BadAddress: no file can have that name, or the name is not UTF-8.
        NoRecord: there is no record to read.
        WriteFailed: there is no folder to create a record in.
    """
    try:
        path = Path(address).resolve()
        str(path).encode()  # SQLite opens only names in UTF-8
    except ValueError as error:  # no file can have this name
        raise BadAddress(f"{str(address)!r} is not a name of a file: {error}.") from error
    if readonly and not path.exists():
        raise NoRecord(str(path))
    if not path.parent.is_dir():
        raise WriteFailed(str(path), f"there is no folder {str(path.parent)!r}")
    return path


def busy(path: Path) -> bool:
    """Return whether a file has a log that is not empty: a process writes the file, or ended while writing."""
    try:
        return os.stat(f"{path}-wal").st_size > 0  # noqa: PTH116 - called before each reading of a still file
    except OSError:
        return False


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a file's time of change, size and inode, to notice a later write; `None` while a process writes it."""
    found = os.stat(path)  # noqa: PTH116 - see `busy`
    return None if busy(path) else (found.st_mtime_ns, found.st_size, found.st_ino)


def steady(path: Path, read: Callable[[], T]) -> T:
    """Return the result of a function that reads a file.

    If the file was written during the call, the function is called again.
    """
    while True:
        before = stamp(path)
        try:
            found = read()
        except apsw.Error:
            if before is None or stamp(path) == before:
                raise
            continue
        if before is None or stamp(path) == before:
            return found
