"""Reads a message of any known library into `chat.Said`: its text, thoughts, calls and results.

It reads messages of OpenAI (chat and Responses), Anthropic, Gemini, Bedrock, LangChain, the Vercel AI SDK and
OpenTelemetry's GenAI conventions, and the `str` of Python message objects. `TYPES`, `INSIDE` and the tuples of names
below list their forms. One object may hold several messages, such as a user's message with tool results. Members that
are not text, call or result stay in `extra`. A part that is not text, such as an image, becomes `[image]` in the text,
and its message stays in `extra` too. Parts of unknown types are counted.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gesta.importers import python_text
from gesta.importers.chat import Made, Said
from gesta.importers.foreign import Members, Oddities
from gesta.importers.message import Form, first, made

ROLES: Mapping[str, str] = MappingProxyType(
    {
        **{role: role for role in ("system", "user", "assistant", "tool")},
        "developer": "system",
        "human": "user",
        "ai": "assistant",
        "model": "assistant",
        "function": "tool",
    }
)
"""The role for each name that a library has for a speaker."""
TEXT, THOUGHT, CALL, RESULT, MEDIA = "text", "thought", "call", "result", "media"
"""The kinds of the parts of a message."""
TYPES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("text", "input_text", "output_text", "summary_text", "refusal"), TEXT),
        **dict.fromkeys(("thinking", "reasoning", "redacted_thinking"), THOUGHT),
        **dict.fromkeys(("tool_use", "tool-call", "tool_call", "function_call"), CALL),
        **dict.fromkeys(("tool_result", "tool-result", "tool_call_response", "function_call_output"), RESULT),
        **dict.fromkeys(("image", "image_url", "input_image", "audio", "input_audio", "video", "media"), MEDIA),
        **dict.fromkeys(("file", "input_file", "document", "blob", "uri", "inlineData", "fileData"), MEDIA),
    }
)
"""The kind of a part by its type. For a part without a type, the name of its first member is looked up."""
INSIDE: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("function_call", "functionCall", "toolUse"), CALL),
        **dict.fromkeys(("function_response", "functionResponse", "toolResult"), RESULT),
    }
)
"""The kind of a part by the name of the member that holds its call or result."""
ANSWERED = ("call_id", "tool_call_id", "tool_use_id", "toolCallId", "toolUseId")
IDS = (*ANSWERED, "id")
FORM = Form(
    inside="function",
    name=("name", "toolName"),
    arguments=("arguments", "args", "input"),
    id=IDS,
    types=("function", "tool_call"),
)
OUTCOMES = ("output", "response", "result", "content")
HELD = ("content", "parts", "text")
CALLING = ("tool_calls", "toolCalls")
"""Names of the member that holds the calls of a message."""
UNTYPED = {"toolCallId", "toolName"}
"""Members that a call or a result without a type must have."""
NOTHING = "None"
"""The text that logs of Python programs contain for a reply without text."""
UNKNOWN_PART, UNKNOWN_MESSAGE = "unknown-part", "unknown-message"


class Item(Struct, frozen=True):
    """One element of a list of messages, after reading: the messages in it, or the description of a tool."""

    raw: Any
    said: list[Said]
    tool: Any = None


class Pieces(Struct):
    """The texts, thoughts, calls and results found in the content of a message."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Made] = field(default_factory=list)
    results: list[Said] = field(default_factory=list)
    plain: bool = True
    """Whether the content has no other parts, such as images."""


def item(raw: Any, by: str, oddities: Oddities) -> Item:
    """Read one element of a list of messages. The result has no messages if the element's form is unknown.

    Args:
        by: the role for an element that names no role.
    """
    if isinstance(raw, str):
        shown = python_text.fields(raw) if raw.startswith("role='") else {}
        said = [replace(each, extra={"shown": raw}) for each in _message(shown, by, oddities)]
        return Item(raw, said or [line(by, raw)])
    if not isinstance(raw, dict):
        return Item(raw, [])
    content, serialized = raw.get("content"), raw.get("kwargs")
    if raw.get("role") == "tool" and isinstance(content, dict) and content.get("type") == "function":
        return Item(raw, [], content)
    if "role" not in raw and _what(raw) in (CALL, RESULT, THOUGHT):
        pieces = Pieces()
        _part(raw, pieces, oddities)
        thought = "\n".join(pieces.thoughts) or None
        alone = Said(role="assistant", calls=pieces.calls, reasoning=thought, extra=None if pieces.plain else raw)
        return Item(raw, pieces.results or [alone])
    if raw.get("lc") and isinstance(serialized, dict) and isinstance(raw.get("id"), list):
        about = {key: value for key, value in raw.items() if key != "kwargs"}
        said = _message({"type": raw["id"][-1:], **serialized}, by, oddities)
        return Item(raw, [replace(each, extra={**(each.extra or {}), "serialized": about}) for each in said])
    return Item(raw, _message(raw, by, oddities))


