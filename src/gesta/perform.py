"""The only contact with the outside: a move is carried out, and what came of it is written down.

Before anything leaves the process its intent is durable: a `request` before a model is asked, an `attempt` before a
tool runs. So at every crash point the log says whether something had not begun, is done, or is in doubt. What goes
wrong outside is an entry for the model or the next `decide`, never an exception out of the run.
"""

from typing import assert_never

from gesta.agent import Agent
from gesta.asking import ask
from gesta.codec import digest_of
from gesta.decide import Ask, Finish, Move, Use, Wait
from gesta.desk import Desk
from gesta.entry import Entry
from gesta.kinds import ApprovalRequestContent, AssistantContent, EndContent
from gesta.using import use


async def perform(agent: Agent, move: Move, desk: Desk) -> list[Entry]:
    """Carry a move out and give the entries about it, in order; they are folded into the desk.

    Raises:
        WriteFailed, LeaseLost: the log takes no more; nothing was effected after that.
    """
    match move:
        case Ask():
            await ask(agent, desk)
        case Use():
            await use(agent, move, desk)
        case Wait():
            await _wait(move, desk)
        case Finish():
            await _finish(move, desk)
        case _:
            assert_never(move)
    return desk.absorb()


async def _wait(move: Wait, desk: Desk) -> None:
    """Ask for the approvals that nobody was asked for yet."""
    for waiting in move.what:
        if waiting.what == "approval" and waiting.of is None:
            args = desk.state.calls[waiting.call].args
            desk.write(ApprovalRequestContent(of=waiting.call, args_digest=digest_of(args)), waiting.call)
    await desk.log.durable()


async def _finish(move: Finish, desk: Desk) -> None:
    """Give the answer if there is one, and end the turn."""
    turn = desk.state.turn
    assert turn is not None
    if move.reason == "answered" and turn.assistant is None:
        assert turn.reply is not None
        request = desk.state.asked.seq if desk.state.asked is not None else 0
        entry = desk.write(AssistantContent(value=turn.text), turn.reply)
        desk.explain("Conclusion", entry)
        whole = "" if desk.streamed else turn.text
        desk.tell("answer", whole, message=request, seq=entry.seq)
    desk.write(
        EndContent(status="success" if move.reason == "answered" else "error", reason=move.reason, error=move.error)
    )
    if move.reason != "answered":
        text = move.error.message if move.error is not None else move.reason
        desk.tell("error", text)
    await desk.log.durable()
