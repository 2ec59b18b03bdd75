"""Using tools: an `attempt` is durable before its tool runs, and nothing that a tool does gets out of here but entries.

Calls of one move run at once. Every result but the last of a batch is awaited until it is durable, so that a crash
costs none of its siblings; the last rides in the commit of what comes next. A tool with effects is seen through when
its turn is left.
"""

import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import msgspec

from gesta.agent import Agent
from gesta.calling import ChildWaits, Trial, attempt_name, context_of, key_of
from gesta.decide import Use, effect_of
from gesta.desk import Desk
from gesta.doubt import in_doubt
from gesta.entry import Entry
from gesta.errors import BadArguments, GestaError, InDoubt, LeaseLost, message_of
from gesta.kinds import AttemptContent, Content, Error, FaultContent
from gesta.late import late
from gesta.opening import is_message
from gesta.outlive import (
    Mark,
    NotBegun,
    Outliving,
    Returned,
    Seat,
    caught,
    mark_of,
    marked,
    runs_subprocess,
    unless_stale,
    works,
)
from gesta.pending import KEY_EXPIRED, UNSTARTED, WAITS, Pending
from gesta.result import result_of
from gesta.settle import settle
from gesta.stop import TurnLeft
from gesta.store import Statements
from gesta.tooling import Tool


class Work(msgspec.Struct, frozen=True):
    """One call that may begin now."""

    call: Pending
    tool: Tool
    bound_s: float | None
    """Seconds after which nobody waits for it any more."""
    seat: Seat | None = None
    """Of a tool that needs a thread."""


async def use(agent: Agent, move: Use, desk: Desk) -> None:
    """Settle what can be settled without trying, then try the rest."""
    for call in move.settle:
        await settle(agent, call, desk)
    works_ = [_work(agent, call) for call in move.run if not _key_expired(agent, call, desk)]
    alone = [work for work in works_ if work.tool.effect == "transactional"]
    for work in alone:
        await _transact(work, desk)
    beside = await _seated([work for work in works_ if work not in alone], desk)
    if beside:
        await _try_all(beside, desk)
    elif not alone:
        await desk.log.durable()


def _work(agent: Agent, call: Pending) -> Work:
    tool = agent.tool(call.name)
    assert tool is not None, f"decide ran {call.name!r}, which the agent does not have"
    return Work(call, tool, tool.timeout_s or agent.policy.tool_timeout_s)


def _key_expired(agent: Agent, call: Pending, desk: Desk) -> bool:
    """Note that a key is too old to be used again, if it is: the other side may have forgotten what it stands for."""
    tool, last = agent.tool(call.name), call.last
    if tool is None or last is None or call.first_at is None or last.void or effect_of(tool, last) != "idempotent":
        return False
    if desk.clock() - call.first_at < timedelta(seconds=tool.key_s):
        return False
    error = Error(type=KEY_EXPIRED, message=f"the idempotency key is older than {tool.key_s:g} s (`key_s`)")
    desk.write(FaultContent(of=last.seq, error=error), last.seq)
    return True


async def _seated(works_: Sequence[Work], desk: Desk) -> list[Work]:
    """Find a thread for each call that needs one, before its attempt is on record.

    Those that find none are tried in a later move. Nobody waits for a thread who holds another: that could last for
    ever. Raises TurnLeft.
    """
    ready: list[Work] = []
    for work in works_:
        if not work.tool.threaded:
            ready.append(work)
        elif (seat := Seat()).free():
            ready.append(msgspec.structs.replace(work, seat=seat))
    if ready or not works_:
        return ready
    seat = Seat()
    await desk.log.durable()  # the reply was paid for, and a thread may be long in coming
    with desk.stop.breaking():
        await seat.wait()
    desk.stop.check()
    return [msgspec.structs.replace(works_[0], seat=seat)]


async def _try_all(works_: Sequence[Work], desk: Desk) -> None:
    """Try calls at once. The first failure of the log is raised as itself, when the others have come to an end."""
    trials = [_attempt(work, desk) for work in works_]
    keep, marks = desk.log.journal.store.keep, dict[int, Mark]()
    for work, (attempt, _) in zip(works_, trials, strict=True):
        if work.tool.effect != "pure":
            marks[attempt.seq] = mark_of(attempt_name(desk, attempt.seq), keep)  # at work from here on, for all
    begun, left, checked = False, len(works_), 0.0
    failures: list[GestaError] = []

    def trial_of(work: Work, attempt: Entry, key: str) -> Trial:  # nobody else keeps the mark that is in it
        return Trial(work.call, attempt.seq, key, mark=marks.pop(attempt.seq, None), checked=checked)

    async def carry_out(work: Work, attempt: Entry, key: str) -> None:
        nonlocal left
        try:
            await _try(work, attempt, trial_of(work, attempt, key), desk)
            left -= 1
            if left:
                await desk.log.durable()
        except GestaError as failure:
            failures.append(failure)
            desk.stop.ask()  # nothing that happens from here on can be written down

    try:
        await desk.log.durable()
        begun = not await _told_meanwhile(works_, trials, desk)
        checked = time.monotonic()
        if not begun:
            return
    finally:
        if not begun:
            marks.clear()  # an exception keeps its frames, and with them what stands in them
            for work in works_:
                if work.seat is not None:
                    work.seat.leave()
    jobs: list[Callable[[], Coroutine[Any, Any, None]]] = [
        partial(carry_out, work, *trial) for work, trial in zip(works_, trials, strict=True)
    ]
    if len(jobs) == 1:
        await jobs[0]()
    else:
        async with anyio.create_task_group() as group:
            for job in jobs:
                group.start_soon(job)
    if failures:
        raise failures[0]


