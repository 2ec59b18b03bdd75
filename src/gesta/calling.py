"""What a tool is told about its call, and what it may do beside its own work: answer a listener, call an agent."""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, current_token
from msgspec import Struct, field

from gesta.affording import returned, share
from gesta.agent import Agent
from gesta.context import Context
from gesta.desk import Desk, Task
from gesta.entry import Cause
from gesta.errors import GestaError, LeaseLost, RecordError, RunError, message_of
from gesta.kinds import EdgeContent, Hit, RetrievalContent, SystemContent
from gesta.outcome import Outcome
from gesta.outlive import NO_LOOP, popen
from gesta.pending import Pending
from gesta.spending import CHILD


class Children(Struct):
    """The child runs that a tool calls in one attempt: the first, the second, and so on."""

    begun: int = 0
    ends: list[Cause] = field(default_factory=list)
    """Of those that ended: the tool's result is made from them."""
    at_work: list[str] = field(default_factory=list)
    """Names of those that did not."""
    doubts: set[str] = field(default_factory=set)
    """Names of tools with a call of unknown outcome in those that ended."""


class ChildWaits(BaseException):
    """Leaves a tool whose child run cannot go on now: says which run, and why. No error, and not to be caught."""


class TooDeep(GestaError):
    """Agents call agents deeper than the policy allows; the model reads it."""


def key_of(call: Pending, record: str, run: str) -> str:
    """Return the idempotency key of a call's next attempt, 64 hex: drawn at first, and the same from then on.

    Args:
        record: id of the record where the run was made.
        run: id of the run.
    """
    if call.last is None or call.last.void:
        return os.urandom(32).hex()
    return call.last.key or call_key(record, run, call.seq)


def call_key(record: str, run: str, seq: int) -> str:
    """Return the idempotency key that release 0.1.0 gave a call, 64 hex; attempts of format 1 do not hold theirs.

    Args:
        record: id of the record where the run was made.
        run: id of the run.
        seq: seq of the tool-call.
    """
    return hashlib.sha256(f"{record}|{run}|{seq}".encode()).hexdigest()


class Trial(Struct, frozen=True):
    """One attempt of a call."""

    call: Pending
    seq: int
    """Of the attempt."""
    key: str
    cancelled: Callable[[], bool] = lambda: False
    """Whether nobody waits for it any more."""
    children: Children = field(default_factory=Children)
    mark: Any = None
    """Has the attempt count as at work as long as it is kept."""
    checked: float = math.inf
    """When the run was last known to be ours, by `time.monotonic`."""


def context_of(trial: Trial, desk: Desk) -> Context:
    """Make the context of one attempt of a call."""
    opened, call, attempt = desk.state.opened, trial.call, trial.seq
    cancelled, children = trial.cancelled, trial.children
    assert opened is not None
    store = desk.log.journal.store
    in_task = partial(_in_task, current_token())
    return Context(
        record=desk.record,
        run=desk.log.run,
        session=opened.session,
        user=desk.state.user,
        key=trial.key,
        explain_id=f"{desk.log.run}.{attempt}",
        streaming=desk.streaming,
        clock=desk.clock,
        call=partial(_call, desk, call, attempt, children),
        respond=partial(in_task, _respond, desk, cancelled),
        found=partial(in_task, _found, desk, attempt),
        popen=partial(popen, attempt_name(desk, attempt), store.descriptor()),
        cancelled=cancelled,
    )


def attempt_name(desk: Desk, attempt: int) -> str:
    """Name an attempt among all that this process makes."""
    return f"{desk.log.journal.lease.owner} {desk.log.run}.{attempt}"


async def _call(desk: Desk, call: Pending, attempt: int, children: Children, agent: Agent, input: str) -> Outcome:
    """Have another agent answer in a child run, which goes on where it was when the call is tried again."""
    children.begun += 1
    name = child_name(call) if children.begun == 1 else f"{child_name(call)}.{children.begun}"
    handed = Handed(name, f"{desk.log.run}.{call.seq}", input, call.name, attempt)
    children.at_work.append(name)
    ended = await hand_over(desk, agent, handed)
    assert ended.end is not None
    children.at_work.remove(name)
    children.ends.append((ended.run, ended.end))
    children.doubts.update(ended.doubts)
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
    opened, most = desk.state.opened, desk.limits.depth
    if opened is not None and opened.depth >= most:
        found = f"This run has {opened.depth} runs above it"
        raise TooDeep(f"{found}; agents may call agents {most} deep. Answer without calling another agent.")
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


def _in_task(token: EventLoopToken, do: Callable[..., None], *args: Any) -> None:
    """Do something in the loop of the run, also when a tool asks for it in a thread."""
    try:
        anyio.get_current_task()
    except anyio.NoEventLoopError:
        with suppress(*NO_LOOP):  # a thread may outlive the loop that began it
            from_thread.run_sync(do, *args, token=token)
    else:
        do(*args)
