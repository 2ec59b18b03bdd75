"""Parses a reply of Gemini's `generateContent`: one JSON object, a stream of events, or a list of chunks.

A stream that was not asked for with `alt=sse` is a list. All three forms result in the same reply. A reply has parts in
order, each of one kind, and each chunk holds the next parts. Text before and text after another part, such as code that
the provider ran, become two paragraphs. Parts to send back later keep their order and their signatures. A blocked
prompt raises a ModelFault. A call that the provider could not read raises one too, and another try may succeed.
A delta is a piece of text or thought that listeners get while the reply arrives.

Source: Gemini API reference, "GenerateContentResponse", and ai.google.dev, "Thought signatures", read 2026-11; that
words beside a malformed call are its fragments: vellum-ai/vellum-assistant#43134, 2026-09; recorded traffic.
"""

from typing import Any, Literal

import msgspec

from gesta.errors import ModelFault
from gesta.model.request import Delta, Reply, ReplyCall
from gesta.models.faults import bad_reply, excerpt, provider_fault
from gesta.models.gathered import Gathered
from gesta.models.incoming import Incoming
from gesta.models.jsontext import SURROGATE, compact, exact, paired

BESIDE = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")
"""Members of a part that are not its content."""

BROKEN = {
    "MALFORMED_FUNCTION_CALL": True,
    "MALFORMED_RESPONSE": True,
    "UNEXPECTED_TOOL_CALL": True,
    "MISSING_THOUGHT_SIGNATURE": False,
}
"""Finish reasons that make a reply a ModelFault, each with whether another try may succeed."""

ENDED = ("STOP", "MAX_TOKENS")
"""Finish reasons whose `finishMessage` is not shown to the reader."""

Words = Literal["text", "thought"]


