"""The SQL of a record in PostgreSQL: its tables, views and statements.

A record is the stored history of all runs (conversations of agents). The SQL is made from the SQL for SQLite in the
module `tables`, by a list of replacements. A call of a function that PostgreSQL lacks is replaced by an expression of
PostgreSQL. Both databases store JSON as text and build it by joining texts, so that their rows have the same bytes.
"""

import re
from collections.abc import Callable, Sequence
from hashlib import sha256

from gesta.stores.tables import MIGRATIONS as SQLITE_MIGRATIONS
from gesta.stores.tables import PRUNE as SQLITE_PRUNE
from gesta.stores.tables import ROW
from gesta.stores.tables import TABLES as SQLITE
from gesta.stores.views import VIEWS as SQLITE_VIEWS

INDEXED = 300  # characters of a session's or agent's name in the index, because an index row has 2,700 bytes

_SESSION, _NAME = "json_extract(content, '$.opened.session')", "json_extract(content, '$.opened.name')"

WORDING = (
    (") STRICT;", ");"),
    ("id INTEGER PRIMARY KEY AUTOINCREMENT", "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    ("id INTEGER PRIMARY KEY", "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    (" INTEGER", " BIGINT"),
    (" TEXT", ' TEXT COLLATE "C"'),  # texts are compared by their bytes, as in SQLite
    (" BLOB", " BYTEA"),
    (" INDEXED BY opened", ""),
    (f"entries({_SESSION}, {_NAME})", f"entries(left({_SESSION}, {INDEXED}), left({_NAME}, {INDEXED}))"),
    ("CREATE VIEW IF NOT EXISTS", "CREATE VIEW"),
    (" IS NOT 'user'", " IS DISTINCT FROM 'user'"),
    ("CROSS JOIN", "JOIN"),  # in SQLite it also fixes the order of the join
    ("1 << 62", "1::bigint << 62"),
    ("sum(opens)", "sum(opens::int)"),
    ("2 * w.calls - 1", "2 * w.calls::int - 1"),
    ("sum(head)", "sum(head)::bigint"),
    ("json_extract(content, '$.call')", "json_extract(content, '$.call')::bigint"),
    ("min(coalesce(floor, 0), 0)", "least(coalesce(floor, 0), 0)"),
    # with min(), SQLite takes the other columns from the row with the least value; here that needs DISTINCT ON
    ("SELECT run, span, min(seq) AS seq, at,", "SELECT DISTINCT ON (run, span) run, span, seq, at,"),
    ("likelihood(kind = 'end', 0.9) GROUP BY run, span", "kind = 'end' ORDER BY run, span, seq"),
    ("SELECT session, json_object('identifier'", "SELECT DISTINCT ON (session) session, json_object('identifier'"),
    ("min(start_t)) AS cid", "start_t) AS cid"),
    ("agent IS NOT NULL GROUP BY session", "agent IS NOT NULL ORDER BY session, start_t, span"),
    # before PostgreSQL 16, a subquery in FROM needs a name
    ("AS floor FROM open_id)", "AS floor FROM open_id) AS counted"),
    ("AS floor FROM open_order)", "AS floor FROM open_order) AS counted"),
    ("path, annotations ORDER BY at)", "path, annotations ORDER BY at) AS each"),
    ("WHERE r.session = every.session ORDER BY e.pos)", "WHERE r.session = every.session ORDER BY e.pos) AS each"),
    ("x.seq AND x.until ORDER BY e.seq)", "x.seq AND x.until ORDER BY e.seq) AS each"),
    (".annotations))) END", ".annotations)) AS each) END"),
    # the members of annotations
    ("SELECT key, type, value FROM", "SELECT key, value::text FROM"),
)
"""Pairs of SQLite's text and PostgreSQL's text. They are replaced in this order."""

LIST = re.compile(r"( FILTER \([^)]*\))?( OVER \w+)?")


def quoted(value: str) -> str:
    """Return an SQL expression that turns a value into JSON text. It turns NULL into `null`.

    Args:
        value: an SQL expression.
    """
    known = value.startswith(("json(", "json_object("))
    return f"coalesce({value if known else f'to_json({value})::text'}, 'null')"


def extracted(given: Sequence[str]) -> str:
    """Return PostgreSQL's expression for a call of `json_extract`.

    Args:
        given: the arguments of the call, as SQL: the JSON text, and a path such as `'$.opened.name'`.
    """
    path = given[1].strip("'").removeprefix("$.").replace(".", ",")
    return f"({given[0]}::json #>> '{{{path}}}')"


def joined(given: Sequence[str]) -> str:
    """Return PostgreSQL's expression for a call of `json_object`, which builds the JSON text by joining texts.

    Args:
        given: the arguments of the call, as SQL: a name, its value, the next name, and so on.
    """
    pairs = zip(given[::2], given[1::2], strict=True)
    members = [f"""'"{name.strip("'")}":' || {quoted(value)}""" for name, value in pairs]
    return "('{' || " + " || ',' || ".join(members) + " || '}')"


FUNCTIONS: dict[str, Callable[[Sequence[str]], str]] = {
    "likelihood": lambda given: f"({given[0]})",
    "json_group_array": lambda given: f"string_agg({quoted(given[0])}, ',')",
    "json_group_object": lambda _: (
        """coalesce('{' || string_agg(to_json(key)::text || ':' || value, ',') || '}', '{}')"""
    ),
    "json_object": joined,
    "json_insert": lambda given: f"(left({given[0]}, -1) || ',' || {quoted(given[2])} || ']')",
    "json_array": lambda given: f"('[' || {quoted(given[0])} || ']')",
    "json_extract": extracted,
    "json_type": lambda given: f"json_typeof{extracted(given).replace('#>>', '#>')}",
    "json_each": lambda given: f"json_each(({given[0]})::json)",
    "json": lambda given: given[0],
}
"""For each function of SQLite, a function that turns the arguments of a call into PostgreSQL's expression.

The order matters: a function that stands around another one in a statement comes first."""


def arguments(text: str, start: int) -> tuple[list[str], int]:
    """Return the arguments of a function call in SQL, and the index in `text` after the call's closing parenthesis.

    Args:
        start: the index after the opening parenthesis of the call.
    """
    given, depth, quote, last = [], 0, False, start
    for place in range(start, len(text)):
        sign = text[place]
        quote ^= sign == "'"
        if quote:
            continue
        if not depth and sign in ",)":
            given.append(text[last:place].strip())
            last = place + 1
            if sign == ")":
                return given, place + 1
        depth += (sign == "(") - (sign == ")")
    raise ValueError(f"no end of {text[start : start + 40]!r}")


def replaced(text: str, name: str, make: Callable[[Sequence[str]], str]) -> str:
    """Return an SQL text in which all calls of a function are rewritten.

    Args:
        name: name of the function in SQLite.
        make: turns the arguments of a call into PostgreSQL's expression.
    """
    place = 0
    while found := re.compile(rf"(?<![\w.]){name}\(").search(text, place):
        given, end = arguments(text, found.end())
        made = make(given)
        if name == "json_group_array":
            tail = LIST.match(text, end)
            assert tail is not None
            made, end = f"coalesce('[' || {made}{tail[0]} || ']', '[]')", tail.end()
        text = text[: found.start()] + made + text[end:]
        place = found.start() + (0 if f"{name}(" in made[len(name) :] else len(made))
    return text


def rewritten(text: str) -> str:
    """Return SQL of tables, views or queries for SQLite, rewritten for PostgreSQL."""
    for old, new in WORDING:
        text = text.replace(old, new)
    for name, make in FUNCTIONS.items():
        text = replaced(text, name, make)
    return text


VIEWS = rewritten(SQLITE_VIEWS)
"""The SQL that creates the views of a record; see `views`."""

TABLES = (
    rewritten(SQLITE.removesuffix(SQLITE_VIEWS)) + "ALTER TABLE record ADD COLUMN views TEXT, ADD COLUMN server TEXT;\n"
)

MIGRATIONS = (
    *(rewritten(statement).replace("ADD COLUMN", "ADD COLUMN IF NOT EXISTS") for statement in SQLITE_MIGRATIONS),
    "ALTER TABLE record ADD COLUMN IF NOT EXISTS server TEXT",
    "UPDATE leases SET owner = NULL WHERE owner NOT IN (SELECT owner FROM owners)",  # their store was closed
)
MARK = """WITH void AS (UPDATE leases SET epoch = epoch + 1000000)
    UPDATE record SET mark = last, adopted_by = NULL FROM (SELECT max(pos) AS last FROM entries) AS entry
    WHERE last IS NOT NULL"""
"""Marks a record as a copy, and makes every lease void that was taken in its original, also those that it lacks."""
NAMES = re.findall(r"CREATE VIEW (\w+)", VIEWS)
DROP_VIEWS = f"DROP VIEW IF EXISTS {', '.join(NAMES)}"
VIEWS_DIGEST = sha256(VIEWS.encode()).hexdigest()
"""Digest of the SQL of the views, stored in the table `record`. Opening a record for writing replaces views with
another digest."""

ADD_RECORD = "INSERT INTO record(one, id, format, created_at) VALUES(1, $1, $2, $3)"
LETTER = """INSERT INTO inbox(id, run, key, content, at) OVERRIDING SYSTEM VALUE VALUES(
    (SELECT greatest(extract(epoch FROM clock_timestamp()) * 1000000, max(id) + 1) FROM inbox), $1, $2, $3, coalesce($4,
    to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))"""
"""Adds a letter. Its id comes from the clock: a crash of the server may set a sequence back, and a process that knows
the letter which was lost would take another for it."""
ADD_ROW = f"INSERT INTO entries(pos, {ROW}) VALUES ({', '.join(f'${n}' for n in range(1, 13))})"  # noqa: S608
ADD_BLOB = "INSERT INTO blobs(run, name, salt, data) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"

PRUNE = tuple(statement.replace("?", "$1").replace("main.", "") for statement in SQLITE_PRUNE)


def placed(query: str, count: int) -> str:
    """Return a query with `$1`, `$2` and so on in place of each `?`, except in quotes and comments.

    Args:
        count: number of the query's parameters. If it is 0, the query is returned unchanged.
    """
    if not count:  # without parameters, a `?` can only be an operator
        return query
    numbers = iter(range(1, query.count("?") + 1))
    return MARKS.sub(lambda found: f"${next(numbers)}" if found[0] == "?" else found[0], query)


MARKS = re.compile(r"""'[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/|\?""", re.DOTALL)
