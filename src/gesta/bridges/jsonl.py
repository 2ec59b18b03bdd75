"""Exports a record as lines of JSON that keep every id, seq and digest, and imports such a file.

A record is the store of all runs, and a run is a list of entries. A fork is a run that continues another run, its base,
and shares the base's first entries. The seq of an entry is its number in its run, and its digest is a hash of the
run's entries up to this one. An import reads the file twice. The first pass checks the file to its end and compares it
with the entries on record; the second pass writes. A run whose entries differ from those on record is refused. Export
and import hold a page of entries in memory, never a whole run.
"""

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import groupby

import msgspec
from msgspec import Raw, Struct

from gesta.bridges.lines import FORMAT, BlobLine, Checked, EntryLine, Header, RunLine, checked
from gesta.codec.blobs import intact
from gesta.codec.chain import verify
from gesta.codec.rows import blob_names
from gesta.entry import GENESIS, Row
from gesta.errors import BrokenRecord, NoRun
from gesta.importers.foreign import Imported, Progress, leased
from gesta.importers.format import Format
from gesta.importers.source import BadImport, Source
from gesta.log.shared import base_of, rows_of
from gesta.record.record import Record
from gesta.store import Batch, BlobRow, Store, below

NAME = "gesta"
PAGE = 500
"""Greatest number of entries read or written at once."""
PAGE_BYTES = 8 * 1024 * 1024
"""Size in bytes of contents and blobs (large values) after which a page ends, even if it has fewer entries."""
CHANGED = "The file changed while it was read; what stands before that place is imported. Import it again."

_encoder = msgspec.json.Encoder()


async def export_run(record: Record, run: str) -> AsyncIterator[str]:
    """Yield one run as lines, each with its line break. The runs that belong to it come too; see `together`.

    Entries written to the run after the export has begun are left out.

    Raises:
        NoRun: there is no run with this id.
        BrokenRecord: an entry, or a large value that it refers to, was changed after it was written.
    """
    yield _line(Header(FORMAT, record.info.id))
    for each in await together(record.store, run):
        async for line in _run_lines(record.store, each):
            yield line


async def together(store: Store, run: str) -> list[str]:
    """Return the ids of the runs that are exported with a run, itself included.

    For a fork, the runs whose entries it shares come first. The runs below all these come last, at any depth: without
    them, an agent that goes on with the run would call other agents again, and not know what these did.
    """
    runs = [run]
    while first := await store.read(runs[0], 0, None, 1):
        base = base_of(first[0])
        if base is None or base.seq == 0:
            break
        runs.insert(0, base.run)
    rows = await store.runs()
    more = below(runs, rows).difference(runs)
    return runs + [row.run for row in rows if row.run in more]


async def export_all(record: Record) -> AsyncIterator[str]:
    """Yield all runs as lines, in the order in which they were opened.

    Raises:
        BrokenRecord: an entry, or a large value that it refers to, was changed after it was written.
    """
    yield _line(Header(FORMAT, record.info.id))
    for opened in await record.store.runs():
        async for line in _run_lines(record.store, opened.run):
            yield line


async def import_lines(record: Record, source: Source, progress: Progress) -> Imported:
    """Import the runs of a file, and return how many runs and entries were written.

    Args:
        progress: called with the number of entries that were read so far.

    Raises:
        BadImport: a line cannot be read, an entry does not match its digest, or a run on record has other entries.
        NewerRecord: a later release of Gesta wrote the file.
        RunHeld: another process is writing a run that the import would extend.
    """
    for page in _pages(checked(source)):
        await _compare(record.store, page, source)
    try:
        return await _write(record.store, source, progress)
    except BadImport as error:
        raise BadImport(source.path, error.found, CHANGED) from error


async def _run_lines(store: Store, run: str) -> AsyncIterator[str]:
    head, digest = await store.head(run)
    if head == 0:
        raise NoRun(run, [row.run for row in await store.runs()])
    first = await store.read(run, 0, None, 1)
    base = base_of(first[0]) if first else None
    after, given = base.seq if base is not None else 0, set[str]()
    before = bytes.fromhex(base.digest) if base is not None and after else GENESIS
    yield _line(RunLine(run, head, digest.hex(), after, before.hex() if after else ""))
    while after < head:
        rows = await store.read(run, after, head, PAGE)
        for row in rows:
            after += 1
            if row.seq != after or not verify(row, before):
                raise BrokenRecord(store.info.address, f"entry {run}.{after} does not match its digest")
            for name in dict.fromkeys(blob_names(row)):
                if name not in given:
                    given.add(name)
                    yield _blob_line(run, await store.get_blob(run, name), store.info.address)
            yield _entry_line(row, store.info.address)
            before = row.digest
        if not rows:
            raise BrokenRecord(store.info.address, f"entry {run}.{after + 1} is missing")


