"""Would every request of an imported run be accepted, in every formatter and dialect, wherever its process had died?

Run `python -m benchmarks.histories [FOLDER…] [--corpus PATH] [--every N] [--runs N] [--jobs N] [--json]`; a FOLDER may
be a file. A prefix of a run is what a process has written that died there. The formatter closes its open calls, and the
body of the next request is checked by `tests/validators`, which know nothing of this code. A body that was checked
before is not checked again. A prompt is closed where the source asked its model, so older entries are not formatted
again. At the end of each run, a fresh prompt must have the same blocks, and the prompt of a run in which a request
followed every single entry is checked, too.
"""
# ruff: noqa: SLF001 - only this file copies a prompt to go on without closing it

import argparse
import copy
import functools
import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec import Struct, field
from tests.laws.dialects import STRICT, Spoken

import gesta
from benchmarks._corpus_folder import add_corpus, corpus_at
from benchmarks.corpus import reason
from gesta import address
from gesta.entry import Entry
from gesta.errors import GestaError
from gesta.importers.file import import_file
from gesta.kinds import Kind, RequestHeaderContent, ToolResultContent
from gesta.message import Message
from gesta.model.request import Request, Unasked
from gesta.prompt import SHOWN, Formatter, Prompt

CHANGING = SHOWN | {Kind.Compaction}
"""Kinds of entries that can change the next request."""
ANEW = "formatted anew, its blocks are others"
PART = 32_000
"""Number of bytes of a compressed file that make one piece of work."""


class Flaw(Struct):
    """One class of violations, with one example."""

    formatter: str
    dialect: str
    rule: str
    file: str
    run: str
    seq: int
    """Seq of the last entry of the prefix."""
    violation: str
    """The sentence of the validator."""
    bodies: int = 1


