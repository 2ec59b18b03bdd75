"""Checks a tool call that a model generated: the tool exists, and the arguments are a JSON object that fits the tool.

The texts of the errors are written for the model, which reads them as the result of its call.
"""

import json
from typing import Any

import msgspec

from gesta.agent import Agent
from gesta.decide.open_call import no_such_tool
from gesta.errors import BadArguments
from gesta.function_tool.output import ANSWER, EXCERPT
from gesta.kinds import ToolCallContent
from gesta.model.request import ReplyCall
from gesta.text.redactor import SECRETS

NO_ARGUMENT = (
    "No secret is ever on record, so no tool can be called with one: a tool reads its secrets itself. Leave it out."
)


def checked_call(agent: Agent, call: ReplyCall) -> ToolCallContent:
    """Return the content to record for a tool call in a model's reply. An invalid call gets a content with the error.

    If the arguments are no JSON object, the agent's `repair` function may correct them. It is called only for tools
    without effects and for tools that need approval.
    """
    args, wrong_text = _object(call.args)
    meta, problem = None, None
    tool = agent.tool(call.name)
    if args is None and callable(agent.repair) and tool is not None and (tool.effect == "pure" or tool.approval):
        args = agent.repair(call.args)
        meta = None if args is None else {"raw_args": call.args, "repaired": True}
    if args is None:
        meta, problem = {"raw_args": call.args}, f"The arguments of {call.name!r} {wrong_text}. Write a JSON object."
    elif SECRETS.search is not None and (secret := SECRETS.named_in(call.args)) is not None:
        problem = f"The arguments of {call.name!r} hold the secret {secret!r}. {NO_ARGUMENT}"
    elif call.name == ANSWER and agent.answers_by() == "tool":
        problem = f"Call {ANSWER!r} alone, when nothing else is to be called."
    elif tool is None:
        problem = no_such_tool(agent, call.name)
    else:
        try:
            tool.arguments(args)
        except BadArguments as wrong:
            problem = str(wrong)
    if problem is not None:
        meta = {**(meta or {}), "error": problem}
    return ToolCallContent(
        tool_name=call.name,
        tool_args=args or {},
        tool_call_id=call.id,
        status="success" if problem is None else "error",
        meta=meta,
    )


def _object(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return the arguments in a text, and an empty error text. If they cannot be read, return `None` and the error."""
    try:
        value = _lenient_json(text) if text.strip() else {}
    except (ValueError, RecursionError) as wrong:
        return None, f"are no JSON ({wrong}); they began {text[:EXCERPT]!r}"
    if not isinstance(value, dict):
        return None, f"are a JSON {type(value).__name__}, expected an object; they began {text[:EXCERPT]!r}"
    return value, ""


def _lenient_json(text: str) -> Any:
    """Return the value of a JSON text. A text with half a surrogate pair, which msgspec refuses, is accepted."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, ValueError):
        return json.loads(text)
