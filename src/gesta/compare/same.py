"""Compares two entries. They are the same if kind, content, span and causes are equal.

The content is what an entry says, such as a tool call. Contents are compared as stored JSON, so each difference has a
JSON path. Stored JSON can contain a wrap `{"$dict": ...}`: it marks a user's object that looks like one of the marks
that storing adds. Members that differ from run to run by nature, such as times and process names, are not compared.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from gesta.codec.rows import encode_content
from gesta.entry import Cause, Entry, utc_time
from gesta.kinds import Content, DecisionContent, KeyValueContent, Kind
from gesta.state.steps import NOTE_NAME
from gesta.text.objects import json_of

CHANCE: Mapping[Kind, tuple[str, ...]] = {
    Kind.ChatCompletion: ("latency_ms", "meta.raw_zlib"),
    Kind.Attempt: ("epoch", "process", "key"),
    Kind.Begin: ("agent",),
    Kind.Edge: ("child",),
    Kind.End: ("error.traceback",),
    Kind.Fault: ("error.traceback", "shown_chars"),
    Kind.ToolResult: ("error.traceback",),
    Kind.ApprovalRequest: ("expires",),
    Kind.Approval: ("sent_at", "token"),
    Kind.Answer: ("sent_at",),
    Kind.Resolution: ("sent_at",),
    Kind.Signal: ("of",),
    Kind.Timer: ("due_at",),
    Kind.Budget: ("spent.prices",),
    Kind.Compaction: ("tokens",),
}
"""Members that are not compared, by kind.

They are times, numbers of leases (rights to write a run), process names, tracebacks, how much of a reply was shown, and
what earlier releases did not always write: names of child runs, turns that a person cancelled, sizes that are left out.
The agent's description in a `begin` is left out too, because a change of the agent shows in its requests.
"""

PROMPT = frozenset({Kind.RequestHeader, Kind.Request})
"""Kinds of entries that describe a prompt, not an action."""


class Difference(Struct, frozen=True):
    """One place at which two JSON values differ."""

    path: str
    """JSON path of the value; `$` is the whole content."""
    before: Any
    after: Any


class _Missing:
    """The type of `MISSING`, the value of a member on the side that does not have the member."""

    def __repr__(self) -> str:
        return "(nothing)"


MISSING = _Missing()


def told(content: Content) -> dict[str, Any]:
    """Return a content as JSON for people: its stored JSON without `$dict` wraps."""
    found: dict[str, Any] = unwrapped(stored(content))
    return found


def stored(content: Content) -> Any:
    """Return a content as its stored JSON. Large values, which a store keeps separately, are included."""
    return json.loads(encode_content(content))


def unwrapped(value: Any) -> Any:
    """Return a stored JSON value without its `$dict` wraps."""
    if isinstance(value, list):
        return [unwrapped(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = value.get("$dict") if len(value) == 1 else None
    return {key: unwrapped(each) for key, each in (inner if isinstance(inner, dict) else value).items()}


def wrapped(value: Any) -> Any:
    """Return a JSON value with its `$dict` wraps added, as it is stored. The reverse of `unwrapped`."""
    if isinstance(value, list):
        return [wrapped(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: wrapped(each) for key, each in value.items()}
    return {"$dict": made} if len(made) == 1 and next(iter(made)).startswith("$") else made


def counted(entry: Entry) -> dict[str, Any]:
    """Return an entry's content as JSON, with only the members that are compared."""
    found = told(entry.content)
    for path in CHANCE.get(entry.kind, ()):
        _drop(found, path.split("."))
    if noted_time([entry], 0) is not None:  # it differs wherever the code is run again
        found.pop("value")
    return found


def difference(before: Entry, after: Entry, *, prompts: bool = True) -> Difference | None:
    """Return the first difference between two entries at the same place; `None` if they are the same.

    Args:
        prompts: whether the contents of requests and request headers are compared, too. A request header is an entry
            that states instructions and tools.
    """
    if before.kind != after.kind:
        return Difference("$.kind", str(before.kind), str(after.kind))
    if prompts or before.kind not in PROMPT:
        one, other = counted(before), counted(after)
        if before.kind is Kind.Attempt and before.version == 1:  # version 1 did not store every effect policy
            one, other = ({**each, "effect": None} for each in (one, other))
        every = list(differences(one, other))
        if every:
            return next(filter(None, map(_wrong_call, every)), every[0])
        for name in ("span", "causes"):
            here, there = getattr(before, name), getattr(after, name)
            if here != there and (name == "span" or _unordered(here) != _unordered(there)):
                return Difference(name, here, there)
    return None


def _unordered(causes: Sequence[Cause]) -> list[Cause]:
    """Return causes with the ends of child runs at the end, sorted: agents that work at once may end in any order."""
    own: list[Cause] = [each for each in causes if isinstance(each, int)]
    return own + sorted(each for each in causes if isinstance(each, tuple))


def _wrong_call(found: Difference) -> Difference | None:
    """Return a difference that says only that a call has an error now, if `found` contains that; else `None`.

    The error tells a person more than the other differences of the call, such as its changed status.
    """
    path, after = found.path, found.after
    if path == "$.meta" and isinstance(after, dict) and "error" in after:
        path, after = "$.meta.error", after["error"]
    return Difference(path, MISSING, after) if path == "$.meta.error" and after is not MISSING else None


def by_lot(before: Entry, after: Entry) -> bool:
    """Return whether two entries are random choices among the same options. A replay does not compare such choices."""
    one, other = before.content, after.content
    if not isinstance(one, DecisionContent) or not isinstance(other, DecisionContent):
        return False
    return one.candidates == other.candidates and one.rationale is None and other.rationale is None


def differences(before: Any, after: Any, path: str = "$") -> Iterator[Difference]:
    """Yield every place at which two JSON values differ, in order. Strings that contain JSON are compared as JSON."""
    match before, after:
        case dict(), dict():
            for key in dict.fromkeys([*before, *after]):
                yield from differences(before.get(key, MISSING), after.get(key, MISSING), f"{path}.{key}")
        case list(), list():
            for place in range(max(len(before), len(after))):
                one, other = (each[place] if place < len(each) else MISSING for each in (before, after))
                yield from differences(one, other, f"{path}[{place}]")
        case _ if type(before) is not type(after) or before != after:
            inside = differences(*_parsed(before, after), path)
            first = next(inside, Difference(path, before, after))
            yield from (first, *inside)


def _parsed(before: Any, after: Any) -> tuple[Any, Any]:
    """Return the parsed JSON of two strings, if both contain an object or both a list; else a pair of `None`."""
    try:
        one, other = json_of(before), json_of(after)
    except (TypeError, ValueError, RecursionError):
        return None, None
    return (one, other) if type(one) is type(other) and isinstance(one, dict | list) else (None, None)


def _drop(value: Any, path: list[str]) -> None:
    """Remove the member at a path inside `value`, and each object on the way that is empty afterwards."""
    if not isinstance(value, dict):
        return
    if len(path) > 1:
        _drop(value.get(path[0]), path[1:])
    if len(path) == 1 or value.get(path[0]) == {}:
        value.pop(path[0], None)


def noted_time(entries: Sequence[Entry], place: int) -> datetime | None:
    """Return the time that a workflow read and recorded in the entry at a place; `None` if there is no such entry."""
    entry = entries[place] if place < len(entries) else None
    if entry is None or NOTE_NAME not in (entry.annotations or {}):
        return None
    value = entry.content.value if isinstance(entry.content, KeyValueContent) else None
    try:
        time = utc_time(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return time if time is not None and time.tzinfo is not None else None
