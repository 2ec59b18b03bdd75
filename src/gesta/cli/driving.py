"""Runs an agent on a record, asks the person at the terminal for approvals, and prints how the turn ended.

A record is the store of all runs. A turn is one message to the agent with all that follows until its answer. The agent
runs until its turn ends, or waits for a person. Each time, the record is opened and closed again, and nothing
is kept in memory. So an answer at the prompt has the same effect as `gesta approve` and `gesta resume`, and Ctrl-C at
the prompt loses nothing.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from typing import TextIO, cast

import anyio

from gesta.address import open_record
from gesta.agent import Agent
from gesta.cli.approving import Verdict, ask, give, who
from gesta.cli.options import quoted
from gesta.cli.talk import (
    ANSWERED,
    BOLD,
    DOUBT,
    FAILED,
    INTERRUPTED,
    LIMIT,
    WAITING,
    Screen,
    complain,
    say,
    terminal,
)
from gesta.cli.voice import Voice
from gesta.cli.waits import FIND_OUT, settling, why
from gesta.decide.approval import Approver
from gesta.decide.waiting import Waiting
from gesta.errors import GestaError, NotWaiting, SaidBefore
from gesta.events import Event, Listener, Outcome
from gesta.record.record import Record

Work = Callable[[Record, Listener], Awaitable[Outcome]]

MOST = 1000
"""Greatest number of characters of a call that are shown."""

CODES = {"answered": ANSWERED, "failed": FAILED, "cancelled": FAILED, "limit": LIMIT, "budget": LIMIT}


@dataclass(frozen=True)
class Job:
    """An agent and the record on which it runs. Makes command lines about them, which the user can type next."""

    agent: Agent
    address: str
    record: str
    named: str
    """The text ` --record FILE` for command lines that are printed; empty if the user did not give this option."""
    yes: bool
    json: bool
    approver: Approver | None = None
    servers: str = ""
    """The options ` --mcp SERVER` for command lines that are printed; empty if there are none."""

    def command(self, verb: str, run: str, rest: str = "") -> str:
        """Return a command line about a run.

        Args:
            verb: the name of the command.
            rest: words after the id of the run, with a space before them.
        """
        return f"gesta {verb} {run}{rest}{self.named}"

    def resume(self, run: str) -> str:
        """Return the command line that resumes a run with this agent."""
        return self.command("resume", run, f" {quoted(self.address)}{self.servers}")


def work(job: Job, voice: Voice, first: Work) -> int:
    """Run the agent until its turn ends, or until it waits and the person at the terminal does not answer.

    Returns the exit code. Ctrl-C leaves the turn open.

    Args:
        voice: prints the events of the run.
        first: function that starts or resumes the run, called once. After each answer of the person the run is resumed.
    """
    try:
        outcome = _stretch(job, voice, first)
        while answers := _answers(job, outcome.waiting):
            outcome = _stretch(job, voice, _answered(job, outcome.run, answers))
    except KeyboardInterrupt:
        return _interrupted(job, voice.run)
    voice.end(outcome)
    return _report(job, outcome)


def _stretch(job: Job, voice: Voice, do: Work) -> Outcome:
    printed = Screen(sys.stderr)  # output of tools goes to stderr; a stream of its own removes secrets from it
    try:
        with redirect_stdout(cast("TextIO", printed)):
            return anyio.run(_turn, job, voice, do)
    finally:
        printed.end()


async def _turn(job: Job, voice: Voice, do: Work) -> Outcome:
    failure: Exception | None = None
    async with open_record(job.record, approver=job.approver) as record:
        send, receive = anyio.create_memory_object_stream[Event](float("inf"))
        async with receive, anyio.create_task_group() as tasks:
            tasks.start_soon(voice.follow, record, receive)
            with send:
                try:
                    outcome = await do(record, send.send_nowait)
                except Exception as error:  # noqa: BLE001 - raised below, outside of the group, as itself
                    failure = error
        await _hang_up(job.agent)
        if failure is not None:
            raise failure
    return outcome


async def _hang_up(agent: Agent) -> None:
    """Close the connections of the agent's model, if it has any."""
    close = getattr(agent.model, "aclose", None)
    if close is not None:
        await close()


def _answers(job: Job, waits: Sequence[Waiting]) -> list[tuple[Waiting, Verdict]]:
    """Return the answers to the calls that wait for approval, from `--yes` or from the person at the terminal."""
    waiting = [each for each in waits if each.what == "approval" and not each.refused]
    if job.yes:
        return [(each, Verdict(verdict="approved", by="--yes")) for each in waiting]
    if not (terminal(sys.stdin) and terminal(sys.stderr)):
        return []
    answers = [(each, ask(each, job.agent, who())) for each in waiting]
    return [(each, verdict) for each, verdict in answers if verdict is not None]


def _answered(job: Job, run: str, answers: list[tuple[Waiting, Verdict]]) -> Work:
    async def go_on(record: Record, listener: Listener) -> Outcome:
        for each, verdict in answers:
            with suppress(NotWaiting, SaidBefore):  # somebody else answered in the meantime
                await give(record, each, verdict)
        return await record.resume(run, job.agent, listener=listener)

    return go_on


def _interrupted(job: Job, run: str | None) -> int:
    print(file=sys.stderr)
    if run is None:
        say(f"Interrupted. `gesta runs{job.named}` shows what was begun.")
    else:
        say(f"Interrupted; the turn is left open. Go on with: {job.resume(run)}")
    return INTERRUPTED


def _report(job: Job, outcome: Outcome) -> int:
    """Print why there is no answer, and the next command to type. Returns the exit code."""
    if outcome.reason == "waiting":
        return _waiting(job, outcome)
    if outcome.error is not None:
        complain(GestaError(f"The turn ended with {outcome.reason}: {outcome.error.message}"))
        say(f"What happened: {job.command('log', outcome.run)}")
    return CODES[outcome.reason]


def _waiting(job: Job, outcome: Outcome) -> int:
    open_ = outcome.waiting
    if outcome.queued:
        say("The message waits behind an open turn, which waits for what follows.")
    doubts = [each for each in open_ if each.what == "doubt"]
    for each in open_:
        say(why(each))
    if doubts:
        say(FIND_OUT)
    say("Go on with:")
    say("  " + " && ".join([*settling(open_, job.named), job.resume(outcome.run)]), BOLD)
    return DOUBT if doubts or any(each.what == "running" for each in open_) else WAITING
