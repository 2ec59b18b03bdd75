"""Two entries are the same if kind, content, span and causes are equal. Times and names of machines are not compared.

Contents are compared as stored JSON, so each difference has a JSON path.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from gesta.codec.rows import encode_content
from gesta.compare.texts import json_of
from gesta.entry import Entry, utc_time
from gesta.kinds import Content, Kind
from gesta.state.steps import NOTE_NAME

CHANCE: Mapping[Kind, tuple[str, ...]] = {
    Kind.ChatCompletion: ("latency_ms", "meta.raw_zlib"),
    Kind.Attempt: ("epoch", "process", "key"),
    Kind.Begin: ("agent",),
    Kind.End: ("error.traceback",),
    Kind.Fault: ("error.traceback", "shown_chars"),
    Kind.ToolResult: ("error.traceback",),
    Kind.ApprovalRequest: ("expires",),
    Kind.Approval: ("sent_at", "token"),
    Kind.Timer: ("due_at",),
    Kind.Budget: ("spent.prices",),
}
"""Members that are not compared, by kind: times, lease epochs, lines of code, numbers about listeners, and the agent's
own description, because a header or a request shows it where it matters."""

PROMPT = frozenset({Kind.RequestHeader, Kind.Request})
"""Kinds whose content shows a prompt, and not an action."""


class Difference(Struct, frozen=True):
    """Where two JSON values differ."""

    path: str
    """JSON path of the value; `$` is the whole content."""
    before: Any
    after: Any


class _Missing:
    """Stands for the value on a side that lacks the member."""

    def __repr__(self) -> str:
        return "(nothing)"


MISSING = _Missing()


def told(content: Content) -> dict[str, Any]:
    """Return a content as JSON for people: the stored JSON without the marks of the codec."""
    found: dict[str, Any] = unwrapped(stored(content))
    return found


def stored(content: Content) -> Any:
    """Return a content as the JSON that is stored, large values included."""
    return json.loads(encode_content(content, None))


def unwrapped(value: Any) -> Any:
    """Return a stored value without its `$dict` wraps, which the codec puts around objects that look like its marks."""
    if isinstance(value, list):
        return [unwrapped(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = value.get("$dict") if len(value) == 1 else None
    return {key: unwrapped(each) for key, each in (inner if isinstance(inner, dict) else value).items()}


def wrapped(value: Any) -> Any:
    """Return a value in which each object that looks like a mark of the codec is wrapped in `$dict`."""
    if isinstance(value, list):
        return [wrapped(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: wrapped(each) for key, each in value.items()}
    return {"$dict": made} if len(made) == 1 and next(iter(made)).startswith("$") else made


def counted(entry: Entry) -> dict[str, Any]:
    """Return the members of an entry's content that are compared."""
    found = told(entry.content)
    for path in CHANCE.get(entry.kind, ()):
        _drop(found, path.split("."))
    if entry.kind is Kind.KeyValue and _clock(entry, found.get("value")):
        found.pop("value")
    return found


def difference(before: Entry, after: Entry, *, prompts: bool = True) -> Difference | None:
    """Return the first difference between two entries with one seq; `None` if they are the same.

    Args:
        prompts: whether prompts are compared.
    """
    if before.kind != after.kind:
        return Difference("$.kind", str(before.kind), str(after.kind))
    if prompts or before.kind not in PROMPT:
        one, other = counted(before), counted(after)
        if before.kind is Kind.Attempt and before.version == 1:  # which does not hold every effect policy
            one, other = ({**each, "effect": None} for each in (one, other))
        every = list(differences(one, other))
        if every:
            return next(filter(None, map(_wrong_call, every)), every[0])
        for name in ("span", "causes"):
            here, there = getattr(before, name), getattr(after, name)
            if here != there:
                return Difference(name, here, there)
    return None


def _wrong_call(found: Difference) -> Difference | None:
    """Return the new error of a call if there was none before, which says more than the changed status."""
    path, after = found.path, found.after
    if path == "$.meta" and isinstance(after, dict) and "error" in after:
        path, after = "$.meta.error", after["error"]
    return Difference(path, MISSING, after) if path == "$.meta.error" and after is not MISSING else None


def differences(before: Any, after: Any, path: str = "$") -> Iterator[Difference]:
    """Yield every place at which two JSON values differ, in order, also inside texts that hold JSON."""
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
    """Return two texts parsed as JSON, if both hold an object or both hold a list; else `None` for each."""
    try:
        one, other = json_of(before), json_of(after)
    except (TypeError, ValueError, RecursionError):
        return None, None
    return (one, other) if type(one) is type(other) and isinstance(one, dict | list) else (None, None)


def _drop(value: Any, path: list[str]) -> None:
    """Remove the member at a path, and the objects that are empty after that."""
    if not isinstance(value, dict):
        return
    if len(path) > 1:
        _drop(value.get(path[0]), path[1:])
    if len(path) == 1 or value.get(path[0]) == {}:
        value.pop(path[0], None)


def _clock(entry: Entry, value: Any) -> bool:
    """Return whether an entry is a note of a workflow that holds a time."""
    if not entry.annotations or NOTE_NAME not in entry.annotations or not isinstance(value, str):
        return False
    try:
        return utc_time(value).tzinfo is not None
    except ValueError:
        return False
