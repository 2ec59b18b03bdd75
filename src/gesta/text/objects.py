r"""JSON objects in a text are found in one walk, whatever stands around them.

A brace starts an object only if what follows looks like a member of one: a quote, a word and a colon, or the closing
brace; so sets, templates and most code in prose are passed over. Objects inside an object are its own. Raw line ends
in strings are taken, and Python's quotes and words, as models write them; nothing is guessed: what nobody can read says
why, and nothing inside it counts, since acting on a part of what was meant is worse than asking again. No text costs
more than its length.
"""

import json
import re
from typing import Any

from msgspec import Struct

OPENING = re.compile(r"\{\s*+(?:[\"'}]|\w++\s*+:)")
"""A brace that starts an object."""
TOKEN = re.compile(r'[{}]|"(?:[^"\\]*+(?:\\.[^"\\]*+)*+")?', re.DOTALL)
"""What tells where an object ends: braces, and strings, which may hold more of them; a quote alone never ends."""
PYTHON = re.compile(r"""("(?:[^"\\]|\\.)*+"?)|'((?:[^'\\]|\\.)*+)'?|\b(True|False|None)\b""", re.DOTALL)
"""What Python writes otherwise than JSON: strings in single quotes, and three words; JSON's strings are as they are."""
QUOTE = re.compile(r"""\\(.)|\"""", re.DOTALL)
"""What may have to be written otherwise in a string of Python's."""
DECODER = json.JSONDecoder(strict=False)
LEVELS = 500
"""That may lie in each other. A bound of our own, below that of every Python: each has another one."""
TRAILING = {
    ("Expecting property name enclosed in double quotes", "}"): "Illegal trailing comma before end of object",
    ("Expecting value", "]"): "Illegal trailing comma before end of array",
}
"""What Python says before 3.13, and of which character; what it says since."""
UNCLOSED = "it is not closed"
DEEP = "it is nested too deeply"
LONG = "a number in it has too many digits"


class TextObject(Struct, frozen=True):
    """One object in a text, or a text that looks like one."""

    start: int
    """Of its first brace, in characters."""
    end: int
    """After its last; of one that is not closed, the end of the text: whatever follows may be a part of it."""
    value: dict[str, Any] | None
    problem: str | None
    """Why it has no value."""


def objects(text: str) -> list[TextObject]:
    """Find the JSON objects in a text that lie in no other, in order. Cost: the length of the text."""
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
    """Return the object between two braces. A failure costs no more than the length of that text."""
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
    """Write a token of Python's as JSON."""
    if found[3]:
        return {"True": "true", "False": "false"}.get(found[3], "null")
    if found[1]:
        return found[1]
    return '"' + QUOTE.sub(lambda part: "'" if part[1] == "'" else part[0] if part[1] else '\\"', found[2]) + '"'


def _text_object(text: str, start: int, end: int, value: dict[str, Any]) -> TextObject:
    """Return an object that could be read, without its value if it is too deep."""
    if text.count("{", start, end) + text.count("[", start, end) > LEVELS:
        level: list[Any] = [value]
        for _ in range(LEVELS):
            within = (each.values() if isinstance(each, dict) else each for each in level)
            level = [inner for each in within for inner in each if isinstance(inner, (dict, list))]
        if level:
            return TextObject(start, end, None, DEEP)
    return TextObject(start, end, value, None)


def _problem(wrong: Exception) -> str:
    """Return the problem that a decoder found, in the same words on every Python."""
    if not isinstance(wrong, json.JSONDecodeError):
        return DEEP if isinstance(wrong, RecursionError) else LONG
    words, at = wrong.msg, wrong.pos
    since = TRAILING.get((words, wrong.doc[at : at + 1]))
    if since and (before := wrong.doc[:at].rstrip()).endswith(","):
        words, at = since, len(before) - 1
    return f"{words.removesuffix(' at').removesuffix(' starting')} at {wrong.doc[at : at + 20]!r}"


def _closing_brace(text: str, start: int) -> int | None:
    """Return where the JSON object that begins at `start` ends, by its braces; `None` if it does not end."""
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
