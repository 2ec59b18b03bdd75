"""What to do next follows from the agent and the folded state alone, at every prefix of every log.

Whoever holds the lease folds and decides: the process that began, one that resumes after a crash, another worker.
So resume, take-over and approval need no machinery of their own.
"""

from typing import Any, Literal

from msgspec import Struct

from gesta.affording import overrun
from gesta.agent import Agent
from gesta.entry import Cause
from gesta.errors import BadArguments
from gesta.kinds import Error, Reason
from gesta.pending import EFFECTS, WAITS, Pending, Try
from gesta.standing import RunState
from gesta.tooling import Tool
from gesta.turn import Turn


class Ask(Struct, frozen=True):
    """Ask the model; calls that are still open are answered with a placeholder first."""

    correction: str | None = None
    """What is wrong with its last answer: told first."""


class Use(Struct, frozen=True):
    """Carry tool calls out."""

    run: tuple[Pending, ...]
    """To be tried at once; those beyond the policy's cap come in the next move."""
    settle: tuple[Pending, ...] = ()
    """In doubt or resolved: to be settled without trying."""


class Waiting(Struct, frozen=True):
    """Something that the run waits for."""

    what: Literal["approval", "doubt", "running", "child", "question", "timer", "resume", "deaths", "copy"]
    """`approval`, `question`, `doubt`: a person's word. `running`: the end of an attempt whose process may still work.
    `child`: a run below. `timer`: a time. `resume`: its program stopped waiting for it. `deaths`: a person's resume,
    after too many processes died in it. `copy`: `gesta adopt`, for this record is a copy."""
    call: int
    """Seq of the tool call; 0 for what a program waits for."""
    tool: str
    """Name of the tool, or of what a program calls."""
    of: int | None = None
    """Seq of the approval-request, or of the attempt in doubt."""
    declared: bool = True
    """Whether the tool's author said what its effect is."""
    run: str | None = None
    """The child run that somebody is to answer in; none for the run itself."""


BUDGET = "budget"
"""What a turn waits for that may cost no more until a person says so."""
Blocking = Literal["approval", "doubt", "running", "child", "question", "copy"]


class Wait(Struct, frozen=True):
    """Leave the turn open until somebody answers."""

    what: tuple[Waiting, ...]


class Finish(Struct, frozen=True):
    """End the turn."""

    reason: Reason
    error: Error | None = None
    value: Any = None
    """What a program gave; the answer of a model is on record."""
    text: str | None = None
    """That value for people, where it is not simply shown."""
    causes: tuple[Cause, ...] = ()
    """Of that value."""


Move = Ask | Use | Wait | Finish


def decide(agent: Agent, state: RunState) -> Move:
    """Say what comes next in the open turn. Pure."""
    turn = state.turn
    assert turn is not None and turn.reason is None, "there is no open turn to decide in"
    if turn.assistant is not None:
        return Finish("answered")
    if turn.cancelled is not None:
        return Finish("cancelled", Error(type="cancelled", message=f"cancelled by {turn.cancelled}"))
    if turn.fatal is not None:
        return Finish("failed", turn.fatal)
    if turn.deaths >= agent.policy.deaths:
        return Wait((Waiting("deaths", 0, ""),))
    limits = agent.policy.limits
    if limits.calls is not None and turn.calls > limits.calls:
        return _limit("calls", limits.calls)
    return _calls(agent, state) or _words(agent, state)


Course = Literal["run", "settle", "approval", "doubt", "running", "child", "question", "copy", "close"]


def _calls(agent: Agent, state: RunState) -> Use | Wait | None:
    """Carry on with the open calls of this turn, if one can go on or waits for somebody."""
    turn = state.turn
    assert turn is not None
    run, settle, waits = [], [], []
    for call in state.current():
        course = _course(agent, call, state)
        if course == "run":
            run.append(call)
        elif course == "settle":
            settle.append(call)
        elif course != "close":
            waits.append(_waiting(agent, call, course))
        # else the placeholder before the next request answers it
    if run or settle:
        return Use(tuple(run[: max(1, agent.policy.parallel)]), tuple(settle))
    return Wait(tuple(waits)) if waits else None


def _course(agent: Agent, call: Pending, state: RunState) -> Course:
    """Return how one open call goes on; `close` leaves it to the placeholder before the next request."""
    assert state.turn is not None
    course = _alone(agent, call, state)
    if course != "run":
        return course
    if call.seq < state.turn.begin:  # of an ended turn nothing is tried again
        return "close"
    tool = agent.tool(call.name)
    if state.copied and tool is not None and tool.effect != "pure":
        return "copy"
    return "run"


