"""A model encodes messages into the blocks of a request, sends the request, and parses the reply. Only `send` does I/O.

A block is one encoded message, and an envelope is the rest of a request's body. A header is the recorded entry that
states the tools, instructions and settings of requests. A completion is the recorded entry of a model's reply. The
exact request is recorded before it is sent, and the exact reply before it is parsed. So both can be shown, compared and
replayed without a network. The blocks are joined only when `send` needs the body, so the cost of a request depends on
what is new in a conversation. A delta is a piece of text or thought that listeners get while a reply arrives.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from gesta.errors import ModelFault
from gesta.kinds import RequestHeaderContent
from gesta.message import Message


class Envelope(Struct, frozen=True):
    """The parts of a request's body around its blocks. A body is `head`, the blocks joined by `join`, and `tail`.

    Some providers also need a common end of all blocks (`seam`), a first block (`lead`) or a last block (`trail`).
    """

    head: bytes
    join: bytes
    tail: bytes
    seam: bytes = b""
    """The bytes with which every block ends, for providers that want consecutive messages of one role merged into
    one. Two blocks are merged if they are equal up to their first `[`; then the seam between them is left out."""

    lead: bytes = b""
    """A block to send first if the conversation begins with another role than this block. Some providers require a
    user's message first."""

    trail: bytes = b""
    """A block to send last if the conversation ends with another role than this block. Some providers answer only a
    user's message."""

    def add(self, before: bytes | None, block: bytes) -> bytes:
        """Return the bytes that a block adds to a body.

        They lack the `seam` at the end of the block: the next call of `add`, or `end`, adds it if it is needed.

        Args:
            before: the block before this block; `None` for the first block.
        """
        inner = block[: -len(self.seam)] if self.seam else block
        if before is None:
            if not self.lead or _same_role(block, self.lead):
                return inner
            return self.lead + self.join + inner
        if self.seam and before.startswith(opening := block[: block.index(b"[") + 1]):
            return self.join + inner[len(opening) :]
        return self.seam + self.join + inner

    def end(self, blocks: Sequence[bytes]) -> bytes:
        """Return the bytes that follow the last block of a body, and end with `tail`.

        The end of that block (`seam`) comes first. The block `trail` follows if its role differs from that block's.
        """
        if not blocks:
            return self.tail
        if not self.trail or _same_role(blocks[-1], self.trail):
            return self.seam + self.tail
        return self.seam + self.join + self.trail + self.tail


def _same_role(one: bytes, other: bytes) -> bool:
    """Return whether two blocks have the same role, which is the first member of each block."""
    return one.startswith(other[: other.index(b",") + 1])


class Request(Struct, frozen=True, kw_only=True):
    """One request to a model, ready to be sent: its header, its blocks, and the digest (hash) of its body."""

    header: RequestHeaderContent
    envelope: Envelope
    blocks: Sequence[bytes]
    answered: int = 0
    """Number of completions in this run before the request. Scripted and replayed models choose an answer by this
    number."""
    number: int = 1
    """Number of this try since the last completion, from 1. Tries lost to a crash do not count."""
    digest: str = ""
    """SHA-256 of the body, in hex."""

    def body(self) -> bytes:
        """Return the exact bytes to send. Cost: proportional to the whole conversation."""
        envelope, before = self.envelope, [None, *self.blocks]
        added = [envelope.add(*pair) for pair in zip(before, self.blocks, strict=False)]
        return b"".join([envelope.head, *added, envelope.end(self.blocks)])


CUT_SHORT = frozenset(
    {
        *("length", "model_length", "max_tokens", "max_output_tokens", "model_context_window_exceeded", "incomplete"),
        *("content_filter", "refusal", "safety", "recitation", "language", "blocklist", "prohibited_content", "spii"),
        *("other", "error", "network_error", "sensitive", "insufficient_system_resource"),
    }
)
"""Finish reasons of a reply that was cut off, in small letters: at its limit, by a filter or by an error. What has no
end is then incomplete. Source: the references of the dialects, and of Mistral, DeepSeek and Z.ai, read 2026-11."""


