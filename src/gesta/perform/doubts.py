"""Settles a call in doubt without running its tool again: by a person's resolution, or by the tool's `reconcile`.

A call is in doubt if its tool may have been run and nobody knows the outcome. An attempt is one execution of the tool.
Each process that takes over the run first finds out once whether the attempt has ended. As long as the attempt may
still be running, the answer `NotDone` of `reconcile` is ignored, because the effect may happen a moment later.
"""

import inspect
from typing import Any

import anyio
from msgspec.structs import replace

from gesta.agent import Agent
from gesta.decide.open_call import NEVER, awaits_end, gone, replaced
from gesta.entry import fold
from gesta.events import LOGGER
from gesta.function_tool.context import Done, NotDone, Unknown
from gesta.function_tool.reconcile import Untold, answer_of, arguments_for
from gesta.function_tool.tool import Tool
from gesta.kinds import AttemptContent, Error, FaultContent, ResolutionContent, ToolCallContent, ToolResultContent
from gesta.log.journal import read
from gesta.perform.call_contents import plain, stated, words_of
from gesta.perform.child import Trial, attempt_name, call_key, child_name
from gesta.perform.context import context_of
from gesta.perform.execution import GONE_OPTION, LiveRun
from gesta.perform.stop import TurnLeft
from gesta.perform.threads import ThreadCall, caught, mark_of, works
from gesta.state.calls import UNKNOWN_END, UNSETTLED, WAITS, OpenCall
from gesta.state.run import RunView
from gesta.store import Store
from gesta.text.redactor import SECRETS
from gesta.text.visible import visible

LOOK_S = 0.05  # between two looks whether an earlier thread of `reconcile` has ended


async def settle(agent: Agent, call: OpenCall, live: LiveRun) -> None:
    """Write the result of a call if a person supplied the result or resolved the doubt. Otherwise ask `reconcile`.

    Each process that takes over the run asks `reconcile` about the call's last attempt: once while the attempt may be
    running, and once after it has ended.
    """
    last = call.last
    if call.answer is not None or (call.approval is not None and call.approval.verdict == "answered"):
        await _write_answer(agent.tool(call.name), call, live)
        return
    assert last is not None
    tool = agent.tool(call.name)
    if call.seq not in live.state.calls:  # the model was told about it, see `resolved_early`
        await _look(call, live)
        return
    if last.verdict is not None and not awaits_end(tool, last):
        await _resolve(tool, call, live)
        return
    if last.agent is not None and replaced(tool, last) and await _ended_below(tool, call, live):
        return
    if last.doubt == WAITS:
        last.looked = live.state.since + 1
        return
    over = last.over
    if call.unlooked(live.state.since):
        over = await _look(call, live)
    if tool is None or tool.reconcile is None or replaced(tool, last):
        return
    if last.verdict is None and call.unasked(live.state.since):
        await _reconcile(agent, call, live, over=over)


async def _write_answer(tool: Tool | None, call: OpenCall, live: LiveRun) -> None:
    """Write the value that a person gave as the result of a call. The tool is not run."""
    said = call.answer or call.approval
    assert said is not None
    value = call.answer.value if call.answer is not None else call.approval.result if call.approval else None
    doubts = await doubts_below(call, live) if call.last is not None else None
    content = ToolResultContent(call=call.seq, tool_result=value, outcome="ok", by=said.by, doubts=doubts)
    live.write(stated(tool, content), call.seq, *call.said)


async def _resolve(tool: Tool | None, call: OpenCall, live: LiveRun) -> None:
    """Write the result that follows from a resolution: a person's statement whether the effect happened."""
    last = call.last
    assert last is not None
    done = last.verdict == "done"
    told = None if done else gone(call.name) if last.verdict == "retry" else "The call did not happen."
    content = ToolResultContent(
        call=call.seq,
        tool_result=told if call.result is None else call.result,
        status="success" if done else "error",
        outcome="ok" if done else "error",
        doubts=await doubts_below(call, live),
    )
    settled = [last.settled] if last.settled is not None else []
    live.write(stated(tool, content), last.seq, *settled)


