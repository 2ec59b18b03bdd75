"""Runs the program of a turn until the turn ends or waits. An exception of the program decides how the turn ends.

A program is an async function that runs an agent's turn in place of a model. A turn goes from a message to the answer.
"""

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any

from gesta.agent import Agent, Answer
from gesta.decide.move import Finish, Wait, decide_program
from gesta.entry import Cause
from gesta.errors import BadArguments, GestaError, message_of
from gesta.events import Outcome
from gesta.kinds import Error
from gesta.loop import outcome_of
from gesta.perform.call_contents import plain, trace_of
from gesta.perform.execution import LiveRun
from gesta.perform.move import perform
from gesta.perform.stop import TurnLeft
from gesta.perform.threads import strayed
from gesta.workflow.step import Stopped, Suspended
from gesta.workflow.verbs import Verbs


async def play(agent: Agent, live: LiveRun) -> Outcome:
    """Run the turn of an agent that has a program, until it ends or waits, and return its outcome.

    Raises:
        OtherProgram: the program does not do what the record says it did. The turn stays open.
        WriteFailed, LeaseLost: no more entries can be written.
        TurnLeft: the caller has stopped waiting for the turn.
    """
    turn = live.state.turn
    assert turn is not None and agent.program is not None
    verbs = Verbs(agent, live)
    move = decide_program(agent, live.state) if turn.assistant is None else Finish("answered")
    if move is None:
        if turn.begin <= live.state.since:  # commit what was learned, in case the program kills this process too
            await live.log.durable()
        move = await _played(agent, verbs, live) or decide_program(agent, live.state) or Wait(tuple(verbs.waits))
    if isinstance(move, Wait):
        await live.log.durable()
        return outcome_of(live.log.run, live.state, move.what)
    await perform(agent, move, live)
    return outcome_of(live.log.run, live.state)


async def _played(agent: Agent, verbs: Verbs, live: LiveRun) -> Finish | None:
    """Run the program once, and return how the turn ends; `None` if it waits. Raises what `play` raises."""
    turn = live.state.turn
    assert turn is not None and agent.program is not None
    try:
        given = await _left_at_once(_awaitable(agent, agent.program(verbs, turn.task)), live)
        # A program may catch what stops it, as `gather(..., return_exceptions=True)` does. That answer does not count.
        if verbs.left and any(each.what != "timer" for each in verbs.waits):
            return None
        text, value = (given.text, given.value) if isinstance(given, Answer) else (None, given)
        value = "" if value is None and agent.output is None else plain(value)
        causes = verbs.sources or _last(live)
        return _checked_answer(agent, Finish("answered", value=value, text=text, causes=causes))
    except BaseException as left:  # noqa: BLE001 - any exception decides how the turn ends
        failure = _why(left)
        if isinstance(failure, Suspended):
            return None
        return failure.finish if isinstance(failure, Stopped) else Finish("failed", _error(failure))


def _awaitable(agent: Agent, begun: Any) -> Awaitable[Any]:
    if not isawaitable(begun):
        found = f"it returned {begun!r:.60}, expected a coroutine"
        raise TypeError(f"The program of agent {agent.name!r} is not an async function: {found}. Write `async def`.")
    return begun


async def _left_at_once(program: Awaitable[Any], live: LiveRun) -> Any:
    """Await a program and return its value.

    If the turn is asked to stop, cancel the program, let its running tool calls finish, and raise TurnLeft.
    """
    with live.stop.breaking():
        return await program
    raise TurnLeft


def _checked_answer(agent: Agent, finish: Finish) -> Finish:
    """Return `finish`; if its value does not fit the agent's answer type, return a `Finish` that fails the turn."""
    if agent.answer_type is not None:
        try:
            agent.answer_type.given(finish.value)
        except BadArguments as wrong:
            return Finish("failed", Error(type="BadAnswer", message=str(wrong)))
    return finish


def _why(left: BaseException) -> BaseException:
    """Return the exception that decides how the turn ends, if several tasks of the program raised one.

    A failure is preferred to `Stopped` (the turn ends), and `Stopped` to `Suspended` (the turn waits).

    Args:
        left: the exception that the program raised; a group if several tasks raised one.

    Raises:
        GestaError: the log failed, or the program does not do what the record says it did.
        TurnLeft: the turn was asked to stop.
    """
    leaves = [left]
    while groups := [each for each in leaves if isinstance(each, BaseExceptionGroup)]:
        leaves = [each for each in leaves if each not in groups]
        leaves += [each for group in groups for each in group.exceptions]
    for kind in (TurnLeft, GestaError, Exception, Stopped, Suspended):
        for each in leaves:
            if isinstance(each, kind):
                if kind in (TurnLeft, GestaError):
                    raise each
                return each
    if all(map(strayed, leaves)):
        return left
    raise left


def _error(failure: BaseException) -> Error:
    return Error(type=type(failure).__name__, message=message_of(failure), traceback=trace_of(failure))


def _last(live: LiveRun) -> tuple[Cause, ...]:
    """Return the causes of an answer for which the program named none: its last step, or else the turn's message."""
    ended = [step.end_seq for step in live.state.steps.named.values() if step.end is not None]
    assert live.state.turn is not None
    return (max(ended),) if ended else (live.state.turn.question,)
