"""What a tool is told about its call, and what it may do beside its own work: answer a listener, call an agent."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from anyio import from_thread
from msgspec import Struct, field

from gesta.affording import returned, share
from gesta.agent import Agent
from gesta.context import Context
from gesta.desk import Desk, Task
from gesta.entry import Cause
from gesta.errors import LeaseLost, RecordError, RunError, message_of
from gesta.kinds import EdgeContent, Hit, RetrievalContent, SystemContent
from gesta.outcome import Outcome
from gesta.pending import Pending
from gesta.spending import CHILD


class Told(Struct, frozen=True):
    """What a tool returns that has more to say than its result: the model reads `result`, the record keeps both."""

    result: Any
    extra: dict[str, Any]


class Children(Struct):
    """The child runs that a tool calls in one attempt: the first, the second, and so on."""

    begun: int = 0
    ends: list[Cause] = field(default_factory=list)
    """Of those that ended: the tool's result is made from them."""


class ChildWaits(BaseException):
    """Leaves a tool whose child run cannot go on now: says which run, and why. No error, and not to be caught."""


def call_key(record: str, run: str, seq: int) -> str:
    """Make the idempotency key of a call, 64 hex: the same however often and wherever the call is tried.

    Args:
        record: id of the record where the run was made.
        run: id of the run.
        seq: seq of the tool-call.
    """
    return hashlib.sha256(f"{record}|{run}|{seq}".encode()).hexdigest()


def context_of(call: Pending, attempt: int, desk: Desk, cancelled: Callable[[], bool], children: Children) -> Context:
    """Make the context of one attempt of a call.

    Args:
        cancelled: says whether nobody waits for it any more.
        children: notes the child runs that the tool calls.
    """
    opened = desk.state.opened
    assert opened is not None
    return Context(
        record=desk.record,
        run=desk.log.run,
        session=opened.session,
        user=desk.state.user,
        key=call_key(opened.record, desk.log.run, call.seq),
        explain_id=f"{desk.log.run}.{attempt}",
        streaming=desk.streaming,
        clock=desk.clock,
        call=partial(_call, desk, call, attempt, children),
        respond=partial(_in_task, _respond, desk, cancelled),
        found=partial(_in_task, _found, desk, attempt),
        cancelled=cancelled,
    )


async def _call(desk: Desk, call: Pending, attempt: int, children: Children, agent: Agent, input: str) -> Outcome:
    """Have another agent answer in a child run, which goes on where it was when the call is tried again."""
    children.begun += 1
    name = child_name(call) if children.begun == 1 else f"{child_name(call)}.{children.begun}"
    handed = Handed(name, f"{desk.log.run}.{call.seq}", input, call.name, attempt)
    ended = await hand_over(desk, agent, handed)
    assert ended.end is not None
    children.ends.append((ended.run, ended.end))
    return ended


class Handed(Struct, frozen=True):
    """A task that is handed to another agent."""

    child: str
    """Name of the child run."""
    key: str
    """Makes handing it over twice the same as once."""
    input: str
    by: str
    """What hands it over: a tool's name."""
    cause: int
    """Seq of what it is handed over for."""


async def hand_over(desk: Desk, agent: Agent, task: Handed) -> Outcome:
    """Have another agent answer in a child run, and note what that spent. Raises ChildWaits."""
    source = (*desk.log.path, task.by)
    allowance = _allowance(desk, task.child)
    extra = {CHILD: task.child} if allowance is not None else None
    content = EdgeContent(source=list(source), dest=[agent.name], payload=task.input, allowance=allowance, extra=extra)
    edge = desk.write(content, task.cause).seq
    desk.absorb()
    handed = Task(
        name=task.child,
        key=task.key,
        content=SystemContent(value=task.input),
        cause=(desk.log.run, edge),
        source=source,
        allowance=allowance,
    )
    try:
        ended = await desk.host.child(agent, handed, desk)
    except (RecordError, RunError) as failure:  # the child's turn is open: it is no answer that a model may read
        raise ChildWaits(await desk.host.child_run(task.child, desk), message_of(failure)) from failure
    if ended.end is None:
        raise ChildWaits(ended.run, "it waits for somebody")
    spent = returned(edge, allowance, ended.spent)
    if spent is not None:
        desk.write(spent, edge, (ended.run, ended.end))
    return ended


def child_name(call: Pending) -> str:
    """Name the child run of a call."""
    return f"{call.name}#{call.seq}"


def _allowance(desk: Desk, child: str) -> dict[str, Any] | None:
    """Say what a child run may spend: as before, or a fair part for each open call that has none yet."""
    assert desk.state.turn is not None
    spending = desk.state.turn.spending
    edge = spending.edge_of(child)
    if edge is not None:
        return spending.edges[edge].allowance
    among = sum(spending.edge_of(child_name(each)) is None for each in desk.state.current())
    return share(desk.budget, desk.state, max(among, 1))


def _respond(desk: Desk, cancelled: Callable[[], bool], text: str) -> None:
    if not cancelled():
        desk.tell_now("observation", text)


def _found(desk: Desk, attempt: int, query: str, hits: Sequence[Hit]) -> None:
    with suppress(LeaseLost):  # a thread may outlive the turn that began it
        desk.place(desk.write(RetrievalContent(query=query, hits=list(hits)), attempt))


def _in_task(do: Callable[..., None], *args: Any) -> None:
    """Do something in the task of the run, also when a tool asks for it in a thread."""
    try:
        anyio.get_current_task()
    except anyio.NoEventLoopError:
        with suppress(anyio.NoEventLoopError, RuntimeError):  # a thread may outlive the loop that began it
            from_thread.run_sync(do, *args)
    else:
        do(*args)
