"""A model has three parts: `build` makes a request, `send` sends it, `parser` reads the reply. Only `send` does I/O.

The exact request is on record before it is sent, and the exact reply before it is read. So both can be shown, compared
and replayed without a network. The blocks of a body are joined only when `send` needs the body, so the cost of a
request depends on what is new in a conversation, not on its length.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from gesta.errors import ModelFault
from gesta.kinds import RequestHeaderContent
from gesta.message import Message


class Envelope(Struct, frozen=True):
    """The parts of a body around its blocks. A body is `head`, the blocks joined by `join`, and `tail`."""

    head: bytes
    join: bytes
    tail: bytes
    seam: bytes = b""
    """The end of every block, for providers that want messages of one role merged. Blocks that are equal up to their
    first `[` then become one."""

    lead: bytes = b""
    """A block to send first if the first block has another role. Some providers require a user's message first."""

    trail: bytes = b""
    """A block to send last if the last block has another role. Some providers answer only a user's message."""

    def add(self, before: bytes | None, block: bytes) -> bytes:
        """Return the bytes that a block adds to a body after the block `before`. The `seam` at its end is left out."""
        inner = block[: -len(self.seam)] if self.seam else block
        if before is None:
            if not self.lead or _same_role(block, self.lead):
                return inner
            return self.lead + self.join + inner
        if self.seam and before.startswith(opening := block[: block.index(b"[") + 1]):
            return self.join + inner[len(opening) :]
        return self.seam + self.join + inner

    def end(self, blocks: Sequence[bytes]) -> bytes:
        """Return the bytes that follow the last block."""
        if not blocks:
            return self.tail
        if not self.trail or _same_role(blocks[-1], self.trail):
            return self.seam + self.tail
        return self.seam + self.join + self.trail + self.tail


def _same_role(one: bytes, other: bytes) -> bool:
    """Return whether two blocks have the same role. The role is the first member of each block."""
    return one.startswith(other[: other.index(b",") + 1])


class Request(Struct, frozen=True, kw_only=True):
    """One request, ready to be sent."""

    header: RequestHeaderContent
    envelope: Envelope
    blocks: Sequence[bytes]
    answered: int = 0
    """Number of completions of this run before the request. Scripted and replayed models choose their answer by it."""
    number: int = 1
    """Number of this try since the last completion, from 1; tries lost to a crash do not count."""
    digest: str = ""
    """SHA-256 of the body, in hex."""

    def body(self) -> bytes:
        """Return the exact bytes that are sent. Cost: the whole conversation."""
        envelope, before = self.envelope, [None, *self.blocks]
        added = [envelope.add(*pair) for pair in zip(before, self.blocks, strict=False)]
        return b"".join([envelope.head, *added, envelope.end(self.blocks)])


class ReplyCall(Struct, frozen=True):
    """A tool call as the model wrote it."""

    name: str
    args: str
    """The arguments as text, which should be a JSON object."""
    id: str | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """The reply of a model, read from its bytes."""

    text: str = ""
    calls: tuple[ReplyCall, ...] = ()
    thought: str | None = None
    """Reasoning that the provider shows; it is never sent to another provider."""
    model: str | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """The usage as the provider sent it."""
    native: Any = None
    """Items that the provider wants back unchanged, as JSON in its own form; no other provider can read them."""
    keep: bool = True
    """Whether the bytes of the reply are put on record; not for models that run in this process."""


class Delta(Struct, frozen=True):
    """A piece of a reply, which is only sent to listeners."""

    type: Literal["text", "thought"]
    text: str


Piece = bytes | Delta | Reply
"""A piece of a reply: bytes; from a local model, a delta for listeners, and at the end the whole reply."""


class Parser(Protocol):
    """Reads one reply.

    However the bytes are cut, the result is the same, and the deltas joined are a beginning of it.
    """

    def feed(self, data: Any) -> Sequence[Delta]:
        """Read the next piece of the reply. Raises ModelFault when the reply reports an error."""

    def close(self) -> Reply:
        """Return the whole reply. Raises ModelFault when the bytes end early or cannot be read."""


class Model(Protocol):
    """A model: it encodes messages, sends requests and parses replies."""

    @property
    def name(self) -> str:
        """The model's address, `provider:model`."""

    @property
    def encoder(self) -> str:
        """Name and version of the form in which it encodes messages, such as `chat-completions/1`."""

    def encode(self, message: Message) -> bytes:
        """Return the block of one message. Pure; any text gives valid bytes."""

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return the envelope for a header. Pure."""

    def send(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Send the request, and yield its reply as it comes. Closing the generator ends the request.

        Raises ModelFault.
        """

    def parser(self) -> Parser:
        """Return a new parser for one reply."""


class LocalModel:
    """A model whose replies are made in this process.

    If no listener wants pieces of the reply, `answer` is called instead of `send`.
    """

    async def answer(self, request: Request) -> Reply | AsyncGenerator[Piece, None]:
        """Return the whole reply, or the pieces that `send` would yield. Raises ModelFault."""
        raise NotImplementedError


class Given:
    """A parser for replies that are made in this process as objects. Bytes are passed on to another parser."""

    __slots__ = ("_make", "_parser", "_reply")

    def __init__(self, make: Callable[[], Parser]) -> None:
        self._make = make
        self._parser: Parser | None = None
        self._reply: Reply | None = None

    def feed(self, data: Piece) -> Sequence[Delta]:
        """Read the next piece. Raises ModelFault when the reply reports an error."""
        if type(data) is Reply:
            self._reply = data
            return ()
        if type(data) is Delta:
            return (data,)
        self._parser = self._parser or self._make()
        return self._parser.feed(data)

    def close(self) -> Reply:
        """Return the reply. Raises ModelFault when it ends early."""
        return self._reply if self._reply is not None else (self._parser or self._make()).close()


def native_by(model: Model) -> str:
    """Return the name of the form of `Reply.native`, made from the encoder and the model."""
    return f"{model.encoder} {model.name.partition(':')[2]}"


class Unasked:
    """The model of a program that asks no model itself. It refuses every request."""

    name = "none"
    encoder = "none/1"

    def encode(self, message: Message) -> bytes:
        """Return an empty block, which nobody reads."""
        del message
        return b""

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Return an empty envelope."""
        del header
        return Envelope(b"", b"", b"")

    def send(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Raise ModelFault: there is no model."""
        raise ModelFault("no-model", "This agent has no model of its own; its program asks other agents.")

    def parser(self) -> Parser:
        """Raise ModelFault: there is no model."""
        raise ModelFault("no-model", "This agent has no model of its own; its program asks other agents.")
