"""Parses a reply of the Anthropic Messages API, whole or as a stream of events. Both forms result in the same reply.

The content of a reply is a list of blocks: text, thinking, a tool call or another type. A stream sends each block in
pieces, and its tokens in two counts: first the tokens that the model read, then those that it wrote. Texts before and
after other content, such as a search, become two paragraphs. The arguments of calls become compact JSON. A
delta is a piece of text or thought that listeners get while the reply arrives.

Source: platform.claude.com, "Streaming messages", "Stop reasons and fallback", "Handle streaming refusals", read
2026-11; recorded traffic.
"""

from typing import Any, Literal

import msgspec

from gesta.model.request import Delta, Reply, ReplyCall
from gesta.models.faults import bad_reply, excerpt, provider_fault
from gesta.models.gathered import Gathered
from gesta.models.incoming import Incoming
from gesta.models.jsontext import DECODER, SURROGATE, compact, exact, paired

STARTED_BY = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
"""For each type of piece, the type of its block. It is used if the beginning of the block was lost."""


class Block:
    """One block of the reply's content, joined from its pieces."""

    __slots__ = ("_given", "_json", "_pieces", "kind", "place")

    def __init__(self, given: dict[str, Any], place: int) -> None:
        self._given = dict(given)
        self._pieces: dict[str, list[str]] = {}
        self._json: list[str] = []
        kind = given.get("type")
        self.kind = kind if isinstance(kind, str) else ""
        self.place = place

    def add(self, delta: dict[str, Any]) -> None:
        """Add the next piece of the block: the member `delta` of an event."""
        for name, value in delta.items():
            if name == "partial_json" and isinstance(value, str):
                self._json.append(value)
            elif isinstance(value, str) and name != "type":
                self._pieces.setdefault(name, []).append(value)
            elif value is not None and name not in ("type", "citation", "partial_json"):
                self._given[name] = value

    def whole(self) -> dict[str, Any]:
        """Return the block as a dict, with all pieces that came. Arguments that are not a JSON object stay a text."""
        made = dict(self._given)
        for name, pieces in self._pieces.items():
            before = made.get(name)
            text = "".join([before if isinstance(before, str) else "", *pieces])
            made[name] = paired(text) if SURROGATE.search(text) else text
        if written := "".join(self._json):
            try:
                found = DECODER.decode(written)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                found = None
            if isinstance(found, dict) or self.kind == "tool_use":
                made["input"] = found if isinstance(found, dict) else written
        return made

    def call(self) -> ReplyCall:
        """Return the block as a tool call. Missing arguments become `{}`."""
        made = self.whole()
        id, name, given = made.get("id"), made.get("name"), made.get("input")
        args = given if isinstance(given, str) else exact({} if given is None else given).decode()
        if id is not None and not isinstance(id, str):
            id = compact(id).decode()
        return ReplyCall(name if isinstance(name, str) else "", args or "{}", id or None)

    def kept(self) -> dict[str, Any] | None:
        """Return the part of the block that later requests send back; `None` if nothing is sent back.

        Citations are left out, and so is thinking without a signature. A tool call is left without its name and
        arguments, because later requests take them from the recorded call.
        """
        made = self.whole()
        if self.kind == "tool_use":
            caller = made.get("caller")
            direct = not isinstance(caller, dict) or caller.get("type") == "direct"
            return {"type": "tool_use"} if direct else {"type": "tool_use", "caller": caller}
        if self.kind == "text":
            return {"type": "text", "text": made["text"]} if isinstance(made.get("text"), str) else None
        if self.kind == "thinking":
            signed = {name: made.get(name) for name in ("type", "thinking", "signature")}
            return signed if made.get("signature") and isinstance(made.get("thinking"), str) else None
        return made if self.kind else None


