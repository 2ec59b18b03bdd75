"""Implements `gesta view --export`, which writes some runs of a record as a folder of HTML pages.

A record is the store of all runs, and a run is the list of entries of one conversation of an agent.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from gesta.address import Record
from gesta.cli.options import OnRecord
from gesta.cli.pages import reading
from gesta.cli.talk import DIM, count, harmless, json_line, put, say, terminal
from gesta.integrity.verify import Head
from gesta.store import RunRow
from gesta.web.data import Pages
from gesta.web.folder import Copied, FolderCopy


def write_folder(options: OnRecord, named: str | None, folder: Path, run: str, kept: list[list[Head]]) -> int:
    """Write runs as a folder of pages, and print how many runs and entries were written. Returns the exit code.

    Args:
        named: address of the record; `None` for the record that the options choose.
        run: an id, the start of one, `last`, or a session.
        kept: heads (digests of the last entries of runs) with which the runs are compared.
    """

    async def write(record: Record) -> Copied:
        rows = await chosen(record, run)
        pages = Pages(record, Path(record.info.address).name, record.info.address)
        pages.evidence.heads = kept
        return await FolderCopy(pages, rows, progress()).write(folder)

    try:
        done = reading(options, write, named)
    finally:
        if terminal(sys.stderr):
            print("\r\x1b[K", end="", file=sys.stderr)
    if options.json:
        put(json_line(msgspec.to_builtins(done)))
        return 0
    what = f"{count(done.runs, 'run')}, {count(done.entries, 'entry')} written."
    put(harmless(f"{what} Open {folder / 'index.html'} in a browser."))
    if number := done.left_out.get("why"):
        say(f"Left out: the explanations of {count(number, 'answer')}, the oldest ones.", DIM)
    if number := done.left_out.get("entries"):
        say(f"Left out: the whole text of {count(number, 'entry')}, which is very long.", DIM)
    if number := done.left_out.get("requests"):
        say(f"Left out: what was sent in {count(number, 'request')}, the earliest ones.", DIM)
    if number := done.left_out.get("files"):
        say(f"Left out: {count(number, 'file')} that the record does not hold any more.", DIM)
    return 0


async def chosen(record: Record, name: str) -> list[RunRow]:
    """Return the runs to write: for a session all its runs, else one run and the runs that it started.

    The pages begin with the first run of the list.

    Raises:
        NoRun: no run fits.
        SeveralRuns: several ids begin with the name.
    """
    first = await record.find(name)
    rows = await record.store.runs(first.session)
    wanted = {first.run}
    if name == first.session:
        wanted = {row.run for row in rows}
    while more := {row.run for row in rows if row.parent_run in wanted} - wanted:
        wanted |= more
    return [first, *(row for row in rows if row.run in wanted and row.run != first.run)]


def progress() -> Callable[[int], None]:
    """Return a function that shows the number of written files on the terminal."""
    shows = terminal(sys.stderr)

    def told(files: int) -> None:
        if shows:
            print(f"\r{count(files, 'file')} ...", end="", file=sys.stderr, flush=True)

    return told
