"""A record copied into another, row by row as it is stored: ids, seqs, digests and salts stay, and so does the order.

Every run is held on both sides while it is copied, so none that somebody writes goes over by halves. What the other
record has already is compared by its digest and not copied again, so a push that broke off is repeated. Letters that
wait go along; that a key was used by a letter which became an entry long ago, does not.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import groupby

import msgspec
from msgspec import Struct

from gesta.codec import blob_names
from gesta.entry import GENESIS
from gesta.errors import RunHeld
from gesta.forking import base_of
from gesta.opening import shielded
from gesta.store import Batch, Lease, Store

RUNS = "SELECT run, min(seq) AS first, max(seq) AS last FROM entries GROUP BY run ORDER BY min(pos)"
ROWS = "SELECT pos, run, seq FROM entries WHERE pos > ? ORDER BY pos LIMIT ?"
LETTERS = "SELECT DISTINCT run FROM inbox"
PAGE = 500


class Pushed(Struct):
    """What was copied."""

    runs: int = 0
    """Of which anything was new."""
    entries: int = 0
    letters: int = 0
    known: int = 0
    """Runs of which everything was there."""
    refused: list[str] = msgspec.field(default_factory=list)
    """Why a run was not copied, in words."""


class Held(Struct):
    """A run that is held on both sides."""

    lease: Lease
    """In the record that is copied to."""
    head: int
    """Seq of its last entry there, as far as it was copied."""


async def push(source: Store, target: Store, progress: Callable[[int], None] = lambda _: None) -> Pushed:
    """Copy all runs into another record, where they may be in part already.

    Args:
        progress: is told how many entries were copied, now and then.

    Raises:
        BrokenRecord: a blob is missing. WriteFailed: the other record cannot be written. What was copied stands.
    """
    pushed = Pushed()
    async with AsyncExitStack() as stack:
        held: dict[str, Held] = {}
        there = set[str]()
        for run, first, last in (await source.sql(RUNS)).rows:
            found = await _hold(source, target, str(run), stack)
            base = base_of((await source.read(str(run), 0, None, 1))[0])
            if base is not None and base.seq and base.run not in there and not isinstance(found, str):
                found = f"Run {run!r} is a fork of {base.run!r}, which was not pushed. It was not pushed either."
            there |= {str(run)} if not isinstance(found, str) else set()
            if isinstance(found, str):
                pushed.refused.append(found)
            elif found.head >= last:
                pushed.known += 1
            else:
                held[str(run)] = Held(found, found.head or first - 1)
        pushed.runs = len(held)
        await _copy(source, target, held, pushed, progress)
        for (run,) in (await source.sql(LETTERS)).rows:
            for letter in await source.inbox(str(run)):
                pushed.letters += await target.send(letter)
    return pushed


async def _hold(source: Store, target: Store, run: str, stack: AsyncExitStack) -> Lease | str:
    """Hold a run on both sides until the stack ends; if that cannot be, say why."""
    leases = []
    for store in (source, target):
        try:
            leases.append(await store.lease(run))
        except RunHeld as error:
            return f"{error} It was not pushed."
        stack.push_async_callback(_release, store, leases[-1])
    here, there = leases
    common = min(here.head, there.head)
    if common and await _digest(source, run, common) != await _digest(target, run, common):
        return f"Run {run!r} is another one in {target.info.address!r}: entry {common} differs. It was not pushed."
    return there


async def _release(store: Store, lease: Lease) -> None:
    with shielded():
        await store.release(lease)


async def _digest(store: Store, run: str, seq: int) -> bytes:
    rows = await store.read(run, seq - 1, seq)
    return rows[0].digest if rows else GENESIS


async def _copy(
    source: Store, target: Store, held: dict[str, Held], pushed: Pushed, progress: Callable[[int], None]
) -> None:
    """Copy what is new of the runs that are held, in the order of pos."""
    after = 0
    while rows := (await source.sql(ROWS, (after, PAGE))).rows:
        after = rows[-1][0]
        for run, part in groupby(rows, key=lambda row: str(row[1])):
            one, last = held.get(run), [seq for _, _, seq in part][-1]
            if one is None or last <= one.head:
                continue
            new = await source.read(run, one.head, last)
            names = dict.fromkeys(name for row in new for name in blob_names(row))
            blobs = [await source.get_blob(run, name) for name in names]
            await target.append(Batch(one.lease, one.head, new, blobs))
            one.head = last
            pushed.entries += len(new)
        progress(pushed.entries)
