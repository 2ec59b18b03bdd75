"""A message is text that a model reads, in no provider's form. A block is one message, encoded once.

Formatters make messages from entries (the stored facts of a run); models encode each message into a block. A sent block
is never encoded again. So each request of a conversation begins with the same bytes as the request before. The prompt
caches of providers need that.
"""

import mimetypes
import os
import re
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from gesta.errors import AgentError
from gesta.kinds import Part

BEGINNINGS = tuple(
    (re.compile(begin, re.DOTALL), media_type)
    for begin, media_type in (
        (rb"\x89PNG\r\n\x1a\n", "image/png"),
        (rb"\xff\xd8\xff", "image/jpeg"),
        (rb"GIF8[79]a", "image/gif"),
        (rb"RIFF....WEBP", "image/webp"),
        (rb"%PDF-", "application/pdf"),
    )
)
"""The first bytes of the files that providers accept. Source: MIME Sniffing Standard (WHATWG), image type patterns."""
PACKED = {
    "gzip": "application/gzip",
    "bzip2": "application/x-bzip2",
    "xz": "application/x-xz",
    "compress": "application/x-compress",
    "br": "application/x-brotli",
}
"""The media type of a compressed file, by the encoding that `mimetypes` reports. Source: RFC 6713, shared-mime-info
2.4."""
Role = Literal["system", "user", "assistant", "tool"]


class Call(Struct, frozen=True):
    """A tool call of an earlier reply, as a later request shows it to the model."""

    id: str
    """Id of the call, unique in the conversation. The id stays the same however often the history is formatted."""
    name: str
    args: dict[str, Any]
    """Always a JSON object."""


class Native(Struct, frozen=True):
    """Items of a reply, such as signed reasoning, that are sent back unchanged. Only their provider can read them."""

    by: str
    """Names of the encoder and the model that made the items. Any other encoder or model ignores them."""
    items: Any
    """JSON, in the provider's form."""


class Message(Struct, frozen=True, kw_only=True):
    """One message of the history that a model reads."""

    role: Role
    text: str = ""
    parts: tuple[Part, ...] = ()
    """Images and files that belong to the message, in addition to its text."""
    calls: tuple[Call, ...] = ()
    """Calls of an assistant message. The tool messages that directly follow answer them, in this order."""
    call_id: str | None = None
    """For a tool message: the id of the call that it answers."""
    name: str | None = None
    """The tool's name, if the message holds results of one tool only."""
    failed: bool = False
    """For a tool message: whether the result is an error."""
    observes: bool = False
    """For a user message: whether its text consists of results of tools."""
    native: Native | None = None
    """For an assistant message made from one reply: the reply's provider-specific items."""
    sources: tuple[int, ...] = ()
    """Seqs of the entries that the message was made from."""


def attached(path: str | os.PathLike[str]) -> Part:
    """Return an image or another file as a part of a message.

    The media type is found from the file's name, or else from its bytes.

    Raises:
        OSError: the file cannot be read.
        AgentError: neither the name nor the bytes show the media type of the file.
    """
    file = Path(path)
    data, (media_type, packed) = file.read_bytes(), mimetypes.guess_type(file.name)
    media_type = PACKED.get(packed) if packed else media_type
    if media_type is None or packed or media_type.startswith("image/"):
        found = next((type_ for begin, type_ in BEGINNINGS if begin.match(data)), media_type)
        media_type = found or ("text/plain" if _is_text(data) else None)
    if media_type is None:
        said = f"The name {file.name!r} does not say what the file is, and its bytes are not an image, PDF or text."
        raise AgentError(f"{said} Write gesta.kinds.Part(type='file', data=..., media_type=...).")
    form: Literal["image", "file"] = "image" if media_type.startswith("image/") else "file"
    return Part(type=form, data=data, media_type=media_type, name=file.name)


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def part_text(part: Part, more: str = "") -> str:
    """Return a part of a message as text: a text part unchanged, an image or file as its name, type and address.

    Args:
        more: text to add to the description of an image or file.
    """
    if part.type == "text":
        return part.text or ""
    url = None if part.url is None or part.url.startswith("data:") else part.url[:200]
    name = part.name or url or part.blob or "without a name"
    return f"[{part.type} {name!r}, {part.media_type or 'type unknown'}{more}]"
