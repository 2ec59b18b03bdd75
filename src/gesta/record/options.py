"""Options of one turn, the same for all functions that begin or resume a turn. They are not recorded.

A record is the store of all runs. A session is the runs of one conversation. Deps (dependencies) are objects that a
program passes to its tools: connections, clients, the person who is logged in. A process that continues a turn must
pass its own deps, unless the agent's `deps` function makes them.
"""

import inspect
from collections.abc import Iterator
from typing import Any, TypedDict

from msgspec.structs import replace

from gesta.agent import Agent, function_name
from gesta.errors import AgentError, NoDeps, refuse_unknown
from gesta.function_tool.context import Context
from gesta.function_tool.output import T
from gesta.function_tool.signature import needed_by
from gesta.hooks import VERDICTS
from gesta.model.request import Model


class TurnOptions(TypedDict, total=False):
    """Options of `Record.resume`, and of every function that begins a turn."""

    deps: Any
    """Objects that the tools of the turn and of its child runs get as `Context.deps`; they are never on record."""
    model: Model | str
    """Model of this turn, used in place of the agent's own."""
    settings: dict[str, Any]
    """Settings of the model's requests in this turn, such as `temperature`. They override the agent's own."""


class MessageOptions(TurnOptions, total=False):
    """Options of `Record.run` and `Record.stream`."""

    session: str | None
    """Name of the session. Without a name, each message begins a new session."""
    key: str | None
    """Key of the message: if a message is sent twice with the same key, the second one begins no turn."""
    user: str | None
    """Name of the person who sends the message."""
    traceparent: str | None
    """W3C trace context of the caller, `00-TRACE-SPAN-FLAGS`. In an exported trace, the turn's span has that span as
    its parent."""


def of_turn(agent: Agent[T], options: TurnOptions) -> Agent[T]:
    """Return the agent with the options of one turn applied. Raises TypeError for an unknown option."""
    refuse_unknown("Record.resume", options, TurnOptions.__annotations__)
    if (model := options.get("model")) is not None:
        agent = replace(agent, model=model, price=None)
    if settings := options.get("settings"):
        if not isinstance(settings, dict):
            raise AgentError(f"settings={settings!r:.60}: expected a dict, such as settings={{'temperature': 0}}.")
        agent = replace(agent, settings=agent.settings | settings)
    return agent


async def supplied(agent: Agent[Any]) -> Any:
    """Return the deps that the agent's own `deps` function makes; `None` if it has no such function.

    Raises:
        NoDeps: the agent makes no deps, but one of its tools or hooks, or the function of its instructions, needs them.
    """
    deps = agent.deps() if agent.deps is not None else None
    deps = await deps if inspect.isawaitable(deps) else deps
    if deps is None:
        for tool, needed in _needs(agent):
            raise NoDeps(agent.name, tool, needed)
    return deps


def _needs(agent: Agent[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the functions and tools of an agent that need deps: the name of each, and the type of its deps.

    Agents that are used as tools are included, unless they have a `deps` function.
    """
    asked = [getattr(agent.hooks, point) for point in VERDICTS] if agent.hooks is not None else []
    for function in (agent.instructions, *asked):
        if callable(function) and (needed := needed_by(function, Context)) is not None:
            yield function_name(function).rpartition(".")[2], needed
    for tool in agent.tools:
        if tool.needs is not None:
            yield tool.name, tool.needs
        if isinstance(tool.agent, Agent) and tool.agent.deps is None:
            yield from _needs(tool.agent)
