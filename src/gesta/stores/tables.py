"""The tables of a record, and the function that runs read-only queries on them.

A record is the stored history of all runs (conversations of agents). Its text columns are readable: any SQLite of 3.38
or later shows a record with plain SQL. `runs` is a view: its rows are read from the entries, so they cannot disagree
with them. A partial index finds the `begin` entries that opened runs without reading any other entry. The other views
are in `views`.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw

from gesta.errors import RecordError
from gesta.store import QueryBounds, Table
from gesta.stores.views import EACH, OLDER, VIEWS

APPLICATION_ID = 0x67657374
"""`gest` in ASCII: the application id in the header of an SQLite file that is a record."""

FORMAT = 2
"""The format of the tables, in the header as `user_version`. The format of entries has its own number."""

RUNS = """SELECT
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
WHERE first.kind = 'begin' AND json_extract(first.content, '$.opened.session') IS NOT NULL"""
"""The query for the rows of the view `runs`. Each row is made from the first and the last entry of a run."""

TABLES = f"""
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
{RUNS};

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
"""The SQL of the tables. `leases` names for each run the process that has the right to write it."""

MIGRATIONS = (
    "ALTER TABLE record ADD COLUMN mark INTEGER",
    "ALTER TABLE record ADD COLUMN adopted_by TEXT",
    "ALTER TABLE owners ADD COLUMN gone_by TEXT",
    "ALTER TABLE leases ADD COLUMN mirror_of TEXT",
)
"""Statements that change the tables of format 1 to format 2. Gesta 0.1.0 cannot write a record of format 2."""


def _first(text: str) -> str:
    """Return the SQL of the tables as format 1 had them, given the SQL of this format."""
    for statement in MIGRATIONS:
        text = text.replace(f",\n    {statement.partition(' COLUMN ')[2]}", "")
    return text


def _migrated(text: str) -> str:
    """Return the SQL in the schema of a file that was migrated to this format, given the SQL of format 1."""
    for statement in MIGRATIONS:
        table, _, column = statement.removeprefix("ALTER TABLE ").partition(" ADD COLUMN ")
        head, made, rest = text.partition(f"CREATE TABLE {table}(")
        text = head + made + rest.replace("\n) STRICT", "\n, ) STRICT", 1).replace(") STRICT", f"{column}, ) STRICT", 1)
    return text.replace(", ) STRICT", ") STRICT")


def _made(text: str) -> list[str]:
    """Split a text of SQL into its statements, each as the schema of a file shows it: without `IF NOT EXISTS`."""
    return [one.replace(" IF NOT EXISTS", "") for one in map(str.strip, text.split(";\n")) if one]


WORDS = """
CREATE VIRTUAL TABLE gesta_words
    USING fts5(text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2');
CREATE TABLE gesta_words_known(one INTEGER PRIMARY KEY CHECK (one = 1), pos INTEGER NOT NULL, form INTEGER NOT NULL);
"""
"""The tables of the word index that a large record keeps; see `words`."""
TOOLS = "CREATE TABLE gesta_tables(name TEXT PRIMARY KEY) STRICT"
"""The table that lists the tables of transactional tools. It is made when a tool makes the first table."""
SHADOWS = """
CREATE TABLE 'gesta_words_data'(id INTEGER PRIMARY KEY, block BLOB);
CREATE TABLE 'gesta_words_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID;
CREATE TABLE 'gesta_words_docsize'(id INTEGER PRIMARY KEY, sz BLOB, origin INTEGER);
CREATE TABLE 'gesta_words_config'(k PRIMARY KEY, v) WITHOUT ROWID;
"""
"""The tables that SQLite itself makes for the word index, with their exact text."""
OWN_VIEWS = {"runs": f"CREATE VIEW runs AS\n{RUNS}", **EACH}
"""The text of each view that a record has, by its name."""
OWN_INDEXES = {heading.split()[2]: heading for heading in _made(TABLES) if heading.startswith("CREATE INDEX")}
"""The text of each index that a record has, by its name."""
VIEWED = frozenset(OWN_VIEWS)
EVERY_RELEASE = frozenset(
    _made(TABLES + _first(TABLES) + _migrated(_first(TABLES)) + VIEWS + OLDER + ";\n" + TOOLS + ";\n" + WORDS + SHADOWS)
)
"""All statements that may be in the schema of a record, as each release made them. A change of a statement needs a new
format, and the old statement stays here."""

