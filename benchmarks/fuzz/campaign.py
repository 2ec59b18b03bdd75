"""Runs readers on many inputs, in worker processes whose time and memory are limited.

An input follows only from the seed, the reader's name and the input's number, so each can be made again. A worker that
hangs or dies is replaced, and the new one continues after the input that caused it.
"""

import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct, field

from benchmarks.fuzz.commands import Wrong, where
from gesta.errors import GestaError

LONGEST_S = 10.0
"""Greatest time in seconds for one input."""
MOST_BYTES = 200_000_000
"""Number of bytes by which a process may grow while it reads one input."""
SLACK = 2
"""A process is refused memory above this many times `MOST_BYTES`."""
PIECE = 100
"""Greatest number of inputs that a worker gets at once."""
FRESH = 5_000
"""Number of inputs after which a worker is replaced, so that memory left by many inputs does not count for one."""


class Reader(Struct, frozen=True):
    """One way in which Gesta reads data that others made."""

    name: str
    about: str
    share: int
    """Its share of all inputs in percent."""
    samples: Callable[[Path], Any]
    """Makes the material for inputs in a folder, once for each worker."""
    read: Callable[[Random, Any], str]
    """Makes an input, reads it, and returns the outcome in a few words."""
    allowed: tuple[type[BaseException], ...] = ()
    """Errors of Python itself that the documentation names for this reader."""


class Job(Struct, frozen=True):
    """A range of inputs of one reader, from `first` to before `end`."""

    reader: str
    first: int
    end: int


class Failure(Struct, frozen=True):
    """An input for which a reader did something that it must not do."""

    reader: str
    case: int
    what: str

    def again(self, seed: int) -> str:
        """Return the command that reads this input again."""
        return f"python -m benchmarks.fuzz --only {self.reader} --seed {seed} --case {self.case}"


class Total(Struct, kw_only=True):
    """The sums over all inputs."""

    seed: int
    inputs: dict[str, int] = field(default_factory=dict)
    """Number of inputs by reader."""
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    slowest_s: dict[str, float] = field(default_factory=dict)
    largest_bytes: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, found: "Found") -> None:
        """Add the result of a worker."""
        name = found.reader
        self.inputs[name] = self.inputs.get(name, 0) + found.inputs
        self.outcomes[name] = dict(Counter(self.outcomes.get(name, {})) + Counter(found.outcomes))
        self.slowest_s[name] = max(self.slowest_s.get(name, 0.0), found.slowest_s)
        self.largest_bytes[name] = max(self.largest_bytes.get(name, 0), found.largest_bytes)
        self.failures += found.failures


class Found(Struct, kw_only=True):
    """The result of a job, or of the part of it that was done."""

    reader: str
    inputs: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    slowest_s: float = 0.0
    largest_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)


def lot_of(seed: int, reader: str, case: int) -> Random:
    """Return the random generator by which an input is made."""
    return Random(f"{seed}/{reader}/{case}")


def judged(reader: Reader, samples: Any, seed: int, case: int) -> tuple[str, str]:
    """Read one input. Return the outcome, and what is wrong with it; empty if nothing is."""
    try:
        return reader.read(lot_of(seed, reader.name, case), samples), ""
    except Wrong as wrong:
        return "wrong", str(wrong)
    except (GestaError, *reader.allowed) as error:  # type: ignore[misc]
        return type(error).__name__, ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - any exception is a failure to report
        return "wrong", f"{where(error)}\n{''.join(traceback.format_exception(error, limit=-3))[-1500:]}"


def one(reader: Reader, samples: Any, seed: int, case: int, found: Found) -> None:
    """Read one input within its limits, and count it."""
    faulthandler.dump_traceback_later(LONGEST_S, exit=True, file=2)
    before, began = peak(anew=True), time.perf_counter()
    outcome, wrong = judged(reader, samples, seed, case)
    took_s, grown = time.perf_counter() - began, peak() - before
    faulthandler.cancel_dump_traceback_later()
    if not wrong and grown > MOST_BYTES:
        wrong = f"took {grown / 1e6:,.0f} MB"
    found.inputs += 1
    found.outcomes[outcome] = found.outcomes.get(outcome, 0) + 1
    found.slowest_s, found.largest_bytes = max(found.slowest_s, took_s), max(found.largest_bytes, grown)
    if wrong:
        found.failures.append(Failure(reader.name, case, wrong))


