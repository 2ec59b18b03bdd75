"""The one reading connection of a store, one more for each query of a user, and one for each that follows.

Synchronous, and under a lock: every method may be called from any thread. A connection that was lost is opened anew,
for as long as the server is waited for, and the query is asked once more: reading changes nothing. A user's query
has a transaction of its own that can only read, and is one statement, so that none can leave that transaction.
"""

import os
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from threading import Event, Lock
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.types.string import TextLoader

from gesta.entry import GENESIS, Row
from gesta.errors import BrokenRecord, RecordError, ServerGone
from gesta.store import BlobRow, Info, Lease, Letter, RunRow, Table
from gesta.stores.postgres_open import DAMAGED, Connection, Place, connect, kind_of, told
from gesta.stores.postgres_tables import INDEXED, placed
from gesta.stores.postgres_transaction import channel
from gesta.stores.tables import ROW

ASKING_S = 0.05  # between tries to reach a server that is away
T = TypeVar("T")

EVERY = 2**63 - 1
EVERYTHING = """SELECT count(content) + count(annotations) + count(salt) + sum(length(digest)) FROM entries
SELECT sum(length(data)) + sum(length(salt)) FROM blobs
SELECT count(*) FROM (SELECT run, seq FROM entries ORDER BY run, seq) AS each
SELECT count(content) FROM inbox""".splitlines()


