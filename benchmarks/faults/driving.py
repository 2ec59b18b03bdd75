"""One process of a case: it brings every session to its end, answers in place of people, and meets the planned faults.

The answers are truthful: the witness file says whether an order was carried out. While something that may still carry
it out is alive, no answer is given. So if an order is carried out twice, Gesta alone is at fault.
"""

import asyncio
import faulthandler
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio

import gesta
from benchmarks.faults.agents import BELOW, Cast, Scene, order_of_args
from benchmarks.faults.striking import Strike, Striker, Struck
from benchmarks.faults.tools import EXPIRES_S, Panic
from benchmarks.faults.witness import Line, Witness
from gesta import address
from gesta.decide.waiting import Waiting
from gesta.entry import run_id
from gesta.errors import LeaseLost, RecordError, RunHeld, TurnOpen, WriteFailed
from gesta.events import Outcome
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    AttemptContent,
    FaultContent,
    ResolutionContent,
    ToolCallContent,
    ToolResultContent,
)

RECOVERS_S = 5.0
"""Seconds after a fault within which a run must continue, or wait for something that it names."""
COMES_BACK_S = 12.0
"""Seconds after which one call of `record.run` counts as stuck; its tools take less than half of that time."""
LIVES_S = 40.0
"""Seconds after which a session counts as stuck."""
LOOK_S = 0.01
NAMED = {"approval", "doubt", "running", "child", "question", "timer", "resume", "deaths", "copy"}
BY, LATE = "ann", "ann, too late"
GONE_S = 0.3
"""Seconds after which a process is declared dead in a copied record, which cannot look it up."""


class Stuck(Exception):
    """A session did not come to its end."""


class Driver:
    """Brings the sessions of a case to their ends in this process."""

    def __init__(
        self, scene: Scene, striker: Striker, *, version: int = 1, final: bool = False, brief_s: float | None = None
    ) -> None:
        self.scene, self.striker, self.witness = scene, striker, striker.witness
        self.final = final
        """Whether there are no more faults, so that every run must come to its end."""
        self.until = time.monotonic() + brief_s if brief_s is not None else None
        """Time at which it gives up without a complaint, because other processes continue; `None` for never."""
        self.running: dict[tuple[str, int], float] = {}
        """For each call that was reported as running, the time of the first report."""
        self.cast = Cast(scene, self.witness, striker, version)
        self.lot = random.Random(f"{scene.seed} {time.time_ns()}")
        self.handles: set[Callable[[], object]] = set()
        """Functions that cancel the work in progress."""

    def live(self) -> None:
        """Run until the sessions have ended. This is the body of the process."""
        anyio.run(self.main, backend=self.scene.backend)

    async def main(self) -> None:
        """Open the record, and bring every session to its end."""
        self.striker.cancel = self._canceller()
        original = address.store
        address.store = lambda *args, **options: Struck(original(*args, **options), self.striker)
        options: dict[str, Any] = {"durability": self.scene.durability}
        known = getattr(getattr(address, "Options", None), "__annotations__", {})
        options |= {"grace_s": self.lot.choice((0, 0, 0.05))} if "grace_s" in known else {}
        options |= {"busy_s": self.scene.busy_s} if "busy_s" in known else {}
        async with AsyncExitStack() as stack:
            record = await stack.enter_async_context(gesta.open(self.scene.record, **options))
            with anyio.move_on_after(max(self.until - time.monotonic(), 0) if self.until is not None else None):
                async with anyio.create_task_group() as group:
                    for session in range(self.scene.sessions):
                        group.start_soon(self._session, record, session)
            self.striker.reach("at the end")
        self.witness.tell(Line(what="done"))

    def _canceller(self) -> Callable[[Strike], None]:
        """Return a function that cancels all work in progress and can be called from any thread."""
        if self.scene.backend == "trio":
            import trio

            token = trio.lowlevel.current_trio_token()

            def cancel(_strike: Strike) -> None:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._cancel)

            return cancel
        loop = asyncio.get_running_loop()

        def cancel_tasks(strike: Strike) -> None:
            for time_ in range(strike.times):
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(loop.call_later, 0.001 * time_, self._cancel)

        return cancel_tasks

    def _cancel(self) -> None:
        for handle in list(self.handles):
            handle()

    async def _session(self, record: Any, session: int) -> None:
        agent = self.cast.root()
        try:
            for turn in range(int(session in self.scene.skipped), self.scene.turns + self.scene.fresh):
                await self._turn(record, agent, session, turn)
        except Stuck as stuck:
            if self.until is None:
                self.witness.wrong(str(stuck))

    async def _turn(self, record: Any, agent: gesta.Agent, session: int, turn: int) -> None:
        """Send a message until it is answered. If its turn ended otherwise, send it again under another key."""
        text = self.cast.task(session, turn)
        outcome: Outcome | None = None
        for again in range(4):
            key = f"m{turn}.{again}{'.restored' if self.scene.marked else ''}"
            outcome = await self._ended(record, agent, f"s{session}", text, key)
            if outcome is None:
                return
            if outcome.reason == "answered":
                self.witness.tell(Line(what="answered", run=outcome.run, key=key, text=str(outcome.answer)))
                return
        if self.final and outcome is not None:
            raise Stuck(f"the turn of s{session} ended {outcome.reason} again and again: {outcome.error}")

    async def _ended(self, record: Any, agent: gesta.Agent, session: str, text: str, key: str) -> Outcome | None:
        """Run a turn until it ends, and answer what it waits for. Return its outcome."""
        until, trouble_since = time.monotonic() + LIVES_S, 0.0
        outcome: Outcome | None = None
        while time.monotonic() < min(until, self.until or until):
            try:
                outcome = None
                with anyio.fail_after(COMES_BACK_S):
                    async with watched_over(COMES_BACK_S - 1, self.scene.backend):
                        outcome = await self._cancellable(partial(self._once, record, agent, session, text, key))
            except TimeoutError as error:
                raise Stuck(f"a turn did not come back within {COMES_BACK_S:.0f} s") from error
            except (RunHeld, LeaseLost, WriteFailed) as error:
                trouble_since = trouble_since or time.monotonic()
                if time.monotonic() - trouble_since > RECOVERS_S and self.until is None:
                    message = " ".join(str(error).split())
                    raise Stuck(f"{type(error).__name__} for {RECOVERS_S:.0f} s: {message:.300}") from error
                await anyio.sleep(LOOK_S)
                continue
            except (gesta.GestaError, Panic, SystemExit, BaseExceptionGroup) as error:
                root = run_id(record.store.info.id, session, agent.name)
                if self.scene.lossy and type(error) is RecordError and "lost entries that were read" in str(error):
                    pass  # a listener had read what the server lost
                elif isinstance(error, TurnOpen) and self.scene.lossy and error.run == root:
                    with suppress(RunHeld, LeaseLost, WriteFailed):
                        earlier = await self._cancellable(partial(record.resume, error.run, agent))
                        if earlier is not None and earlier.reason == "waiting":
                            await self._help(record, agent, earlier)
                elif self.until is None:
                    self.witness.wrong(
                        f"{type(error).__name__} came out of a turn: {' '.join(str(error).split()):.200}"
                    )
                await anyio.sleep(LOOK_S * 5)
                continue
            trouble_since = 0.0
            if outcome is None:
                continue
            if outcome.reason != "waiting":
                return outcome
            self._check_named(outcome)
            await self._help(record, agent, outcome)
        raise Stuck(f"{session} did not come to an end within {LIVES_S:.0f} s: {outcome_text(outcome)}")

    def _check_named(self, outcome: Outcome) -> None:
        if not outcome.waiting and getattr(outcome, "queued", None) is None:
            self.witness.wrong(f"run {outcome.run} waits for nothing that it names")
        for each in outcome.waiting:
            if each.what not in NAMED:
                self.witness.wrong(f"run {outcome.run} waits for {each.what!r}, which the campaign does not know")

    async def _cancellable(self, work: Callable[[], Any]) -> Any:
        """Do some work that a fault may cancel. Return its value, or `None` if it was cancelled."""
        fault = self.lot.choice(("cancel", "scope")) if self.scene.backend == "asyncio" else "scope"
        if fault == "scope":
            with anyio.CancelScope() as scope:
                self.handles.add(scope.cancel)
                try:
                    return await work()
                finally:
                    self.handles.discard(scope.cancel)
            return None
        task = asyncio.ensure_future(work())
        self.handles.add(task.cancel)
        try:
            await asyncio.wait([task])
        finally:
            self.handles.discard(task.cancel)
            if not task.done():  # the whole process is ending
                task.cancel()
        return None if task.cancelled() else task.result()

    async def _once(self, record: Any, agent: gesta.Agent, session: str, text: str, key: str) -> Outcome | None:
        if not self.scene.stream:
            outcome: Outcome = await record.run(agent, text, session=session, key=key)
            return outcome
        stream = record.stream(agent, text, session=session, key=key)
        async for _ in stream:
            pass
        if stream.outcome is None:
            self.witness.wrong("a stream ended without an outcome and without an error")
            await anyio.sleep(LOOK_S)
        return stream.outcome  # type: ignore[no-any-return]

    async def _help(self, record: Any, agent: gesta.Agent, outcome: Outcome) -> None:
        """Answer what a turn waits for, as far as the truth is known."""
        answered = False
        try:
            for each in outcome.waiting:
                self.striker.reach(f"waiting for {each.what}")
                answered |= await self._answer(record, each)
        except (RunHeld, LeaseLost, WriteFailed) as error:  # a person would see the error and try again
            self.witness.tell(Line(what="told", run=outcome.run, text=f"{type(error).__name__}: {error!s:.200}"))
        kinds = {each.what for each in outcome.waiting}
        if "deaths" in kinds or "resume" in kinds:
            self.striker.reach("waiting for resume")
            with suppress(RunHeld, LeaseLost, WriteFailed):
                await self._cancellable(partial(record.resume, outcome.run, agent))
        if not answered:
            await anyio.sleep(LOOK_S)

    async def _answer(self, record: Any, waits: Waiting) -> bool:
        """Answer one wait. Return whether an answer was sent."""
        if waits.what == "question":
            found = waits.question.rpartition("order=")[2].rstrip("?")
            await record.send(
                waits.run, AnswerContent(of=waits.of or 0, value=f"ok {found}.", by=BY), key=f"an-{waits.of}"
            )
            return True
        if waits.call is None or waits.what not in ("approval", "doubt", "running"):
            return False
        if waits.tool in BELOW:  # the end of the child run decides this call
            return False
        order = order_of_args(waits.args or {})
        truth = self.witness.truth(order)
        if truth == "unknown":
            return False
        if waits.what in ("running", "doubt") and self.scene.copied:
            await self._declare(record, waits)
        if waits.what == "running":
            return False
        if waits.what == "approval":
            if waits.of is None or (truth == "not done" and await self._may_act(record, order, waits.call)):
                return False
            await self._approve(record, waits, order, done=truth == "done")
        else:
            verdict: Any = "done" if truth == "done" else self.lot.choice(("retry", "retry", "failed"))
            if verdict == "failed" and await self._may_act(record, order, -1):
                return False
            result = f"ok {order}." if truth == "done" else None
            said = ResolutionContent(of=waits.of or 0, verdict=verdict, by=BY, result=result)
            await record.send(waits.run, said, key=f"re-{waits.of}-{self.lot.randrange(10**6)}")
        self.witness.tell(Line(what="told", order=order, run=waits.run, text=f"{waits.what} {truth}"))
        return True

    async def _declare(self, record: Any, waits: Waiting) -> None:
        """Declare that the process of an attempt has ended, as a person does for a record copied from elsewhere."""
        since = self.running.setdefault((waits.run, waits.call or 0), time.monotonic())
        if time.monotonic() - since < GONE_S:
            return
        tried = [each.content for each in await record.read(waits.run) if isinstance(each.content, AttemptContent)]
        process = next((each.process for each in reversed(tried) if each.of == waits.call), None)
        if process is not None:
            await record.store.declare_gone(process, BY)

    async def _may_act(self, record: Any, order: int, call: int) -> bool:
        """Return whether an attempt of another call for the same order may still take effect.

        While it may, no second attempt is allowed.
        """
        for row in await record.store.runs():
            entries = await record.read(row.run)
            asked = {
                each.seq
                for each in entries
                if isinstance(each.content, ToolCallContent) and order_of_args(each.content.tool_args) == order
            }
            tried = {
                each.seq: each.content
                for each in entries
                if isinstance(each.content, AttemptContent) and each.content.of in asked - {call}
            }
            for each in entries:
                if isinstance(each.content, FaultContent) and each.content.over:
                    tried.pop(each.content.of, None)
                if isinstance(each.content, ToolResultContent) and each.content.outcome in ("ok", "error", "late"):
                    tried = {seq: one for seq, one in tried.items() if one.of != each.content.call}
            for attempt in tried.values():
                known = self.scene.copied or await record.store.gone(attempt.process) is True
                if attempt.effect == "once" and not known:
                    return True
        return False

    async def _approve(self, record: Any, waits: Waiting, order: int, *, done: bool) -> None:
        asked = waits.of or 0
        said = ApprovalContent(of=asked, verdict="approved", by=BY)
        if done:
            said = ApprovalContent(of=asked, verdict="answered", by=BY, result=f"ok {order}.")
        elif waits.expires is not None and self.lot.random() < 0.5:
            await anyio.sleep(EXPIRES_S * 1.5)
            said = ApprovalContent(of=asked, verdict="approved", by=LATE)
        await record.send(waits.run, said, key=f"ap-{asked}")


@asynccontextmanager
async def watched_over(wait_s: float, backend: str) -> AsyncIterator[None]:
    """Print where every task and thread is if the block takes longer than `wait_s` seconds."""

    def tell() -> None:
        faulthandler.dump_traceback(all_threads=True)
        for task in asyncio.all_tasks(loop):
            print(task.get_name(), file=sys.stderr)
            waits: Any = task.get_coro()
            while waits is not None:  # the task's own stack shows only the outermost coroutine
                frame = (
                    getattr(waits, "cr_frame", None)
                    or getattr(waits, "gi_frame", None)
                    or getattr(waits, "ag_frame", None)
                )
                where = (
                    f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}" if frame else repr(waits)
                )
                print(f"    {where}", file=sys.stderr)
                names = ("cr_await", "gi_yieldfrom", "ag_await")
                waits = next((found for name in names if (found := getattr(waits, name, None)) is not None), None)

    loop = asyncio.get_running_loop() if backend == "asyncio" else None
    handle = loop.call_later(wait_s, tell) if loop is not None else None
    try:
        yield
    finally:
        if handle is not None:
            handle.cancel()


def outcome_text(outcome: Outcome | None) -> str:
    """Return the reason of an outcome and what it waits for, as text."""
    return (
        "no outcome" if outcome is None else f"{outcome.reason} {[(each.what, each.tool) for each in outcome.waiting]}"
    )


def witness_of(scene: Scene) -> Witness:
    """Return the witness file of a case, opened."""
    return Witness(Path(scene.witness))
