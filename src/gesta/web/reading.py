"""Reads entries for the pages. An entry that was damaged and cannot be read does not hide the others.

A substitute entry with the reason is shown instead. The page's warnings about damage come from `evidence`, which
compares the digests of entries. A run is a list of entries; a seq is the number of an entry in its run.
"""

from datetime import UTC, datetime

from msgspec.structs import replace

from gesta.codec.fitting import unfit
from gesta.entry import Entry, Row, utc_time
from gesta.errors import BrokenRecord
from gesta.kinds import KeyValueContent
from gesta.log.journal import entry_of
from gesta.log.journal import read as read_all
from gesta.log.shared import rows_of
from gesta.store import Store

UNREADABLE = "not readable"
"""The key of a substitute entry, whose value says why the real entry cannot be read."""
NEVER = datetime.fromtimestamp(0, UTC)


async def read(
    store: Store, run: str, after: int = 0, until: int | None = None, limit: int | None = None
) -> list[Entry]:
    """Return entries of a run, in order. An entry that cannot be read is replaced by a substitute.

    Args:
        after: seq before the first entry to read.
        until: seq of the last entry to read; `None` for the end of the run.
        limit: greatest number of entries.
    """
    try:
        return [fitting(entry) for entry in await read_all(store, run, after, until, limit)]
    except BrokenRecord:
        found, at = list[Entry](), NEVER
        for row in await rows_of(store, run, after, until, limit):
            if isinstance(row.seq, int):
                found.append(await readable(store, row, run, at))
                at = found[-1].at
        return found


async def readable(store: Store, row: Row, run: str = "", last: datetime = NEVER) -> Entry:
    """Return the entry of a stored row; if it cannot be read, a substitute that says why.

    Args:
        run: the run that is read; by default the run that the row names. A fork, which continues another
            run, also reads rows of that run.
        last: time of the entry before this row, used if the time of the row cannot be read.
    """
    try:
        run = run or row.run
        (entry,) = await read_all(store, run, row.seq - 1, row.seq) if row.run != run else [await entry_of(store, row)]
    except BrokenRecord as error:
        try:
            at = utc_time(row.at)
        except (ValueError, TypeError, AttributeError):
            at = last
        words = KeyValueContent(key=UNREADABLE, value=f"{row.kind}: {error.found}")
        span = row.span if isinstance(row.span, int) else 0
        return Entry(
            run=run, seq=row.seq, at=at, span=span, causes=(), content=words, annotations=None, digest=b"", pos=row.pos
        )
    return fitting(entry)


def fitting(entry: Entry) -> Entry:
    """Return the entry or, if a member of its content has a wrong type, a substitute that says what is wrong."""
    wrong = unfit(entry.content)
    if wrong is None:
        return entry
    return replace(entry, content=KeyValueContent(key=UNREADABLE, value=f"{entry.kind}: {wrong}"))


async def misfits(store: Store, run: str) -> BrokenRecord | None:
    """Return an error about the first entry of a run that cannot be read, or that has a member of a wrong type.

    Returns `None` if there is no such entry.
    """
    for entry in await read(store, run):
        if isinstance(entry.content, KeyValueContent) and entry.content.key == UNREADABLE:
            return BrokenRecord(store.info.address, f"entry {entry.id}: {entry.content.value}")
    return None
