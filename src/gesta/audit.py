"""Whether what is on record is what was written: every entry against the chain of its run, every blob against its name.

A changed byte is found at its entry, and entries that were removed by hand by the places that they had; runs that were
pruned have tombstones. A cut tail, of a run or of the record, is not found: that takes a head kept elsewhere.
"""

from msgspec import Struct

from gesta.blob import blob_name
from gesta.codec import blob_names, verify
from gesta.entry import GENESIS
from gesta.errors import BrokenRecord, RecordError
from gesta.forking import base_of, rows_of
from gesta.kinds import Forked
from gesta.store import Store
from gesta.tombstone import unexplained

RUNS = "SELECT DISTINCT run FROM entries ORDER BY run"  # all there are, whatever became of what opened them

SEQS = "SELECT min(seq), max(seq), count(*), min(CASE WHEN kind = 'begin' THEN seq END) FROM entries GROUP BY run"


class Flaw(Struct, frozen=True):
    """Where a record is not as it was written."""

    run: str
    """Empty where it is not about one run: the file is damaged, or entries were removed."""
    seq: int
    what: str


async def audit(store: Store) -> list[Flaw]:
    """Check a whole record; of each run the first flaw is given. Cost: reads it all."""
    flaws = [Flaw("", 0, f"the file is damaged: {damage}") for damage in await store.damage()]
    try:
        runs = [run for (run,) in (await store.sql(RUNS)).rows]
    except RecordError as error:
        return flaws or [Flaw("", 0, str(error))]
    for run in runs:
        try:
            flaws += await _audit_run(store, str(run))
        except (RecordError, UnicodeDecodeError, TypeError, AttributeError) as error:
            flaws.append(Flaw(str(run), 0, f"its entries cannot be read: {error}"))
    return flaws + await _removed(store)


async def _audit_run(store: Store, run: str) -> list[Flaw]:
    rows = await store.read(run)
    base = base_of(rows[0])
    before = await _shared(store, base) if base is not None else GENESIS
    if base is not None and (before is None or base.seq + 1 != rows[0].seq):
        found = f"entry {rows[0].seq} goes on from {base.run}.{base.seq}, which is not there as it was"
        return [Flaw(run, rows[0].seq, found)]
    assert before is not None
    for seq, row in enumerate(rows, base.seq + 1 if base is not None else 1):
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


async def _removed(store: Store) -> list[Flaw]:
    """Find whole runs that were taken away and not pruned; what a run that stays lacks is found there."""
    try:
        missing = await unexplained(store)
        inside = sum(_lacking(*stretch) for stretch in (await store.sql(SEQS)).rows) if missing else 0
    except (RecordError, TypeError, ValueError) as error:
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
