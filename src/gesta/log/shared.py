"""A fork is a run that shares the first entries of another run, its base. Shared entries are stored only once.

The first entry of a fork is a `begin` that names its base: run, seq and digest of the last shared entry. Its own seq
and digest follow from these. Stores know nothing about forks: `rows_of` reads the shared rows and the fork's own rows,
also for a fork of a fork.
"""

import msgspec
from msgspec import Struct

from gesta.entry import Row
from gesta.kinds import Forked
from gesta.store import Store


class Named(Struct):
    """The object `opened` in a run's first entry. Only its member `base` is read, which names the base of a fork."""

    base: Forked | None = None


class First(Struct):
    """The content (data) of a run's first entry. Only its member `opened` is read."""

    opened: Named | None = None


_first_decoder = msgspec.json.Decoder(First)


def base_of(first: Row) -> Forked | None:
    """Return the base of a fork, given the run's first row; `None` for a run that is not a fork. Never raises."""
    return base_in(first.content or "") if first.kind == "begin" else None


def base_in(content: str) -> Forked | None:
    """Return the base of a fork, given the JSON text of its first `begin`; `None` if it names no base. Never raises."""
    if not isinstance(content, str) or '"base"' not in content:  # a damaged record may hold another type
        return None
    try:
        opened = _first_decoder.decode(content).opened
    except (msgspec.MsgspecError, RecursionError):
        return None
    return opened.base if opened is not None else None


async def rows_of(
    store: Store, run: str, after: int = 0, until: int | None = None, limit: int | None = None
) -> list[Row]:
    """Return the rows of a run as `Store.read` does, including the rows that a fork shares with its base.

    A shared row has the id of the run that wrote it.

    Cost: as `Store.read`. One more row is read if the result has shared rows, or no rows.
    """
    rows = await store.read(run, after, until, limit)
    if (rows and rows[0].seq == after + 1) or not (rows or after or until):
        return rows
    first = await store.read(run, 0, None, 1)
    base = base_of(first[0]) if first and first[0].seq > after + 1 else None
    if base is None:
        return rows
    shared = await rows_of(store, base.run, after, base.seq if until is None else min(until, base.seq), limit)
    return [*shared, *rows][:limit]
