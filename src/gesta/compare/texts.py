"""Replaces one value in a JSON text, and leaves every other character unchanged.

Reading and writing the whole text would change other values: `64.90` becomes `64.9`, a long number loses digits, and
lines and spaces are lost. So the value is found in the text, and only its characters are replaced.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

DECODER = json.JSONDecoder()
GAP = re.compile(r"[ \t\n\r]*[:,]?[ \t\n\r]*")
"""Matches the characters between keys and values."""
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
EXCERPT = 80
"""Number of characters that an error shows of a value."""


class Member(Struct, frozen=True):
    """One member of an object or a list. For a list, the key is the place."""

    key: str
    begin: int
    """Where the member begins, in characters. `start` is where its value begins, `end` where the value ends."""
    start: int
    end: int


def json_of(text: str) -> Any:
    """Read JSON. Raises ValueError also for NaN and Infinity, which JSON does not have but Python accepts."""
    return json.loads(text, parse_constant=_no_number, parse_float=_number)


def changed(text: str, steps: Sequence[str], value: Any) -> str:
    """Return a JSON text with one value replaced.

    Args:
        steps: the keys, or places in lists, that lead to the value; a last key that is missing is added.

    Raises:
        LookupError: there is no such value; the message says which members there are.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        raise nothing(text, steps[0]) from None
    return _changed(text, steps, value, text)


def nothing(value: Any, step: str) -> LookupError:
    """Return the error for a value that lacks a member."""
    return LookupError(f"{json.dumps(value, default=str)[:EXCERPT]} has no {step!r}")


def _changed(text: str, steps: Sequence[str], value: Any, whole: str) -> str:
    """Return a part of a JSON text with a value replaced, in the style of the whole text."""
    if not steps:
        return _written(value, whole)
    begin = len(text) - len(text.lstrip())
    step, rest = steps[0], steps[1:]
    if text[begin] == '"':
        inner, end = DECODER.raw_decode(text, begin)
        return text[:begin] + _written(changed(inner, steps, value), whole) + text[end:]
    if text[begin] not in "{[":
        raise nothing(json.loads(text), step)
    members = list(_members(text, begin))
    found = [each for each in members if each.key == step]
    if found:
        start, end = found[-1].start, found[-1].end  # of two with one key, readers take the last
        return text[:start] + _changed(text[start:end], rest, value, whole) + text[end:]
    if rest or text[begin] == "[":
        raise nothing(json.loads(text), step)
    return _added(text, begin, members, _written(step, whole), _written(value, whole))


def _members(text: str, begin: int) -> Iterator[Member]:
    """Yield the members of the object or list that begins at a place of the text."""
    at, place = _after_gap(text, begin + 1), 0
    while text[at] not in "}]":
        start, key = at, str(place)
        if text[begin] == "{":
            key, end = DECODER.raw_decode(text, at)
            start = _after_gap(text, end)
        end = DECODER.raw_decode(text, start)[1]
        yield Member(key, at, start, end)
        at, place = _after_gap(text, end), place + 1


def _after_gap(text: str, at: int) -> int:
    found = GAP.match(text, at)
    assert found is not None, "it matches nothing at all, too"
    return found.end()


def _added(text: str, begin: int, members: Sequence[Member], key: str, value: str) -> str:
    """Return the text of an object with one more member, separated like its others."""
    space = "" if _compact(text) else " "
    if not members:
        return f"{text[: begin + 1]}{key}:{space}{value}{text[begin + 1 :]}"
    first, last = members[0], members[-1]
    colon = text[DECODER.raw_decode(text, first.begin)[1] : first.start]
    comma = "," + (text[begin + 1 : first.begin] or space)
    if len(members) > 1:
        comma = text[first.end : members[1].begin]
    return f"{text[: last.end]}{comma}{key}{colon}{value}{text[last.end :]}"


def _written(value: Any, like: str) -> str:
    """Return a value as JSON in the style of a text: compact or with spaces, in ASCII or not."""
    separators = (",", ":") if _compact(like) else (", ", ": ")
    return json.dumps(value, separators=separators, ensure_ascii=like.isascii())


def _compact(text: str) -> bool:
    """Return whether a JSON text has commas or colons, but no spaces outside of its strings."""
    bare = STRING.sub("", text)
    return any(each in bare for each in ",:") and not any(map(str.isspace, bare))


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _number(text: str) -> float:
    number = float(text)
    return number if abs(number) != float("inf") else _no_number(text)
