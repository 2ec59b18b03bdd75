"""The one reading connection of a store, and one more for each query of a user.

Synchronous, and under a lock: every method may be called from any thread. Readers never wait for a writer. A record
that nobody is writing is read as a still file, so that nothing is put beside it, not even in a folder that cannot be
written; when somebody does write it after all, that shows, and it is read as a live one from then on.
"""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from gesta.entry import GENESIS, Row
from gesta.errors import BrokenRecord, RecordError
from gesta.store import BlobRow, Letter, RunRow, Table
from gesta.stores.sqlite_open import connect_reading, disconnect, stamp, steady, told
from gesta.stores.sqlite_writer import WAITING
from gesta.stores.tables import ROW, ask

EVERY = 2**63 - 1


class Reader:
    """Who reads a record's file."""

    def __init__(self, path: Path, *, still: bool) -> None:
        """Connect. `still` is False beside a writer of the same store. Raises apsw.Error."""
        self._path = path
        self._closed = False
        self._process = os.getpid()
        self._turn = threading.Lock()
        self._stamp = stamp(path) if still else None  # none: live, and guarded by SQLite's own locks
        self._connect()

    def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Rows of a run by seq; see `Store.read`. Cost: 20 us, and 1.5 us a row."""
        query = f"SELECT {ROW}, pos FROM entries WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"  # noqa: S608
        values = (run, after, EVERY if until is None else until, -1 if limit is None else limit)
        return [Row(*row) for row in self._all(query, values)]

    def page(self, after: int, limit: int) -> list[Row]:
        """Rows of all runs by pos, more than `after`, at most `limit`."""
        query = f"SELECT {ROW}, pos FROM entries WHERE pos > ? ORDER BY pos LIMIT ?"  # noqa: S608 - constants
        return [Row(*row) for row in self._all(query, (after, limit))]

    def head(self, run: str) -> tuple[int, bytes]:
        """Seq and digest of the last entry; see `Store.head`."""
        rows = self._all("SELECT seq, digest FROM entries WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,))
        return rows[0] if rows else (0, GENESIS)

    def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Runs in the order in which they were opened; see `Store.runs`."""
        asked = [(column, value) for column, value in (("session", session), ("name", name)) if value is not None]
        where = " AND ".join(f"{column} = ?" for column, _ in asked) or "true"
        columns = "run, session, name, record, parent_run, at, head, last_at, pos"
        query = f"SELECT {columns} FROM runs WHERE {where} ORDER BY pos"  # noqa: S608 - column names of ours
        return [RunRow(*row) for row in self._all(query, tuple(value for _, value in asked))]

    def get_blob(self, run: str, name: str) -> BlobRow:
        """Read a blob; see `Store.get_blob`."""
        rows = self._all("SELECT name, salt, data FROM blobs WHERE run = ? AND name = ?", (run, name))
        if not rows:
            raise BrokenRecord(str(self._path), f"run {run!r} has no blob {name!r}")
        return BlobRow(*rows[0])

    def damage(self) -> list[str]:
        """What SQLite finds broken; see `Store.damage`."""
        return [str(line) for (line,) in self._all("PRAGMA integrity_check(20)", ()) if line != "ok"]

    def inbox(self, run: str) -> list[Letter]:
        """Letters that wait; see `Store.inbox`. Cost: 10 us when there is none."""
        return [Letter(*row) for row in self._all(WAITING, (run,))]

    def declared(self, process: str) -> bool:
        """Return whether a person said that a process has ended."""
        if not self._all("SELECT 1 FROM pragma_table_info('owners') WHERE name = 'gone_by'", ()):
            return False  # a record of format 1
        return bool(self._all("SELECT 1 FROM owners WHERE owner = ? AND gone_by IS NOT NULL", (process,)))

    def connect(self) -> apsw.Connection:
        """Open a connection for one query of a user. Raises RecordError."""
        self._open()
        try:
            return connect_reading(self._path, still=self._stamp is not None)
        except apsw.Error as error:
            raise told(error, str(self._path), writing=False) from error

    def ask(self, connection: apsw.Connection, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Answer a user's query on a connection that `connect` gave, and close it.

        Raises:
            RecordError: the query would write, SQLite cannot make sense of it, or it was interrupted.
        """
        try:
            return ask(connection, query, parameters)
        except apsw.Error as error:
            raise told(error, str(self._path), writing=False) from error
        finally:
            disconnect(connection)

    def close(self) -> None:
        """Close the connection; twice does nothing."""
        with self._turn:
            if not self._closed and os.getpid() == self._process:
                disconnect(self._connection)
            self._closed = True

    def _connect(self) -> None:
        self._connection = connect_reading(self._path, still=self._stamp is not None)
        self._rows = self._connection.cursor()

    def _open(self) -> None:
        if self._closed:
            raise RecordError(f"{str(self._path)!r} was closed. Open it again to read it.")
        if os.getpid() != self._process:
            raise RecordError(f"{str(self._path)!r} was opened before this process was forked. Open it again here.")

    def _all(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        """Give all rows of a query, so that no reading is left open. Raises RecordError and BrokenRecord."""
        with self._turn:
            self._open()
            try:
                if self._stamp is None:
                    return self._rows.execute(query, values).fetchall()
                return steady(self._path, lambda: self._all_still(query, values))
            except UnicodeEncodeError:  # half a surrogate pair, which no text on record can hold
                return []
            except (apsw.Error, OSError) as error:
                raise told(error, str(self._path), writing=False) from error

    def _all_still(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        now = stamp(self._path)
        if now != self._stamp:
            disconnect(self._connection)
            self._stamp = now
            self._connect()
        return self._rows.execute(query, values).fetchall()