TABLES += VIEWS

ROW = "run, seq, kind, at, span, causes, version, content, annotations, salt, digest"
"""The columns of a `Row`, in its order, without pos."""

ADD_ROW = f"INSERT INTO main.entries({ROW}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
ADD_BLOB = "INSERT OR IGNORE INTO main.blobs(run, name, salt, data) VALUES(?, ?, ?, ?)"
ADD_LETTER = "INSERT INTO main.inbox(id, run, key, content, at) VALUES(?, ?, ?, ?, ?)"
ADD_RECORD = "INSERT INTO main.record(one, id, format, created_at) VALUES(1, ?, ?, ?)"

PRUNE = (
    "DELETE FROM main.entries WHERE run = ?",
    "DELETE FROM main.blobs WHERE run = ?",
    "DELETE FROM main.inbox WHERE run = ?",
    "DELETE FROM main.inbox_keys WHERE run = ?",
    "UPDATE main.leases SET owner = NULL, mirror_of = NULL WHERE run = ?",
)
"""Statements that remove a run. The epoch of its lease stays, so that an old writer is refused."""

LIST_TOOL = "INSERT OR IGNORE INTO main.gesta_tables(name) VALUES(?)"
UNLIST_TOOL = "DELETE FROM main.gesta_tables WHERE name = ?"

WORDS_KNOWN = "SELECT 1 FROM main.sqlite_master WHERE name = 'gesta_words'"
FORGET_WORDS = "DROP TABLE main.gesta_words; DROP TABLE IF EXISTS main.gesta_words_known"
"""Deletes the word index, which the next search makes again. If only its rows were deleted, the words would stay in its
pages."""

STEPS = 10_000
"""Steps of SQLite's virtual machine, about 100 us, between two checks of the time limit of a query."""
UNBOUND = QueryBounds(seconds=None)

READING = {
    apsw.SQLITE_SELECT,
    apsw.SQLITE_READ,
    apsw.SQLITE_FUNCTION,
    apsw.SQLITE_RECURSIVE,
}
PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "database_list", "compile_options"}
"""Pragmas that only read, whatever their argument is."""

UNANSWERABLE = (
    *(apsw.SQLError, apsw.BindingsError, apsw.MismatchError, apsw.TooBigError, apsw.RangeError),
    *(TypeError, ValueError, OverflowError),
)
"""Errors that the query or its parameters cause."""


def gather(found: Iterable[Any], rows: list[Any], bounds: QueryBounds, query: str) -> None:
    """Add the rows of a result to a list. Raises RecordError if the rows exceed a bound.

    Args:
        found: the rows of the result.
        rows: the list to add to. The bounds apply to the rows that are in it at one time.
        query: the text of the query, for the error.
    """
    size = 0
    for row in found:
        size = size * bool(rows) + sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        rows.append(row)
        if bounds.rows is not None and len(rows) > bounds.rows:
            raise bounds.passed(query, "rows")
        if bounds.size_bytes is not None and size > bounds.size_bytes:
            raise bounds.passed(query, "size_bytes")


def only_reading(action: int, first: str | None, _second: str | None, *_where: str | None) -> int:
    """Return SQLite's code for "allowed" if an action only reads, else its code for "refused".

    SQLite calls this as the authorizer of a connection, also for the statements of views and triggers.
    """
    reading = action in READING or (action == apsw.SQLITE_PRAGMA and (first or "").lower() in PRAGMAS)
    return apsw.SQLITE_OK if reading else apsw.SQLITE_DENY


def put_views(connection: apsw.Connection) -> None:
    """Create the views of this release as temporary views, if a view in the record is missing or differs.

    Raises:
        RecordError: the text of a view is not UTF-8. apsw.Error: the file is broken or locked.
    """
    try:
        schema = connection.execute("SELECT name, sql FROM main.sqlite_master WHERE type = 'view'").fetchall()
    except UnicodeDecodeError as error:
        raise RecordError(f"The text of a view in this record is not UTF-8: {error}.") from error
    found = {str(name): text for name, text in schema}
    if any(found.get(name) != text.replace(" IF NOT EXISTS", "") for name, text in OWN_VIEWS.items()):
        connection.execute("PRAGMA query_only = OFF")  # SQLite regards making temporary views as writing
        for text in OWN_VIEWS.values():  # all of them, because a view in the file reads other views in the file
            connection.execute(text.replace("CREATE VIEW", "CREATE TEMP VIEW"))
        connection.execute("PRAGMA query_only = ON")


