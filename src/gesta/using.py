"""Using tools: an `attempt` is durable before its tool runs, and nothing that a tool does gets out of here but entries.

Calls of one move run at once. Every result but the last of a batch is awaited until it is
durable, so that a crash costs none of its siblings; the last rides in the commit of what comes next.
"""

import inspect
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anyio
import msgspec

from gesta.agent import Agent
from gesta.calling import Children, ChildWaits, Told, context_of
from gesta.codec import encode_content
from gesta.context import Done, NotDone
from gesta.decide import Use
from gesta.desk import Desk
from gesta.entry import Entry, utc_text
from gesta.errors import BadArguments, GestaError, InDoubt, message_of
from gesta.kinds import AttemptContent, Error, FaultContent, ResolutionContent, ToolResultContent
from gesta.outlive import Outliving, Returned, Thread, strayed
from gesta.pending import UNSETTLED, WAITS, Pending
from gesta.store import Letter, Statements
from gesta.tooling import Tool


async def use(agent: Agent, move: Use, desk: Desk) -> None:
    """Settle what can be settled without trying, then try the rest."""
    for call in move.settle:
        await _settle(agent, call, Work(desk, agent.policy.tool_timeout_s))
    if not move.run:
        await desk.log.durable()
        return
    alone = [call for call in move.run if _transactional(agent, call)]
    for call in alone:
        await _transact(agent, call, desk)
    beside = [call for call in move.run if call not in alone]
    if not beside:
        return
    attempts = [_attempt(agent, call, desk) for call in beside]
    await desk.log.durable()
    left = len(beside)

    async def carry_out(call: Pending, attempt: Entry) -> None:
        nonlocal left
        tool = agent.tool(call.name)
        assert tool is not None, f"decide ran {call.name!r}, which the agent does not have"
        await _try(tool, call, attempt, Work(desk, agent.policy.tool_timeout_s))
        left -= 1
        if left:
            await desk.log.durable()

    if left == 1:
        await carry_out(beside[0], attempts[0])
        return
    works = [partial(carry_out, call, attempt) for call, attempt in zip(beside, attempts, strict=True)]
    await _at_once(works)


def _transactional(agent: Agent, call: Pending) -> bool:
    tool = agent.tool(call.name)
    return tool is not None and tool.effect == "transactional"


async def _transact(agent: Agent, call: Pending, desk: Desk) -> None:
    """Carry out a call whose tables live in the record: attempt, effect and result are one commit."""
    tool, attempt = agent.tool(call.name), _attempt(agent, call, desk)
    assert tool is not None

    def work(sql: Statements) -> bool:
        context = context_of(call, attempt.seq, desk, lambda: False, Children())
        try:
            told = dict.fromkeys(tool.context_names, msgspec.structs.replace(context, sql=sql))
            returned = Returned(tool.function(**tool.arguments(call.final_args), **told))
        except Exception as failure:  # noqa: BLE001 - whatever a tool raises is the model's to read
            returned = Returned(failure=failure)
        content = msgspec.structs.replace(_stated(tool, _result(returned)), call=call.seq)
        desk.observe(desk.write(content, attempt.seq))
        return returned.failure is None

    await desk.log.journal.transact(work, tool.timeout_s or agent.policy.tool_timeout_s)


