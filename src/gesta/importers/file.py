"""Imports a file of any known format. Each conversation in it becomes one run, and is imported only once.

A run is a list of entries in the record, the store of all runs. A run's session (the name of its group) is made from
the names of the file and the conversation. If that session already has a run of another conversation, a digest is added
to the name. Each run is written as a whole, so after a crash a second import adds only the missing runs. The first span
(part of a run), `import`, states the source and its digest. A file is read to its end before anything is written, so an
error in it leaves nothing behind.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from msgspec.structs import replace

from gesta.codec.blobs import Blobs
from gesta.codec.rows import Keep
from gesta.codec.runs import Whole, encode_notes, run_rows
from gesta.entry import run_id
from gesta.errors import LeaseLost
from gesta.importers.foreign import Foreign, ForeignEntry, Imported, Oddities, Progress, leased, plain_name
from gesta.importers.format import Format
from gesta.importers.known import find_format, named
from gesta.importers.source import BadImport, ImportBounds, Source
from gesta.kinds import BeginContent, Opened
from gesta.log.journal import read, utc_now
from gesta.record.record import Record
from gesta.store import Batch, BlobRow, first_lease

KEPT = 16 * 2**20
"""Greatest unpacked size in bytes of a file that is kept in memory. A larger file is read twice."""
TOGETHER = 32
"""Number of conversations that are written in one commit, for a file that is kept in memory."""
CHANGED = "The file changed while it was read; what stands before that place is imported. Import it again."


def _silent(_entries: int) -> None:
    pass


async def import_file(
    record: Record,
    path: str | os.PathLike[str],
    format: str | None = None,
    progress: Progress = _silent,
    *,
    bounds: ImportBounds = ImportBounds(),  # noqa: B008 - frozen
) -> Imported:
    """Import each conversation of a file that was not imported before. Return the numbers of runs and entries.

    The file may be packed with gzip or zstd.

    Args:
        format: name of the format; by default the format is recognised from the content.
        progress: called from time to time with the number of entries read so far.
        bounds: the greatest sizes of the file and of its values.

    Raises:
        BadImport: the file cannot be read, is larger than a bound, has no known format, or does not follow its format.
            Nothing was imported, unless the file changed meanwhile.
        MissingExtra: the file is packed with zstd, and the package for that is not installed.
        NewerRecord: a later release of Gesta wrote the file.
        RunHeld: another process is writing one of the runs.
        WriteFailed: the record cannot be written. Runs that were written before remain.

    Cost: a file up to 16 MiB is read once and is in memory as a whole. A larger file is read twice, one conversation at
    a time.
    """
    source = Source(path, bounds)
    return await take(record, source, named(source, format) if format is not None else find_format(source), progress)


async def take(record: Record, source: Source, found: Format, progress: Progress = _silent) -> Imported:
    """Import a file whose format is known. Return the numbers of runs and entries. See `import_file`."""
    if found.take is not None:
        return await found.take(record, source, progress)
    oddities: Oddities = Counter()
    every = _looked_over(found, source, oddities)
    try:
        if every is not None:
            portions = [every[place : place + TOGETHER] for place in range(0, len(every), TOGETHER)]
            return await _Import(record, source, found, oddities).take(portions, progress)
        oddities = Counter()
        streamed = ([foreign] for foreign in _met(found, source, oddities))
        return await _Import(record, source, found, oddities).take(streamed, progress)
    except BadImport as error:
        raise BadImport(source.path, error.found, CHANGED) from error


def _looked_over(format: Format, source: Source, oddities: Oddities) -> list[Foreign] | None:
    """Read a file to its end, so that every error in it is found before anything is written.

    Args:
        oddities: counter of the problems in the file that are not errors.

    Returns:
        The conversations, if the file is small enough to keep them in memory; else `None`.
    """
    every: list[Foreign] | None = []
    for foreign in _met(format, source, oddities):
        if every is not None:
            every.append(foreign)
        if source.size > KEPT:
            every = None
    return every


def _met(format: Format, source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield the conversations of a file. Raises BadImport.

    Counts in `oddities` the members that the format does not know.
    """
    assert format.read is not None
    for foreign in format.read(source, oddities):
        if format.members is not None:
            state = getattr(foreign.entries[0].content, "state", None)
            kept = [entry.content.extra for entry in foreign.entries if entry.content.extra]
            for told in [state, *kept] if isinstance(state, dict) else kept:
                oddities["unknown-member"] += len(told.keys() - format.members)
                for key in format.within:
                    if isinstance(more := told.get(key), dict):
                        oddities["unknown-member"] += len(more.keys() - format.members)
        yield foreign


