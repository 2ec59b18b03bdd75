"""Kills the processes of random agents, at writes and at random instants, while other processes send messages to them.

Each agent has its own record, or a session of one PostgreSQL record. New processes continue its turn until the turn has
ended, or waits for a doubt (a call that may or may not have happened) that it names. The record is then compared with
a log of the harness, and with the world that the tools changed.

python -m benchmarks.crashes --agents 200 --kills 1000 [--record postgres://...] [--json] [--seed 1]
"""

import argparse
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
from tests.laws.random_agents import World, agent, send_letters

from gesta.testing.crashes.command import table
from gesta.testing.crashes.life import Scene, ended, fork, judged, lived, ready
from gesta.testing.crashes.report import Report

OUTSIDERS = 3
LIVES = 12  # greatest number of processes of one agent that are killed


def campaign(agents: int, kills: int, record: str | None = None, seed: int = 1) -> Report:
    """Run at least so many agents, with at least so many kills in all. The last process of each agent is not killed."""
    total = Report()
    with tempfile.TemporaryDirectory() as folder:
        ready(Path(folder))
    for number in count(seed):
        if total.agents >= agents and total.kills >= kills:
            return total
        with tempfile.TemporaryDirectory(prefix="gesta-crashes-") as folder:
            total.add(one(number, Path(folder), record, -(-kills // agents)))
        if sys.stderr.isatty() or not total.agents % 20:
            print(f"{total.agents} agents, {total.kills} kills, {len(total.wrong)} wrong", file=sys.stderr, flush=True)
    raise AssertionError


def one(seed: int, folder: Path, record: str | None, kills: int) -> Report:
    """Run one agent with about `kills` kills, and return what was found."""
    lot, session = random.Random(seed), f"crashes-{os.getpid()}-{seed}"
    scene = Scene(
        agent=partial(agent, seed, folder),
        messages=("Begin.",) if lot.random() < 0.7 else ("Begin.", "And go on."),
        record=record or str(folder / "record.gesta"),
        witness=folder / "witness.jsonl",
        session=session,
        helped=True,
    )
    outside = [fork(partial(send_letters, scene, number, seed)) for number in range(1, OUTSIDERS + 1)]
    try:
        killed, life, alive = 0, 0, False
        while not alive:
            life += 1
            if killed >= lot.randint(kills, 2 * kills) or life > LIVES:
                alive = not lived(scene, life)
            elif lot.random() < 0.25:
                alive = not lived(scene, life, within_s=lot.uniform(0.01, 0.15))
            else:
                alive = not lived(scene, life, lot.choice((lot.randint(3, 8), lot.randint(5, 30))))
            killed += not alive
    finally:
        for child in outside:
            os.kill(child, signal.SIGKILL)
            ended(child)
    found = judged(scene)
    found.agents = 1
    found.wrong += World(folder / "world.db").twice() + (twice_booked(folder / "record.gesta") if not record else [])
    found.wrong += [f"a turn ended so: {how}" for how in found.turns if not named(how)]
    found.wrong = [f"agent {seed}: {each}" for each in found.wrong]
    return found


def twice_booked(record: Path) -> list[str]:
    """Return a sentence for each booking that the transactional tool made twice in its table in the record's file."""
    booked = "SELECT count(*) FROM sqlite_schema WHERE name = 'bookings'"
    query = "SELECT key, count(*) FROM bookings GROUP BY key HAVING count(*) > 1"
    with closing(sqlite3.connect(record)) as file:
        twice = file.execute(query).fetchall() if file.execute(booked).fetchone()[0] else []
    return [f"{key:.12} was booked {times} times" for key, times in twice]


def named(how: str) -> bool:
    """Return whether a turn has ended, or waits for nothing but doubts that it names."""
    waits = how.removeprefix("waiting for ")
    return how == waits or all(each.startswith("doubt of ") for each in waits.split(", "))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crashes", description=__doc__.partition("\n")[0])
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--record", help="address of a PostgreSQL record; without one, a file for each agent")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    began = time.monotonic()
    found = campaign(given.agents, given.kills, given.record, given.seed)
    print(msgspec.json.encode(found).decode() if given.json else table(found))
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0 if found.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
