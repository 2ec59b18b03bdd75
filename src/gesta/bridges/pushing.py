"""Copies a record into another, row by row as it is stored: ids, seqs, digests, salts and the order stay the same.

While a run is copied, its lease (the right to write it) is held in both records. Entries that the target already has
are compared by digest and not copied again, so a second push completes an interrupted one. A copied run is a mirror in
the target: it takes no turn there. A move makes the mirror an ordinary run, after the source has recorded that the run
continues elsewhere. So at most one record takes turns at any time. A letter is a message that waits in the inbox of a
run. Only a move takes letters along; no letter is lost or arrives twice. A fork is a run that shares its first entries
with another run, its base.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import groupby

import msgspec
from msgspec import Struct

from gesta.codec.rows import blob_names, to_row
from gesta.entry import GENESIS, Entry
from gesta.errors import BrokenRecord, RecordError, RunHeld, RunMirrored
from gesta.integrity.tombstones import NAME, SESSION
from gesta.kinds import SignalContent
from gesta.log.journal import read, utc_now
from gesta.log.shared import base_of
from gesta.state.opening import shielded
from gesta.store import Batch, Lease, Store

RUNS = "SELECT run, min(seq) AS first, max(seq) AS last FROM entries GROUP BY run ORDER BY min(pos)"
ROWS = "SELECT pos, run, seq FROM entries WHERE pos > ? ORDER BY pos LIMIT ?"
SIGNALS = "SELECT seq FROM entries WHERE run = ? AND kind = 'signal' ORDER BY seq DESC"
SPANS = """SELECT max(CASE WHEN kind = 'begin' AND content LIKE '%"role":"turn"%' THEN seq END), min(seq)
    FROM entries WHERE run = ?"""
PAGE = 500


class Pushed(Struct):
    """The result of a push: numbers of runs, entries and letters, and the runs that were refused."""

    runs: int = 0
    """Number of runs with new entries in the target."""
    entries: int = 0
    letters: int = 0
    """Number of waiting letters that were moved with their runs."""
    known: int = 0
    """Number of runs that needed no copy, because the target already had all their entries."""
    moved: int = 0
    """Number of runs that from now on continue only in the target."""
    refused: list[str] = msgspec.field(default_factory=list)
    """For each run that was not copied or moved, a sentence with the reason."""


class Held(Struct):
    """A run whose lease is held in both records."""

    here: Lease
    """Lease in the source."""
    there: Lease
    """Lease in the target."""
    head: int
    """Seq of the last entry that the target has so far."""
    mirror_here: str | None
    """If the run at the source is a mirror, the id of the record that it mirrors; otherwise `None`."""
    mirror_there: str | None
    """If the run at the target is a mirror, the id of the record that it mirrors; otherwise `None`."""
    base: str | None = None
    """Id of the run that this run is a fork of; `None` if it is not a fork."""
    moves: bool = False
    """Whether the run is moved, and not only copied."""
    moved: str = ""
    """Id of the record to which the run was last moved, as its log says; empty if it was never moved."""

    @property
    def run(self) -> str:
        """Id of the run."""
        return self.here.run

    @property
    def last(self) -> int:
        """Seq of the last entry of the run at the source."""
        return self.here.head


async def push(
    source: Store, target: Store, progress: Callable[[int], None] = lambda _: None, *, moved_by: str | None = None
) -> Pushed:
    """Copy all runs into another record, which may already have a part of them.

    Args:
        progress: called several times during the copy, with the number of entries that were copied so far.
        moved_by: name of the person who moves the runs, so that they continue only in the target. With `None` the runs
            are copied as mirrors.

    Raises:
        RecordError: both are the same record, or runs cannot be moved between these two.
        BrokenRecord: a blob (a large value that an entry refers to) is missing.
        WriteFailed: a record cannot be written. Entries that were copied before stay in the target.
    """
    if (source.info.id, source.info.address) == (target.info.id, target.info.address):
        raise RecordError(
            f"{source.info.address!r} is named twice: a record is not copied into itself. Name another one."
        )
    if moved_by is not None:
        _check_move(source, target)
    pushed = Pushed()
    async with AsyncExitStack() as stack:
        every = await _hold_all(source, target, pushed, stack)
        if moved_by is not None:
            every = await _movable(source, target, every, pushed)
        else:  # a move waits for the disk below
            await _settle(source, every)
        moving = [one for one in every.values() if one.moves]
        await _mirror(source, target, every)
        for one in moving:
            if one.moved != target.info.id:
                one.here = await _commit_move(source, one.here, moved_by or "", target.info.id)
        new = {run: one for run, one in every.items() if one.head < one.last}
        pushed.runs, pushed.known = len(new), len(every) - len(new)
        await _copy(source, target, new, pushed, progress)
        for one in moving:
            pushed.letters += await _move_letters(source, target, one)
            pushed.moved += await _let_go(target, one)
    return pushed


async def _settle(source: Store, every: dict[str, Held]) -> None:
    """Wait until all that the source has committed is on its disk, whatever its durability.

    Otherwise a crash of its server could lose entries that the target has. Nothing could then be pushed to the target.
    """
    held = next(iter(every.values()), None)
    if held is not None:
        await source.append(Batch(held.here, held.last, (), synced=True))


def _check_move(source: Store, target: Store) -> None:
    """Raise RecordError if runs cannot move between two records.

    Runs cannot move if both records are copies of one record, or if the source is a copy of another record,
    unless a person has said (`gesta adopt`) that its runs continue in the copy.
    """
    if source.info.id == target.info.id:
        raise RecordError(
            f"{source.info.address!r} and {target.info.address!r} are copies of one record (id {source.info.id!r}), "
            "so nothing could say in which of them a run goes on. Move the runs into another record."
        )
    if source.info.mark is not None:
        raise RecordError(
            f"{source.info.address!r} is a copy, and the record that it was copied from may go on with the same runs. "
            "Say first that this copy is the one that goes on: gesta adopt."
        )


async def _hold_all(source: Store, target: Store, pushed: Pushed, stack: AsyncExitStack) -> dict[str, Held]:
    """Acquire the leases of all runs that can be copied, ordered by their first entries in the record.

    The leases are held until the stack ends. Runs that cannot be copied are added to `pushed.refused`.
    """
    every = dict[str, Held]()
    for name, first, _ in (await source.sql(RUNS)).rows:
        run, base = str(name), await _base(source, str(name))
        if base is not None and base not in every:
            pushed.refused.append(f"Run {run!r} is a fork of {base!r}, which was not pushed. It was not pushed either.")
            continue
        found = await _hold(source, target, run, stack)
        if isinstance(found, str):
            pushed.refused.append(found)
        else:
            found.head, found.base = found.head or first - 1, base
            every[run] = found
    return every


async def _base(store: Store, run: str) -> str | None:
    """Return the id of a fork's base, the run whose first entries the fork shares; `None` if `run` is not a fork."""
    rows = await store.read(run, 0, None, 1)
    if not rows:
        raise BrokenRecord(store.info.address, f"run {run!r} is listed, and no entry can be read under that name")
    base = base_of(rows[0])
    return base.run if base is not None and base.seq else None


