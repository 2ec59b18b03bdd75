"""Replaces one value in a JSON text, and leaves every other character unchanged.

Parsing and writing the whole text again would change other values: `64.90` would become `64.9`, long numbers would lose
digits, and line breaks and spaces would be lost. So only the characters of the one value are replaced.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

DECODER = json.JSONDecoder()
GAP = re.compile(r"[ \t\n\r]*[:,]?[ \t\n\r]*")
"""Matches the separators and white space between keys and values."""
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
EXCERPT = 80
"""Number of characters of a value that an error shows."""


class Member(Struct, frozen=True):
    """The place of one member of an object or list in a JSON text. For a list, the key is the index."""

    key: str
    begin: int
    """Index of the first character of the member."""
    start: int
    """Index of the first character of the member's value."""
    end: int
    """Index after the last character of the member's value."""


def changed(text: str, steps: Sequence[str], value: Any) -> str:
    """Return a JSON text with one value replaced.

    Args:
        steps: the keys and list indexes that lead to the value. If the last step is a missing key, that key is added.

    Raises:
        LookupError: there is no such value. The message shows the deepest value that was found.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        raise nothing(text, steps[0]) from None
    return _changed(text, steps, value, text)


def nothing(value: Any, step: str) -> LookupError:
    """Return the error for a value that has no member `step`."""
    return LookupError(f"{json.dumps(value, default=str)[:EXCERPT]} has no {step!r}")


def _changed(text: str, steps: Sequence[str], value: Any, whole: str) -> str:
    """Return `text`, the JSON of one value inside the text `whole`, with one value in it replaced by `value`.

    Args:
        steps: the keys and list indexes that lead from the value in `text` to the value to replace.
        whole: the whole text, whose style the new value gets: compact or with spaces, in ASCII or not.
    """
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
        start, end = found[-1].start, found[-1].end  # if a key occurs twice, parsers use the last value
        return text[:start] + _changed(text[start:end], rest, value, whole) + text[end:]
    if rest or text[begin] == "[":
        raise nothing(json.loads(text), step)
    return _added(text, begin, members, _written(step, whole), _written(value, whole))


def _members(text: str, begin: int) -> Iterator[Member]:
    """Yield the members of the object or list that begins at index `begin` of the text."""
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
    """Return the text of an object with one more member, with the same separators as its other members."""
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
    """Return a value as JSON in the style of the text `like`: compact or with spaces, in ASCII or not."""
    separators = (",", ":") if _compact(like) else (", ", ": ")
    return json.dumps(value, separators=separators, ensure_ascii=like.isascii())


def _compact(text: str) -> bool:
    """Return whether a JSON text has commas or colons, but no white space outside of its strings."""
    bare = STRING.sub("", text)
    return any(each in bare for each in ",:") and not any(map(str.isspace, bare))