async def _told_meanwhile(works_: Sequence[Work], trials: Sequence[tuple[Entry, str]], desk: Desk) -> bool:
    """Begin nothing with effects if a person said something before the attempts were on record: it is decided again.

    Nor if somebody else holds the run by now, because this process stood still. Raises LeaseLost.
    """
    journal, run = desk.log.journal, desk.log.run
    if all(work.tool.effect == "pure" for work in works_):
        return False
    why = Error(type=UNSTARTED, message="a letter came first, so it was not begun")
    faults = [(entry, key, FaultContent(of=entry.seq, error=why, over=True)) for entry, key in trials]
    try:
        if not await journal.store.holds(journal.lease):
            raise LeaseLost(run, f"the lease of epoch {journal.lease.epoch}", "that another process has taken it")
        letters = await journal.store.inbox(run)
    except GestaError:
        for entry, key, fault in faults:  # whoever goes on is told that nothing was begun
            desk.host.save(late(run, entry.seq, key, fault))
        raise
    if all(letter.id in journal.taken_in or is_message(letter) for letter in letters):
        return False
    for entry, _, fault in faults:
        desk.write(fault, entry.seq)
    return True


async def _transact(work: Work, desk: Desk) -> None:
    """Carry out a call whose tables live in the record: attempt, effect and result are one commit."""
    tool, call = work.tool, work.call
    attempt, key = _attempt(work, desk)

    def effect(sql: Statements) -> bool:
        context = msgspec.structs.replace(context_of(Trial(call, attempt.seq, key), desk), sql=sql)
        try:
            told = dict.fromkeys(tool.context_names, context)
            returned = Returned(tool.function(**tool.arguments(call.final_args), **told))
            sql.check()
        except BaseException as failure:  # noqa: BLE001 - nothing of it is kept, and it is the model's to read
            returned = Returned(failure=failure)
        desk.observe(desk.write(result_of(returned, tool, call.seq), attempt.seq))
        return returned.failure is None

    await desk.log.journal.transact(effect, work.bound_s)


def _attempt(work: Work, desk: Desk) -> tuple[Entry, str]:
    """Write that a call is about to be tried, and under which key."""
    call, tool, opened, journal = work.call, work.tool, desk.state.opened, desk.log.journal
    assert opened is not None
    key = key_of(call, opened.record, desk.log.run)
    content = AttemptContent(
        of=call.seq,
        number=call.attempts + 1,
        epoch=journal.lease.epoch,
        effect=tool.effect,
        process=journal.lease.owner,
        key=key,
    )
    if tool.effect in ("once", "idempotent"):
        journal.sync()
    said = call.approved, call.last.settled if call.last is not None else None
    return desk.write(content, call.seq, *(seq for seq in said if seq is not None)), key


def _watch(work: Work, desk: Desk) -> AbstractContextManager[Any]:
    """Break a tool off when the turn is left: at once if it only reads, after the grace if it has effects.

    An agent's own run is asked to stop for itself.
    """
    if work.tool.agent is not None:
        return nullcontext()
    return desk.stop.breaking(graced=work.tool.effect != "pure")


