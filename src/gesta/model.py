"""A model is asked in three parts: `build` is pure, `send` touches the outside, `parser` is pure again.

So the exact request is on record before it is sent, the exact reply is on record before it is read, and both can be
shown, compared and replayed with no network. The pieces of a body are kept apart until `send` needs them, so that
asking costs what is new in a conversation, not what is old.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from gesta.errors import ModelFault
from gesta.kinds import RequestHeaderContent
from gesta.message import Message


class Envelope(Struct, frozen=True):
    """What stands around the blocks of a body: head, blocks joined by `join`, tail."""

    head: bytes
    join: bytes
    tail: bytes


class Request(Struct, frozen=True, kw_only=True):
    """One request, ready to be sent."""

    header: RequestHeaderContent
    envelope: Envelope
    blocks: Sequence[bytes]
    answered: int = 0
    """Completions on record in this run before it; models that need no key answer by it."""
    number: int = 1
    """Which try this is since the last completion, from 1; those lost to a crash do not count."""
    digest: str = ""
    """SHA-256 of the body, in hex."""

    def body(self) -> bytes:
        """The exact bytes that are sent. Cost: the whole conversation."""
        return self.envelope.head + self.envelope.join.join(self.blocks) + self.envelope.tail


class ReplyCall(Struct, frozen=True):
    """A tool call as the model wrote it."""

    name: str
    args: str
    """The text that should be a JSON object."""
    id: str | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """What a model generated, read from its bytes."""

    text: str = ""
    calls: tuple[ReplyCall, ...] = ()
    thought: str | None = None
    """Reasoning that the provider lets be seen; never shown to another provider."""
    model: str | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """As the provider gave it."""
    keep: bool = True
    """Whether the bytes are worth keeping; not for models that need no key."""


class Delta(Struct, frozen=True):
    """A piece of a reply, for listeners only."""

    type: Literal["text", "thought"]
    text: str


class Parser(Protocol):
    """Reads one reply. However the bytes are cut, the reply is the same, and the deltas join to a beginning of it."""

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes. Raises ModelFault when the reply reports an error."""

    def close(self) -> Reply:
        """Give the reply. Raises ModelFault when the bytes end early or can not be read."""


class Model(Protocol):
    """Something that can be asked."""

    @property
    def name(self) -> str:
        """`provider:model`."""

    @property
    def encoder(self) -> str:
        """Name and version of the way it encodes a message, as in `chat-completions/1`."""

    def encode(self, message: Message) -> bytes:
        """Turn one message into one block. Pure, and total: any text gives valid bytes."""

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Turn a header into what stands around the blocks. Pure."""

    def send(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Send, and yield the reply's bytes as they come. Closing it frees the connection. Raises ModelFault."""

    def parser(self) -> Parser:
        """Make a reader for one reply."""


class Unasked:
    """Stands where a program has no model of its own."""

    name = "none"
    encoder = "none/1"

    def encode(self, message: Message) -> bytes:
        """Encode nothing: nobody reads it."""
        del message
        return b""

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        """Make one without anything in it."""
        del header
        return Envelope(b"", b"", b"")

    def send(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Refuse. Raises ModelFault."""
        raise ModelFault("no-model", "This agent has no model of its own; its program asks other agents.")

    def parser(self) -> Parser:
        """Refuse. Raises ModelFault."""
        raise ModelFault("no-model", "This agent has no model of its own; its program asks other agents.")
