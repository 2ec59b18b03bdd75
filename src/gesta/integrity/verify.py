"""Checks a record: every entry against the chain of digests of its run, and every blob against its name.

A record is the store of all runs. A run is a list of entries, numbered by `seq`; `pos` numbers all entries of the
record. A blob is a large value beside the entries. A flaw is something that was changed or is missing. A changed byte
is found at its entry. Entries that were removed by hand are found because their pos is missing. A pruned (removed) run
leaves a tombstone, an entry that explains the gap. A fork is a run that shares the first entries of a run, its base.

A *head* is the digest of a run's last entry, saved outside of the record. Some changes are found only with heads:
entries cut off at the end of a run or record, digests that were all computed again, and a run removed together with all
later entries. A run with a saved head may be missing only if a later tombstone explains it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from gesta.codec.blobs import intact
from gesta.codec.chain import verify
from gesta.codec.rows import blob_names
from gesta.entry import GENESIS, Row
from gesta.errors import BrokenRecord, RecordError
from gesta.integrity.tombstones import PruningNote, pruning_notes, unexplained
from gesta.kinds import Forked
from gesta.log.shared import base_of, rows_of
from gesta.store import Foreign, Store

RUNS = "SELECT run, count(*) FROM entries GROUP BY run ORDER BY run"  # even if the first entry of a run is missing

HEADS = """SELECT e.run, e.seq, e.digest FROM (SELECT run, max(seq) AS seq FROM entries GROUP BY run) AS h
    JOIN entries AS e ON e.run = h.run AND e.seq = h.seq ORDER BY e.run"""

EARLIER = """SELECT count(*) FROM (SELECT at, lag(at) OVER (ORDER BY pos) AS last FROM runs) AS each WHERE at < last"""
BEFORE_FIRST = "SELECT count(*) FROM entries WHERE run = ? AND seq < 1"
BLOBS = "SELECT run, count(*) FROM blobs GROUP BY run"
LETTERS = "SELECT count(*) FROM inbox"
OTHERS = "SELECT count(*) FROM runs WHERE record <> (SELECT id FROM record)"
TIMES = """SELECT run, seq, at, last
    FROM (SELECT run, seq, at, lag(at) OVER (PARTITION BY run ORDER BY seq) AS last FROM entries) AS each
    WHERE at < last ORDER BY run, seq"""

UNREADABLE = (RecordError, ValueError, TypeError, AttributeError)
"""Errors that reading can raise if bytes were changed."""

SEQS = "SELECT min(seq), max(seq), count(*), min(CASE WHEN kind = 'begin' THEN seq END) FROM entries GROUP BY run"


CHECKED = 1000
"""Number of entries of a run that are read at once."""

How = Literal[
    "digest", "missing", "place", "base", "blob", "removed", "cut", "anew", "late", "aside", "damage", "bytes"
]
"""The kind of a flaw, such as `digest` (an entry does not match its digest), `missing` (entries are missing), `anew`
(the digests of a run were computed again) or `damage` (the database itself is damaged)."""


class Flaw(Struct, frozen=True):
    """One difference between a record and the entries that were written into it."""

    run: str
    """Id of the run. Empty if the flaw concerns the file, or entries that were removed."""
    seq: int
    what: str
    how: How = "bytes"
    """The kind of the flaw. `bytes` means that stored bytes cannot be read."""


class Report(Struct, frozen=True):
    """The result of a check of a record."""

    flaws: list[Flaw]
    notes: list[str]
    """Facts about data that no digest covers, and unusual facts that may be harmless."""


class Back(Struct, frozen=True):
    """An entry that is dated before the previous entry of its run."""

    run: str
    seq: int
    at: str
    last: str

    def __str__(self) -> str:
        """Return both times, as a phrase for people."""
        return f"is dated {self.at}, after {self.last}"


class Head(Struct, frozen=True):
    """The seq (number) and digest of a run's last entry. It is saved where no writer of the record can change it."""

    run: str
    seq: int
    digest: str
    """In hex."""

    def __str__(self) -> str:
        """Return the head as one line of text, which `head_of` reads."""
        return f"{self.run}.{self.seq}:{self.digest}"


