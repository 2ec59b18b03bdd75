"""Runs tools. An attempt is one execution of a tool call; its entry is on disk before the tool runs.

A call is in doubt if nobody knows whether its effect happened. A fault is an entry about an attempt that failed or did
not begin. A letter is content that waits in the inbox of a run. A move is the next thing that a run does. The calls of
one move run at the same time. Every result is committed at once, except the last one, which is committed with the
entries after it. A tool with effects runs to its end even if its turn is asked to stop.
"""

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import msgspec

from gesta.agent import Agent
from gesta.decide.move import Use
from gesta.decide.open_call import effect_of
from gesta.entry import Entry
from gesta.errors import BadArguments, GestaError, InDoubt, LeaseLost
from gesta.function_tool.doubt import in_doubt
from gesta.function_tool.tool import Tool
from gesta.kinds import AttemptContent, Content, Error, FaultContent
from gesta.perform.call_contents import result_of, words_of
from gesta.perform.child import Trial, attempt_name, child_name, idempotency_key
from gesta.perform.context import context_of
from gesta.perform.doubts import settle
from gesta.perform.execution import LiveRun
from gesta.perform.late import late
from gesta.perform.threads import (
    Mark,
    NotBegun,
    Returned,
    ThreadCall,
    ThreadFunction,
    ThreadSlot,
    caught,
    mark_of,
    outlives,
    runs_subprocess,
    unawaited,
    unless_stale,
)
from gesta.perform.tool_wait import doubt_behind, wait_in, write_wait
from gesta.state.calls import ASKS, KEY_EXPIRED, UNSTARTED, OpenCall
from gesta.state.opening import is_message
from gesta.store import Statements

Marks = list[Mark | None]
"""The mark of an attempt, in a list that is emptied when the attempt is over."""


class ReadyCall(msgspec.Struct, frozen=True):
    """A call whose tool may be run now, with its timeout and its reserved thread."""

    call: OpenCall
    tool: Tool
    bound_s: float | None
    """Timeout of the call in seconds; `None` for no timeout."""
    effect: str | None
    """The strictest effect of the tool now and in earlier attempts that may have had theirs."""
    again: bool
    """Whether an earlier attempt with the same idempotency key may have had the effect."""
    slot: ThreadSlot | None = None
    """The reserved permission to start a thread; `None` for a tool that needs no thread."""
    resumed: bool = False
    """Whether the previous attempt asked a person, who has answered."""


async def use(agent: Agent, move: Use, live: LiveRun) -> None:
    """Carry out a move: write results that people gave, ask about calls in doubt, and run the tools of other calls."""
    for call in move.settle:
        await settle(agent, call, live)
    alone: list[ReadyCall] = []
    beside: list[ReadyCall] = []
    for call in move.run:
        if not _key_expired(work := _work(agent, call), live):
            (alone if work.tool.effect == "transactional" else beside).append(work)
    for work in alone:
        await _transact(work, live)
    if alone:  # that may have taken long
        beside = [work for work in beside if not _key_expired(work, live)]
    beside = await _with_slots(beside, live)
    if beside:
        await _try_all(beside, live)
    elif not alone:
        await live.log.durable()


def _work(agent: Agent, call: OpenCall) -> ReadyCall:
    tool = agent.tool(call.name)
    assert tool is not None, f"decide ran {call.name!r}, which the agent does not have"
    last, bound_s = call.last, tool.timeout_s or agent.policy.tool_timeout_s
    effect = tool.effect if last is None else last.strictest(tool.effect)
    return ReadyCall(call, tool, bound_s, effect, call.again, resumed=last is not None and last.doubt == ASKS)


def _key_expired(work: ReadyCall, live: LiveRun) -> bool:
    """Return whether a call's idempotency key is too old for another attempt: the service may have forgotten it.

    If so, release its thread and write a `fault` entry. An attempt after that entry has a new key: it is made only if
    the call is settled.
    """
    tool, call = work.tool, work.call
    last = call.last
    asked = last is not None and last.doubt == ASKS and not call.again  # before it acted, so the key was not used yet
    if last is None or call.first_at is None or last.renewed or asked:
        return False
    if tool.agent is not None or effect_of(tool, last) != "idempotent":  # a child run has no such age
        return False
    if (live.clock() - call.first_at).total_seconds() < tool.key_s:
        return False
    if work.slot is not None:
        work.slot.leave()
    error = Error(type=KEY_EXPIRED, message=f"the idempotency key is older than {tool.key_s:g} s (`key_s`)")
    live.write(FaultContent(of=last.seq, error=error), last.seq)
    return True


