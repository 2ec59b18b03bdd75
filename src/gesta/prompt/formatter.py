"""A formatter turns entries into neutral messages. A model then turns the messages into a provider's body.

An entry is one stored fact of a run, such as a tool call. A formatter reads segments: the entries from one request to
the next. Its state is what it keeps from one segment for the next, such as the ids of calls. The messages of a segment
are made once and never change. So a resumed run sends the same bytes as a run that was never interrupted.
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
    """The interface of an object that divides the text of one reply into thought, calls and answer.

    The result does not depend on the pieces in which the text arrives.
    """

    def feed(self, text: str) -> list[Delta]:
        """Add the next piece of the reply's text, and return the pieces of thought or answer to show now."""

    def close(self, reply: Reply) -> Reply:
        """Return a copy of the reply with its text divided into thought, calls and answer. Never raises.

        A call that cannot be read gets its own text as arguments. The model then gets an error that says what is wrong.
        """


class Formatter(Protocol[S]):
    """The interface of an object that makes messages from entries, and reads calls that a model writes in its text."""

    @property
    def name(self) -> str:
        """Name and version, such as `tool-calls/1`. The entry of each request stores it."""

    def start(self) -> S:
        """Return the formatter's state before the first segment."""

    def format(self, entries: Sequence[Entry], state: S) -> list[Message]:
        """Return the messages of one segment, and update `state` for the next segment. Never raises.

        Each call in the messages is followed by one result. The results come in the order of the calls, directly after
        the message with the calls. A placeholder replaces a missing result.
        """

    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        """Return the request header (tools, instructions, settings) in the form that is sent to the model.

        If calls are read from text, instructions on how to write calls are added.
        """

    def reader(self) -> Reader | None:
        """Return a reader for one reply; `None` if the provider reports calls apart from the text."""


DECIMAL_BITS = 14_000
"""Greatest number of bits of an integer that is written in decimal. Python refuses to write over 4,300 digits."""


def numbers_in_hex(value: Any) -> Any:
    """Return a copy of a value in which `hex` texts replace the integers that Python refuses to write in decimal."""
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
    """Return a tool's result as text for a model: a text unchanged, any other value as JSON, or else by `str`.

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
    """Return a program's value as text for a person. Never raises.

    If the value is a dict with a text `content`, return that text. Any other value is written like a tool's result.
    """
    content = value.get("content") if isinstance(value, dict) else None
    return content if isinstance(content, str) else observation_text(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
