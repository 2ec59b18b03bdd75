"""SQL that a transactional tool runs inside the commit of its own result.

The tool's tables live in the record's file. While it runs, SQLite itself refuses what would break others' commits:
ending or nesting transactions, attaching files, pragmas, and any change of Gesta's own tables.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from gesta.errors import GestaError

OWN = frozenset(
    {"record", "entries", "blobs", "inbox", "inbox_keys", "owners", "leases", "gesta_words", "gesta_words_known"}
)
"""Gesta's own tables."""
CONTROL = frozenset(
    {apsw.SQLITE_TRANSACTION, apsw.SQLITE_SAVEPOINT, apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH, apsw.SQLITE_PRAGMA}
)
WRITES = frozenset(
    {
        *(apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE, apsw.SQLITE_DROP_TABLE),
        *(apsw.SQLITE_CREATE_VTABLE, apsw.SQLITE_REINDEX, apsw.SQLITE_ANALYZE),
    }
)
"""Actions whose first word is the table that they change."""
ON_TABLE = frozenset({apsw.SQLITE_ALTER_TABLE, apsw.SQLITE_CREATE_INDEX, apsw.SQLITE_DROP_INDEX})
ON_TABLE |= frozenset({apsw.SQLITE_CREATE_TRIGGER, apsw.SQLITE_DROP_TRIGGER})
"""Actions whose second word it is."""
STEPS = 20_000  # of SQLite's machine between two looks at the clock


class Refused(GestaError):
    """A statement of a transactional tool that would reach beyond its own tables, or its own time."""


class Sql:
    """What a transactional tool writes and reads its tables with."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.refused = ""

    def __call__(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, and give its rows.

        Raises:
            Refused: it would reach beyond the tool's own tables, or time is up.
            Exception: what SQLite raises: a constraint that is broken, a statement that is none.
        """
        self.refused = ""
        try:
            return list(self._connection.execute(statement, tuple(parameters)))
        except apsw.AuthError as error:
            raise Refused(f"A transactional tool may not {self.refused or 'do that'}: {statement:.200}") from error
        except apsw.InterruptError as error:
            raise Refused(f"The tool's time was up in: {statement:.200}") from error

    @contextmanager
    def guarded(self, timeout_s: float | None) -> Iterator[None]:
        """Refuse what reaches beyond, until the block is left."""
        ends = time.monotonic() + timeout_s if timeout_s is not None else None
        self._connection.authorizer = self._allow
        if ends is not None:
            self._connection.set_progress_handler(lambda: time.monotonic() > ends, STEPS)
        try:
            yield
        finally:
            self._connection.authorizer = None
            self._connection.set_progress_handler(None)

    def _allow(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in CONTROL:
            self.refused = "steer the transaction, attach files or set pragmas"
        elif (action in WRITES and first in OWN) or (action in ON_TABLE and second in OWN):
            self.refused = f"change {first if action in WRITES else second!r}, a table of Gesta's own"
        else:
            return int(apsw.SQLITE_OK)
        return int(apsw.SQLITE_DENY)
