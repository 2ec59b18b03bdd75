"""Runs a supervisor and kills the process after the first commit, then after the second, and so on; each is taken up.

Prints a line of JSON for each: whether it was killed, what its record held then, and how it ended. A process of its own
forks for every try, so that what is killed is a process, and nothing is imported twice.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
from tests.journeys.minds import goals, joined, mind

import gesta
from gesta import address
from gesta.kinds import ToolResultContent
from gesta.patterns.supervisor import supervisor
from gesta.record import Record
from gesta.store import Batch
from gesta.stores.sqlite import SqliteStore


class Killed(SqliteStore):
    """A store whose process is killed after so many commits."""

    left: int | None = None

    async def append(self, batch: Batch) -> int:
        pos = await super().append(batch)
        if self.left is not None:
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)
        return pos


def boss(effects: Path) -> gesta.Agent:
    @gesta.tool(effect="idempotent")
    async def count(word: str, context: gesta.Context) -> str:
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{context.key}\n")
        return f"{word}!"

    def research(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "user":
            return [gesta.call("count", word=messages[-1]["content"] * n) for n in (1, 2)]
        return " ".join(each["content"] for each in messages if each["role"] == "tool")

    return supervisor("boss", mind(decompose=goals("a", "b", "c"), research=research, synthesise=joined), [count])


async def play(folder: Path, left: int | None) -> None:
    """Take the turn up; without a bound, say how it went."""
    store = Killed.open(str(folder / "r.gesta"), durability="normal")
    store.left = left
    record = Record(store, address.bind)
    before = await results(record)
    outcome = await record.run(boss(folder / f"effects-{left}"), "why?", session="s", key="m")
    if left is None:
        told = {
            "before": before,
            "after": await results(record),
            "answer": outcome.answer,
            "flaws": len(await record.verify()),
        }
        (folder / "told").write_text(json.dumps(told), encoding="utf-8")
    await store.close()


async def results(record: Record) -> int:
    runs = [await record.read(row.run) for row in await record.store.runs()]
    return sum(isinstance(entry.content, ToolResultContent) for entries in runs for entry in entries)


def forked(folder: Path, left: int | None) -> bool:
    """Play in a process of its own, and say whether that was killed."""
    child = os.fork()
    if not child:
        anyio.run(play, folder, left)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def main(root: Path) -> None:
    killed, commits = True, 0
    while killed:
        commits += 1
        folder = root / str(commits)
        folder.mkdir()
        killed = forked(folder, commits)
        assert not forked(folder, None)
        told = json.loads((folder / "told").read_text(encoding="utf-8"))
        again = folder / "effects-None"
        told["again"] = len(again.read_text(encoding="utf-8").splitlines()) if again.exists() else 0
        print(json.dumps({"killed": killed, **told}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
