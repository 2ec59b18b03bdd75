"""Whether what is on record is what was written: every entry against the chain of its run, every blob against its name.

A changed byte is found at its entry. A cut tail or a removed run is not: that takes a head kept elsewhere.
"""

from msgspec import Struct

from gesta.blob import blob_name
from gesta.codec import blob_names, verify
from gesta.entry import GENESIS
from gesta.errors import BrokenRecord, RecordError
from gesta.store import Store

RUNS = "SELECT DISTINCT run FROM entries ORDER BY run"  # all there are, whatever became of what opened them


class Flaw(Struct, frozen=True):
    """Where a record is not as it was written."""

    run: str
    """Empty where the file as a whole is damaged."""
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
    return flaws


async def _audit_run(store: Store, run: str) -> list[Flaw]:
    before = GENESIS
    for seq, row in enumerate(await store.read(run), 1):
        if row.seq != seq:
            return [Flaw(run, seq, f"entry {seq} is missing; the next on record is {row.seq}")]
        if not isinstance(row.content, str) or not isinstance(row.salt, bytes) or not verify(row, before):
            return [Flaw(run, seq, f"entry {seq} ({row.kind}) does not match its digest")]
        for name in blob_names(row):
            if not await _holds(store, run, name):
                return [Flaw(run, seq, f"blob {name} of entry {seq} ({row.kind}) is missing or was changed")]
        before = row.digest
    return []


async def _holds(store: Store, run: str, name: str) -> bool:
    try:
        blob = await store.get_blob(run, name)
    except BrokenRecord:
        return False
    return blob_name(blob.salt, blob.data) == name
