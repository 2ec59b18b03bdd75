"""The tables of a record, and the one way to ask them anything: SQL that can only read.

Text is what a person reads, so that any SQLite of 3.38 or later shows a record with plain SQL. `runs` is a view: what
it says is read from the entries, and there is no second truth. The partial index behind it finds the begins that
opened runs without looking at any other entry. What else is known of a record are views; see `views`.
"""

from collections.abc import Sequence
from typing import Any

import apsw

from gesta.errors import RecordError
from gesta.store import Table
from gesta.stores.views import EACH, VIEWS

APPLICATION_ID = 0x67657374
"""`gest`: stands in the header of the file, and tells a record from any other SQLite database."""

FORMAT = 2
"""Of the tables; stands in the header as `user_version`. The format of entries has its own number."""

TABLES = """
CREATE TABLE record(
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL,
    format INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    mark INTEGER,
    adopted_by TEXT
) STRICT;

CREATE TABLE entries(
    pos INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at TEXT NOT NULL,
    span INTEGER NOT NULL,
    causes TEXT NOT NULL,
    version INTEGER NOT NULL,
    content TEXT,
    annotations TEXT,
    salt BLOB,
    digest BLOB NOT NULL,
    seal BLOB,
    UNIQUE (run, seq)
) STRICT;

CREATE INDEX opened ON entries(json_extract(content, '$.opened.session'), json_extract(content, '$.opened.name'))
WHERE kind = 'begin' AND json_extract(content, '$.opened.session') IS NOT NULL;

CREATE VIEW runs AS
SELECT
    first.run AS run,
    json_extract(first.content, '$.opened.session') AS session,
    json_extract(first.content, '$.opened.name') AS name,
    json_extract(first.content, '$.opened.record') AS record,
    json_extract(first.content, '$.opened.parent_run') AS parent_run,
    first.at AS at,
    last.seq AS head,
    last.at AS last_at,
    first.pos AS pos
FROM entries AS first INDEXED BY opened
JOIN entries AS last
    ON last.run = first.run AND last.seq = (SELECT max(seq) FROM entries AS every WHERE every.run = first.run)
WHERE first.kind = 'begin' AND json_extract(first.content, '$.opened.session') IS NOT NULL;

CREATE TABLE blobs(
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    name TEXT NOT NULL,
    salt BLOB NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (run, name)
) STRICT;

CREATE TABLE inbox(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    content TEXT NOT NULL,
    at TEXT NOT NULL
) STRICT;
CREATE INDEX inbox_run ON inbox(run);

CREATE TABLE inbox_keys(
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    UNIQUE (run, key)
) STRICT;

CREATE TABLE owners(
    owner TEXT PRIMARY KEY,
    process INTEGER NOT NULL,
    host TEXT NOT NULL,
    since TEXT NOT NULL,
    gone_by TEXT
) STRICT;

CREATE TABLE leases(
    run TEXT PRIMARY KEY,
    owner TEXT,
    epoch INTEGER NOT NULL,
    since TEXT NOT NULL,
    mirror_of TEXT
) STRICT;
"""
"""The lease of a run is held while its owner is a living process in which a holder has it in use."""

MIGRATIONS = (
    "ALTER TABLE record ADD COLUMN mark INTEGER",
    "ALTER TABLE record ADD COLUMN adopted_by TEXT",
    "ALTER TABLE owners ADD COLUMN gone_by TEXT",
    "ALTER TABLE leases ADD COLUMN mirror_of TEXT",
)
"""Statements that bring the tables of format 1 to format 2; then the format is set, so that 0.1.0 writes no more."""

TABLES += VIEWS

ROW = "run, seq, kind, at, span, causes, version, content, annotations, salt, digest"
"""The columns of a `Row`, in its order, without pos."""