def head_of(text: str) -> Head | None:
    """Return the head in a line of text; `None` if the line contains no head."""
    found = re.fullmatch(r"(\S+)\.([1-9][0-9]{0,17}):([0-9a-f]{64})", text.strip())
    return Head(found[1], int(found[2]), found[3]) if found is not None else None


async def heads(store: Store) -> list[Head]:
    """Return the heads of all runs, to be saved outside of the record."""
    return [Head(str(run), int(seq), bytes(digest).hex()) for run, seq, digest in (await store.sql(HEADS)).rows]


async def audit(store: Store, *kept: Iterable[Head]) -> list[Flaw]:
    """Return the first flaw of each run of a record. Cost: reads the whole record.

    Args:
        kept: lists of saved heads, one list for each time at which heads were saved. A head proves nothing about
            entries after it.
    """
    return (await report(store, *kept)).flaws


def untold(entries: int) -> None:
    """Ignore the progress of a check. This is the default for `told`."""


async def report(store: Store, *kept: Iterable[Head], told: Callable[[int], None] = untold) -> Report:
    """Return the flaws of a record as `audit` does, with notes about all data that no digest covers.

    Args:
        kept: lists of saved heads; see `audit`.
        told: called with the number of entries that were checked since its last call. If it raises, the check ends.
    """
    heads, foreign, blobs = [list(each) for each in kept], await store.foreign(), Counter[str]()
    flaws = [Flaw("", 0, f"{each} is not of Gesta's making; nothing uses it", "aside") for each in foreign.aside]
    flaws += await _changed(store, blobs, told)
    try:
        backwards = await _backwards(store)
        notes = await _notes(store, foreign, blobs, backwards)
        notes += await _since(store, heads)
    except UNREADABLE as error:
        backwards, notes = [], []
        flaws = flaws or [Flaw("", 0, f"what lies beside its runs cannot be read: {error}")]
    for each in heads:
        known = {flaw.run for flaw in flaws}
        found = await behind(store, each, known) + _late(backwards, each, known)
        flaws += [flaw for flaw in found if flaw not in flaws]
    return Report(flaws, notes)


async def _changed(store: Store, blobs: Counter[str], told: Callable[[int], None]) -> list[Flaw]:
    flaws = [Flaw("", 0, f"the file is damaged: {damage}", "damage") for damage in await store.damage()]
    try:
        runs = (await store.sql(RUNS)).rows
        blobs.update({str(run): int(count) for run, count in (await store.sql(BLOBS)).rows})
    except UNREADABLE as error:
        return flaws or [Flaw("", 0, f"its runs cannot be listed: {error}")]
    for run, _ in runs:
        try:
            found, named = await check_run(store, str(run), told=told)
        except UNREADABLE as error:
            found, named = [Flaw(str(run), 0, f"its entries cannot be read: {error}")], 0
        flaws += found
        blobs[str(run)] = 0 if found else blobs[str(run)] - named
    return flaws + await _removed(store)


async def check_run(
    store: Store, run: str, most: int = 1, told: Callable[[int], None] = untold
) -> tuple[list[Flaw], int]:
    """Return the first flaws of a run, and the number of blobs that its entries name.

    If an entry has a flaw, the next entry is still compared with it. So one change is reported as one flaw.

    Args:
        most: greatest number of flaws to look for.
        told: see `report`.

    Raises:
        one of `UNREADABLE`: bytes that were changed cannot be read.

    Cost: reads the run, in pages.
    """
    rows = await store.read(run, 0, None, CHECKED)
    ((before_first,),) = (await store.sql(BEFORE_FIRST, (run,))).rows
    if before_first or not rows:
        return [Flaw(run, 0, "an entry stands before the first: its seq was changed", "place")], 0
    base = next(filter(None, map(base_of, rows if rows[0].seq > 1 else rows[:1])), None)
    before = await _shared(store, base) if base is not None else GENESIS
    if base is not None and before is None:
        found = f"entry {rows[0].seq} goes on from {base.run}.{base.seq}, which is not there as it was"
        return [Flaw(run, rows[0].seq, found, "base")], 0
    assert before is not None
    seq, pos, named, flaws = base.seq if base is not None else 0, 0, set[str](), list[Flaw]()
    while rows:
        for row in rows:
            flaw = _flaw(row, seq + 1, before, pos) or await _blob(store, row, named)
            flaws += [Flaw(run, min(row.seq, seq + 1), *flaw)] if flaw else []
            if len(flaws) >= most:
                return flaws, len(named)
            before, pos, seq = row.digest, row.pos, max(seq, row.seq)
        told(len(rows))
        rows = await store.read(run, seq, None, CHECKED)
    return flaws, len(named)


