"""A message is what a model reads, free of any provider's form; a block is one message, encoded once.

Formatters make messages from entries; models encode each into a block. A sent block is never encoded again, so the
requests of a conversation extend each other byte for byte, which is what a provider's prompt cache looks for.
"""

import mimetypes
import os
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from gesta.kinds import Part

Role = Literal["system", "user", "assistant", "tool"]


class Call(Struct, frozen=True):
    """A tool call as a model reads its own."""

    id: str
    """Unique in the conversation, and the same on every formatting."""
    name: str
    args: dict[str, Any]
    """Always a JSON object."""


class Native(Struct, frozen=True):
    """What a provider wants back as it gave it, such as reasoning with its signature; opaque to all others."""

    by: str
    """Encoder and model that it is from; for any other it does not exist."""
    items: Any
    """JSON, in the provider's form."""


class Message(Struct, frozen=True, kw_only=True):
    """One message of a history."""

    role: Role
    text: str = ""
    parts: tuple[Part, ...] = ()
    """Images and files beside the text."""
    calls: tuple[Call, ...] = ()
    """Of an assistant message; each is answered by one of the tool messages that follow at once, in this order."""
    call_id: str | None = None
    """Of a tool message: the call that it answers."""
    name: str | None = None
    """Of results of one tool: the tool."""
    failed: bool = False
    """Of a tool message: whether it tells of an error."""
    observes: bool = False
    """Of a user message: whether it is results of tools in words."""
    native: Native | None = None
    """Of an assistant message whose text and calls are those of one reply."""
    sources: tuple[int, ...] = ()
    """Seqs of the entries that it was made from."""


def attached(path: str | os.PathLike[str]) -> Part:
    """Read an image or another file, to be sent with a message. Raises OSError."""
    file = Path(path)
    media_type, _ = mimetypes.guess_type(file.name)
    form: Literal["image", "file"] = "image" if (media_type or "").startswith("image/") else "file"
    return Part(type=form, data=file.read_bytes(), media_type=media_type, name=file.name)
