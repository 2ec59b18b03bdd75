"""Decides what to do next with an open call (a call without a result): attempt it, settle it, wait, or close it.

To settle is to find out what became of an attempt in doubt (nobody knows whether it had its effect), or to use its
resolution: what a person or the tool's `reconcile` said about it. To close is to write a placeholder as its result,
which says that the call was denied, that it never ran, or that its outcome is unknown.
"""

import re
from typing import Literal

from gesta.agent import Agent
from gesta.errors import BadArguments, nearest
from gesta.function_tool.tool import Tool
from gesta.kinds import ToolResultContent
from gesta.state.calls import ASKS, EFFECTS, EXPIRED, WAITING, WAITS, OpenCall, Try
from gesta.state.run import RunState

NEVER = "This call was not carried out."
DENIED = "A person did not allow this call."
INTERRUPTED = "This call was interrupted and has no result. It only reads, so it may be made again."
UNKNOWN = (
    "The outcome of this call is unknown: it was started, and nobody can say whether it happened. Do not assume "
    "either, and do not make it again without a person's consent."
)
NOT_KNOWN = "Whether its earlier attempt happened is not known."
Blocking = Literal["approval", "doubt", "running", "child", "question", "copy"]
Course = Literal["run", "settle", "close"] | Blocking
"""What to do next with a call: one of three actions, or what it waits for."""


def course(agent: Agent, call: OpenCall, state: RunState, doubted: frozenset[str]) -> Course:
    """Return what to do next with an open call.

    Args:
        doubted: names of tools with an open call in doubt, as `doubted_tools` returns them.
    """
    assert state.turn is not None
    found = _alone(agent, call, state, doubted)
    if found == "child" and state.copied and call.last is not None and not call.last.child:
        return "copy"  # its tool called an agent that may have effects
    if found != "run":
        return found
    if call.seq < state.turn.begin:  # calls of an ended turn are not tried again
        return "close"
    if state.mark is not None and state.copied:
        tool = agent.tool(call.name)
        if tool is not None and tool.effect != "pure":
            return "copy"
    return "run"


def _alone(agent: Agent, call: OpenCall, state: RunState, doubted: frozenset[str]) -> Course:
    """Return what to do next with a call. Its turn, and whether the record is a copy, are not considered."""
    tool, last = agent.tool(call.name), call.last
    if not call.good:
        return "close"
    if last is not None and last.verdict is not None:
        return _resolved(tool, call, last, state.since)
    if last is not None and last.doubt in WAITING:
        found = _paused(tool, call, last, state.since)
        if found is not None:
            return found
    elif call.running(state.since):
        return "running"
    elif call.in_doubt(state.since):
        return _doubt(agent, call, state)
    said = call.approval.verdict if call.approval is not None else None
    hook = call.check.verdict if call.check is not None else None
    if call.answer is not None or said == "answered":
        return "settle"
    if tool is None and call.question is not None:  # a person was asked, and may still answer
        return "question"
    if tool is None or said == "denied" or hook == "refused":
        return "close"
    if tool.asks:
        return "question"
    if said is not None:
        return "run"
    asked = (
        tool.approval
        or call.repeats
        or hook == "asked"
        or call.name in doubted
        or ((state.doubtful or state.above or state.unknown) and call.name in state.doubts())
    )
    return "approval" if asked else "run"


def doubted_tools(agent: Agent, state: RunState) -> frozenset[str]:
    """Return the names of tools with an open call that may have had an effect, if nobody knows whether it did.

    Cost: looks at each open call once.
    """
    found: set[str] = set()
    for call in state.calls.values():
        if call.last is None or call.last.doubt in WAITING or call.name in found:
            continue
        tool = agent.tool(call.name)
        if effect_of(tool, call.last) == "pure":
            continue
        if call.last.verdict is not None:
            doubtful = awaits_end(tool, call.last)
        else:
            doubtful = call.in_doubt(state.since) and _doubt(agent, call, state) != "run"
        if doubtful:
            found.add(call.name)
    return frozenset(found)


