"""Instructions that a function makes: once in a turn, before its first request. The header holds their text.

So the requests of a turn begin alike, as the caches of providers want it, and whoever goes on with the turn, or replays
it, does not call the function again. A function that fails ends the turn.
"""

from traceback import format_exception

import anyio
from msgspec.structs import replace

from gesta.agent import Agent, function_name, instructions_text
from gesta.errors import GestaError, message_of
from gesta.kinds import Error, FaultContent
from gesta.perform.child import turn_context
from gesta.perform.execution import LiveRun
from gesta.state.calls import UNMADE

MADE_NONE = " made no instructions: "


async def instructed(agent: Agent, live: LiveRun) -> Agent | None:
    """Return the agent with the instructions of the open turn; `None` if the function failed, which is on record then.

    The same agent gives the same object again, so that the header of its requests is made once.
    """
    turn, header = live.state.turn, live.state.header
    assert turn is not None
    text = header.made if (turn.headed or turn.asked) and header is not None else None
    if text is None:
        try:
            with anyio.fail_after(agent.policy.tool_timeout_s):
                text = await instructions_text(agent.instructions, turn_context(live))
        except Exception as failure:  # noqa: BLE001 - how the turn ends
            live.write(FaultContent(of=turn.begin, error=_unmade(agent, failure)), turn.begin)
            return None
    if live.made is None or live.made[0] is not agent or live.made[1] != text:
        live.made = agent, text, replace(agent, instructions=text)
    return live.made[2]


def _unmade(agent: Agent, failure: Exception) -> Error:
    """Return the error that says why the function made no instructions."""
    assert not isinstance(agent.instructions, str)
    said, name = message_of(failure), type(failure).__name__
    message = f"{function_name(agent.instructions)}{MADE_NONE}{name}: {said}"
    trace = None if isinstance(failure, GestaError) else "".join(format_exception(failure, limit=-8))
    return Error(type=UNMADE, message=message, traceback=trace)
