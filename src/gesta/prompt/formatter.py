"""A formatter turns entries into neutral messages; making a provider's body of those is the model's alone.

It works on segments: the entries from one request to the next. A segment gives its messages once, and they never
change, so a resumed run sends the same bytes as one that was never interrupted.
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
    """Reads the words of one reply as thought, calls and answer.

    How the words are cut into pieces makes no difference.
    """

    def feed(self, text: str) -> list[Delta]:
        """Read the next words, and return the words that may be sent to listeners already."""

    def close(self, reply: Reply) -> Reply:
        """Return the reply with its text, thought and calls as read. Never raises, whatever the words are.

        A call that cannot be read keeps its text as its arguments, and the model reads what is wrong.
        """


class Formatter(Protocol[S]):
    """Makes messages of entries, and reads calls that a model writes as words."""

    @property
    def name(self) -> str:
        """Name and version, as in `tool-calls/1`; the record has them beside the blocks."""

    def start(self) -> S:
        """Return the state before the first segment."""

    def format(self, entries: Sequence[Entry], state: S) -> list[Message]:
        """Return the messages of one segment, and change `state` in place.

        Every call has exactly one result, right after it and in order: one that is missing is closed here with a
        placeholder. Total: no entry raises.
        """

    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        """Return the header, with instructions on writing calls as words if this formatter reads calls from words."""

    def reader(self) -> Reader | None:
        """Return a reader for one reply; `None` if the provider reports calls itself."""


DECIMAL_BITS = 14_000
"""Greatest number of bits of an integer to write in decimal; Python refuses integers of over 4,300 digits."""


def numbers_in_hex(value: Any) -> Any:
    """Return a value in which each integer that Python refuses to write in decimal is a text in hexadecimal."""
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
    """Return a tool's result as a model reads it: text as it is, else JSON, else `str`. Total."""
    if isinstance(value, str):
        return value
    for write in (_as_json, lambda value: _as_json(numbers_in_hex(value)), str):
        try:
            return write(value)
        except (TypeError, ValueError, RecursionError):
            continue
    return f"(a {type(value).__name__} that has no text)"


def given_text(value: Any) -> str:
    """Return the value of a program as a person reads it: the content of a document, else as `observation_text`.

    Total.
    """
    content = value.get("content") if isinstance(value, dict) else None
    return content if isinstance(content, str) else observation_text(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