async def _ended_below(tool: Tool | None, call: OpenCall, live: LiveRun) -> bool:
    """Write the result of a call of an agent, if its child run has ended. Return whether it has.

    This is for a call whose tool called an agent when the call was made, and calls none in the present program.

    Args:
        tool: the present tool with the name in the call; `None` if there is none.
    """
    last = call.last
    assert last is not None
    run = last.child or await live.host.child_run(child_name(call), live)
    turn = fold(RunView(), await read(live.log.journal.store, run)).turns.get(f"{live.log.run}.{call.seq}")
    if turn is None or turn.end is None:
        return False
    content = ToolResultContent(call=call.seq, tool_result=turn.given, outcome="ok", doubts=list(turn.doubts) or None)
    if turn.reason != "answered":
        said = f": {turn.error.message}" if turn.error is not None else ""
        value = f"{call.name} ended with reason {turn.reason}{said}"
        content = replace(content, tool_result=value, status="error", outcome="error")
    live.write(stated(tool, content), last.seq, (run, turn.end))
    return True


async def doubts_below(call: OpenCall, live: LiveRun) -> list[str] | None:
    """Return the names of tools that the child runs of a call left in doubt, to write them with its result.

    Child runs that have not ended are ended: with the result, nobody waits for them any more.

    Returns:
        The sorted names; `None` without any.
    """
    turn = live.state.turn
    if turn is None or (turn.handed == 0 and not live.state.steps.open and call.seq > turn.begin):
        return None
    return await live.host.call_off(live, child_name(call)) or None


async def _look(call: OpenCall, live: LiveRun) -> bool:
    """Return whether the last attempt of a call has certainly ended, and write an entry that says so.

    If it may still be running, an entry says that, but only once.
    """
    last, journal = call.last, live.log.journal
    assert last is not None
    if last.process == journal.lease.owner:
        over = not works(attempt_name(live, last.seq))
    else:
        over = last.process is not None and await _gone(last.process, live)
    if not over and last.looked:
        last.looked = live.state.since + 1
        return over
    found = "has ended" if over else "may still be at work, for all that is known"
    error = Error(type=UNKNOWN_END, message=f"what that attempt began {found}")
    live.write(FaultContent(of=last.seq, error=error, over=over), last.seq)
    return over


async def _gone(process: str, live: LiveRun) -> bool:
    """Return whether a process has certainly ended, according to the store or the function `gesta.open(gone=...)`.

    If the store does not know, but the function returns `True`, the store keeps that answer.
    """
    store, asked = live.log.journal.store, live.host.terms.gone
    found = await store.gone(process)
    if found is None and asked(process) is True:
        await store.declare_gone(process, GONE_OPTION)
        return True
    return found is True


async def _found_out(agent: Agent, tool: Tool, call: OpenCall, live: LiveRun) -> Done | NotDone | Unknown | Untold:
    """Return what the tool's `reconcile` answers about the last attempt of a call.

    If it raises, is too slow or returns no answer, the words say so. Raises TurnLeft if the turn is asked to stop.
    """
    last, opened = call.last, live.state.opened
    assert last is not None and tool.reconcile is not None and opened is not None
    key = last.key or call_key(opened.record, live.log.run, call.seq)
    context = context_of(Trial(call, last.seq, key), live)
    given = arguments_for(tool.reconcile, key, context)
    found: Done | NotDone | Unknown | Untold = Untold("no answer in time")
    name = f"reconcile of {attempt_name(live, last.seq)}"
    with live.stop.breaking() as stopped, anyio.move_on_after(tool.timeout_s or agent.policy.tool_timeout_s):
        returned = await caught(_asked(tool, given, name))
        found = answer_of(returned.value) if returned.failure is None else Untold(_raised(returned.failure))
    if stopped.cancelled_caught:
        raise TurnLeft
    return found


def _raised(failure: BaseException) -> str:
    name, text = words_of(failure)
    return f"it raised {name}: {text}" if text else f"it raised {name}"


