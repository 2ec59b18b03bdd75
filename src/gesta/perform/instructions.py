"""Instructions that a function makes: it is called once in a turn, and the request header records their text.

A turn is one message to an agent and all the work up to its answer. All requests of a turn have the same instructions,
so that the provider's cache can be used. A process that continues or replays the turn reads the recorded text. If the
function fails, the turn ends.
"""

import anyio
from msgspec.structs import replace

from gesta.agent import Agent, function_name, instructions_text
from gesta.decide.budget import account
from gesta.errors import message_of
from gesta.kinds import Error, FaultContent
from gesta.perform.call_contents import trace_of
from gesta.perform.context import turn_context
from gesta.perform.execution import LiveRun
from gesta.perform.threads import strayed
from gesta.state.calls import UNMADE

MADE_NONE = " made no instructions: "


async def instructed(agent: Agent, live: LiveRun) -> Agent | None:
    """Return a copy of the agent whose instructions are the text that the agent's function returned.

    If the function failed, write a `fault` entry, which ends the turn, and return `None`. If the turn keeps an account,
    write the new request header, and return `None`, too: then the budget is asked before the request. The same agent
    and text always give the same copy, so that its request header is made once.
    """
    turn, header = live.state.turn, live.state.header
    assert turn is not None
    text = header.made if (turn.headed or turn.asked) and header is not None else None
    if text is None:
        try:
            with anyio.fail_after(agent.policy.tool_timeout_s):
                text = await instructions_text(agent.instructions, turn_context(live))
        except BaseException as failure:
            if not isinstance(failure, Exception) and not strayed(failure):
                raise
            live.write(FaultContent(of=turn.begin, error=_unmade(agent, failure)), turn.begin)
            return None
    if live.made is None or live.made[0] is not agent or live.made[1] != text:
        live.made = agent, text, replace(agent, instructions=text)
    made = live.head(live.made[2]).header
    if not turn.headed and made != header and account(agent.policy.budget, live.state) is not None:
        live.write(made)  # the budget is asked again, now that the instructions are known
        return None
    return live.made[2]


def _unmade(agent: Agent, failure: BaseException) -> Error:
    """Return the error to record if the function for the instructions failed."""
    assert not isinstance(agent.instructions, str)
    said, name = message_of(failure), type(failure).__name__
    message = f"{function_name(agent.instructions)}{MADE_NONE}{name}: {said}"
    return Error(type=UNMADE, message=message, traceback=trace_of(failure))
