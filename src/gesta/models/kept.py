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
    """Collects the members to send back from one message or from one of its calls, which comes whole or in pieces."""

    __slots__ = ("_found", "_names")

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._found = names, dict[str, Any]()

    def take(self, piece: Mapping[str, Any]) -> None:
        """Add the next piece of the message or call, or the whole of it."""
        if self._names:
            _merge(self._found, piece, self._names)

    def members(self) -> dict[str, Any]:
        """Return the members to send back."""
        return _flat(self._found)


def native(message: Kept, calls: Sequence[Kept]) -> dict[str, Any] | None:
    """Return the members of a reply to send back; `None` if it has no calls, or has no member to send back.

    Args:
        message: the members of the reply's message.
        calls: the members of each call of the reply, in order.
    """
    found, own = message.members(), [call.members() for call in calls]
    return {"message": found, "calls": own} if own and (found or any(own)) else None


def put_back(block: dict[str, Any], native: Any) -> None:
    """Add the kept members to a message of a later request.

    Nothing is added if the message and the reply have different numbers of calls.

    Args:
        block: the message as a dict, which is changed. Members that it has already are kept.
        native: what the function `native` returned.
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
