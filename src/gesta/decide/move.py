"""Decides the next move of a turn: what is to be done now, such as to ask the model.

The move follows only from the agent and the run's state. So a process that resumes a turn after a crash decides as the
process that began the turn would have. `perform` carries the moves out. A turn goes from a message to its answer. An
attempt is one execution of a tool for a call. An open call is a call without a result. A hook is a function of the
agent that may change or refuse something. A program is an async function that runs an agent's turn in place of a model.
The seq of an entry is its number in the run.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct

from gesta.agent import Agent
from gesta.decide.budget import overrun
from gesta.decide.open_call import Blocking, course, doubted_tools, lost_tool, placeholder, resolved_early
from gesta.decide.waiting import Waiting
from gesta.entry import Cause
from gesta.errors import BadArguments, ModelFault
from gesta.hooks import Hooks, Point
from gesta.kinds import Error, Reason, ToolResultContent
from gesta.policy import Limits
from gesta.state.calls import DEPTH, OpenCall
from gesta.state.run import RunState
from gesta.state.turn import Turn

NO_TOOLS = frozenset[str]()


class Ask(Struct, frozen=True):
    """The move that asks the model."""

    compact: bool = False
    """Whether the prompt is too large. Then it is made smaller in place of asking, and `decide` is called again."""


class Correct(Struct, frozen=True):
    """The move that tells the model why its last answer does not fit the agent's answer type."""

    text: str


class Close(Struct, frozen=True):
    """The move that writes a placeholder as the result of each open call, so that the model can be asked again."""

    results: tuple[ToolResultContent, ...]
    """A placeholder for each open call: a result which says why there is no real one."""
    lost: int | None = None
    """Seq of a request that a crash interrupted; `None` if there is none."""


class Pause(Struct, frozen=True):
    """The move that waits before the model is asked again, because the last try failed."""

    failed_at: datetime
    wait_s: float
    """Seconds to wait from `failed_at`. Even if the clock was changed, the pause from now is never longer than this."""


class Use(Struct, frozen=True):
    """The move that carries out tool calls."""

    run: tuple[OpenCall, ...]
    """Calls to attempt now. If there are more than `Policy.parallel` calls, the others come in a later move."""
    settle: tuple[OpenCall, ...] = ()
    """Calls not to be attempted again, but to be settled: they are in doubt (nobody knows whether they had their
    effect), or have a resolution (a person or the tool said what happened)."""


class Wait(Struct, frozen=True):
    """The move that leaves the turn open until a person, a time or another run ends the wait."""

    what: tuple[Waiting, ...]


class Finish(Struct, frozen=True):
    """The move that ends the turn."""

    reason: Reason
    error: Error | None = None
    value: Any = None
    """The answer, if a program or a tool made it. An answer of a model is on record already."""
    text: str | None = None
    """The answer as a text for people, if the program returned one beside `value`."""
    causes: tuple[Cause, ...] = ()
    """The entries from which `value` was made."""


class Check(Struct, frozen=True):
    """The move that calls a hook of the agent."""

    point: Point
    of: int = 0
    """Seq of the entry to check: the message, or the completion or tool result with the answer. A request has no entry
    yet; then this is the seq of the turn's `begin` entry."""
    calls: tuple[OpenCall, ...] = ()


ASKING = ("approval", "question")
"""Kinds of waits for a person's decision about a call that was not attempted yet."""
Move = Check | Ask | Correct | Close | Pause | Use | Wait | Finish
Decider = Callable[[Agent, RunState], Move | None]
"""A function that returns the next move; `None` means that the agent's program continues."""


def decide(agent: Agent, state: RunState) -> Move:
    """Return the next move of the open turn. The move follows from the arguments alone, and nothing is written."""
    turn = state.turn
    assert turn is not None and turn.reason is None, "there is no open turn to decide in"
    if turn.assistant is not None:
        return Finish("answered", value=None if isinstance(turn.value, str) else turn.value)
    move = decide_calls(agent, state) or _answer(agent, state, turn) or _request(agent, state, turn)
    return move if agent.hooks is None else _checked_move(agent.hooks, move, state, turn)


def _checked_move(hooks: Hooks, move: Move, state: RunState, turn: Turn) -> Move:
    """Return a move that calls a hook, if a hook must be called before `move`; otherwise return `move`.

    If a hook changed the answer, the returned move has the changed answer.
    """
    check = _check(hooks, move, state, turn)
    if check is not None and turn.waits is not None and turn.waits[0] > state.since:  # a later lease asks again
        return Wait((Waiting("child", run=turn.waits[1]) if turn.waits[1] else Waiting("copy"),))
    if check is None and isinstance(move, Finish) and move.reason == "answered" and turn.changed is not None:
        of = turn.answer_seq
        assert of is not None
        return Finish("answered", value=turn.value, causes=(of, turn.changed))
    return check or move


