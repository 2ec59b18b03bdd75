"""Many processes write one file: do all of their runs end, and does none starve? `python -m benchmarks.contention`.

Each process runs an agent that pays four times (with a `once` tool), and all processes use one record. The table shows
the time, how the runs ended, how often the tool ran, and how far the slowest process was when half of the processes
were done: with N runs each, no process may have ended fewer than N / 2 runs by then.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gesta

PROGRAM = """
import sys, time
import anyio, gesta, gesta.stores.sqlite

address, number, runs, durability, opening = sys.argv[1], *map(str, sys.argv[2:])
fired = 0

@gesta.tool(effect="once")
def pay() -> str:
    "Pay."
    global fired
    fired += 1
    return "paid"

calls = [gesta.call("pay") for _ in range(4)]
agent = gesta.Agent("payer", model=gesta.scripted(*calls, "Done."), tools=[pay])

async def take(record, run):
    try:
        said = (await record.run(agent, "Pay.", session=f"{number}-{run}", key="k")).reason
    except gesta.GestaError as error:
        said = f"{type(error).__name__}: {error}".replace("\\n", " ")
    print(time.monotonic(), said, sep="\\t", flush=True)

async def main():
    if opening == "each":
        for run in range(int(runs)):
            async with gesta.open(address, durability=durability) as record:
                await take(record, run)
    else:
        async with gesta.open(address, durability=durability) as record:
            if opening == "once":
                for run in range(int(runs)):
                    await take(record, run)
            else:
                async with anyio.create_task_group() as tasks:
                    for run in range(int(runs)):
                        tasks.start_soon(take, record, run)

print("ready", flush=True)
sys.stdin.readline()
try:
    anyio.run(main)
except BaseException as error:
    print(time.monotonic(), f"{type(error).__name__}: {error}".replace("\\n", " "), sep="\\t", flush=True)
print(fired, flush=True)
"""


PAYS = 4  # payments in each run


def contend(folder: Path, processes: int, runs: int, durability: str, opening: str) -> dict[str, Any]:
    """Run processes that write one file in `folder`, and return the figures.

    Args:
        opening: `once`: each process opens the record once. `each`: it opens the record for each run. `together`: it
            opens
            the record once, and all of its runs run at the same time.
    """
    address = str(folder / "contended.gesta")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [Path(next(iter(gesta.__path__))).parent]))}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address, str(number), str(runs), durability, opening],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(processes)
    ]
    for one in started:
        assert one.stdout is not None
        assert one.stdin is not None
        assert one.stdout.readline() == "ready\n"
    began = time.monotonic()
    for one in started:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    told = [one.communicate()[0].splitlines() for one in started]
    lines = [[(float(at), said) for at, said in (line.split("\t", 1) for line in each[:-1])] for each in told]
    ends = sorted(max((at for at, _ in each), default=began) for each in lines)
    half = ends[(len(ends) - 1) // 2]
    said = [what for each in lines for _, what in each]
    return {
        "seconds": ends[-1] - began,
        "ended": said.count("answered"),
        "fired": sum(int(each[-1]) for each in told),
        "errors": sorted({what for what in said if what != "answered"}),
        "fewest": min(sum(at <= half for at, _ in each) for each in lines),
    }


def main() -> int:
    """Run the benchmark and print its figures. Return 1 if a run did not end or a process starved, otherwise 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--runs", type=int, default=50)
    given = parser.parse_args()
    print(
        f"{given.processes} processes, {given.runs} runs each; the record is opened once, for each run, or once for "
        "all of them together"
    )
    print("| durability | opened | seconds | runs ended | fired | fewest when half had ended | errors |")
    print("|---|---|---|---|---|---|---|")
    good, wanted = True, given.processes * given.runs
    for durability in ("normal", "synced"):
        for opening in ("once", "each", "together"):
            with tempfile.TemporaryDirectory() as folder:
                found = contend(Path(folder), given.processes, given.runs, durability, opening)
            fair = opening == "together" or found["fewest"] >= given.runs / 2
            whole = (found["ended"], found["fired"]) == (wanted, PAYS * wanted)
            good = good and fair and whole
            fewest = "" if opening == "together" else f"{found['fewest']} of {given.runs}"
            errors = "; ".join(found["errors"]) or "none"
            ended = f"{found['ended']} of {wanted}"
            print(
                f"| {durability} | {opening} | {found['seconds']:.1f} | {ended} | {found['fired']} "
                f"| {fewest} | {errors} |"
            )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
