"""Removes triggers, views and indexes that no release of Gesta made from a record, after showing them.

Taking them out runs nothing of them. A table that was changed is left as it is: what stands in it may be worked out by
the table itself, so nobody can say what was written.
"""

from pathlib import Path

import apsw
from msgspec import Struct

from gesta.errors import BrokenRecord, NoRecord
from gesta.stores.sqlite_door import NEEDED, Object, Schema, examined, harden, heading, read
from gesta.stores.sqlite_open import BUSY_MS, disconnect, sniff, told
from gesta.stores.tables import OWN_INDEXES, OWN_VIEWS

REMOVABLE = ("trigger", "view", "index")


class Repair(Struct, frozen=True):
    """The changes of a repair."""

    removed: tuple[Object, ...]
    made: tuple[str, ...]
    """Views and indexes of Gesta's that are put back."""
    left: tuple[str, ...]
    """What it cannot mend, each thing as a person would name it."""


def planned(schema: Schema) -> Repair:
    """Return what a repair of such a schema would do."""
    odd = (*schema.aside, *schema.refused)
    removed = tuple(each for each in odd if each.type in REMOVABLE and _is(each))
    gone = {each.name.lower() for each in removed} | set(schema.missing)
    made = tuple(name for name in (*OWN_INDEXES, *OWN_VIEWS) if name in gone)
    left = [str(each) for each in odd if each not in removed]
    tables = sorted(name for name in gone & NEEDED if name not in made)
    left += [f"table {name!r}, which is missing" for name in tables]
    return Repair(removed, made, tuple(left))


def look(address: str) -> Repair:
    """Return what a repair would do, and change nothing.

    Raises:
        NoRecord, BrokenRecord, NewerRecord: there is no record. RecordError: it cannot be read.
    """
    connection = _open(address, apsw.SQLITE_OPEN_READONLY)
    try:
        return planned(examined(read(connection)))
    except (apsw.Error, UnicodeDecodeError) as error:
        raise told(error, address, writing=False) from error
    finally:
        disconnect(connection)


def repair(address: str) -> Repair:
    """Remove what `look` names, and restore what is missing of Gesta's own, all or nothing.

    Raises:
        NoRecord, BrokenRecord, NewerRecord: there is no record. WriteFailed: it cannot be written; nothing was changed.
    """
    connection = _open(address, apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        found = planned(examined(read(connection)))
        for each in found.removed:
            name = each.name.replace('"', '""')
            connection.execute(f'DROP {each.type.upper()} main."{name}"')
        for name in found.made if not found.left else ():
            connection.execute((OWN_INDEXES | OWN_VIEWS)[name])
        connection.execute("COMMIT")
        return found
    except (apsw.Error, UnicodeDecodeError) as error:
        raise told(error, address, writing=True) from error
    finally:
        disconnect(connection)


def _open(address: str, flags: int) -> apsw.Connection:
    path = Path(address).resolve()
    if not sniff(path):
        raise BrokenRecord(address, "it is empty") if path.exists() else NoRecord(address)
    try:
        connection = apsw.Connection(str(path), flags=flags)
        connection.set_busy_timeout(BUSY_MS)
        harden(connection)
    except apsw.Error as error:
        raise told(error, address, writing=flags == apsw.SQLITE_OPEN_READWRITE) from error
    return connection


def _is(each: Object) -> bool:
    """Return whether an object still is what its row says, so that the repair removes what was shown."""
    head = heading(each.sql)
    return (head.type, head.name) == (each.type, each.name)