def _check(hooks: Hooks, move: Move, state: RunState, turn: Turn) -> Check | None:
    """Return a move that calls a hook, if a hook must be called before `move`; otherwise return `None`."""
    match move:
        case Ask() | Finish("budget") | Wait((Waiting("budget"),)) if (  # the hook may make the message smaller
            hooks.message is not None and not turn.asked and turn.question not in turn.checked
        ):
            return Check("message", turn.question)
        case Ask():
            if hooks.request is not None and turn.asked <= turn.requests and turn.request_mark not in turn.checked:
                return Check("request", turn.begin)
        case Use() | Wait() if hooks.call is not None:
            waits = () if isinstance(move, Use) else move.what
            seqs = [each.seq for each in move.run] if isinstance(move, Use) else []
            seqs += [each.call for each in waits if each.call is not None and each.what in ASKING]
            calls = [call for call in map(state.call, seqs) if call is not None and call.unchecked]
            return Check("call", calls=tuple(calls)) if calls else None
        case Finish("answered") if hooks.answer is not None:
            of = turn.answer_seq
            return Check("answer", of) if of is not None and of not in turn.checked else None
    return None


def decide_calls(agent: Agent, state: RunState) -> Use | Wait | Finish | None:
    """Return the next move for the open calls; `None` if they need no move now."""
    turn = state.turn
    assert turn is not None
    limits, over = agent.policy.limits, _over(turn)
    if over is not None:
        return over
    if turn.deaths >= agent.policy.deaths:
        return Wait((Waiting("deaths"),))
    if limits.calls is not None and turn.calls > limits.calls:
        return _limit("calls", limits.calls)
    return _calls(agent, state)


def decide_request(agent: Agent, state: RunState) -> Move:
    """Return `Ask`, or a move that must come before the request, or a move that ends the turn."""
    assert state.turn is not None
    return _over(state.turn) or _request(agent, state, state.turn)


def _request(agent: Agent, state: RunState, turn: Turn) -> Move:
    rule = agent.policy.compact
    large = rule is not None and state.weight.tokens > rule.at_tokens and turn.smallest != turn.request_mark
    stop: Wait | Finish | None = _bounded(agent, turn)
    if stop is None and (turn.requests or not large):  # what earlier turns left is no reason not to begin
        stop = _afford(agent, state)
    if stop is not None:
        return stop
    lost = state.asked.seq if state.asked is not None and state.asked.open else None
    if state.calls or lost is not None:
        return Close(tuple(placeholder(agent, call) for call in state.calls.values()), lost)
    if turn.retry_at is not None:
        return Pause(*turn.retry_at)
    return Ask(compact=large)


def decide_step(agent: Agent, state: RunState, name: str) -> Finish | Wait | None:
    """Return the move to make in place of a program's step; `None` if the program may do the step now.

    Args:
        name: name of the step.
    """
    turn, bound = state.turn, agent.policy.limits.calls
    assert turn is not None
    over = _over(turn)
    if over is not None:
        return over
    if bound is not None and name not in state.steps.named and len(state.steps.named) >= bound:
        return _limit("calls", bound)
    if state.copied:  # the original record may do the step too
        return Wait((Waiting("copy", tool=name),))
    return None


def decide_program(agent: Agent, state: RunState) -> Finish | Wait | None:
    """Return the move to make in place of a pass of a program; `None` if the program may be started again.

    The turn ends if it was cancelled, and waits if too many processes died in it.
    """
    assert state.turn is not None
    over = _over(state.turn)
    if over is not None:
        return over
    return Wait((Waiting("deaths"),)) if state.turn.deaths >= agent.policy.deaths else None


def depth_error(limits: Limits, state: RunState) -> Error | None:
    """Return an error if one more agent below this run would exceed `Limits.depth`; `None` if it would not."""
    opened, most = state.opened, limits.depth
    if opened is None or opened.depth < most:
        return None
    found = f"This run has {opened.depth} runs above it; agents may call agents {most} deep"
    return Error(type=DEPTH, message=f"{found}. Raise Policy(limits=Limits(depth={most})) if that is meant.")


def retry_wait_s(agent: Agent, turn: Turn, fault: ModelFault) -> float | None:
    """Return the seconds to wait after a failed try of a request; `None` if it is not tried again."""
    retry, failed = agent.policy.retry, turn.faults + 1
    return retry.wait_s(failed, fault.retry_after_s) if fault.retry and failed < retry.tries else None


def _over(turn: Turn) -> Finish | None:
    """Return the move that ends a turn which was cancelled, failed, or nested agents too deeply; else `None`."""
    if turn.cancelled is not None:
        return Finish("cancelled", Error(type="cancelled", message=f"cancelled by {turn.cancelled}"))
    if turn.fatal is not None:
        return Finish("failed", turn.fatal)
    if turn.limit is not None:
        return Finish("limit", turn.limit)
    return None


