"""Measures a step on PostgreSQL: in one run alone, in 200 runs at once, and in four worker processes.

The floor writes the entries of the same run once more: into the tables of an empty record on the same server, in as
many transactions, over one connection of psycopg, and does nothing else. CPU time is that of the client. Run
`python -m benchmarks.server`; it needs the server from the tests' wheel. Compare the ratios, because machines differ.
"""

import json
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import anyio
from msgspec.structs import astuple
from tests.postgres import Server, running

import gesta
from benchmarks.reading import CLOSING, agent
from gesta.entry import Row
from gesta.stores.tables import ROW

STEPS, ROUNDS, RUNS = 20, 5, 200
WORKERS, TURNS = 4, 50
ADD = f"INSERT INTO entries(pos, {ROW}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"


class Times(list[tuple[float, float]]):
    """CPU and wall time of a step in microseconds, for some rounds."""

    def add(self, cpu_s: float, wall_s: float, steps: int) -> None:
        """Add a round of so many steps."""
        self.append((cpu_s / steps * 1e6, wall_s / steps * 1e6))

    @property
    def medians(self) -> list[float]:
        """The medians of CPU and wall time."""
        return [statistics.median(column) for column in zip(*self, strict=True)]


async def lone(record: gesta.Record, acting: gesta.Agent, times: Times) -> list[Row]:
    """Run one turn of `STEPS` steps, add its times, and return its rows."""
    cpu, wall = time.process_time(), time.perf_counter()
    outcome = await record.run(acting, "Where are my parcels?")
    times.add(time.process_time() - cpu, time.perf_counter() - wall, STEPS)
    assert outcome.reason == "answered", outcome
    return await record.store.read(outcome.run)


def floor(connection: Any, rows: list[Row], times: Times) -> None:
    """Write rows in as many transactions as they were committed in, and add the times."""
    ((first,),) = connection.execute("SELECT coalesce(max(pos), 0) FROM entries").fetchall()
    connection.commit()
    values = [(first + place, *astuple(row)[:-1]) for place, row in enumerate(rows, 1)]
    ends = [0, *(at for at, row in enumerate(rows, 1) if row.kind in CLOSING)]
    cpu, wall = time.process_time(), time.perf_counter()
    for begin, end in pairwise(ends):
        with connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(ADD, values[begin:end])
    times.add(time.process_time() - cpu, time.perf_counter() - wall, STEPS)


async def alone(server: Server, durability: Any) -> dict[str, float]:
    """Measure runs one after another, each with its floor."""
    import psycopg

    ours, floors, acting = Times(), Times(), agent(STEPS)
    empty = server.address()
    async with gesta.open(empty):
        pass
    options = f"-c search_path={empty.rpartition('=')[2]}"
    options += "" if durability == "synced" else " -c synchronous_commit=off"
    with psycopg.connect(host=str(server.folder), user="postgres", dbname="postgres", options=options) as connection:
        async with gesta.open(server.address(), durability=durability) as record:
            for warm in (True, *[False] * ROUNDS):
                rows = await lone(record, acting, Times() if warm else ours)
                floor(connection, rows, Times() if warm else floors)
    (cpu, wall), (low, low_wall) = ours.medians, floors.medians
    return {"us": cpu, "wall_us": wall, "floor_us": low, "floor_wall_us": low_wall}


async def at_once(server: Server, durability: Any, runs: int) -> dict[str, float]:
    """Run many turns at once, and return the CPU and wall microseconds of a step."""
    times, acting = Times(), agent(STEPS)
    async with gesta.open(server.address(), durability=durability) as record:
        await record.run(acting, "Where are my parcels?")
        cpu, wall = time.process_time(), time.perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(runs):
                group.start_soon(record.run, acting, "Where are my parcels?")
        times.add(time.process_time() - cpu, time.perf_counter() - wall, STEPS * runs)
    return {"us": times.medians[0], "wall_us": times.medians[1]}


async def work(address: str, first: int) -> list[float]:
    """Run turns in different sessions one after another, as one worker. Return the milliseconds of each."""
    took, acting = [], agent(2)
    async with gesta.open(address, durability="normal") as record:
        for number in range(TURNS):
            start = time.perf_counter()
            await record.run(acting, "Where are my parcels?", session=f"s{first + number}")
            took.append((time.perf_counter() - start) * 1000)
    return took


def workers(server: Server) -> dict[str, float]:
    """Run worker processes with 200 sessions. Return turns per second, and the median and 99th percentile of a turn."""
    address = server.address()
    anyio.run(work, address, 10 * RUNS)
    start = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.server", "work", address]
    begun = [
        subprocess.Popen([*command, str(number * TURNS)], stdout=subprocess.PIPE, text=True)
        for number in range(WORKERS)
    ]
    took = sorted(one for each in begun for one in json.loads(each.communicate()[0]))
    return {
        "turns_s": len(took) / (time.perf_counter() - start),
        "p50_ms": took[len(took) // 2],
        "p99_ms": took[len(took) * 99 // 100],
    }


def measured(runs: int = RUNS) -> dict[str, dict[str, float]]:
    """Measure everything on a server that really waits for its disk."""
    with running(fsync="on") as server:
        return {
            "synced": anyio.run(alone, server, "synced"),
            "normal": anyio.run(alone, server, "normal"),
            "at once, synced": anyio.run(at_once, server, "synced", runs),
            "at once, normal": anyio.run(at_once, server, "normal", runs),
            "workers": workers(server),
        }


def main() -> None:
    """Print the figures."""
    if sys.argv[1:2] == ["work"]:
        print(json.dumps(anyio.run(work, sys.argv[2], int(sys.argv[3]))))
        return
    for name, figures in measured().items():
        print(name, {key: round(value, 1) for key, value in figures.items()})


if __name__ == "__main__":
    main()
