"""What a step costs: commits, CPU and bytes, beside the floor, in one run; and what starting costs.

A step is one call of one small async tool. The floor writes the same texts as rows of one table, with the same number
of commits, and does nothing else. Run `python -m benchmarks.steps [N ...]`. Read the ratios: machines differ, and a
synced commit costs 0.2 to 4 ms of waiting, which is no CPU.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import anyio
import apsw

import gesta
from gesta.kinds import ChatCompletionContent, SystemContent, ToolCallContent, ToolResultContent, UserContent
from gesta.stores.sqlite import SqliteStore

ANSWER = "The parcel left the warehouse this morning and is due tomorrow before noon. " * 4
RUNS = 3
TEXTS = (UserContent, SystemContent, ChatCompletionContent, ToolResultContent, ToolCallContent)


@gesta.tool(effect="pure")
async def parcel(number: int) -> str:
    """Where a parcel is."""
    return f"Parcel {number}: {ANSWER}"


def agent(steps: int) -> gesta.Agent:
    """Make an agent that calls its tool `steps` times, and answers."""
    script = [gesta.reply(text="Let me look.", calls=[gesta.call("parcel", number=n)]) for n in range(steps)]
    unlimited = gesta.Policy(limits=gesta.Limits(requests=None, calls=None))
    return gesta.Agent("desk", model=gesta.scripted(*script, ANSWER, stream=False), tools=[parcel], policy=unlimited)


async def run(path: Path, steps: int, durability: Any) -> tuple[float, int]:
    """Take one turn; give CPU seconds and commits."""
    acting = agent(steps)
    async with gesta.open(str(path), durability=durability) as record:
        store = cast("SqliteStore", record.store)
        before, start = store.commits, time.process_time()
        outcome = await record.run(acting, "Where are my parcels?", session="s")
        assert outcome.reason == "answered", outcome
        return time.process_time() - start, store.commits - before


def floor(path: Path, steps: int, *, synced: bool) -> float:
    """Write rows of the same size in the same number of commits; give CPU seconds."""
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")  # one by one: of two statements, apsw runs the second when the first is read
    db.pragma("synchronous", "full" if synced else "normal")
    db.execute("CREATE TABLE rows (pos INTEGER PRIMARY KEY, text TEXT)")
    text = json.dumps({"text": ANSWER})
    start = time.process_time()
    for _ in range(2 * steps + 2):
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO rows (text) VALUES (?)", (text,))
        db.execute("COMMIT")
    spent = time.process_time() - start
    db.close()
    return spent


def text_bytes(entries: list[gesta.Entry]) -> int:
    """Count the bytes of what was said, called and answered."""
    total = 0
    for entry in entries:
        match entry.content:
            case UserContent(value=text) | SystemContent(value=text) | ChatCompletionContent(output=text):
                total += len(text.encode())
            case ToolResultContent(tool_result=str(text)):
                total += len(text.encode())
            case ToolCallContent(tool_args=args):
                total += len(json.dumps(args))
            case _:
                pass
    return total


async def size(path: Path) -> tuple[int, int]:
    """Give bytes of text, and entries."""
    async with gesta.open(str(path), readonly=True) as record:
        entries = await record.read((await record.find("last")).run)
    return text_bytes(entries), len(entries)


def started(code: str) -> float:
    """Give the CPU seconds of a new interpreter that runs this, the median of five."""
    return statistics.median(_cpu([sys.executable, "-c", code]) for _ in range(5))


def _cpu(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


FIRST = """
import gesta
agent = gesta.Agent("guide", model=gesta.scripted("Dry."))
assert gesta.run_sync(agent, "Rain?", record="first.gesta").answer == "Dry."
"""


def main() -> None:
    """Print the tables."""
    steps_of = [int(word) for word in sys.argv[1:]] or [10, 100, 1000]
    print("steps  durability  commits/step  CPU us/step  floor us/step  ratio  file B  B over 1.5 x text, an entry")
    for steps in steps_of:
        for durability in ("synced", "normal"):
            found = []
            for _ in range(RUNS):
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "r.gesta"
                    cpu, commits = anyio.run(run, path, steps, durability)
                    low = floor(Path(folder) / "floor.db", steps, synced=durability == "synced")
                    found.append(
                        (
                            cpu / steps * 1e6,
                            commits / steps,
                            low / steps * 1e6,
                            path.stat().st_size,
                            *anyio.run(size, path),
                        )
                    )
            cpu, commits, low, file, text, entries = (statistics.median(column) for column in zip(*found, strict=True))
            print(
                f"{steps:5}  {durability:10}  {commits:12.2f}  {cpu:11.0f}  {low:13.0f}  {cpu / low:5.1f}"
                f"  {file:6.0f}  {(file - 1.5 * text) / entries:.0f}"
            )
    bare = started("pass")
    print(f"import gesta: {started('import gesta') - bare:.3f} s CPU over the bare interpreter")
    print(f"first answer: {started(FIRST) - bare:.3f} s CPU over the bare interpreter")


if __name__ == "__main__":
    main()
