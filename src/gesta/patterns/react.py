"""ReAct is what an agent does anyway: it thinks, calls tools and reads what they say until it has the answer."""

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
        form: how it writes its calls: natively, or as `Thought:`, `Action:` and `Args:` in its words.
    """
    return Agent(name, model=model, tools=tuple(tools), instructions=instructions, formatter=form)
