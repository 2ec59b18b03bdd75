"""SQL that a transactional tool runs inside the commit of its own result, in PostgreSQL.

The tool's tables stand in the record's schema. Each statement has a savepoint, so one that fails leaves the commit
whole. What would break others' commits is refused by its words: PostgreSQL has no guard of single statements.
"""

import re
from collections.abc import Sequence
from typing import Any

import psycopg

from gesta.stores.effects import OWN, Refused
from gesta.stores.postgres_open import Connection

STEERS = re.compile(
    r"\s*(begin|start|commit|end|rollback|abort|savepoint|release|prepare|set|reset|discard|listen|notify|lock|copy|do"
    r"|call|grant|revoke|vacuum|cluster|reindex|security|load)\b",
    re.IGNORECASE,
)
READS = re.compile(r"\s*(select|values|table)\b", re.IGNORECASE)
MENTIONS = re.compile(rf"\b({'|'.join(sorted(OWN))})\b", re.IGNORECASE)
SEVERAL = re.compile(r";\s*\S")


class PostgresSql:
    """What a transactional tool writes and reads its tables with."""

    def __init__(self, connection: Connection, timeout_s: float | None) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    def __call__(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with `$1` for its first parameter, and give its rows.

        Raises:
            Refused: it would reach beyond the tool's own tables, or time is up.
            Exception: what PostgreSQL raises: a constraint that is broken, a statement that is none.
        """
        wrong = refusal(statement)
        if wrong is not None:
            raise Refused(f"A transactional tool may not {wrong}: {statement:.200}")
        connection = self._connection
        bound_ms = 0 if self._timeout_s is None else max(1, round(self._timeout_s * 1000))
        connection.execute("SAVEPOINT statement")
        try:
            connection.execute(f"SET LOCAL statement_timeout = {bound_ms}")
            cursor = connection.execute(statement, tuple(parameters))
            rows = cursor.fetchall() if cursor.description is not None else []
        except psycopg.errors.QueryCanceled as error:
            connection.execute("ROLLBACK TO statement")
            raise Refused(f"The tool's time was up in: {statement:.200}") from error
        except psycopg.Error:
            if not connection.closed:
                connection.execute("ROLLBACK TO statement")
            raise
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("RELEASE statement")
        return [tuple(row) for row in rows]


def refusal(statement: str) -> str | None:
    """Say what a statement would do that it may not; None where it may."""
    bare = re.sub(r"--[^\n]*|/\*.*?\*/", " ", statement, flags=re.DOTALL)
    words = re.sub(r"'(?:[^']|'')*'", "''", bare)
    if STEERS.match(words):
        return "steer the transaction or the session"
    if SEVERAL.search(words):
        return "run several statements at once"
    found = MENTIONS.search(words)
    if found is not None and not READS.match(words):
        return f"change {found[1]!r}, a table of Gesta's own"
    return None
