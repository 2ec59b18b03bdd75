"""A run that was pruned leaves a tombstone: an entry with the run's id, times and digest, and the pos of its entries.

Tombstones are entries of a run about the record itself, written in the commit that removes the runs. Holds, which
protect runs from being pruned, are in the same run. Each pos (place in the record) is used once, in order, without a
gap. If a pos is missing and no tombstone names it, entries were removed by hand. So every removal shows, either as a
tombstone in a chain of digests or as a gap.
"""

from typing import TypeVar

import msgspec
from msgspec import Struct

from gesta.codec.rows import blob_names, decode_content
from gesta.entry import Row
from gesta.errors import RecordError
from gesta.kinds import KeyValueContent
from gesta.store import Store

SESSION, NAME = "gesta", "storage"
"""Session and name of the run that holds the tombstones; it is never pruned itself."""
PRUNED, HOLD = "gesta.pruned", "gesta.hold"
"""Keys of the entries of that run."""

GAPS = """SELECT before + 1, pos - 1
    FROM (SELECT pos, lag(pos, 1, 0) OVER (ORDER BY pos) AS before FROM entries) AS each
    WHERE pos > before + 1 ORDER BY pos"""

T = TypeVar("T")

Places = list[tuple[int, int]]
"""First and last pos of each stretch, in order."""


class Tombstone(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The id, times, head, digest and places of a run that was pruned."""

    run: str
    session: str | None = None
    """Only in tombstones of 0.1.0. Later tombstones hold no session and no name, which may identify a person."""
    name: str | None = None
    parent_run: str | None = None
    at: str
    """Time at which the run was opened."""
    last_at: str
    """Time of its last entry."""
    head: int
    """Seq of its last entry."""
    entries: int
    digest: str
    """Digest of its last entry, in hex, by which a copy of the run can be recognised."""
    letters: int = 0
    """The number of letters that waited in its inbox."""


class Pruned(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of an entry about runs that were pruned together."""

    record: str
    """Id of the record that held the runs; `places` are places in this record."""
    runs: list[Tombstone]
    places: Places
    """The pos of all entries that were removed."""
    by: str
    reason: str | None = None


class Hold(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of an entry that protects a run from being pruned, or ends the protection."""

    run: str
    held: bool = True
    by: str
    reason: str | None = None


class PruningNote(Struct, frozen=True):
    """An entry about pruning, with its row and its value."""

    row: Row
    value: Pruned


async def pruned(store: Store) -> list[Pruned]:
    """Return the tombstones in the order of pruning; in a copy, also those of the record that was copied."""
    return [value for _, value in await _values(store, PRUNED, Pruned)]


async def pruning_notes(store: Store) -> list[PruningNote]:
    """Return the notes about pruning that this record itself wrote."""
    every = [PruningNote(row, value) for row, value in await _values(store, PRUNED, Pruned)]
    return [each for each in every if each.value.record == store.info.id]


async def holds(store: Store) -> dict[str, Hold]:
    """Return the runs that are held, each with its last hold."""
    found = {value.run: value for _, value in await _values(store, HOLD, Hold)}
    return {run: hold for run, hold in found.items() if hold.held}


async def unexplained(store: Store) -> Places:
    """Return the pos that are missing and that no tombstone names. Cost: reads the pos of all entries."""
    missing: Places = [(int(first), int(last)) for first, last in (await store.sql(GAPS)).rows]
    if not missing:
        return []
    known = sorted(place for each in await pruning_notes(store) for place in each.value.places)
    for start, end in known:
        missing = [part for gap in missing for part in _without(gap, start, end)]
    return missing


def stretches(places: list[int]) -> Places:
    """Return sorted numbers as stretches (first, last) without gaps."""
    found: Places = []
    for place in places:
        if found and found[-1][1] == place - 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return found


def _without(gap: tuple[int, int], start: int, end: int) -> Places:
    first, last = gap
    if end < first or last < start:
        return [gap]
    return [part for part in ((first, start - 1), (end + 1, last)) if part[0] <= part[1]]


async def _values(store: Store, key: str, shape: type[T]) -> list[tuple[Row, T]]:
    """Return the values under a key in the runs about the record itself. Values of another type are left out."""
    found = list[tuple[Row, T]]()
    for run in await store.runs(SESSION, NAME):
        for row in await store.read(run.run):
            if row.kind == "key-value" and key in row.content:
                found += [(row, value) for value in await _value(store, row, key, shape)]
    return found


async def _value(store: Store, row: Row, key: str, shape: type[T]) -> list[T]:
    try:
        blobs = {name: (await store.get_blob(row.run, name)).data for name in blob_names(row)}
        content = decode_content(row.content, blobs)
        if not isinstance(content, KeyValueContent) or content.key != key:
            return []
        return [msgspec.convert(content.value, shape)]
    except (RecordError, msgspec.ValidationError):  # `audit` says what is wrong with it
        return []