ADD_ROW = f"INSERT INTO entries({ROW}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
ADD_BLOB = "INSERT OR IGNORE INTO blobs(run, name, salt, data) VALUES(?, ?, ?, ?)"
ADD_LETTER = "INSERT INTO inbox(id, run, key, content, at) VALUES(?, ?, ?, ?, ?)"
ADD_RECORD = "INSERT INTO record(one, id, format, created_at) VALUES(1, ?, ?, ?)"

PRUNE = (
    "DELETE FROM entries WHERE run = ?",
    "DELETE FROM blobs WHERE run = ?",
    "DELETE FROM inbox WHERE run = ?",
    "DELETE FROM inbox_keys WHERE run = ?",
    "UPDATE leases SET owner = NULL, mirror_of = NULL WHERE run = ?",
)
"""What takes a run away; its epoch stays, so an old writer is refused for ever. The index of words is told before."""

WORDS_KNOWN = "SELECT 1 FROM sqlite_schema WHERE name = 'gesta_words'"
FORGET_WORDS = "DELETE FROM gesta_words WHERE rowid IN (SELECT pos FROM entries WHERE run = ?)"

READING = {
    apsw.SQLITE_SELECT,
    apsw.SQLITE_READ,
    apsw.SQLITE_FUNCTION,
    apsw.SQLITE_RECURSIVE,
}
PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "database_list", "compile_options"}
"""Those that only tell something, whatever stands behind them."""

UNANSWERABLE = (
    *(apsw.SQLError, apsw.BindingsError, apsw.MismatchError, apsw.TooBigError, apsw.RangeError),
    *(TypeError, ValueError, OverflowError),
)
"""What the query or its parameters are to blame for."""


def only_reading(action: int, first: str | None, _second: str | None, *_where: str | None) -> int:
    """Allow what reads, for SQLite's authorizer; all else is refused, also inside views and triggers."""
    reading = action in READING or (action == apsw.SQLITE_PRAGMA and (first or "").lower() in PRAGMAS)
    return apsw.SQLITE_OK if reading else apsw.SQLITE_DENY


def put_views(connection: apsw.Connection) -> None:
    """Put the views of this release over those that a record lacks or has otherwise, on this connection alone.

    Raises:
        apsw.Error: the file is broken or locked.
    """
    schema = connection.execute("SELECT name, sql FROM main.sqlite_schema WHERE type = 'view'").fetchall()
    found = {str(name): text for name, text in schema}
    other = [text for name, text in EACH.items() if found.get(name) != text.replace(" IF NOT EXISTS", "")]
    if other:
        connection.execute("PRAGMA query_only = OFF")  # also temporary views count as writing
        for text in other:
            connection.execute(text.replace("CREATE VIEW", "CREATE TEMP VIEW"))
        connection.execute("PRAGMA query_only = ON")


def ask(connection: apsw.Connection, query: str, parameters: Sequence[Any] = ()) -> Table:
    """Answer a query with all its rows. Of several statements, the last one that has columns is told.

    Raises:
        RecordError: the query would change something, or SQLite cannot make sense of it.
        apsw.Error: the file is broken, locked or not readable.
    """
    columns: tuple[str, ...] = ()

    def note(cursor: apsw.Cursor, _statement: str, _bindings: Any) -> bool:
        nonlocal columns
        rows.clear()
        columns = tuple(name for name, _ in cursor.get_description())
        return True

    rows: list[tuple[Any, ...]] = []
    put_views(connection)
    connection.authorizer = only_reading
    cursor = connection.cursor()
    cursor.exec_trace = note
    try:
        for row in cursor.execute(query, tuple(parameters)):
            rows.append(row)  # noqa: PERF402 - `note` clears them between statements
    except apsw.AuthError as error:
        raise RecordError(
            f"Refused: {query!r} would change the record, or reach beyond it. Only reading queries are answered; "
            "a record changes through its runs alone."
        ) from error
    except UNANSWERABLE as error:
        raise RecordError(f"Cannot answer {query!r}: {error}.") from error
    finally:
        cursor.close(force=True)
    return Table(columns, rows)
