"""SQL that a transactional tool runs in the record's PostgreSQL database. Its changes commit with the tool's result.

The record is Gesta's own schema, which stores all runs. The tool may use every table that is not Gesta's, in any
schema. Each call runs one statement, which may only read and change rows. Each statement has a savepoint, so the
transaction continues after a statement that fails. The server's plan shows which tables a statement would change. It
does not show the effects of functions that the statement calls. Only a role for tools (`tool_role`) without rights on
Gesta's schema can limit these.
"""

import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql

from gesta.stores.common import milliseconds
from gesta.stores.effects import OWN, Refused
from gesta.stores.postgres_open import Connection

HIDDEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<name>"(?:[^"]|"")*")"""
    r"""|(?<!\w)E'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|(?<![\w$])\$(?P<tag>\w*)\$.*?\$(?P=tag)\$""",
    re.DOTALL | re.IGNORECASE,
)
"""Matches comments, quoted names and texts. Words inside these are not keywords."""
VERBS = ("select", "insert", "update", "delete", "merge", "with")
CHANGES = re.compile(r"\b(insert|update|delete|merge)\b")
MAKES_TABLE = re.compile(r"(?<!insert )(?<!merge )\binto\b")
REACHES = re.compile(
    r"\b(set_config|pg_(terminate|cancel)_backend|pg_(try_)?advisory_\w+|pg_notify|dblink\w*|lo_\w+"
    r"|(query|table|schema|database|cursor)_to_xml\w*|pg_(read|write|stat)_file\w*|pg_reload_conf)\s*\("
)
"""Functions that change the connection or reach beyond the database. The list is not complete: only a role can refuse
all of them."""


class PostgresSql:
    """Runs the SQL of a transactional tool in PostgreSQL, and refuses statements that would change Gesta's tables."""

    def __init__(self, connection: Connection, schema: str, role: str | None, timeout_s: float | None) -> None:
        self._connection = connection
        self._schema = schema
        self._thread = threading.get_ident()
        self.over = False
        """Whether the tool has returned."""
        bound_ms = 0 if timeout_s is None else milliseconds(timeout_s)
        path = sql.SQL("SET LOCAL search_path = {}, public, pg_temp; ").format(sql.Identifier(schema))
        ours = sql.SQL("SET LOCAL search_path = {}, pg_temp; ").format(sql.Identifier(schema))
        begin, end = sql.SQL("SAVEPOINT statement; "), sql.SQL("RELEASE statement")
        bound, unbound = (
            sql.SQL(f"SET LOCAL statement_timeout = {bound_ms}; "),
            sql.SQL("SET LOCAL statement_timeout = 0; "),
        )
        to = sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)) if role else sql.SQL("")
        back = sql.SQL("SET LOCAL ROLE NONE; ") if role else sql.SQL("")
        self._begin, self._end = begin + path + bound + to, back + unbound + ours + end

    def __call__(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows. The parameters replace `$1`, `$2` and so on.

        Raises:
            Refused: the statement would do more than read and change rows, would change Gesta's tables, or its time is
                up.
            Exception: an error of PostgreSQL, such as a violated constraint, or a statement that is not SQL.
        """
        if self.over:
            raise Refused(f"The tool has returned, and its transaction is over: {statement:.200}")
        if threading.get_ident() != self._thread:
            raise Refused(f"A transactional tool may not run statements in another thread: {statement:.200}")
        wrong = refusal(statement)
        if wrong is not None:
            raise Refused(f"A transactional tool may not {wrong}: {statement:.200}")
        return self._run(statement, tuple(parameters))

    def check(self) -> None:
        """Check the constraints that PostgreSQL would check only at the commit.

        Raises psycopg.Error if one is violated.
        """
        self._run("SET CONSTRAINTS ALL IMMEDIATE", ())

    def _run(self, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        connection = self._connection
        connection.execute(self._begin)
        try:
            self._keep_out(statement, parameters)
            # prepared, so that the server refuses a text with several statements, one of which may be a COMMIT
            cursor = connection.execute(statement, parameters, prepare=True)
            rows = cursor.fetchall() if cursor.description is not None else []
        except psycopg.errors.QueryCanceled as error:
            connection.execute("ROLLBACK TO statement")
            raise Refused(f"The tool's time was up in: {statement:.200}") from error
        except BaseException:
            if not connection.closed:
                connection.execute("ROLLBACK TO statement")
            raise
        connection.execute(self._end)
        return [tuple(row) for row in rows]

    def _keep_out(self, statement: str, parameters: tuple[Any, ...]) -> None:
        """Raise Refused if the server's plan for a statement shows that it would change a table of Gesta."""
        if not CHANGES.search(statement.lower()):
            return
        rows = self._connection.execute(f"EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) {statement}", parameters).fetchall()
        for schema, table in changed(rows):
            if schema == self._schema and table in OWN:
                raise Refused(
                    f"A transactional tool may not change {table!r}, a table of Gesta's own: {statement:.200}"
                )


def changed(plan: Any) -> Iterator[tuple[str, str]]:
    """Yield schema and name of each table that a statement changes, according to the server's plan in JSON."""
    if isinstance(plan, list | tuple):
        for each in plan:
            yield from changed(each)
    elif isinstance(plan, dict):
        if plan.get("Node Type") == "ModifyTable":
            for target in (plan, *plan.get("Target Tables", ())):
                if "Relation Name" in target:
                    yield str(target.get("Schema")), str(target["Relation Name"])
        for each in plan.values():
            yield from changed(each)


def refusal(statement: str) -> str | None:
    """Return what a statement does that no tool may do, such as "make tables"; `None` if the statement is allowed."""
    words, called = bare(statement, " '' "), bare(statement, None)
    first = re.match(r"[(\s]*(\w*)", words)
    if first is None or first[1] not in VERBS:
        return "run anything but SELECT, INSERT, UPDATE, DELETE and MERGE"
    if ";" in words:
        return "run several statements at once"
    if MAKES_TABLE.search(words):
        return "make tables"
    if "u&''" in words.replace(" ", ""):
        return "write names or texts with U&"
    found = REACHES.search(called)
    return f"call {found[1]}" if found is not None else None


def bare(statement: str, name: str | None) -> str:
    """Return a statement in lower case, without comments, and with each quoted text replaced by `''`.

    Args:
        name: text that replaces each quoted name; with `None`, each quoted name stays, without its quotes.
    """

    def shown(found: re.Match[str]) -> str:
        if found["comment"]:
            return " "
        return " '' " if not found["name"] else found["name"].strip('"') if name is None else name

    return " ".join(HIDDEN.sub(shown, statement).lower().split()).strip("; ")
