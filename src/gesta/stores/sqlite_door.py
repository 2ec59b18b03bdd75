"""The check before a record's file is opened: its schema is checked before any code in it can run.

A record is the stored history of all runs (conversations of agents). A file can hold code that SQLite runs by itself:
triggers, views, foreign keys, checks, generated columns and indexes. So each connection to a record first reads the
schema, which runs no code. An object on Gesta's tables, or with a name of Gesta's, must have the text that a release of
Gesta gave it. Other objects are treated in three ways:
- Objects that would run whenever a table of Gesta is used are refused.
- Triggers and views on Gesta's tables are set aside. Gesta reads no foreign view, and runs triggers only for a
  transactional tool, under its guard.
- Objects that do not belong to Gesta's tables are left alone, and `verify` names them.
"""

import re
from collections.abc import Iterable, Iterator
from string import ascii_lowercase, ascii_uppercase

import apsw
from msgspec import Struct

from gesta.errors import ForeignObjects
from gesta.stores.tables import EVERY_RELEASE, VIEWED

SCHEMA = "SELECT type, name, tbl_name, sql FROM main.sqlite_master"
LARGEST = 1_000_000  # greatest length of a text in a schema, in bytes
TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|(?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*'|`(?:[^`]|``)*`|\[[^\]]*\])"""
    r"""|(?P<bare>[\w$\x80-\U0010ffff]+)|(?P<sign>\S)""",
    re.DOTALL | re.ASCII,
)
SYSTEM = {
    "sqlite_sequence": "CREATE TABLE sqlite_sequence(name,seq)",
    "sqlite_stat1": "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    "sqlite_stat4": "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
}
"""Tables that SQLite makes itself."""
LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
FUNCTIONS = ("json_each", "json_tree", "pragma_")
"""Prefixes of the names of the table-valued functions that Gesta's statements use."""


class Object(Struct, frozen=True):
    """One row of a file's schema, which describes a table, an index, a view or a trigger."""

    type: str
    name: str
    table: str
    """The table of an index or trigger; for a table or view its own name."""
    sql: str

    def __str__(self) -> str:
        """Return type and name of the object for messages. For an index or trigger, its table is added."""
        return f"{self.type} {self.name!r}" + (f" on {self.table!r}" if self.table != self.name else "")


class Schema(Struct, frozen=True):
    """The objects in a file that no release of Gesta made, and the names of Gesta's objects that the file lacks."""

    refused: tuple[Object, ...] = ()
    """Objects that would run when Gesta's tables are used, or that have the name of one of these tables."""
    missing: tuple[str, ...] = ()
    """The names of Gesta's tables and indexes that the file lacks."""
    aside: tuple[Object, ...] = ()
    """Triggers on Gesta's tables, and objects with the name of one of Gesta's views. They are not run or read."""
    beside: tuple[Object, ...] = ()
    """All other objects: tables of users and tools, with their indexes and triggers."""


