"""The check of a tool call that a model generated: the tool is known, the arguments are a JSON object and fit.

Errors are for the model to read.
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
    """Return the content of a call. If the call is invalid, the content holds the error."""
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
    """Return the arguments read from a text, and an empty reason; or `None` and the reason.

    Empty text means no arguments.
    """
    try:
        value = _lenient_json(text) if text.strip() else {}
    except (ValueError, RecursionError) as wrong:
        return None, f"are no JSON ({wrong}); they began {text[:EXCERPT]!r}"
    if not isinstance(value, dict):
        return None, f"are a JSON {type(value).__name__}, expected an object; they began {text[:EXCERPT]!r}"
    return value, ""


def _lenient_json(text: str) -> Any:
    """Read JSON. Text that msgspec refuses, such as half a surrogate pair or NaN, is read by `json.loads`."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, ValueError):
        return json.loads(text)
