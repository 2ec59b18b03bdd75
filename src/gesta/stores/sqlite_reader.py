"""The connections of a store that read: one for its own queries, and one for each user's query.

A record is the stored history of all runs (conversations of agents). Any thread may call the methods. Readers never
wait for a writer. A record that no process writes is read without locks. So no file is made beside it, and the folder
need not be writable. If a process begins to write the record, the reader notices that, and uses SQLite's locks from
then on.

A row is an encoded entry (one event) of a run. `seq` numbers the rows of one run, `pos` all rows of the record. A
letter is a message in the inbox of a run.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any

import apsw

from gesta.entry import GENESIS, Row
from gesta.errors import BrokenRecord, RecordError
from gesta.store import BlobRow, Foreign, Info, Letter, QueryBounds, RunRow, Table
from gesta.stores.common import blob_of, letters_of, turn_of
from gesta.stores.sqlite_door import KNOWN, SCHEMA, Schema, as_objects, examined
from gesta.stores.sqlite_open import connect_reading, disconnect, identity, stamp, steady, told
from gesta.stores.sqlite_saving import SAVED
from gesta.stores.sqlite_writer import WAITING
from gesta.stores.tables import ROW, RUNS, UNBOUND, ask, escaped

EVERY = 2**63 - 1


def held(value: Any) -> Any:
    """Return a value that SQLite can compare with a column: a whole number beyond 64 bits becomes the nearest one."""
    return max(-EVERY, min(EVERY, value)) if type(value) is int else value


class Reader:
    """Reads a record's file, by a connection of its own that cannot write."""

    def __init__(self, path: Path, *, still: bool) -> None:
        """Open the connection. Raises apsw.Error.

        Args:
            still: whether to read the file without locks while no process writes it. It must be `False` if the same
                store also writes the file.
        """
        self._path = path
        self._closed = False
        self._process = os.getpid()
        self._turn = turn_of(self)
        self._alone = still  # no writer of this store needs the file that was opened
        self._stamp = stamp(path) if still else None  # with None, the file is read under SQLite's own locks
        self._connect()

    def identity(self) -> Info:
        """Return the identity of the record. If that fails, the reader is closed.

        Raises:
            apsw.Error: the file cannot be read. BrokenRecord, NewerRecord: it is not a record that this release reads.
        """
        try:
            if self._stamp is None:
                return identity(self._connection, self._path)
            return steady(self._path, lambda: identity(self._still(), self._path))
        except BaseException:
            self.close()
            raise

    def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Return the rows of a run in the order of seq; see `Store.read`. Cost: 20 us, and 1.5 us for each row."""
        query = f"SELECT {ROW}, pos FROM main.entries WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"  # noqa: S608
        values = (run, after, EVERY if until is None else until, -1 if limit is None else limit)
        return [Row(*row) for row in self._all(query, values)]

    def page(self, after: int, limit: int) -> list[Row]:
        """Return at most `limit` rows, of all runs, with a pos greater than `after`, in the order of pos."""
        query = f"SELECT {ROW}, pos FROM main.entries WHERE pos > ? ORDER BY pos LIMIT ?"  # noqa: S608 - constants
        return [Row(*row) for row in self._all(query, (after, limit))]

    def head(self, run: str) -> tuple[int, bytes]:
        """Return the seq and the digest (hash) of the last entry of a run; see `Store.head`."""
        rows = self._all("SELECT seq, digest FROM main.entries WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,))
        if rows and not (isinstance(rows[0][0], int) and isinstance(rows[0][1], bytes)):
            raise BrokenRecord(str(self._path), f"entry {run}.{rows[0][0]}: column seq or digest holds another type")
        return rows[0] if rows else (0, GENESIS)

    def last(self) -> int:
        """Return the pos of the last entry in the record; see `Store.last`."""
        ((last,),) = self._all("SELECT coalesce(max(pos), 0) FROM main.entries", ())
        return int(last)

    def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return the runs in the order in which they were opened; see `Store.runs`."""
        asked = [(column, value) for column, value in (("session", session), ("name", name)) if value is not None]
        # with a bare `?`, SQLite compiles the statement anew for each value, which takes seven times as long
        where = " AND ".join(f"{column} = (SELECT ?)" for column, _ in asked) or "true"
        columns = "run, session, name, record, parent_run, at, head, last_at, pos"
        query = f"SELECT {columns} FROM ({RUNS}) WHERE {where} ORDER BY pos"  # noqa: S608 - column names of ours
        return [_run(*row) for row in self._all(query, tuple(value for _, value in asked))]

    def get_blob(self, run: str, name: str) -> BlobRow:
        """Return a blob (a large value) of a run; see `Store.get_blob`."""
        rows = self._all("SELECT name, salt, data FROM main.blobs WHERE run = ? AND name = ?", (run, name))
        return blob_of(str(self._path), run, name, rows)

    def damage(self) -> list[str]:
        """Return a text for each damage that SQLite finds; see `Store.damage`.

        If the file holds other programs' tables, only Gesta's tables are checked. Checking the other tables would run
        the code of their constraints and indexes.
        """
        found = self.schema()
        tables = [name for name in sorted(KNOWN) if found.beside and KNOWN[name][0].type == "table"]
        there = {name for (name,) in self._all("SELECT name FROM main.sqlite_master WHERE type = 'table'", ())}
        queries = [f"PRAGMA main.integrity_check({name})" for name in tables if name in there]
        lines = [line for query in queries or ["PRAGMA main.integrity_check(20)"] for (line,) in self._all(query, ())]
        return [str(line) for line in lines if line != "ok"][:20]

    def foreign(self) -> Foreign:
        """Return the objects in the file that Gesta did not make, such as tables and views; see `Store.foreign`."""
        found = self.schema()
        listed = self._all("SELECT 1 FROM main.sqlite_master WHERE name = 'gesta_tables'", ())
        names = {name for (name,) in self._all("SELECT name FROM main.gesta_tables", ())} if listed else set()
        tools = [each for each in found.beside if each.table in names or each.name in names]
        others = [each for each in found.beside if each not in tools]
        aside, beside, made = (tuple(map(str, part)) for part in (found.aside, others, tools))
        return Foreign(aside, beside, made, _shared(self._path))

    def schema(self) -> Schema:
        """Return which objects of the file's schema are not Gesta's, and which of Gesta's are missing."""
        return examined(as_objects(self._all(SCHEMA, ())))

    def inbox(self, run: str) -> list[Letter]:
        """Return the letters in the inbox of a run; see `Store.inbox`. Cost: 10 us if the inbox is empty."""
        return letters_of(str(self._path), self._all(WAITING, (run,)))

    def declared(self, process: str) -> bool:
        """Return whether a person has declared that a process has ended."""
        if not self._all("SELECT 1 FROM pragma_table_info('owners') WHERE name = 'gone_by'", ()):
            return False  # a record of format 1
        return bool(self._all("SELECT 1 FROM main.owners WHERE owner = ? AND gone_by IS NOT NULL", (process,)))

    def connect(self) -> apsw.Connection:
        """Open a read-only connection for one query of a user. Raises RecordError if that fails."""
        self._open()
        try:
            return connect_reading(self._path, still=self._stamp is not None)
        except apsw.Error as error:
            raise told(error, str(self._path), writing=False) from error

    def ask(
        self, connection: apsw.Connection, query: str, parameters: Sequence[Any], bounds: QueryBounds = UNBOUND
    ) -> Table:
        """Run a user's query, return its rows, and close the connection.

        Args:
            connection: a result of `connect`.

        Raises:
            RecordError: the query would write, goes beyond a bound, was refused by SQLite, or was interrupted.
        """
        try:
            return ask(connection, query, parameters, bounds)
        except apsw.Error as error:
            raise told(error, str(self._path), writing=False) from error
        finally:
            disconnect(connection)

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        with self._turn:
            if not self._closed and os.getpid() == self._process:
                disconnect(self._connection)
            self._closed = True

    def _replaced(self) -> None:
        """Open the file that took the place of the one that was opened, if there is one. Cost: 2 us."""
        with suppress(FileNotFoundError):  # what is open can still be read
            found = os.stat(self._path)  # noqa: PTH116 - as `stamp`, at each query
            if (found.st_dev, found.st_ino) != self._file:
                disconnect(self._connection)
                self._stamp = stamp(self._path)
                self._connect()

    def _connect(self) -> None:
        found = os.stat(self._path)  # noqa: PTH116 - before it is opened, so that a later one is noticed
        self._connection = connect_reading(self._path, still=self._stamp is not None)
        self._rows = self._connection.cursor()
        self._file = found.st_dev, found.st_ino

    def _open(self) -> None:
        if self._closed:
            raise RecordError(f"{str(self._path)!r} was closed. Open it again to read it.")
        if os.getpid() != self._process:
            raise RecordError(f"{str(self._path)!r} was opened before this process was forked. Open it again here.")

    def _all(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        """Return all rows of a query at once, so that no statement stays open. Raises RecordError if it fails."""
        with self._turn:
            self._open()
            try:
                if self._stamp is None and self._alone:
                    self._replaced()
                if self._stamp is None:
                    return self._rows.execute(query, values).fetchall()
                return steady(self._path, lambda: self._all_still(query, values))
            except OverflowError:  # a value is a number beyond 64 bits
                numbers = tuple(map(held, values))
            except UnicodeEncodeError:  # a value holds a lone surrogate, which no text on record can hold
                return []
            except UnicodeDecodeError as odd:
                return self._all_escaped(query, values, odd)
            except (apsw.Error, OSError) as error:
                raise told(error, str(self._path), writing=False) from error
        return self._all(query, numbers)

    def _all_escaped(self, query: str, values: tuple[Any, ...], odd: UnicodeDecodeError) -> list[Any]:
        """Return the rows of a query that finds texts which are not valid UTF-8. Wrong bytes become lone surrogates.

        Args:
            odd: the error that the query raised at first.
        """
        try:
            return list(escaped(self._connection, query, values, odd))
        except apsw.Error as error:
            raise told(error, str(self._path), writing=False) from error

    def _all_still(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        self._still()
        return self._rows.execute(query, values).fetchall()

    def _still(self) -> apsw.Connection:
        """Return this reader's connection, or a new one if the file was written since the last call."""
        now = stamp(self._path)
        if now != self._stamp:
            disconnect(self._connection)
            self._stamp = now
            self._connect()
        return self._connection


def _run(*row: Any) -> RunRow:
    """Return the row of a run from the columns of the view `runs`.

    A value of a wrong type becomes its text, or 0 in a column of numbers.
    """
    texts = [cell if isinstance(cell, str | None) else str(cell) for cell in row]
    run, session, name, record, parent, at, _, last_at, _ = [*texts]
    head, pos = (cell if isinstance(cell, int) else 0 for cell in (row[6], row[8]))
    return RunRow(str(run), str(session), str(name), str(record), parent, str(at), head, str(last_at), pos)


def _shared(path: Path) -> tuple[str, ...]:
    """Return a text for each file of a record that other users may read or write: its name and its mode.

    The files are the record itself, the files into which entries of the record were saved, and their write-ahead logs.
    """
    files = [path, *sorted(path.parent.glob(f"{escape(path.stem)}{SAVED}*{escape(path.suffix)}"))]
    modes = {}
    for each in [found for file in files for found in (file, Path(f"{file}-wal"))]:
        with suppress(OSError):  # it may have been removed since
            modes[each] = stat.S_IMODE(each.stat().st_mode)
    return tuple(f"{each.name} (mode {mode:04o})" for each, mode in modes.items() if mode & 0o077)
