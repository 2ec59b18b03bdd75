"""Asks hooks and records their verdicts. A hook is a function of the program that checks what an agent does.

A hook can check a message, a request, a call or an answer. An entry is one recorded fact of a run; its seq is its
number there. A fault is an entry about a try that failed. A child run is the run of an agent that the hook calls.

A verdict is committed together with the entries that follow from it. If a hook allows something, nothing is recorded.
So a process that takes over the turn asks that hook again. But if the hook called an agent, the verdict is recorded,
and the agent does not run again.
"""

import copy
from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import Any, Literal

import anyio
from msgspec import Struct
from msgspec.structs import replace

from gesta.agent import Agent, function_name
from gesta.decide.move import Check
from gesta.errors import message_of
from gesta.events import Outcome
from gesta.hooks import (
    VERDICTS,
    Add,
    AskAgain,
    Asking,
    AskPerson,
    CallHook,
    CallHooks,
    Calling,
    Change,
    Hooks,
    Point,
    Refuse,
    Verdict,
    call_hooks,
)
from gesta.kinds import CheckContent, CompactionContent, Error, FaultContent, SystemContent
from gesta.perform.call_contents import plain, trace_of
from gesta.perform.child import (
    Children,
    ChildTask,
    ChildWaits,
    TooDeep,
    check_called,
    end_deep,
    hand_over,
    refuse_deep,
)
from gesta.perform.context import turn_context
from gesta.perform.execution import LiveRun
from gesta.perform.threads import strayed
from gesta.prompt import observation_text
from gesta.state.account import text_tokens, weigh
from gesta.state.calls import HOOK, WAITS, OpenCall

WRITTEN: dict[type[Verdict], Literal["refused", "changed", "again", "asked", "added"]] = {
    Refuse: "refused",
    Change: "changed",
    AskAgain: "again",
    AskPerson: "asked",
    Add: "added",
}
"""The verdict that is recorded for each type of answer that a hook can return."""
BY = "check"
"""Part of the name of a child run that a hook starts, after the point at which the hook is asked: `answer check#7`, and
`request check 2#1` for the second request of the turn that began at entry 1."""
UNASKED = object()
"""What `_ask_hook` returns if there is no verdict."""


class HookQuestion(Struct, frozen=True):
    """One use of a hook."""

    point: Point
    """Where the hook is asked."""
    of: int
    """Seq of the entry that the hook is asked about."""
    about: Any
    """The value that the hook is asked about."""
    hook: Callable[..., Any]
    children: Children
    """The child runs of the agents that the hook called."""


def guarded(agent: Agent, above: tuple[CallHook, ...]) -> Agent:
    """Return a copy of an agent for a child run, where `above`, the `call` hooks of the agents above it, hold too.

    A function that is the agent's own hook as well is asked once.
    """
    if not above or agent.program is not None:
        return agent
    own = tuple(each for each in call_hooks(agent.hooks) if each not in above)
    return replace(agent, hooks=replace(agent.hooks or Hooks(), call=CallHooks((*above, *own))))


async def check(agent: Agent, move: Check, live: LiveRun) -> None:
    """Ask the hook that a move names, and write its verdict with the entries that follow from it."""
    turn = live.state.turn
    assert turn is not None and agent.hooks is not None
    if move.point == "call":
        for call in move.calls:
            if not await _check_call(agent, call, live):
                return
        return
    about: Any = turn.task
    if move.point == "request":
        about = Asking(number=turn.requests + 1, message=turn.task)
    elif move.point == "answer":
        about = _given(agent, live)
    hook = getattr(agent.hooks, move.point)
    asked = HookQuestion(move.point, move.of, about, hook, Children())
    verdict = await _ask_hook(agent, live, asked)
    if verdict is UNASKED:
        return
    turn.checked.add(turn.request_mark if move.point == "request" else move.of)
    if isinstance(verdict, AskAgain) and turn.corrections >= agent.policy.retry.corrections:
        verdict = Refuse(verdict.words)
    seq = _write(live, asked, verdict)
    if isinstance(verdict, Add):
        live.write(SystemContent(value=verdict.words, source=[hook_name(hook)]), seq)
    elif isinstance(verdict, AskAgain):
        live.write(SystemContent(value=verdict.words, source=[hook_name(hook)], corrects=move.of), seq)
    elif move.point == "message" and isinstance(verdict, Change):
        size, text = _size(live, move.point), str(verdict.value)
        live.write(CompactionContent(from_seq=move.of, to_seq=move.of, summary=text, tokens=size), seq)
    elif isinstance(verdict, Refuse) and move.point != "request":  # the compaction hides it from later turns
        live.write(CompactionContent(from_seq=move.of, to_seq=move.of, tokens=_size(live, move.point)), seq)


def _size(live: LiveRun, point: Point) -> int:
    """Return an estimate of the tokens of the message or the answer that a hook was asked about."""
    asked, turn = live.state.steps.question, live.state.turn
    assert turn is not None
    if point == "message":
        return weigh(asked.content) if asked is not None else 0
    return text_tokens(turn.text if turn.ended_by is None else observation_text(turn.value))


