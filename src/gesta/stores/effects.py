"""SQL that a transactional tool runs in the record's own database. Its changes and its result commit together.

A record is one file with all runs of agents, and the tool's tables are in the same file. While the tool runs, SQLite
refuses statements that would break other commits:
- statements that end or nest transactions, attach files, or set pragmas,
- statements that change objects of Gesta,
- statements that make temporary objects, because a temporary table would hide the record's table of the same name.

A conflict clause or a trigger can still end the transaction. So `Sql` checks after each statement whether it has ended.
If so, `Sql` refuses all further statements, and no change of the tool is kept.
"""

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from gesta.errors import GestaError
from gesta.stores.sqlite_door import examined, read
from gesta.stores.tables import PRAGMAS, READING, TABLES

OWN = frozenset(
    {"record", "entries", "blobs", "inbox", "inbox_keys", "owners", "leases", "gesta_words", "gesta_words_known"}
)
"""The names of Gesta's own tables."""
NAMES = OWN | frozenset(re.findall(r"CREATE (?:TABLE|VIEW|INDEX) (?:IF NOT EXISTS )?(\w+)", TABLES))
"""The names of Gesta's tables, views and indexes in a record."""
PREFIX = "gesta_"
CONTROL = frozenset(
    {apsw.SQLITE_TRANSACTION, apsw.SQLITE_SAVEPOINT, apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH, apsw.SQLITE_PRAGMA}
)
TEMPORARY = frozenset(
    {
        *(apsw.SQLITE_CREATE_TEMP_TABLE, apsw.SQLITE_CREATE_TEMP_VIEW, apsw.SQLITE_CREATE_TEMP_TRIGGER),
        *(apsw.SQLITE_CREATE_TEMP_INDEX, apsw.SQLITE_DROP_TEMP_TABLE, apsw.SQLITE_DROP_TEMP_VIEW),
        *(apsw.SQLITE_DROP_TEMP_TRIGGER, apsw.SQLITE_DROP_TEMP_INDEX),
    }
)
SCHEMA = frozenset({"sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema"})
"""SQLite's tables about the schema. SQLite changes them when the schema changes, and refuses all other changes."""
TELLING = PRAGMAS | {"data_version"}
"""Names of pragmas that change nothing. SQLite's full-text search runs `data_version` itself."""
CHANGING = frozenset({apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE})
"""SQLite's codes of the actions that change rows. A statement that changes the schema has other actions too."""
STEPS = 20_000  # steps of SQLite's virtual machine between two checks of the time limit
ENDED = (
    "A statement has ended the whole transaction (ON CONFLICT ROLLBACK, RAISE(ROLLBACK), a full disk or a write that "
    "was broken off do that), so nothing of what this call did is kept. Use ABORT in place of ROLLBACK"
)


class Refused(GestaError):
    """Raised for a tool's SQL statement that is not allowed, or comes after the tool's time limit."""


class Sql:
    """Runs the SQL of a transactional tool in SQLite. It refuses changes of tables that are not the tool's own."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._thread = threading.get_ident()
        self._over = ""
        self.refused = ""
        self.makes = False
        """Whether a statement of the tool changed the schema, for example created a table."""

    def __call__(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows.

        Raises:
            Refused: the statement would change tables other than the tool's own, its time is up, or an earlier
                statement ended the transaction.
            Exception: an error of SQLite, such as a violated constraint, or a statement that is not SQL.
        """
        if threading.get_ident() != self._thread:
            raise Refused(f"A transactional tool may not run statements in another thread: {statement:.200}")
        if self._over:
            raise Refused(f"{self._over}: {statement:.200}")
        self.refused = ""
        try:
            return list(self._connection.execute(statement, tuple(parameters)))
        except apsw.AuthError as error:
            raise Refused(f"A transactional tool may not {self.refused or 'do that'}: {statement:.200}") from error
        except apsw.InterruptError as error:
            raise Refused(f"The tool's time was up in: {statement:.200}") from error
        finally:
            if not self._connection.in_transaction:
                self._over = ENDED

    def check(self) -> None:
        """Raise Refused if the changes so far cannot be committed.

        A statement may have ended the transaction, made an object on Gesta's own tables, or broken a deferred foreign
        key.
        """
        if not self._connection.in_transaction:
            raise Refused(f"{ENDED}.")
        if self.makes:
            strange = examined(read(self._connection))
            for each in (*strange.refused, *strange.aside):
                raise Refused(f"A transactional tool may not make {each}: it reaches into what is Gesta's own.")
        if self._connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]:
            raise Refused(
                "A foreign key (DEFERRABLE INITIALLY DEFERRED) refers to a row that is not there now that the tool has "
                "returned, so nothing of what this call did is kept."
            )

    @contextmanager
    def guarded(self, timeout_s: float | None) -> Iterator[None]:
        """Make SQLite refuse changes to tables that are not the tool's, while the block runs.

        After the block, this object refuses every statement.

        Args:
            timeout_s: seconds until SQLite interrupts a running statement; `None` for no limit.
        """
        ends = time.monotonic() + timeout_s if timeout_s is not None else None
        self._connection.authorizer = self._allow
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)
        if ends is not None:
            self._connection.set_progress_handler(lambda: time.monotonic() > ends, STEPS)
        try:
            yield
        finally:
            self._over = "The tool has returned, and its transaction is over"
            self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            self._connection.authorizer = None
            self._connection.set_progress_handler(None)

    def _allow(self, action: int, first: str | None, second: str | None, database: str | None, *_: str | None) -> int:
        if action in READING or (action == apsw.SQLITE_PRAGMA and (first or "").casefold() in TELLING):
            return int(apsw.SQLITE_OK)
        self.makes |= action not in CHANGING
        names = {name.casefold() for name in (first, second) if name is not None}
        own = sorted(name for name in names if name in NAMES or name.startswith(PREFIX))
        if action in CONTROL:
            self.refused = "steer the transaction, attach files or set pragmas"
        elif action in TEMPORARY or (database == "temp" and not names & SCHEMA):
            self.refused = "make or change temporary objects"
        elif own:
            self.refused = f"change {own[0]!r}, which is Gesta's own"
        else:
            return int(apsw.SQLITE_OK)
        return int(apsw.SQLITE_DENY)