class ReplyCall(Struct, frozen=True):
    """A tool call as the model wrote it."""

    name: str
    args: str
    """The arguments as the model wrote them; they should be a JSON object."""
    id: str | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """The reply of a model, parsed."""

    text: str = ""
    calls: tuple[ReplyCall, ...] = ()
    thought: str | None = None
    """Reasoning that the provider shows; it is never sent to another provider."""
    model: str | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """The usage as the provider sent it."""
    native: Any = None
    """Items that the provider wants sent back unchanged, as JSON data in its own form. No other provider can read these
    items."""
    keep: bool = True
    """Whether the bytes of the reply are stored in the record; `False` for models that run in this process."""

    @property
    def cut(self) -> bool:
        """Whether the provider cut the reply off, so that a part of the reply without an end is incomplete."""
        return (self.finish_reason or "").lower() in CUT_SHORT


class Delta(Struct, frozen=True):
    """A piece of a reply, sent to listeners and not stored."""

    type: Literal["text", "thought"]
    text: str


Piece = bytes | Delta | Reply
"""A piece of a reply as `send` yields it: bytes from a provider. A local model yields deltas, and then the whole
reply."""


class Parser(Protocol):
    """The interface of an object that parses one reply.

    The result does not depend on how the bytes are cut into pieces. The joined `text` deltas are the reply's text, or
    the beginning of it. A parser may have an attribute `over`: once it is true, the reply has ended, and no more pieces
    are read.
    """

    def feed(self, data: Any) -> Sequence[Delta]:
        """Add the next piece of the reply, and return the deltas for listeners.

        Raises ModelFault if the reply reports an error.
        """

    def close(self) -> Reply:
        """Return the whole reply. Raises ModelFault if the bytes ended early or cannot be parsed."""


class Model(Protocol):
    """The interface of a model: it encodes messages, sends requests and parses replies."""

    @property
    def name(self) -> str:
        """The address of the model, `provider:model`."""

    @property
    def encoder(self) -> str:
        """Name and version of the form in which messages are encoded, such as `chat-completions/1`."""

    def encode(self, message: Message) -> bytes:
        """Return the block of one message. The method has no effects, and any text results in valid bytes."""

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the envelope of all requests with this header. The method has no effects."""

    def send(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Send the request, and yield the pieces of its reply as they arrive. Closing the generator ends the request.

        Raises ModelFault if the request fails.
        """

    def parser(self) -> Parser:
        """Return a new parser for one reply."""


class LocalModel:
    """Base class of models whose replies are made in this process.

    `answer` is called in place of `send` if no listener wants pieces of the reply.
    """

    async def answer(self, request: Request) -> Reply | AsyncGenerator[Piece, None]:
        """Return the whole reply, or the pieces that `send` would yield. Raises ModelFault if the request fails."""
        raise NotImplementedError


class Given:
    """A parser for models in this process, which yield replies as objects and not as bytes."""

    __slots__ = ("_make", "_parser", "_reply")

    def __init__(self, make: Callable[[], Parser]) -> None:
        self._make = make
        self._parser: Parser | None = None
        self._reply: Reply | None = None

    def feed(self, data: Piece) -> Sequence[Delta]:
        """Add the next piece, and return the deltas for listeners. Raises ModelFault if the reply reports an error."""
        if type(data) is Reply:
            self._reply = data
            return ()
        if type(data) is Delta:
            return (data,)
        self._parser = self._parser or self._make()
        return self._parser.feed(data)

    def close(self) -> Reply:
        """Return the whole reply. Raises ModelFault if it ended early."""
        return self._reply if self._reply is not None else (self._parser or self._make()).close()


def native_by(model: Model) -> str:
    """Return the name of a model and its encoder, to be stored with a reply's native items.

    Native items are parts of a reply, such as signed reasoning, that later requests send back to this model only.
    """
    return f"{model.encoder} {model.name.partition(':')[2]}"


class Unasked:
    """A stand-in for the model of an agent that has a program and no model. It refuses every request."""

    name = "none"
    encoder = "none/1"

    def encode(self, message: Message) -> bytes:
        """Return an empty block, because no request is sent."""
        del message
        return b""

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return an empty envelope."""
        del header
        return Envelope(b"", b"", b"")

    def send(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Raise ModelFault, because there is no model."""
        raise ModelFault("no-model", "This agent has no model of its own; its program asks other agents.")

    def parser(self) -> Parser:
        """Raise ModelFault, because there is no model."""
        raise ModelFault("no-model", "This agent has no model of its own; its program asks other agents.")
