"""Takes a turn on PostgreSQL and kills the process after its first commit of entries, then after the second, and so on.

Prints a line of JSON for each: whether it was killed, and how another process ended it. A process of its own forks for
every try, so that what is killed is a process, and nothing is imported twice. The last line is of two processes that
take the turn at once.
"""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
from tests.laws.scenes import TEXT, facts

import gesta
from gesta import address
from gesta.errors import RunHeld
from gesta.record.record import Record
from gesta.store import Batch
from gesta.stores.postgres import PostgresStore


class Killed(PostgresStore):
    """A store whose process is killed after so many commits of entries."""

    left = -1

    async def append(self, batch: Batch) -> int:
        pos = await super().append(batch)
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return pos


def actor(effects: Path) -> gesta.Agent:
    """An agent with an effect that may be repeated under its key, and one that must not be."""

    def note(context: gesta.Context) -> None:
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{context.key}\n")
            file.flush()
            os.fsync(file.fileno())

    @gesta.tool(effect="idempotent")
    async def put(x: int, context: gesta.Context) -> str:
        return f"put {x}"

    def paid(key: str) -> gesta.Done | gesta.NotDone:
        return gesta.Done("paid") if key in effects.read_text(encoding="utf-8") else gesta.NotDone()

    @gesta.tool(effect="once", reconcile=paid)
    async def pay(x: int, context: gesta.Context) -> str:
        note(context)
        return "paid"

    calls = [gesta.call("put", x=1), gesta.call("pay", x=2)]
    return gesta.Agent("actor", gesta.scripted(calls, gesta.call("pay", x=3), "Done."), tools=[put, pay])


async def play(place: str, effects: Path, left: int) -> dict[str, Any]:
    """Continue the turn, as soon as the server has noticed that its process is dead."""
    store = Killed.open(place)
    store.left = left
    record = Record(store, address.bind)
    with anyio.fail_after(5):
        while True:
            try:
                outcome = await record.run(actor(effects), TEXT, session="s", key="m")
                break
            except RunHeld:
                await anyio.sleep(0.01)
    found, flaws = facts(await record.read(outcome.run)), await record.verify()
    await store.close()
    return {"facts": found, "flaws": len(flaws)}


def fired(effects: Path) -> list[int]:
    """How often each payment was made."""
    return sorted(Counter(effects.read_text(encoding="utf-8").split()).values())


def forked(place: str, effects: Path, left: int) -> int:
    """Play in a process of its own, and give its number."""
    child = os.fork()
    if not child:
        try:
            anyio.run(play, place, effects, left)
        finally:
            os._exit(0)
    return child


def main(place: str, folder: Path) -> None:
    killed, commits = True, 0
    while killed:
        commits += 1
        effects = folder / str(commits)
        effects.touch()
        there = f"{place}{commits}"
        killed = os.WIFSIGNALED(os.waitpid(forked(there, effects, commits), 0)[1])
        print(json.dumps({"killed": killed, **anyio.run(play, there, effects, -1), "fired": fired(effects)}))
    (folder / "both").touch()
    child = forked(f"{place}both", folder / "both", -1)
    told = anyio.run(play, f"{place}both", folder / "both", -1)
    os.waitpid(child, 0)
    print(json.dumps({**told, "fired": fired(folder / "both")}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
