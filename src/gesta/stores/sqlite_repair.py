"""Removes foreign triggers, views and indexes from a record's file, after showing them to a person.

A record is the stored history of all runs (conversations of agents). An object is foreign if no release of Gesta made
it. The removal runs no code of these objects. A table that another program changed is left as it is: the table may
compute its values itself, so nobody knows what was written into it.
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
    """The changes that a repair makes or would make, and the objects that it cannot remove."""

    removed: tuple[Object, ...]
    made: tuple[str, ...]
    """The names of Gesta's views and indexes that are created again."""
    left: tuple[str, ...]
    """The objects that the repair cannot remove, each with a name for people."""


def planned(schema: Schema) -> Repair:
    """Return the changes that a repair would make, given the foreign and missing objects in a file."""
    odd = (*schema.aside, *schema.refused)
    removed = tuple(each for each in odd if each.type in REMOVABLE and _is(each))
    gone = {each.name.lower() for each in removed} | set(schema.missing)
    made = tuple(name for name in (*OWN_INDEXES, *OWN_VIEWS) if name in gone)
    left = [str(each) for each in odd if each not in removed]
    tables = sorted(name for name in gone & NEEDED if name not in made)
    left += [f"table {name!r}, which is missing" for name in tables]
    return Repair(removed, made, tuple(left))


def look(address: str) -> Repair:
    """Return the changes that a repair of a record would make. This call changes nothing.

    Raises:
        NoRecord: there is no file.
        BrokenRecord: the file is not a record, or is damaged.
        NewerRecord: a later release of Gesta made the record.
        RecordError: the file cannot be read.
    """
    connection = _open(address, apsw.SQLITE_OPEN_READONLY)
    try:
        return planned(examined(read(connection)))
    except (apsw.Error, UnicodeDecodeError) as error:
        raise told(error, address, writing=False) from error
    finally:
        disconnect(connection)


def repair(address: str) -> Repair:
    """Remove the objects that `look` names, in one transaction, and return the changes.

    Gesta's missing views and indexes are created again, if no foreign object is left.

    Raises:
        NoRecord, BrokenRecord, NewerRecord: as in `look`.
        WriteFailed: the file cannot be written; nothing was changed.
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
    """Return whether an object's type and name in the schema are those in its SQL text.

    The repair does not remove an object for which they differ, because SQLite could then remove another object.
    """
    head = heading(each.sql)
    return (head.type, head.name) == (each.type, each.name)