def _paused(tool: Tool | None, call: OpenCall, last: Try, since: int) -> Course | None:
    """Return what to do next with a call whose attempt ended in order to wait for a person or a child run.

    Return `None` if the call may be attempted again, as far as the wait is concerned.

    Args:
        last: that attempt.
        since: seq of the run's last entry when this process acquired the lease (the right to write the run).
    """
    if last.doubt == ASKS and call.asks:
        return "question"
    if last.doubt == WAITS and replaced(tool, last):  # only the end of the child run can be the result
        return "settle" if call.unlooked(since) else "child"
    if last.doubt == WAITS and (last.seq > since or tool is None):
        return "child"
    if tool is None:
        return "close"
    return "run" if last.doubt == WAITS and tool.agent is not None else None


def replaced(tool: Tool | None, last: Try) -> bool:
    """Return whether the tool is an agent now and was a function at the time of the attempt, or the other way round.

    Such a tool cannot continue the attempt: a function does not know the child run of an agent, and an agent does not
    use the idempotency key of a function. An attempt without effects needs no continuation.
    """
    if last.key is None or last.effect == "pure":  # format 1 has no key, and does not say whether it was an agent
        return False
    return (last.agent is not None) != (tool is not None and tool.agent is not None)


def effect_of(tool: Tool | None, last: Try) -> str:
    """Return the `effect` to assume for a call in doubt.

    A tool may have had another `effect` at the time of the attempt. Then the stricter of the two is
    assumed: `once` before `idempotent` before `pure`. If the tool was an agent and is a function now, or the other way
    round, `once` is assumed.
    """
    if last.effect in EFFECTS or replaced(tool, last) or (tool is None and last.effect != "pure"):
        return "once"
    if tool is None:
        return "pure"
    if tool.effect == "pure" and last.effect == "idempotent":
        return "idempotent"
    return tool.effect


def _resolved(tool: Tool | None, call: OpenCall, last: Try, since: int) -> Course:
    """Return what to do next with a call that has a resolution.

    Args:
        last: the latest attempt of the call, which the resolution is about.
        since: seq of the run's last entry when this process acquired the lease (the right to write the run).
    """
    if awaits_end(tool, last):
        return "settle" if call.unlooked(since) else "running"
    if last.verdict != "retry" or tool is None:
        return "settle"
    if call.approval is None:
        return "approval" if tool.approval else "run"
    if call.approval.verdict == "answered":
        return "settle"
    return "run" if call.approval.verdict == "approved" else "close"


def resolved_early(call: OpenCall, state: RunState) -> bool:
    """Return whether to check if the attempt of a call has ended: a person resolved it, and the model was told before.

    Until it has ended, the effect could still happen, so the call stays in doubt.
    """
    last = call.last
    if last is None or last.verdict is None or call.seq in state.calls:
        return False
    forked = state.opened is not None and state.opened.base is not None
    return not last.final and not forked and call.unlooked(state.since)


def awaits_end(tool: Tool | None, last: Try) -> bool:
    """Return whether the resolution of the attempt `last` cannot be used until the attempt has ended.

    Until then, the effect could still happen.
    """
    if last.final or last.doubt in WAITING:
        return False
    effect = effect_of(tool, last)
    return effect != "pure" and not (effect == "idempotent" and last.verdict == "retry" and not last.expired)


def _doubt(agent: Agent, call: OpenCall, state: RunState) -> Course:
    tool, last = agent.tool(call.name), call.last
    assert last is not None
    effect = effect_of(tool, last)
    if tool is not None and tool.agent is not None and effect != "once" and _fits(tool, call):
        return "run"  # its child run is on record and continues where it was
    left = call.attempts - call.waited < agent.policy.attempts and not last.expired
    if effect == "pure":
        return "run" if left and tool is not None else "close"
    begun = state.turn.begin if state.turn is not None else 0
    if effect == "idempotent" and left and call.seq > begun and tool is not None and _fits(tool, call):
        return "run"
    if call.unlooked(state.since):
        return "settle"
    if tool is None or replaced(tool, last):
        return "doubt"
    if tool.reconcile is not None and call.unasked(state.since):
        return "settle"
    return "doubt" if tool.on_doubt == "ask" else "close"