async def _blob(store: Store, row: Row, named: set[str]) -> tuple[str, How] | None:
    """Return what is wrong with an entry's blobs (text, kind of flaw), or `None`. Add intact blobs to `named`."""
    for name in set(blob_names(row)) - named:
        if not await _holds(store, row.run, name):
            return f"blob {name} of entry {row.seq} ({row.kind}) is missing or was changed", "blob"
        named.add(name)
    return None


def _flaw(row: Row, seq: int, before: bytes, pos: int) -> tuple[str, How] | None:
    """Return what is wrong with a row, as a text and the kind of flaw; `None` if it is intact.

    Args:
        seq: the seq that the row should have.
        before: digest of the previous entry.
        pos: pos of the previous entry.
    """
    if row.seq < seq:
        return f"entry {row.seq} ({row.kind}) stands before entry {seq}, with which the run begins", "place"
    if row.seq != seq:
        return f"entry {seq} is missing; the next on record is {row.seq}", "missing"
    if not isinstance(row.content, str) or not isinstance(row.salt, bytes) or not verify(row, before):
        return f"entry {seq} ({row.kind}) does not match its digest", "digest"
    if row.pos > pos:
        return None
    return f"entry {seq} ({row.kind}) has place {row.pos}, and the entry before it {pos}", "place"


async def _shared(store: Store, base: Forked) -> bytes | None:
    """Return the digest of the last entry that a fork shares with its base; `None` if it is missing or was replaced."""
    if base.seq == 0:
        return GENESIS
    rows = await rows_of(store, base.run, base.seq - 1, base.seq)
    return rows[0].digest if rows and rows[0].digest.hex() == base.digest else None


async def behind(store: Store, kept: list[Head], known: set[str]) -> list[Flaw]:
    """Return a flaw for each saved head whose entry is missing or changed. Runs that were pruned have no flaw.

    Args:
        kept: heads that were saved at one time.
        known: runs that have a flaw already. Their heads are skipped.
    """
    asked = sorted((head for head in kept if head.run not in known), key=lambda head: head.seq)
    lost = [(head, flaw) for head in asked if (flaw := await _lost(store, head))]
    if not lost:
        return []
    flaws, until = dict[str, Flaw](), {head.run: head.seq for head in sorted(kept, key=lambda head: head.seq)}
    try:
        since = [each for each in await pruning_notes(store) if each.row.seq > until.get(each.row.run, 0)]
    except UNREADABLE as error:
        since, flaws = [], {"": Flaw("", 0, f"the tombstones cannot be read: {error}")}
    for head, flaw in lost:
        if not await _explained(store, head, since):
            flaws.setdefault(head.run, flaw)
    return list(flaws.values())


async def _lost(store: Store, head: Head) -> Flaw | None:
    """Return a flaw if the entry of a saved head is missing or changed; `None` if it is unchanged."""
    run, seq = head.run, head.seq
    try:
        rows = await store.read(run, seq - 1, seq)
        if not rows:
            return Flaw(
                run, seq, f"entry {seq} is not there any more: the run was cut off before it, or removed", "cut"
            )
        if rows[0].digest.hex() == head.digest:
            return None
    except UNREADABLE as error:
        return Flaw(run, seq, f"entry {seq} cannot be read: {error}")
    return Flaw(run, seq, f"entry {seq} is not the one whose digest was kept: the chain was worked out anew", "anew")


async def _explained(store: Store, head: Head, since: list[PruningNote]) -> bool:
    """Return whether a tombstone in `since` explains why the entry of a saved head is missing: its run was pruned.

    If a run with the same id exists now, its entries must be later than the tombstone.
    """
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


async def _backwards(store: Store) -> list[Back]:
    """Return the entries that are dated before the previous entry of their run. Cost: reads all times."""
    found = (await store.sql(TIMES)).rows
    return [Back(str(run), seq, str(at), str(last)) for run, seq, at, last in found if isinstance(seq, int)]