def role_of(named: str) -> str:
    """Return the role for a library's name of a speaker, such as `AIMessageChunk`; `""` if the name is unknown."""
    return ROLES.get(named) or ROLES.get(named.removesuffix("Chunk").removesuffix("Message").lower(), "")


def line(named: str, text: str) -> Said:
    """Return a plain text as a message.

    Args:
        named: the name of the speaker, which must be in `ROLES`.
    """
    role = ROLES[named]
    extra = None if role == named else {"role": named}
    if role == "tool":
        return Said(role=role, result=text, extra=extra)
    return Said(role=role, text="" if text == NOTHING and role == "assistant" else text, extra=extra)


def tools_of(given: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the tools that a model was offered, each as `{name, description, args_schema}`."""
    for tool in given:
        declared = tool.get("function_declarations") if isinstance(tool, dict) else None
        if isinstance(declared, list):
            yield from tools_of([each for each in declared if isinstance(each, dict) and "name" in each])
            continue
        inner = tool.get("function") if isinstance(tool, dict) else None
        found = inner if isinstance(inner, dict) else tool
        if isinstance(found, dict) and isinstance(found.get("name"), str):
            schema: Any = next(
                (found[key] for key in ("parameters", "input_schema", "args_schema") if found.get(key)), {}
            )
            yield {"name": found["name"], "description": found.get("description") or "", "args_schema": schema}


def words(value: Any) -> str | None:
    """Return the text of instructions, which are a text or a message with parts; `None` if there is no text."""
    pieces = Pieces()
    _content(value.get("parts") if isinstance(value, dict) else value, pieces, Oddities())
    return "\n".join(pieces.texts) or None


def _message(raw: dict[str, Any], by: str, oddities: Oddities) -> list[Said]:
    """Return the messages in an object: several if it has tool results, and an empty list if it is not a message.

    Args:
        by: the role for an object that names no role.
    """
    nameless = by if "parts" in raw or "toolCalls" in raw else ""
    role = role_of(next((raw[key] for key in ("role", "type") if isinstance(raw.get(key), str)), nameless))
    held = next((key for key in HELD if raw.get(key) is not None), "content")
    calling = [key for key in (*CALLING, "function_call", "additional_kwargs") if raw.get(key)]
    if not role or not (held in raw or calling):
        return []
    members, pieces = Members(raw, oddities), Pieces()
    if not (role == "tool" and _is_result(raw.get(held))):
        _content(raw.get(held), pieces, oddities)
        role = "assistant" if pieces.calls and role == "tool" else role  # some libraries give calls the role tool
    members.drop("role", role)
    if role == "tool" and not pieces.results:
        return [_result(raw, members, held, pieces)]
    if pieces.plain and (role == "assistant" or not (pieces.calls or pieces.thoughts)):
        members.take(held, object)
    calls, kwargs = _called(members, oddities) if role == "assistant" else ([], None)
    said = Said(
        role=role,
        text=("" if held == "parts" else "\n").join(pieces.texts),
        calls=[*pieces.calls, *calls] if role == "assistant" else [],
        reasoning=members.take("reasoning_content", str) or "\n".join(pieces.thoughts) or None,
        finish_reason=members.take("finish_reason", str),
        extra=(members.rest() or {}) | ({"additional_kwargs": kwargs} if kwargs else {}) or None,
    )
    alone = pieces.results and not (said.text or said.calls or said.reasoning)
    if alone and said.extra is not None:  # members about all results are kept with the last result
        pieces.results[-1] = replace(
            pieces.results[-1], extra={**(pieces.results[-1].extra or {}), "beside": said.extra}
        )
    return [*pieces.results, *([] if alone else [said])]


def _is_result(content: Any) -> bool:
    """Return whether the content of a tool's message is stored unchanged as the result.

    A text, or a list of parts with text, is stored as one text instead.
    """
    parts = content if isinstance(content, list) else []
    known = all(isinstance(each, dict) and _what(each) in (TEXT, RESULT) for each in parts)
    return not (isinstance(content, str) or (parts and known))


def _result(raw: dict[str, Any], members: Members, held: str, pieces: Pieces) -> Said:
    result = raw.get(held) if _is_result(raw.get(held)) else "\n".join(pieces.texts)
    if pieces.plain or _is_result(raw.get(held)):
        members.take(held, object)
    failed = raw.get("status") == "error" or raw.get("is_error") is True
    call_id = first(members, ANSWERED)
    return Said(role="tool", call_id=call_id, result=result, error=failed or None, extra=members.rest())


def _content(content: Any, pieces: Pieces, oddities: Oddities) -> None:
    """Add the content of a message to the pieces.

    The content is a text or a list of parts, which may be written as JSON or Python.
    """
    inner = python_text.decoded(content) if isinstance(content, str) and content.startswith("[{") else None
    if isinstance(inner, list) and inner and all(isinstance(each, dict) for each in inner):
        if all(isinstance(each.get("function"), dict) for each in inner):
            pieces.calls += [made(each, oddities, FORM) for each in inner]
            return
        if all(each.keys() == {"type", "text"} and each["type"] == "text" for each in inner):
            content, pieces.plain = inner, False
    for part in content if isinstance(content, list) else [] if content is None else [content]:
        _part(part, pieces, oddities)


def _part(part: Any, pieces: Pieces, oddities: Oddities) -> None:
    """Add one part of a content to the pieces.

    Items of the Responses API, which are in no message, are read like parts.
    """
    if isinstance(part, str):
        pieces.texts.append(part)
        return
    what = _what(part) if isinstance(part, dict) else ""
    oddities.update([] if what else [UNKNOWN_PART])
    if not isinstance(part, dict):
        pieces.plain = False
        return
    members, inner = Members(part, oddities), _inside(part)
    text = next((part[name] for name in ("text", "content", "thinking") if isinstance(part.get(name), str)), None)
    if what in (CALL, RESULT):
        for name, kind in TYPES.items() if inner is None else ():
            if kind == what:
                members.drop("type", name)
        held = members if inner is None else Members(inner, oddities)
        if what == CALL:
            pieces.calls.append(made(held.rest(), oddities, FORM))
        else:
            pieces.results.append(_answer(held))
        pieces.plain &= inner is None or len(part) == 1
    elif text is not None and what == THOUGHT:
        pieces.thoughts.append(text)
        pieces.plain &= len(part) <= 2
    elif text is not None and what == TEXT:
        pieces.texts.append(text)
        pieces.plain &= len(part) <= ("type" in part) + 1
    else:
        named = part.get("type", next(iter(part), None))
        pieces.texts += [f"[{named}]"] if isinstance(named, str) and what != THOUGHT else []
        pieces.plain = False


def _what(part: dict[str, Any]) -> str:
    """Return the kind of a part of a message, such as text, thought, call or result; `""` if it is unknown."""
    kind = part.get("type")
    if _inside(part) is not None:
        return next(INSIDE[name] for name in INSIDE if isinstance(part.get(name), dict))
    if part.get("thought") is True:
        return THOUGHT
    if kind is not None:
        return TYPES.get(kind, "") if isinstance(kind, str) else ""
    if UNTYPED.issubset(part):
        return RESULT if "result" in part or "output" in part else CALL
    return TEXT if isinstance(part.get("text"), str) or "content" in part else TYPES.get(next(iter(part), ""), "")


def _inside(part: dict[str, Any]) -> dict[str, Any] | None:
    return next((held for name in INSIDE if isinstance(held := part.get(name), dict)), None)


def _called(members: Members, oddities: Oddities) -> tuple[list[Made], Any]:
    """Remove the tool calls from `members` (of a message), and return them.

    Returns:
        The calls, and the members of `additional_kwargs` (a dict of LangChain's messages) that are not calls.
    """
    given = next((found for key in CALLING if (found := members.take(key, list))), [])
    more = None if given else members.take("additional_kwargs", dict)
    inner = Members(more or {}, oddities)
    given = given or inner.take("tool_calls", list) or []
    function = members.take("function_call", dict)
    return [made(call, oddities, FORM) for call in [*given, *([function] if function else [])]], inner.rest()


def _answer(members: Members) -> Said:
    call_id, result = first(members, IDS), None
    for key in OUTCOMES:
        result = members.take(key, object) if result is None else result
    return Said(role="tool", call_id=call_id, result=result, extra=members.rest())
