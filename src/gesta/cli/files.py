"""Implements the commands `import`, `export`, `push` and `verify`.

A record is a store of runs: a file of SQLite, or a schema in PostgreSQL. A head is the id and digest of a run's last
entry, as text `RUN.SEQ:DIGEST`. A head that was kept elsewhere shows later whether the run was changed.
"""

import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import anyio

from gesta.address import open_record, remote
from gesta.cli.approving import who
from gesta.cli.options import ExportOptions, ImportOptions, PushOptions, VerifyOptions
from gesta.cli.pages import reading
from gesta.cli.talk import (
    DIM,
    FAILED,
    Stop,
    complain,
    count,
    harmless,
    json_harmless,
    json_line,
    put,
    say,
    short,
    terminal,
)
from gesta.errors import GestaError, nearest
from gesta.integrity.tombstones import pruning_notes
from gesta.integrity.verify import RUNS, UNREADABLE, Head, Report, head_of
from gesta.record.record import Record
from gesta.stores.common import private
from gesta.text.redactor import SECRETS

FORMATS = ("gesta", "agent-catalog", "trig", "nquads", "otlp")
"""Names of the formats that `export` writes."""
MOST = 40
"""Greatest number of characters of a file's name in a line that shows progress."""


def verify(options: VerifyOptions) -> int:
    """Check a record against its digests and the given heads, and print what was changed. Returns the exit code."""
    if options.keep is not None and options.keep.endswith(".gesta"):
        raise Stop(f"{options.keep!r} is the name of a record, and heads are none. Name a file: --keep heads.txt")
    kept = kept_heads(options.head or ())

    async def check(record: Record) -> tuple[Report, set[str], dict[str, int]]:
        found = await record.report(*kept)
        flaws = found.flaws
        try:
            runs = {str(run) for run, _ in (await record.store.sql(RUNS)).rows}
        except UNREADABLE:
            if not flaws:
                raise
            runs = set()
        if flaws:
            return found, runs, {}
        heads = await record.heads() if options.keep is not None else []
        if options.keep is not None:
            write_whole(options.keep, "".join(f"{head}\n" for head in heads), f"--keep {options.keep}")
        entries = (await record.store.sql("SELECT count(*) FROM entries")).rows[0][0]  # shared entries count once
        gone = sum(len(each.value.runs) for each in await pruning_notes(record.store))
        facts = {"entries": int(entries), "flaws": 0, "pruned": gone, "heads": sum(map(len, kept)), "kept": len(heads)}
        return found, runs, {"runs": len(runs), **facts}

    found, runs, facts = reading(options, check, options.file)
    flaws = found.flaws
    for flaw in flaws:
        if options.json:
            put(json_line({"run": flaw.run, "seq": flaw.seq, "what": flaw.what}))
        else:
            put(harmless(f"run {flaw.run}: {flaw.what}" if flaw.run else flaw.what))
    for note in found.notes:
        say(harmless(note), DIM)
    if flaws:
        say(_broken({flaw.run for flaw in flaws if flaw.run}, runs))
        return FAILED
    put(json_line({**facts, "notes": found.notes}) if options.json else harmless(_whole(facts, options.keep)))
    return 0


def _broken(broken: set[str], runs: set[str]) -> str:
    """Return sentences which say how many runs were changed and how many are missing.

    If `runs` or `broken` is empty, the text says only that the record is not whole.

    Args:
        broken: ids of the runs that are changed or missing.
        runs: ids of all runs in the record. A broken run that is not among these is missing.
    """
    if not runs:
        return "It is not whole."
    said = [f"Changed since it was written: {count(len(broken & runs), 'run')} of {len(runs):,}."] * bool(broken & runs)
    gone = len(broken - runs)
    said += [f"{count(gone, 'run')} {'is' if gone == 1 else 'are'} not there any more."] * bool(gone)
    return " ".join(said) or "It is not whole."


def _whole(facts: dict[str, int], path: str | None) -> str:
    heads = facts["heads"]
    held = f" {count(heads, 'head')} {'holds' if heads == 1 else 'hold'}." if heads else ""
    written = f" {count(facts['kept'], 'head')} written to {path}." if path is not None else ""
    done = f"{count(facts['runs'], 'run')}, {count(facts['entries'], 'entry')}: nothing was changed."
    return done + _pruned(facts["pruned"]) + held + written


def kept_heads(words: Iterable[str]) -> list[list[Head]]:
    """Return the heads that the user named. Each word is a head, or the path of a file of heads.

    The heads that the user typed are the first list, if there are any. Each file makes a further list. Raises Stop if a
    word is neither.
    """
    named, files = list[Head](), list[list[Head]]()
    for word in words:
        alone = head_of(word)
        if alone is not None:
            named.append(alone)
        else:
            files.append(_heads(word))
    return [named, *files] if named else files


