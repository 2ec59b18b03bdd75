"""Makes a record of any size by copying the runs of the imported corpus again and again under new session names.

Gesta's own importers import each file of the corpus. Each copy is encoded anew, with its own ids, times and digests, so
`gesta verify` finds no flaw in it. One long run, runs that wait for a person, and runs with child runs are added.
"""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
from msgspec.structs import replace

import gesta
from benchmarks.corpus import reason
from gesta.codec.blobs import Blobs
from gesta.codec.rows import blob_names, from_row
from gesta.codec.runs import Whole, run_rows
from gesta.entry import run_id
from gesta.errors import GestaError
from gesta.importers.file import import_file
from gesta.kinds import BeginContent, Content, Opened, ToolResultContent
from gesta.store import Batch, BlobRow, Store, first_lease

A_FOLDER = 5_000
"""Number of entries after which no further file of the same corpus folder is imported."""
LARGEST = 3_000_000  # greatest size in bytes of a compressed file that is imported
TALK = ("user", "assistant", "tool-call", "tool-result")
TOGETHER = 40  # number of runs in one commit
NEWEST = datetime(2026, 11, 20, 12, tzinfo=UTC)
A_RUN = timedelta(minutes=11)
"""Time between the ends of two successive copies."""


class Template:
    """A run of the corpus, in the form from which copies are made."""

    def __init__(self, session: str, name: str, entries: list[Whole], blobs: list[BlobRow]) -> None:
        self.session, self.name, self.entries, self.blobs = session, name, entries, blobs

    def copy(self, record: str, session: str, ends: datetime, times: int = 1) -> Batch:
        """Return a batch that writes the run under another session name.

        Args:
            ends: time of the last entry of the copy.
            times: how often the entries are repeated inside the copy, to make a long run.
        """
        opened = Opened(session=session, name=self.name, record=record)
        run, shift, blobs = run_id(record, session, self.name), ends - self.entries[-1][4], Blobs()
        whole: list[Whole] = []
        for turn in range(times):
            moved = turn * (len(self.entries) - 1)
            for content, span, causes, notes, at in self.entries[bool(turn) :]:
                there = tuple(cause + moved if cause > 1 else cause for cause in causes if isinstance(cause, int))
                said = _moved(content, moved, opened)
                whole.append((said, span + moved if span > 1 else span, there, notes, at + shift))
        rows = run_rows(run, whole, blobs.keep, plain=True)
        return Batch(first_lease(run), 0, rows, [*self.blobs, *(BlobRow(*each) for each in blobs.take())])


def _moved(content: Content, by: int, opened: Opened) -> Content:
    """Return a content with its links to other entries moved `by` entries further."""
    match content:
        case BeginContent(opened=Opened()):
            return replace(content, opened=opened)
        case BeginContent(parent=int(parent)) if by:
            return replace(content, parent=parent + by if parent > 1 else 1)
        case ToolResultContent(call=int(call)) if by:
            return replace(content, call=call + by)
        case _:
            return content


def make(path: Path | str, entries: int, corpus: Path) -> None:
    """Make a record with about `entries` entries at `path`, and print its size on standard error."""
    anyio.run(_make, str(path), entries, corpus)


async def _make(path: str, entries: int, corpus: Path) -> None:
    templates = await _templates(corpus)
    print(f"{len(templates):,} runs of the corpus are copied", file=sys.stderr, flush=True)
    async with gesta.open(path, durability="normal") if "://" not in path else gesta.open(path) as record:
        store, done = record.store, 0
        batch = _long(templates, record.info.id)
        await store.append(batch)
        done, number, waiting = len(batch.rows), 0, list[Batch]()
        runs = (entries - done) // max(1, sum(len(each.entries) for each in templates) // len(templates))
        for template in _round(templates):
            if done >= entries:
                break
            session = f"{template.session}/{number // len(templates):04}"
            waiting.append(template.copy(record.info.id, session, NEWEST - (runs - number) * A_RUN))
            done, number = done + len(waiting[-1].rows), number + 1
            if len(waiting) == TOGETHER:
                await _write(store, waiting)
                waiting = []
        await _write(store, waiting)
        await _others(record)
    print(f"{done:,} entries, {number + 1:,} runs", file=sys.stderr, flush=True)


def _long(templates: list[Template], record: str) -> Batch:
    """Return a batch with a conversation of about 10,000 entries, which repeats one run of the corpus."""
    talk = max(templates, key=lambda each: sum(said[0].kind in TALK for said in each.entries))
    return talk.copy(record, "long/10000", NEWEST, -(-10_000 // len(talk.entries)))


async def _write(store: Store, batches: list[Batch]) -> None:
    if batches:
        await store.append(replace(batches[0], beside=batches[1:]))


def _round(templates: list[Template]) -> Iterator[Template]:
    while True:
        yield from templates


async def _templates(corpus: Path) -> list[Template]:
    found = list[Template]()
    folders = sorted(each for each in corpus.iterdir() if each.is_dir())  # noqa: ASYNC240
    for folder in folders:
        taken = 0
        async with gesta.open() as record:
            files = sorted((each for each in folder.rglob("*") if each.is_file()), key=lambda each: each.stat().st_size)
            for file in files:
                if taken >= A_FOLDER or file.stat().st_size > LARGEST or reason(str(file.relative_to(corpus))):
                    continue
                try:
                    taken += (await import_file(record, file)).entries
                except GestaError:
                    continue
            for row in await record.store.runs():
                found.append(await _template(record.store, row.run, f"{folder.name}/{row.session}", row.name))
    return found


async def _template(store: Store, run: str, session: str, name: str) -> Template:
    entries, blobs = list[Whole](), list[BlobRow]()
    for row in await store.read(run):
        known = [await store.get_blob(run, each) for each in blob_names(row)]
        blobs += known
        entry = from_row(row, {each.name: each.data for each in known})
        causes = tuple(json.loads(row.causes))
        entries.append((entry.content, row.span, causes, row.annotations, entry.at))
    assert isinstance(entries[0][0], BeginContent)
    return Template(session, name, entries, blobs)


@gesta.tool(effect="once", approval=True)
def pay(order: int) -> str:
    """Pay money back."""
    return f"order {order} is paid"


@gesta.tool(effect="pure")
def look(order: int) -> str:
    """Look an order up."""
    return f"order {order} is a lamp"


async def _others(record: gesta.Record) -> None:
    """Add runs of kinds that the corpus does not have: runs that wait for approval, and runs with a child run."""
    for number in range(20):
        asks = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", order=number), "Paid."), tools=[pay])
        await record.run(asks, f"Pay order {number} back", session=f"waits/{number}")
        clerk = gesta.Agent("clerk", model=gesta.scripted(gesta.call("look", order=number), "A lamp."), tools=[look])
        above = gesta.scripted(gesta.call("clerk", task=f"What is order {number}?"), "It is a lamp.")
        chief = gesta.Agent("chief", model=above, tools=[clerk.as_tool(description="Looks orders up.")])
        await record.run(chief, "What is it?", session=f"below/{number}")
