"""Reads recorded requests and responses of OpenAI's chat API, and compares their messages.

Each request repeats the whole conversation, so the reader must find the messages that are new. Libraries send the same
message in different ways: as a text or as a list of one part, with cache marks or without. So each message has a plain
form, with only its text and its calls, and plain forms are compared.
"""

from typing import Any

from msgspec.structs import replace

from gesta.importers.chat import Said
from gesta.importers.foreign import Members, Oddities, merged, object_of, same
from gesta.importers.message import is_parts, tool

PLAIN = ("role", "content", "tool_calls", "tool_call_id", "function_call")
"""Members of a message that its plain form contains."""
COUNTS = ("input_tokens", "output_tokens")
Object = dict[str, Any]


def left_of_choices(given: Any, message: dict[str, Any]) -> tuple[str | None, Any]:
    """Return the finish reason of a response, and other facts in its `choices`.

    Args:
        given: the value of `choices`.
        message: the message that was read from `choices`. It is left out of the other facts.
    """
    if not (isinstance(given, list) and given and isinstance(given[0], dict)):
        return None, given or None
    first = dict(given[0])
    finish, own = first.get("finish_reason"), first.get("message")
    if isinstance(finish, str):
        del first["finish_reason"]
    if isinstance(own, dict) and same(_told(own), _told(message)):
        del first["message"]
    rest = {key: value for key, value in first.items() if value not in (None, {}) and (key, value) != ("index", 0)}
    return finish if isinstance(finish, str) else None, ([first] if rest else []) + given[1:] or None


def _told(members: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value is not None}


def message_of(line: Object) -> Object | None:
    """Return the message of a response, from its first choice or from its `outputs`; `None` without a message."""
    choices, outputs = object_of(line.get("response")).get("choices"), line.get("outputs")
    message = object_of(_first(choices)).get("message")
    output = _first(outputs)
    if isinstance(message, dict):
        return message | {"role": "assistant"}
    if not isinstance(output, dict):
        return None
    return {"role": "assistant", "content": output.get("message"), "tool_calls": output.get("tool_calls")}


def completion(words: Said, message: Object, members: Members, oddities: Oddities) -> Said:
    """Return the message together with the other facts of the response: model, usage, finish reason and cost.

    Args:
        words: the message as it was read.
        message: the message as the response holds it.
        members: the members of the log line with the response; those that are used are removed.
    """
    members.drop("outputs", [{"message": words.text, "tool_calls": message.get("tool_calls") or []}])
    reply = Members(members.take("response", dict) or {}, oddities)
    finish, choices = left_of_choices(reply.take("choices", object), message)
    model, usage = reply.take("model", str) or None, reply.take("usage", dict)
    if model is None:
        model = members.take("model", str) or None
    if usage is None:
        counts = {key: members.take(key, int) for key in COUNTS}
        usage = {key: count for key, count in counts.items() if count is not None} or None
    raw = {**(reply.rest() or {}), **({} if choices is None else {"choices": choices})}
    known = (("cost_usd", members.take("cost", (int, float))), ("raw", raw or None))
    return replace(
        words,
        generated=True,
        answers=False,
        model=model,
        usage=usage,
        finish_reason=finish,
        meta={key: value for key, value in known if value is not None} or None,
        extra=merged(words.extra, members.rest()) or None,
    )


def as_chat(message: Any) -> Any:
    """Return a message of OpenAI's Responses API in the form of Chat Completions; any other value unchanged.

    The other members of a response, and what is left of the items of its output, become the member `response` of
    `extra`.
    """
    if not isinstance(message, dict) or "role" in message:
        return message
    if message.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": message.get("call_id"), "content": message.get("output")} | {
            key: message[key] for key in message if key not in ("type", "call_id", "output")
        }
    output, extra = message.get("output"), message.get("extra", {})
    known = message.get("object") == "response" and isinstance(output, list)
    if not (known and isinstance(extra, dict) and "response" not in extra):
        return message
    parts, calls, thoughts, left = list[Any](), list[Object](), list[str](), list[Any]()
    for item in output or ():
        match item:
            case {"type": "message", "content": list(content)}:
                parts += content
                left.append({key: item[key] for key in item if key != "content"})
            case {"type": "function_call", "call_id": call_id, "name": name, "arguments": given}:
                calls.append({"id": call_id, "function": {"name": name, "arguments": given}})
                left.append({key: item[key] for key in item if key not in ("name", "arguments")})
            case {"type": "reasoning", "summary": [{"type": "summary_text", "text": str(text)}]}:
                thoughts.append(text)
                left.append({key: item[key] for key in item if key != "summary"})
            case _:
                left.append(item)
    response = {key: message[key] for key in message if key not in ("output", "extra")} | {"output": left}
    made = {"role": "assistant", "content": parts, "tool_calls": calls, "extra": extra | {"response": response}}
    return made | ({"reasoning_content": "\n".join(thoughts)} if thoughts else {})


def plain(message: Any) -> Object:
    """Return the plain form of a message: equal for two messages with the same text and calls."""
    if not isinstance(message, dict):
        return {"role": None, "text": message, "calls": [], "call_id": None}
    content, calls, call_id = message.get("content"), message.get("tool_calls"), message.get("tool_call_id")
    if is_parts(content) and all(isinstance(part.get("text"), str) for part in content):
        content = "\n".join(part["text"] for part in content)
    return {
        "role": message.get("role"),
        "text": "" if content is None else content,
        "calls": [_plain_call(call) for call in calls] if isinstance(calls, list) else [],
        "call_id": call_id if isinstance(call_id, str) else None,
        "function": message.get("function_call"),
    }


def _plain_call(call: Any) -> Object:
    function = object_of(object_of(call).get("function"))
    known = {"id": object_of(call).get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
    return known if function else known | {"call": call}


def marks_of(message: Any) -> Object | None:
    """Return the members of a message that its plain form leaves out, such as cache marks; `None` if there are none."""
    if not isinstance(message, dict):
        return None
    marks = {key: value for key, value in message.items() if key not in PLAIN and value is not None}
    content = message.get("content")
    parts = content if is_parts(content) else []
    more = [{key: value for key, value in part.items() if key not in ("type", "text")} for part in parts]
    return (marks | ({"content": more} if any(more) else {})) or None


def tools_of(given: Any) -> tuple[list[Object], Any]:
    """Return the tools in `given`, the member `tools` of a request, and those of its elements that define no tool."""
    every = given if isinstance(given, list) else [] if given is None else [given]
    read = [tool(one, Oddities()) for one in every]  # not counted: the log repeats the tools in every request
    return [one for one in read if one is not None], [
        one for one, made in zip(every, read, strict=True) if made is None
    ]


def _first(given: Any) -> Any:
    return given[0] if isinstance(given, list) and given else None
