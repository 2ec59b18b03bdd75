"""Finds the images and files in an entry: in the parts of a message, in values as base64, or as an artifact.

The images and files of an entry are numbered in the order in which they occur, so that an address can name one. The
type of an image is read from its bytes, never from what an agent or a tool says. Otherwise hostile content could make a
browser run a script.
"""

import base64
import binascii
import re
from typing import Any

from msgspec import Struct

from gesta.kinds import ArtifactContent, Content, Part
from gesta.message import BEGINNINGS

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Image types that browsers show and that contain no script. SVG is not among them."""
VALUES = ("tool_args", "tool_result", "document", "value", "result", "args")
"""Members of contents that hold values from models, tools and people."""
HEADS = ("iVBO", "/9j/", "R0lG", "UklG")
"""First characters of PNG, JPEG, GIF and WebP files in base64."""
DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,")
SHORTEST = 40
"""Smallest number of characters of a text that is tried as a base64 image."""
DEEPEST = 40
"""Greatest depth to which a value is searched."""


class File(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An image or file in an entry."""

    type: str
    """Media type. For an image, it is read from the bytes; for any other file, it is what the writer of the entry said.
    """
    name: str | None = None
    data: bytes | None = None
    blob: str | None = None
    """Name of the blob (a large value stored beside the entries) that holds the data."""
    url: str | None = None
    """Address of the data, if they are not on record."""

    @property
    def image(self) -> bool:
        """Whether a browser may show the file as an image."""
        return self.type in IMAGES and self.url is None


def files(content: Content) -> list[File]:
    """Return the images and files in a content, in the order in which they occur. A file's number is its index."""
    found: list[File] = []
    if isinstance(content, ArtifactContent):
        found.append(File(type=content.media_type, name=content.name, blob=content.blob))
    parts = getattr(content, "parts", None) or ()
    found += [_part(part) for part in parts if isinstance(part, Part) and part.type != "text"]
    for name in VALUES:
        without(getattr(content, name, None), found)
    return found


def facts(found: list[File]) -> tuple[dict[str, Any], ...]:
    """Return facts about files for a page, without their data: number, type, name and size in bytes."""
    return tuple(
        {"place": place, "type": each.type, "name": each.name, "image": each.image}
        | ({"url": each.url[:2000]} if each.url is not None else {})
        | ({"bytes": len(each.data)} if each.data is not None else {})
        for place, each in enumerate(found)
    )


def without(value: Any, found: list[File], depth: int = 0) -> Any:
    """Return a copy of a value in which notes replace images and bytes values. Append each replaced one to `found`.

    Args:
        depth: number of lists and dicts around the value. From `DEEPEST` on, a list or dict is returned unchanged.
    """
    match value:
        case str():
            file = _written(value)
        case bytes():
            file = File(type=image_type(value) or "application/octet-stream", data=value)
        case dict() if depth < DEEPEST:
            return {key: without(each, found, depth + 1) for key, each in value.items()}
        case list() | tuple() if depth < DEEPEST:
            return [without(each, found, depth + 1) for each in value]
        case _:
            return value
    if file is None:
        return value
    found.append(file)
    return f"[{file.type}, {len(file.data or b''):,} bytes]"


def image_type(data: bytes) -> str | None:
    """Return the media type of an image by its first bytes; `None` if it is not an image of the types in `IMAGES`."""
    found = next((type_ for begin, type_ in BEGINNINGS if begin.match(data)), None)
    return found if found in IMAGES else None


def _part(part: Part) -> File:
    """Return a part of a message as a file. The data of the file are decoded if they are on record."""
    data = part.data
    if isinstance(data, str):
        data = _bytes(data)
    if data is None and part.url is not None and (url := DATA_URL.match(part.url)):
        data = _bytes(part.url[url.end() :])
    if isinstance(data, bytes):
        named = part.media_type if part.media_type not in IMAGES else None
        return File(type=image_type(data) or named or "application/octet-stream", name=part.name, data=data)
    return File(type=part.media_type or part.type, name=part.name, blob=part.blob, url=part.url)


def _written(text: str) -> File | None:
    """Return the image that a text contains in base64, as a data URL or bare; `None` for any other text."""
    if len(text) < SHORTEST:
        return None
    url = DATA_URL.match(text)
    if url is None and not text.startswith(HEADS):
        return None
    data = _bytes(text[url.end() :] if url else text)
    type_ = image_type(data) if data is not None else None
    return File(type=type_, data=data) if type_ is not None else None


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        return None
