"""ReAct: the agent thinks, calls tools and reads their results until it has the answer, as all agents here do."""

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
    """Make an agent that reasons and acts.

    Args:
        form: how the model writes its tool calls: natively, or as `Thought:`, `Action:` and `Args:` in its text.
    """
    return Agent(name, model=model, tools=tuple(tools), instructions=instructions, formatter=form)
