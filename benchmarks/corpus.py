"""Imports every file of the corpus of recorded runs, and compares the counts of what was imported with those stated.

Run `python -m benchmarks.corpus [FOLDER…] [--corpus PATH] [--files] [--json]`. Each folder becomes a temporary record.
Each file is imported, read back and counted, unless `DATA` gives the reason why it contains no run. Counts that differ
from those of MANIFEST.json are put into the classes of `CLASSES`. The command fails if a file cannot be imported or
read, a record is not sound, a difference has no class, a count is not known, or more than 1 % differs in all.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec import Struct, field

import gesta
from benchmarks._corpus_folder import add_corpus, corpus_at
from benchmarks._counts import counted, events_of, like, merge
from gesta.errors import GestaError
from gesta.importers.file import import_file
from gesta.importers.source import BadImport
from gesta.record.record import Record

DATA = (
    ("*LICENSE*", "licence"),
    ("MANIFEST.json", "about the corpus"),
    ("SOURCES.md", "about the corpus"),
    ("*/TOOLS.md", "what the tools do, in words"),
    ("*/tools.json", "schemas of tools"),
    ("*/*policy*.md", "instructions of an agent"),
    ("*/tech_support_manual.md", "instructions of an agent"),
    ("*/tasks*.json*", "tasks, not runs of them"),
    ("agentdojo/env/*.yaml", "data that tools work on"),
    ("tau-bench/retail/*.json.gz", "data that tools work on"),
    ("tau2-bench/*/*db.*", "data that tools work on"),
    ("langfuse-traces/*.chatml.json.gz", "what another product reads in a trace: an answer key"),
    ("activegraph-tau2/*/observer_events.jsonl.gz", "empty: nothing was observed"),
    ("cassettes/*.tar.gz", "HTTP traffic of providers, for tests of model adapters"),
    ("documents/*.jsonl.*", "documents to be looked up"),
    ("sqlite/*.sqlite", "data that tools work on"),
)
"""Files that contain no runs: a pattern for their path, and the reason."""

LIMIT = 0.01
"""Share of all counts that may differ."""


class Class(Struct, frozen=True):
    """A class of differences between counts that have the same reason."""

    name: str
    files: str
    """Pattern for the path of the file."""
    counts: tuple[str, ...]
    """Patterns for the names of the counts."""
    why: str
    most: int
    """Greatest difference of a count that belongs to this class."""
    unsaid: bool = False
    """Whether the class is only for counts that the corpus does not state for the file."""


CLASSES = (
    Class(
        "exceptions of the environment",
        "mini-swe-agent/*",
        ("tool_errors",),
        "a result whose command could not be run says so in its `extra`, where the corpus does not look",
        most=5,
        unsaid=True,
    ),
    Class(
        "a step without a message",
        "swe-agent/traj/test-data*",
        ("tool_calls", "max.calls_per_traj", "odd.result_id_missing"),
        "the last step of `trajectory` is a call as well, but no message of `history`, where the corpus counts",
        most=1,
    ),
    Class(
        "actions as text",
        "swe-agent/traj/*",
        (
            "role.user",
            "traj_without_calls",
            "turns_text_and_calls",
            "odd.ends_with_pending_calls",
            "odd.result_id_missing",
        ),
        "actions that the agent wrote as text are calls, and what the program says to them are their results",
        most=18,
    ),
)
"""The reasons why counts differ; a difference belongs to the first class that fits."""

UNCOMPARED = (
    ("args.*", "how the source writes arguments; they are an object in every call"),
    ("content.list", "how the source writes a text"),
    ("types.*", "the role of a span follows from more than the type of an observation"),
)
"""Counts of the corpus that are not compared, with the reason."""
SAME = {
    "content.null.assistant": "content.empty.assistant",
    "content.null.user": "content.empty.user",
    "odd.assistant_null_content_no_calls": "odd.assistant_empty_content_no_calls",
}
"""Counts that are added to another one, because a missing text is imported as an empty text."""
UNSAID = ("tool_errors", "parallel_turns", "turns_text_and_calls", "traj_without_calls", "odd.*", "content.*")
"""Counts that the corpus leaves out if they are 0, in files for which it states roles."""
SIZES = ("chars", "max.*")
"""Counts that are compared, but are left out of the share that may differ, because they do not count things."""
SAID = {"tau-bench/few_shot-retail.jsonl.gz": {"traj": 69}}
"""Counts that are stated only in SOURCES.md."""

ODD = {
    "missing-call-id": "odd.call_id_missing",
    "missing-result-id": "odd.result_id_missing",
    "repeated-call-id": "odd.duplicate_call_id",
    "unanswered-call": "odd.unanswered_call",
}
"""Oddities that the importer reports, with the names under which the corpus counts them."""
KNOWN = ("role.*", "starts_with.*", "ends_with.*", "suite.*", "attack.*", "term.*", "odd.*", "content.*")
"""Counts that are made only if they are above 0."""
BESIDE = {
    "runs": ("traj", "traj"),
    "messages": ("messages",) * 2,
    "calls": ("tool_calls",) * 2,
    "errors": ("errors", "tool_errors"),
}
"""Columns of the table that the corpus states too: the name of our count, and its name in the corpus."""


class File(Struct):
    """One file of the corpus: its counts after the import, and those that the corpus states."""

    path: str
    data: str | None = None
    """The reason why it contains no run; `None` for a file with runs."""
    format: str | None = None
    problem: str | None = None
    runs: int = 0
    entries: int = 0
    calls: int = 0
    errors: int = 0
    """Number of results with the status error, including those whose status was inferred."""
    oddities: dict[str, int] = field(default_factory=dict)
    seconds: float = 0
    """Duration of the import."""
    mb: float = 0
    """Size before compression, in MB."""
    counts: dict[str, int] = field(default_factory=dict)
    """Counts of what was imported, by the names of MANIFEST.json."""
    stated: dict[str, int] = field(default_factory=dict)
    """Counts that MANIFEST.json states."""


class Difference(Struct, frozen=True):
    """A count that differs from what the corpus states."""

    path: str
    count: str
    stated: int
    found: int
    kind: str | None
    """Name of its class; `None` if no class fits."""


class Folder(Struct):
    """One folder of the corpus, imported into one record."""

    name: str
    files: list[File] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)
    """What `verify` found wrong in the record."""
    record_mb: float = 0


class Report(Struct):
    """The result for all folders."""

    folders: list[Folder] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    whole: bool = False
    """Whether all folders were imported."""
    unknown: list[str] = field(default_factory=list)
    """Counts of the corpus for which there is no count here."""
    compared: int = 0
    """Number of things compared, as the corpus counts them."""

    @property
    def differing(self) -> int:
        """Number of compared things whose counts differ, without those of `SIZES`."""
        return sum(abs(one.stated - one.found) for one in self.differences if not like(one.count, SIZES))

    @property
    def problems(self) -> list[str]:
        """The reasons why the command fails; empty if it succeeds."""
        files = [file for folder in self.folders for file in folder.files]
        return [
            *(f"{file.path}: {file.problem}" for file in files if file.problem),
            *(f"{folder.name}: {flaw}" for folder in self.folders for flaw in folder.flaws),
            *(f"{one.path}: {one.count} has no class" for one in self.differences if one.kind is None),
            *(f"{name}: is neither compared nor in UNCOMPARED" for name in self.unknown),
            *(["too much differs in all"] if self.whole and self.differing > LIMIT * max(self.compared, 1) else []),
        ]


def stated(entry: dict[str, Any], path: str) -> dict[str, int]:
    """Return the counts that MANIFEST.json states about one file."""
    given: dict[str, int] = {}
    for name, count in (entry.get("stats") or {}).items():
        given |= {f"{name}.{part}": each for part, each in count.items()} if isinstance(count, dict) else {name: count}
    found: dict[str, int] = {}
    for name, count in (given or SAID.get(path, {})).items():
        found[SAME.get(name, name)] = found.get(SAME.get(name, name), 0) + count
    return found


def compare(report: Report, file: File) -> None:
    """Compare the counts of a file with the stated ones, and add the differences to the report."""
    names = {name for name in file.stated if not like(name, [pattern for pattern, _ in UNCOMPARED])}
    if any(name.startswith("role.") for name in file.stated):
        names |= {name for name, count in file.counts.items() if count and like(name, UNSAID)}
    for name in sorted(names):
        due, found = file.stated.get(name, 0), file.counts.get(name, 0)
        report.compared += 0 if like(name, SIZES) else due
        if name not in file.counts and due and not like(name, KNOWN):
            report.unknown.append(f"{file.path}: {name}")
        elif due != found:
            report.differences.append(Difference(file.path, name, due, found, classified(file, name, abs(found - due))))


def classified(file: File, name: str, size: int) -> str | None:
    """Return the name of the class of a difference; `None` if no class fits."""
    for one in CLASSES:
        if like(file.path, [one.files]) and like(name, one.counts) and size <= one.most:
            return None if one.unsaid and name in file.stated else one.name
    return None


async def imported(record: Record, file: File, root: Path) -> None:
    """Import a file, and count what is in the record then."""
    before, started, shown = {row.run for row in await record.store.runs()}, time.perf_counter(), [time.perf_counter()]

    def progress(entries: int) -> None:
        if time.perf_counter() - shown[0] > 2:
            shown[0] = time.perf_counter()
            print(f"{file.path}: {entries} entries", file=sys.stderr, flush=True)

    try:
        done = await import_file(record, root / file.path, progress=progress)
    except GestaError as error:
        file.problem = error.found if isinstance(error, BadImport) else str(error)
        return
    file.seconds = time.perf_counter() - started
    file.format, file.runs, file.entries, file.oddities = done.format, done.runs, done.entries, done.oddities
    events: set[str] = set()
    for row in await record.store.runs():
        if row.run not in before:
            entries = await record.read(row.run)
            events |= events_of(entries)
            merge(file.counts, counted(entries))
    file.counts["events"] = len(events)
    for oddity, name in ODD.items():
        file.counts[name] = done.oddities.get(oddity, 0)
    file.calls, file.errors = file.counts.get("tool_calls", 0), file.counts.get("errors", 0)


def reason(path: str) -> str | None:
    """Return the reason why a file contains no run; `None` if it contains runs."""
    return next((why for pattern, why in DATA if fnmatchcase(path, pattern)), None)


def files_of(root: Path, name: str) -> list[Path]:
    """Return the files of a folder; for an empty name, those directly in the corpus."""
    return sorted(path for path in ((root / name).rglob("*") if name else root.glob("*")) if path.is_file())


async def taken(root: Path, name: str, manifest: dict[str, Any]) -> Folder:
    """Import a folder into a record of its own, and return the result."""
    folder = Folder(name or "(top)")
    with tempfile.TemporaryDirectory() as place:
        address = Path(place) / "corpus.gesta"
        async with gesta.open(str(address), durability="normal") as record:
            for path in files_of(root, name):
                entry, where = manifest.get(path.relative_to(root).as_posix(), {}), path.relative_to(root).as_posix()
                file = File(where, mb=entry.get("raw_bytes", path.stat().st_size) / 1e6, stated=stated(entry, where))
                file.data = reason(where)
                folder.files.append(file)
                if file.data is None:
                    await imported(record, file, root)
            folder.flaws = [f"{flaw.run}.{flaw.seq}: {flaw.what}" for flaw in await record.verify()]
        folder.record_mb = sum(path.stat().st_size for path in files_of(Path(place), ".")) / 1e6
    return folder


def shown(file_or_folder: Sequence[File]) -> list[str]:
    """Return the cells of one line of the table. Where the corpus states a count, a cell is `imported/stated`."""
    files = [file for file in file_or_folder if file.data is None]
    formats = ",".join(dict.fromkeys(file.format or "?" for file in files)) or "-"
    cells = [formats, str(sum(file.entries for file in files))]
    for name, theirs in BESIDE.values():
        said = [file for file in files if theirs in file.stated]
        found, more = (
            sum(file.counts.get(name, 0) for file in each) for each in (said, [f for f in files if f not in said])
        )
        due = f"{found}/{sum(file.stated[theirs] for file in said)}"
        cells.append(due + (f" +{more}" if more else "") if said else f"{more}/-")
    cells.append(str(sum(sum(file.oddities.values()) for file in files)))
    return [*cells, f"{sum(file.seconds for file in files):.1f}", f"{sum(file.mb for file in files):.2f}"]


def row(name: str, cells: Sequence[str]) -> str:
    """Return one line of the table."""
    first, *rest = cells
    return f"{name:<36.36} {first:<28.28}" + "".join(cell.rjust(17) for cell in rest)


def table(report: Report, *, files: bool) -> Iterator[str]:
    """Yield the lines of a report for people."""
    yield row(
        "folder",
        ("formats", "entries", *(f"{word}/stated" for word in BESIDE), "oddities", "seconds", "MB", "record MB"),
    )
    for folder in report.folders:
        runs = [file for file in folder.files if file.data is None]
        yield row(
            f"{folder.name} ({len(runs)} files, {len(folder.files) - len(runs)} data)",
            [*shown(folder.files), f"{folder.record_mb:.2f}"],
        )
        for file in folder.files if files else ():
            name = "  " + file.path.removeprefix(f"{folder.name}/")
            yield f"{name:<36} data, not runs: {file.data}" if file.data else row(name, shown([file]))
            if file.oddities:
                yield "    " + ", ".join(f"{odd} {count}" for odd, count in file.oddities.items())
    yield ""
    for name, why in [(one.name, one.why) for one in CLASSES] + [("without a class", "somebody has to look")]:
        found = [one for one in report.differences if (one.kind or "without a class") == name]
        if found:
            yield f"{name}: {len(found)} counts differ; {why}"
            for one in found:
                yield f"  {one.path}: {one.count} is {one.found}, {one.stated} stated ({one.found - one.stated:+})"
    share = report.differing / max(report.compared, 1)
    yield f"{report.compared} things compared, {report.differing} differ ({share:.2%} of {LIMIT:.0%} allowed)"
    yield from (f"PROBLEM {problem}" for problem in report.problems)


async def reported(root: Path, names: Sequence[str]) -> Report:
    """Import folders of the corpus, one after another, and return the report."""
    listed = json.loads((root / "MANIFEST.json").read_text(encoding="utf-8"))["files"]
    manifest = {entry["path"]: entry for entry in listed}
    report = Report(whole="" in names)
    for name in names:
        print(f"{name or root} …", file=sys.stderr, flush=True)
        folder = await taken(root, name, manifest)
        report.folders.append(folder)
        there = {file.path for file in folder.files}
        folder.flaws += [f"{path} is missing" for path in manifest if path.startswith(f"{name}/") and path not in there]
        for file in folder.files:
            if file.data is None and not file.problem:
                compare(report, file)
    return report


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="folders of the corpus; by default all")
    add_corpus(parser)
    parser.add_argument("--files", action="store_true", help="a line for each file too")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    root = corpus_at(given.corpus)
    if root is None:
        return 0
    names = given.folders or ["", *sorted(path.name for path in root.glob("*/"))]
    for name in names:
        if not (root / name).is_dir():
            parser.error(f"there is no folder {root / name}")
    began = time.monotonic()
    report = anyio.run(reported, root, [name.strip("/") for name in names])
    if given.json:
        print(msgspec.json.encode({**msgspec.to_builtins(report), "problems": report.problems}).decode())
    else:
        print("\n".join(table(report, files=given.files)))
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 1 if report.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