async def _hold(source: Store, target: Store, run: str, stack: AsyncExitStack) -> Held | str:
    """Acquire the lease of a run in both records until the stack ends.

    If the run cannot be pushed, return a sentence with the reason instead.
    """
    leases, mirrors = [], []
    for store in (source, target):
        try:
            lease, of = await _leased(store, run)
        except RunHeld as error:
            return f"{error} It was not pushed."
        leases.append(lease)
        mirrors.append(of)
        stack.push_async_callback(_release, store, lease)
    here, there = leases
    common = min(here.head, there.head)
    if common and await _digest(source, run, common) != await _digest(target, run, common):
        return f"Run {run!r} is another one in {target.info.address!r}: entry {common} differs. It was not pushed."
    return Held(here, there, there.head, mirrors[0], mirrors[1])


async def _leased(store: Store, run: str) -> tuple[Lease, str | None]:
    """Acquire the lease of a run, even of a mirror.

    Returns the lease, and for a mirror the id of the record that it mirrors. Raises RunHeld if another process has the
    lease.
    """
    try:
        return await store.lease(run), None
    except RunMirrored as mirrored:
        return await store.lease(run, mirror=True), mirrored.record


async def _release(store: Store, lease: Lease) -> None:
    with shielded():
        await store.release(lease)


async def _digest(store: Store, run: str, seq: int) -> bytes:
    rows = await store.read(run, seq - 1, seq)
    return rows[0].digest if rows else GENESIS


async def _movable(source: Store, target: Store, every: dict[str, Held], pushed: Pushed) -> dict[str, Held]:
    """Return the runs that can be moved, with `moves` set, and the run of tombstones, which is only copied.

    For each run that is not returned, a sentence with the reason is added to `pushed.refused`. A run moves only
    together with its parent run, its child runs, its base and its forks.
    """
    own = {row.run for row in await source.runs(SESSION, NAME)}  # the run of tombstones stays here
    why = dict[str, str]()
    for run, one in every.items():
        one.moves, one.moved = run not in own, await _moved(source, run)
        found = _immovable(source, target, one) if one.moves else ""
        if found:
            why[run] = found
    above = {row.run: row.parent_run for row in await source.runs()}
    above |= {run: one.base for run, one in every.items() if one.base is not None}
    lost = (above.keys() - every.keys()) | why.keys()
    for family in _families(above):
        causes = sorted(family & why.keys()) or sorted(family & lost)
        for run in family - lost if causes else ():
            why[run] = f"Run {run!r} belongs to run {causes[0]!r}, which cannot be moved now. It was not moved either."
    pushed.refused += why.values()
    return {run: one for run, one in every.items() if run not in why}


