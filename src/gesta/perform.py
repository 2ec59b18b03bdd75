"""The only contact with the outside: a move is carried out, and what came of it is written down.

Before anything leaves the process its intent is durable: a `request` before a model is asked, an `attempt` before a
tool runs. So at every crash point the log says whether something had not begun, is done, or is in doubt. What goes
wrong outside is an entry for the model or the next `decide`, never an exception out of the run.
"""

from datetime import timedelta
from typing import assert_never

from gesta.affording import overrun
from gesta.agent import Agent
from gesta.asking import ask
from gesta.codec import digest_of
from gesta.decide import BUDGET, Ask, Finish, Move, Use, Wait
from gesta.desk import Desk
from gesta.entry import Entry
from gesta.formatter import observation_text
from gesta.kinds import ApprovalRequestContent, AssistantContent, EndContent, Error, QuestionContent, Status
from gesta.turn import NULL
from gesta.using import use


async def perform(agent: Agent, move: Move, desk: Desk) -> list[Entry]:
    """Carry a move out and give the entries about it, in order; they are folded into the desk.

    Raises:
        WriteFailed, LeaseLost: the log takes no more; nothing was effected after that.
    """
    match move:
        case Ask():
            await ask(agent, desk, move.correction)
        case Use():
            await use(agent, move, desk)
        case Wait():
            await _wait(agent, move, desk)
        case Finish():
            await _finish(agent, move, desk)
        case _:
            assert_never(move)
    return desk.absorb()


async def _wait(agent: Agent, move: Wait, desk: Desk) -> None:
    """Ask for the approvals and answers that nobody was asked for yet."""
    for waiting in move.what:
        over = overrun(agent, desk.state) if waiting.tool == BUDGET and not waiting.call else None
        if over is not None and waiting.of is None:
            assert desk.state.turn is not None
            desk.write(over.question, desk.state.turn.question)
        tool = agent.tool(waiting.tool)
        if tool is None or waiting.of is not None:
            continue
        args = desk.state.calls[waiting.call].args
        if waiting.what == "approval":
            expires = desk.clock() + timedelta(seconds=tool.expires_s) if tool.expires_s is not None else None
            asked = ApprovalRequestContent(of=waiting.call, args_digest=digest_of(args), expires=expires)
            desk.write(asked, waiting.call)
        elif waiting.what == "question":
            text = str(args.get("question") or observation_text(args))
            desk.write(QuestionContent(value=text, schema=tool.answer_schema), waiting.call)
    await desk.log.durable()


async def _finish(agent: Agent, move: Finish, desk: Desk) -> None:
    """Give the answer if there is one, and end the turn; the answer of a child run is the state of its end."""
    turn, opened = desk.state.turn, desk.state.opened
    assert turn is not None and opened is not None
    child, value, causes = opened.parent_run is not None, move.value, move.causes
    given = move.reason == "answered" and turn.assistant is None
    if given and agent.program is None:
        assert turn.reply is not None
        value, causes = agent.answer_text(turn.text), (turn.reply,)
    said = observation_text(value) if value is not None or agent.output is not None else ""
    text = move.text if move.text is not None else said
    if given and agent.program is None and agent.output is not None:
        value = agent.output.plain(text)
    extra = {NULL: True} if given and value is None and agent.output is not None else None
    answer = None
    if given and not child:
        answer = desk.write(AssistantContent(value=text), *causes)
        value, causes = None if isinstance(value, str) else value, ()
    if desk.state.acts.open or turn.handed > 0:
        await desk.host.call_off(desk)
    for span in sorted(desk.state.spans, reverse=True):  # of acts that were broken off
        left = Error(type="orphaned", message="the turn ended before it was done")
        desk.log.journal.write(EndContent(status="error", error=left), span)
    status: Status = "success" if move.reason == "answered" else "error"
    doubts = desk.state.left_in_doubt() or None
    end = EndContent(state=value, status=status, reason=move.reason, error=move.error, doubts=doubts, extra=extra)
    ended = desk.write(end, *causes)
    request = desk.state.asked.seq if desk.state.asked is not None and agent.program is None else 0
    if given:
        desk.explain("Conclusion", answer or ended)
        desk.tell("answer", "" if desk.streamed else text, message=request, seq=(answer or ended).seq)
    elif move.reason != "answered":
        desk.take_back(request)
        desk.tell("error", move.error.message if move.error is not None else move.reason)
    await desk.log.durable()
