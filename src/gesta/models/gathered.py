"""Joins the pieces of a Chat Completions reply, in all the forms that servers send.

OpenAI's reference leaves much open, so servers differ. Some send calls without an index or with the index 0; some
repeat ids, change them with every piece or leave them out; some send arguments as null or as an object; some cut a
character into two surrogates. Every word of the model is kept. The time is linear in the length. A delta is a piece of
the text or thought, which listeners get while the reply arrives.

Source: OpenAI API reference, "Chat Completions", "Streaming", read 2026-11; recorded traffic of many servers.
"""

from collections.abc import Sequence
from typing import Any, Literal

from gesta.model.request import Delta, Reply, ReplyCall
from gesta.models.jsontext import compact, paired, read
from gesta.models.kept import Kept, native


class _Slot:
    """One tool call of the reply, joined from its pieces."""

    __slots__ = ("args", "asked", "id", "kept", "name")

    def __init__(self, keeps: Sequence[str]) -> None:
        self.id: str | None = None
        self.kept = Kept(keeps)
        self.name, self.asked = "", False
        self.args: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.name or self.args or self.id)

    def whole(self) -> bool:
        """Return `True` if the tool call's arguments received so far are complete JSON.

        The check is made only when `whole` is called for the first time; later, `whole` returns `False`. A check after
        each piece would take time that grows with the square of the length.
        """
        if self.asked:
            return False
        self.asked = True
        try:
            read("".join(self.args).encode("utf-8", "replace"))
        except ValueError:
            return False
        return True

    def begins_another(self, id: str | None, name: str, args: str) -> bool:
        """Return whether a piece begins another tool call, although it has the same index as this one.

        Some servers number all parallel calls 0. Others repeat the id or the name on every piece.
        """
        if not name or not self.name:
            return False
        if id and self.id and id != self.id:
            return True
        return bool(self.args) and (name != self.name or (args.startswith("{") and self.whole()))

    def add(self, id: str | None, name: str, args: str) -> None:
        """Add the next piece of this call. Any of `id`, `name` and `args` may be missing or empty."""
        self.id = self.id or id
        if name != self.name:
            self.name += name
        if args:
            if self.args == ["{}"] and args.startswith("{"):  # a placeholder of some proxies
                self.args.clear()
            self.args.append(args)

    def call(self) -> ReplyCall:
        """Return the call with the text of its arguments as the model wrote it, or with `{}` if it has no arguments."""
        return ReplyCall(self.name, "".join(self.args) or "{}", self.id)