class Report(Struct):
    """The result for some runs."""

    files: int = 0
    runs: int = 0
    entries: int = 0
    prefixes: int = 0
    """Number of prefixes that were checked. Each has a body for each formatter and dialect."""
    bodies: dict[str, int] = field(default_factory=dict)
    """Number of bodies that were checked, by `formatter dialect`."""
    refused: dict[str, int] = field(default_factory=dict)
    flaws: dict[str, Flaw] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Files that could not be imported."""
    cpu_s: float = 0

    @property
    def ok(self) -> bool:
        return not (self.flaws or self.problems)

    def add(self, other: "Report") -> None:
        for name in ("files", "runs", "entries", "prefixes", "cpu_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, others in ((self.bodies, other.bodies), (self.refused, other.refused)):
            for cell, count in others.items():
                mine[cell] = mine.get(cell, 0) + count
        for key, flaw in other.flaws.items():
            self.blame(key, flaw)
        self.problems += other.problems

    def blame(self, key: str, flaw: Flaw) -> None:
        known = self.flaws.setdefault(key, flaw)
        if known is not flaw:
            known.bodies += flaw.bodies


class Every(Unasked):
    """A model that encodes in all dialects at once. A block is the index of a message in `rows`."""

    def __init__(self, dialects: Sequence[Spoken]) -> None:
        self._dialects = dialects
        self._known: dict[tuple[bytes, ...], bytes] = {}
        self.rows: list[tuple[bytes, ...]] = []
        """For each message, its block in each dialect."""
        self.digests: list[bytes] = []

    def encode(self, message: Message) -> bytes:
        made = tuple(each.dialect.encode(message) for each in self._dialects)
        if made not in self._known:
            self._known[made] = b"%d" % len(self.rows)
            self.rows.append(made)
            self.digests.append(hashlib.blake2b(b"\0".join(made), digest_size=16).digest())
        return self._known[made]


class Walk:
    """One run in one formatter, to which entries are added one by one."""

    def __init__(self, formatter: Formatter[Any], dialects: Sequence[Spoken]) -> None:
        self._formatter, self._dialects = formatter, dialects
        self.model = Every(dialects)
        self._prompt = Prompt(formatter, self.model)
        self._open: set[int] = set()
        """Calls without a result."""
        self._envelopes: list[Any] = []
        self.take_header(RequestHeaderContent())

    def take_header(self, header: RequestHeaderContent) -> None:
        """Use the tools and instructions of another request header. Its model settings are ignored."""
        instructions = (header.meta or {}).get("instructions")
        meta = None if instructions is None else {"instructions": instructions}
        self._header = self._formatter.dress(RequestHeaderContent(tools=header.tools, output=header.output, meta=meta))
        self._envelopes = [each.dialect.envelope(self._header) for each in self._dialects]

    def add(self, entry: Entry) -> None:
        if isinstance(entry.content, RequestHeaderContent):
            self.take_header(entry.content)
        if entry.kind is Kind.ChatCompletion and not self._open:
            self._prompt.close()  # as before a request
        self._prompt.add(entry)
        if isinstance(entry.content, ToolResultContent):
            call = entry.content.call
            self._open.discard(call if call is not None else min(self._open, default=0))
        elif entry.kind is Kind.ToolCall:
            self._open.add(entry.seq)

    def blocks(self) -> list[bytes]:
        """Return the blocks of the request that would come next, without changing the state of the walk."""
        if not self._prompt._segment:
            return list(self._prompt.blocks)
        ended = copy.copy(self._prompt)
        ended._state, ended._segment = copy.deepcopy(ended._state), list(ended._segment)
        ended.blocks, ended.shown, ended._gaps = list(ended.blocks), list(ended.shown), dict(ended._gaps)
        ended.close()
        return ended.blocks

    def digest(self, blocks: Sequence[bytes]) -> bytes:
        """Return a digest that is different for different requests of one formatter."""
        heads = b"\0".join([self._formatter.name.encode(), *(envelope.head for envelope in self._envelopes)])
        return hashlib.blake2b(heads + b"".join(self.model.digests[int(block)] for block in blocks)).digest()

    def bodies(self, blocks: Sequence[bytes]) -> Iterator[tuple[Spoken, bytes]]:
        rows = [self.model.rows[int(block)] for block in blocks]
        for place, each in enumerate(self._dialects):
            own = [row[place] for row in rows]
            yield each, Request(header=self._header, envelope=self._envelopes[place], blocks=own).body()


class Judge:
    """Checks runs. A request that it has checked before is not checked again."""

    formatter = staticmethod(address.formatter)

    def __init__(
        self, dialects: Sequence[Spoken] = STRICT, formatters: Sequence[str] = address.FORMATTERS, every: int = 1
    ) -> None:
        self.report = Report()
        self._dialects, self._formatters, self._every = dialects, formatters, every
        self._known: set[bytes] = set()

    def take(self, entries: Sequence[Entry], file: str = "") -> None:
        """Check what would be sent after each entry of a run, and at its end."""
        places = [place for place, entry in enumerate(entries) if entry.kind in CHANGING]
        chosen = {*places[self._every - 1 :: self._every], *places[-1:]}
        self.report.runs += 1
        self.report.entries += len(entries)
        self.report.prefixes += len(chosen)
        for name in self._formatters:
            walk, where = Walk(self.formatter(name), self._dialects), partial(self._flaw, name, file)
            for place, entry in enumerate(entries):
                walk.add(entry)
                if place in chosen:
                    self._judge(name, walk, walk.blocks(), partial(where, entry))
            if places:
                self._judge_ends(name, walk, entries, partial(where, entries[places[-1]]))

    def _judge_ends(self, name: str, walk: Walk, entries: Sequence[Entry], flaw: Any) -> None:
        formatter = self.formatter(name)
        whole, split = Prompt(formatter, walk.model), Prompt(formatter, walk.model)
        for entry in entries:
            whole.add(entry)
            split.add(entry)
            split.close()
        whole.close()
        self._judge(name, walk, split.blocks, flaw)
        if whole.blocks != walk.blocks():
            self._blame(name, "all", ANEW, flaw)

    def _judge(self, name: str, walk: Walk, blocks: list[bytes], flaw: Any) -> None:
        digest = walk.digest(blocks)
        if not blocks or digest in self._known:
            return  # there is no message yet, or the request was checked before
        self._known.add(digest)
        for spoken, body in walk.bodies(blocks):
            cell = f"{name} {spoken.speaks}"
            self.report.bodies[cell] = self.report.bodies.get(cell, 0) + 1
            if found := spoken.judge(body):
                self.report.refused[cell] = self.report.refused.get(cell, 0) + 1
                for each in {rule_of(one): one for one in reversed(found)}.values():
                    self._blame(name, spoken.speaks, each, flaw)

    def _blame(self, name: str, dialect: str, violation: str, flaw: Any) -> None:
        rule = rule_of(violation)
        self.report.blame(f"{name} {dialect} {rule}", flaw(dialect=dialect, rule=rule, violation=violation))

    def _flaw(self, formatter: str, file: str, entry: Entry, **members: Any) -> Flaw:
        return Flaw(formatter=formatter, file=file, run=entry.run, seq=entry.seq, **members)


def rule_of(violation: str) -> str:
    """Return the class of a violation: the validator's sentence without names, values and numbers."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\d+", "…", violation.partition(": ")[2] or violation)[:160]


class Piece(Struct, frozen=True):
    """Some runs of one file: every `step`th run, beginning with number `first`."""

    path: Path
    name: str
    first: int
    step: int
    runs: int | None
    every: int


