"""ReAct: an agent that thinks, calls tools and reads their results in a loop, until it has the answer."""

from collections.abc import Sequence
from typing import Literal

from gesta.agent import Agent
from gesta.function_tool.tool import Tool
from gesta.model.request import Model


def react(
    name: str,
    model: Model | str,
    tools: Sequence[Tool] = (),
    *,
    instructions: str = "",
    form: Literal["tool-calls", "react-text"] = "tool-calls",
) -> Agent:
    """Return an agent that thinks and calls tools in a loop, until it has the answer.

    Args:
        name: name of the agent.
        model: the model that is asked.
        tools: the tools that it may call.
        instructions: instructions of the agent.
        form: how the model writes its tool calls: natively, or as `Thought:`, `Action:` and `Args:` in its text.
    """
    return Agent(name, model=model, tools=tuple(tools), instructions=instructions, formatter=form)
