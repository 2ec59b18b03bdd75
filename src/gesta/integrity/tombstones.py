"""A pruned (removed) run leaves a tombstone: the facts about it that remain on record, such as its id and length.

A record is the store of all runs; a run is the list of an agent's entries. When runs are pruned, the same commit writes
one entry, which contains their tombstones and says which entries were removed, by whom and why. Such entries are in a
special run about the record itself. The special run also contains holds, which protect runs from being pruned.

A pos is the number of an entry in the whole store. Each pos is used once, in order, without a gap. So if a pos is
missing and no such entry names it, entries were removed by hand.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Struct

from gesta.codec.rows import blob_names, decode_content
from gesta.entry import Row
from gesta.errors import RecordError
from gesta.kinds import KeyValueContent
from gesta.store import Store

SESSION, NAME = "gesta", "storage"
"""Session and name of the run that contains the tombstones. This run is never pruned."""
PRUNED, HOLD = "gesta.pruned", "gesta.hold"
"""Keys of the entries about pruned runs and about holds, in the run that contains the tombstones."""

GAPS = """SELECT before + 1, pos - 1
    FROM (SELECT pos, lag(pos, 1, 0) OVER (ORDER BY pos) AS before FROM entries) AS each
    WHERE pos > before + 1 ORDER BY pos"""

T = TypeVar("T")

Places = list[tuple[int, int]]
"""Ranges of pos numbers, sorted: the first and the last pos of each."""


class Tombstone(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts that remain on record about a run that was pruned."""

    run: str
    session: str | None = None
    """Set only in tombstones of version 0.1.0. Session and name may identify a person, so later tombstones omit
    them."""
    name: str | None = None
    parent_run: str | None = None
    at: str
    """Time at which the run was opened."""
    last_at: str
    """Time of the run's last entry."""
    head: int
    """Seq of the run's last entry."""
    entries: int
    digest: str
    """Digest of the run's last entry, in hex. A copy of the run can be recognised by this digest."""
    letters: int = 0
    """Number of messages and answers that were in the run's inbox when it was pruned."""


class Pruned(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of the entry that is written when runs are pruned together: their tombstones, by whom, and why."""

    record: str
    """Id of the record that contained the runs. `places` are pos numbers of this record."""
    runs: list[Tombstone]
    places: Places
    """The pos of all entries that were removed."""
    by: str
    reason: str | None = None


class Hold(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of an entry that protects a run from being pruned. With `held=False`, it ends the protection."""

    run: str
    held: bool = True
    by: str
    reason: str | None = None


class PruningNote(Struct, frozen=True):
    """An entry which says that runs were pruned: its stored row, and its decoded value."""

    row: Row
    value: Pruned


async def pruned(store: Store) -> list[Pruned]:
    """Return the values of all entries about pruned runs, in the order of pruning.

    In a copied record, the entries of its original are included.
    """
    return [value for _, value in await _values(store, PRUNED, Pruned)]


async def pruning_notes(store: Store) -> list[PruningNote]:
    """Return this record's own entries about pruned runs. Entries copied from another record are left out."""
    every = [PruningNote(row, value) for row, value in await _values(store, PRUNED, Pruned)]
    return [each for each in every if each.value.record == store.info.id]


async def holds(store: Store) -> dict[str, Hold]:
    """Return the latest hold of each run that is protected from pruning, by the id of the run.

    A record that was copied into this one brings its own holds. Of the last holds of several records, the one with the
    latest time counts.
    """
    last = {(value.run, row.run): (row.at, value) for row, value in await _values(store, HOLD, Hold)}
    found = {value.run: value for _, value in sorted(last.values(), key=lambda each: each[0])}
    return {run: hold for run, hold in found.items() if hold.held}


async def unexplained(store: Store) -> Places:
    """Return the pos numbers that are missing though no pruning is recorded, as ranges. Cost: reads every pos."""
    missing: Places = [(int(first), int(last)) for first, last in (await store.sql(GAPS)).rows]
    if not missing:
        return []
    known = (place for each in await pruning_notes(store) for place in each.value.places)
    return _without(missing, known)


def stretches(places: list[int]) -> Places:
    """Return sorted numbers as ranges (first, last): `[1, 2, 3, 7]` becomes `[(1, 3), (7, 7)]`."""
    found: Places = []
    for place in places:
        if found and found[-1][1] == place - 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return found


def _without(missing: Places, known: Iterable[tuple[int, int]]) -> Places:
    """Return the parts of `missing`, sorted ranges, that no range of `known` covers. Cost: sorts `known`."""
    united: list[tuple[int, int]] = []  # so that each range is looked at for one gap, and for the next
    for start, end in sorted(place for place in known if place[0] <= place[1]):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    found, place = list[tuple[int, int]](), 0
    for gap in missing:
        first, last = gap
        while place < len(united) and united[place][0] <= last:
            start, end = united[place]
            if first < start:
                found.append((first, start - 1))
            first = max(first, end + 1)
            if end > last:  # it may cover a part of the next gap
                break
            place += 1
        if first <= last:
            found.append((first, last))
    return found


async def _values(store: Store, key: str, shape: type[T]) -> list[tuple[Row, T]]:
    """Return the row and the decoded value of each key-value entry `key` in the special runs about the record.

    Entries whose values are not of the type `shape` are skipped.
    """
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
    except (RecordError, msgspec.ValidationError):  # `audit` reports what is wrong with it
        return []
