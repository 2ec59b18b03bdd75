"""The connections of a store that read: one for its own queries, one for each user's query, and one for each `tail`.

A record is the stored history of all runs (conversations of agents). Any thread may call the methods. A lost connection
is opened again and its query is repeated until a timeout, because reading changes nothing. A user's query is one
statement in a read-only transaction, so it cannot write.

A row is an encoded entry (one event) of a run. `seq` numbers the rows of one run, `pos` all rows of the record. A
letter is a message in the inbox of a run, and a lease is the right of one process to write a run.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from threading import Event
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.types.string import TextLoader

from gesta.entry import GENESIS, Row
from gesta.errors import RecordError, ServerGone
from gesta.store import BlobRow, Foreign, Info, Lease, Letter, QueryBounds, RunRow, Table
from gesta.stores.common import PAGE, blob_of, milliseconds, turn_of
from gesta.stores.postgres_door import BESIDE, TABLES, VIEWS
from gesta.stores.postgres_open import DAMAGED, Connection, Place, connect, kind_of, told
from gesta.stores.postgres_tables import INDEXED, placed
from gesta.stores.postgres_transaction import channel
from gesta.stores.tables import ROW, UNBOUND, gather

ASKING_S = 0.05  # seconds between two tries to reach a server
T = TypeVar("T")

EVERY = 2**63 - 1
EVERYTHING = """SELECT count(content) + count(annotations) + count(salt) + sum(length(digest)) FROM entries
SELECT sum(length(data)) + sum(length(salt)) FROM blobs
SELECT count(*) FROM (SELECT run, seq FROM entries ORDER BY run, seq) AS each
SELECT count(content) FROM inbox""".splitlines()


class Reader:
    """Reads a record in PostgreSQL, by a connection of its own that cannot write."""

    def __init__(self, place: Place, info: Info, connection: Connection) -> None:
        self._place = place
        self._channel = channel(info)
        self._connection = connection
        self.opened = 1
        """The number of connections that were opened so far. After a crash of the server there is another."""
        self._process = os.getpid()
        self._closed = Event()
        self._turn = turn_of(self)

    def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Return the rows of a run in the order of seq; see `Store.read`."""
        query = f"SELECT {ROW}, pos FROM entries WHERE run = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4"  # noqa: S608
        return [Row(*row) for row in self._all(query, run, after, EVERY if until is None else until, limit)]

    def page(self, after: int, limit: int) -> list[Row]:
        """Return at most `limit` rows, of all runs, with a pos greater than `after`, in the order of pos."""
        query = f"SELECT {ROW}, pos FROM entries WHERE pos > $1 ORDER BY pos LIMIT $2"  # noqa: S608 - constants
        return [Row(*row) for row in self._all(query, after, limit)]

    def place(self, pos: int) -> tuple[int, bytes | None]:
        """Return the pos of the last row of the record, and the digest of the row at `pos`; `None` if none is there."""
        query = "SELECT coalesce(max(pos), 0), (SELECT digest FROM entries WHERE pos = $1) FROM entries"
        ((last, digest),) = self._all(query, pos)
        return int(last), digest

    def head(self, run: str) -> tuple[int, bytes]:
        """Return the seq and the digest (hash) of the last entry of a run; see `Store.head`."""
        rows = self._all("SELECT seq, digest FROM entries WHERE run = $1 ORDER BY seq DESC LIMIT 1", run)
        return rows[0] if rows else (0, GENESIS)

    def last(self) -> int:
        """Return the pos of the last entry in the record; see `Store.last`."""
        ((last,),) = self._all("SELECT coalesce(max(pos), 0) FROM entries")
        return int(last)

    def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return the runs in the order in which they were opened; see `Store.runs`."""
        asked = [(column, value) for column, value in (("session", session), ("name", name)) if value is not None]
        tests = [
            f"{column} = ${place} AND left({column}, {INDEXED}) = left(${place}, {INDEXED})"  # as its index does
            for place, (column, _) in enumerate(asked, 1)
        ]
        columns = "run, session, name, record, parent_run, at, head, last_at, pos"
        query = f"SELECT {columns} FROM runs WHERE {' AND '.join(tests) or 'true'} ORDER BY pos"  # noqa: S608 - ours
        return [RunRow(*row) for row in self._all(query, *(value for _, value in asked))]

    def get_blob(self, run: str, name: str) -> BlobRow:
        """Return a blob (a large value) of a run; see `Store.get_blob`."""
        query = "SELECT name, salt, data FROM blobs WHERE run = $1 AND name = $2"
        rows = self._all(query, run, name, binary=True)  # as text, it would be twice as large, and at most 1 GB
        return blob_of(self._place.address, run, name, rows)

    def holds(self, lease: Lease) -> bool:
        """Return whether the process of a lease still holds it; see `Store.holds`."""
        query = "SELECT 1 FROM leases WHERE run = $1 AND owner = $2 AND epoch = $3"
        return bool(self._all(query, lease.run, lease.owner, lease.epoch))

    def inboxes(self, runs: Iterable[str]) -> dict[str, list[Letter]]:
        """Return the letters in the inboxes of these runs, by run; see `Store.inbox`."""
        found: dict[str, list[Letter]] = {run: [] for run in runs}
        query = "SELECT run, key, content, at, id FROM inbox WHERE run = ANY($1) ORDER BY id"
        for row in self._all(query, [*filter(sayable, found)]):
            found[row[0]].append(Letter(*row))
        return found

    def damage(self) -> list[str]:
        """Read all pages of the tables. Return a text for each damage that the server reports; see `Store.damage`."""
        found = []
        for query in EVERYTHING:
            try:
                self._all(query)
            except RecordError as error:
                if not isinstance(error.__cause__, (*DAMAGED, psycopg.InternalError)):
                    raise
                found.append(str(error.__cause__))
        return found

    def foreign(self) -> Foreign:
        """Return the objects in the schema that Gesta did not make, such as tables and views; see `Store.foreign`."""
        rows = self._all(BESIDE, self._place.schema, TABLES, VIEWS)
        return Foreign(beside=tuple(str(one) for (one,) in rows))

    def connect(self) -> Connection:
        """Open a read-only connection for one query of a user. Raises RecordError if that fails."""
        connection = self._patiently(lambda: connect(self._place, readonly=True))
        for name in ("json", "jsonb"):
            connection.adapters.register_loader(name, TextLoader)  # JSON is returned as text, as in SQLite
        return connection

    def ask(
        self, connection: Connection, query: str, parameters: Sequence[Any], bounds: QueryBounds = UNBOUND
    ) -> Table:
        """Run a user's query, return its rows, and close the connection.

        Args:
            connection: a result of `connect`.
            query: one statement; its parameters are `?`, or `$1`, `$2`.

        Raises:
            RecordError: the query would write, goes beyond a bound, the server refuses it, or it was interrupted.
        """
        try:
            if bounds.seconds is not None:
                connection.execute(f"SET statement_timeout = {milliseconds(bounds.seconds)}")
            connection.execute("BEGIN READ ONLY")
            return _answer(connection, (placed(query, len(parameters)), tuple(parameters)), bounds)
        except errors.ReadOnlySqlTransaction as error:
            raise RecordError(
                f"Refused: {query!r} would change the record, or reach beyond it. Only reading queries are answered; "
                "a record changes through its runs alone."
            ) from error
        except (psycopg.Error, UnicodeError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, errors.QueryCanceled) and "statement timeout" in str(
                error
            ):  # that error has no SQL state of its own
                raise bounds.passed(query, "seconds") from error
            if connection.closed or isinstance(error, DAMAGED):
                raise told(error, self._place.address, writing=False) from error
            raise RecordError(f"Cannot answer {query!r}: {error}.") from error
        finally:
            connection.close()

    def listen(self) -> Connection:
        """Open a connection on which the server reports each commit to the record.

        Raises RecordError if the server cannot be reached; this call does not try again.
        """
        self._open()
        try:
            return self._listen()
        except psycopg.Error as error:
            raise told(error, self._place.address, writing=False) from error

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        self._closed.set()  # also ends a wait for the server in another thread
        with self._turn:
            if os.getpid() == self._process:
                self._connection.close()

    def declared(self, process: str) -> bool:
        """Return whether a person has declared that a process has ended. Raises RecordError if the query fails."""
        query = "SELECT to_jsonb(owners) ->> 'gone_by' FROM owners WHERE owner = $1"  # format 1 has no such column
        return any(by is not None for (by,) in self._all(query, process))

    def _open(self) -> None:
        if self._closed.is_set():
            raise RecordError(f"{self._place.address!r} was closed. Open it again to read it.")
        if os.getpid() != self._process:
            raise RecordError(f"{self._place.address!r} was opened before this process was forked. Open it again here.")

    def _all(self, query: str, *values: Any, binary: bool = False) -> list[Any]:
        """Return all rows of a query. Raises RecordError if it fails.

        Args:
            binary: whether the server sends the values in its own form, and not as text.
        """
        if any(isinstance(value, str) and not sayable(value) for value in values):
            return []
        with self._turn:
            return self._patiently(lambda: self._once(query, values, binary=binary))

    def _once(self, query: str, values: tuple[Any, ...], *, binary: bool) -> list[Any]:
        if self._connection.closed:
            self._connection = connect(self._place, readonly=True)
            self.opened += 1
        return self._connection.execute(query, values, binary=binary).fetchall()

    def _listen(self) -> Connection:
        connection = connect(self._place, readonly=True)
        try:
            connection.execute(f'LISTEN "{self._channel}"')
        except BaseException:
            connection.close()
            raise
        return connection

    def _patiently(self, work: Callable[[], T]) -> T:
        """Call a function, and call it again while the server cannot be reached, for at most `busy_s` seconds.

        Raises RecordError after that time, or at once if the function fails for another reason.
        """
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


class Pages:
    """Reads the rows of all runs after a pos, page by page."""

    def __init__(self, reader: Reader, address: str, after: int) -> None:
        self._reader, self._address, self._pos = reader, address, after
        self._digest: bytes | None = None  # of the row at this pos; `None` if none is there, as after pruning
        self._opened = 0

    def next(self) -> list[Row]:
        """Return the next rows; none if there are no more now.

        Raises RecordError if a crash of the server lost the row that was read last: other rows may have its pos and
        those before it by now, and would be left out.
        """
        rows, opened = self._reader.page(self._pos, PAGE), self._reader.opened
        if opened != self._opened:
            last, found = self._reader.place(self._pos)
            if last < self._pos or (self._digest and found not in (None, self._digest)):
                raise RecordError(
                    f"The server of {self._address!r} crashed, and lost entries that were read before. Read again: "
                    "other entries have their places."
                )
            self._opened, self._digest = opened, found
        if rows:
            self._pos, self._digest = rows[-1].pos, rows[-1].digest
        return rows


def _answer(connection: Connection, asked: tuple[str, tuple[Any, ...]], bounds: QueryBounds) -> Table:
    """Return the result of a user's query. With a bound on rows or size, the rows are fetched one by one.

    Raises RecordError if a bound is exceeded, and psycopg.Error if the query fails.

    Args:
        asked: the text of the query, and the values of its parameters.
    """
    cursor, rows = connection.cursor(), list[tuple[Any, ...]]()
    if bounds.rows is not None or bounds.size_bytes is not None:
        with suppress_nothing_told():
            gather((tuple(map(plain, row)) for row in cursor.stream(*asked)), rows, bounds, asked[0])
    if not rows:  # also after a stream without rows, because it does not report the columns
        # prepared, so that the server refuses a text with several statements, one of which may be a COMMIT
        cursor.execute(*asked, prepare=True)
        rows = [tuple(map(plain, row)) for row in cursor] if cursor.description is not None else []
    return Table(tuple(column.name for column in cursor.description or ()), rows)


@contextmanager
def suppress_nothing_told() -> Iterator[None]:
    """Ignore the error that psycopg raises inside the block when a statement returns no rows.

    All other errors are raised.
    """
    try:
        yield
    except psycopg.ProgrammingError as error:
        if error.sqlstate is not None:
            raise


def sayable(text: str) -> bool:
    """Return whether PostgreSQL can store a text. U+0000 and a lone half of a surrogate pair cannot be stored."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text))


def plain(cell: Any) -> Any:
    """Return a cell of a result in the type that SQLite would return: text, a number, bytes or `None`."""
    if isinstance(cell, Decimal):
        return int(cell) if cell.is_finite() and cell == cell.to_integral_value() else float(cell)
    return cell if isinstance(cell, str | int | float | bytes | None) else str(cell)
