"""Runs a turn in steps. Each step computes the run's state from its entries, decides on a move, and carries it out.

A move is the next action: ask the model, run tools, wait, or finish. A turn goes from a message to its answer. It ends
with the answer or another reason, or it waits for a person, a time or another run. A turn that another process began is
continued in the same way, for a resume, a replay, or after a crash.
"""

from typing import cast

import anyio
from msgspec.structs import replace

from gesta.agent import Agent
from gesta.codec.rows import decode_content
from gesta.decide.approval import judged_approval
from gesta.decide.move import Ask, Check, Decider, Finish, Move, Wait, decide
from gesta.decide.waiting import Waiting, described
from gesta.entry import Entry, utc_text, utc_time
from gesta.events import Outcome
from gesta.kinds import AnswerContent, ApprovalContent, Content, Reason, ResolutionContent, SignalContent
from gesta.perform.execution import LiveRun
from gesta.perform.late import attempt_of, placed
from gesta.perform.move import perform
from gesta.perform.stop import TurnLeft
from gesta.state.calls import EXPIRED
from gesta.state.opening import is_message
from gesta.state.run import RunState
from gesta.state.turn import Turn
from gesta.store import Letter


async def step(
    agent: Agent, live: LiveRun, decider: Decider = decide, scope: anyio.CancelScope | None = None
) -> tuple[Move | None, list[Entry]]:
    """Decide on a move and carry it out. A move that ends the turn is returned and not carried out.

    Args:
        live: the run, with its log and its state.
        decider: the function that decides.
        scope: is cancelled if the turn is asked to stop while a model or a hook is being called. The turn then does not
            continue.

    Returns:
        The move and the entries that were written for it. `None` as the move means that the turn's program continues.
            If the move is a wait, it also names the approval-requests and questions that were just written.
    """
    match move := decider(agent, live.state):
        case None | Finish():
            return move, []
        case Ask() | Check() if scope is not None:
            live.stop.enter(scope, graced=False)
            try:
                return move, await perform(agent, move, live)
            finally:
                live.stop.leave(scope)
        case Wait():
            entries = await perform(agent, move, live)
            return decider(agent, live.state), entries
        case _:
            return move, await perform(agent, move, live)


async def turn(agent: Agent, live: LiveRun) -> Outcome:
    """Run steps until the open turn ends or waits.

    Raises:
        WriteFailed, LeaseLost: no more entries can be written. Any other failure is on the record and in the outcome.
        TurnLeft: the caller has stopped waiting for the turn.
    """
    with anyio.CancelScope() as scope:  # one scope for all requests: a new one costs as much as the decisions of a step
        while True:
            live.stop.check()
            await take_in(live)
            if agent.sources and not live.state.calls:  # open calls need the tools that the model knew
                agent = await live.host.sources.listed(agent)
            move, _ = await step(agent, live, scope=scope)
            match move:
                case Finish():
                    await perform(agent, move, live)
                    return outcome_of(live.log.run, live.state)
                case Wait() if not await take_in(live):
                    return outcome_of(live.log.run, live.state, move.what)
    raise TurnLeft


async def take_in(live: LiveRun) -> bool:
    """Write the letters in the run's inbox (approvals, answers, cancellations, but not messages) into the run's log.

    Requests for approval that have expired are denied here too. Each letter is deleted in the commit that writes it.
    Returns whether anything was written.
    """
    journal = live.log.journal
    waiting = await journal.store.inbox(live.log.run)
    if journal.fresh:
        live.absorb()
    if not waiting:
        return bool(live.state.calls) and _expire(live)
    news = [each for each in waiting if each.id not in journal.taken_in and not is_message(each)]
    for letter in news:
        content = decode_content(letter.content, {})
        attempt = await attempt_of(letter, journal.store)
        journal.take_in(letter, _received(letter, content, attempt, live), live.log.span_seq)
        live.absorb()
    return bool(news) or _expire(live)


def _expire(live: LiveRun) -> bool:
    """Write a denial for each request for approval that has expired. Return whether any was written."""
    late = False
    for call in live.state.calls.values():
        if call.expires is not None and call.approval is None and call.expires <= live.clock():
            assert call.asked is not None
            reason = f"Nobody answered until {utc_text(call.expires)}."
            live.write(ApprovalContent(of=call.asked, verdict="denied", by=EXPIRED, reason=reason), call.asked)
            late = True
    if late:
        live.absorb()
    return late


def _received(letter: Letter, content: Content, attempt: Entry | None, live: LiveRun) -> Content:
    """Return the content to write for a letter: an approval, an answer or another message in the inbox.

    A person's answer is written with the time at which it was sent, an approval also with the judgement whether it is
    valid. A result that comes too late is marked as late.

    Args:
        content: the content of the letter, decoded.
        attempt: the entry of the tool call's attempt that the letter is about; `None` if there is none.
    """
    if isinstance(content, ApprovalContent):
        record, approver = live.log.journal.store.info.id, live.host.terms.approver
        return judged_approval(content, letter, live.state.calls.values(), record, approver)
    content = placed(content, attempt, live.state.calls)
    if letter.at and isinstance(content, AnswerContent | ResolutionContent):  # in a replay, a letter has no time
        return replace(content, sent_at=utc_time(letter.at))
    return content


def outcome_of(run: str, state: RunState, waiting: tuple[Waiting, ...] = (), of: Turn | None = None) -> Outcome:
    """Return the outcome of a turn of a run, computed from the run's state.

    Args:
        waiting: what the turn waits for.
        of: the turn; `None` for the last turn of the run.
    """
    turn, opened = of or state.turn, state.opened
    assert turn is not None and opened is not None
    return Outcome(
        run=run,
        session=opened.session,
        turn=turn.begin,
        reason=cast("Reason", turn.reason or "waiting"),
        answer=turn.text if turn.reason == "answered" else None,
        given=turn.given if turn.reason == "answered" else None,
        waiting=tuple(described(each, run, state) for each in waiting) if waiting else (),
        error=turn.error,
        requests=turn.requests,
        tokens_in=turn.tokens_in,
        tokens_out=turn.tokens_out,
        unknown_usage=turn.unknown_usage,
        doubts=tuple(turn.doubts),
        spent=turn.spending.spent(turn.requests),
        end=turn.end,
    )


def wake(agent: Agent, live: LiveRun, by: str | None) -> None:
    """Store which person resumes a turn. If too many processes died in the turn, also write a `wake` signal.

    Args:
        by: name of the person, also for resumed child runs. `None` if no person resumes it; then no signal is written.
    """
    live.by = by
    turn = live.state.turn
    if by is not None and turn is not None and turn.deaths >= agent.policy.deaths:
        live.write(SignalContent(name="wake", by=by), turn.begin)
        live.absorb()


def taken(state: RunState, head: int, mark: int | None) -> None:
    """Prepare a run's state after this process took the lease, the right to write the run.

    Each attempt of a tool that has no result yet must be checked again: its process may have ended since, and the
    tool's `reconcile` may know more.

    Args:
        head: seq of the run's last entry when the lease was taken.
        mark: for a copy of a record that no person adopted yet, the pos (number in the record) of its last copied
            entry; else `None`.
    """
    state.since, state.mark = head, mark
    for call in state.calls.values():
        if call.last is not None:
            call.last.looked, call.last.asked = min(call.last.looked, head), min(call.last.asked, head)