async def _with_slots(works_: Sequence[ReadyCall], live: LiveRun) -> list[ReadyCall]:
    """Reserve a thread for each call that needs one, and return the calls that can be made now.

    The other calls are left for a later move. If no call can be made now, wait for one thread, and return the first
    call, unless its idempotency key grew too old meanwhile. Raises TurnLeft if the turn is asked to stop during the
    wait.
    """
    ready: list[ReadyCall] = []
    for work in works_:
        if not work.tool.threaded:
            ready.append(work)
        elif (slot := ThreadSlot()).free():
            ready.append(msgspec.structs.replace(work, slot=slot))
    if ready or not works_:
        return ready
    slot = ThreadSlot()
    await live.log.durable()  # the wait for a thread may be long, and a crash must not lose a reply that was paid for
    with live.stop.breaking():
        await slot.wait()
    live.stop.check()
    work = msgspec.structs.replace(works_[0], slot=slot)
    return [] if _key_expired(work, live) else [work]


async def _try_all(works_: Sequence[ReadyCall], live: LiveRun) -> None:
    """Make several calls at the same time. If an entry cannot be written, raise the error when all calls have ended."""
    keep, marks = live.log.journal.store.keep, dict[int, Mark]()
    begun, left, checked = False, len(works_), 0.0
    failures: list[GestaError] = []

    async def carry_out(work: ReadyCall, attempt: Entry, key: str) -> None:
        nonlocal left
        try:
            await _try(work, attempt, key, [marks.pop(attempt.seq, None)], checked, live)  # only `_try` keeps the mark
            left -= 1
            if left:
                await live.log.durable()
        except GestaError as failure:
            failures.append(failure)
            live.stop.ask()  # from here on nothing can be written

    try:
        trials = [_write_attempt(work, live) for work in works_]
        for work, (attempt, _) in zip(works_, trials, strict=True):
            if work.tool.effect != "pure":  # from here on it is treated as running
                marks[attempt.seq] = mark_of(attempt_name(live, attempt.seq), keep)
        await _on_record(trials, live)
        begun = not (marks and await _told_meanwhile(trials, live))
        checked = time.monotonic()
        if not begun:
            return
    finally:
        if not begun:
            marks.clear()  # else the exception's frames would keep the marks alive
            for work in works_:
                if work.slot is not None:
                    work.slot.leave()
    if len(works_) == 1:
        await carry_out(works_[0], *trials[0])
    else:
        async with anyio.create_task_group() as group:
            for work, trial in zip(works_, trials, strict=True):
                group.start_soon(carry_out, work, *trial)
    if failures:
        raise failures[0]


async def _on_record(trials: Sequence[tuple[Entry, str]], live: LiveRun) -> None:
    """Wait until attempts are committed. If the commit fails, none of them begins.

    Then nobody knows which of them are on record. So letters which say that none began are sent to the inbox later.
    """
    journal = live.log.journal
    try:
        await journal.durable()
    except GestaError:
        for entry, key in trials:
            fault = _unstarted(entry, "the commit of the attempt failed")
            journal.secure(partial(late, live.log.run, entry.seq, key, fault), None)
        raise


def _unstarted(attempt: Entry, why: str) -> FaultContent:
    error = Error(type=UNSTARTED, message=f"{why}, so it was not begun")
    return FaultContent(of=attempt.seq, error=error, over=True)