async def _try(work: Work, attempt: Entry, trial: Trial, desk: Desk) -> None:
    """Try the effect once, and write its result, or why nobody knows it."""
    tool, seat = work.tool, work.seat
    thread = Outliving(partial(_late, desk, tool, work.call, attempt), seat)
    trial = msgspec.structs.replace(trial, cancelled=lambda: thread.left or desk.stop.asked)
    context, returned, marks = context_of(trial, desk), None, [trial.mark]
    trial = msgspec.structs.replace(trial, mark=None)

    async def in_thread(call: Callable[[], Any]) -> Any:
        return await thread.carry_out(partial(unless_stale, trial.checked, call))

    async def begin(arguments: dict[str, Any]) -> Any:
        return await unless_stale(trial.checked, partial(tool.invoke, arguments, context, in_thread))

    try:
        arguments = tool.arguments(work.call.final_args)
        with _watch(work, desk), anyio.move_on_after(work.bound_s) as timing, marked(marks[0]):
            returned = await caught(begin(arguments))
    except BadArguments as wrong:
        returned = Returned(failure=wrong)
    except BaseException as failure:
        if not thread.gave(failure):
            marks.clear()
            _give_up(desk, work, attempt, thread, Error(type="cancelled", message=f"{tool.name} was broken off"))
            with anyio.CancelScope(shield=True):
                await desk.log.durable()
            raise
        returned = Returned(failure=failure)
    finally:
        if seat is not None and not thread.begun:
            seat.leave()
    if returned is None:
        marks.clear()
        late = timing.cancelled_caught
        why = ("timeout", f"{tool.name} did not return within {work.bound_s} s") if late else ("cancelled", "")
        error = Error(type=why[0], message=why[1] or f"{tool.name} was broken off when its turn was left")
        _give_up(desk, work, attempt, thread, error)
        if trial.children.at_work and late:
            await desk.host.call_off(desk, trial.children.at_work)
    elif isinstance(returned.failure, NotBegun):
        error = Error(type=UNSTARTED, message="this process stood still, so it was not begun")
        desk.write(FaultContent(of=attempt.seq, error=error, over=True), attempt.seq)
    elif returned.failure is not None and _below(returned.failure) is not None:
        _wait_for(desk, attempt, returned.failure)
    else:
        _told(desk, work, attempt, msgspec.structs.replace(trial, mark=marks.pop()), returned)


def _told(desk: Desk, work: Work, attempt: Entry, trial: Trial, returned: Returned) -> None:
    """Write what a function gave or raised: its result, or that nobody knows whether the effect happened."""
    content = _outcome(work.tool, attempt.seq, returned, over=not runs_subprocess(attempt_name(desk, attempt.seq)))
    if isinstance(content, FaultContent):
        desk.write(content, attempt.seq)
        return
    doubts = sorted(trial.children.doubts) or None
    content = msgspec.structs.replace(content, call=work.call.seq, doubts=doubts)
    desk.observe(desk.write(content, attempt.seq, *trial.children.ends))
    desk.log.journal.secure(partial(late, desk.log.run, attempt.seq, trial.key, content), trial.mark)


def _outcome(tool: Tool, attempt: int, returned: Returned, *, over: bool) -> Any:
    """Return the content that says how a function ended."""
    failure = returned.failure
    if isinstance(failure, InDoubt) or (failure is not None and not isinstance(failure, GestaError)):
        unsure = in_doubt(failure, tool.certain) if tool.effect != "pure" else isinstance(failure, InDoubt)
        if unsure:
            said = message_of(failure) or f"{tool.name} cannot say whether its effect happened"
            error = Error(type=type(failure).__name__, message=said)
            return FaultContent(of=attempt, error=error, over=over or None)
    return result_of(returned, tool, 0)


def _below(stop: BaseException) -> BaseException | None:
    """Find why a tool was left, if that is a run below: also where it called several at once."""
    if isinstance(stop, BaseExceptionGroup):
        return next((found for each in stop.exceptions if (found := _below(each)) is not None), None)
    return stop if isinstance(stop, ChildWaits | TurnLeft) else None


def _wait_for(desk: Desk, attempt: Entry, stop: BaseException) -> None:
    """Note that a call waits for a run below, which goes on where it was when the call is tried again."""
    why = _below(stop)
    if isinstance(why, ChildWaits):
        run, text = why.args
    else:
        run, text = "", "the turn was left"
    error = Error(type=WAITS, message=f"run {run} is not done: {text}" if run else text)
    desk.write(FaultContent(of=attempt.seq, error=error, run=run or None), attempt.seq)


def _give_up(desk: Desk, work: Work, attempt: Entry, thread: Outliving, error: Error) -> None:
    """Leave what does not return: its result if it came at the last moment, else a doubt."""
    returned = thread.leave() if thread.begun else None
    if returned is not None:
        assert isinstance(attempt.content, AttemptContent)
        _told(desk, work, attempt, Trial(work.call, attempt.seq, attempt.content.key or ""), returned)
        return
    over = not works(attempt_name(desk, attempt.seq))
    desk.write(FaultContent(of=attempt.seq, error=error, over=over or None), attempt.seq)


def _late(desk: Desk, tool: Tool, call: Pending, attempt: Entry, returned: Returned) -> None:
    """Put what came of a call that was given up into the inbox, in the thread that made the call."""
    found = _outcome(tool, attempt.seq, returned, over=True)
    content: Content = found if isinstance(found, FaultContent) else msgspec.structs.replace(found, call=call.seq)
    assert isinstance(attempt.content, AttemptContent)
    desk.host.save(late(desk.log.run, attempt.seq, attempt.content.key, content))
