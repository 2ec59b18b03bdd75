"""Whether what is on record is what was written: every entry against the chain of its run, every blob against its name.

A changed byte is found at its entry, and entries that were removed by hand by the places that they had; runs that were
pruned have tombstones. A cut tail, of a run or of the record, a chain that somebody worked out anew, and a run that was
removed with all that came after it are found against heads that were kept elsewhere. What a tombstone explains it
explains of this record alone, and only if it was not there when the heads were kept.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from gesta.blob import blob_name
from gesta.codec import blob_names, verify
from gesta.entry import GENESIS
from gesta.errors import BrokenRecord, RecordError
from gesta.forking import base_of, rows_of
from gesta.kinds import Forked
from gesta.store import Store
from gesta.tombstone import Told, told, unexplained

RUNS = "SELECT run, count(*) FROM entries GROUP BY run ORDER BY run"  # whatever became of what opened them

HEADS = """SELECT e.run, e.seq, e.digest FROM (SELECT run, max(seq) AS seq FROM entries GROUP BY run) AS h
    JOIN entries AS e ON e.run = h.run AND e.seq = h.seq ORDER BY e.run"""

UNREADABLE = (RecordError, ValueError, TypeError, AttributeError)
"""What reading raises where bytes were changed."""

SEQS = "SELECT min(seq), max(seq), count(*), min(CASE WHEN kind = 'begin' THEN seq END) FROM entries GROUP BY run"


class Flaw(Struct, frozen=True):
    """Where a record is not as it was written."""

    run: str
    """Empty where it is not about one run: the file is damaged, or entries were removed."""
    seq: int
    what: str


class Head(Struct, frozen=True):
    """The last entry of a run, as somebody keeps it where nobody who writes the record can change it."""

    run: str
    seq: int
    digest: str
    """In hex."""

    def __str__(self) -> str:
        """Write it on one line."""
        return f"{self.run}.{self.seq}:{self.digest}"


def head_of(text: str) -> Head | None:
    """Read a head from its line; none if the line is no head."""
    found = re.fullmatch(r"(\S+)\.([1-9][0-9]{0,17}):([0-9a-f]{64})", text.strip())
    return Head(found[1], int(found[2]), found[3]) if found is not None else None


async def heads(store: Store) -> list[Head]:
    """Give the heads of all runs, to be kept elsewhere."""
    return [Head(str(run), int(seq), bytes(digest).hex()) for run, seq, digest in (await store.sql(HEADS)).rows]


async def audit(store: Store, *kept: Iterable[Head]) -> list[Flaw]:
    """Check a whole record; of each run the first flaw is given. Cost: reads it all.

    Args:
        kept: heads that the record had, each time's by themselves; what came after them is let be.
    """
    flaws = await _changed(store)
    for heads in kept:
        known = {flaw.run for flaw in flaws}
        flaws += [flaw for flaw in await _behind(store, list(heads), known) if flaw not in flaws]
    return flaws


async def _changed(store: Store) -> list[Flaw]:
    flaws = [Flaw("", 0, f"the file is damaged: {damage}") for damage in await store.damage()]
    try:
        runs = (await store.sql(RUNS)).rows
    except UNREADABLE as error:
        return flaws or [Flaw("", 0, f"its runs cannot be listed: {error}")]
    for run, count in runs:
        try:
            flaws += await _audit_run(store, str(run), count)
        except UNREADABLE as error:
            flaws.append(Flaw(str(run), 0, f"its entries cannot be read: {error}"))
    return flaws + await _removed(store)


async def _audit_run(store: Store, run: str, count: int) -> list[Flaw]:
    rows = await store.read(run)
    if len(rows) < count:
        return [Flaw(run, 0, "an entry stands before the first: its seq was changed")]
    base = next(filter(None, map(base_of, rows if rows[0].seq > 1 else rows[:1])), None)
    before = await _shared(store, base) if base is not None else GENESIS
    if base is not None and before is None:
        found = f"entry {rows[0].seq} goes on from {base.run}.{base.seq}, which is not there as it was"
        return [Flaw(run, rows[0].seq, found)]
    assert before is not None
    for seq, row in enumerate(rows, base.seq + 1 if base is not None else 1):
        if row.seq < seq:
            return [
                Flaw(run, row.seq, f"entry {row.seq} ({row.kind}) stands before entry {seq}, with which the run begins")
            ]
        if row.seq != seq:
            return [Flaw(run, seq, f"entry {seq} is missing; the next on record is {row.seq}")]
        if not isinstance(row.content, str) or not isinstance(row.salt, bytes) or not verify(row, before):
            return [Flaw(run, seq, f"entry {seq} ({row.kind}) does not match its digest")]
        for name in blob_names(row):
            if not await _holds(store, run, name):
                return [Flaw(run, seq, f"blob {name} of entry {seq} ({row.kind}) is missing or was changed")]
        before = row.digest
    return []


async def _shared(store: Store, base: Forked) -> bytes | None:
    """Give the digest that a fork is chained to; none where that entry is missing or another one."""
    if base.seq == 0:
        return GENESIS
    rows = await rows_of(store, base.run, base.seq - 1, base.seq)
    return rows[0].digest if rows and rows[0].digest.hex() == base.digest else None


async def _behind(store: Store, kept: list[Head], known: set[str]) -> list[Flaw]:
    """Find what is not on record any more of heads that were kept at one time, and was not pruned since."""
    asked = sorted((head for head in kept if head.run not in known), key=lambda head: head.seq)
    lost = [(head, what) for head in asked if (what := await _lost(store, head))]
    if not lost:
        return []
    flaws, until = dict[str, Flaw](), {head.run: head.seq for head in sorted(kept, key=lambda head: head.seq)}
    try:
        since = [each for each in await told(store) if each.row.seq > until.get(each.row.run, 0)]
    except UNREADABLE as error:
        since, flaws = [], {"": Flaw("", 0, f"the tombstones cannot be read: {error}")}
    for head, what in lost:
        if not await _explained(store, head, since):
            flaws.setdefault(head.run, Flaw(head.run, head.seq, what))
    return list(flaws.values())


async def _lost(store: Store, head: Head) -> str:
    """Say what is not as a head tells; nothing if its entry is there."""
    try:
        rows = await store.read(head.run, head.seq - 1, head.seq)
        if not rows:
            return f"entry {head.seq} is not there any more: the run was cut off before it, or removed"
        if rows[0].digest.hex() == head.digest:
            return ""
    except UNREADABLE as error:
        return f"entry {head.seq} cannot be read: {error}"
    return f"entry {head.seq} is not the one whose digest was kept: the chain was worked out anew"


async def _explained(store: Store, head: Head, since: list[Told]) -> bool:
    """Say whether its run was pruned as a head tells it; what is there of the run now began after that."""
    stones = [(each.row.pos, stone) for each in since for stone in each.value.runs if stone.run == head.run]
    if not stones:
        return False
    try:
        now = await store.read(head.run, 0, None, 1)
    except UNREADABLE:
        return False
    return any(
        (stone.head > head.seq or (stone.head == head.seq and stone.digest == head.digest))
        and (not now or pos < now[0].pos)
        for pos, stone in stones
    )


async def _removed(store: Store) -> list[Flaw]:
    """Find whole runs that were taken away and not pruned; what a run that stays lacks is found there."""
    try:
        missing = await unexplained(store)
        inside = sum(_lacking(*stretch) for stretch in (await store.sql(SEQS)).rows) if missing else 0
    except UNREADABLE as error:
        return [Flaw("", 0, f"the places of its entries cannot be read: {error}")]
    if sum(last - first + 1 for first, last in missing) <= inside:
        return []
    words = "missing, and no tombstone says that they were pruned: they were removed by hand"
    return [Flaw("", 0, f"entries are {words} (places {first} to {last})") for first, last in missing]


def _lacking(first: int, last: int, count: int, begin: int | None) -> int:
    """Count the entries that a run lacks; it starts at 1, or at a begin if it goes on with another."""
    return last - (first if first == begin else 1) + 1 - count


async def _holds(store: Store, run: str, name: str) -> bool:
    try:
        blob = await store.get_blob(run, name)
    except BrokenRecord:
        return False
    return blob_name(blob.salt, blob.data) == name