def _families(above: dict[str, str | None]) -> list[set[str]]:
    """Return the runs in groups that must move together: a run with its child runs and its forks, at any depth.

    Args:
        above: for each run, its parent run or, if it is a fork, its base; `None` for a run without either.
    """
    families = dict[str, set[str]]()
    for run in above:
        root, met = run, {run}
        while (upper := above.get(root)) is not None and upper in above and upper not in met:
            root = upper
            met.add(root)
        families.setdefault(root, set()).add(run)
    return list(families.values())


def _immovable(source: Store, target: Store, one: Held) -> str:
    """Return a sentence that says why a run cannot be moved; empty if it can."""
    run, here, there = one.run, source.info.id, target.info.id
    if one.mirror_here is not None:
        return f"{RunMirrored(run, one.mirror_here)} It was not moved."
    if one.moved not in ("", here, there):
        return f"{RunMirrored(run, one.moved, moved=True)} It was not moved."
    if one.moved != there and one.head > one.last:
        return (
            f"Run {run!r} has {one.head} entries in {target.info.address!r} and {one.last} here: it went on there, and "
            "is not moved. Copy it back: gesta push, with the two records exchanged."
        )
    return ""


async def _moved(store: Store, run: str) -> str:
    """Return the id of the record to which a run was last moved; empty if it was never moved."""
    for (seq,) in (await store.sql(SIGNALS, (run,))).rows:
        for entry in await read(store, run, int(seq) - 1, int(seq)):
            if isinstance(entry.content, SignalContent) and entry.content.name == "moved":
                return entry.content.to or ""
    return ""


async def _mirror(source: Store, target: Store, every: dict[str, Held]) -> None:
    """Mark the runs to copy as mirrors in the target, before their first entry is copied.

    A mirror takes no turn. So a run whose copy was interrupted takes no turn in the target.
    """
    for one in every.values():
        of = one.mirror_here or source.info.id
        fresh = not one.there.head or one.mirror_there is not None
        grows = one.head < one.last or (one.moves and one.moved != target.info.id)
        if grows and one.mirror_there != of and (fresh or one.moves):
            await target.mirror(one.there, of)
            one.mirror_there = of


async def _commit_move(store: Store, lease: Lease, by: str, to: str) -> Lease:
    """Write an entry that names the record to which a run moves. Returns the lease with the new last seq and digest."""
    ((turn, first),) = (await store.sql(SPANS, (lease.run,))).rows
    span = int(first if turn is None else turn)
    content = SignalContent(name="moved", by=by, to=to)
    entry = Entry(run=lease.run, seq=lease.head + 1, at=utc_now(), span=span, content=content)
    entry, row = to_row(entry, lease.digest, os.urandom(16), lambda _: "")
    with shielded():
        await store.append(Batch(lease, lease.head, [row], synced=True))
    return msgspec.structs.replace(lease, head=entry.seq, digest=entry.digest)


async def _copy(
    source: Store, target: Store, held: dict[str, Held], pushed: Pushed, progress: Callable[[int], None]
) -> None:
    """Copy the new entries of the held runs in the order in which the source committed them.

    Raises BrokenRecord if an entry of the source is missing or cannot be read. What was copied before stays.
    """
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
            try:
                await target.append(Batch(one.there, one.head, new, blobs, synced=one.moves))
            except ValueError as error:
                raise BrokenRecord(source.info.address, f"the entries of run {run!r} have gaps: {error}") from error
            one.head = last
            pushed.entries += len(new)
        progress(pushed.entries)


async def _move_letters(source: Store, target: Store, one: Held) -> int:
    """Move the letters that wait at the source to the target, and return how many there were."""
    letters = await source.inbox(one.run)
    if letters:
        await target.append(Batch(one.there, one.head, (), mail=letters, synced=True))
        await source.append(Batch(one.here, one.last, (), letters=[letter.id for letter in letters]))
    return len(letters)


async def _let_go(target: Store, one: Held) -> bool:
    """Turn the mirror of a run into an ordinary run if the target has all its entries. Returns `True` if it did."""
    if one.mirror_there is None or one.head != one.last:
        return False
    with shielded():
        await target.mirror(one.there, None)
    return True


async def adopt(store: Store, runs: Sequence[str], by: str) -> list[str]:
    """Turn runs that are mirrors, or that moved to another record, into ordinary runs of this record.

    Their parent runs and child runs, at any depth, are adopted with them. Return the ids of all adopted runs.

    Args:
        runs: ids of the runs.
        by: name of the person who says that no other record continues these runs.

    Raises:
        RunHeld: another process is writing one of the runs; then no run is adopted.
    """
    above = dict.fromkeys(runs) | {row.run: row.parent_run for row in await store.runs()}
    named = [run for family in _families(above) if family & set(runs) for run in sorted(family)]
    async with AsyncExitStack() as stack:
        found = list[tuple[Lease, str | None]]()
        for run in named:
            lease, of = await _leased(store, run)
            stack.push_async_callback(_release, store, lease)
            if of is not None or await _moved(store, run) not in ("", store.info.id):
                found.append((lease, of))
        for lease, _ in found:
            await _commit_move(store, lease, by, store.info.id)
        for lease, of in found:
            if of is not None:
                await store.mirror(lease, None)
    return [lease.run for lease, _ in found]
