"""Part 2 of the demo: the same conversation, killed after the shop's COMMIT and before the refund tool returns.

A child process runs the conversation until it is killed, while this process prints the entries that appear on record.
Then this process runs the conversation with the same function, and prints how Gesta resolved the interrupted call.
A call is in doubt if nobody knows whether it had its effect.
"""

import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

import gesta
from gesta.demo import shop
from gesta.demo.driver import drive
from gesta.demo.facts import bought_again
from gesta.demo.stage import Stage, Verdict
from gesta.testing.crashes.witness import KILL

R = TypeVar("R")

POLL_S = 0.05

BEFORE = (
    "The same conversation with a fresh copy of the shop, in a child process. Your answer to part 1 approves the "
    "refund. In that process only, the refund function is wrapped: when the shop has committed and before the function "
    "returns, it sends SIGKILL to its own process. Then the shop has the refund, and the record knows of no result."
)
AGAIN = (
    "Now the same driver runs again, in this process: for each message, record.run(agent, text, session=..., "
    "key=...). Messages that were answered are not sent again; the open turn goes on where the record ends."
)


async def play_second(stage: Stage, session: str, verdict: Verdict) -> gesta.Outcome | None:
    """Play part 2, and return the outcome of the last turn; `None` if the child process was not killed as planned.

    Args:
        verdict: the person's approval in part 1. The refund in part 2 is approved in the name of the same person.
    """
    stage.open_shop(session)
    if stage.choices.full:
        stage.voice.heading(f"Part 2: killed in the middle of the refund (session {session})")
        stage.voice.line()
        stage.voice.paragraph(BEFORE)
    else:
        stage.voice.heading("Part 2: the same again, in a process that is killed when the shop has paid")
    by = f"{verdict.by} (the answer to part 1)"
    async with gesta.open(stage.choices.address) as record:
        with stage.voice.muted(when=not stage.choices.full):
            code = await _shown(stage, record, session, lambda: _child(stage, session, by))
        if code not in {-KILL, KILL}:
            _not_killed(stage, code)
            return None
        await _tell_of_kill(stage, record, session, code)
        outcome = await _shown(stage, record, session, lambda: drive(record, stage.agent(), session, by))
        stage.voice.line()
        await _tell_counts(stage, record, session)
        return outcome


async def _shown(stage: Stage, record: gesta.Record, session: str, work: Callable[[], Awaitable[R]]) -> R:
    """Await a function, print the entries that are written while it runs, and return the function's result."""
    done = anyio.Event()

    async def watch() -> None:
        while not done.is_set():
            await stage.show_new(record, session, spoken=True)
            with anyio.move_on_after(POLL_S):
                await done.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        result = await work()
        done.set()
    await stage.show_new(record, session, spoken=True)
    return result


async def _child(stage: Stage, session: str, by: str) -> int:
    """Run the child process that is killed, and return its exit code. `by` is the name of the person who approves."""
    command = [sys.executable, "-P", "-m", "gesta.demo.child", stage.choices.address, session]
    command += ["--by", by, "--kill", stage.choices.kill, *stage.choices.live]
    # The child gets its own session, so that Ctrl-C reaches only this process, which then ends the child.
    done = await anyio.run_process(command, stdin=None, stdout=None, stderr=None, check=False, start_new_session=True)
    return done.returncode


def _not_killed(stage: Stage, code: int) -> None:
    stage.voice.line()
    if code == 0:
        stage.voice.paragraph("The model came to the end without calling refund, so nothing was killed.")
    else:
        stage.voice.paragraph(f"The child process ended with {code}, before it was killed. What it did is on record.")


async def _tell_of_kill(stage: Stage, record: gesta.Record, session: str, code: int) -> None:
    """Print the state after the kill: the child's exit code, the number of booked refunds, and calls in doubt."""
    voice, booked = stage.voice, _rows(shop.count(stage.shop(session)))
    voice.gap()
    name = f" ({signal.Signals(-code).name})" if code < 0 else ""
    voice.fact("killed", f"the child process ended with {code}{name}", "bold red")
    voice.fact("shop", f"its table of refunds has {booked}")
    entries = await stage.entries(record, session)
    state = await record.state(entries[-1].run)
    for call in state.current():
        if call.last is not None and call.in_doubt(state.head):
            voice.fact(
                "in doubt", f"entry {call.last.seq}, attempt {call.attempts} of {call.name}: no result on record"
            )
    if stage.choices.full:
        voice.line()
        voice.paragraph(AGAIN)
        voice.line()
    else:
        voice.fact("again", "the same program runs once more, and repeats nothing on record")


async def _tell_counts(stage: Stage, record: gesta.Record, session: str) -> None:
    """Print how often the refund was made, and how many requests to the model were sent a second time."""
    counted, entries = shop.count(stage.shop(session)), await stage.entries(record, session)
    text = f"refunds fired: {counted.fired}, model calls bought again: {bought_again(entries)}"
    stage.voice.line(text, "bold")
    if not stage.choices.full:
        return
    stage.voice.paragraph(
        f"({shop.witness(stage.shop(session)).name} has a line for each time the tool set out to pay; the shop's table "
        f"of refunds has {_rows(counted)}. Bought again: requests on record whose body had been answered before.)",
        "dim",
    )


def _rows(counted: shop.Count) -> str:
    return f"{counted.booked} row{'' if counted.booked == 1 else 's'}"