def _alone(agent: Agent, call: Pending, state: RunState) -> Course:
    """Return how a call would go on, were it of the open turn and the record no copy."""
    tool = agent.tool(call.name)
    if not call.good:
        return "close"
    if call.last is not None and call.last.verdict is not None:
        return _resolved(tool, call, call.last, state.since)
    if call.last is not None and call.last.doubt == WAITS:
        return "child" if call.last.seq > state.since or tool is None else "run"
    if call.running(state.since):
        return "running"
    if call.in_doubt(state.since):
        return _doubt(agent, call, state)
    if call.answer is not None or (call.approval is not None and call.approval.verdict == "answered"):
        return "settle"
    if tool is None or (call.approval is not None and call.approval.verdict == "denied"):
        return "close"
    if tool.asks:
        return "question"
    if call.approval is not None:
        return "run"
    return "approval" if tool.approval or call.repeats or call.name in state.doubts() else "run"


def effect_of(tool: Tool | None, last: Try) -> str:
    """Return the effect policy under which a call in doubt is treated: the stricter of the tool's then and now."""
    if tool is None or last.effect in EFFECTS:
        return "once"
    if tool.effect == "pure" and last.effect == "idempotent":
        return "idempotent"
    return tool.effect


def _resolved(tool: Tool | None, call: Pending, last: Try, since: int) -> Course:
    """Try again only what is over; whoever allowed it cannot know what another process is still doing."""
    if last.verdict != "retry" or tool is None:
        return "settle"
    if last.over or last.void or effect_of(tool, last) != "once":
        return "run"
    if last.process is None:  # of format 1: nobody will ever know more than who said so
        return "run"
    return "settle" if call.unlooked(since) else "running"


def _doubt(agent: Agent, call: Pending, state: RunState) -> Course:
    tool, last = agent.tool(call.name), call.last
    assert last is not None
    if tool is not None and tool.agent is not None:  # its run is on record, and goes on where it was
        return "run"
    effect = effect_of(tool, last)
    left = call.attempts - call.waited < agent.policy.attempts and not last.expired
    if effect == "pure":
        return "run" if left else "close"
    if effect == "idempotent" and left and call.seq > (state.turn.begin if state.turn is not None else 0):
        return "run"
    if call.unlooked(state.since):
        return "settle"
    if tool is not None and tool.reconcile is not None and not (last.asked_over if last.over else last.asked):
        return "settle"
    return "doubt" if tool is None or tool.on_doubt == "ask" else "close"


def _waiting(agent: Agent, call: Pending, what: Blocking) -> Waiting:
    tool = agent.tool(call.name)
    attempt = call.last.seq if call.last is not None else None
    of = {"approval": call.asked, "question": call.question}.get(what, attempt)
    child = call.last.child if call.last is not None and what == "child" else None
    return Waiting(what, call.seq, call.name, of, tool is None or tool.declared, child)


def _words(agent: Agent, state: RunState) -> Ask | Wait | Finish:
    """Answer, ask the model again, or stop at a limit or where the money ends."""
    turn = state.turn
    assert turn is not None
    if turn.reply is not None:
        if not turn.empty:
            return _answer(agent, state, turn)
        if turn.empty > agent.policy.retry.empty:
            message = f"The model answered with nothing (no text, no tool call) {turn.empty} times in a row."
            return Finish("failed", Error(type="EmptyReply", message=message))
    return _bounded(agent, turn) or afford(agent, state) or Ask()


def _bounded(agent: Agent, turn: Turn) -> Finish | None:
    """Stop where the next request or its calls would go beyond a limit."""
    limits = agent.policy.limits
    for name, count, bound in (("requests", turn.requests, limits.requests), ("calls", turn.calls, limits.calls)):
        if bound is not None and count >= bound:
            return _limit(name, bound)
    return None


def _answer(agent: Agent, state: RunState, turn: Turn) -> Ask | Wait | Finish:
    """Give the answer, unless it is not of the type that it has to be."""
    if agent.output is None:
        return Finish("answered")
    try:
        agent.output.read(agent.answer_text(turn.text))
    except BadArguments as wrong:
        if turn.corrections >= agent.policy.retry.corrections:
            return Finish("failed", Error(type="BadAnswer", message=str(wrong)))
        return _bounded(agent, turn) or afford(agent, state) or Ask(str(wrong))
    return Finish("answered")


def afford(agent: Agent, state: RunState) -> Wait | Finish | None:
    """Stop, or wait for a person, where the next request would take the turn beyond its budget."""
    over = overrun(agent, state)
    if over is None or state.turn is None:
        return None
    budget, spending = agent.policy.budget, state.turn.spending
    if budget is not None and budget.when_spent == "ask" and not spending.refused:
        return Wait((Waiting("question", 0, BUDGET, of=spending.asked),))
    return Finish("budget", over.error)


def _limit(name: str, bound: int) -> Finish:
    return Finish("limit", Error(type=name, message=f"The turn reached its limit of {bound} {name}."))
