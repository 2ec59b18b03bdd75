"""Encodes messages as the body of a Chat Completions request, and parses replies. Nothing is sent here.

A block is one message as JSON bytes, and the envelope is the body without its blocks. A request header is the recorded
entry that states settings, tools and instructions, not an HTTP header. Many providers and local servers use this
format, each a little differently. So requests have only members that all of them accept, and the parser reads every
variant. A message must give the same bytes in every release of `chat-completions/1`, because prompt caches need equal
beginnings. A lone surrogate becomes U+FFFD. In the names of calls, each character that a tool's name must not have
becomes `_`. A delta is a piece of text or thought that listeners get while the reply arrives.

Source: OpenAI API reference, "Chat Completions", "Create" and "Streaming", read 2026-11.
"""

import re
from base64 import b64encode
from typing import Any, ClassVar

from msgspec import Struct

from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Delta, Envelope, Reply
from gesta.models.faults import bad_reply, excerpt, provider_fault
from gesta.models.gathered import Gathered
from gesta.models.incoming import Incoming
from gesta.models.jsontext import ENCODER, compact
from gesta.models.kept import put_back
from gesta.models.parts import data_url, note
from gesta.models.settings import refuse_own

OWN = ("model", "messages", "tools", "stream")
"""Members of the body that Gesta writes itself. Settings with these names are refused."""

NOT_IN_NAMES = re.compile("[^a-zA-Z0-9_-]")
"""Characters that are replaced in the names of calls. A model may invent a name with such a character, and the provider
would then refuse every later request."""


class ChatDialect(Struct, frozen=True):
    """The Chat Completions request format, for one model with its settings."""

    model: str
    """The provider's name for the model."""
    settings: dict[str, Any] = {}
    """Members of the body, such as `temperature`. A request header's settings replace these; `None` leaves a member
    out."""
    stream: bool = True
    keeps: tuple[str, ...] = ()
    """Members of a reply that the server wants back with the reply's calls, such as `reasoning_content`."""

    encoder: ClassVar[str] = "chat-completions/1"
    path: ClassVar[str] = "/chat/completions"
    """The part of the URL after the provider's base address."""

    def __post_init__(self) -> None:
        """Raise AgentError if a setting such as `messages` would replace a part of the body that Gesta writes."""
        refuse_own(self.model, self.settings, OWN)

    def encode(self, message: Message) -> bytes:
        """Return one message as a block, which is one JSON object.

        A short text replaces each image or file that cannot be sent.
        """
        block: dict[str, Any] = {"role": message.role, "content": _content(message)}
        if message.calls:
            block["content"] = block["content"] or None
            block["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": NOT_IN_NAMES.sub("_", call.name)[:64] or "_",
                        "arguments": compact(call.args).decode(),
                    },
                }
                for call in message.calls
            ]
            if message.native is not None and message.native.by == f"{self.encoder} {self.model}":
                put_back(block, message.native.items)
        elif message.role == "tool":
            block = {"role": "tool", "tool_call_id": message.call_id or "", "content": block["content"]}
        try:
            return ENCODER.encode(block)
        except UnicodeEncodeError:
            return compact(block)

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the request body without the messages: the settings, tools and instructions from `header`.

        The instructions are in the body as its first message.
        """
        meta = header.meta or {}
        settings = self.settings
        if isinstance(own := meta.get("settings"), dict):
            settings = settings | {name: value for name, value in own.items() if name not in OWN}
        members: dict[str, Any] = {"model": self.model}
        if header.tools and meta.get("tools_in") != "text":
            members["tools"] = [_tool(tool) for tool in header.tools]
        members |= settings
        if header.output is not None:
            schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": header.output}}
            members.setdefault("response_format", schema)
        if self.stream:
            members["stream"] = True
            members.setdefault("stream_options", {"include_usage": True})
        else:
            members.pop("stream_options", None)
        head = compact({name: value for name, value in members.items() if value is not None})[:-1] + b',"messages":['
        if instructions := meta.get("instructions"):
            head += self.encode(Message(role="system", text=str(instructions))) + b","
        return Envelope(head, b",", b"]}")

    def parser(self) -> "ChatParser":
        """Return a new parser, which reads one reply."""
        return ChatParser(keeps=self.keeps)


def _content(message: Message) -> Any:
    """Return the content of a message: its text, or a list of parts if a user's message holds images or files."""
    if not message.parts:
        return message.text
    written = [part_of(part) if message.role == "user" else None for part in message.parts]
    if not any(written):
        texts = [part.text or "" if part.type == "text" else note(part) for part in message.parts]
        return "\n".join([message.text, *texts] if message.text else texts)
    content = [{"type": "text", "text": message.text}] if message.text else []
    for part, made in zip(message.parts, written, strict=True):
        content.append(made or {"type": "text", "text": part.text or "" if part.type == "text" else note(part)})
    return content


