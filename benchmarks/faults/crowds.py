"""Cases in which many users share a record, or one of them behaves badly. No other one may lose anything by that."""

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

import gesta
from benchmarks.faults.driving import BY, RECOVERS_S, witness_of
from benchmarks.faults.lives import Life, kill_note
from benchmarks.faults.tools import Panic, changed
from benchmarks.faults.witness import Line
from gesta import address
from gesta.errors import WriteFailed
from gesta.kinds import AnswerContent, ApprovalContent
from gesta.perform import threads as outlive
from gesta.worker import Worker

KINDS = ("bad neighbour", "threads", "starved threads", "contention", "bad listener", "used key", "recursion")
THREADS, PROCESSES, RUNS = 8, 16, 20
BUSY_S = 10.0
"""Seconds for which a writer waits for others in these cases.

It is enough if each writer has one turn before any other has a second one.
"""
DEEP = 200
"""Greatest number of requests of an agent that calls itself."""


class Crowd:
    """A case of one of the kinds in `KINDS`."""

    def __init__(self, case: Any) -> None:
        self.case, self.scene = case, case.scene
        self.witness = witness_of(case.scene)

    def run(self) -> None:
        """Run the case."""
        kill_note(self.scene, self.case.fault, "")
        work = getattr(self, f"_{self.case.fault.replace(' ', '_')}")
        if self.case.fault == "contention":
            work()
            return
        self.case.ended(Life(lambda _: work()).follow())

    def tool(
        self, name: str, order: int, *, wait_s: float = 0.0, raises: type[BaseException] | None = None, **options: Any
    ) -> Any:
        """Return a tool that carries out one order."""

        async def act(context: gesta.Context) -> str:
            line = self.line(name, order, context)
            self.witness.tell(line)
            await anyio.sleep(wait_s)
            self.witness.tell(changed(line, "effect"))
            if raises is not None:
                raise raises("as the case wants it")
            return f"ok {order}."

        act.__name__ = name
        return gesta.tool(act, **({"effect": "once"} | options))

    def line(self, name: str, order: int, context: gesta.Context) -> Line:
        """Return the line for the witness file which says that a function has begun."""
        attempt = int(context.explain_id.rpartition(".")[2])
        return Line(
            what="begun", order=order, tool=name, effect="once", key=context.key, run=context.run, attempt=attempt
        )

    def simple(self, name: str, order: int, **options: Any) -> gesta.Agent:
        """Return an agent that carries out one order."""
        tool = self.tool("act", order, **options)
        return gesta.Agent(name, model=gesta.scripted(gesta.call("act"), "Done.", stream=False), tools=[tool])

    def must(self, condition: object, text: str) -> None:
        """Note `text` as a broken promise unless the condition is true."""
        if not condition:
            self.witness.wrong(text)

    # kinds

    def _bad_neighbour(self) -> None:
        anyio.run(self._worker)

    async def _worker(self) -> None:
        """One run of a worker raises. All others must continue, and no cancellation may be written into them."""
        good = [self.simple(f"good{order}", order, wait_s=0.03, approval=True) for order in range(3)]
        below = gesta.Agent("below", model=gesta.scripted("x"))

        async def program(verbs: gesta.Verbs, _text: str) -> str:
            await verbs.ask("go", "go?")
            await verbs.call(below, "a", "same")
            await verbs.call(below, "b", "same")
            return "never"

        bad = gesta.Agent("bad", program=program)
        async with gesta.open(self.scene.record) as record:
            runs = []
            for agent in good:
                outcome = await record.run(agent, "Go.", session=agent.name, key="m")
                runs.append(outcome.run)
                said = ApprovalContent(of=outcome.waiting[0].of or 0, verdict="approved", by=BY)
                await record.send(outcome.run, said, key="a")
            outcome = await record.run(bad, "Go.", session="bad", key="m")
            await record.send(outcome.run, AnswerContent(of=outcome.waiting[0].of or 0, value="y", by=BY), key="a")
            worker = Worker(record, [*good, bad])
            for _ in range(4):
                try:
                    await worker.look(lambda _: None)
                except Exception as error:  # noqa: BLE001 - that is what must not come here
                    self.must(False, f"beside a bad run in a worker, the worker ended: {type(error).__name__}")  # noqa: FBT003
            for run in runs:
                state = await record.state(run)
                reason = state.turn.reason if state.turn is not None else None
                self.must(reason == "answered", f"beside a bad run in a worker, run {run} stands {reason or 'open'}")

    def _threads(self) -> None:
        """Threads of one process use one record."""
        found: Counter[str] = Counter()

        def go(order: int) -> None:
            agent = self.simple(f"agent{order}", order, wait_s=0.01)
            try:
                found[gesta.run_sync(agent, "Go.", record=self.scene.record, session=f"s{order}", key="k").reason] += 1
            except gesta.GestaError as error:
                found[f"{type(error).__name__}: {' '.join(str(error).split()):.150}"] += 1

        with gesta.open_sync(self.scene.record):
            pass
        for base in range(0, 4 * THREADS, THREADS):
            threads = [threading.Thread(target=go, args=(base + place,)) for place in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for reason, times in found.items():
            self.must(reason == "answered", f"threads of one process: {times} times {reason}")

    def _starved_threads(self) -> None:
        anyio.run(self._starve)

    async def _starve(self) -> None:
        """More blocking tools run than there are threads. Waiting for a thread must not count as time of the tool."""
        to_thread.current_default_thread_limiter().total_tokens = 2
        outlive.THREADS = 2

        def make(order: int) -> gesta.Agent:
            def act(context: gesta.Context) -> str:
                line = self.line("act", order, context)
                self.witness.tell(line)
                time.sleep(0.03)
                self.witness.tell(changed(line, "effect"))
                return f"ok {order}."

            tool = gesta.tool(act, effect="once", timeout_s=0.15)
            return gesta.Agent(f"agent{order}", model=gesta.scripted(gesta.call("act"), "Done."), tools=[tool])

        async with gesta.open(self.scene.record, durability="normal") as record, anyio.create_task_group() as group:
            for order in range(24):
                group.start_soon(partial(record.run, make(order), "Go.", session=f"s{order}", key="m"))

    def _contention(self) -> None:
        """Many processes write one record. All of them must end, and none may be left far behind."""
        with gesta.open_sync(self.scene.record):
            pass
        start, go = os.pipe()

        def write(number: int) -> None:
            os.close(go)
            os.read(start, 1)  # until the parent closes the pipe, which starts all processes at once
            self._writer(number)

        lives = [Life(lambda _, number=number: write(number)) for number in range(PROCESSES)]  # type: ignore[misc]
        os.close(start)
        os.close(go)
        for life in lives:
            self.case.ended(life.follow())
        ended = [line.order for line in self.witness.lines() if line.what == "done"]
        fewest = fewest_ended(ended, RUNS)
        self.must(
            fewest >= RUNS / 2, f"a process beside other writers had ended {fewest} of {RUNS} when half were done"
        )

    def _writer(self, number: int) -> None:
        known = getattr(getattr(address, "Options", None), "__annotations__", {})
        options: dict[str, Any] = {"busy_s": BUSY_S} if "busy_s" in known else {}

        async def main() -> None:
            async with gesta.open(self.scene.record, durability="synced", **options) as record:
                for each in range(RUNS):
                    order = number * RUNS + each
                    agent = self.simple(f"agent{order}", order)
                    try:
                        outcome = await record.run(agent, "Go.", session=f"s{order}", key="m")
                        self.must(outcome.reason == "answered", f"a run beside many others ended {outcome.reason}")
                        self.witness.tell(Line(what="done", order=number))
                    except WriteFailed as error:
                        self.must(False, f"{type(error).__name__} beside other writers")  # noqa: FBT003 - as asserts do

        anyio.run(main)

    def _bad_listener(self) -> None:
        try:
            anyio.run(self._listeners)
        except BaseException as error:  # noqa: BLE001 - that is what must not come here
            self.must(False, f"one stream's failure ended the program: {type(error).__name__}")  # noqa: FBT003

    async def _listeners(self) -> None:
        """One stream's tool raises a BaseException, one listener raises, and one leaves.

        All other streams must continue.
        """
        ended: dict[str, str] = {}

        async def hear(record: Any, name: str, agent: gesta.Agent, *, leaves: bool = False) -> None:
            stream = record.stream(agent, "Go.", session=name, key="m")
            try:
                async for _ in stream:
                    if leaves:
                        ended[name] = "left"
                        return
                ended[name] = stream.outcome.reason if stream.outcome is not None else "nothing"
            except (Exception, Panic) as error:  # noqa: BLE001 - judged below
                ended[name] = type(error).__name__

        def raising(_event: Any) -> None:
            raise ConnectionError("the browser is gone")

        async with gesta.open(self.scene.record, durability="normal") as record:
            async with anyio.create_task_group() as group:
                for order in range(3):
                    group.start_soon(hear, record, f"g{order}", self.simple(f"g{order}", order, wait_s=0.1))
                bad = self.simple("bad", 10, wait_s=0.03, raises=Panic, effect="pure")
                group.start_soon(hear, record, "bad", bad)
                leaving = self.simple("left", 11, wait_s=0.05)
                group.start_soon(partial(hear, record, "left", leaving, leaves=True))
            for order in range(3):
                self.must(
                    ended.get(f"g{order}") == "answered",
                    f"a stream beside a bad one ended with {ended.get(f'g{order}')}",
                )
            self.must(ended.get("bad") == "answered", f"the stream of a tool that raised ended with {ended.get('bad')}")
            agent = self.simple("heard", 12, wait_s=0.02)
            try:
                outcome = await record.run(agent, "Go.", session="heard", key="m", listener=raising)
                self.must(outcome.reason == "answered", f"a turn whose listener raised ended {outcome.reason}")
            except Exception as error:  # noqa: BLE001 - as above
                self.must(False, f"a listener that raised ended its turn: {type(error).__name__}")  # noqa: FBT003
            with anyio.fail_after(RECOVERS_S):
                outcome = await record.run(leaving, "Go.", session="left", key="m")
                self.must(outcome.reason == "answered", f"a turn whose listener left ended {outcome.reason}")

    def _used_key(self) -> None:
        """Another message under a used key must be an error."""
        agent = self.simple("agent", 1)
        gesta.run_sync(agent, "Pay 5.", record=self.scene.record, session="s", key="m")
        with suppress(gesta.GestaError):
            outcome = gesta.run_sync(agent, "Pay 9.", record=self.scene.record, session="s", key="m")
            self.must(False, f"another message under a used key was answered {outcome.answer!r}")  # noqa: FBT003

    def _recursion(self) -> None:
        """An agent that calls itself must be stopped soon."""
        asked: list[int] = []

        def think(*_: Any) -> Any:
            asked.append(1)
            if len(asked) > DEEP:
                self.must(len(asked) != DEEP + 1, f"an agent that calls itself was asked more than {DEEP} times")
                return "Enough."
            return gesta.call("again", task="deeper")

        async def again(context: gesta.Context, task: str) -> str:
            return str((await context.call(me, task)).answer)

        tool = gesta.tool(again, effect="pure")
        limits = gesta.Policy(limits=gesta.Limits(requests=1))
        me = gesta.Agent("me", model=gesta.function(think, stream=False), tools=[tool], policy=limits)
        with suppress(RecursionError):
            outcome = gesta.run_sync(me, "Go.", record=self.scene.record, session="s", key="m")
            self.must(outcome.reason != "waiting", "an agent that calls itself waits for ever")


def fewest_ended(ended: Sequence[int], runs: int) -> int:
    """Return how many runs the slowest process had ended when half of the processes had ended all of theirs.

    Args:
        ended: the process number of each run, in the order in which the runs ended.
        runs: number of runs of each process.
    """
    counts = dict.fromkeys(range(PROCESSES), 0)
    for number in ended:
        counts[number] += 1
        if 2 * sum(count == runs for count in counts.values()) >= PROCESSES:
            break
    return min(counts.values())