def _late(backwards: list[Back], kept: list[Head], known: set[str]) -> list[Flaw]:
    """Return a flaw for each entry that follows a saved head, but is dated before the previous entry of its run."""
    until = {head.run: head.seq for head in sorted(kept, key=lambda head: head.seq) if head.run not in known}
    late = [each for each in backwards if each.seq > until.get(each.run, each.seq)]
    words = "the clock was set back, or somebody added it by hand"
    return [
        Flaw(each.run, each.seq, f"entry {each.seq} came after the head and {each}: {words}", "late") for each in late
    ]


async def _notes(store: Store, foreign: Foreign, blobs: Counter[str], backwards: list[Back]) -> list[str]:
    """Return notes on oddities that are not flaws. `blobs` has for each run the number of blobs that no entry names."""
    notes = []
    for words, each in (("Of transactional tools", foreign.tools), ("Not of Gesta's making", foreign.beside)):
        if each:
            notes.append(f"{words}, and not looked into: {', '.join(each)}.")
    if foreign.shared:
        notes.append(f"Other users of this machine may read or write: {', '.join(foreign.shared)}. Write: chmod 600.")
    ((letters,),) = (await store.sql(LETTERS)).rows
    if letters:
        notes.append(f"Letters that wait in inboxes: {letters}. No digest covers them until they are taken in.")
    spare = sum(blobs.values())
    if spare:
        run = next(run for run, count in blobs.items() if count)
        notes.append(f"Blobs that no entry names: {spare}; the first belongs to run {run}.")
    if backwards:
        first = backwards[0]
        notes.append(
            f"Entries dated before the entry they follow: {len(backwards)}; first {first.run}.{first.seq}, {first}."
        )
    ((others,),) = (await store.sql(OTHERS)).rows
    if others:
        notes.append(f"Runs that were opened under another record id than {store.info.id}, and copied here: {others}.")
    ((earlier,),) = (await store.sql(EARLIER)).rows
    if earlier:
        notes.append(
            f"Runs that began before the run before them, as copied, imported and concurrent runs may: {earlier}."
        )
    return notes


async def _since(store: Store, kept: Sequence[Sequence[Head]]) -> list[str]:
    """Return a note on how many entries and runs are newer than the saved heads; an empty list if there are none."""
    until: dict[str, int] = {}
    for head in (head for each in kept for head in each):
        until[head.run] = max(head.seq, until.get(head.run, 0))
    now = {str(run): int(seq) for run, seq, _ in (await store.sql(HEADS)).rows} if until else {}
    entries = sum(seq - until[run] for run, seq in now.items() if seq > until.get(run, seq))
    runs = len(now.keys() - until.keys())
    if not entries and not runs:
        return []
    grown = f"{entries} more {'entry' if entries == 1 else 'entries'} in their runs"
    new = f"{runs} more {'run' if runs == 1 else 'runs'}"
    return [f"Since the heads were kept: {grown}, and {new}. No head covers them."]


async def _removed(store: Store) -> list[Flaw]:
    """Return flaws for whole runs that were removed but not pruned.

    If a run still exists, its missing entries are found by `check_run`.
    """
    try:
        missing = await unexplained(store)
        inside = sum(_lacking(*stretch) for stretch in (await store.sql(SEQS)).rows) if missing else 0
    except UNREADABLE as error:
        return [Flaw("", 0, f"the places of its entries cannot be read: {error}")]
    if sum(last - first + 1 for first, last in missing) <= inside:
        return []
    words = "missing, and no tombstone says that they were pruned: they were removed by hand"
    return [Flaw("", 0, f"entries are {words} (places {first} to {last})", "removed") for first, last in missing]


def _lacking(first: int, last: int, count: int, begin: int | None) -> int:
    """Return the number of entries that a run lacks.

    Entries before the `begin` of a fork are not counted, because they belong to its base.

    Args:
        first: the lowest seq that was found.
        last: the highest seq that was found.
        count: the number of entries that were found.
        begin: the seq of the run's `begin`; `None` if it was not found.
    """
    return last - (first if first == begin else 1) + 1 - count


async def _holds(store: Store, run: str, name: str) -> bool:
    try:
        blob = await store.get_blob(run, name)
    except BrokenRecord:
        return False
    return intact(name, blob.salt, blob.data)
