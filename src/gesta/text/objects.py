"""Finds the JSON objects in a text in one pass, whatever text is around them.

A brace starts an object only if the next characters look like a member of one: a quote, a word and a colon, or the
closing brace. So sets, templates and most code in prose are skipped. Objects inside an object are not found separately.
Line ends inside strings are accepted, and so are Python's quotes and constants, because models write them. An object
that cannot be read has a problem in place of a value, and objects inside it are ignored, because acting on a part is
worse than asking the model again. The time is linear in the length of the text.
"""

import json
import re
from typing import Any

from msgspec import Struct

OPENING = re.compile(r"\{\s*+(?:[\"'}]|\w++\s*+:)")
"""The beginning of an object: a brace with the characters after it."""
TOKEN = re.compile(r'[{}]|"(?:[^"\\]*+(?:\\.[^"\\]*+)*+")?', re.DOTALL)
"""Tokens that decide where an object ends: braces, and strings, which may hold braces; a lone quote has no end."""
PYTHON = re.compile(r"""("(?:[^"\\]|\\.)*+"?)|'((?:[^'\\]|\\.)*+)'?|\b(True|False|None)\b""", re.DOTALL)
"""Tokens of Python that JSON does not have: strings in single quotes, and three constants. JSON strings are matched to
be skipped."""
QUOTE = re.compile(r"""\\(.)|\"""", re.DOTALL)
"""Parts of a Python string that JSON writes differently."""
DECODER = json.JSONDecoder(strict=False)
LEVELS = 500
"""Greatest number of nested levels. The limit of every version of Python is higher, and they differ."""
TRAILING = {
    ("Expecting property name enclosed in double quotes", "}"): "Illegal trailing comma before end of object",
    ("Expecting value", "]"): "Illegal trailing comma before end of array",
}
"""The decoder's message about text after the value, before and since Python 3.13. The older one names a character."""
UNCLOSED = "it is not closed"
DEEP = "it is nested too deeply"
LONG = "a number in it has too many digits"


class TextObject(Struct, frozen=True):
    """One object in a text, or a text that looks like one."""

    start: int
    """Place of the first brace, in characters."""
    end: int
    """Place after the last brace, in characters. For an object that is not closed it is the end of the text, which may
    all be part of it."""
    value: dict[str, Any] | None
    problem: str | None
    """Why the object has no value."""


def objects(text: str) -> list[TextObject]:
    """Return the JSON objects in a text, in order, without objects inside other objects.

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
            except (ValueError, RecursionError):  # such an error counts the lines before it, so only once
                clean = False
        found.append(_piece(text, start))
        end = found[-1].end
    return found


def _piece(text: str, start: int) -> TextObject:
    """Return the object that begins at a brace.

    Cost: linear in the length of the object, also for one that cannot be read.
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
    """Return a Python token as JSON."""
    if found[3]:
        return {"True": "true", "False": "false"}.get(found[3], "null")
    if found[1]:
        return found[1]
    return '"' + QUOTE.sub(lambda part: "'" if part[1] == "'" else part[0] if part[1] else '\\"', found[2]) + '"'


def _text_object(text: str, start: int, end: int, value: dict[str, Any]) -> TextObject:
    """Return the object for a decoded value.

    A value that is nested too deeply is replaced by the description of that problem.
    """
    if text.count("{", start, end) + text.count("[", start, end) > LEVELS:
        level: list[Any] = [value]
        for _ in range(LEVELS):
            within = (each.values() if isinstance(each, dict) else each for each in level)
            level = [inner for each in within for inner in each if isinstance(inner, (dict, list))]
        if level:
            return TextObject(start, end, None, DEEP)
    return TextObject(start, end, value, None)


def _problem(wrong: Exception) -> str:
    """Return the problem that a decoder reported, worded the same for every version of Python."""
    if not isinstance(wrong, json.JSONDecodeError):
        return DEEP if isinstance(wrong, RecursionError) else LONG
    words, at = wrong.msg, wrong.pos
    since = TRAILING.get((words, wrong.doc[at : at + 1]))
    if since and (before := wrong.doc[:at].rstrip()).endswith(","):
        words, at = since, len(before) - 1
    return f"{words.removesuffix(' at').removesuffix(' starting')} at {wrong.doc[at : at + 20]!r}"


def _closing_brace(text: str, start: int) -> int | None:
    """Return the place after the object that begins at `start`, found by counting braces; `None` if it does not end."""
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