def part_of(part: Part) -> dict[str, Any] | None:
    """Return an image, a sound or a file in the API's form; `None` if the API has no form for it.

    For example, the API has no form for bytes without a media type.
    """
    url = part.url or (data_url(part) if isinstance(part.data, bytes) and part.media_type else None)
    if part.type == "text" or url is None:
        return None
    kind, _, form = (part.media_type or "").partition("/")
    if part.type == "image":
        return {"type": "image_url", "image_url": {"url": url}} if part.url or kind == "image" else None
    if isinstance(part.data, bytes) and kind == "audio":
        sound = "mp3" if form in ("mpeg", "mp3") else "wav" if "wav" in form else form
        return {"type": "input_audio", "input_audio": {"data": b64encode(part.data).decode(), "format": sound}}
    if part.data is None:
        return None  # providers fetch only images from an address
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": url}}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.get("name", ""),
            "description": tool.get("description") or "",
            "parameters": tool.get("args_schema") or {"type": "object", "properties": {}},
            **({"strict": True} if tool.get("strict") else {}),
        },
    }


class ChatParser(Incoming):
    """A parser for one reply of Chat Completions."""

    def __init__(self, *, keep: bool = True, keeps: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._keep = keep
        self._chosen = False
        self._gathered = Gathered(keeps)
        self._model: str | None = None
        self._usage: dict[str, Any] | None = None

    def take_whole(self, body: Any, data: bytes) -> None:
        """Read a whole reply, sent at once and not as a stream. After that, `reply()` returns it.

        Args:
            body: the JSON value of the reply.
            data: the bytes of the reply; an error quotes them.

        Raises:
            ModelFault: the reply is an error, or has no choice.
        """
        if isinstance(body, list) and body:
            body = body[0]
        if isinstance(body, dict):
            self._chunk(body, failed="choices" not in body and ("message" in body or "detail" in body))
        if not self._chosen:
            raise bad_reply(f"Expected a choice in the reply, found {excerpt(data)}.")

    def take_event(self, event: Any, name: bytes) -> list[Delta]:
        """Read one event of a stream, and return its deltas. Raises ModelFault if the event reports an error.

        Args:
            event: the JSON value of the event, which is one chunk of the reply.
            name: the name of the event in the stream; `error` means that the event reports an error.
        """
        return self._chunk(event, failed=name == b"error")

    def check_end(self) -> None:
        """Raise ModelFault if the stream ended early, or if it contains no choice."""
        if self._gathered.finish is None and not self.marked:
            raise self.lost("The stream ended without a reason to stop and without [DONE].", begun=self._chosen)
        if not self._chosen:
            raise bad_reply(f"Expected a choice in the stream, found {excerpt(self.beginning)}.")

    def reply(self) -> Reply:
        """Return the reply as far as it has been read."""
        return self._gathered.reply(model=self._model, usage=self._usage, keep=self._keep)

    def _chunk(self, chunk: Any, *, failed: bool) -> list[Delta]:
        if not isinstance(chunk, dict):
            chunk = {"error": chunk} if failed or isinstance(chunk, list) else {}
        if failed or chunk.get("error") or chunk.get("object") == "error":
            raise provider_fault(chunk)
        if self._model is None and isinstance(model := chunk.get("model"), str):
            self._model = model or None
        usage = chunk.get("usage")
        if usage is None and "x_groq" in chunk and isinstance(groq := chunk["x_groq"], dict):
            usage = groq.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        deltas: list[Delta] = []
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                deltas += self._choice(choice)
        return deltas

    def _choice(self, choice: dict[str, Any]) -> list[Delta]:
        deltas: list[Delta] = []
        if isinstance(delta := choice.get("delta"), dict):
            deltas = self._gathered.delta(delta)
        elif isinstance(message := choice.get("message"), dict) and (self.whole is not None or not self._chosen):
            self._gathered.message(message)
        self._chosen = True
        if "usage" in choice and isinstance(choice["usage"], dict):  # where Moonshot puts it
            self._usage = choice["usage"]
        if "error" in choice and isinstance(choice["error"], dict):  # where OpenRouter puts it
            raise provider_fault(choice["error"])
        if finish := choice.get("finish_reason"):
            deltas += self._gathered.end(finish if isinstance(finish, str) else compact(finish).decode())
        return deltas