async def _told_meanwhile(trials: Sequence[tuple[Entry, str]], live: LiveRun) -> bool:
    """Return whether the turn was left, or a letter such as a cancellation came, while the attempts were committed.

    If so, write that no attempt began. If another process holds the run now, that is sent to the
    run's inbox instead, and LeaseLost is raised.
    """
    journal, run = live.log.journal, live.log.run
    faults = [(entry, key, _unstarted(entry, "a letter came first, or the turn was left")) for entry, key in trials]
    try:
        if not await journal.store.holds(journal.lease):
            raise LeaseLost(run, f"the lease of epoch {journal.lease.epoch}", "that another process has taken it")
        letters = await journal.store.inbox(run)
    except GestaError:
        for entry, key, fault in faults:  # the process that continues the run must know that nothing was begun
            live.host.save(late(run, entry.seq, key, fault))
        raise
    if not live.stop.asked and all(letter.id in journal.taken_in or is_message(letter) for letter in letters):
        return False
    for entry, _, fault in faults:
        live.write(fault, entry.seq)
    return True


async def _transact(work: ReadyCall, live: LiveRun) -> None:
    """Run a transactional tool: the attempt, the effect and the result are one commit."""
    tool, call = work.tool, work.call
    attempt, key = _write_attempt(work, live)

    def effect(sql: Statements) -> bool:
        context = msgspec.structs.replace(context_of(Trial(call, attempt.seq, key), live), sql=sql)
        try:
            told = dict.fromkeys(tool.context_names, context)
            returned = Returned(tool.function(**tool.arguments(call.final_args), **told))
            if unawaited(returned.value):
                raise TypeError(f"{tool.name} is transactional, and what it returned would have to be awaited")
            sql.check()
        except BaseException as failure:  # noqa: BLE001 - nothing of it is kept, and it is the model's to read
            returned = Returned(failure=failure)
        live.write(result_of(returned, tool, call.seq), attempt.seq)
        return returned.failure is None

    await live.log.journal.transact(effect, work.bound_s)


def _write_attempt(work: ReadyCall, live: LiveRun) -> tuple[Entry, str]:
    call, tool, opened, journal = work.call, work.tool, live.state.opened, live.log.journal
    assert opened is not None
    key = idempotency_key(call, opened.record, live.log.run)
    content = AttemptContent(
        of=call.seq,
        number=call.attempts + 1,
        epoch=journal.lease.epoch,
        effect=tool.effect,
        process=journal.lease.owner,
        key=key,
        server=tool.server,
        agent=tool.agent.name if tool.agent is not None else None,
    )
    if tool.effect in ("once", "idempotent"):
        journal.sync()
    causes = [call.seq]
    if call.approved is not None or call.check is not None or call.heard:
        causes += call.said
    if call.last is not None and call.last.settled is not None:
        causes.append(call.last.settled)
    return live.write(content, *causes), key


async def _try(work: ReadyCall, attempt: Entry, key: str, marks: Marks, checked: float, live: LiveRun) -> None:
    """Run the tool of a call once. Write its result, or a `fault` entry if the result is not known."""
    tool, slot, returned = work.tool, work.slot, None
    thread = ThreadCall(partial(_late_result, live, work, attempt), slot)
    trial = Trial(work.call, attempt.seq, key, lambda: thread.left or live.stop.asked, resumed=work.resumed)
    graced, inner = tool.agent is None and tool.effect != "pure", live  # an agent's run is asked to stop by its own
    if graced and tool.context_names:
        (inner := live.inside(live.log)).stop = live.stop.spared()
    context = context_of(trial, inner) if tool.context_names else None

    async def in_thread(call: ThreadFunction) -> Any:
        return await thread.carry_out(partial(unless_stale, checked, call))

    async def begin(arguments: dict[str, Any]) -> Any:
        return await unless_stale(checked, partial(tool.invoke, arguments, context, in_thread))

    try:
        arguments = tool.arguments(work.call.final_args)
        until = math.inf if work.bound_s is None else live.stop.now() + work.bound_s
        with anyio.CancelScope(deadline=until) as scope:
            if tool.agent is None:
                live.stop.enter(scope, graced=graced, below=inner.stop if inner is not live else None)
            try:
                returned = await caught(begin(arguments), marks)
            finally:
                live.stop.leave(scope)
    except BadArguments as wrong:
        returned = Returned(failure=wrong)
    except BaseException as failure:
        if not thread.gave(failure):
            marks.clear()
            with anyio.CancelScope(shield=True):
                await _give_up(live, work, trial, thread, _no_return(work, late=False))
                await live.log.durable()
            raise
        returned = Returned(failure=failure)
    finally:
        if slot is not None and not thread.begun:
            slot.leave()
    if returned is None:
        marks.clear()
        too_late = not live.stop.asked or work.tool.agent is not None or live.stop.now() >= until
        await _give_up(live, work, trial, thread, _no_return(work, late=too_late))
        if trial.children.at_work and too_late:
            await live.host.call_off(live, child_name(work.call))
    elif isinstance(returned.failure, NotBegun):
        _stood_still(live, attempt, key)
    else:
        await _told(live, work, trial, returned, marks.pop())