async def _at_once(works: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Do all at once. The first failure of the log ends the others and is raised as itself."""
    failures: list[GestaError] = []

    async def do(work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except GestaError as failure:
            failures.append(failure)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for work in works:
            group.start_soon(do, work)
    if failures:
        raise failures[0]


class Work(msgspec.Struct, frozen=True):
    """What every attempt of a batch shares."""

    desk: Desk
    timeout_s: float | None


def _attempt(agent: Agent, call: Pending, desk: Desk) -> Entry:
    tool, epoch = agent.tool(call.name), desk.log.journal.lease.epoch
    once = tool is None or tool.effect not in ("pure", "idempotent")
    content = AttemptContent(
        of=call.seq, number=call.attempts + 1, epoch=epoch, extra={"effect": "once"} if once else None
    )
    said = call.approved, call.last.settled if call.last is not None else None
    return desk.write(content, call.seq, *(seq for seq in said if seq is not None))


async def _try(tool: Tool, call: Pending, attempt: Entry, work: Work) -> None:
    """Try the effect once, and write its result, or why nobody knows it."""
    desk, bound = work.desk, tool.timeout_s or work.timeout_s
    threads: list[Outliving] = []

    def around(thread: Thread) -> Outliving:
        threads.append(Outliving(thread, partial(_late, desk, tool, call, attempt)))
        return threads[0]

    children = Children()
    context = context_of(call, attempt.seq, desk, lambda: any(thread.left for thread in threads), children)
    try:
        arguments = tool.arguments(call.final_args)
        with anyio.move_on_after(bound) as scope:
            returned = Returned(await tool.invoke(arguments, context, around))
        if scope.cancelled_caught:
            doubt = "timeout", f"{tool.name} did not return within {bound} s"
            _give_up(desk, tool, call, attempt, threads, doubt)
            return
    except InDoubt as unsure:
        _doubt(desk, attempt, "InDoubt", message_of(unsure) or f"{tool.name} cannot say whether its effect happened")
        return
    except (Exception, SystemExit) as failure:  # noqa: BLE001 - whatever a tool raises is the model's to read
        returned = Returned(failure=failure)
    except BaseException as stop:
        waits = _waits(stop)
        if waits is not None:
            run, why = waits.args
            error = Error(type=WAITS, message=f"run {run} is not done: {why}")
            desk.write(FaultContent(of=attempt.seq, error=error, extra={"run": run}), attempt.seq)
            return
        _give_up(desk, tool, call, attempt, threads, ("cancelled", f"{tool.name} was stopped: {type(stop).__name__}"))
        if strayed(stop):
            return
        with anyio.CancelScope(shield=True):
            await desk.log.durable()
        raise
    content = msgspec.structs.replace(_stated(tool, _result(returned)), call=call.seq)
    desk.observe(desk.write(content, attempt.seq, *children.ends))


def _waits(stop: BaseException) -> ChildWaits | None:
    """Find why a tool was left, if a child run is: also where it called several at once."""
    if isinstance(stop, BaseExceptionGroup):
        return next((found for each in stop.exceptions if (found := _waits(each)) is not None), None)
    return stop if isinstance(stop, ChildWaits) else None


def _stated(tool: Tool | None, content: ToolResultContent) -> ToolResultContent:
    """Note the state that a tool which succeeded leaves the run in."""
    if tool is None or tool.state is None or content.outcome != "ok":
        return content
    return msgspec.structs.replace(content, extra={**(content.extra or {}), "state": tool.state})


def _give_up(
    desk: Desk, tool: Tool, call: Pending, attempt: Entry, threads: Sequence[Outliving], doubt: tuple[str, str]
) -> None:
    """Leave what does not return: its result if it came at the last moment, else a doubt."""
    returned = threads[0].leave() if threads else None
    if returned is not None:
        _answer(desk, call, attempt, _stated(tool, _result(returned)))
    else:
        _doubt(desk, attempt, *doubt)


async def _late(desk: Desk, tool: Tool, call: Pending, attempt: Entry, returned: Returned) -> None:
    """Put the result of a call that was given up into the inbox."""
    content = msgspec.structs.replace(_stated(tool, _result(returned)), call=call.seq)
    text = encode_content(content, None)
    await desk.log.journal.store.send(Letter(desk.log.run, f"late-{attempt.seq}", text, utc_text(desk.clock())))


def _result(returned: Returned) -> ToolResultContent:
    """Say how a function ended: its value as JSON where its type says how, or what it raised."""
    failure = returned.failure
    if isinstance(returned.value, Told):
        return ToolResultContent(tool_result=plain(returned.value.result), extra=returned.value.extra, outcome="ok")
    if failure is None:
        return ToolResultContent(tool_result=plain(returned.value), outcome="ok")
    if isinstance(failure, BadArguments):
        return ToolResultContent(tool_result=str(failure), status="error", outcome="error")
    return _failed(failure)


def _answer(desk: Desk, call: Pending, attempt: Entry, content: ToolResultContent) -> None:
    """Write a result, and tell of it once it is durable."""
    desk.observe(desk.write(msgspec.structs.replace(content, call=call.seq), attempt.seq))


def _failed(failure: BaseException) -> ToolResultContent:
    """Say what a tool raised: its type and message to the model, the traceback to people."""
    name, text = type(failure).__name__, message_of(failure)
    trace = "".join(traceback.format_exception(failure, limit=-8))
    return ToolResultContent(
        tool_result=f"{name}: {text}" if text else name,
        status="error",
        outcome="error",
        extra={"error": {"type": name, "message": text, "traceback": trace}},
    )


def _doubt(desk: Desk, attempt: Entry, type_: str, message: str) -> None:
    desk.write(FaultContent(of=attempt.seq, error=Error(type=type_, message=message)), attempt.seq)


async def _settle(agent: Agent, call: Pending, work: Work) -> None:
    """Turn a resolution into the call's result, or ask the tool what became of the effect."""
    last, desk = call.last, work.desk
    if call.answer is not None or (call.approval is not None and call.approval.verdict == "answered"):
        value = call.answer.value if call.answer is not None else call.approval.result if call.approval else None
        content = ToolResultContent(call=call.seq, tool_result=value, outcome="ok", extra={"by": _who(call)})
        desk.observe(desk.write(content, call.seq, *([call.approved] if call.approved is not None else [])))
        return
    assert last is not None
    if last.verdict is None:
        await _reconcile(agent, call, work)
        return
    done = last.verdict == "done"
    content = ToolResultContent(
        call=call.seq,
        tool_result=call.result if call.result is not None or done else "The call did not happen.",
        status="success" if done else "error",
        outcome="ok" if done else "error",
    )
    content = _stated(agent.tool(call.name), content)
    desk.observe(desk.write(content, last.seq, *([last.settled] if last.settled is not None else [])))


def _who(call: Pending) -> str:
    said = call.answer or call.approval
    return said.by if said is not None else ""


async def _reconcile(agent: Agent, call: Pending, work: Work) -> None:
    """Ask the tool by the key of the call; whatever it raises, and no answer in time, counts as not knowing."""
    last, desk, tool = call.last, work.desk, agent.tool(call.name)
    assert last is not None and tool is not None and tool.reconcile is not None
    context = context_of(call, last.seq, desk, lambda: False, Children())
    given: tuple[Any, ...] = (context.key, context)[: len(inspect.signature(tool.reconcile).parameters)]
    found: Any = "no answer in time"
    try:
        with anyio.move_on_after(tool.timeout_s or work.timeout_s):
            if inspect.iscoroutinefunction(tool.reconcile):
                found = await tool.reconcile(*given)
            else:
                found = await anyio.to_thread.run_sync(tool.reconcile, *given, abandon_on_cancel=True)
                found = await found if inspect.isawaitable(found) else found
    except (Exception, SystemExit) as failure:  # noqa: BLE001 - raising is one way of not knowing
        found = f"{type(failure).__name__}: {message_of(failure)}"
    by = f"reconcile of {tool.name}"
    match found:
        case Done(result):
            verdict = ResolutionContent(of=last.seq, verdict="done", by=by, result=plain(result))
        case NotDone():
            again = call.attempts < agent.policy.attempts
            verdict = ResolutionContent(of=last.seq, verdict="retry" if again else "failed", by=by)
        case _:
            error = Error(type=UNSETTLED, message=f"{by} could not tell: {found}")
            desk.write(FaultContent(of=last.seq, error=error), last.seq)
            return
    desk.write(verdict, last.seq)


def plain(value: Any) -> Any:
    """Turn what a tool returned into JSON values where its type says how: structs, dataclasses, pydantic models."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    dump = getattr(type(value), "model_dump", None)
    try:
        return dump(value, mode="json") if dump is not None else msgspec.to_builtins(value, enc_hook=_dumped)
    except Exception:  # noqa: BLE001 - what has no JSON form is written by the codec, which is total
        return value


def _dumped(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(type(value), "model_dump") else value
