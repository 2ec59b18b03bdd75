"""Finds out why a tool ended its attempt in order to wait, and writes it down: for a person, or for a child run.

An attempt is one execution of a tool call. A child run is the run of an agent that the tool calls. After the wait the
tool is called again, from its first line. A call is in doubt if nobody knows whether its effect happened.
"""

from anyio import get_cancelled_exc_class

from gesta.errors import GestaError, InDoubt
from gesta.function_tool.context import NeedsAnswer
from gesta.function_tool.doubt import in_doubt
from gesta.function_tool.tool import Tool
from gesta.kinds import Error, FaultContent, QuestionContent
from gesta.perform.child import ChildWaits
from gesta.perform.execution import LiveRun
from gesta.perform.stop import TurnLeft
from gesta.state.calls import ASKS, EFFECTS, WAITS

Waits = ChildWaits | NeedsAnswer | TurnLeft


def wait_in(raised: BaseException) -> Waits | None:
    """Return `raised`, or the first of a group, if it ends an attempt in order to wait; `None` if none of them does."""
    if isinstance(raised, BaseExceptionGroup):
        return next((found for each in raised.exceptions if (found := wait_in(each)) is not None), None)
    return raised if isinstance(raised, Waits) else None


def doubt_behind(raised: BaseException, tool: Tool) -> BaseException | None:
    """Return an exception that leaves a `once` tool in doubt, although the tool also raised one in order to wait.

    Return `None` if there is no such exception.

    Such an exception was raised beside the other one, in a group. Or it was being handled when the other one was
    raised, as in a `finally`. Or the tool named it as the cause, as in `raise NeedsAnswer() from error`. A `once` tool
    that was broken off because its turn was left is in doubt too.
    """
    if tool.effect not in EFFECTS:
        return None
    stopped = get_cancelled_exc_class()
    left, met = [raised], set[int]()
    while left:
        each = left.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
        elif isinstance(each, TurnLeft):
            return InDoubt(f"{tool.name} was broken off when its turn was left")
        elif isinstance(each, InDoubt) or (
            not isinstance(each, Waits | stopped | GestaError) and in_doubt(each, tool.certain)
        ):
            return each
        cause = each.__cause__ if not isinstance(each, ChildWaits | GestaError) else None  # theirs is a failed write
        left += [one for one in (each.__context__, cause) if one is not None]
    return None


def write_wait(live: LiveRun, attempt: int, why: Waits) -> None:
    """Write that an attempt ended in order to wait for a child run or a person. Another attempt follows later.

    Args:
        attempt: seq of the `attempt` entry.
    """
    if isinstance(why, NeedsAnswer):
        error = Error(type=ASKS, message=f"a person has to answer: {why}")
        live.write(FaultContent(of=attempt, error=error, state=why.state), attempt)
        for part, asked in why.questions.items():
            question = QuestionContent(value=asked.text, schema=asked.schema, attempt=attempt, part=part)
            live.write(question, attempt)
        live.log.journal.sync()
        return
    if isinstance(why, ChildWaits):
        run, text = why.args
    else:
        run, text = "", "the turn was left"
    error = Error(type=WAITS, message=f"run {run} is not done: {text}" if run else text)
    live.write(FaultContent(of=attempt, error=error, run=run or None), attempt)