class GeminiParser(Incoming):
    """A parser for one reply of `generateContent`."""

    def __init__(self) -> None:
        super().__init__()
        self._chosen = False
        self._said = Gathered()
        self._calls: list[ReplyCall] = []
        self._native: list[dict[str, Any]] = []
        self._open: list[str] = []
        """Pieces of the last text part to send back. They are joined when another part follows."""
        self._spoke = ""
        """The kind of the last part that was not an empty text."""
        self._model: str | None = None
        self._usage: dict[str, Any] | None = None

    def take_whole(self, body: Any, data: bytes) -> None:
        """Read a whole reply, sent at once and not as a stream. After that, `reply()` returns it.

        Args:
            body: the JSON value of the reply: one object, or a list of chunks.
            data: the bytes of the reply; an error quotes them.

        Raises:
            ModelFault: the reply is an error, or has no candidate.
        """
        for chunk in body if isinstance(body, list) else [body]:
            known = isinstance(chunk, dict) and "candidates" not in chunk
            self._chunk(chunk, failed=known and ("message" in chunk or "detail" in chunk))
        if not self._chosen:
            raise bad_reply(f"Expected a candidate in the reply, found {excerpt(data)}.")

    def take_event(self, event: Any, name: bytes) -> list[Delta]:
        """Read one event of a stream, and return its deltas. Raises ModelFault if the event reports an error.

        Args:
            event: the JSON value of the event, which is one chunk of the reply.
            name: the name of the event in the stream; `error` means that the event reports an error.
        """
        return self._chunk(event, failed=name == b"error")

    def check_end(self) -> None:
        """Raise ModelFault if the stream ended without a finish reason."""
        if self._said.finish is None:
            raise self.lost("The stream ended without a reason to stop.", begun=self._chosen)

    def reply(self) -> Reply:
        """Return the reply as far as it has been read."""
        self._close_text()
        plain = all(item.keys() == {"text"} or item == {"functionCall": {}} for item in self._native)
        told = self._said.reply(model=self._model, usage=self._usage)
        return msgspec.structs.replace(told, calls=tuple(self._calls), native=None if plain else self._native)

    def _chunk(self, chunk: Any, *, failed: bool) -> list[Delta]:
        if not isinstance(chunk, dict):
            chunk = {"error": chunk} if failed else {}
        if failed or chunk.get("error"):
            raise provider_fault(chunk)
        if self._model is None and isinstance(model := chunk.get("modelVersion"), str):
            self._model = model or None
        if isinstance(usage := chunk.get("usageMetadata"), dict):
            self._usage = (self._usage or {}) | usage
        if isinstance(feedback := chunk.get("promptFeedback"), dict):
            _refuse_blocked(feedback)
        deltas: list[Delta] = []
        candidates = chunk.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            if isinstance(candidate, dict) and not candidate.get("index"):
                deltas += self._candidate(candidate)
        return deltas

    def _candidate(self, candidate: dict[str, Any]) -> list[Delta]:
        self._chosen = True
        content, deltas = candidate.get("content"), list[Delta]()
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                deltas += self._part(part)
        finish, told = candidate.get("finishReason"), candidate.get("finishMessage")
        if not finish:
            return deltas
        reason = finish if isinstance(finish, str) else compact(finish).decode()
        told = told if isinstance(told, str) else ""
        if reason in BROKEN:
            raise ModelFault(reason, told[:2000] or f"The model stopped with {reason}.", retry=BROKEN[reason])
        if reason not in ENDED and not self._calls:  # the explanation of a refusal is part of the text
            self._spoke = "end"
            deltas += self._words("text", told)
        return deltas + self._said.end(reason)

    def _part(self, part: dict[str, Any]) -> list[Delta]:
        signature = part.get("thoughtSignature")
        signed = {"thoughtSignature": signature} if isinstance(signature, str) and signature else {}
        text, call = part.get("text"), part.get("functionCall")
        if isinstance(call, dict):
            self._call(call)
            self._keep({"functionCall": {}} | signed)
            self._spoke = "call"
            return []
        data = [name for name in part if name not in BESIDE]
        if isinstance(text, str) or (signed and not data):  # a signature may come in a part without content
            words = text if isinstance(text, str) else ""
            kind: Words = "thought" if part.get("thought") else "text"
            if signed:
                self._keep({"text": words} | ({"thought": True} if kind == "thought" else {}) | signed)
            elif kind == "text" and words:
                self._open.append(words)
            return self._words(kind, words)
        if len(data) == 1 and isinstance(part[data[0]], dict) and (signed or not part.get("thought")):
            self._keep(part)
            self._spoke = data[0]
        return []

    def _words(self, kind: Words, words: str) -> list[Delta]:
        if not words:
            return []
        before = (self._said.text if kind == "text" else self._said.thought)[-1:]
        if before and self._spoke != kind and not (before[0][-1:].isspace() or words[0].isspace()):
            words = "\n\n" + words
        self._spoke = kind
        return self._said.words({"content" if kind == "text" else "reasoning_content": words})

    def _keep(self, item: dict[str, Any]) -> None:
        """Add a part to the parts that later requests send back. Text that came before this part is added first."""
        self._close_text()
        self._native.append(item)

    def _close_text(self) -> None:
        if text := "".join(self._open):
            self._native.append({"text": paired(text) if SURROGATE.search(text) else text})
        self._open.clear()

    def _call(self, call: dict[str, Any]) -> None:
        if "partialArgs" in call or call.get("willContinue"):
            found = (
                "A call came in pieces, which are not read. Leave `streamFunctionCallArguments` out of the settings."
            )
            raise ModelFault("bad-reply", found)
        name, given, id = call.get("name"), call.get("args"), call.get("id")
        args = given if isinstance(given, str) else exact({} if given is None else given).decode()
        if id is not None and not isinstance(id, str):
            id = compact(id).decode()
        self._calls.append(ReplyCall(name if isinstance(name, str) else "", args or "{}", id or None))


def _refuse_blocked(feedback: dict[str, Any]) -> None:
    """Raise ModelFault if the feedback says that the provider blocked the prompt."""
    reason, told = feedback.get("blockReason"), feedback.get("blockReasonMessage")
    if not reason or reason == "BLOCK_REASON_UNSPECIFIED":
        return
    word = reason if isinstance(reason, str) else compact(reason).decode()
    more = f" {told}" if isinstance(told, str) else ""
    raise ModelFault(word[:100], f"The prompt was blocked ({word[:100]}).{more}"[:2000])
