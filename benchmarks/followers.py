"""Do all followers receive every event once and in order while the writer is killed? `python -m benchmarks.followers`.

Another process takes turns in many sessions at once. It is killed three times (kill -9) and started again, and it
continues the same turns. In this process each session is followed several times. Some followers stay; the others leave
after a number of events and follow again after the last event that they received, as a browser does. In the end each
must have received what is on record: every event once, in order. `--full` has 200 followers of 50 sessions.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, aclosing
from pathlib import Path

import anyio
from msgspec import Struct
from tests.postgres import running

import gesta
from gesta.events import Event

PROGRAM = """
import sys
import anyio, gesta

address, sessions, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

@gesta.tool(effect="pure")
async def look(place: int) -> str:
    "Look."
    return f"{place}: dry"

calls = [gesta.reply(f"I look at {n}.", calls=[gesta.call("look", place=n)]) for n in range(steps)]
agent = gesta.Agent("eye", model=gesta.scripted(gesta.reply("Hello."), *calls, "All dry."), tools=[look])

async def main():
    async with gesta.open(address, durability="normal") as record, anyio.create_task_group() as tasks:
        for number in range(sessions):
            async def take(session=f"s{number}"):
                for key in ("hello", "look"):
                    await record.run(agent, key, session=session, key=key)
            if sys.argv[4] == "hello":
                await record.run(agent, "hello", session=f"s{number}", key="hello")
            else:
                tasks.start_soon(take)

anyio.run(main)
"""


class Size(Struct, frozen=True):
    """The size of a campaign."""

    sessions: int
    followers: int
    steps: int
    kills: int = 3


class Campaign:
    """Followers of sessions whose writing process is killed again and again."""

    def __init__(self, address: str, size: Size, seed: int) -> None:
        self.address, self.size = address, size
        self.heard: list[list[Event]] = [[] for _ in range(size.followers)]
        self.again = 0
        """Number of times that a follower left and followed again."""
        self.killed = 0
        self._lot = random.Random(seed)
        self._calls = anyio.Event()
        self._told = 0

    async def run(self) -> list[str]:
        """Run the campaign. Return a sentence for each follower that did not receive every event once and in order."""
        self._begin("hello").wait()
        async with gesta.open(self.address, readonly=True) as record:
            async with anyio.create_task_group() as tasks:
                for number in range(self.size.followers):
                    tasks.start_soon(self._follow, record, number)
                await self._write()
            wrong = list[str]()
            for session in range(self.size.sessions):
                whole = [event async for event in record.follow(f"s{session}", until_end=True)]
                for number in range(session, self.size.followers, self.size.sessions):
                    wrong += self._judge(number, whole)
        return wrong

    async def _write(self) -> None:
        """Run the process that takes the turns; kill it `kills` times and start it again."""
        total = self.size.steps * self.size.followers
        for kill in range(self.size.kills):
            process = self._begin("look")
            bound = total * (kill + 1) // (5 * (self.size.kills + 1))  # early: the followers lag behind
            while self._told < bound and process.poll() is None:
                self._calls = anyio.Event()
                with anyio.move_on_after(1):
                    await self._calls.wait()
            self.killed += process.poll() is None
            process.kill()
            await anyio.to_thread.run_sync(process.wait)
        process = self._begin("look")
        await anyio.to_thread.run_sync(process.wait)
        if process.returncode:
            raise SystemExit(f"the writing process ended with {process.returncode}")

    def _begin(self, what: str) -> "subprocess.Popen[bytes]":
        root = str(Path(__file__).parents[1])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, f"{root}/src"])}
        command = [sys.executable, "-c", PROGRAM, self.address, *map(str, (self.size.sessions, self.size.steps)), what]
        return subprocess.Popen(command, env=environment)

    async def _follow(self, record: gesta.Record, number: int) -> None:
        """Follow a session until its second turn has ended."""
        heard, session = self.heard[number], f"s{number % self.size.sessions}"
        stays = number < self.size.followers / 2
        while sum(event.type == "end" for event in heard) < 2:
            left = self._lot.randint(1, 60)
            after = heard[-1].id if heard else None
            async with aclosing(record.follow(session, after=after or 0)) as events:
                async for event in events:
                    heard.append(event)
                    left -= 1
                    if event.type == "call":
                        self._told += 1
                        self._calls.set()
                    if event.type == "end" and self._ended(heard):
                        break
                    if left < 0 and not stays:
                        self.again += 1
                        break

    def _ended(self, heard: list[Event]) -> bool:
        return sum(event.type == "end" for event in heard) == 2

    def _judge(self, number: int, whole: list[Event]) -> list[str]:
        ids = [event.id for event in self.heard[number]]
        if self.heard[number] == whole:
            return []
        lost, twice = len({event.id for event in whole} - set(ids)), len(ids) - len(set(ids))
        return [f"follower {number}: {lost} events lost, {twice} heard twice, {len(ids)} of {len(whole)} in all"]


def main() -> int:
    """Run a campaign on each store, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="200 followers of 50 sessions; else 40 of 10")
    parser.add_argument("--store", choices=["file", "postgres", "both"], default="both")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    size = Size(50, 200, 24) if options.full else Size(10, 40, 8)
    failed = 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        places = {"file": f"{folder}/followed.gesta"} if options.store != "postgres" else {}
        if options.store != "file":
            places["postgres"] = stack.enter_context(running()).address()
        for name, place in places.items():
            campaign, begun = Campaign(place, size, options.seed), time.monotonic()
            wrong = anyio.run(campaign.run)
            events = sum(map(len, campaign.heard))
            print(
                f"{name}: {size.followers} followers of {size.sessions} sessions, {campaign.killed} kills, followed "
                f"again {campaign.again} times, {events:,} events heard, {len(wrong)} followers wrong, "
                f"{time.monotonic() - begun:.1f} s"
            )
            print("\n".join(wrong[:20]))
            failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
