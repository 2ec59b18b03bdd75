"""A retail database as one SQLite file that changes only in transactions."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any, Literal, Self
from weakref import finalize

Record = dict[str, Any]
"""One user, order or product as parsed JSON, keys in the stored order."""
Database = dict[str, dict[str, Record]]
"""A whole database: table name -> record id -> record."""
Table = Literal["users", "orders", "products"]
Synchronous = Literal["OFF", "NORMAL", "FULL"]

TABLES: tuple[Table, ...] = ("users", "orders", "products")
BUSY_SECONDS = 30.0


class World:
    """One retail database in a SQLite file; may be shared by threads, and its file by processes.

    Every record is a row (id, position in the original file, JSON text with its key order kept). The table `applied`
    holds one row per idempotency key: the key and the result text of the change made under it.

    Args:
        path: An existing file that `create` or `copy` made.
        synchronous: SQLite's synchronous setting. OFF survives the death of the process but not of the machine.
    """

    def __init__(self, path: Path, synchronous: Synchronous = "OFF") -> None:
        if not path.is_file():
            raise FileNotFoundError(f"No world at {path}; make one with World.create or World.copy.")
        self.path = path
        self._lock = RLock()
        self._connection = _connect(path, synchronous)
        finalize(self, self._connection.close)  # an agent's file that makes a world never closes it

    @classmethod
    def create(cls, path: Path, database: Database, synchronous: Synchronous = "OFF") -> Self:
        """Write a whole database to a new file and open it (tens of milliseconds; `copy` is cheaper)."""
        if path.exists():
            raise FileExistsError(f"{path} exists already; a world is created in a new file.")
        connection = _connect(path, synchronous)
        try:
            connection.execute("BEGIN")
            for table in TABLES:
                connection.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, position INTEGER, json TEXT)")
                rows = [(key, i, json.dumps(record)) for i, (key, record) in enumerate(database[table].items())]
                connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
            connection.execute("CREATE TABLE applied (key TEXT PRIMARY KEY, result TEXT NOT NULL)")
            connection.execute("COMMIT")
        finally:
            connection.close()
        return cls(path, synchronous)

    @classmethod
    def copy(cls, template: Path, path: Path, synchronous: Synchronous = "OFF") -> Self:
        """Open a fresh copy of a template file (about a millisecond); nobody may have either file open to write."""
        path.with_name(f"{path.name}-journal").unlink(missing_ok=True)  # else a killed run's is rolled back into ours
        shutil.copyfile(template, path)
        return cls(path, synchronous)

    def get(self, table: Table, key: str) -> Record | None:
        """Return one record, or None if there is none of that id."""
        with self._lock:
            row = self._connection.execute(f"SELECT json FROM {table} WHERE id = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, table: Table, key: str, record: Record) -> None:
        """Replace one existing record; only inside `apply`."""
        with self._lock:
            if not self._connection.in_transaction:
                raise RuntimeError("World.put was called outside World.apply; changes are made in a transaction.")
            self._connection.execute(f"UPDATE {table} SET json = ? WHERE id = ?", (json.dumps(record), key))

    def records(self, table: Table) -> dict[str, Record]:
        """Return all records of a table by id, in the order of the original file."""
        return {key: json.loads(text) for key, text in self.texts(table).items()}

    def texts(self, table: Table) -> dict[str, str]:
        """Return the JSON text of all records of a table by id, in the order of the original file."""
        with self._lock:
            return dict(self._connection.execute(f"SELECT id, json FROM {table} ORDER BY position").fetchall())

    def find(self, table: Table, values: dict[str, str]) -> str | None:
        """Return the id of the first record, in file order, whose values at JSON paths equal these but for case.

        Args:
            table: The table to look through.
            values: JSON path (such as `$.email`) -> wanted value.
        """
        tests = " AND ".join("lower(json_extract(json, ?)) = ?" for _ in values)
        terms = [term for path, value in values.items() for term in (path, value.lower())]
        with self._lock:
            query = f"SELECT id FROM {table} WHERE {tests} ORDER BY position LIMIT 1"
            row = self._connection.execute(query, terms).fetchone()
        return None if row is None else row[0]

    def apply(self, key: str | None, change: Callable[[], str]) -> str:
        """Run a change and keep its key in ONE transaction; a key seen before returns its kept result, unrun.

        A change that raises is rolled back and keeps no key. Inside another `apply` the change joins that one's
        transaction and its own key is not looked at.

        Args:
            key: The idempotency key, or None to run without one.
            change: Makes the changes with `put` and returns the result text.
        """
        with self._lock:
            if self._connection.in_transaction:
                return change()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                result = self._result(key)
                if result is None:
                    result = change()
                    if key is not None:
                        self._connection.execute("INSERT INTO applied VALUES (?, ?)", (key, result))
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            return result

    def applied(self) -> dict[str, str]:
        """Return every idempotency key with its result text, in the order they were applied."""
        with self._lock:
            return dict(self._connection.execute("SELECT key, result FROM applied ORDER BY rowid").fetchall())

    def dump(self) -> Database:
        """Return the whole database (without the keys of `applied`), to compare end states."""
        return {table: self.records(table) for table in TABLES}

    def same_as(self, other: "World") -> bool:
        """Whether both worlds hold the same records, compared as canonical JSON (sorted keys; 1 and 1.0 differ)."""
        return all(_same(self.texts(table), other.texts(table)) for table in TABLES)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _result(self, key: str | None) -> str | None:
        """Return the result kept under a key, if any."""
        if key is None:
            return None
        row = self._connection.execute("SELECT result FROM applied WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]


def canonical(value: object) -> str:
    """Return JSON text that is equal for values that differ only in the order of keys."""
    return json.dumps(value, sort_keys=True)


def _same(left: dict[str, str], right: dict[str, str]) -> bool:
    """Whether two tables of JSON texts hold the same records; only texts that differ are parsed."""
    if left.keys() != right.keys():
        return False
    unlike = [key for key, text in left.items() if text != right[key]]
    return all(canonical(json.loads(left[key])) == canonical(json.loads(right[key])) for key in unlike)


def _connect(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open a file with transactions under our own control."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection
