"""A life: a process that opens the record, sends every message under its key, and is killed or reaches the end.

A record is the store of all runs. A life is forked from a process that has imported Gesta but not the agent. So each
life imports the agent itself, and starts in milliseconds. A message whose key is on record is not added again: its turn
is resumed. So the same code begins a record and continues it.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec import Struct

import gesta
from gesta import address
from gesta.agent import Agent
from gesta.decide.waiting import Waiting
from gesta.errors import GestaError, NotWaiting, RunHeld, SaidBefore, WriteFailed
from gesta.events import Outcome
from gesta.model.request import Model
from gesta.record.record import Record
from gesta.testing.crashes.report import Report, judge
from gesta.testing.crashes.watched import Watched, watched
from gesta.testing.crashes.witness import KILL, Life, Line, Strike, read

LIFE_S = 120.0
"""Number of seconds after which a life fails with a timeout."""
LOOK_S = 0.02
BY = "crash test"
"""The name in which calls are approved."""


class Scene(Struct, frozen=True, kw_only=True):
    """The settings of all lives that work on one record."""

    agent: Callable[[], Agent]
    """A function that imports or makes the agent. It is called in the process of the life."""
    messages: Sequence[str]
    record: str
    """Address of the record."""
    witness: Path
    """Path of the test's own log."""
    session: str = "crash-test"
    helped: bool = False
    """Whether other processes approve calls and answer questions. A life then waits for them, unless only calls in
    doubt (calls that may or may not have happened) are left."""


def ready(folder: Path) -> None:
    """Import the modules that every life needs (event loop, formatter, SQLite) once, before any fork.

    Args:
        folder: where a store is created, so that SQLite is loaded too.
    """
    anyio.run(anyio.sleep, 0)
    address.formatter("tool-calls")
    address.drive(address.inline_store(str(folder / "ready.gesta")).close())


def forked(work: Callable[[], None]) -> int:
    """Call a function in a process of its own, wait for it to end, and return the exit code.

    A negative code is the number of the signal that ended the process.
    """
    return ended(fork(work))


def fork(work: Callable[[], None]) -> int:
    """Start a process that calls a function, and return its process id. The process prints to stderr only.

    Its exit code is 0, or 2 after a GestaError, or 1 after any other exception.

    Raises:
        GestaError: this system cannot fork.
    """
    if not hasattr(os, "fork"):
        raise GestaError("A crash test needs a system that can fork, such as Linux or macOS.")
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.dup2(2, 1)
            work()
            code = 0
        except GestaError as error:
            print(error, file=sys.stderr)  # noqa: T201 - there is no caller in this process to raise it to
            code = 2
        except BaseException:  # noqa: BLE001 - else the child would run the parent's code from here on
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return child


def ended(child: int) -> int:
    """Wait for a process to end, and return its exit code.

    A negative code is the number of the signal that ended it.
    """
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lived(
    scene: Scene, number: int, last: int | None = None, *, strike: Strike = "killed", within_s: float | None = None
) -> bool:
    """Run a life in a process of its own, and return whether it was killed before its end.

    Args:
        number: number of the life, which is in each line of the test's log.
        last: number of the point at which `strike` happens, from 1; `None` for no point.
        strike: what happens at that point. After a cancellation or a failed write, the same process goes on.
        within_s: kill the process from outside after this many seconds, wherever it is. Used instead of a point.

    Raises:
        GestaError: the process failed.
    """
    child = fork(lambda: anyio.run(live, scene, Life(scene.witness, number, last, strike)))
    if within_s is not None:
        time.sleep(within_s)
        os.kill(child, KILL)
    code = ended(child)
    if code not in {0, -KILL}:
        raise GestaError(f"Process {number} of the crash test ended with {code}; what it said stands above.")
    if code == -KILL and within_s is not None:
        Life(scene.witness, number).tell(Line(what="killed", point="at any instruction"))
    return code == -KILL


def judged(*scenes: Scene) -> Report:
    """Compare each scene's record with the test's log of that scene, in a child process. Return one report on all.

    Raises:
        GestaError: a record could not be read.
    """
    told = scenes[0].witness.with_suffix(".report")

    async def hold() -> None:
        total = Report()
        for scene in scenes:
            async with gesta.open(scene.record, readonly=True) as record:
                total.add(await judge(record, read(scene.witness), scene.session))
        told.write_bytes(msgspec.json.encode(total))

    if forked(lambda: anyio.run(hold)):
        raise GestaError("A record could not be read; what was said stands above.")
    return msgspec.json.decode(told.read_bytes(), type=Report)


async def live(scene: Scene, life: Life) -> None:
    """Send every message, and write to the test's log how each turn ended."""
    agent, models = scene.agent(), dict[str, Model]()
    store = Watched(address.store(scene.record, durability="normal"), life)
    record = Record(store, lambda each: watched(address.bind(each, models), life))
    with anyio.fail_after(LIFE_S):
        for place, text in enumerate(scene.messages):
            outcome = await _taken(scene, life, record, agent, text, f"m{place}")
            told = tuple(sorted({each.text for each in outcome.waiting}))
            why = f" ({outcome.error.type})" if outcome.reason == "failed" and outcome.error is not None else ""
            life.tell(Line(what="ended", run=outcome.run, key=f"m{place}", reason=outcome.reason + why, waits=told))
            if outcome.reason == "waiting":
                break
    for model in models.values():
        await getattr(model, "aclose", anyio.lowlevel.checkpoint)()
    await store.close()
    life.tell(Line(what="lived", points=life.points))


async def _cancellable(life: Life, turn: Coroutine[Any, Any, Outcome]) -> Outcome | None:
    """Await a turn that the test may cancel, and return its outcome; `None` if it was cancelled."""
    task, loop = asyncio.ensure_future(turn), asyncio.get_running_loop()
    life.cancel = partial(loop.call_soon_threadsafe, task.cancel)
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()


async def _taken(scene: Scene, life: Life, record: Record, agent: Agent, text: str, key: str) -> Outcome:
    """Run the turn of a message until it ends, or until it waits for something that this test cannot provide.

    Return the outcome. After a cancellation or a failed write, the message is sent again.
    """
    until = time.monotonic() + LIFE_S / 2
    while True:
        try:
            outcome = await _cancellable(life, record.run(agent, text, session=scene.session, key=key))
        except (RunHeld, WriteFailed):  # a server is slow to notice that the last life has ended; a write may fail
            if time.monotonic() > until:
                raise
            await anyio.sleep(LOOK_S)
            continue
        if outcome is None:
            continue
        waits = outcome.waiting
        if any(each.what == "deaths" for each in waits):  # the turn waits because too many processes died in it
            await _cancellable(life, record.resume(outcome.run, agent, by=BY))
            continue
        if any(each.what in ("resume", "running") for each in waits) and time.monotonic() < until:
            await anyio.sleep(LOOK_S)
            continue
        if outcome.reason != "waiting" or (waits and all(each.what == "doubt" for each in waits)):
            return outcome
        if scene.helped:
            if time.monotonic() > until:
                return outcome
            await anyio.sleep(LOOK_S)
        elif not await _approved(record, waits):
            return outcome


async def _approved(record: Record, waits: Sequence[Waiting]) -> bool:
    """Approve all calls that wait for approval, and return whether there were any."""
    asked = [each for each in waits if each.what == "approval"]
    for each in asked:
        with suppress(NotWaiting, SaidBefore):  # somebody else has answered in the meantime
            await record.approve(each, by=BY)
    return bool(asked)
