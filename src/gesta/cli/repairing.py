"""Implements the command `repair`, which removes objects of other programs from a record's SQLite file.

A record is the store of all runs of agents.
"""

import sys

import typer

from gesta.address import remote
from gesta.cli.record_options import RepairOptions
from gesta.cli.talk import FAILED, USAGE, Stop, count, harmless, json_line, put, say, terminal
from gesta.stores.sqlite_door import Object
from gesta.stores.sqlite_repair import Repair, look
from gesta.stores.sqlite_repair import repair as take_out


def repair(options: RepairOptions) -> int:
    """Show the triggers, views and indexes that Gesta did not make, ask for confirmation, and remove them.

    Gesta's own views and indexes are created again if they are missing. Returns the exit code.
    """
    address = options.source(options.file)
    if remote(address):
        raise Stop("A record in PostgreSQL is repaired there: drop what the error names, and what you do not know.")
    found = look(address)
    if not options.json:
        for each in found.removed:
            put(harmless(f"{each}:\n{_indented(each)}"))
    if not found.removed and not found.made:
        return _told(options, found, done=False)
    if not _agreed(options, found):
        return USAGE
    return _told(options, take_out(address), done=True)


def _agreed(options: RepairOptions, found: Repair) -> bool:
    if options.yes:
        return True
    words = f"{count(len(found.removed), 'object')} would be taken out, for good."
    if options.json or not terminal(sys.stdin):
        say(f"{words} Nothing was changed: add --yes.")
        return False
    return bool(typer.confirm(f"{words} Take out?", err=True))


def _told(options: RepairOptions, found: Repair, *, done: bool) -> int:
    removed = found.removed if done else ()
    if options.json:
        gone = [{"type": each.type, "name": each.name, "on": each.table, "sql": each.sql} for each in removed]
        put(json_line({"removed": gone, "made": list(found.made if done else ()), "left": list(found.left)}))
    elif done:
        put(f"{count(len(removed), 'object')} taken out.")
    elif not found.left:
        put("Nothing is to be repaired.")
    if found.left:
        say(
            harmless(
                f"Left as it is: {', '.join(found.left)}. A table that no release of Gesta made so cannot be mended: "
                "use another copy of the record. A table of others that refers to Gesta's can be dropped by its owner."
            )
        )
    return FAILED if found.left else 0


def _indented(each: Object) -> str:
    return "\n".join(f"    {line}" for line in each.sql.splitlines())
