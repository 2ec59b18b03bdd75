"""One case: a record, a few processes with faults, a last process without faults, and a judgement of the result.

A strike is one fault that is caused at a planned place in a process.
"""

import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from benchmarks.faults import judging
from benchmarks.faults.agents import Scene
from benchmarks.faults.copies import Copying
from benchmarks.faults.crowds import KINDS as CROWDS
from benchmarks.faults.crowds import Crowd
from benchmarks.faults.driving import witness_of
from benchmarks.faults.lives import Life, begin, done, kill_note
from benchmarks.faults.server import Server
from benchmarks.faults.striking import Strike
from benchmarks.faults.witness import Line

WHERE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "before the intent": (("before a lease", "after a lease", "before a commit"), ("",)),
    "model call": (("in a model call",), ("desk", "scout", "clerk")),
    "call without attempt": (("before a commit", "in a tool"), ("attempt", "sign", "seal")),
    "transactional": (("in a transaction", "before a transaction"), ("",)),
    "attempt pure": (("in a tool", "after an effect"), ("look", "glance")),
    "attempt idempotent": (("in a tool", "after an effect"), ("store", "put", "creep")),
    "attempt once": (
        ("in a tool", "after an effect"),
        ("pay", "wire", "post", "mail", "cable", "wrap", "slow", "spawn"),
    ),
    "child run": (("in a model call",), ("scout", "clerk")),
    "approval": (("waiting for approval",), ("",)),
    "question": (("waiting for question",), ("",)),
    "doubt": (("waiting for doubt",), ("",)),
    "sleep": (("waiting for timer",), ("",)),
    "result": (("before a commit", "after a commit", "before a release"), ("",)),
    "between turns": (("at the end",), ("",)),
}
"""For each place in a run, the points in the code at which a strike meets a run there, and the tools or agents."""
WANTS = {"approval": "sign", "question": "ask_person", "doubt": "wrap", "child run": "clerk", "transactional": "book"}
LIVING = ("cancel", "write", "full disk", "foreign write", "terminate", "restart")
"""Kinds of faults after which the same process continues."""
COPYING = ("prune", "restore", "push", "move", "fork")
"""Operations on the record between two processes."""
FAULTS = {
    "sqlite": (
        "kill",
        "second kill",
        "cancel",
        "write",
        "full disk",
        "foreign write",
        "stop",
        "files",
        "version",
        *COPYING,
    ),
    "postgres": (
        "kill",
        "second kill",
        "cancel",
        "write",
        "terminate",
        "restart",
        "stop",
        "version",
        "prune",
        "push",
        "move",
        "fork",
    ),
}


class Found(Struct, kw_only=True):
    """The result of a case."""

    wrong: list[str] = field(default_factory=list)
    cells: list[tuple[str, str, int]] = field(default_factory=list)
    """Kind of fault, place, and how often that fault met a run there."""
    strikes: int = 0
    effects: dict[str, int] = field(default_factory=dict)
    """Number of effects by the tool's effect policy."""
    manners: dict[str, int] = field(default_factory=dict)
    """Number of attempts and requests that failed, by the name in the log."""
    runs: int = 0
    skipped: str = ""
    """The reason why the case could not be tried; empty if it was."""


