"""Finds the JSON objects in a text in one pass, whatever text is around them. Also reads a text that is JSON alone.

A brace starts an object only if the next characters look like a member: a quote, a word and a colon, or the closing
brace. So most code in prose is skipped. Objects inside an object are not reported separately. Line ends inside
strings are accepted, and so are Python's quotes and constants, because models write them. An object that cannot be read
is reported with a problem in place of a value. The objects inside it are ignored, because acting on half of what the
model meant is worse than asking again. The time is linear in the length of the text.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

OPENING = re.compile(r"\{\s*+(?:[\"'}]|\w++\s*+:)")
"""The beginning of an object: a brace with the characters after it."""
TOKEN = re.compile(r'[{}]|"(?:[^"\\]*+(?:\\.[^"\\]*+)*+")?', re.DOTALL)
"""Tokens that decide where an object ends: braces, and strings, which may contain braces. A quote alone begins a
string that does not end."""
PYTHON = re.compile(r"""("(?:[^"\\]|\\.)*+"?)|'((?:[^'\\]|\\.)*+)'?|\b(True|False|None)\b""", re.DOTALL)
"""Tokens of Python that JSON does not have: strings in single quotes, and three constants. JSON strings match too,
so that nothing inside them is rewritten."""
QUOTE = re.compile(r"""\\(.)|\"""", re.DOTALL)
"""Parts of a Python string that JSON writes differently: escapes and double quotes."""
DECODER = json.JSONDecoder(strict=False)
MAX_DEPTH = 64
"""Greatest number of nested levels that a record keeps. What is deeper is stored as one text, so that no reader meets
its recursion limit."""
LEVELS = 500
"""Greatest number of nested levels that is accepted. Each version of Python has its own, higher limit."""
TRAILING = {
    ("Expecting property name enclosed in double quotes", "}"): "Illegal trailing comma before end of object",
    ("Expecting value", "]"): "Illegal trailing comma before end of array",
}
"""New messages of Python's JSON decoder for a trailing comma. The key is the message before Python 3.13, and the
character that it points at."""
UNCLOSED = "it is not closed"
DEEP = "it is nested too deeply"
LONG = "a number in it has too many digits"


class TextObject(Struct, frozen=True):
    """One JSON object that was found in a text, or a part of the text that looks like an object but cannot be read."""

    start: int
    """Index in the text of the object's opening brace, in characters."""
    end: int
    """Index in the text after the object's closing brace, in characters. For an object that is not closed it is the
    length of the text, because the whole rest may belong to it."""
    value: dict[str, Any] | None
    problem: str | None
    """Why the object could not be read; `None` if it has a value."""


def json_of(text: str) -> Any:
    """Return a parsed JSON text. Raises ValueError, also for NaN, Infinity and numbers too large for a float."""
    return json.loads(text, parse_constant=_not_json, parse_float=_finite)


def _not_json(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if abs(number) != float("inf") else _not_json(text)


def objects(text: str) -> list[TextObject]:
    """Return the JSON objects in a text, in order, without those inside other objects.

    Cost: linear in the text's length.
    """
    found: list[TextObject] = []
    end, clean = 0, True
    while opening := OPENING.search(text, end):
        start = opening.start()
        if clean:
            try:
                value, end = DECODER.raw_decode(text, start)
                found.append(_text_object(text, start, end, value))
                continue
            except (ValueError, RecursionError):  # making such an error counts all lines before it, so only once
                clean = False
        found.append(_piece(text, start))
        end = found[-1].end
    return found


def _piece(text: str, start: int) -> TextObject:
    """Return the object that begins at the opening brace with index `start`; with a problem if it cannot be read.

    Cost: linear in the length of the object, even if it cannot be read.
    """
    end = _closing_brace(text, start)
    if end is None:
        return TextObject(start, len(text), None, UNCLOSED)
    try:
        return _text_object(text, start, end, DECODER.decode(text[start:end]))
    except (ValueError, RecursionError) as wrong:
        problem = _problem(wrong)
    try:
        return _text_object(text, start, end, DECODER.decode(PYTHON.sub(_rewritten, text[start:end])))
    except (ValueError, RecursionError):
        return TextObject(start, end, None, problem)


def _rewritten(found: re.Match[str]) -> str:
    """Return the JSON form of a Python token: double quotes for single ones, `true` for `True`."""
    if found[3]:
        return {"True": "true", "False": "false"}.get(found[3], "null")
    if found[1]:
        return found[1]
    return '"' + QUOTE.sub(lambda part: "'" if part[1] == "'" else part[0] if part[1] else '\\"', found[2]) + '"'


def _text_object(text: str, start: int, end: int, value: dict[str, Any]) -> TextObject:
    """Return a `TextObject` for the value decoded from `text[start:end]`.

    If the value is nested too deeply, the `TextObject` has a problem and no value.
    """
    if text.count("{", start, end) + text.count("[", start, end) > LEVELS and deeper(value, LEVELS):
        return TextObject(start, end, None, DEEP)
    return TextObject(start, end, value, None)


def deeper(value: Mapping[str, Any], levels: int) -> bool:
    """Return whether a JSON object has more than so many levels of objects and lists, counting itself."""
    level: list[Any] = [value]
    while level and levels:
        levels -= 1
        within = (each.values() if isinstance(each, Mapping) else each for each in level)
        level = [inner for each in within for inner in each if isinstance(inner, (dict, list))]
    return bool(level)


def _problem(wrong: Exception) -> str:
    """Return a description of a decoder's error, in the same words for every version of Python."""
    if not isinstance(wrong, json.JSONDecodeError):
        return DEEP if isinstance(wrong, RecursionError) else LONG
    words, at = wrong.msg, wrong.pos
    since = TRAILING.get((words, wrong.doc[at : at + 1]))
    if since and (before := wrong.doc[:at].rstrip()).endswith(","):
        words, at = since, len(before) - 1
    return f"{words.removesuffix(' at').removesuffix(' starting')} at {wrong.doc[at : at + 20]!r}"


def _closing_brace(text: str, start: int) -> int | None:
    """Return the index after the object that begins at `start`, by counting braces; `None` if it is not closed."""
    depth = 0
    for token in TOKEN.finditer(text, start):
        match token[0]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if not depth:
                    return token.end()
            case '"':
                return None
    return None
