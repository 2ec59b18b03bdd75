"""Carries out moves and records the results. All effects outside of this process are caused here.

A move is the next thing that a run does, such as `Ask` (send a request to the model). `decide` chooses it. An entry is
one recorded fact of a run. Each effect is announced by an entry before it begins: by a `request` before a model is
asked, by an `attempt` before a tool runs. So after a crash, the record shows of each effect whether it did not begin,
is done, or is in doubt. (In doubt means that nobody knows whether it happened.) A failure of a model or a tool becomes
an entry, and is never raised out of the run.
"""

from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace

from gesta.agent import Agent
from gesta.codec.rows import digest_of
from gesta.decide.budget import overrun
from gesta.decide.move import Ask, Check, Close, Correct, Finish, Move, Pause, Use, Wait
from gesta.decide.waiting import Waiting
from gesta.entry import Entry
from gesta.kinds import (
    ApprovalRequestContent,
    AssistantContent,
    EndContent,
    Error,
    FaultContent,
    QuestionContent,
    Status,
    SystemContent,
)
from gesta.perform.checks import check
from gesta.perform.doubts import doubts_below, settle_idle
from gesta.perform.execution import LiveRun
from gesta.perform.model_call import ask
from gesta.perform.tool_call import use
from gesta.prompt import observation_text
from gesta.state.calls import LOST


async def perform(agent: Agent, move: Move, live: LiveRun) -> list[Entry]:
    """Carry out a move, and return the entries about it, in order. The state of the live run contains them already.

    Raises:
        WriteFailed, LeaseLost: nothing more can be written to the run. No effect was begun after that.
    """
    match move:
        case Check():
            await check(agent, move, live)
        case Ask():
            await ask(agent, live, smaller=move.compact)
        case Correct():
            _correct(move, live)
        case Close():
            await _close(move, live)
        case Pause():
            await _pause(move, live)
        case Use():
            await use(agent, move, live)
        case Wait():
            await _wait(agent, move, live)
        case Finish():
            await _finish(agent, move, live)
        case _:
            assert_never(move)
    return live.absorb()


def _correct(move: Correct, live: LiveRun) -> None:
    turn, asked = live.state.turn, live.state.asked
    assert turn is not None and turn.reply is not None and asked is not None
    live.write(SystemContent(value=move.text, source=["output"], corrects=turn.reply), turn.reply)
    live.take_back(asked.seq)


async def _close(move: Close, live: LiveRun) -> None:
    for content in move.results:
        assert content.call is not None
        call = live.state.calls[content.call]
        left = replace(content, doubts=await doubts_below(call, live)) if call.last is not None else content
        live.write(left, call.last.seq if call.last is not None else call.seq, *call.said)
    if move.lost is not None:
        lost = Error(type=LOST, message="the process that asked ended before the answer was on record")
        live.write(FaultContent(of=move.lost, error=lost), move.lost)


async def _pause(move: Pause, live: LiveRun) -> None:
    """Wait until it is time to send a failed request again. A process that takes over waits only for the rest."""
    left = (move.failed_at + timedelta(seconds=move.wait_s) - live.clock()).total_seconds()
    if left > 0:
        await live.log.durable()
        await live.stop.wait(min(left, move.wait_s))
    assert live.state.turn is not None
    live.state.turn.retry_at = None


async def _wait(agent: Agent, move: Wait, live: LiveRun) -> None:
    """Write the questions and requests for approval that the turn waits for, unless they are on record already."""
    journal = live.log.journal
    known = journal.head
    for waiting in move.what:
        if waiting.of is not None:
            continue
        if waiting.what == "budget":
            over = overrun(agent, live.state)
            assert live.state.turn is not None
            assert over is not None
            live.write(over.question, live.state.turn.question)
        elif waiting.what in ("approval", "question"):
            _ask_about(agent, waiting, live)
    if journal.head > known:
        journal.sync()
    await live.log.durable()


def _ask_about(agent: Agent, waiting: Waiting, live: LiveRun) -> None:
    """Write an entry that asks a person to approve a call, or to give its result."""
    call = live.state.call(waiting.call)
    assert call is not None
    tool, args = agent.tool(call.name), call.args
    assert tool is not None
    if waiting.what == "approval":
        expires = _expiry(live.clock(), tool.expires_s)
        digest, effect = digest_of(args), tool.effect
        live.write(ApprovalRequestContent(of=call.seq, args_digest=digest, expires=expires, effect=effect), call.seq)
    else:
        text = str(args.get("question") or observation_text(args))
        live.write(QuestionContent(value=text, schema=tool.answer_schema), call.seq)


def _expiry(now: datetime, wait_s: float | None) -> datetime | None:
    """Return the time at which a request for approval expires; `None` if it never does or after the year 9999."""
    try:
        return None if wait_s is None else now + timedelta(seconds=wait_s)
    except OverflowError:
        return None


async def _finish(agent: Agent, move: Finish, live: LiveRun) -> None:
    """Write the answer, if there is one, and end the turn. In a child run, the `end` entry holds the answer."""
    turn, opened = live.state.turn, live.state.opened
    assert turn is not None and opened is not None
    child, value, causes = opened.parent_run is not None, move.value, move.causes
    given = move.reason == "answered" and turn.assistant is None
    own = given and agent.program is None and not causes
    if own:
        assert turn.reply is not None
        value, causes = agent.answer_text(turn.text), (turn.reply,)
    said = observation_text(value) if value is not None or agent.output is not None else ""
    text = move.text if move.text is not None else said
    if own and agent.answer_type is not None:
        value = agent.answer_type.plain(text)
    null = given and value is None and agent.output is not None
    if given and not child:
        live.write(AssistantContent(value=text), *causes)
        value, causes = None if isinstance(value, str) else value, ()
    below: list[str] = []
    if live.state.steps.open or turn.handed > 0:
        below = await live.host.call_off(live)
        await settle_idle(agent, live)
    for span in sorted(live.state.spans, reverse=True):  # spans of steps that were interrupted
        left = Error(type="orphaned", message="the turn ended before it was done")
        live.log.journal.write(EndContent(status="error", error=left), span)
    status: Status = "success" if move.reason == "answered" else "error"
    end = EndContent(state=value, status=status, reason=move.reason, error=move.error, null=null)
    doubts = sorted({*live.state.left_in_doubt(), *below}) or None
    live.write(replace(end, doubts=doubts, below=below or None), *causes)
    if move.reason != "answered" and live.state.asked is not None:
        live.take_back(live.state.asked.seq)
    if child:
        live.log.journal.sync()  # the parent run goes on from this end
    await live.log.durable()