def _blob_line(run: str, blob: BlobRow, address: str) -> str:
    if not intact(blob.name, blob.salt, blob.data):
        raise BrokenRecord(address, f"blob {blob.name!r} of run {run!r} does not match its name")
    try:
        return _line(BlobLine(run, blob.name, blob.salt.hex(), text=blob.data.decode()))
    except UnicodeDecodeError:
        return _line(BlobLine(run, blob.name, blob.salt.hex(), base64=b64encode(blob.data).decode()))


def _entry_line(row: Row, address: str) -> str:
    head = (row.run, row.seq, row.kind, row.at, row.span)
    causes, content, notes = (_spliced(text, row, address) for text in (row.causes, row.content, row.annotations))
    return _line(EntryLine(*head, causes, row.version, content, notes, row.salt.hex(), row.digest.hex()))


def _spliced(text: str | None, row: Row, address: str) -> Raw:
    """Return a stored JSON text as bytes that are copied into a line unchanged; `null` for `None`.

    Raises BrokenRecord if the text is not one JSON value on one line.

    Args:
        row: the row with the text, for the error.
        address: address of the record, for the error.
    """
    try:
        data = b"null" if text is None else text.encode()
        whole = b"\n" not in data and bytes(msgspec.json.decode(data, type=Raw)) == data
    except (AttributeError, UnicodeError, msgspec.MsgspecError):  # a column holds another type, or no text
        whole = False
    if not whole:
        raise BrokenRecord(address, f"entry {row.run}.{row.seq} holds a text that is not JSON")
    return Raw(data)


def _line(line: Struct) -> str:
    return _encoder.encode(line).decode() + "\n"


def _pages(entries: Iterator[Checked]) -> Iterator[list[Checked]]:
    """Yield the entries in pages. A page has entries of one run, and its number of entries and of bytes is limited."""
    page: list[Checked] = []
    size_bytes = 0
    for one in entries:
        if page and (one.row.run != page[0].row.run or len(page) == PAGE or size_bytes > PAGE_BYTES):
            yield page
            page, size_bytes = [], 0
        page.append(one)
        size_bytes += len(one.row.content) + sum(len(blob.data) for blob in one.blobs)
    if page:
        yield page


async def _compare(store: Store, page: list[Checked], source: Source) -> None:
    """Raise BadImport if an entry on record differs from the entry of the same seq in the file."""
    run, after = page[0].row.run, page[0].row.seq - 1
    on_record = await store.read(run, after, page[-1].row.seq)
    for here, there in zip(on_record, page, strict=False):
        if here.digest != there.row.digest:
            found = f"has digest {there.row.digest.hex()}, and {here.digest.hex()} on record"
            raise BadImport(source.path, f"line {there.line}: the run went another way: entry {run}.{here.seq} {found}")


async def _goes_on(store: Store, first: Checked, source: Source) -> int:
    """Return 0 for a new run that is not a fork; for a fork, the seq of the last entry that it shares with its base.

    Raises BadImport if that shared entry is not on record.

    Args:
        first: first entry of the new run in the file.
    """
    base = base_of(first.row)
    if base is None or base.seq == 0:
        return 0
    rows = await rows_of(store, base.run, base.seq - 1, base.seq)
    if not rows or rows[0].digest.hex() != base.digest:
        found = f"run {first.row.run!r} goes on from entry {base.run}.{base.seq}"
        raise BadImport(source.path, f"line {first.line}: {found}, which is not on record; import that run first")
    return base.seq


async def _write(store: Store, source: Source, progress: Progress) -> Imported:
    runs = entries = skipped = gone = 0
    for run, pages in groupby(_pages(checked(source)), lambda page: page[0].row.run):
        (head, _), written, lease = await store.head(run), 0, None
        async with AsyncExitStack() as held:
            for page in pages:
                if lease is None and page[-1].row.seq > head:
                    lease = await held.enter_async_context(leased(store, run))
                    head = lease.head or await _goes_on(store, page[0], source)
                await _compare(store, page, source)
                fresh = [one for one in page if one.row.seq > head]
                if lease is not None and fresh:
                    blobs = [blob for one in fresh for blob in one.blobs]
                    await store.append(Batch(lease, head, [one.row for one in fresh], blobs))
                    head, written = fresh[-1].row.seq, written + len(fresh)
                gone += len(page)
                progress(gone)
        entries, runs, skipped = entries + written, runs + bool(written), skipped + (not written)
    return Imported(runs=runs, entries=entries, skipped=skipped, format=NAME)


FORMATS = (Format(NAME, "JSON lines that `gesta export` wrote", "object", ("gesta",), take=import_lines),)
