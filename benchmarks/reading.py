"""Measures the cost of a step with a model that reads its messages, compared with writing the same rows directly.

The floor writes the entries of the same turn once more: into the tables of an empty record, in as many transactions,
and does nothing else. Run `python -m benchmarks.reading [N ...]`. Compare the ratios, because machines differ.
"""

import math
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import apsw

import gesta
from gesta.entry import Row
from gesta.stores.sqlite_works import COLUMNS
from gesta.stores.tables import ADD_ROW

RUNS = 5
TEXT = "On its way. " * 25
CLOSING = frozenset({"request", "attempt", "end"})
"""Kinds of entries with which a commit ends."""


@gesta.tool(effect="pure")
async def parcel(number: int) -> str:
    """Where a parcel is."""
    return f"{number}: {TEXT}"


def agent(steps: int) -> gesta.Agent:
    """Return an agent whose model counts its earlier calls in its messages, makes `steps` calls, and answers."""

    def choose(messages: list[Any], _header: Any) -> Any:
        done = (len(messages) - 1) // 2
        calls = [gesta.call("parcel", number=done)]
        return gesta.reply(text="Let me look.", calls=calls) if done < steps else "Done."

    unlimited = gesta.Policy(limits=gesta.Limits(requests=None, calls=None))
    return gesta.Agent("desk", model=gesta.function(choose), tools=[parcel], policy=unlimited)


async def turn(address: str, steps: int, durability: Any) -> tuple[float, list[Row]]:
    """Run one turn after a short one. Return its CPU seconds and its rows."""
    async with gesta.open(address, durability=durability) as record:
        await record.run(agent(2), "Where are they?", session="warm")
        start = time.process_time()
        outcome = await record.run(agent(steps), "Where are my parcels?", session="s")
        spent = time.process_time() - start
        assert outcome.reason == "answered", outcome
        return spent, await record.store.read(outcome.run)


async def floor(path: Path, rows: list[Row], durability: Any) -> float:
    """Write rows into the tables of an empty record, in as many transactions. Return the CPU seconds."""
    async with gesta.open(f"{path}"):
        pass
    db = apsw.Connection(f"{path}")
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "full" if durability == "synced" else "normal")
    ends = [0, *(at for at, row in enumerate(rows, 1) if row.kind in CLOSING)]
    start = time.process_time()
    for begin, end in pairwise(ends):
        db.execute("BEGIN IMMEDIATE")
        db.executemany(ADD_ROW, map(COLUMNS, rows[begin:end]))
        db.execute("COMMIT")
    spent = time.process_time() - start
    db.close()
    return spent


async def measured(steps: int, durability: str) -> tuple[float, float]:
    """Return the CPU microseconds of a step, and those of the floor, as medians of some rounds."""
    found = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            address = ":memory:" if durability == "memory" else f"{folder}/r.gesta"
            how = "synced" if durability == "synced" else "normal"
            spent, rows = await turn(address, steps, how)
            found.append((spent / steps * 1e6, await floor(Path(folder) / "floor.gesta", rows, how) / steps * 1e6))
    return statistics.median(one for one, _ in found), statistics.median(low for _, low in found)


def main() -> None:
    """Print the table."""
    sizes = [int(word) for word in sys.argv[1:]] or [10, 100, 300, 1000]
    print("durability  steps  CPU us/step  floor us/step  ratio")
    for durability in ("normal", "synced", "memory"):
        took = []
        for steps in sizes:
            spent, low = anyio.run(measured, steps, durability)
            took.append(spent * steps)
            print(f"{durability:10}  {steps:5}  {spent:11.0f}  {low:13.0f}  {spent / low:5.1f}", flush=True)
        if len(sizes) > 1:
            exponent = math.log(took[-1] / took[0]) / math.log(sizes[-1] / sizes[0])
            print(f"{durability:10}  exponent of the time of a turn in its steps: {exponent:.2f}", flush=True)


if __name__ == "__main__":
    main()
