"""One step is: fold, decide, perform; a turn is steps until an answer is given or somebody is waited for.

Resume, replay, take-over and approval are this loop over a log that somebody else wrote.
"""

from gesta.agent import Agent
from gesta.approver import judged
from gesta.decide import Ask, Finish, Move, Wait, Waiting, decide
from gesta.desk import Desk
from gesta.entry import Entry, utc_text
from gesta.kinds import ApprovalContent, Content
from gesta.late import attempt_of, placed
from gesta.log import letters
from gesta.opening import is_message
from gesta.outcome import Outcome
from gesta.pending import EXPIRED
from gesta.perform import perform
from gesta.standing import RunState
from gesta.store import Letter
from gesta.turn import Turn


async def step(agent: Agent, desk: Desk) -> Move:
    """Take in what came from outside, decide, and carry the move out. Raises TurnLeft if the turn is to be left."""
    desk.stop.check()
    await take_in(desk)
    move = decide(agent, desk.state)
    if isinstance(move, Ask):
        with desk.stop.breaking():
            await perform(agent, move, desk)
    else:
        await perform(agent, move, desk)
    return move


async def turn(agent: Agent, desk: Desk) -> Outcome:
    """Take steps until the open turn ends or waits.

    Raises:
        WriteFailed, LeaseLost: the log takes no more. All else that goes wrong is on the record and in the outcome.
        TurnLeft: who waits for it has stopped waiting.
    """
    while True:
        move = await step(agent, desk)
        if isinstance(move, Finish):
            return outcome(desk)
        if isinstance(move, Wait) and not await take_in(desk):
            return outcome(desk, decided_again(agent, desk))


def decided_again(agent: Agent, desk: Desk) -> tuple[Waiting, ...]:
    """Say what the open turn waits for, the requests just written included."""
    move = decide(agent, desk.state)
    return move.what if isinstance(move, Wait) else ()


async def take_in(desk: Desk) -> bool:
    """Write what waits in the inbox into the log; each letter leaves the inbox in the commit of its entry."""
    journal = desk.log.journal
    news = [found for found in await letters(journal.store, desk.log.run) if found[0].id not in journal.taken_in]
    news = [found for found in news if not is_message(found[0])]
    for letter, content in news:
        attempt = await attempt_of(letter, journal.store)
        journal.take_in(letter, _received(letter, content, attempt, desk), desk.log.span_seq)
        desk.absorb()
    return bool(news) or _expire(desk)


def _expire(desk: Desk) -> bool:
    """Deny the approvals that nobody gave in time; that is a fact once it is written."""
    late = [
        call
        for call in desk.state.calls.values()
        if call.expires is not None and call.approval is None and call.expires <= desk.clock()
    ]
    for call in late:
        assert call.asked is not None and call.expires is not None
        reason = f"Nobody answered until {utc_text(call.expires)}."
        desk.write(ApprovalContent(of=call.asked, verdict="denied", by=EXPIRED, reason=reason), call.asked)
    desk.absorb()
    return bool(late)


def _received(letter: Letter, content: Content, attempt: Entry | None, desk: Desk) -> Content:
    """Judge an approval, and mark a result that comes after its call was already answered."""
    if isinstance(content, ApprovalContent):
        record, approver = desk.log.journal.store.info.id, desk.host.terms.approver
        return judged(content, letter, desk.state.calls.values(), record, approver)
    return placed(content, attempt, desk.state.calls)


def outcome(desk: Desk, waiting: tuple[Waiting, ...] = (), of: Turn | None = None) -> Outcome:
    """Read the outcome of a turn, by default the last, from the folded state."""
    return outcome_of(desk.log.run, desk.state, waiting, of)


def outcome_of(run: str, state: RunState, waiting: tuple[Waiting, ...] = (), of: Turn | None = None) -> Outcome:
    """Read the outcome of a turn of a run; see `outcome`."""
    turn, opened = of or state.turn, state.opened
    assert turn is not None and opened is not None
    value = turn.text if turn.value is None and not turn.null else turn.value
    return Outcome(
        run=run,
        session=opened.session,
        turn=turn.begin,
        reason=turn.reason or "waiting",
        answer=turn.text if turn.reason == "answered" else None,
        value=value if turn.reason == "answered" else None,
        waiting=waiting,
        error=turn.error,
        requests=turn.requests,
        tokens_in=turn.tokens_in,
        tokens_out=turn.tokens_out,
        unknown_usage=turn.unknown_usage,
        doubts=tuple(turn.doubts),
        spent=turn.spending.spent(turn.requests),
        end=turn.end,
    )