class Reader:
    """Who reads a record in PostgreSQL."""

    def __init__(self, place: Place, info: Info, connection: Connection) -> None:
        self._place = place
        self._channel = channel(info)
        self._connection = connection
        self._process = os.getpid()
        self._closed = Event()
        self._turn = Lock()

    def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Rows of a run by seq; see `Store.read`."""
        query = f"SELECT {ROW}, pos FROM entries WHERE run = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4"  # noqa: S608
        return [Row(*row) for row in self._all(query, run, after, EVERY if until is None else until, limit)]

    def page(self, after: int, limit: int) -> list[Row]:
        """Rows of all runs by pos, more than `after`, at most `limit`."""
        query = f"SELECT {ROW}, pos FROM entries WHERE pos > $1 ORDER BY pos LIMIT $2"  # noqa: S608 - constants
        return [Row(*row) for row in self._all(query, after, limit)]

    def head(self, run: str) -> tuple[int, bytes]:
        """Seq and digest of the last entry; see `Store.head`."""
        rows = self._all("SELECT seq, digest FROM entries WHERE run = $1 ORDER BY seq DESC LIMIT 1", run)
        return rows[0] if rows else (0, GENESIS)

    def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Runs in the order in which they were opened; see `Store.runs`."""
        asked = [(column, value) for column, value in (("session", session), ("name", name)) if value is not None]
        tests = [
            f"{column} = ${place} AND left({column}, {INDEXED}) = left(${place}, {INDEXED})"  # its index holds so much
            for place, (column, _) in enumerate(asked, 1)
        ]
        columns = "run, session, name, record, parent_run, at, head, last_at, pos"
        query = f"SELECT {columns} FROM runs WHERE {' AND '.join(tests) or 'true'} ORDER BY pos"  # noqa: S608 - ours
        return [RunRow(*row) for row in self._all(query, *(value for _, value in asked))]

    def get_blob(self, run: str, name: str) -> BlobRow:
        """Read a blob; see `Store.get_blob`."""
        rows = self._all("SELECT name, salt, data FROM blobs WHERE run = $1 AND name = $2", run, name)
        if not rows:
            raise BrokenRecord(self._place.address, f"run {run!r} has no blob {name!r}")
        return BlobRow(*rows[0])

    def holds(self, lease: Lease) -> bool:
        """Return whether a lease is still held; see `Store.holds`."""
        query = "SELECT 1 FROM leases WHERE run = $1 AND owner = $2 AND epoch = $3"
        return bool(self._all(query, lease.run, lease.owner, lease.epoch))

    def inbox(self, run: str) -> list[Letter]:
        """Letters that wait; see `Store.inbox`."""
        query = "SELECT run, key, content, at, id FROM inbox WHERE run = $1 ORDER BY id"
        return [Letter(*row) for row in self._all(query, run)]

    def damage(self) -> list[str]:
        """Read every page, and say what the server finds damaged; see `Store.damage`."""
        found = []
        for query in EVERYTHING:
            try:
                self._all(query)
            except RecordError as error:
                if not isinstance(error.__cause__, (*DAMAGED, psycopg.InternalError)):
                    raise
                found.append(str(error.__cause__))
        return found

    def connect(self) -> Connection:
        """Open a connection for one query of a user. Raises RecordError."""
        connection = self._patiently(lambda: connect(self._place, readonly=True))
        for name in ("json", "jsonb"):
            connection.adapters.register_loader(name, TextLoader)  # as it is written
        return connection

    def ask(self, connection: Connection, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Answer a user's query on a connection that `connect` gave, and close it.

        Args:
            query: one statement; its parameters are `?`, or `$1`, `$2`.

        Raises:
            RecordError: the query would write, the server cannot make sense of it, or it was interrupted.
        """
        try:
            connection.execute("BEGIN READ ONLY")
            # prepared: of text with several statements, the server would carry out all, a COMMIT among them
            cursor = connection.execute(placed(query, len(parameters)), tuple(parameters), prepare=True)
            if cursor.description is None:
                return Table((), [])
            rows = [tuple(plain(cell) for cell in row) for row in cursor]
            return Table(tuple(column.name for column in cursor.description), rows)
        except errors.ReadOnlySqlTransaction as error:
            raise RecordError(
                f"Refused: {query!r} would change the record, or reach beyond it. Only reading queries are answered; "
                "a record changes through its runs alone."
            ) from error
        except (psycopg.Error, UnicodeError, TypeError, ValueError, OverflowError) as error:
            if connection.closed or isinstance(error, DAMAGED):
                raise told(error, self._place.address, writing=False) from error
            raise RecordError(f"Cannot answer {query!r}: {error}.") from error
        finally:
            connection.close()

    def listen(self) -> Connection:
        """Open a connection that hears of commits. Raises RecordError; the server is not waited for."""
        self._open()
        try:
            return self._listen()
        except psycopg.Error as error:
            raise told(error, self._place.address, writing=False) from error

    def close(self) -> None:
        """Close the connection; twice does nothing."""
        self._closed.set()  # ends also the waiting for a server
        with self._turn:
            if os.getpid() == self._process:
                self._connection.close()

    def declared(self, process: str) -> bool:
        """Return whether a person says that a process has ended. Raises RecordError."""
        query = "SELECT to_jsonb(owners) ->> 'gone_by' FROM owners WHERE owner = $1"  # format 1 has no such column
        return any(by is not None for (by,) in self._all(query, process))

    def _open(self) -> None:
        if self._closed.is_set():
            raise RecordError(f"{self._place.address!r} was closed. Open it again to read it.")
        if os.getpid() != self._process:
            raise RecordError(f"{self._place.address!r} was opened before this process was forked. Open it again here.")

    def _all(self, query: str, *values: Any) -> list[Any]:
        """Give all rows of a query. Raises RecordError and BrokenRecord."""
        if any(isinstance(value, str) and not sayable(value) for value in values):
            return []
        with self._turn:
            return self._patiently(lambda: self._once(query, values))

    def _once(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        if self._connection.closed:
            self._connection = connect(self._place, readonly=True)
        return self._connection.execute(query, values).fetchall()

    def _listen(self) -> Connection:
        connection = connect(self._place, readonly=True)
        try:
            connection.execute(f'LISTEN "{self._channel}"')
        except BaseException:
            connection.close()
            raise
        return connection

    def _patiently(self, work: Callable[[], T]) -> T:
        """Do a work again while the server cannot be reached, as long as it is waited for. Raises RecordError."""
        until = 0.0
        while True:
            self._open()
            try:
                return work()
            except psycopg.Error as error:
                known, until = until, until or time.monotonic() + self._place.busy_s
                away = kind_of(error) is ServerGone and time.monotonic() < until
                if not away or (known and self._closed.wait(ASKING_S)):
                    raise told(error, self._place.address, writing=False) from error


def sayable(text: str) -> bool:
    """Tell whether PostgreSQL can hold a text: none on record has U+0000 or half a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)


def plain(cell: Any) -> Any:
    """Give a value as SQLite would: text, a number, bytes or None."""
    if isinstance(cell, Decimal):
        return int(cell) if cell.is_finite() and cell == cell.to_integral_value() else float(cell)
    return cell if isinstance(cell, str | int | float | bytes | None) else str(cell)
