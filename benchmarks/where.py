"""Where the time of a step goes, found by sampling: a signal interrupts the program after each short span of CPU time.

python -m benchmarks.where [normal|synced] [STEPS]

Each sample counts for the innermost function of `PARTS` that is running. The work of a thread that commits counts for
the event loop, which waits for that thread meanwhile.
"""

import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

import gesta
from benchmarks.steps import agent

EVERY_S = 0.0007
TURNS = 4
PARTS = {
    "Guard.stands": "is the log on disk still ours, before and after each commit",
    "Works._append": "SQLite: rows",
    "Writer._commit": "SQLite: begin and commit",
    "Writer.inbox": "SQLite: the inbox, before each decision",
    "Reader.inbox": "SQLite: the inbox, before each decision",
    "Sharing.share": "bringing works to one commit",
    "to_row": "encoding, sealing, chaining",
    "Journal.write": "stamping and buffering",
    "Journal.durable": "waiting for a commit",
    "RunView.apply": "folding where the run stands",
    "Prompt.add": "blocks of the prompt",
    "Prompt.close": "blocks of the prompt",
    "Prompt.request": "digest of the request",
    "Keyless.send": "the scripted model itself",
    "Incoming.close": "reading the reply",
    "Incoming.feed": "reading the reply",
    "judged": "checking the call",
    "_try": "the tool, its arguments, its time limit",
    "decide": "deciding",
    "ask": "the rest of asking",
    "use": "the rest of using a tool",
    "take_in": "the rest of the loop",
    "turn": "the rest of the loop",
    "BaseEventLoop._run_once": "the event loop, and a thread that it waits for",
}
"""Parts of the work by function name, in Gesta, its libraries and asyncio."""


def sampled(durability: Any, steps: int) -> tuple[float, Counter[str]]:
    """Run some turns. Return the CPU microseconds of a step, and the number of samples by part."""
    found: Counter[str] = Counter()

    def look(_signal: int, frame: FrameType | None) -> None:
        while frame is not None:
            name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
            if name in PARTS:
                found[PARTS[name]] += 1
                return
            frame = frame.f_back
        found["other"] += 1

    async def go(path: str) -> float:
        async with gesta.open(path, durability=durability) as record:
            await record.run(agent(20), "Begin.", session="warm")
            acting = [agent(steps // TURNS) for _ in range(TURNS)]
            signal.signal(signal.SIGPROF, look)
            signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
            start = time.process_time()
            for number, one in enumerate(acting):
                await record.run(one, "Go on.", session=f"s{number}")
            signal.setitimer(signal.ITIMER_PROF, 0)
            return (time.process_time() - start) / steps * 1e6

    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(go, str(Path(folder) / "r.gesta")), found


def main() -> None:
    """Print the table."""
    for durability in [word for word in sys.argv[1:] if not word.isdigit()] or ["normal", "synced"]:
        steps = next((int(word) for word in sys.argv[1:] if word.isdigit()), 4000)
        us, found = sampled(durability, steps)
        print(f"{durability}: {us:.0f} us of CPU a step, {found.total()} samples")
        for part, count in found.most_common():
            print(f"{count / found.total() * us:8.0f} us {100 * count / found.total():5.1f} %  {part}")


if __name__ == "__main__":
    main()
