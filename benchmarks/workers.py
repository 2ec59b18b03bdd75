"""Four workers use one PostgreSQL record. One is killed every two seconds, and nothing may be lost or done twice.

python -m benchmarks.workers [--workers 4] [--sessions 200] [--seconds 120] [--every 2] [--record postgresql://...]
Without --record, a server from the tests' wheel is started. Each worker picks a random session, and sends its next
message or continues the turn that a dead worker left open. It prints steps (answers of the model) per second.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
from tests.postgres import running

import gesta
from gesta.address import bind
from gesta.errors import LeaseLost, RunHeld
from gesta.record.record import Record
from gesta.stores.postgres import PostgresStore


def think(messages: list[dict[str, Any]], _header: Any) -> Any:
    """Call both tools, then answer."""
    if messages[-1]["role"] == "tool":
        return "Done."
    return [gesta.call("look", at=len(messages)), gesta.call("pay", euros=len(messages))]


def agent_of(effects: Path) -> gesta.Agent:
    """Return the agent. One tool reads; the other one pays, and can tell by the key of a call whether it has paid."""

    def paid(key: str) -> gesta.Done | gesta.NotDone:
        return gesta.Done("paid") if key in effects.read_text(encoding="utf-8") else gesta.NotDone()

    @gesta.tool(effect="pure")
    async def look(at: int) -> str:
        """Look."""
        await anyio.sleep(0.01)
        return f"saw {at}"

    @gesta.tool(effect="once", reconcile=paid)
    async def pay(euros: int, context: gesta.Context) -> str:
        """Pay."""
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{context.key}\n")
            file.flush()
            os.fsync(file.fileno())
        return f"{euros} paid"

    return gesta.Agent("worker", gesta.function(think), tools=[look, pay])


async def work(options: argparse.Namespace, effects: Path, until: float) -> None:
    """Use one session after another. When the time is over, bring open turns to their end."""
    store = PostgresStore.open(options.record)
    record, agent, choose = Record(store, bind), agent_of(effects), random.Random()

    async def once(session: str, *, new: bool) -> None:
        try:
            run = await record.turns.run_of(session, agent.name)
            state = await record.state(run)
            if state.open:
                await record.resume(run, agent)
            elif new:
                await record.run(agent, "Go on.", session=session, key=f"m{len(state.turns)}")
        except (RunHeld, LeaseLost, gesta.GestaError):
            await anyio.sleep(0.01)

    async def go() -> None:
        while time.time() < until:
            await once(f"s{choose.randrange(options.sessions)}", new=True)

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(go)
    for place in range(options.sessions):
        await once(f"s{place}", new=False)
    await store.close()


def start(options: argparse.Namespace, effects: Path, until: float) -> int:
    """Fork a worker, and return its process id."""
    child = os.fork()
    if not child:
        try:
            anyio.run(work, options, effects, until)
        except BaseException as error:  # noqa: BLE001 - the parent counts failed workers
            print(f"worker: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child


def campaign(options: argparse.Namespace, effects: Path) -> int:
    """Start the workers, and kill and replace one again and again. Return the number of kills."""
    began, kills = time.time(), 0
    until, last = began + options.seconds, began
    workers = [start(options, effects, until) for _ in range(options.workers)]
    while workers:
        for worker in list(workers):
            ended, status = os.waitpid(worker, os.WNOHANG)
            if ended:
                workers.remove(worker)
                if os.WIFSIGNALED(status):
                    workers.append(start(options, effects, until))
        if workers and time.time() - last > options.every and time.time() < until:
            os.kill(random.choice(workers), signal.SIGKILL)
            kills, last = kills + 1, time.time()
        time.sleep(0.01)
    return kills


async def report(options: argparse.Namespace, effects: Path, kills: int, took_s: float) -> bool:
    """Print the result. Return whether nothing was lost or done twice."""
    store = PostgresStore.open(options.record)
    record = Record(store, bind)
    agent = agent_of(effects)
    for row in await store.runs():  # turns that the last kill left open
        if (await record.state(row.run)).open:
            await record.resume(row.run, agent)
    flaws, rows = await record.verify(), await store.runs()
    states = [await record.state(row.run) for row in rows]
    open_ = sum(state.open for state in states)
    unlike = sum([*state.turns] != [f"m{n}" for n in range(len(state.turns))] for state in states)
    turns, steps = sum(len(state.turns) for state in states), sum(state.answered for state in states)
    ((entries, unique, last),) = (
        await store.sql("SELECT count(*), count(DISTINCT (run, seq)), max(pos) FROM entries")
    ).rows
    fired = Counter((await anyio.Path(effects).read_text(encoding="utf-8")).split())
    twice = sum(times > 1 for times in fired.values())
    await store.close()
    print(f"workers {options.workers}  sessions {len(rows)}  kills {kills}  seconds {took_s:.0f}")
    print(f"turns {turns}, open {open_}, out of order {unlike}")
    print(f"entries {entries}, once each {unique}, last place {last}, flaws {len(flaws)}")
    print(f"payments {len(fired)} for {turns} turns, fired twice {twice}")
    print(f"steps/s {steps / took_s:.1f}   entries/s {entries / took_s:.0f}")
    return not (flaws or open_ or unlike or twice or entries != unique or entries != last or len(fired) != turns)


def main() -> None:
    """Run the campaign. The exit code is 1 if anything was lost or done twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--every", type=float, default=2, help="seconds between two kills")
    parser.add_argument("--record", help="address of a record that nobody else uses")
    options = parser.parse_args()
    with nullcontext() if options.record else running(fsync="on") as server, tempfile.TemporaryDirectory() as folder:
        if server is not None:
            options.record = server.address()
        effects = Path(folder) / "effects"
        effects.touch()
        PostgresStore.open(options.record)  # makes the tables
        began = time.time()
        kills = campaign(options, effects)
        well = anyio.run(report, options, effects, kills, time.time() - began)
    sys.exit(not well)


if __name__ == "__main__":
    main()
