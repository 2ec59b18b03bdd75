"""Converts the results of a server to results of tools.

The model reads values and texts; the record keeps all the rest.

Each argument `data` is a result of the protocol as plain JSON.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gesta.errors import ToolError
from gesta.perform.call_contents import DocumentedResult

MOST_CHARS = 400_000
"""Greatest number of characters of a result that a model reads. The record keeps the whole result.

Structured content is counted as JSON. Of an error, the record keeps what the model reads.
"""
KEPT, LEFT_OUT = "kept on record", "left out"
"""What became of the rest of a result, and of an error."""


def called(data: Mapping[str, Any]) -> Any:
    """Return the value of a `tools/call` result. Raises ToolError if the server reports that the tool failed."""
    blocks = [each for each in data.get("content", ()) if isinstance(each, dict)]
    notes = [each for each in blocks if each.get("type") != "text"]
    if data.get("isError"):
        parts = [_text(each, LEFT_OUT) for each in blocks]
        said = "\n\n".join(text for text in parts if text)
        if "structuredContent" in data and not any(_same(text, data["structuredContent"]) for text in parts):
            said = f"{said}\n\n{_json(data['structuredContent'])}".strip()
        raise ToolError(_cut(said, LEFT_OUT) or "The tool failed, and said nothing.")
    said = "\n\n".join(text for each in blocks if (text := _text(each)))
    value: Any = said
    if "structuredContent" in data:
        value = data["structuredContent"]
        if notes:
            value = {"result": value, "attached": [_text(each) for each in notes]}
    return _kept(value, data, whole=not notes)


def resource(data: Mapping[str, Any]) -> Any:
    """Return the texts of a `resources/read` result, with a note in place of binary contents."""
    contents = [each for each in data.get("contents", ()) if isinstance(each, dict)]
    texts = [_contents(each, named=len(contents) > 1) for each in contents]
    return _kept("\n\n".join(texts), data, whole=all("text" in each for each in contents))


def prompt(data: Mapping[str, Any]) -> Any:
    """Return the messages of a `prompts/get` result as text, each after its role."""
    messages = [each for each in data.get("messages", ()) if isinstance(each, dict)]
    blocks = [each.get("content") or {} for each in messages]
    texts = [f"{each.get('role')}: {_text(block)}" for each, block in zip(messages, blocks, strict=True)]
    return _kept("\n\n".join(texts), data, whole=all(each.get("type") == "text" for each in blocks))


def _kept(value: Any, data: Mapping[str, Any], *, whole: bool) -> Any:
    """Return `value`, cut if long, as the result that the model reads.

    If it is cut or not `whole`, the result also contains `data`, which is only recorded.

    Args:
        data: the server's result, from which `value` was made.
        whole: whether `value` shows everything in `data`.
    """
    said = value if isinstance(value, str) else _json(value)
    if len(said) > MOST_CHARS:
        value, whole = _cut(said), False
    return value if whole else DocumentedResult(value, dict(data))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _same(text: str, value: Any) -> bool:
    """Return whether a text is a value as JSON. Servers send structured content as a text too."""
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def _text(block: Mapping[str, Any], rest: str = KEPT) -> str:
    """Return a block of content as text; for an image or other content, a note that describes it.

    Args:
        rest: what became of the content itself, for the note.
    """
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return f"[{kind} of type {block.get('mimeType')}, {_size(block.get('data'))} bytes: {rest}]"
        case "resource_link":
            name = block.get("title") or block.get("name") or ""
            said = f": {block.get('description')}" if block.get("description") else ""
            return f"[resource {block.get('uri')}, {name}{said}]"
        case "resource" if isinstance(block.get("resource"), dict):
            return _contents(block["resource"], named=True, rest=rest)
        case other:
            return f"[content of type {other!s:.60}: {rest}]"


def _contents(each: Mapping[str, Any], *, named: bool, rest: str = KEPT) -> str:
    if "text" in each:
        return f"{each.get('uri')}:\n{each['text']}" if named else str(each["text"])
    return f"[{each.get('uri')} of type {each.get('mimeType')}, {_size(each.get('blob'))} bytes: {rest}]"


def _size(data: Any) -> str:
    return f"{len(data) * 3 // 4 - data[-2:].count('='):,}" if isinstance(data, str) else "unknown"


def _cut(text: str, rest: str = KEPT) -> str:
    if len(text) <= MOST_CHARS:
        return text
    return f"{text[:MOST_CHARS]}\n[{len(text) - MOST_CHARS:,} more characters: {rest}]"


def listed(names: Sequence[str], most: int) -> str:
    """Return at most `most` names as lines of a list, and a line with the number of the others."""
    more = [f"- and {len(names) - most} more"] if len(names) > most else []
    return "\n".join([*(f"- {name}" for name in names[:most]), *more])
