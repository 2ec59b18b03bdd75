"""Keeps the parts of a Chat Completions reply that the server wants back with the reply's tool calls in later requests.

These are members of the message or of a call: reasoning, or the signature of a call. Servers that do not get them back
refuse the next request or lose the reasoning.

Source: DeepSeek, "Thinking Mode", "Tool Calls"; OpenRouter, "Reasoning Tokens", "Preserving Reasoning"; Gemini API,
"Thought Signatures", "OpenAI compatibility"; read 2026-11.
"""

from collections.abc import Mapping, Sequence
from typing import Any

SPOKEN = ("text", "summary", "data", "signature")
"""Members of a reasoning item that a stream sends in several pieces. The pieces are joined."""


class Kept:
    """Collects the members to send back from one reply, which comes whole or in pieces."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._message: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []
        self._keys: list[Any] = []
        """For each call its index and id, by which later pieces of the call are recognised."""

    def take(self, message: Mapping[str, Any]) -> None:
        """Add the next piece of the reply's message, or the whole message."""
        if not self._names:
            return
        _merge(self._message, message, self._names)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                _merge(self._call(call), call, self._names)

    def native(self) -> dict[str, Any] | None:
        """Return the members to send back; `None` if the reply has no calls, or has no member to send back."""
        if not self._calls or not (self._message or any(self._calls)):
            return None
        return {"message": _flat(self._message), "calls": [_flat(call) for call in self._calls]}

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        index, id = call.get("index"), call.get("id")
        for place, (known, own) in enumerate(self._keys):
            if index is not None and known == index and (not id or id == own):
                return self._calls[place]
        self._keys.append((index, id))
        self._calls.append({})
        return self._calls[-1]


def put_back(block: dict[str, Any], native: Any) -> None:
    """Add the kept members to a message of a later request.

    Nothing is added if the message and the reply have different numbers of calls.

    Args:
        block: the message as a dict, which is changed. Members that it has already are kept.
        native: what `Kept.native` returned.
    """
    if not isinstance(native, dict):
        return
    message, calls, own = native.get("message"), native.get("calls"), block.get("tool_calls")
    if isinstance(message, dict) and isinstance(calls, list) and isinstance(own, list) and len(calls) == len(own):
        block.update({name: value for name, value in message.items() if name not in block})
        for call, kept in zip(own, calls, strict=True):
            if isinstance(kept, dict):
                call.update({name: value for name, value in kept.items() if name not in call})


def _merge(whole: dict[str, Any], piece: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        found, known = piece.get(name), whole.get(name)
        if found is None or found == "":
            continue
        if isinstance(found, str):
            whole[name] = _joined(known, found)
        elif isinstance(known, list) and isinstance(found, list):
            for item in found:
                _add(known, item)
        else:
            whole[name] = list(map(_copy, found)) if isinstance(found, list) else found


def _add(items: list[Any], item: Any) -> None:
    """Add a piece of reasoning to a list.

    If the last item of the list has the same index and type as the piece, the piece is joined to that item.
    """
    last = items[-1] if items else None
    if not (
        isinstance(item, dict)
        and isinstance(last, dict)
        and "index" in item
        and (last.get("index"), last.get("type")) == (item["index"], item.get("type"))
    ):
        items.append(_copy(item))
        return
    for name, value in item.items():
        last[name] = _joined(last.get(name), value) if name in SPOKEN and isinstance(value, str) else value


class _Text:
    """A text that comes in pieces. It is joined only at the end: joining at each piece would take quadratic time."""

    def __init__(self, *parts: str) -> None:
        self.parts = list(parts)


def _joined(known: Any, found: str) -> _Text:
    if isinstance(known, _Text):
        known.parts.append(found)
        return known
    return _Text(known, found) if isinstance(known, str) else _Text(found)


def _flat(members: dict[str, Any]) -> dict[str, Any]:
    """Return the members with the pieces of each text joined, also in the dicts inside lists."""
    found = _texts(members)
    for name, each in found.items():
        if isinstance(each, list):
            found[name] = [_texts(item) if isinstance(item, dict) else item for item in each]
    return found


def _texts(members: dict[str, Any]) -> dict[str, Any]:
    return {name: "".join(each.parts) if isinstance(each, _Text) else each for name, each in members.items()}


def _copy(item: Any) -> Any:
    return dict(item) if isinstance(item, dict) else item
