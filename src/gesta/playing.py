"""A program takes its turn to the end, or until somebody is waited for; what it raises is how the turn ends."""

from collections.abc import Awaitable
from traceback import format_exception
from typing import Any

from gesta.acting import Stopped, Suspended
from gesta.agent import Agent
from gesta.decide import Finish
from gesta.desk import Desk
from gesta.entry import Cause
from gesta.errors import BadArguments, GestaError, message_of
from gesta.kinds import Error
from gesta.outcome import Outcome
from gesta.outlive import strayed
from gesta.perform import perform
from gesta.result import plain
from gesta.run import outcome
from gesta.stop import TurnLeft
from gesta.verbs import Answer, Verbs


async def play(agent: Agent, desk: Desk) -> Outcome:
    """Take the turn of an agent that has a program, to its end or until somebody is waited for.

    Raises:
        OtherProgram: it does not fit what is on record; the turn stays open.
        WriteFailed, LeaseLost: the log takes no more.
        TurnLeft: who waits for the turn has stopped waiting.
    """
    turn = desk.state.turn
    assert turn is not None and agent.program is not None
    verbs = Verbs(agent, desk)
    finish = Finish("answered")
    if turn.assistant is None:
        try:
            given = await _left_at_once(agent.program(verbs, turn.task), desk)
            text, value = (given.text, given.value) if isinstance(given, Answer) else (None, given)
            value = "" if value is None and agent.output is None else plain(value)
            causes = verbs.sources or _last(desk)
            finish = _checked(agent, Finish("answered", value=value, text=text, causes=causes))
        except BaseException as left:  # noqa: BLE001 - how the turn ends
            failure = _why(left)
            if isinstance(failure, Suspended):
                await desk.log.durable()
                return outcome(desk, tuple(verbs.waits))
            finish = failure.finish if isinstance(failure, Stopped) else Finish("failed", _error(failure))
    await perform(agent, finish, desk)
    return outcome(desk)


async def _left_at_once(program: Awaitable[Any], desk: Desk) -> Any:
    """Await a program; when its turn is left it is broken off, and what it called is seen through. Raises TurnLeft."""
    with desk.stop.breaking():
        return await program
    raise TurnLeft


def _checked(agent: Agent, finish: Finish) -> Finish:
    """Fail where what a program gave is not of the type that the answer has to be."""
    if agent.output is not None:
        try:
            agent.output.given(finish.value)
        except BadArguments as wrong:
            return Finish("failed", Error(type="BadAnswer", message=str(wrong)))
    return finish


def _why(left: BaseException) -> BaseException:
    """Find why a program was left: its own fault before all, then an end, then that it waits. Raises what is no fault.

    Raises:
        GestaError: of the log, or of a program that does not fit.
        TurnLeft: the turn was left.
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
    trace = "".join(format_exception(failure, limit=-8))
    return Error(type=type(failure).__name__, message=message_of(failure), traceback=trace)


def _last(desk: Desk) -> tuple[Cause, ...]:
    """Find what an answer was made from when a program does not say: its last act, or the question."""
    ended = [act.end_seq for act in desk.state.acts.named.values() if act.end is not None]
    assert desk.state.turn is not None
    return (max(ended),) if ended else (desk.state.turn.question,)
