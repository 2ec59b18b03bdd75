"""Does every span of every run arrive once, whatever is killed or unreachable? `python -m benchmarks.tracing`.

One process takes turns with tools and child agents. Another one sends their spans to a receiver in this process, which
decodes them with `opentelemetry-proto` and is not reachable during the middle third of the runs. The exporter is killed
(kill -9) at random instants and started again. In the end the receiver must have every span of the record, by its id. A
span that came twice must have the same bytes both times, and the metrics must count each span once. `--full` has 100
runs, on both stores.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
from msgspec import Struct
from tests.otlp_receiver import Receiver, receiving
from tests.postgres import running

import gesta
from gesta.bridges.otlp.folding import Folding

PROGRAM = """
import sys
import anyio, gesta

address, runs = sys.argv[1], int(sys.argv[2])

@gesta.tool(effect="pure")
async def look(place: str) -> str:
    "Look."
    return f"{place}: dry"

usage = {"prompt_tokens": 40, "completion_tokens": 9}
below = gesta.Agent("eye", model=gesta.scripted(
    gesta.reply(calls=[gesta.call("look", place="Rome")], usage=usage), gesta.reply("Dry.", usage=usage)), tools=[look])
calls = [gesta.call("eye", task="Look."), gesta.call("look", place="Oslo")]
agent = gesta.Agent("desk", model=gesta.scripted(
    gesta.reply(calls=calls, usage=usage), gesta.reply("All dry.", usage=usage)), tools=[below.as_tool(), look])

async def main():
    async with gesta.open(address, durability="normal") as record:
        print("open", flush=True)
        for number in range(runs):
            sys.stdin.readline()
            await record.run(agent, "Is it dry?", session=f"s{number}")
            print(number, flush=True)

anyio.run(main)
"""
MAIN = "from gesta.cli import main; main()"
SPANS = 9
"""Number of spans of one run: two turns, four completions, three calls."""


class Size(Struct, frozen=True):
    """The number of runs, and how often the exporter is killed."""

    runs: int
    kills: int


SMALL, FULL = Size(12, 2), Size(100, 10)


class Result(Struct, frozen=True):
    """The result on one store."""

    store: str
    spans: int
    missing: int
    strange: int
    """Number of spans that the receiver has and the record has not."""
    again: int
    """Number of spans that came more than once."""
    unequal: int
    """Number of spans that came again with different bytes."""
    kills: int
    counted: int
    """Number of completions that the metrics count."""
    seconds: float


@contextmanager
def exporting(address: str, to: str, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `gesta trace` during the block, and kill it at the end."""
    words = ["-c", MAIN, "trace", address, "--to", to, "--place", str(place), "--content"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def play(address: str, size: Size, folder: Path, seed: int = 0) -> Result:
    """Send the spans of runs to the receiver through an outage and kills, and return the result."""
    dice, receiver, begun = random.Random(seed), Receiver(), time.monotonic()
    place, first, second = folder / "place.json", size.runs // 3, 2 * size.runs // 3
    kills = sorted(dice.sample(range(1, size.runs), size.kills))
    writer = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, address, str(size.runs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    with writer, ExitStack() as listens, ExitStack() as sends:
        writer.stdout.readline()  # the exporter reads a record that is there
        listens.enter_context(receiving(into=receiver))
        port = int(receiver.address.rpartition(":")[2])
        sends.enter_context(exporting(address, receiver.address, place))
        for number in range(size.runs):
            if number == first:
                receiver.wait(1)
                listens.close()
            if number == second:
                listens.enter_context(receiving(port, receiver))
            writer.stdin.write(b"\n")
            writer.stdin.flush()
            if number in kills:
                time.sleep(dice.random() * 0.2)
                sends.close()
                sends.enter_context(exporting(address, receiver.address, place))
            writer.stdout.readline()
        writer.stdin.close()
        assert writer.wait() == 0
        receiver.wait(size.runs * SPANS, timeout_s=90)
        sends.close()
        words = ["trace", address, "--to", receiver.address, "--place", str(place), "--once", "--content"]
        subprocess.run([sys.executable, "-c", MAIN, *words], check=True, stdout=subprocess.DEVNULL)
        listens.close()
    return compared(address, receiver, size, time.monotonic() - begun)


def compared(address: str, receiver: Receiver, size: Size, seconds: float) -> Result:
    """Return the differences between what the receiver got and what the record has."""

    async def recorded() -> set[bytes]:
        async with gesta.open(address) as record:
            folding, found = Folding(record.store), set[bytes]()
            for row in await record.store.runs():
                found |= {bytes.fromhex(span.span) async for span in folding.run(row.run)}
            return found

    there = anyio.run(recorded)
    chats = [
        point.count
        for (metric, labels), point in receiver.points.items()
        if metric == "gen_ai.client.operation.duration" and ("gen_ai.operation.name", "chat") in labels
    ]
    return Result(
        store="PostgreSQL" if "://" in address else "SQLite",
        spans=len(there),
        missing=len(there - receiver.spans.keys()),
        strange=len(receiver.spans.keys() - there),
        again=sum(times > 1 for times in receiver.times.values()),
        unequal=len(receiver.unequal),
        kills=size.kills,
        counted=sum(chats),
        seconds=seconds,
    )


def failed(result: Result, size: Size) -> bool:
    """Return whether spans are missing, strange or unequal, or were counted wrongly."""
    wrong = result.missing + result.strange + result.unequal
    return bool(wrong) or result.spans != size.runs * SPANS or result.counted != 4 * size.runs


def told(result: Result, size: Size) -> str:
    """Return a result as a sentence."""
    spans = f"{result.spans} spans of {size.runs} runs, {result.missing} missing, {result.strange} strange"
    again = f"{result.again} came again, {result.unequal} of them with other bytes"
    counted = f"{result.counted} completions counted of {4 * size.runs}"
    return f"{result.store}: {spans}; {again}; {counted}; killed {result.kills} times; {result.seconds:.0f} s"


def main() -> int:
    """Run the benchmark on each store, and print the results. Return 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="100 runs, on both stores")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    size, wrong = FULL if given.full else SMALL, False
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses = [str(folder / "a.gesta")]
        if given.full:
            addresses.append(stack.enter_context(running()).address("traces"))
        for place, address in enumerate(addresses):
            inside = folder / str(place)
            inside.mkdir()
            result = play(address, size, inside, given.seed)
            wrong = failed(result, size) or wrong
            print(told(result, size))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
