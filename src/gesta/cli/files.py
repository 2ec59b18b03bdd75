"""What `import`, `export`, `push` and `verify` do."""

import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import anyio

from gesta.address import open_record, remote
from gesta.audit import Flaw, Head, head_of
from gesta.cli.options import ExportOptions, ImportOptions, PushOptions, VerifyOptions
from gesta.cli.pages import reading
from gesta.cli.talk import DIM, FAILED, Stop, complain, count, harmless, json_harmless, json_line, put, say, terminal
from gesta.errors import GestaError, NoRecord, nearest
from gesta.record import Record
from gesta.tombstone import pruned

FORMATS = ("gesta", "agent-catalog", "trig", "nquads")
"""What `export` writes."""


def verify(options: VerifyOptions) -> int:
    """Check a record; say where it was changed."""
    kept = [head for word in options.head or () for head in _heads(word)]

    async def check(record: Record) -> tuple[list[Flaw], int, int, int]:
        rows, flaws = await record.store.runs(), await record.verify(kept)
        if flaws:
            return flaws, len(rows), 0, 0
        if options.keep is not None:
            _write_heads(options.keep, await record.heads())
        entries = (await record.store.sql("SELECT count(*) FROM entries")).rows[0][0]  # a fork's own are all it has
        return [], len(rows), entries, sum(len(each.runs) for each in await pruned(record.store))

    flaws, runs, entries, gone = reading(options, check, options.file)
    for flaw in flaws:
        if options.json:
            put(json_line({"run": flaw.run, "seq": flaw.seq, "what": flaw.what}))
        else:
            put(harmless(f"run {flaw.run}: {flaw.what}" if flaw.run else flaw.what))
    if flaws:
        broken = sum(1 for flaw in flaws if flaw.run)
        say(f"Changed since it was written: {count(broken, 'run')} of {runs}." if broken else "It is not whole.")
        return FAILED
    if options.json:
        put(json_line({"runs": runs, "entries": entries, "flaws": 0, "pruned": gone}))
    else:
        put(f"{count(runs, 'run')}, {count(entries, 'entry')}: nothing was changed.{_pruned(gone)}")
    return 0


