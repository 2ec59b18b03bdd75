"""Describes an agent as a tool of MCP: name, text, schemas of arguments and results, and hints about its effects.

A program is a function that runs an agent's turns in place of a model.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_types import Tool, ToolAnnotations
from msgspec import Struct

from gesta.agent import Agent
from gesta.errors import AgentError, nearest

LONGEST = 200
"""Greatest number of characters of a session's name or of a message's key."""
TAKES = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "description": "What to say to the agent. It sees nothing else of your conversation.",
        },
        "session": {
            "type": "string",
            "maxLength": LONGEST,
            "description": "Name of a conversation with the agent; another message under this name goes on with it. "
            "Without a name, the message begins a new conversation.",
        },
        "key": {
            "type": "string",
            "maxLength": LONGEST,
            "description": "Name of this message. A message that is sent again under its key runs once, and gives the "
            "same answer. Each new message needs a new key.",
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}
"""JSON Schema of the arguments of each agent's tool."""


class AgentTool(Struct, frozen=True):
    """An agent, and its description as a tool of MCP."""

    agent: Agent[Any]
    tool: Tool


def agent_tools(agents: Sequence[Agent[Any]], texts: Mapping[str, str]) -> dict[str, AgentTool]:
    """Return a tool for each agent, by the name of the tool.

    Args:
        texts: descriptions by agent name, used in place of the first lines of the agents' instructions.

    Raises:
        AgentError: two agents have the same tool name, or a description names no agent.
    """
    known = [agent.name for agent in agents]
    for name in texts:
        if name not in known:
            raise AgentError(f"No agent {name!r} to describe.{nearest(name, known)} There are: {', '.join(known)}.")
    found = dict[str, AgentTool]()
    for agent in agents:
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", agent.name)[:64] or "agent"
        if name in found:
            both = f"{found[name].agent.name!r} and {agent.name!r}"
            raise AgentError(f"The agents {both} are both {name!r} as tools. Give one of them another name.")
        found[name] = AgentTool(agent, _tool(name, agent, texts.get(agent.name)))
    return found


def _tool(name: str, agent: Agent[Any], text: str | None) -> Tool:
    reads = effects(agent) <= {"pure"}
    return Tool(
        name=name,
        title=agent.name,
        description=text or _text(agent),
        input_schema=TAKES,
        output_schema=agent.answer_type.schema if agent.answer_type is not None else None,
        annotations=ToolAnnotations(
            title=agent.name,
            read_only_hint=reads,
            destructive_hint=not reads,
            idempotent_hint=False,
            open_world_hint=True,
        ),
    )


def _text(agent: Agent[Any]) -> str:
    """Return the first line of an agent's instructions or, without any, of its program's docstring.

    If both are missing, return a general sentence with the agent's name.
    """
    told = agent.instructions.strip() if isinstance(agent.instructions, str) else ""
    if not told and agent.program is not None:
        told = (getattr(agent.program, "__doc__", None) or "").strip()
    return told.partition("\n")[0].strip() or f"Send a message to the agent {agent.name}, and get its answer."


def effects(agent: Agent[Any]) -> set[str]:
    """Return the effects of an agent's tools, such as `pure` or `once`. Tools of agents that it calls are included.

    `once` means that the effect must not be repeated. It is assumed for an agent with a program.
    """
    found = {"once"} if agent.program is not None else set[str]()
    for tool in agent.tools:
        found |= effects(tool.agent) if isinstance(tool.agent, Agent) else {tool.effect}
    return found
