"""Turns the value or exception of a tool's function into a `tool-result` entry, which the model reads.

The tool state is a word that decides which tools a run may use. A tool can change it.
"""

import traceback
from typing import Any

import msgspec
from msgspec import Struct

from gesta.errors import BadArguments, GestaError, ToolError, message_of
from gesta.function_tool.tool import Tool
from gesta.kinds import Error, ToolResultContent
from gesta.perform.threads import Returned


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
    trace = "".join(traceback.format_exception(failure, limit=-8))
    return ToolResultContent(
        tool_result=f"{name}: {text}" if text else name,
        status="error",
        outcome="error",
        call=call,
        error=Error(type=name, message=text, traceback=trace),
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
    return None if isinstance(failure, GestaError) else "".join(traceback.format_exception(failure, limit=-8))


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