class AnthropicParser(Incoming):
    """A parser for one reply of the Messages API."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = self._done = False
        self._said = Gathered()
        self._spoke: dict[str, int] = {}
        """The number of the block that the last words came from, for `text` and for `thinking`."""
        self._blocks: list[Block] = []
        self._by_index: dict[int | str, Block] = {}
        self._model: str | None = None
        self._usage: dict[str, Any] | None = None

    @property
    def over(self) -> bool:
        """Whether the event `message_stop` came. The rest of the stream is ignored."""
        return self._done

    def take_whole(self, body: Any, data: bytes) -> None:
        """Read a whole reply, which came as one JSON value, so that `reply` can return it.

        Args:
            body: the decoded JSON value.
            data: the bytes of the value, for error messages.

        Raises:
            ModelFault: the value reports an error, or has no content.
        """
        if isinstance(body, list) and body:
            body = body[0]
        if not isinstance(body, dict):
            raise bad_reply(f"Expected a message, found {excerpt(data)}.")
        content = body.get("content")
        if (
            body.get("type") == "error"
            or body.get("error")
            or (content is None and ("message" in body or "detail" in body))
        ):
            raise provider_fault(body)
        if not isinstance(content, list | str):
            raise bad_reply(f"Expected a message with content, found {excerpt(data)}.")
        self._message(body)
        self._end(body)

    def take_event(self, event: Any, name: bytes) -> list[Delta]:
        """Read one event of a stream, and return its deltas. Raises ModelFault if the event reports an error.

        Args:
            event: the decoded JSON of the event.
            name: type of the event, such as `message_start`.
        """
        return self._event(event, failed=name == b"error")

    def check_end(self) -> None:
        """Raise ModelFault if the stream ended early, or if it contains no message."""
        if self._said.finish is None and not self._done:
            found = "The stream ended without a reason to stop and without `message_stop`."
            raise self.lost(found, begun=self._begun)
        if not self._begun:
            raise bad_reply(f"Expected a message in the stream, found {excerpt(self.beginning)}.")

    def reply(self) -> Reply:
        """Return the reply as far as it has been read."""
        kept = [item for block in self._blocks if (item := block.kept()) is not None]
        plain = all(item["type"] == "text" or item == {"type": "tool_use"} for item in kept)
        told = self._said.reply(model=self._model, usage=self._usage)
        calls = tuple(block.call() for block in self._blocks if block.kind == "tool_use")
        return msgspec.structs.replace(told, calls=calls, native=None if plain else kept)

    def _event(self, event: Any, *, failed: bool) -> list[Delta]:
        if not isinstance(event, dict):
            event = {"error": event} if failed else {}
        kind = event.get("type")
        if failed or kind == "error" or event.get("error"):
            raise provider_fault(event)
        if kind == "message_start" and isinstance(message := event.get("message"), dict):
            return self._message(message)
        index = event.get("index")
        if kind == "content_block_start" and isinstance(given := event.get("content_block"), dict):
            return self._start(given, index)
        if kind == "content_block_delta" and isinstance(delta := event.get("delta"), dict):
            return self._piece(delta, index)
        if kind == "message_delta":
            self._count(event.get("usage"))
            delta = event.get("delta")
            return self._end(delta) if isinstance(delta, dict) else []
        self._done = kind == "message_stop"
        return []

    def _message(self, message: dict[str, Any]) -> list[Delta]:
        """Read a message, which is a whole reply or the beginning of a stream, and return its words as deltas."""
        self._begun = True
        if self._model is None and isinstance(model := message.get("model"), str):
            self._model = model or None
        self._count(message.get("usage"))
        content, deltas = message.get("content"), list[Delta]()
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for given in content if isinstance(content, list) else ():
            if isinstance(given, dict):
                deltas += self._start(given, None)
        return deltas

    def _start(self, given: dict[str, Any], index: Any) -> list[Delta]:
        self._begun = True
        block = Block(given, len(self._blocks))
        self._blocks.append(block)
        if isinstance(index, int | str):
            self._by_index[index] = block
        return self._words(block, given)

    def _piece(self, delta: dict[str, Any], index: Any) -> list[Delta]:
        block = self._by_index.get(index) if isinstance(index, int | str) else None
        if block is None:
            if (kind := STARTED_BY.get(str(delta.get("type")))) is None:
                return []
            if not self._blocks or self._blocks[-1].kind != kind or index is not None:
                self._start({"type": kind}, index)
            block = self._blocks[-1]
        block.add(delta)
        return self._words(block, delta)

    def _words(self, block: Block, members: dict[str, Any]) -> list[Delta]:
        """Return the words in a block, or in a piece of it, as deltas. Words after other content begin a paragraph.

        Args:
            block: the block that the words belong to.
            members: the members of the block, or of the piece.
        """
        kind: Literal["text", "thinking"] = "thinking" if block.kind == "thinking" else "text"
        words = members.get(kind)
        if not isinstance(words, str) or not words or block.kind.endswith(("tool_use", "tool_result")):
            return []
        before = (self._said.text if kind == "text" else self._said.thought)[-1:]
        apart = block.place - self._spoke.get(kind, block.place) > (kind == "text")
        self._spoke[kind] = block.place
        if apart and before and not (before[0][-1:].isspace() or words[0].isspace()):
            words = "\n\n" + words
        return self._said.words({"content" if kind == "text" else "reasoning_content": words})

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            known = self._usage or {}
            told = {name: value for name, value in usage.items() if value is not None or known.get(name) is None}
            self._usage = known | told

    def _end(self, message: dict[str, Any]) -> list[Delta]:
        """Read why the model stopped, and return the last words as deltas.

        The explanation of a refusal is part of the text.
        """
        finish, details = message.get("stop_reason"), message.get("stop_details")
        if finish is None:
            return []
        deltas: list[Delta] = []
        told = details.get("explanation") if isinstance(details, dict) else None
        if finish == "refusal" and self._said.finish is None and isinstance(told, str):
            deltas = self._said.words({"content": f"\n\n{told}" if told and self._said.text else told})
        return deltas + self._said.end(finish if isinstance(finish, str) else compact(finish).decode())