class Case:
    """One case with its record, in a folder of its own."""

    def __init__(
        self, seed: int, fault: str, place: str, folder: Path, server: Server | None, small: Path | None
    ) -> None:
        place = place if fault not in CROWDS else "before the intent"
        self.lot = random.Random(f"{seed} {fault} {place}")
        self.fault, self.place, self.folder, self.server, self.small = fault, place, folder, server, small
        self.schema = f"f{os.getpid()}_{seed}"
        record = str(folder / "record.gesta")
        if fault == "full disk" and small is not None:
            record = str(small / f"{seed}.gesta")
        if server is not None:
            record = server.address(self.schema)
        self.scene = Scene(
            seed=seed,
            record=record,
            witness=str(folder / "witness.jsonl"),
            sessions=self.lot.choice((1, 2, 3)) if fault in COPYING else self.lot.choice((1, 1, 2, 3)),
            wants=WANTS.get(place, "") or self._tool_of(place),
            backend=self._backend(),
            stream=self.lot.random() < 0.25,
            programs=place == "sleep" or self.lot.random() < 0.2,
            durability=self.lot.choice(("normal", "normal", "synced")),
            manner={"doubt": "late", "transactional": "plain"}.get(place, ""),
            busy_s={"foreign write": self.lot.choice((0.1, 1.0)), "stop": 0.3}.get(fault, 3.0),
            rest_s=(2.5 if fault == "second kill" else 1.05) if place == "sleep" else 0.02,
        )
        self.scene = msgspec.structs.replace(self.scene, lossy=fault == "restart" and self.scene.durability == "normal")
        self.records = [record]
        """Addresses of the records that are judged."""
        self.beside: list[Life] = []
        """Processes that run for a while beside those with faults."""
        self.wrong: list[str] = []
        self.skipped = ""
        self.lost = self.scene.lossy
        """Whether answered turns may be missing: the record was pruned or restored, or a server crashed."""

    def run(self) -> Found:
        """Run the case, and return what was found."""
        if self.fault in LIVING:
            self._living()
        elif self.fault in COPYING:
            Copying(self).run()
        elif self.fault in CROWDS:
            Crowd(self).run()
        else:
            {"kill": self._kill, "second kill": self._kill, "stop": self._stop, "files": self._files}.get(
                self.fault, self._version
            )()
        return self.judged()

    def _backend(self) -> str:
        with suppress(ImportError):
            import trio  # noqa: F401

            if self.server is None and self.lot.random() < 0.2:
                return "trio"
        return "asyncio"

    def _tool_of(self, place: str) -> str:
        tools = [each for each in WHERE[place][1] if each and each not in ("desk", "attempt")]
        return self.lot.choice(tools) if tools else ""

    def at_place(self, fault: str, **others: Any) -> Strike:
        """Return a strike at the place of this case."""
        names, tools = WHERE[self.place]
        place, tool = self.lot.choice(names), self.lot.choice(tools)
        if (place.startswith(("before a ", "after a ")) and tool != "attempt") or place.startswith("waiting"):
            tool = ""
        elif place in ("in a tool", "after an effect") and self.place != "call without attempt":
            tool = self.scene.wants or tool
        elif place == "in a tool":
            tool = ""
        if self.place == "child run":
            tool = self.lot.choice(tools)
        first = tool != "" or place.startswith(("waiting", "at the end")) or self.fault in COPYING
        count = 1 if first else self.lot.choice((1, 1, 2, 3))
        count = self.lot.randint(1, 40) if self.place == "result" else count
        return Strike(fault=fault, place=place, tool=tool, count=count, **others)

    def anywhere(self, fault: str, most: int = 25, **others: Any) -> Strike:
        """Return a strike at a random place."""
        return Strike(fault=fault, count=self.lot.randint(1, most), **others)

    # kinds of faults

    def _kill(self) -> None:
        if self.lot.random() < 0.1:
            life = begin(self.scene)
            if life.follow(kill_after_s=self.lot.uniform(0.01, 0.25)) < 0:
                kill_note(self.scene, "kill")
        else:
            begin(self.scene, [self.at_place("kill")]).follow()
        again = self.lot.choice((1, 2)) if self.fault == "second kill" else 0
        for _ in range(again):
            begin(self.scene, [self.at_place("second kill")]).follow()
        for _ in range(self.lot.choice((0, 0, 1, 3))):
            begin(self.scene, [self.anywhere("second kill", 9)]).follow()
        self.final()

    def _living(self) -> None:
        more = self.lot.choice((0, 1, 1, 3))
        options: dict[str, Any] = {}
        if self.fault == "cancel":
            options["times"] = self.lot.choice((1, 1, 2, 5, 20))
        if self.fault == "write":
            options["after"] = self.lot.random() < 0.4
        strikes = [self.at_place(self.fault, **options)]
        strikes += [self.anywhere(self.fault, 40, **options) for _ in range(more)]
        strikes += [self.at_place(self.fault, **options)]
        actions: dict[str, Callable[[], None]] = {
            "full disk": self._fill,
            "foreign write": self._block,
            "terminate": lambda: self.server.terminate() if self.server else None,
            "restart": lambda: self.server.restart() if self.server else None,
        }
        self.ended(begin(self.scene, strikes).follow(actions.get(self.fault)))
        for life in self.beside:
            life.wait()
        self.final()

    def _fill(self) -> None:
        """Fill the small disk, and make room again after a moment."""
        if self.small is None:
            return
        path = self.small / "fill"
        with suppress(OSError), path.open("ab", buffering=0) as file:
            for size in (65536, 4096, 512):
                with suppress(OSError):
                    while file.write(b"x" * size) == size:
                        pass
        threading.Timer(self.lot.uniform(0.02, 0.2), lambda: path.unlink(missing_ok=True)).start()

    def _block(self) -> None:
        """Hold the write lock of the record in another program for a while."""
        wait_s, (ready, told) = self.lot.uniform(0.05, 0.4), os.pipe()

        def write() -> None:
            # The struck process waits for this one, so a strike within its transaction ends without the lock.
            file = sqlite3.connect(self.scene.record, isolation_level=None, timeout=1)
            with suppress(sqlite3.OperationalError):
                file.execute("BEGIN IMMEDIATE")
            os.write(told, b".")
            time.sleep(wait_s)

        self.beside.append(Life(lambda _: write()))
        os.close(told)
        os.read(ready, 1)
        os.close(ready)

    def _stop(self) -> None:
        first = begin(self.scene, [self.at_place("stop") for _ in range(self.lot.choice((1, 2)))])
        while first.stopped():
            if self.server is not None:
                self.server.terminate()
            begin(self.scene, brief_s=0.3 if self.server is None else 1.0).follow()
            first.wake()
        self.ended(first.wait())
        self.final()

    def _files(self) -> None:
        """Move the files beside the record away while it is written, and let another process open it.

        The first process continues and closes the record, or it is killed. In that case the log file is put back
        afterwards.
        """
        others: list[Life] = []
        path, taken = Path(self.scene.record), self.folder / "taken"
        log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
        taken.mkdir()
        dies = self.lot.random() < 0.3
        both = not dies and self.lot.random() < 0.3

        def take_away() -> None:
            for each in (log, index)[: 1 + both]:
                if each.exists():
                    each.rename(taken / each.name)
            others.append(begin(self.scene, brief_s=0.5))
            if dies:
                os.kill(first.process, signal.SIGKILL)

        first = begin(self.scene, [self.at_place("files")], brief_s=4.0)
        code = first.follow(take_away)
        if not dies or not others:
            self.ended(code)
        for life in others:
            life.follow()  # it is refused with an error
        if dies and (taken / log.name).exists():
            begin(self.scene, brief_s=0.5).follow()
            if index.exists():  # otherwise the log was already merged into the file
                (taken / log.name).rename(log)
        self.final()

    def _version(self) -> None:
        other = begin(self.scene, brief_s=8.0, version=2) if self.lot.random() < 0.5 else None
        for _ in range(self.lot.choice((1, 2))):
            begin(self.scene, [self.at_place("kill")], brief_s=8.0).follow()
            kill_note(self.scene, "version", self.place)
        if other is not None:
            self.ended(other.follow())
        self.final(version=2)

    # the end

    def ended(self, code: int) -> None:
        """Note as wrong that a process ended with an exit code other than 0."""
        if code:
            self.wrong.append(f"a process ended with {code}")

    def final(self, scene: Scene | None = None, **options: Any) -> None:
        """Bring every run to its end in a new process without faults."""
        chosen = msgspec.structs.replace(scene or self.scene, backend="asyncio")
        self.ended(begin(chosen, final=True, **options).follow())

    def judged(self) -> Found:
        """Judge the records in a process of its own, and return what was found."""
        path = self.folder / "found.json"

        def work() -> None:
            path.write_bytes(msgspec.json.encode(judge(self)))

        if done(work):
            return Found(wrong=[*self.wrong, "the record could not be judged"])
        return msgspec.json.decode(path.read_bytes(), type=Found)

    def clean(self) -> None:
        """Remove the files and schemas of the case."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.server is not None:
            self.server.drop(self.schema)
            self.server.drop(f"{self.schema}_copy")
        if self.small is not None:
            for each in self.small.iterdir():
                each.unlink(missing_ok=True)


def judge(case: Case) -> Found:
    """Return which promises were broken, and where each strike met which run."""
    lines = witness_of(case.scene).lines()
    found = Found(wrong=list(case.wrong), skipped=case.skipped)
    counts: Counter[tuple[str, str]] = Counter()
    booked: Counter[int] = Counter()
    for address in case.records:
        runs, flaws = judging.read(address)
        found.wrong += flaws + judging.late_approvals(runs)
        found.wrong += judging.never_started(lines, runs) if case.fault == "starved threads" else []
        found.runs += len(runs)
        if address == case.records[0]:
            counts = judging.cells(lines, runs)
            found.wrong += [] if case.lost else missing(lines, runs)
        booked.update(judging.bookings(address))
        found.manners = dict(Counter(found.manners) + judging.manners(runs))
    found.wrong = list(dict.fromkeys([*found.wrong, *judging.wrongs(lines, dict(booked))]))
    found.strikes = sum(line.what == "strike" for line in lines)
    found.cells = [(fault, place, times) for (fault, place), times in sorted(counts.items())]
    found.effects = dict(Counter(line.effect for line in lines if line.what == "effect"))
    return found


def missing(lines: Sequence[Line], runs: judging.Runs) -> list[str]:
    """Return a sentence for each turn that was answered but is not on record."""
    return [
        f"the answered turn {line.key} of {line.run} is not on record"
        for line in lines
        if line.what == "answered" and line.key not in judging.answered(runs.get(line.run, ()))
    ]
