"""Runs case after case on several workers, first those that were tried least, until each was tried often enough.

A cell is a kind of fault at one place, on one store. A job is one case that a worker runs.
"""

import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct, field

from benchmarks.faults import lives
from benchmarks.faults.cases import FAULTS, WHERE, Case, Found
from benchmarks.faults.crowds import KINDS as CROWDS
from benchmarks.faults.server import Server

SMALL_BYTES = 16_000_000
NOWHERE = ""
TRIES = 12
"""A cell is given up after this many times as many tries as it has to be met."""
ELSEWHERE = {"threads", "contention"}
"""Kinds of crowd cases that need no database server, because they are about one file."""
CANNOT = {("restore", "before the intent")}
"""Pairs of fault and place that cannot occur: a run that has not begun is in no copy that could be restored."""
Cell = tuple[str, str, str]
"""Store, kind of fault, and place."""


class Job(Struct, frozen=True, kw_only=True):
    """One case that a worker is to run."""

    number: int
    store: str
    fault: str
    place: str


class Total(Struct, kw_only=True):
    """The sums over all cases."""

    cases: int = 0
    faults: int = 0
    """Number of faults, including exceptions that tools raised."""
    runs: int = 0
    cells: dict[str, int] = field(default_factory=dict)
    """Number of faults by `store/fault/place`."""
    effects: dict[str, int] = field(default_factory=dict)
    manners: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, job: Job, found: Found) -> None:
        """Add the result of a case."""
        self.cases += 1
        self.faults += found.strikes
        self.runs += found.runs
        for name, mine in (("effects", found.effects), ("manners", found.manners)):
            setattr(self, name, dict(Counter(getattr(self, name)) + Counter(mine)))
        for fault, place, times in found.cells:
            cell = f"{job.store}/{fault}/{place if fault not in CROWDS else NOWHERE}"
            self.cells[cell] = self.cells.get(cell, 0) + times
        if found.skipped:
            self.skipped[found.skipped] = self.skipped.get(found.skipped, 0) + 1
        where = f"{job.store}, {job.fault} at {job.place or 'once'}, case {job.number}"
        self.wrong += [f"{where}: {text}" for text in found.wrong]


class Plan:
    """Decides which case comes next."""

    def __init__(self, stores: Sequence[str], only: Sequence[str], seed: int, target: int, faults: int) -> None:
        self.lot = random.Random(seed)
        self.target, self.faults = target, faults
        self.number = seed * 100_000
        self.aimed: Counter[Cell] = Counter()
        self.cells: list[Cell] = []
        for store in stores:
            for fault in (*FAULTS[store], *CROWDS):
                crowd = fault in CROWDS
                if (only and fault not in only) or (fault in ELSEWHERE and store != "sqlite"):
                    continue
                if fault == "full disk" and not mounts():
                    continue
                places = (NOWHERE,) if crowd else WHERE
                self.cells += [(store, fault, place) for place in places if (fault, place) not in CANNOT]

    def next(self, total: Total) -> Job | None:
        """Return the next case; `None` if every cell was met often enough and there were enough faults."""
        open_ = [cell for cell in self.cells if self.needs(cell, total)]
        if not open_ and total.faults >= self.faults:
            return None
        first = [cell for cell in open_ if cell[2] == NOWHERE and not self.aimed[cell]]  # crowd cases are quick
        least = first or open_ or self.cells
        least = self.lot.sample(least, min(len(least), 12))
        cell = min(least, key=lambda each: total.cells.get("/".join(each), 0) + self.aimed[each])
        self.aimed[cell] += 1
        self.number += 1
        return Job(number=self.number, store=cell[0], fault=cell[1], place=cell[2])

    def needs(self, cell: Cell, total: Total) -> bool:
        """Return whether a cell has to be met more often, and has not been given up."""
        met = total.cells.get("/".join(cell), 0)
        return met < self.target and self.aimed[cell] < max(TRIES, self.target * TRIES / 3)


def mounts() -> bool:
    """Return whether this process may mount a small disk."""
    return sys.platform == "linux" and not os.geteuid()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """Mount a small disk, which is soon full, and yield its folder; `None` if it cannot be mounted."""
    folder.mkdir()
    options = f"size={SMALL_BYTES}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if not mounts() or subprocess.run(command, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def work(pipe: Connection, stores: Sequence[str], keep: Path | None) -> None:
    """Run the cases that arrive through a pipe, until it sends `None`. This is the body of a worker process."""
    with tempfile.TemporaryDirectory(prefix="gesta-faults-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o777)
        server = Server(folder / "server") if "postgres" in stores else None
        if server is not None:
            server.start()
        anyio.run(anyio.sleep, 0)
        with small_disk(folder / "small") as small, suppress(EOFError):
            try:
                while (job := pipe.recv()) is not None:
                    pipe.send((job, carried_out(job, folder, server, small, keep)))
            finally:
                if server is not None:
                    server.stop()


def carried_out(job: Job, folder: Path, server: Server | None, small: Path | None, keep: Path | None) -> Found:
    """Run one case and return what was found. A failure of the harness itself is reported as wrong, too."""
    place = folder / f"case-{job.number}"
    place.mkdir()
    lives.SAYS[:] = [place / "said.txt"]
    case = Case(
        job.number,
        job.fault,
        job.place or "before the intent",
        place,
        server if job.store == "postgres" else None,
        small,
    )
    try:
        found = case.run()
    except Exception as error:  # noqa: BLE001 - a failing case must not end the campaign
        found = Found(wrong=[f"the harness failed: {type(error).__name__}: {error}"])
    if found.wrong and keep is not None:
        subprocess.run(["cp", "-r", str(place), str(keep)], check=False)
    case.clean()
    return found


def campaign(
    plan: Plan, stores: Sequence[str], *, jobs: int, seconds: float, keep: Path | None, stop: Any = None
) -> Total:
    """Run cases until the plan is done or the time is over, and return the sums.

    Args:
        stop: called after each case; a true value ends the campaign.
    """
    total, began = Total(), time.monotonic()
    fork = multiprocessing.get_context("fork")
    pipes, workers = [], []
    for _ in range(jobs):
        mine, theirs = fork.Pipe()
        worker = fork.Process(target=work, args=(theirs, stores, keep))
        worker.start()
        theirs.close()
        pipes.append(mine)
        workers.append(worker)
    busy: set[Any] = set()
    for pipe in pipes:
        give(pipe, plan, total, busy)
    while busy:
        for pipe in wait(list(busy)):
            assert isinstance(pipe, Connection)
            job, found = pipe.recv()
            busy.discard(pipe)
            total.add(job, found)
            total.seconds = time.monotonic() - began
            progress(total)
            if total.seconds < seconds and not (stop is not None and stop(total)):
                give(pipe, plan, total, busy)
    for pipe in pipes:
        pipe.send(None)
    for worker in workers:
        worker.join()
    return total


def give(pipe: Any, plan: Plan, total: Total, busy: set[Any]) -> None:
    """Send the next case to a worker, if there is one."""
    job = plan.next(total)
    if job is not None:
        pipe.send(job)
        busy.add(pipe)


def progress(total: Total) -> None:
    """Print the sums so far on standard error."""
    if sys.stderr.isatty() or not total.cases % 50:
        words = f"{total.cases} cases, {total.faults} faults, {len(total.wrong)} wrong, {total.seconds:.0f} s"
        print(words, file=sys.stderr, flush=True)
