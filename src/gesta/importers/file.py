"""A file of any known format comes into a record: what it is, is seen from its content, and it comes in once.

A foreign conversation becomes one run, in a session named after file and conversation, in one commit: half of one can
not exist, and whoever imports again after a crash goes on where it stopped. The first span of the run, `import`, says
where it came from and holds the digest of the source; a run of that name with another digest is another conversation
of the same name, so this one gets a name with its digest. A file is read to its end before anything is written.
"""

import os
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import anyio
from msgspec.structs import replace

from gesta.entry import run_id
from gesta.importers.foreign import Foreign, Imported, Oddities, Progress, leased, plain_name
from gesta.importers.format import Format
from gesta.importers.known import find_format, named
from gesta.importers.source import BadImport, ImportBounds, Source
from gesta.kinds import BeginContent, Opened
from gesta.log.journal import Journal, read, utc_now
from gesta.record.record import Record

KEPT = 16 * 2**20
"""Bytes of a file, unpacked, whose conversations may all be in memory: it is read once, any larger one twice."""
TOGETHER = 32
"""Conversations of such a file that are written at once."""
CHANGED = "The file changed while it was read; what stands before that place is imported. Import it again."


def _silent(_entries: int) -> None:
    """Show no progress."""


async def import_file(
    record: Record,
    path: str | os.PathLike[str],
    format: str | None = None,
    progress: Progress = _silent,
    *,
    bounds: ImportBounds = ImportBounds(),  # noqa: B008 - frozen
) -> Imported:
    """Import a file into a record. Entries that are there already are skipped. It may be packed with gzip or zstd.

    Args:
        format: name of its format; by default that is found by looking at its content.
        progress: called now and then with the number of entries read so far.
        bounds: how much of it is read.

    Raises:
        BadImport: it is larger than a bound, cannot be read, is of no known format, or something in it is not as it
            must be; nothing of it was imported.
        NewerRecord: a later release wrote it.
        RunHeld: somebody is writing one of its runs.
        WriteFailed: what was imported before that stays.

    Cost: reads the file once, one above 16 MiB twice, and once more up to the member by which it is known. The memory
    of one conversation; of a smaller file, of the whole.
    """
    source = Source(path, bounds)
    return await take(record, source, named(source, format) if format is not None else find_format(source), progress)


async def take(record: Record, source: Source, found: Format, progress: Progress = _silent) -> Imported:
    """Import a file of a known format into a record; see `import_file`."""
    if found.take is not None:
        return await found.take(record, source, progress)
    assert found.read is not None
    oddities: Oddities = Counter()
    every = _looked_over(found, source, oddities)
    try:
        if every is not None:
            portions = [every[place : place + TOGETHER] for place in range(0, len(every), TOGETHER)]
            return await _Import(record, source, found, oddities).take(portions, progress)
        oddities = Counter()
        streamed = ([foreign] for foreign in found.read(source, oddities))
        return await _Import(record, source, found, oddities).take(streamed, progress)
    except BadImport as error:
        raise BadImport(source.path, error.found, CHANGED) from error


def _looked_over(format: Format, source: Source, oddities: Oddities) -> list[Foreign] | None:
    """Read a file to its end, so that whatever is wrong with it shows before anything is written.

    Returns:
        Its conversations, if it is so small that they may all be in memory.
    """
    assert format.read is not None
    every: list[Foreign] | None = []
    for foreign in format.read(source, oddities):
        if every is not None:
            every.append(foreign)
        if source.size > KEPT:
            every = None
    return every


class _Import:
    """The conversations of one file, on their way into a record."""

    def __init__(self, record: Record, source: Source, format: Format, oddities: Oddities) -> None:
        self._record, self._source, self._format, self._oddities = record, source, format, oddities
        self._runs = self._entries = self._skipped = 0

    async def take(self, portions: Iterable[list[Foreign]], progress: Progress) -> Imported:
        """Write the conversations; those of a portion at once, so that their commits are shared."""
        gone = 0
        for portion in portions:
            names: set[str] = set()
            waiting: list[tuple[Foreign, str]] = []
            for foreign in portion:
                if foreign.id in names:  # another of that name is to be on record before it gets one of its own
                    await self._write(waiting)
                    names, waiting = set(), []
                names.add(foreign.id)
                session = await self._session(foreign)
                self._skipped += session is None
                waiting += [] if session is None else [(foreign, session)]
                gone += len(foreign.entries)
            await self._write(waiting)
            progress(gone)
        counted = {name: count for name, count in sorted(self._oddities.items()) if count}
        done, name = (self._runs, self._entries, self._skipped), self._format.name
        return Imported(runs=done[0], entries=done[1], skipped=done[2], format=name, oddities=counted)

    async def _write(self, conversations: list[tuple[Foreign, str]]) -> None:
        """Write some conversations, each in one commit. Raises what the first that failed raised."""
        failures: list[Exception] = []

        async def write(foreign: Foreign, session: str) -> None:
            origin = {"format": self._format.name, "file": self._source.name}
            origin |= {"id": foreign.id, "digest": foreign.digest}
            opened = Opened(session=session, name=foreign.name, record=self._record.info.id)
            try:
                written = await _write(self._record, foreign, opened, origin)
            except Exception as error:  # noqa: BLE001 - raised below, and not in a group
                failures.append(error)
            else:
                self._runs, self._entries = self._runs + bool(written), self._entries + written
                self._skipped += not written

        if len(conversations) == 1:
            await write(*conversations[0])
        else:
            async with anyio.create_task_group() as group:
                for foreign, session in conversations:
                    group.start_soon(write, foreign, session)
        if failures:
            raise failures[0]

    async def _session(self, foreign: Foreign) -> str | None:
        """Choose a session for a conversation; `None` if it is on record already."""
        plain = foreign.id if self._format.sessions else f"{plain_name(self._source.stem)}/{foreign.id}"
        for name in (plain, f"{plain}~{foreign.digest[:8]}", f"{plain}~{foreign.digest}"):
            rows = await self._record.store.runs(name)
            if not rows:
                return name
            if await _digest(self._record, rows[0].run) == foreign.digest:
                return None
            self._oddities["other-conversation"] += name == plain
        return None


async def _digest(record: Record, run: str) -> str | None:
    """Read the digest of the source that a run was imported from."""
    first = (await read(record.store, run, until=1))[0].content
    source = (first.annotations or {}).get("source") if isinstance(first, BeginContent) else None
    digest = source.get("digest") if isinstance(source, dict) else None
    return digest if isinstance(digest, str) else None


class _SourceClock:
    """A clock that shows the time of the entry that is being written."""

    def __init__(self, foreign: Foreign) -> None:
        self._now = next((entry.at for entry in foreign.entries if entry.at is not None), None) or utc_now()

    def __call__(self) -> datetime:
        return self._now

    def set(self, at: datetime | None) -> None:
        self._now = at or self._now


async def _write(record: Record, foreign: Foreign, opened: Opened, origin: dict[str, str]) -> int:
    """Write one conversation in one commit; nothing if somebody else did meanwhile."""
    run = run_id(opened.record, opened.session, opened.name)
    async with leased(record.store, run) as lease:
        if lease.head:
            return 0
        clock = _SourceClock(foreign)
        journal = Journal(record.store, lease, clock)
        for entry in foreign.entries:
            clock.set(entry.at)
            content = entry.content
            if journal.head == 0:
                assert isinstance(content, BeginContent)
                content = replace(content, opened=opened, annotations={"source": origin})
            journal.write(content, entry.span, entry.causes, entry.annotations)
        await journal.durable()
    return len(foreign.entries)