def harden(connection: apsw.Connection) -> None:
    """Forbid a connection to run triggers of the file, and to call unsafe functions from its schema.

    Raises apsw.Error.
    """
    for setting, value in (
        (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
        (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    ):
        connection.config(setting, value)


def admit(connection: apsw.Connection, address: str) -> Schema:
    """Check the schema of a file before any other statement, and return the objects that are not Gesta's.

    This check runs no code of the file.

    Raises:
        ForeignObjects: the file holds code that cannot be kept from running, or lacks a table.
        apsw.Error: the file is damaged.
    """
    found = examined(read(connection))
    if found.refused or found.missing:
        lacking = [f"{KNOWN[name][0].type} {name!r} is missing" for name in found.missing]
        raise ForeignObjects(address, [*map(str, found.refused), *lacking])
    return found


def read(connection: apsw.Connection) -> list[Object]:
    """Return the objects in the schema of a file. Raises apsw.Error."""
    before = connection.limit(apsw.SQLITE_LIMIT_LENGTH, LARGEST)
    try:
        rows = connection.execute(SCHEMA).fetchall()
    finally:
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, before)
    return as_objects(rows)


def as_objects(rows: Iterable[Iterable[object]]) -> list[Object]:
    """Return rows of a schema as objects. A cell that is not text becomes an empty text."""
    return [Object(*(each if isinstance(each, str) else "" for each in row)) for row in rows]


def examined(objects: Iterable[Object]) -> Schema:
    """Return which objects of a schema are not Gesta's, and which of Gesta's are missing.

    An empty schema lacks nothing, because it is not a record yet.
    """
    found: dict[str, list[Object]] = {"refused": [], "aside": [], "beside": [], "known": []}
    there = set[str]()
    for each in objects:
        there.add(_lower(each.name))
        found[_sorted(each)].append(each)
    missing = tuple(sorted(NEEDED - there)) if there else ()
    return Schema(tuple(found["refused"]), missing, tuple(found["aside"]), tuple(found["beside"]))


def _sorted(each: Object) -> str:
    """Return how to treat an object: `refused`, `aside` or `beside` (see `Schema`), or `known`.

    `known` means that Gesta or SQLite made the object.
    """
    name = _lower(each.name)
    if each in KNOWN.get(name, ()) or _of_sqlite(each):
        return "known"
    head = heading(each.sql)
    on_ours = _lower(head.table) in KNOWN
    if _misnamed(each, head) or name in KNOWN.keys() - VIEWED:
        return "refused"
    if name in VIEWED or (each.type == "trigger" and on_ours):
        return "aside"
    if name.startswith(("gesta_", "sqlite_", *FUNCTIONS)) or (each.type == "index" and on_ours):
        return "refused"
    refers = each.type == "table" and any(_lower(table) in KNOWN for table in references(each.sql))
    return "refused" if refers else "beside"


def heading(sql: str) -> Object:
    """Return the type, name and table of the object that a `CREATE` statement makes.

    The caller compares these with the columns of the schema row, which a hostile file may have changed.
    """
    tokens = _tokens(sql)
    words = [next(tokens, ("", False)) for _ in range(2)]
    if words[1][0].upper() in ("UNIQUE", "VIRTUAL"):
        words.append(next(tokens, ("", False)))
    name = table = next(tokens, ("", False))[0]
    kind = words[-1][0].lower()
    if kind in ("index", "trigger"):
        table = next((_after(tokens) for token in tokens if token[1] and token[0].upper() == "ON"), "")
    return Object(kind, name, table, sql)


def references(sql: str) -> Iterator[str]:
    """Yield the names of the tables to which the foreign keys in a `CREATE TABLE` statement refer."""
    tokens = _tokens(sql)
    for word, bare in tokens:
        if bare and word.upper() == "REFERENCES":
            yield next(tokens, ("", False))[0]


def _known() -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for text in EVERY_RELEASE:
        made = heading(text)
        found.setdefault(made.name, []).append(made)
    return found


def _after(tokens: Iterator[tuple[str, bool]]) -> str:
    """Return the next name in a statement. If it is written as `database.name`, only the second part is returned."""
    first, sign, second = (next(tokens, ("", False))[0] for _ in range(3))
    return second if sign == "." else first


def _tokens(sql: str) -> Iterator[tuple[str, bool]]:
    """Yield each word or sign of a statement without its quotes, and whether it was written without quotes."""
    for found in TOKEN.finditer(sql.partition("\0")[0]):
        if quoted := found["quoted"]:
            mark = quoted[-1]
            yield quoted[1:-1].replace(mark * 2, mark), False
        elif found["bare"] or found["sign"]:
            yield found[0], True


def _misnamed(each: Object, head: Object) -> bool:
    """Return whether `each`, a schema row, has another type, name or table than `head`, made from its SQL text."""
    return (head.type, head.name, _lower(head.table)) != (each.type, each.name, _lower(each.table))


def _of_sqlite(each: Object) -> bool:
    """Return whether SQLite itself made an object: a system table, or the index of a constraint."""
    if each.type == "index" and not each.sql:
        return each.name.startswith("sqlite_autoindex_")
    return each.type == "table" and SYSTEM.get(each.name) == each.sql


def _lower(name: str) -> str:
    """Return a name in lower case as SQLite compares names: only the letters A to Z are changed."""
    return name.translate(LOWER)


KNOWN = _known()
"""The objects that the releases of Gesta make, by name."""
NEEDED = frozenset(KNOWN) - VIEWED - {name for name in KNOWN if name.startswith("gesta_")}
"""The names of the objects that every record must have."""