def _stood_still(live: LiveRun, attempt: Entry, key: str) -> None:
    """Write that an attempt did not begin, because this process was suspended.

    If that cannot be committed, it is sent to the inbox of the run later.
    """
    fault = _unstarted(attempt, "this process stood still")
    live.write(fault, attempt.seq)
    live.log.journal.secure(partial(late, live.log.run, attempt.seq, key, fault), None)


def _no_return(work: ReadyCall, *, late: bool) -> Error:
    if late:
        return Error(type="timeout", message=f"{work.tool.name} did not return within {work.bound_s} s")
    return Error(type="cancelled", message=f"{work.tool.name} was broken off when its turn was left")


async def _told(live: LiveRun, work: ReadyCall, trial: Trial, returned: Returned, mark: Mark | None = None) -> None:
    """Write the result of a tool's function; or a `fault` entry, if it waits or nobody knows what became of its effect.

    `mark` is the attempt's `Mark`, which is kept until the result is committed.
    """
    if returned.failure is not None and (why := wait_in(returned.failure)) is not None:
        doubt = doubt_behind(returned.failure, work.tool)
        if doubt is None:
            write_wait(live, trial.seq, why)
            return
        returned = Returned(failure=doubt)
    over, children = not runs_subprocess(attempt_name(live, trial.seq)), trial.children
    content = _outcome(work, trial.seq, returned, over=over)
    if isinstance(content, FaultContent):
        live.write(content, trial.seq)
        return
    before = work.call.children  # of earlier attempts
    if children.at_work or (before and before.keys() - children.taken):  # it left them, or did not call them again
        children.doubts.update(await live.host.call_off(live, child_name(work.call)))
    content = msgspec.structs.replace(content, doubts=sorted(children.doubts) or None)
    live.write(content, trial.seq, *children.ends)
    live.log.journal.secure(partial(late, live.log.run, trial.seq, trial.key, content), mark)


def _outcome(work: ReadyCall, attempt: int, returned: Returned, *, over: bool) -> Any:
    """Return the result of a function that has ended, or a fault if nobody knows whether its effect happened.

    `attempt` is the seq of the attempt. `over` says whether all its subprocesses have ended too.
    """
    failure, tool = returned.failure, work.tool
    unsure = isinstance(failure, InDoubt)
    if failure is not None and not isinstance(failure, GestaError) and work.effect != "pure":
        unsure = in_doubt(failure, tool.certain, again=work.again)
    if failure is not None and unsure:
        name, said = words_of(failure)
        error = Error(type=name, message=said or f"{tool.name} cannot say whether its effect happened")
        return FaultContent(of=attempt, error=error, over=over or None)
    return result_of(returned, tool, work.call.seq)


async def _give_up(live: LiveRun, work: ReadyCall, trial: Trial, thread: ThreadCall, error: Error) -> None:
    """Stop waiting for a function. Write its result if it has returned, else a `fault` entry with `error`."""
    returned = thread.leave() if thread.begun else None
    if returned is not None:
        await _told(live, work, trial, returned)
        return
    over = not await outlives(attempt_name(live, trial.seq))
    live.write(FaultContent(of=trial.seq, error=error, over=over or None), trial.seq)


def _late_result(live: LiveRun, work: ReadyCall, attempt: Entry, returned: Returned) -> None:
    """Send the result of a call to the inbox, because nobody waits for it any more. Runs in the thread of the call."""
    if unawaited(returned.value):  # an async function under a decorator that is not async
        returned = Returned(failure=InDoubt(f"{work.tool.name} returned an awaitable when nobody waited any more"))
    content: Content = _outcome(work, attempt.seq, returned, over=True)
    assert isinstance(attempt.content, AttemptContent)
    live.host.save(late(live.log.run, attempt.seq, attempt.content.key, content))