async def _asked(tool: Tool, given: tuple[Any, ...], name: str) -> Any:
    """Return the answer of the tool's `reconcile`. A function that is not async is called in a thread.

    Args:
        given: the arguments for `reconcile`.
        name: a name for the attempt. As long as an earlier thread of that name goes on, no second one is started, so
            that a service that hangs does not collect threads.
    """
    reconcile = tool.reconcile
    assert reconcile is not None
    if inspect.iscoroutinefunction(reconcile):
        return await reconcile(*given)
    while works(name):  # noqa: ASYNC110 - the earlier thread may belong to another event loop
        await anyio.sleep(LOOK_S)
    marks = [mark_of(name, lambda: lambda: None)]

    def ask() -> Any:
        try:
            return reconcile(*given)
        finally:
            marks.clear()  # what the function raised keeps this frame, and must not keep the mark

    found = await ThreadCall(lambda _: None, None).carry_out(ask)
    return await found if inspect.isawaitable(found) else found


async def _reconcile(agent: Agent, call: OpenCall, live: LiveRun, *, over: bool) -> None:
    """Ask the tool's `reconcile` about a call in doubt, and write its answer.

    If `reconcile` raises or is too slow, the call stays in doubt, and an entry says so: once while the attempt may be
    running, and once after it has ended.

    Args:
        over: whether the last attempt has certainly ended.
    """
    last, tool = call.last, agent.tool(call.name)
    assert last is not None and tool is not None
    found, by = await _found_out(agent, tool, call, live), f"reconcile of {tool.name}"
    match found:
        case Done(result):
            live.write(ResolutionContent(of=last.seq, verdict="done", by=by, result=plain(result)), last.seq)
        case NotDone(void) if void or over:
            again = call.attempts < agent.policy.attempts
            verdict = ResolutionContent(of=last.seq, verdict="retry" if again else "failed", by=by, void=void)
            live.write(verdict, last.seq)
        case _ if last.asked and over == last.over:
            last.asked = live.state.since + 1
            if isinstance(found, Untold):
                LOGGER.warning("%s could not tell again: %s", by, visible(SECRETS.text(found.why)))
        case _:
            error = Error(type=UNSETTLED, message=f"{by} could not tell: {_untold(found)}")
            live.write(FaultContent(of=last.seq, error=error, over=True if over else None), last.seq)


def _untold(found: NotDone | Unknown | Untold) -> str:
    """Return in words why an answer of `reconcile` settles nothing."""
    if isinstance(found, Untold):
        return found.why
    early = "not done, but the attempt may still be at work"
    return early if isinstance(found, NotDone) else "it returned gesta.Unknown()"


async def settle_idle(agent: Agent, live: LiveRun) -> None:
    """Write a result for each call that waited for another agent, if that agent's run ended without any effect.

    The result says that the call was interrupted and not carried out. So the call is not in doubt.

    Args:
        agent: the agent whose calls are settled.
        live: the run with the calls.
    """
    for call in list(live.state.calls.values()):
        tool, last = agent.tool(call.name), call.last
        if tool is None or tool.agent is None or last is None or last.doubt != WAITS or not last.child:
            continue
        if await _did_nothing(live.log.journal.store, last.child, tool.agent):
            content = ToolResultContent(call=call.seq, tool_result=NEVER, status="error", outcome="interrupted")
            live.write(content, last.seq)
    live.absorb()


async def _did_nothing(store: Store, run: str, agent: Agent) -> bool:
    """Return whether a child run has ended, and neither it nor the runs below it tried to have an effect."""
    entries = await read(store, run)
    state = fold(RunView(), entries)
    if state.open or state.opened is None or agent.program is not None:
        return False
    calls = {each.seq: each.content for each in entries if isinstance(each.content, ToolCallContent)}
    rows = [row for row in await store.runs(state.opened.session) if row.parent_run == run]
    below = {row.name: row.run for row in rows}
    for each in entries:
        if isinstance(each.content, AttemptContent) and each.content.effect != "pure":
            tool = agent.tool(calls[each.content.of].tool_name)
            child = below.get(f"{calls[each.content.of].tool_name}#{each.content.of}")
            if tool is None or tool.agent is None or child is None or not await _did_nothing(store, child, tool.agent):
                return False
    return True