def escaped(
    connection: apsw.Connection, query: str, parameters: Sequence[Any], found: UnicodeDecodeError
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a SELECT that finds texts which are not valid UTF-8. Each wrong byte becomes a lone surrogate.

    SQLite accepts any bytes as text. A reader that decodes such texts would lose the whole result.

    Args:
        found: the error that the query raised at first.

    Raises:
        RecordError: there are several statements. apsw.Error: as for the query itself.
    """
    cursor = connection.execute(query, tuple(parameters))
    names = [f"c{number}" for number, _ in enumerate(cursor.get_description())]
    cursor.close(force=True)
    kinds = ", ".join(f"typeof({name})" for name in names)
    cells = ", ".join(f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END" for name in names)
    wrapped = f"WITH asked({', '.join(names)}) AS ({query}) SELECT {kinds}, {cells} FROM asked"  # noqa: S608
    try:
        rows = connection.execute(wrapped, tuple(parameters))
    except apsw.SQLError as error:
        wrong = f"a text is not UTF-8 ({found}). CAST(… AS BLOB) gives its bytes"
        raise RecordError(f"Cannot answer {query!r}: {wrong}.") from error
    for row in rows:
        yield tuple(map(_decoded, row[: len(names)], row[len(names) :]))


def _decoded(kind: Any, cell: Any) -> Any:
    return cell.decode("utf-8", "surrogateescape") if kind == "text" else cell


COMMENT = re.compile(r"--[^\n]*|/\*.*?(\*/|$)", re.DOTALL)
"""Matches a comment of SQL. It could also match inside a string, but a string is always part of a statement."""


def ask(
    connection: apsw.Connection, query: str, parameters: Sequence[Any] = (), bounds: QueryBounds = UNBOUND
) -> Table:
    """Run a read-only query of one statement, and return its columns and rows.

    Raises:
        RecordError: the query would change something, goes beyond a bound, has two statements, or is refused by SQLite.
        apsw.Error: the file is broken, locked or not readable.
    """
    columns: tuple[str, ...] | None = None

    def note(cursor: apsw.Cursor, statement: str, _bindings: Any) -> bool:
        nonlocal columns
        if COMMENT.sub("", statement).strip():  # only a comment may follow the last semicolon
            if columns is not None:
                raise RecordError(f"Cannot answer {query!r}: it has more than one statement. Ask one at a time.")
            columns = tuple(name for name, _ in cursor.get_description())
        return True

    def late() -> bool:
        return bounds.seconds is not None and time.monotonic() > begun + bounds.seconds

    rows, begun = list[tuple[Any, ...]](), time.monotonic()
    put_views(connection)
    connection.authorizer = only_reading
    connection.set_progress_handler(late, STEPS)
    if bounds.size_bytes is not None:  # also limits values that the query makes or reads but does not return
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, bounds.size_bytes)
    cursor = connection.cursor()
    cursor.exec_trace = note
    try:
        try:
            gather(cursor.execute(query, tuple(parameters)), rows, bounds, query)
        except UnicodeDecodeError as error:
            rows.clear()
            gather(escaped(connection, query, parameters, error), rows, bounds, query)
    except apsw.InterruptError as error:
        if late():
            raise bounds.passed(query, "seconds") from error
        raise
    except apsw.TooBigError as error:
        raise bounds.passed(query, "size_bytes") from error
    except apsw.AuthError as error:
        found = f"Refused: {query!r} would change the record, or reach beyond it. Only reading queries are answered;"
        raise RecordError(f"{found} a record changes through its runs alone.") from error
    except UNANSWERABLE as error:
        raise RecordError(f"Cannot answer {query!r}: {error}.") from error
    finally:
        cursor.close(force=True)
    return Table(columns or (), rows)
