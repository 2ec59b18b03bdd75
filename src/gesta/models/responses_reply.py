"""Parses a reply of OpenAI's Responses API, which is one JSON object or a stream of events about its items.

A delta is a piece of text or thought that listeners get while the reply arrives. At the end of a stream the API sends
the whole response once more (the closing response), and the parser uses that. If the `output` of the closing response
is empty or contradicts the deltas, the parser uses the earlier events. So the joined deltas are always the beginning of
the reply's text and thought. A blank line separates the messages of one reply, and the parts of a summary.

Source: OpenAI API reference, "Responses", "Create" and "Streaming", read 2026-11; recorded traffic of OpenAI; empty
`output`: open-webui/open-webui#27800, 2026-07-31; another id in every event: Copilot, vercel/ai#18548, 2026-08-06.
"""

from typing import Any, Literal

from gesta.errors import ModelFault
from gesta.model.request import Delta, Reply
from gesta.models.faults import bad_reply, excerpt, provider_fault
from gesta.models.incoming import Incoming
from gesta.models.jsontext import paired
from gesta.models.responses_items import APART, CALLS, Said, text_of, thought_of

DELTAS: dict[str, tuple[str, str]] = {
    "response.output_text.delta": ("text", "content_index"),
    "response.refusal.delta": ("text", "content_index"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index"),
    "response.reasoning_text.delta": ("content", "content_index"),
    "response.function_call_arguments.delta": ("arguments", ""),
    "response.custom_tool_call_input.delta": ("input", ""),
}
"""Types of events that hold a piece. Each has two names: the member of the item that the piece continues, and the
member of the event with the number of the part."""
DONE: dict[str, tuple[str, str, str]] = {
    "response.output_text.done": ("text", "content_index", "text"),
    "response.refusal.done": ("text", "content_index", "refusal"),
    "response.reasoning_summary_text.done": ("summary", "summary_index", "text"),
    "response.reasoning_text.done": ("content", "content_index", "text"),
    "response.function_call_arguments.done": ("arguments", "", "arguments"),
    "response.custom_tool_call_input.done": ("input", "", "input"),
}
"""Types of events that hold a whole part. Each has three names: the member of the item that the part belongs to, and
the members of the event with the number of the part and with the part itself."""
ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")
ENDED = ("completed", "incomplete")
TYPES = {"text": "message", "summary": "reasoning", "content": "reasoning", **{CALLS[type]: type for type in CALLS}}
"""For each kind of piece, the type of its item. It is used if the beginning of the item was lost."""


class _Slot:
    """One item of the reply, joined from its pieces."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.item: dict[str, Any] = {}
        self.parts: dict[tuple[str, int], list[str]] = {}
        self.done = False
        self.seen: str | None = None
        """The member that listeners are shown: `content` (reasoning) or `summary`, whichever came first; `None` before
        that."""

    def finished(self) -> dict[str, Any]:
        """Return the item as a dict. Members that the server left empty are filled with their joined pieces."""
        item, kinds = dict(self.item), {kind for kind, _ in self.parts}
        if not isinstance(item.get("type"), str) and kinds:
            item["type"] = TYPES[next(kind for kind in TYPES if kind in kinds)]
        if "text" in kinds and not text_of(item):
            item["content"] = self._joined("text")
        if not thought_of(item):
            for kind in ("summary", "content"):
                if kind in kinds:
                    item[kind] = self._joined(kind)
        for kind in CALLS.values():
            if kind in kinds and not item.get(kind):
                item[kind] = "".join(self.parts[kind, 0])
        return item

    def _joined(self, kind: str) -> list[dict[str, str]]:
        types = {"text": "output_text", "summary": "summary_text", "content": "reasoning_text"}
        texts = ["".join(pieces) for (name, _), pieces in self.parts.items() if name == kind]
        return [{"type": types[kind], "text": text} for text in texts]


class _Voice:
    """The text, or the thought, that listeners have been shown so far.

    This text can only be continued, never changed.
    """

    def __init__(self, type: Literal["text", "thought"]) -> None:
        self.type: Literal["text", "thought"] = type
        self.pieces: list[str] = []
        self.held = ""
        """The first half of a surrogate pair, until the second half comes."""
        self._last = (-1, 0, 0)
        self._silent = False

    def say(self, place: tuple[int, int, int], text: str) -> list[Delta]:
        """Add the next piece. Return the deltas for listeners; from the first piece out of order on, an empty list.

        Args:
            place: numbers of the item, of its summary part and of its content part. The places of successive pieces
                must not decrease.
            text: the piece.
        """
        self._silent = self._silent or place < self._last
        if not text or self._silent:
            return []
        told = ""
        if place[:2] != self._last[:2]:
            told, self.held = self.held, ""
            if told or self.pieces:
                told += APART
        self._last = place
        if self.held or "\ud800" <= text[-1] <= "\udbff":
            text, self.held = paired(self.held + text), ""
            if "\ud800" <= text[-1] <= "\udbff":
                text, self.held = text[:-1], text[-1]
        told += text
        if not told:
            return []
        self.pieces.append(told)
        return [Delta(self.type, told)]

    def shown(self) -> str:
        """Return the whole text that listeners were shown, with half a surrogate pair if one is held back."""
        return "".join(self.pieces) + self.held


def _after(shown: str, said: str) -> str:
    """Return the text of the reply, which must begin with the text that listeners were shown.

    Args:
        shown: the text that listeners were shown.
        said: the text according to the closing response. If `said` does not begin with `shown`, the result is `shown`
            followed by `said`.
    """
    if said.startswith(shown):
        return said
    return shown if said in shown else shown + APART + said


class ResponsesParser(Incoming):
    """A parser for one reply of the Responses API.

    Its methods return deltas: pieces of text or thought to show at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._final: dict[str, Any] | None = None
        self._last: dict[str, Any] = {}
        self._model: str | None = None
        self._text, self._thought = _Voice("text"), _Voice("thought")
        self._slots: list[_Slot] = []
        self._by_id: dict[str, _Slot] = {}
        self._by_index: dict[int, _Slot] = {}

    @property
    def over(self) -> bool:
        """Whether the closing response or the end mark `[DONE]` came. The rest of the stream is ignored."""
        return self._final is not None or self.marked

    def take_whole(self, body: Any, data: bytes) -> None:
        """Read a reply that is one JSON value. `reply` returns it afterwards.

        Args:
            body: the decoded value.
            data: the bytes of the value, which an error message quotes.

        Raises:
            ModelFault: the value is an error or has no output; type `background` if the provider has not finished it
                yet.
        """
        if isinstance(body, list) and body:
            body = body[0]
        if isinstance(body, dict):
            if not isinstance(body.get("output"), list) and any(body.get(name) for name in ("message", "detail")):
                raise provider_fault(body)
            self._respond("", body)
        if not isinstance(body, dict) or not ("output" in body or "output_text" in body):
            raise bad_reply(f"Expected `output` in the reply, found {excerpt(data)}.")
        if (status := body.get("status")) in ("queued", "in_progress"):
            found = f"The reply is not made yet, its status is {status!r}: with `background` the provider makes it "
            raise ModelFault("background", found + "later and keeps it there. Leave that setting out.", retry=False)
        self._final = body

    def take_event(self, event: Any, name: bytes) -> list[Delta]:
        """Read one decoded event of a stream, and return its deltas.

        `name` is the event's name in the stream. It is used if the event has no `type`. Raises ModelFault if the event
        reports an error.
        """
        return self._event(event, name.decode("utf-8", "replace"))

    def check_end(self) -> None:
        """Raise ModelFault if the stream ended early.

        A complete stream has a closing response, or at least one item and the end mark `[DONE]`.
        """
        if self._final is None and self._last.get("status") in ENDED:
            self._final = self._last
        if self._final is None and not (self.marked and self._slots):
            found = f"The stream ended before its last event, with status {self._last.get('status')!r}."
            raise self.lost(found, begun=bool(self._slots or self._last))

    def reply(self) -> Reply:
        """Return the reply as far as it has been read."""
        final = self._final or {}
        said, usage, status = self._said(final), final.get("usage"), final.get("status")
        if status == "incomplete":
            details = final.get("incomplete_details")
            status = (details.get("reason") if isinstance(details, dict) else None) or status
        return Reply(
            text=said.text,
            calls=tuple(said.calls),
            thought=said.thought or None,
            model=self._model,
            finish_reason=status if isinstance(status, str) else None,
            usage=usage if isinstance(usage, dict) else None,
            native=said.native if said.needed else None,
        )

    def _said(self, final: dict[str, Any]) -> Said:
        """Return the texts and calls of the closing response.

        If the closing response is empty or contradicts what listeners were shown, return the texts and calls of the
        events that came before it.
        """
        text, thought = self._text.shown(), self._thought.shown()
        said = Said([slot.finished() for slot in self._slots])
        if isinstance(output := final.get("output"), list) and output:
            closing = Said(output)
            fits = closing.text.startswith(text) and closing.thought.startswith(thought)
            if fits or len(closing.calls) > len(said.calls):
                said = closing
        elif not self._slots and isinstance(words := final.get("output_text"), str):
            said.text = paired(words)
        said.text, said.thought = _after(text, said.text), _after(thought, said.thought)
        return said

    def _event(self, event: Any, name: str) -> list[Delta]:
        if not isinstance(event, dict):
            event = {"type": name, "error": event}
        type = event.get("type")
        if not isinstance(type, str):
            type = name or ("response" if event.get("object") == "response" else "error" if "error" in event else "")
        if type in ("error", "response.error"):
            raise provider_fault(event if event.get("error") else {**event, "type": None})
        if type in DELTAS:
            kind, index = DELTAS[type]
            return self._piece(event, kind, event.get(index), event.get("delta"))
        if type in DONE:
            kind, index, member = DONE[type]
            return self._piece(event, kind, event.get(index), event.get(member), whole=True)
        if type in ("response.output_item.added", "response.output_item.done"):
            if isinstance(item := event.get("item"), dict):
                slot = self._slot(event, item, added=type.endswith("added"))
                slot.item.update(item)
                slot.done = type.endswith("done")
        elif isinstance(response := event.get("response"), dict):
            self._respond(type, response)
        elif type in ENDS or type == "response":
            self._respond(type, event)
        return []

    def _respond(self, type: str, response: dict[str, Any]) -> None:
        """Store the latest state of the response. Raises ModelFault if it failed or was cancelled.

        Args:
            type: type of the event that contains the response; `""` for a whole reply.
            response: the response as it is at that time.
        """
        if isinstance(model := response.get("model"), str):
            self._model = model or None
        self._last, status = response, response.get("status")
        if type == "response.failed" or status == "failed" or (not type and response.get("error")):
            error = response.get("error") or {"message": "The reply failed; the provider does not say why."}
            raise provider_fault({"error": error})
        if type == "response.cancelled" or status == "cancelled":
            raise ModelFault("cancelled", "The provider stopped making this reply, as it was told to.", retry=False)
        if type in ENDS or (type in ("", "response") and status in ENDED):
            self._final = {"status": type.removeprefix("response."), **response}

    def _piece(self, event: dict[str, Any], kind: str, index: Any, text: Any, *, whole: bool = False) -> list[Delta]:
        if not isinstance(text, str) or not text:
            return []
        index = index if isinstance(index, int) and 0 <= index < 2**31 else 0
        slot = self._slot(event, {})
        for name in ("name", "call_id"):
            if kind in CALLS.values() and isinstance(event.get(name), str):
                slot.item.setdefault(name, event[name])
        pieces = slot.parts.setdefault((kind, index), [])
        known = bool(pieces)
        if whole:
            pieces.clear()
        pieces.append(text)
        if known and whole:
            return []
        if kind == "text":
            return self._text.say((slot.place, 0, index), text)
        if kind in ("summary", "content"):
            slot.seen = slot.seen or kind
            place = (slot.place, index, 0) if kind == "summary" else (slot.place, 0, index)
            return self._thought.say(place, text) if slot.seen == kind else []
        return []

    def _slot(self, event: dict[str, Any], item: dict[str, Any], *, added: bool | None = None) -> _Slot:
        """Return the item that an event belongs to, by the event's id or index, or else the last item.

        If no item matches, a new item is added and returned.

        Args:
            event: the event. It has the item's index; if it is only a piece of an item, also the item's id.
            item: the item in the event, with its id; empty if the event is only a piece.
            added: `True` if the event says that the item begins, `False` if it says that the item is done, `None` if it
                is only a piece.
        """
        id, index = item.get("id") or event.get("item_id"), event.get("output_index")
        id, index = id if isinstance(id, str) else None, index if isinstance(index, int) else None
        slot = self._by_id.get(id) if id else None
        if slot is None and index is not None:
            slot = self._by_index.get(index)
        elif slot is None and self._slots and not added:
            slot = self._slots[-1]
        # Some servers give all items one index.
        if slot is None or (added and slot.item) or (added is False and slot.done):
            slot = _Slot(len(self._slots))
            self._slots.append(slot)
        if id:
            self._by_id[id] = slot
        if index is not None:
            self._by_index[index] = slot
        return slot