async def _check_call(agent: Agent, call: OpenCall, live: LiveRun) -> bool:
    """Ask the hook about one call, and write its verdict. Return `False` if there is no verdict.

    There is no verdict if the hook failed, or called an agent that waits.
    """
    tool = agent.tool(call.name)
    effect, args, children = tool.effect if tool is not None else "once", call.args, Children()
    said = list[tuple[HookQuestion, Verdict | None]]()
    for hook in call_hooks(agent.hooks):
        calling = Calling(call.name, copy.deepcopy(args), effect, call.seq)
        asked = HookQuestion("call", call.seq, calling, hook, children)
        verdict = await _ask_hook(agent, live, asked)
        if verdict is UNASKED:
            return False
        said.append((asked, verdict))
        if isinstance(verdict, Refuse):
            break
        args = verdict.value if isinstance(verdict, Change) else args
    call.checked = call.seq
    for asked, verdict in [each for each in said if each[1] is not None] or said[-1:]:
        _write(live, asked, verdict)
    return True


def _given(agent: Agent, live: LiveRun) -> Any:
    """Return the answer that the hook checks: a text, or a value of the agent's output type."""
    turn = live.state.turn
    assert turn is not None
    output, value = agent.answer_type, turn.value
    if turn.ended_by is None:
        text = agent.answer_text(turn.text)
        return text if output is None else output.read(text)
    return value if output is None else output.given(value)


async def _ask_hook(agent: Agent, live: LiveRun, asked: HookQuestion) -> Any:
    """Return a hook's verdict.

    If the hook failed, or called an agent that waits, write a `fault` entry and return `UNASKED`.
    """
    turn, point, hook, children = live.state.turn, asked.point, asked.hook, asked.children
    assert turn is not None
    number = f" {turn.requests + 1}" if point == "request" and turn.requests else ""  # `of` is the turn for all of them
    child = f"{point} {BY}{number}#{asked.of}"
    context = replace(turn_context(live), call=partial(_judged, live, child, asked.of, children))
    try:
        with anyio.fail_after(agent.policy.tool_timeout_s):
            given = hook(asked.about, context)
            given = await given if isawaitable(given) else given
        _fitting(agent, point, given)
    except ChildWaits as waits:
        run, why = waits.args
        error = Error(type=WAITS, message=f"{hook_name(hook)} called an agent that waits: {why}")
        live.write(FaultContent(of=turn.begin, error=error, run=run), turn.begin, *children.ends)
        return UNASKED
    except TooDeep:  # a `fault` entry ends the turn
        return UNASKED
    except BaseException as failure:
        if not isinstance(failure, Exception) and not strayed(failure):
            raise
        said = f"{hook_name(hook)}: {type(failure).__name__}: {message_of(failure)}"
        error = Error(type=HOOK, message=said, traceback=trace_of(failure))
        live.write(FaultContent(of=turn.begin, error=error), turn.begin, *children.ends)
        return UNASKED
    if children.begun > len(children.ends):  # the hook did not wait for them
        children.doubts.update(await live.host.call_off(live, child))
    return given


def _fitting(agent: Agent, point: Point, given: Any) -> None:
    """Check that a hook may return the value `given` at this point.

    Raises:
        TypeError: a value of this type is not allowed at this point.
        BadArguments: the hook changed the agent's answer, and the new answer does not fit the agent's output type.
    """
    if given is not None and not isinstance(given, VERDICTS[point]):
        names = ", ".join(each.__name__ for each in VERDICTS[point])
        raise TypeError(f"it returned {given!r:.60}, expected None, {names}")
    if isinstance(given, Change):
        wanted = {"message": str, "call": dict}.get(point, object)
        if point == "answer" and agent.output is None:
            wanted = str
        if not isinstance(given.value, wanted):
            raise TypeError(f"it changed the {point} to {given.value!r:.60}, expected a {wanted.__name__}")
        if point == "answer" and agent.answer_type is not None:
            agent.answer_type.given(plain(given.value))


async def _judged(live: LiveRun, child: str, of: int, children: Children, agent: Agent, input: str) -> Outcome:
    """Call another agent for a hook, in a child run, and return its outcome.

    If the hook is asked again, the agent does not run again: its outcome is read from the child run.

    Args:
        child: name of the hook's first child run; later ones get a number.
        of: seq of the entry that the hook is asked about.
        children: the child runs of the hook, to which this one is added.
    """
    check_called(agent, input)
    refuse_deep(live, of, told=False)
    children.begun += 1
    name = child if children.begun == 1 else f"{child}.{children.begun}"
    live = live.inside(live.log)
    live.guards = ()  # else the hook would be asked about the tools of its own judge
    ended = await hand_over(live, agent, ChildTask(name, f"{live.log.run}.{child}", input, child, of, children))
    assert ended.end is not None
    end_deep(live, of, ended)
    children.ends.append((ended.run, ended.end))
    children.doubts.update(ended.doubts)
    return ended


def _write(live: LiveRun, asked: HookQuestion, verdict: Verdict | None) -> int:
    """Write the verdict of a hook, and return the seq of its entry.

    If the hook allowed everything and called no agent, write nothing and return 0.
    """
    ends, doubts = asked.children.ends, asked.children.doubts
    if verdict is None and not ends and not doubts:
        return 0
    content = CheckContent(
        of=asked.of,
        point=asked.point,
        hook=hook_name(asked.hook),
        verdict=WRITTEN[type(verdict)] if verdict is not None else "allowed",
        words=getattr(verdict, "words", None),
        value=plain(verdict.value) if isinstance(verdict, Change) else None,
        doubts=sorted(doubts) or None,
    )
    return live.write(content, asked.of, *ends).seq


def hook_name(hook: Callable[..., Any]) -> str:
    """Return the name of a hook as `check` entries record it: the last part of the function's name."""
    return function_name(hook).rpartition(".")[2]
