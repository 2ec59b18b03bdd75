"""Measures the viewer on a large record: the list, each filter, a run of 10,000 entries, memory, and the browser.

    python -m benchmarks.viewer [--entries 1000000] [--record FILE] [--corpus PATH] [--postgres] [--json]

The record is made from the imported corpus once, in a folder for temporary files, and kept there for the next time.
`gesta view` runs in a process of its own. The browser is the Chromium of the system, controlled by Playwright. The exit
code is 1 if a target is missed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct, to_builtins

from benchmarks._corpus_folder import add_corpus, corpus_at
from benchmarks._large_record import make
from benchmarks._scrolling import scrolled

TRIES = 5
FILTERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("the first page", {}),
    ("agent", {"agent": "desk"}),
    ("outcome: waiting", {"stands": "waiting"}),
    ("outcome: failed", {"stands": "failed"}),
    ("running", {"stands": "running"}),
    ("tool", {"tool": "get_order_details"}),
    ("errors", {"errors": "1"}),
    ("cost", {"cost": "0.01"}),
    ("date", {"since": "2026-10-01", "until": "2026-11-01"}),
    ("sorted by cost", {"sort": "cost"}),
    ("sorted by tokens", {"sort": "tokens"}),
    ("sorted by duration", {"sort": "duration"}),
    ("sorted by entries", {"sort": "entries"}),
    ("page 400", {"after": "20000"}),
)


class Measured(Struct, frozen=True):
    """One figure and its target."""

    what: str
    value: float
    unit: str
    target: float | None = None
    cpu_s: float | None = None
    """CPU seconds of the server. Other programs on the machine change them less than the wall time."""

    def line(self) -> str:
        missed = self.target is not None and self.value > self.target
        bound = f"{'MISSED' if missed else ''} target {self.target:g}" if self.target is not None else ""
        cpu = f"{self.cpu_s:.3f} s CPU" if self.cpu_s is not None else ""
        return f"{self.what:<58} {self.value:>10,.3f} {self.unit:<3} {cpu:<14} {bound}"


class Report:
    """The figures, printed as they are measured."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.figures: list[Measured] = []
        self.process = 0
        """Process id of the server."""

    def add(self, what: str, value: float, unit: str = "s", target: float | None = None) -> None:
        """Store a figure, and print it."""
        self._add(Measured(what, value, unit, target))

    def time(self, what: str, work: Callable[[], Any], target: float | None = None, tries: int = TRIES) -> None:
        """Time a function a few times, and store the median, and the server's CPU seconds for one call."""
        took, cpu = [], cpu_s(self.process)
        for _ in range(tries):
            began = time.perf_counter()
            work()
            took.append(time.perf_counter() - began)
        spent = (cpu_s(self.process) - cpu) / tries
        self._add(Measured(what, sorted(took)[tries // 2], "s", target, spent))

    def _add(self, figure: Measured) -> None:
        self.figures.append(figure)
        if not self.quiet:
            print(figure.line(), flush=True)


@contextmanager
def viewed(record: str) -> Iterator[tuple[int, str]]:
    """Run `gesta view` on a record, and yield its process id and its address with the token."""
    words = [sys.executable, "-m", "gesta", "view", record, "--no-open", "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def peak_mb(process: int) -> float:
    """Return the greatest memory use of a process so far, in MB. Only on Linux."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def cpu_s(process: int) -> float:
    """Return the CPU seconds that a process has used so far. Only on Linux."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asked(client: httpx2.Client, report: Report) -> str:
    """Time the answers of the server, and return the id of the long run."""

    def listed(facts: dict[str, str]) -> dict[str, Any]:
        answer = client.get("/api/0/sessions", params={**facts, "limit": "50"})
        answer.raise_for_status()
        return dict(answer.json())

    def whole(facts: dict[str, str]) -> None:
        while listed(facts)["read"] < 1:
            pass

    report.time("list of a viewer that was just started", lambda: listed({}), 0.5, tries=1)
    report.time("until all of it was read, once for each start", lambda: whole({}), tries=1)
    for name, facts in FILTERS:
        report.time(f"list: {name}", lambda facts=facts: listed(facts), target=0.5)
    report.time("list: words, the first time: the index is made", lambda: whole({"words": "refund"}), tries=1)
    for words in ("refund", "the", "xylophone", '"order details"'):
        report.time(f"list: words {words}", lambda words=words: listed({"words": words}), target=0.5)
    longest = listed({"sort": "entries"})["sessions"]
    run = next(str(each["runs"][0]) for each in longest if each["name"] in ("long/talk", "long/10000"))
    report.time("a run of 10,000 entries, the first time", lambda: client.get(f"/api/0/runs/{run}"), 0.3, tries=1)
    report.time("a run of 10,000 entries at a glance", lambda: client.get(f"/api/0/runs/{run}"), target=0.3)
    report.time("200 of its lines", lambda: client.get(f"/api/0/runs/{run}/lines?after=5000&limit=200"), target=0.3)
    report.time("a last answer of it, explained", lambda: client.get(f"/api/0/runs/{run}/why"))
    report.time("what waits for a person", lambda: client.get("/api/0/waiting"), target=0.5)
    return run


def measure(record: str, report: Report, *, browser: bool) -> None:
    """Measure the viewer on one record."""
    with viewed(record) as (process, opened):
        address, _, token = opened.partition("/?token=")
        with httpx2.Client(base_url=address, follow_redirects=True, timeout=600) as client:
            client.get("/", params={"token": token}).raise_for_status()
            report.process = process
            run = asked(client, report)
        for what, value, unit, target in scrolled(address, token, run) if browser else ():
            report.add(f"in the browser: {what}", value, unit, target)
        report.add("memory of the server, at most", peak_mb(process), "MB", 150)


def main() -> int:
    """Make the record if necessary, and measure. Return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--record", help="a file that is made, or is there; or the address of a record in PostgreSQL")
    add_corpus(parser)
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of the tests' wheel")
    parser.add_argument("--server", action="store_true", help="without a browser")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    report, folder = Report(quiet=given.json), Path(tempfile.gettempdir(), "gesta-viewer")
    with ExitStack() as stack:
        if given.postgres:
            from tests.postgres import running

            record = stack.enter_context(running(shared_buffers="64MB")).address()
        else:
            folder.mkdir(exist_ok=True)
            record = given.record or str(folder / f"{given.entries}.gesta")
        if "://" in record or not Path(record).exists():
            if (corpus := corpus_at(given.corpus)) is None:
                return 0
            began = time.perf_counter()
            make(record, given.entries, corpus)
            report.add(f"made a record of {given.entries:,} entries", time.perf_counter() - began)
        measure(record, report, browser=not given.server)
    if given.json:
        print(json.dumps(to_builtins(report.figures), indent=1))
    return int(any(each.target is not None and each.value > each.target for each in report.figures))


if __name__ == "__main__":
    raise SystemExit(main())
