"""Makes the contents that are recorded for a tool call: the call as a model generated it, and the result of the tool.

A call is valid if the tool exists, and the arguments are a JSON object that fits the tool. The texts of errors are
written for the model, which reads them as the result of its call. The tool state is a word that decides which tools a
run may use. A tool can change it.
"""

import traceback
from typing import Any

import msgspec
from msgspec import Struct

from gesta.agent import Agent
from gesta.decide.open_call import no_such_tool
from gesta.errors import BadArguments, GestaError, ToolError, message_of
from gesta.function_tool.output import ANSWER, EXCERPT
from gesta.function_tool.tool import Tool
from gesta.kinds import Error, ToolCallContent, ToolResultContent
from gesta.model.request import ReplyCall
from gesta.perform.threads import Returned
from gesta.text.objects import json_of
from gesta.text.redactor import SECRETS


class DocumentedResult(Struct, frozen=True):
    """A value that a tool can return: the result that the model reads, and a document that is only recorded."""

    result: Any
    """The value that the model reads."""
    document: dict[str, Any]
    """Recorded beside the result; no model reads it."""


def result_of(returned: Returned, tool: Tool | None, call: int) -> ToolResultContent:
    """Return the result of a call: the returned value as JSON if its type has a JSON form, or the raised error.

    Args:
        returned: the value or exception of the tool's function.
        tool: the tool; `None` if the agent does not have it any more.
        call: seq of the tool call.
    """
    failure = _one(returned.failure) if returned.failure is not None else None
    if isinstance(returned.value, DocumentedResult):
        told = returned.value
        content = ToolResultContent(tool_result=plain(told.result), document=told.document, outcome="ok", call=call)
    elif failure is None:
        content = ToolResultContent(tool_result=plain(returned.value), outcome="ok", call=call)
    elif isinstance(failure, BadArguments | ToolError):
        content = ToolResultContent(tool_result=message_of(failure), status="error", outcome="error", call=call)
    else:
        content = _failed(failure, call)
    return stated(tool, content)


def stated(tool: Tool | None, content: ToolResultContent) -> ToolResultContent:
    """Return a tool's result, to which the tool's `state` (the next tool state) and `ends_turn` are added.

    If the tool failed or sets neither of them, the result is returned unchanged.
    """
    if tool is None or content.outcome != "ok" or not (tool.state is not None or tool.ends_turn):
        return content
    return msgspec.structs.replace(content, state=tool.state, ends_turn=tool.ends_turn)


def _failed(failure: BaseException, call: int) -> ToolResultContent:
    """Return the result of the call with the seq `call`, whose tool raised `failure`.

    The model reads the type and the message. The traceback is for people.
    """
    name, text = words_of(failure)
    return ToolResultContent(
        tool_result=f"{name}: {text}" if text else name,
        status="error",
        outcome="error",
        call=call,
        error=Error(type=name, message=text, traceback=_trace(failure)),
    )


def words_of(failure: BaseException) -> tuple[str, str]:
    """Return the name of the type of an exception, and its message.

    For an exception group, such as a task group raises, the message names each exception in it. If it is only one, that
    exception's type and message are returned.
    """
    failure = _one(failure)
    if not isinstance(failure, BaseExceptionGroup):
        return type(failure).__name__, message_of(failure)
    return type(failure).__name__, "; ".join(": ".join(filter(None, words_of(each))) for each in failure.exceptions)


def trace_of(failure: BaseException) -> str | None:
    """Return the traceback of an exception, for people; `None` for an error of Gesta, whose message is enough."""
    return None if isinstance(failure, GestaError) else _trace(failure)


def _trace(failure: BaseException) -> str | None:
    """Return the traceback of an exception; `None` if it cannot be written, as if the exception's attributes raise."""
    try:
        return "".join(traceback.format_exception(failure, limit=-8))
    except Exception:  # noqa: BLE001 - whatever the exception raises while it is read
        return None


def _one(failure: BaseException) -> BaseException:
    """Return the only exception in a group of one; any other exception unchanged."""
    while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    return failure


def plain(value: Any) -> Any:
    """Return a struct, dataclass or pydantic model as plain JSON values.

    A value without a JSON form is returned unchanged.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    dump = getattr(type(value), "model_dump", None)
    try:
        return dump(value, mode="json") if dump is not None else msgspec.to_builtins(value, enc_hook=_dumped)
    except Exception:  # noqa: BLE001 - a value without a JSON form is encoded by the codec, which accepts any value
        return value


def _dumped(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(type(value), "model_dump") else value


NO_ARGUMENT = (
    "No secret is ever on record, so no tool can be called with one: a tool reads its secrets itself. Leave it out."
)


def checked_call(agent: Agent, call: ReplyCall, *, lost: bool = False) -> ToolCallContent:
    """Return the content to record for a tool call in a model's reply. An invalid call gets a content with the error.

    If the arguments are not a JSON object, the agent's `repair` function may correct them. It is called only for tools
    without effects and for tools that need approval.

    Args:
        lost: whether the reply was cut off before the arguments of this call came.
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
    elif lost:
        problem = f"The reply was cut off before the arguments of {call.name!r} came. Make the call again."
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
        return None, f"are not JSON ({wrong}); they began {text[:EXCERPT]!r}"
    if not isinstance(value, dict):
        return None, f"are a JSON {type(value).__name__}, expected an object; they began {text[:EXCERPT]!r}"
    return value, ""


def _lenient_json(text: str) -> Any:
    """Return the value of a JSON text. A text with half a surrogate pair, which msgspec refuses, is accepted.

    Raises ValueError, also for NaN and infinity: a tool that compares such an amount with its limit finds it allowed.
    """
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, ValueError):
        return json_of(text)