def _fits(tool: Tool, call: OpenCall) -> bool:
    """Return whether the call's arguments fit the tool's signature, which may have changed since the attempt."""
    try:
        tool.arguments(call.final_args)
    except BadArguments:
        return False
    return True


def placeholder(agent: Agent, call: OpenCall) -> ToolResultContent:
    """Return the placeholder to write as the result of a call that has no real result.

    The placeholder says why there is no result. The history stays valid, because each call then has a result.
    """
    text, outcome = _placeholder(agent, call)
    return ToolResultContent(call=call.seq, tool_result=text, status="error", outcome=outcome)


def _placeholder(agent: Agent, call: OpenCall) -> tuple[str, Literal["error", "denied", "interrupted", "unknown"]]:
    if not call.good:
        return call.error or NEVER, "error"
    if call.check is not None and call.check.verdict == "refused":
        return call.check.words or NEVER, "denied"
    if call.approval is not None and call.approval.verdict == "denied":
        said = "" if call.approval.by == EXPIRED else "They said: "
        reason = f" {said}{call.approval.reason}" if call.approval.reason else ""
        return f"{DENIED}{reason}{_earlier(call.last)}", "denied"
    tool = agent.tool(call.name)
    if tool is None and (call.last is None or call.last.effect == "pure"):
        return no_such_tool(agent, call.name), "error"
    if call.last is None:
        return NEVER, "interrupted"
    if tool is not None and only_reads(tool) and effect_of(tool, call.last) in ("pure", "idempotent"):
        return INTERRUPTED, "interrupted"
    return UNKNOWN, "unknown"


def _earlier(last: Try | None) -> str:
    """Return a sentence about an attempt of a call that is not made again; empty if it certainly had no effect."""
    harmless = last is None or last.effect == "pure" or last.void or last.doubt in WAITING
    return "" if harmless else f" {NOT_KNOWN}"


def gone(name: str) -> str:
    """Return what the model reads of a call that may be tried again, but whose tool the agent does not have any more.

    Nobody said that the attempt in doubt did not happen.
    """
    return f"There is no tool {name!r} any more, so this call was not tried again. {NOT_KNOWN}"


def only_reads(tool: Tool) -> bool:
    """Return whether a tool only reads, so that its call can safely be made again.

    For a tool that runs an agent: whether the agent only reads. For any other tool: whether its effect is `pure`.
    """
    return agent_only_reads(tool.agent) if tool.agent is not None else tool.effect == "pure"


def agent_only_reads(agent: Agent) -> bool:
    """Return whether an agent has no program and no sources of tools, and all its tools only read."""
    return agent.program is None and not agent.sources and all(map(only_reads, agent.tools))


def no_such_tool(agent: Agent, name: str) -> str:
    """Return a sentence for the model which says that the tool does not exist, and which tools do."""
    names = [tool.name for tool in agent.tools]
    return f"There is no tool {name!r}.{nearest(name, names)} Tools: {', '.join(names) or 'none'}."


def lost_tool(agent: Agent, name: str) -> str:
    """Return a sentence for a person who settles a doubt: why the agent can neither look the call up nor try it again.

    The sentence has no full stop, as the message of an error.
    """
    names = ", ".join(tool.name for tool in agent.tools)
    return f"the agent {agent.name!r} has no tool {name!r} any more (its tools: {names or 'none'})"


def tools_told(text: str) -> list[str]:
    """Return the tool names in a text made by `no_such_tool`; an empty list for any other text."""
    found = re.fullmatch(r"There is no tool .* Tools: ([\w, -]+)\.", text, re.DOTALL)
    return found[1].split(", ") if found is not None else []
