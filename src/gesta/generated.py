"""How well a call was generated: a known tool, a JSON object, arguments that fit; what is wrong, the model is told."""

import json
from typing import Any

import msgspec

from gesta.agent import Agent
from gesta.errors import BadArguments, nearest
from gesta.kinds import ToolCallContent
from gesta.model import ReplyCall
from gesta.output import ANSWER

EXCERPT = 200  # characters of what a model wrote that it is shown again


def judged(agent: Agent, call: ReplyCall) -> ToolCallContent:
    """Write a call down, with what is wrong with it."""
    args, wrong_text = _object(call.args)
    meta, problem = None, None
    tool = agent.tool(call.name)
    if args is None and callable(agent.repair) and tool is not None and (tool.effect == "pure" or tool.approval):
        args = agent.repair(call.args)
        meta = None if args is None else {"raw_args": call.args, "repaired": True}
    if args is None:
        meta, problem = {"raw_args": call.args}, f"The arguments of {call.name!r} {wrong_text}. Write a JSON object."
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
    """Read arguments, or say why they are none. No text at all counts as no arguments."""
    try:
        value = _json(text) if text.strip() else {}
    except (ValueError, RecursionError) as wrong:
        return None, f"are no JSON ({wrong}); they began {text[:EXCERPT]!r}"
    if not isinstance(value, dict):
        return None, f"are a JSON {type(value).__name__}, expected an object; they began {text[:EXCERPT]!r}"
    return value, ""


def _json(text: str) -> Any:
    """Read JSON; what the strict decoder refuses (half a surrogate pair, NaN) the lenient one may take."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, ValueError):
        return json.loads(text)


def no_such_tool(agent: Agent, name: str) -> str:
    """Say that a tool does not exist, and which do."""
    names = [tool.name for tool in agent.tools]
    return f"There is no tool {name!r}.{nearest(name, names)} Tools: {', '.join(names) or 'none'}."