def _heads(word: str) -> list[Head]:
    """Read a head, or the file that is named. Raises Stop."""
    alone = head_of(word)
    if alone is not None:
        return [alone]
    try:
        lines = [line for line in Path(word).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(f"--head {word}: no head (RUN.SEQ:DIGEST), and no file of heads: {error}") from error
    found = [head_of(line) for line in lines]
    if None in found:
        raise Stop(
            f"--head {word}: line {found.index(None) + 1} is no head. A head is RUN.SEQ:DIGEST, as --keep writes."
        )
    return [head for head in found if head is not None]


def _write_heads(path: str, heads: Iterable[Head]) -> None:
    try:
        Path(path).write_text("".join(f"{head}\n" for head in heads), encoding="utf-8")
    except OSError as error:
        raise Stop(f"--keep {path}: {error.strerror or error}") from error


def _pruned(runs: int) -> str:
    return f" {count(runs, 'run')} {'was' if runs == 1 else 'were'} pruned." if runs else ""


def export(options: ExportOptions) -> None:
    """Write runs as text, to a file or to stdout."""
    if options.format not in FORMATS:
        known = ", ".join(FORMATS)
        raise Stop(f"No format {options.format!r} to write.{nearest(options.format, FORMATS)} Known: {known}.")
    if (options.run is None) != options.all:
        raise Stop("Say which run, or --all: gesta export last, gesta export --all.")

    if options.output is not None and options.output.endswith(".gesta"):
        raise Stop(f"{options.output!r} is the name of a record, and JSON lines are none. Name a file: -o run.jsonl")

    async def write(record: Record) -> None:
        lines = await _lines(record, options.run, options.format)
        if options.output is None or options.output == "-":
            shown = json_harmless if terminal(sys.stdout) else str
            async for line in lines:
                sys.stdout.write(shown(line))
            return
        async with await anyio.open_file(options.output, "w", encoding="utf-8", newline="\n") as file:
            async for line in lines:
                await file.write(line)
        runs = len(await record.store.runs()) if options.all else 1
        say(f"{count(runs, 'run')} written to {options.output}")

    reading(options, write)


async def _lines(record: Record, named: str | None, format: str) -> AsyncIterator[str]:
    """Give a run in a format, or all of them."""
    from gesta.bridges import agent_catalog, jsonl

    run = (await record.find(named)).run if named is not None else None
    if format in ("trig", "nquads"):
        from gesta.bridges import prov

        return prov.export(record, run, format)
    if format == "gesta":
        return jsonl.export_all(record) if run is None else jsonl.export_run(record, run)
    runs = [row.run for row in await record.store.runs()] if run is None else [run]
    return (line for each in runs async for line in agent_catalog.export_run(record, each))


def import_(options: ImportOptions) -> int:
    """Read files into a record, one after the other; one that cannot be read does not stop the others."""
    for path in options.files:
        if Path(path).is_dir():
            raise Stop(f"{path!r} is a folder. Name the files in it, as in {path.rstrip('/')}/*. Nothing was imported.")
        if not Path(path).is_file():
            raise Stop(f"No file {path!r} in {Path.cwd()}. Nothing was imported.")
    address = options.target(new=True)
    made = not Path(address).exists()

    async def read() -> int:
        failed = 0
        async with open_record(address) as record:
            for path in options.files:
                try:
                    await _import(record, path, options)
                except GestaError as error:
                    failed += 1
                    complain(error)
        return failed

    failed = anyio.run(read)
    if made and failed == len(options.files):
        Path(address).unlink(missing_ok=True)  # nothing was imported, so nothing is left behind
    return FAILED if failed else 0


async def _import(record: Record, path: str, options: ImportOptions) -> None:
    from gesta.bridges.foreign import ODDITIES
    from gesta.bridges.importing import import_file

    shows = terminal(sys.stderr)

    def progress(done: int) -> None:
        if shows:
            print(f"\r{Path(path).name}: {count(done, 'entry')} ...", end="", file=sys.stderr, flush=True)

    found = await import_file(record, path, options.format, progress)
    if shows:
        print("\r\x1b[K", end="", file=sys.stderr)
    if options.json:
        facts = {"runs": found.runs, "entries": found.entries, "skipped": found.skipped, "format": found.format}
        put(json_line({"file": path, **facts, "oddities": found.oddities}))
        return
    skipped = f", {found.skipped} skipped" if found.skipped else ""
    put(f"{path}: {count(found.runs, 'run')}, {count(found.entries, 'entry')}{skipped} ({found.format})")
    for name, times in sorted(found.oddities.items()):
        say(f"  {times:,} x {name}: {ODDITIES.get(name, '')}", DIM)


def push(options: PushOptions) -> int:
    """Copy a record into another; say what was copied and what was not."""
    from gesta.bridges.pushing import Pushed
    from gesta.bridges.pushing import push as copy

    if not remote(options.source) and not Path(options.source).is_file():
        raise NoRecord(options.source)
    for address in (options.source, options.target):
        if address == ":memory:":
            raise Stop("A record that ends with the command helps nobody. Name a file or a PostgreSQL address.")
    shows = terminal(sys.stderr)

    def progress(done: int) -> None:
        if shows:
            print(f"\r{count(done, 'entry')} ...", end="", file=sys.stderr, flush=True)

    async def work() -> tuple[Pushed, str]:
        async with open_record(options.source) as source, open_record(options.target) as target:
            return await copy(source.store, target.store, progress), target.info.address

    pushed, address = anyio.run(work)
    if shows:
        print("\r\x1b[K", end="", file=sys.stderr)
    for refusal in pushed.refused:
        complain(GestaError(refusal))
    if options.json:
        facts = {"runs": pushed.runs, "entries": pushed.entries, "letters": pushed.letters, "known": pushed.known}
        put(json_line({**facts, "refused": len(pushed.refused)}))
    else:
        known = f", {pushed.known} there before" if pushed.known else ""
        shown = options.target if not remote(options.target) else address
        put(f"{count(pushed.runs, 'run')}, {count(pushed.entries, 'entry')} pushed to {shown}{known}")
    return FAILED if pushed.refused else 0
