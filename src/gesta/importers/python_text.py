"""Reads values that were written with Python's `str()`, or as JSON, without running any code.

It reads texts, numbers, None, True, False, and lists, tuples and dicts of these. It also reads `name=value` pairs, as
in the repr of an object. Reading stops at anything else.
"""

import json
import re
from typing import Any

from gesta.importers.unpacked import loads

TOKEN = re.compile(
    r"""\s*+(?:(?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")|(?P<word>None|True|False)\b"""
    r"""|(?P<number>-?\d++(?:\.\d++)?+(?:[eE][-+]?\d++)?+)(?![\w.])|(?P<mark>[\[\]{}(),:]))""",
    re.DOTALL,
)
ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
FIELD = re.compile(r"\s*+(\w++)=")
PLAIN = {"n": "\n", "r": "\r", "t": "\t"}
WORDS = {"None": "null", "True": "true", "False": "false"}
MARKS = {"(": "[", ")": "]"}


def decoded(value: Any) -> Any:
    """Return the text, list or dict that a text contains. Any other value or text is returned unchanged."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
        return value
    try:
        inner = loads(value)
    except (ValueError, RecursionError):
        inner = whole(value)
    return inner if isinstance(inner, dict | list | str) else value


def literal(text: str, start: int = 0) -> tuple[Any, int] | None:
    """Return the value that begins at `start`, and the position after it; `None` if no value begins there.

    Cost: linear in the length of the value.
    """
    parts: list[str] = []
    depth, at = 0, start
    while not parts or depth:
        token = TOKEN.match(text, at)
        if token is None:
            return None
        at = token.end()
        mark = MARKS.get(token["mark"] or "", token["mark"] or "")
        depth += (mark in ("[", "{")) - (mark in ("]", "}"))
        if mark in ("]", "}") and parts and parts[-1] == ",":
            parts.pop()
        parts.append(mark or WORDS.get(token["word"] or "") or token["number"] or _quoted(token["text"]))
    try:
        return json.loads("".join(parts)), at
    except (ValueError, RecursionError):
        return None


def whole(text: str) -> Any:
    """Return a text as a list or dict; `None` if the text as a whole is neither."""
    found = literal(text) if text.lstrip()[:1] in ("[", "{") else None
    return found[0] if found is not None and not text[found[1] :].strip() else None


def fields(text: str) -> dict[str, Any]:
    """Return the values of pairs such as `name='a' tool_calls=[…]`, up to the first value that cannot be read."""
    found: dict[str, Any] = {}
    at = 0
    while (name := FIELD.match(text, at)) and (value := literal(text, name.end())):
        found[name[1]], at = value
    return found


def _quoted(shown: str) -> str:
    return json.dumps(ESCAPE.sub(_character, shown[1:-1]))


def _character(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2] or escape[3]
    if digits is None:
        return PLAIN.get(escape[4], escape[4])
    code = int(digits, 16)
    return chr(code) if code < 0x110000 else escape[0]