def _calls(agent: Agent, state: RunState) -> Use | Wait | None:
    """Return the move for the open calls of this turn; `None` if they need no move now."""
    if not state.calls and not state.unknown:
        return None
    run, settle, waits = list[OpenCall](), list[OpenCall](), list[Waiting]()
    if state.unknown:
        settle = [call for call in state.unknown.values() if resolved_early(call, state)]
    doubted = doubted_tools(agent, state) if [*state.calls][1:] else NO_TOOLS
    for call in state.current():
        found = course(agent, call, state, doubted)
        if found == "run":
            if not waits or agent.policy.parallel > 1:  # with 1, calls keep their order
                run.append(call)
        elif found == "settle":
            settle.append(call)
        elif found != "close":
            waits += _waiting(agent, call, found)
        # else the call gets a placeholder before the next request
    if run or settle:
        return Use(tuple(run[: max(1, agent.policy.parallel)]), tuple(settle))
    return Wait(tuple(waits)) if waits else None


def _waiting(agent: Agent, call: OpenCall, what: Blocking) -> list[Waiting]:
    tool = agent.tool(call.name)
    declared = tool is None or tool.declared
    if what == "question" and call.asks:
        return [Waiting(what, call.seq, call.name, seq, declared) for seq in call.asks]
    attempt = call.last.seq if call.last is not None else None
    of = {"approval": call.asked, "question": call.question}.get(what, attempt)
    child = call.last.child if call.last is not None and what == "child" else ""
    why = lost_tool(agent, call.name) if tool is None and what in ("doubt", "running") else ""
    return [Waiting(what, call.seq, call.name, of, declared, child, why=why)]


def _answer(agent: Agent, state: RunState, turn: Turn) -> Move | None:
    """Return the move for an answer of the model, or of a tool that ends the turn.

    Return `None` if there is no answer yet, or if the model is asked again after an empty reply.
    """
    if turn.ended_by is not None:
        return _ended_by_tool(agent, state, turn)
    if turn.reply is None:
        return None
    if turn.empty:
        return _empty(agent, turn)
    if agent.answer_type is None:
        return Finish("answered")
    try:
        agent.answer_type.read(agent.answer_text(turn.text))
    except BadArguments as wrong:
        if turn.corrections >= agent.policy.retry.corrections:
            return Finish("failed", Error(type="BadAnswer", message=str(wrong)))
        return _bounded(agent, turn) or _afford(agent, state) or Correct(str(wrong))
    return Finish("answered")


def _ended_by_tool(agent: Agent, state: RunState, turn: Turn) -> Move:
    """Return the move after a tool's result has ended the turn: close the other open calls, and then finish."""
    assert turn.ended_by is not None
    if state.calls:
        return Close(tuple(placeholder(agent, call) for call in state.calls.values()))
    value = "" if turn.value is None and agent.output is None else turn.value
    if agent.answer_type is not None:
        try:
            agent.answer_type.given(value)
        except BadArguments as wrong:
            return Finish("failed", Error(type="BadAnswer", message=str(wrong)))
    return Finish("answered", value=value, causes=(turn.ended_by[1],))


def _empty(agent: Agent, turn: Turn) -> Finish | None:
    if asks_again(agent, turn):
        return None
    message = f"The model answered with nothing (no text, no tool call) {turn.empty} times in a row."
    if turn.finish is not None:
        message += f" The provider's reason was {turn.finish[:100]!r}."
    return Finish("failed", Error(type="EmptyReply", message=message))


def asks_again(agent: Agent, turn: Turn) -> bool:
    """Return whether the model's last reply was empty and the policy allows asking the model again."""
    return 0 < turn.empty <= agent.policy.retry.empty


def _bounded(agent: Agent, turn: Turn) -> Finish | None:
    """Return the move that ends the turn because a limit of requests or calls is reached; else `None`."""
    limits = agent.policy.limits
    for name, count, bound in (("requests", turn.requests, limits.requests), ("calls", turn.calls, limits.calls)):
        if bound is not None and count >= bound:
            return _limit(name, bound)
    return None


def _afford(agent: Agent, state: RunState) -> Wait | Finish | None:
    """Return the move that ends the turn, or asks a person, because the budget does not suffice; else `None`."""
    assert state.turn is not None
    budget, spending = agent.policy.budget, state.turn.spending
    if budget is None and spending.allowed is None:
        return None
    over = overrun(agent, state)
    if over is None:
        return None
    if budget is not None and budget.when_spent == "ask" and not spending.refused:
        of, axis = spending.asked, over.axis
        return Wait((Waiting("budget", of=of, axis=axis, spent=over.counted, bound=over.bound, need=over.need),))
    return Finish("budget", over.error)


def _limit(name: str, bound: int) -> Finish:
    found = f"The turn reached its limit of {bound} {name}"
    todo = f"Raise Policy(limits=Limits({name}={bound})) if it needs more."
    return Finish("limit", Error(type=name, message=f"{found}. {todo}"))
