"""A formatter turns entries into neutral messages. Only a model turns messages into a provider's body.

A formatter reads segments: the entries from one request to the next. The messages of a segment are made once and never
change, so a resumed run sends the same bytes as a run that was never interrupted.
"""

import json
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from gesta.entry import Entry
from gesta.kinds import RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Delta, Reply

S = TypeVar("S")


class Reader(Protocol):
    """Reads the text of one reply as thought, calls and answer.

    The result does not depend on how the text is cut into pieces.
    """

    def feed(self, text: str) -> list[Delta]:
        """Read the next piece of text, and return the words that may be sent to listeners now."""

    def close(self, reply: Reply) -> Reply:
        """Return the reply with its text, thought and calls as read. Never raises.

        A call that cannot be read keeps its text as its arguments, and the model is told what is wrong.
        """


class Formatter(Protocol[S]):
    """Makes messages from entries, and reads calls that a model writes in its text."""

    @property
    def name(self) -> str:
        """Name and version, such as `tool-calls/1`; the record holds it beside the blocks."""

    def start(self) -> S:
        """Return the state before the first segment."""

    def format(self, entries: Sequence[Entry], state: S) -> list[Message]:
        """Return the messages of one segment, and change `state` in place. No entry makes it raise.

        Every call gets exactly one result, right after it and in order. A missing result is replaced by a placeholder.
        """

    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        """Return the header. If calls are read from text, instructions on how to write calls are added."""

    def reader(self) -> Reader | None:
        """Return a reader for one reply; `None` if the provider reports calls itself."""


DECIMAL_BITS = 14_000
"""Greatest number of bits of an integer to write in decimal; Python refuses integers of over 4,300 digits."""


def numbers_in_hex(value: Any) -> Any:
    """Return a value in which integers that are too long for Python to write in decimal are texts in hexadecimal."""
    match value:
        case int() if value.bit_length() > DECIMAL_BITS:
            return hex(value)
        case dict():
            keys = [numbers_in_hex(key) if isinstance(key, int) else key for key in value]
            return dict(zip(keys, map(numbers_in_hex, value.values()), strict=True))
        case list() | tuple():
            return [numbers_in_hex(each) for each in value]
        case _:
            return value


def observation_text(value: Any) -> str:
    """Return a tool's result as text for a model: text unchanged, any other value as JSON or else by `str`.

    Never raises.
    """
    if isinstance(value, str):
        return value
    for write in (_as_json, lambda value: _as_json(numbers_in_hex(value)), str):
        try:
            return write(value)
        except (TypeError, ValueError, RecursionError):
            continue
    return f"(a {type(value).__name__} that has no text)"


def given_text(value: Any) -> str:
    """Return a program's value as text for a person: the `content` of a document, or else `observation_text`.

    Never raises.
    """
    content = value.get("content") if isinstance(value, dict) else None
    return content if isinstance(content, str) else observation_text(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