def judged(piece: Piece) -> Report:
    """Import a file, and check some of its runs."""
    began = time.process_time()
    judge = Judge(every=piece.every)
    try:
        runs = imported(piece.path)
    except GestaError as error:
        judge.report.problems.append(f"{piece.name}: {error}")
        runs = []
    for entries in runs[: piece.runs][piece.first :: piece.step]:
        judge.take(entries, piece.name)
    judge.report.files = int(piece.first == 0)
    judge.report.cpu_s = time.process_time() - began
    return judge.report


@functools.lru_cache(maxsize=1)
def imported(path: Path) -> list[list[Entry]]:
    """Import a file into a temporary record, and return the entries of its runs. Raises GestaError."""

    async def read() -> list[list[Entry]]:
        async with gesta.open(":memory:") as record:
            await import_file(record, path)
            return [await record.read(row.run) for row in await record.store.runs()]

    return anyio.run(read)


def pieces(root: Path, names: Sequence[str], every: int, runs: int | None) -> list[Piece]:
    """Return pieces of work for the files with runs, those of the largest file first."""
    found: dict[str, Path] = {}
    for name in names:
        paths = [root / name] if (root / name).is_file() else sorted((root / name).rglob("*"))
        found |= {path.relative_to(root).as_posix(): path for path in paths if path.is_file()}
    sizes = {name: path.stat().st_size for name, path in found.items() if reason(name) is None}
    made: list[Piece] = []
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        step = 1 if runs is not None else 1 + sizes[name] // PART
        made += [Piece(found[name], name, first, step, runs, every) for first in range(step)]
    return made


def campaign(work: Sequence[Piece], jobs: int = 1) -> Report:
    """Check all pieces in `jobs` processes, and return the sums."""
    total, shown, began = Report(), 0.0, time.monotonic()
    with ExitStack() as stack:
        if jobs > 1:
            pool = stack.enter_context(ProcessPoolExecutor(jobs))
            futures = [pool.submit(judged, piece) for piece in work]
            reports: Iterator[Report] = (future.result() for future in as_completed(futures))
        else:
            reports = map(judged, work)
        for done, report in enumerate(reports, 1):
            total.add(report)
            if (now := time.monotonic()) - shown > 5 or done == len(work):
                shown = now
                counts = f"{sum(total.bodies.values())} bodies, {sum(total.refused.values())} refused"
                print(f"{done} of {len(work)} pieces, {counts}, {now - began:.0f} s", file=sys.stderr, flush=True)
    return total


def table(report: Report) -> Iterator[str]:
    """Yield the lines of a report for people. Each cell is `refused / checked`."""
    speaks = [each.speaks for each in STRICT]
    yield "".join(word.rjust(22) for word in ("", *speaks, "all"))
    for name in (*address.FORMATTERS, "all"):
        names = address.FORMATTERS if name == "all" else [name]
        rows = [[f"{one} {each}" for one in names] for each in speaks]
        cells = [shown(report, row) for row in (*rows, [cell for row in rows for cell in row])]
        yield name.rjust(22) + "".join(cell.rjust(22) for cell in cells)
    yield ""
    yield f"{report.files} files, {report.runs} runs, {report.entries} entries, {report.prefixes} prefixes"
    for flaw in report.flaws.values():
        yield f"VIOLATION in {flaw.bodies} bodies: {flaw.formatter}, {flaw.dialect}: {flaw.violation}"
        yield f"    as in {flaw.file}, run {flaw.run}, up to entry {flaw.seq}"
    yield from (f"PROBLEM {problem}" for problem in report.problems)


def shown(report: Report, cells: Sequence[str]) -> str:
    return f"{sum(report.refused.get(cell, 0) for cell in cells)} / {sum(report.bodies.get(cell, 0) for cell in cells)}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.histories", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="folders or files of the corpus; by default all")
    add_corpus(parser)
    parser.add_argument("--every", type=int, default=1, help="each Nth prefix of a run, and always the last")
    parser.add_argument("--runs", type=int, help="at most so many runs of a file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    root = corpus_at(given.corpus)
    if root is None:
        return 0
    for name in given.folders or [""]:
        if not (root / name).exists():
            parser.error(f"there is no {root / name}")
    if min(given.every, given.jobs, 1 if given.runs is None else given.runs) < 1:
        parser.error("--every, --runs and --jobs are at least 1")
    began = time.monotonic()
    report = campaign(pieces(root, given.folders or [""], given.every, given.runs), given.jobs)
    print(msgspec.json.encode(report).decode() if given.json else "\n".join(table(report)))
    print(f"{time.monotonic() - began:.0f} s, of {report.cpu_s:.0f} s of CPU", file=sys.stderr)
    return 0 if report.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
