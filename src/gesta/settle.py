"""A call in doubt is settled without trying it again: by a person's word, or by asking the tool what became of it.

Before anybody is asked it is looked up, once for each lease, whether the attempt has ended. A `NotDone` of an attempt
that may still be at work is not believed: it may be done a moment later.
"""

import inspect
from functools import partial
from typing import Any

import anyio

from gesta.agent import Agent
from gesta.calling import Trial, attempt_name, call_key, context_of
from gesta.context import Done, NotDone
from gesta.desk import ASKED, Desk
from gesta.errors import message_of
from gesta.kinds import Error, FaultContent, ResolutionContent, ToolResultContent
from gesta.outlive import Outliving, caught, works
from gesta.pending import UNKNOWN_END, UNSETTLED, Pending
from gesta.result import plain, stated
from gesta.stop import TurnLeft
from gesta.tooling import Tool


async def settle(agent: Agent, call: Pending, desk: Desk) -> None:
    """Turn an answer or a resolution into the call's result, or find out what became of its last attempt."""
    last = call.last
    if call.answer is not None or (call.approval is not None and call.approval.verdict == "answered"):
        _answer(call, desk)
        return
    assert last is not None
    tool = agent.tool(call.name)
    if last.verdict in ("done", "failed") or (last.verdict is not None and tool is None):
        _resolve(tool, call, desk)
        return
    over = last.over
    if call.unlooked(desk.state.since):
        over = await _look(call, desk)
    asked = last.asked_over if over else last.asked
    if last.verdict is None and tool is not None and tool.reconcile is not None and not asked:
        await _reconcile(agent, call, desk, over=over)


def _answer(call: Pending, desk: Desk) -> None:
    """Write what a person gave in place of the tool."""
    said = call.answer or call.approval
    assert said is not None
    value = call.answer.value if call.answer is not None else call.approval.result if call.approval else None
    content = ToolResultContent(call=call.seq, tool_result=value, outcome="ok", extra={"by": said.by})
    desk.observe(desk.write(content, call.seq, *([call.approved] if call.approved is not None else [])))


def _resolve(tool: Tool | None, call: Pending, desk: Desk) -> None:
    """Write the result that a resolution stands for."""
    last = call.last
    assert last is not None
    done = last.verdict == "done"
    content = ToolResultContent(
        call=call.seq,
        tool_result=call.result if call.result is not None or done else "The call did not happen.",
        status="success" if done else "error",
        outcome="ok" if done else "error",
    )
    settled = [last.settled] if last.settled is not None else []
    desk.observe(desk.write(stated(tool, content), last.seq, *settled))


async def _look(call: Pending, desk: Desk) -> bool:
    """Find out whether the last attempt has ended, and write that down."""
    last, journal = call.last, desk.log.journal
    assert last is not None
    if last.process == journal.lease.owner:
        over = not works(attempt_name(desk, last.seq))
    else:
        over = last.process is not None and await _gone(last.process, desk)
    found = "has ended" if over else "may still be at work, for all that is known"
    error = Error(type=UNKNOWN_END, message=f"what that attempt began {found}")
    desk.write(FaultContent(of=last.seq, error=error, over=over), last.seq)
    return over


async def _gone(process: str, desk: Desk) -> bool:
    """Return whether a process has ended for certain: the store tells, or who started it; that is written down."""
    store, asked = desk.log.journal.store, desk.host.terms.gone
    found = await store.gone(process)
    if found is None and asked(process) is True:
        await store.declare_gone(process, ASKED)
        return True
    return found is True


async def _asked(tool: Tool, given: tuple[Any, ...]) -> Any:
    """Ask what became of an effect, in a thread unless the function is async."""
    assert tool.reconcile is not None
    if inspect.iscoroutinefunction(tool.reconcile):
        return await tool.reconcile(*given)
    found = await Outliving(lambda _: None, None).carry_out(partial(tool.reconcile, *given))
    return await found if inspect.isawaitable(found) else found


async def _reconcile(agent: Agent, call: Pending, desk: Desk, *, over: bool) -> None:
    """Ask the tool by the key of the call; whatever it raises, and no answer in time, counts as not knowing."""
    last, tool, opened = call.last, agent.tool(call.name), desk.state.opened
    assert last is not None and tool is not None and tool.reconcile is not None and opened is not None
    key = last.key or call_key(opened.record, desk.log.run, call.seq)
    context = context_of(Trial(call, last.seq, key), desk)
    given: tuple[Any, ...] = (key, context)[: len(inspect.signature(tool.reconcile).parameters)]
    found: Any = "no answer in time"
    with desk.stop.breaking() as stopped, anyio.move_on_after(tool.timeout_s or agent.policy.tool_timeout_s):
        returned = await caught(_asked(tool, given))
        failure = returned.failure
        found = returned.value if failure is None else f"{type(failure).__name__}: {message_of(failure)}"
    if stopped.cancelled_caught:
        raise TurnLeft
    by = f"reconcile of {tool.name}"
    match found:
        case Done(result):
            desk.write(ResolutionContent(of=last.seq, verdict="done", by=by, result=plain(result)), last.seq)
        case NotDone(void) if void or over:
            again = call.attempts < agent.policy.attempts
            verdict = ResolutionContent(of=last.seq, verdict="retry" if again else "failed", by=by, void=void)
            desk.write(verdict, last.seq)
        case _:
            said = "not done, but the attempt may still be at work" if isinstance(found, NotDone) else found
            error = Error(type=UNSETTLED, message=f"{by} could not tell: {said}")
            desk.write(FaultContent(of=last.seq, error=error, over=True if over else None), last.seq)