class Gathered:
    """One reply, joined from the pieces of a stream or from one whole message.

    Args:
        keeps: members of a message or call that the server wants back with the reply's calls.
    """

    def __init__(self, keeps: Sequence[str] = ()) -> None:
        self._keeps, self._kept = keeps, Kept(keeps)
        self.text: list[str] = []
        self.thought: list[str] = []
        self.finish: str | None = None
        self._held: dict[Literal["text", "thought"], str] = {}
        self._calls: list[_Slot] = []
        self._by_index: dict[int | str, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}

    def message(self, message: dict[str, Any]) -> None:
        """Add a whole message: its words and its calls."""
        self.words(message)
        self._kept.take(message)
        for call in _dicts(message.get("tool_calls")):
            self._whole(call)
        if isinstance(legacy := message.get("function_call"), dict):
            self._whole({"function": legacy})

    def delta(self, delta: dict[str, Any]) -> list[Delta]:
        """Add a piece of a message, and return its words as deltas."""
        deltas = self.words(delta)
        self._kept.take(delta)
        if calls := delta.get("tool_calls"):
            for call in _dicts(calls):
                self._fragment(call)
        if isinstance(legacy := delta.get("function_call"), dict):
            self._fragment({"index": "function_call", "function": legacy})
        return deltas

    def words(self, message: dict[str, Any]) -> list[Delta]:
        """Add the words of a message or a piece, and return them as deltas.

        The order is thought, content, refusal.
        """
        deltas: list[Delta] = []
        if thought := message.get("reasoning_content") or message.get("reasoning"):
            self._say("thought", thought, deltas)
        if content := message.get("content"):
            self._say("text", content, deltas)
        if refusal := message.get("refusal"):
            self._say("text", refusal, deltas)
        return deltas

    def end(self, finish: str) -> list[Delta]:
        """Store the reason why the model stopped, and return text that was held back, as deltas."""
        self.finish = finish
        return self._flush() if self._held else []

    def reply(self, *, model: str | None = None, usage: dict[str, Any] | None = None, keep: bool = True) -> Reply:
        """Return the reply with all pieces that came.

        Args:
            keep: whether Gesta shall store the bytes of the reply.
        """
        if self._held:
            self._flush()
        slots = [slot for slot in self._calls if slot]
        return Reply(
            text="".join(self.text),
            calls=tuple([slot.call() for slot in slots]) if slots else (),
            thought="".join(self.thought) or None,
            model=model,
            finish_reason=self.finish,
            usage=usage,
            native=native(self._kept, [slot.kept for slot in slots]) if self._keeps else None,
            keep=keep,
        )

    def _say(self, type: Literal["text", "thought"], found: Any, deltas: list[Delta]) -> None:
        if isinstance(found, str):
            if self._held or "\ud800" <= found[-1:] <= "\udbff":
                found = self._hold(type, found)
            if found:
                (self.text if type == "text" else self.thought).append(found)
                deltas.append(Delta(type, found))
        elif isinstance(found, list):
            for part in found:
                self._part(type, part, deltas)

    def _hold(self, type: Literal["text", "thought"], found: str) -> str:
        """Return the text without half a surrogate pair at its end.

        The half is held back until the other half arrives in a later piece.
        """
        found = paired(self._held.pop(type, "") + found)
        if self.finish is None and "\ud800" <= found[-1:] <= "\udbff":
            self._held[type] = found[-1]
            found = found[:-1]
        return found

    def _flush(self) -> list[Delta]:
        deltas = [Delta(type, half) for type, half in self._held.items()]
        self._held.clear()
        for delta in deltas:
            (self.text if delta.type == "text" else self.thought).append(delta.text)
        return deltas

    def _part(self, type: Literal["text", "thought"], part: Any, deltas: list[Delta]) -> None:
        """Add one part of a content that is a list of parts. Its words are also appended to `deltas`.

        A `thinking` part of Mistral's API holds a list of parts itself.
        """
        if isinstance(part, str):
            self._say(type, part, deltas)
        elif isinstance(part, dict):
            if type == "text" and (thinking := part.get("thinking")):
                self._say("thought", thinking, deltas)
            for name in ("text", "content", "refusal"):
                if isinstance(part.get(name), str):
                    self._say(type, part[name], deltas)
                    break

    def _whole(self, call: dict[str, Any]) -> None:
        """Add a whole tool call."""
        slot = _Slot(self._keeps)
        slot.add(*_call(call))
        slot.kept.take(call)
        self._calls.append(slot)

    def _fragment(self, call: dict[str, Any]) -> None:
        """Add a piece of a tool call to the tool call with the same index, or else with the same id.

        A piece without index and id belongs to the tool call that came last.
        """
        id, name, args = _call(call)
        index, last = call.get("index"), self._calls[-1] if self._calls else None
        if isinstance(index, int | str):
            slot = self._by_index.get(index)
        else:
            index = None
            slot = self._by_id.get(id) if id else None
            if slot is None and not (name and (id or args or (last is not None and last.args))):
                slot = last
        if slot is not None and slot.begins_another(id, name, args):
            slot = None
        if slot is None:
            slot = _Slot(self._keeps)
            self._calls.append(slot)
            if index is not None:
                self._by_index[index] = slot
        slot.add(id, name, args)
        slot.kept.take(call)
        if id:
            self._by_id[id] = slot


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _call(call: dict[str, Any]) -> tuple[str | None, str, str]:
    """Return the id, the name and the arguments of a piece of a call. Missing values become `None`, `""` and `""`."""
    inner = call.get("function") or call.get("custom") or call
    if isinstance(inner, str):  # a name, with the arguments beside it
        inner = {"name": inner, "arguments": call.get("arguments", call.get("args"))}
    if not isinstance(inner, dict):
        inner = {}
    name, args = inner.get("name"), inner.get("arguments", inner.get("input"))
    if args is None:
        args = ""
    elif not isinstance(args, str):
        args = compact(args).decode()
    id = call.get("id")
    if id is not None and not isinstance(id, str):
        id = compact(id).decode()
    return id or None, (name if isinstance(name, str) else ""), args