def _heads(word: str) -> list[Head]:
    """Return the heads in a file, one a line. Raises Stop if the file cannot be read, or holds something else."""
    try:
        lines = [line for line in Path(word).read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a NUL in the path
        raise Stop(f"--head {word}: no head (RUN.SEQ:DIGEST), and no file of heads: {error}") from error
    if not lines:
        raise Stop(f"--head {word}: no head is in it. A head is RUN.SEQ:DIGEST, as --keep writes.")
    found = [head_of(line) for line in lines]
    if None in found:
        raise Stop(
            f"--head {word}: line {found.index(None) + 1} is not a head. A head is RUN.SEQ:DIGEST, as --keep writes."
        )
    return [head for head in found if head is not None]


def write_whole(path: str | Path, text: str, asked: str, *, parents: bool = False) -> None:
    """Write a text to a file. Raises Stop if the file cannot be written.

    A new file is written and renamed, so that a kill or a full disk in between leaves the old file whole.

    Args:
        asked: the words of the command line that name the file, for the error message.
        parents: whether to make the folder of the file, if it does not exist.
    """
    try:
        if parents:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        if Path(path).exists() and not Path(path).is_file():  # such as a pipe
            Path(path).write_text(text, encoding="utf-8")
            return
        target = Path(path).resolve()
        beside = target.with_name(f"{target.name}.{os.getpid()}.new")
        try:
            with open(beside, "w", encoding="utf-8", opener=private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                target.open("r+").close()  # raises for a file that may not be written, which a rename would replace
                shutil.copymode(target, beside)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        named = "folder" if parents else "file"
        raise Stop(f"{asked}: {error.strerror or error}. Name a {named} that you may write.") from error


def _pruned(runs: int) -> str:
    return f" {count(runs, 'run')} {'was' if runs == 1 else 'were'} pruned." if runs else ""


def export(options: ExportOptions) -> None:
    """Write one run or all runs as text, to a file or to stdout."""
    if options.format not in FORMATS:
        known = ", ".join(FORMATS)
        raise Stop(f"No format {options.format!r} to write.{nearest(options.format, FORMATS)} Known: {known}.")
    if (options.run is None) != options.all:
        raise Stop("Say which run, or --all: gesta export last, gesta export --all.")

    if options.output is not None and options.output.endswith(".gesta"):
        raise Stop(f"{options.output!r} is the name of a record, and JSON lines are none. Name a file: -o run.jsonl")

    async def write(record: Record) -> None:
        lines = _clean(await _lines(record, options))
        if options.output is None or options.output == "-":
            shown = json_harmless if terminal(sys.stdout) else str
            async for line in lines:
                sys.stdout.write(shown(line))
            return
        begun = ""
        try:
            async with await anyio.open_file(options.output, "w", encoding="utf-8", newline="\n") as file:
                begun = "What was written is not whole. "
                async for line in lines:
                    await file.write(line)
        except OSError as error:
            why = error.strerror or error
            raise Stop(f"Cannot write {options.output!r}: {why}. {begun}Name another file: -o FILE", FAILED) from error
        say(f"{count(await _number(record, options), 'run')} written to {options.output}")

    reading(options, write)


async def _number(record: Record, options: ExportOptions) -> int:
    """Return the number of runs that an export writes."""
    from gesta.bridges import jsonl

    if options.run is None:
        return len(await record.store.runs())
    if options.format != "gesta":
        return 1
    return len(await jsonl.together(record.store, (await record.find(options.run)).run))


async def _clean(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield lines without the secrets of this process. An older release may have recorded secrets."""
    hidden = 0
    async for line in lines:
        clean = SECRETS.text(line)
        hidden += clean is not line
        yield clean
    if hidden:
        say(
            f"{count(hidden, 'line')} held a secret of this process, and was written without it"
            ": what has a digest on record does not fit that any more."
        )


async def _lines(record: Record, options: ExportOptions) -> AsyncIterator[str]:
    """Yield the lines of one run, or of all runs, in the format that the options name."""
    from gesta.bridges import jsonl
    from gesta.compat.agent_catalog.export import export_run as activity_log

    named, format = options.run, options.format
    run = (await record.find(named)).run if named is not None else None
    if format in ("trig", "nquads"):
        from gesta.bridges import prov

        return prov.export(record, run, format)
    if format == "otlp":
        from gesta.bridges.otlp import files as otlp

        return otlp.export(record, run, content=options.content)
    if format == "gesta":
        return jsonl.export_all(record) if run is None else jsonl.export_run(record, run)
    runs = [row.run for row in await record.store.runs()] if run is None else [run]
    return (line for each in runs async for line in activity_log(record, each))


def import_(options: ImportOptions) -> int:
    """Import files with recorded runs into a record, and return the exit code.

    A file that cannot be read does not stop the others.
    """
    for path in options.files:
        if Path(path).is_dir():
            raise Stop(f"{path!r} is a folder. Name the files in it, as in {path.rstrip('/')}/*. Nothing was imported.")
        if not Path(path).is_file():
            raise Stop(
                f"No file {path!r} in {Path.cwd()}. Write its path from this folder, or from /. Nothing was imported."
            )
    address = options.target(new=True)
    made = not Path(address).exists()

    async def read() -> tuple[int, bool]:
        failed = 0
        async with open_record(address) as record:
            for path in options.files:
                try:
                    await _import(record, path, options)
                except GestaError as error:
                    failed += 1
                    complain(error)
            return failed, not await record.store.runs()

    failed, empty = anyio.run(read)
    if not failed and options.format is None:  # the failure was printed already
        _name_broken()
    if made and empty and failed == len(options.files):  # another program may have written it meanwhile
        Path(address).unlink(missing_ok=True)  # nothing was imported, so nothing is left behind
    return FAILED if failed else 0


def _name_broken() -> None:
    """Print the names of installed importers of other packages that cannot be used, and why."""
    from gesta.importers.known import formats

    for name, why in formats().broken.items():
        say(f"An installed importer cannot be used: {name!r}, {why}", DIM)


async def _import(record: Record, path: str, options: ImportOptions) -> None:
    from gesta.importers.file import import_file
    from gesta.importers.foreign import ODDITIES
    from gesta.importers.source import ImportBounds

    shows, name = terminal(sys.stderr), short(harmless(Path(path).name), MOST)

    def progress(done: int) -> None:
        if shows:
            print(f"\r{name}: {count(done, 'entry')} ...", end="", file=sys.stderr, flush=True)

    bounds = ImportBounds(value=options.largest_value, file=options.largest_file)
    found = await import_file(record, path, options.format, progress, bounds=bounds)
    if shows:
        print("\r\x1b[K", end="", file=sys.stderr)
    if options.json:
        facts = {"runs": found.runs, "entries": found.entries, "skipped": found.skipped, "format": found.format}
        put(json_line({"file": path, **facts, "oddities": found.oddities}))
        return
    skipped = f", {found.skipped} skipped" if found.skipped else ""
    put(harmless(f"{path}: {count(found.runs, 'run')}, {count(found.entries, 'entry')}{skipped} ({found.format})"))
    for name, times in sorted(found.oddities.items()):
        say(f"  {times:,} x {name}: {ODDITIES.get(name, '')}", DIM)


def push(options: PushOptions) -> int:
    """Copy a record into another one, and print what was copied and what was not. Returns the exit code."""
    from gesta.bridges.pushing import Pushed
    from gesta.bridges.pushing import push as copy

    if not remote(options.source) and not Path(options.source).is_file():
        raise Stop(
            f"No record at {options.source!r}. Name one that is there, and where to copy it: gesta push FROM TO."
        )
    for address in (options.source, options.target):
        if address == ":memory:":
            raise Stop("A record that ends with the command helps nobody. Name a file or a PostgreSQL address.")
    shows = terminal(sys.stderr)

    def progress(done: int) -> None:
        if shows:
            print(f"\r{count(done, 'entry')} ...", end="", file=sys.stderr, flush=True)

    async def work() -> tuple[Pushed, str]:
        async with open_record(options.source) as source, open_record(options.target) as target:
            moved_by = (options.by or who()) if options.move else None
            pushed = await copy(source.store, target.store, progress, moved_by=moved_by)
            return pushed, target.info.address

    pushed, address = anyio.run(work)
    if shows:
        print("\r\x1b[K", end="", file=sys.stderr)
    for refusal in pushed.refused:
        complain(GestaError(refusal))
    if options.json:
        facts = {"runs": pushed.runs, "entries": pushed.entries, "letters": pushed.letters, "known": pushed.known}
        put(json_line({**facts, "moved": pushed.moved, "refused": len(pushed.refused)}))
    else:
        known = f", {pushed.known} there before" if pushed.known else ""
        moved = (
            f"; {count(pushed.moved, 'run')} {'goes' if pushed.moved == 1 else 'go'} on there" if options.move else ""
        )
        shown = options.target if not remote(options.target) else address
        put(harmless(f"{count(pushed.runs, 'run')}, {count(pushed.entries, 'entry')} pushed to {shown}{known}{moved}"))
    return FAILED if pushed.refused else 0