class _Import:
    """Writes the conversations of one file into a record."""

    def __init__(self, record: Record, source: Source, format: Format, oddities: Oddities) -> None:
        self._record, self._source, self._format, self._oddities = record, source, format, oddities
        self._runs = self._entries = self._skipped = 0

    async def take(self, portions: Iterable[list[Foreign]], progress: Progress) -> Imported:
        """Write the conversations, with one commit for each portion. Return the numbers of runs and entries."""
        gone = 0
        for portion in portions:
            names: set[str] = set()
            waiting: list[Batch] = []
            for foreign in portion:
                if foreign.id in names:  # write the earlier one of that name first, so that this one gets another name
                    await self._write(waiting)
                    names, waiting = set(), []
                names.add(foreign.id)
                session = await self._session(foreign)
                if session is None:
                    self._skipped += 1
                else:
                    waiting.append(self._batch(foreign, session))
                gone += len(foreign.entries)
            await self._write(waiting)
            progress(gone)
        counted = {name: count for name, count in sorted(self._oddities.items()) if count}
        done, name = (self._runs, self._entries, self._skipped), self._format.name
        return Imported(runs=done[0], entries=done[1], skipped=done[2], format=name, oddities=counted)

    async def _write(self, batches: list[Batch]) -> None:
        """Write several runs in one commit.

        If another process is writing one of these runs, write each run separately.
        """
        if not batches:
            return
        try:
            await self._record.store.append(replace(batches[0], beside=batches[1:]))
        except LeaseLost:
            for batch in batches:
                await self._write_held(batch)
        else:
            self._runs += len(batches)
            self._entries += sum(len(batch.rows) for batch in batches)

    async def _write_held(self, batch: Batch) -> None:
        """Write one run, unless another import has written it meanwhile.

        Raises:
            RunHeld: another process is writing the run.
        """
        if (await self._record.store.head(batch.lease.run))[0]:
            self._skipped += 1
            return
        async with leased(self._record.store, batch.lease.run) as lease:
            if lease.head:
                self._skipped += 1
                return
            await self._record.store.append(replace(batch, lease=lease))
            self._runs, self._entries = self._runs + 1, self._entries + len(batch.rows)

    async def _session(self, foreign: Foreign) -> str | None:
        """Return a session name for the new run; `None` if the conversation was imported before."""
        plain = foreign.id if self._format.sessions else f"{plain_name(self._source.stem)}/{foreign.id}"
        for name in (plain, f"{plain}~{foreign.digest[:8]}", f"{plain}~{foreign.digest}"):
            rows = await self._record.store.runs(name)
            if not rows:
                return name
            if await _digest(self._record, rows[0].run) == foreign.digest:
                return None
            self._oddities["other-conversation"] += name == plain
        return None

    def _batch(self, foreign: Foreign, session: str) -> Batch:
        """Return the rows of the run for a conversation, ready for one commit."""
        first, unsure = foreign.entries[0], True not in [entry.sure for entry in foreign.entries]
        origin: dict[str, Any] = {"format": self._format.name, "file": self._source.name}
        origin |= {"id": foreign.id, "digest": foreign.digest} | ({"inferred": ["at"]} if unsure else {})
        opened = Opened(session=session, name=foreign.name, record=self._record.info.id)
        run, blobs = run_id(opened.record, opened.session, opened.name), Blobs()
        assert isinstance(first.content, BeginContent)
        foreign.entries[0] = replace(
            first, content=replace(first.content, opened=opened, annotations={"source": origin})
        )
        rows = run_rows(run, _whole(foreign.entries, blobs.keep, everywhere=unsure), blobs.keep, plain=foreign.plain)
        return Batch(first_lease(run), 0, rows, [BlobRow(*blob) for blob in blobs.take()])


async def _digest(record: Record, run: str) -> str | None:
    """Return the digest of the conversation that a run was imported from; `None` if the run was not imported."""
    first = (await read(record.store, run, until=1))[0].content
    source = (first.annotations or {}).get("source") if isinstance(first, BeginContent) else None
    digest = source.get("digest") if isinstance(source, dict) else None
    return digest if isinstance(digest, str) else None


def _whole(entries: list[ForeignEntry], keep: Keep, *, everywhere: bool) -> list[Whole]:
    """Return entries as tuples for encoding, each with its annotations and its time.

    Args:
        keep: stores the bytes of a large value, and returns the name that replaces them.
        everywhere: whether the times of all entries are uncertain. Then only the first entry has an annotation that
            says so.
    """
    made: list[Whole] = []
    at = next(iter([entry.at for entry in entries if entry.at is not None]), None) or utc_now()
    for entry in entries:
        at = entry.at or at
        inferred = entry.inferred if entry.sure or everywhere else (*entry.inferred, "at")
        if entry.annotations is not None:
            told = ({} if entry.message is None else {"message": entry.message}) | (
                {"inferred": list(inferred)} if inferred else {}
            )
            notes: str | None = encode_notes(entry.annotations | told, keep)
        elif entry.message is not None:
            more = f',"inferred":{_listed(inferred)}' if inferred else ""
            notes = f'{{"message":{entry.message}{more}}}'
        else:
            notes = f'{{"inferred":{_listed(inferred)}}}' if inferred else None
        made.append((entry.content, entry.span, entry.causes, notes, at))
    return made


@cache
def _listed(names: tuple[str, ...]) -> str:
    return json.dumps(names, separators=(",", ":"))
