"""LangChain's scratchpads: functions that show the steps so far to the model, as text or as messages.

A step is an action (a request to run a tool) with its observation (the result). No function drops an observation,
merges equal steps or leaves a tool call without a result. Steps may be objects of LangChain's own classes, or pairs of
an action and its observation. The log of an action is the model's text that asked for it. The messages returned are of
the classes in `gesta.compat.langchain.messages`.
"""

from collections.abc import Iterable
from typing import Any

from gesta.compat.langchain.agents import (
    AgentAction,
    AgentActionMessageLog,
    AgentStep,
    _create_function_message,
    said,
    taken,
)
from gesta.compat.langchain.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from gesta.compat.langchain.steps import UNANSWERED, Round, rounds
from gesta.prompt import observation_text

Pairs = Iterable[AgentStep | tuple[AgentAction, Any]]
"""Steps, or pairs of an action and its observation. The objects may be Gesta's or LangChain's."""
TAGS = str.maketrans("<>", "[]")
XML = tuple(f"<{end}{tag}>" for tag in ("tool", "tool_input", "observation", "final_answer") for end in ("", "/"))


def format_log_to_str(steps: Pairs, observation_prefix: str = "Observation: ", llm_prefix: str = "Thought: ") -> str:
    """Return each action's log and observation as one text that ends with `llm_prefix`, for the model to continue."""
    return "".join(
        f"{step.action.log}\n{observation_prefix}{observation_text(step.observation)}\n{llm_prefix}"
        for step in _steps(steps)
    )


def format_log_to_messages(steps: Pairs, template_tool_response: str = "{observation}") -> list[BaseMessage]:
    """Return two messages for each step: the log as an ai message, and the observation as a human message.

    Args:
        template_tool_response: text of the human message; `{observation}` in it is replaced.
    """
    found: list[BaseMessage] = []
    for step in _steps(steps):
        text = template_tool_response.format(observation=observation_text(step.observation))
        found += [AIMessage(step.action.log), HumanMessage(text)]
    return found


def format_to_openai_function_messages(steps: Pairs) -> list[BaseMessage]:
    """Return, for each step, the messages of its action and then its observation.

    The observation is a function message if the action has a message log, else a human message.
    """
    found: list[BaseMessage] = []
    for step in _steps(steps):
        action, log = step.action, said(step.action)
        logged = isinstance(action, AgentActionMessageLog)
        seen = _create_function_message(action, step.observation) if logged else step.messages[0]
        found += [*(log if logged else action.messages), seen]
    return found


def format_to_tool_messages(steps: Pairs) -> list[BaseMessage]:
    """Return each reply of the model once, and after it one tool message for each of its calls.

    The tool message of a call without a step says that there is no result. A further result of the same call becomes a
    human message.
    """
    found: list[BaseMessage] = []
    for item in rounds(_steps(steps)):
        if isinstance(item, Round):
            found += map(taken, item.first.messages)
            found += _answers(item)
        elif isinstance(item, AgentStep):
            named = f"[Late result of {item.action.tool}]\n{observation_text(item.observation)}"
            found.append(HumanMessage(named))
    return found


def format_xml(steps: Pairs, *, escape_format: str | None = "minimal") -> str:
    """Return the tool, the input and the observation of each step as text in XML tags.

    Args:
        escape_format: with `minimal`, these tags inside a text are written with square brackets (`[[tool]]`), so that
            they do not end an element; `None` leaves texts unchanged.
    """
    found = ""
    for step in _steps(steps):
        texts = step.action.tool, observation_text(step.action.tool_input), observation_text(step.observation)
        tool, tool_input, seen = (_escape(text) for text in texts) if escape_format == "minimal" else texts
        found += f"<tool>{tool}</tool><tool_input>{tool_input}</tool_input><observation>{seen}</observation>"
    return found


def _steps(steps: Pairs) -> list[AgentStep]:
    found = []
    for step in map(taken, steps):
        if not isinstance(step, AgentStep | tuple | list):
            raise TypeError(f"found a {type(step).__name__}; expected a step, or an action and its observation")
        found.append(step if isinstance(step, AgentStep) else AgentStep(*step))
    return found


def _answers(item: Round) -> Iterable[BaseMessage]:
    for place, call in enumerate(item.asked):
        step = item.steps.get(place)
        text = UNANSWERED if step is None else observation_text(step.observation)
        yield ToolMessage(text, tool_call_id=call["id"], additional_kwargs={"name": call["name"]})
    if not item.asked:
        yield from item.steps[0].messages


def _escape(text: str) -> str:
    for tag in XML:
        text = text.replace(tag, f"[{tag.translate(TAGS)}]")
    return text