def peak(*, anew: bool = False) -> int:
    """Return the greatest memory use of this process in bytes.

    Args:
        anew: whether to start a new measurement. Systems without /proc measure from the start of the process.
    """
    try:
        if anew:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def work(pipe: Connection, readers: Sequence[Reader], seed: int) -> None:
    """Run the jobs that arrive through a pipe, and announce each input before reading it.

    This is the body of a worker.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    known = {reader.name: reader for reader in readers}
    made = dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="gesta-fuzz-", ignore_cleanup_errors=True) as name:
        os.chdir(name)
        while (job := pipe.recv()) is not None:
            reader = known[job.reader]
            if reader.name not in made:
                folder = Path(name) / reader.name
                folder.mkdir()
                made[reader.name] = reader.samples(folder)
                bounded()
            found = Found(reader=reader.name)
            for case in range(job.first, job.end):
                pipe.send(case)
                one(reader, made[reader.name], seed, case, found)
            pipe.send(found)


def bounded() -> None:
    """Limit the memory of this process to a few times what one input may take."""
    status = Path("/proc/self/status")
    if status.exists():
        size = int(status.read_text(encoding="ascii").partition("VmData:")[2].split()[0]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (size + SLACK * MOST_BYTES, resource.RLIM_INFINITY))


class Worker:
    """A worker process and its present job."""

    def __init__(self, readers: Sequence[Reader], seed: int) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self.process = multiprocessing.get_context("fork").Process(
            target=_begun, args=(theirs, self.pipe, readers, seed, self.errors.fileno()), daemon=True
        )
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.case = 0
        self.done = 0

    def give(self, job: Job) -> None:
        """Send the process a job."""
        self.job, self.case = job, job.first
        self.pipe.send(job)

    def take(self) -> Found | None:
        """Return the result of the job; `None` if the process only announced an input.

        Raises EOFError if the process died.
        """
        said = self.pipe.recv()
        if isinstance(said, Found):
            self.job = None
            self.done += said.inputs
            return said
        self.case = said
        return None

    def last_words(self) -> str:
        """Return what the process wrote to standard error before it died."""
        self.process.join(5)
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace")[:3000]

    def end(self) -> None:
        """Kill the process, and close its pipe."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        self.errors.close()


def _begun(pipe: Connection, other: Connection, readers: Sequence[Reader], seed: int, errors: int) -> None:
    other.close()
    os.dup2(errors, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.nice(10)
    work(pipe, readers, seed)


def jobs_of(readers: Sequence[Reader], inputs: int) -> list[Job]:
    """Return the jobs that share a number of inputs among readers."""
    whole = sum(reader.share for reader in readers)
    found = []
    piece = max(1, min(PIECE, inputs // (len(readers) * 10)))
    for reader in readers:
        count = max(1, round(inputs * reader.share / whole))
        found += [Job(reader.name, first, min(first + piece, count)) for first in range(0, count, piece)]
    return sorted(found, key=lambda job: job.first)


def campaign(readers: Sequence[Reader], seed: int, inputs: int, *, jobs: int, seconds: float | None = None) -> Total:
    """Read `inputs` inputs, and return the sums. After `seconds` no further job is started."""
    total, waiting, began = Total(seed=seed), jobs_of(readers, inputs), time.monotonic()
    workers: list[Worker] = []
    try:
        while waiting or any(worker.job is not None for worker in workers):
            if seconds is not None and time.monotonic() - began > seconds:
                waiting[:] = [job for job in waiting if job.first == 0]  # each reader gets at least one job
            for worker in [each for each in workers if each.job is None and each.done >= FRESH]:
                workers.remove(worker)
                worker.end()
            while waiting and len(workers) < jobs:
                workers.append(Worker(readers, seed))
            for worker in workers:
                if worker.job is None and waiting:
                    worker.give(waiting.pop(0))
            _listen(workers, total, waiting)
    finally:
        for worker in workers:
            worker.end()
    total.seconds = time.monotonic() - began
    return total


def _listen(workers: list[Worker], total: Total, waiting: list[Job]) -> None:
    """Read the messages of the workers, and replace workers that died."""
    busy = {worker.pipe: worker for worker in workers if worker.job is not None}
    for pipe in wait(list(busy), timeout=1.0):
        worker = next(each for known, each in busy.items() if known is pipe)
        try:
            found = worker.take()
        except (EOFError, OSError):
            job, case = worker.job, worker.case
            assert job is not None
            words = worker.last_words()
            what = (
                f"took longer than {LONGEST_S:g} s"
                if "Timeout" in words
                else f"ended the process {worker.process.exitcode}"
            )
            total.add(Found(reader=job.reader, inputs=case + 1 - job.first, outcomes={"wrong": 1}))
            total.failures.append(Failure(job.reader, case, f"{what}\n{words}"))
            if case + 1 < job.end:
                waiting.insert(0, Job(job.reader, case + 1, job.end))
            workers.remove(worker)
            worker.end()
        else:
            if found is not None:
                total.add(found)
