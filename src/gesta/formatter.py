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
from gesta.model import Delta, Reply

S = TypeVar("S")


class Reader(Protocol):
    """Reads the words of one reply into thought, calls and answer; however they are cut, it gives the same."""

    def feed(self, text: str) -> list[Delta]:
        """Take the next words, and give what of them a listener may hear already."""

    def close(self, reply: Reply) -> Reply:
        """Give the reply with its text, thought and calls as read; never raises, whatever the words are.

        A call that cannot be read keeps what it was as the text of its arguments: the model is told.
        """


class Formatter(Protocol[S]):
    """Entries to messages, and back where a model writes its calls in words."""

    @property
    def name(self) -> str:
        """Name and version, as in `tool-calls/1`; it stands on record beside the blocks."""

    def start(self) -> S:
        """Make the state before the first segment."""

    def format(self, entries: Sequence[Entry], state: S) -> list[Message]:
        """Give the messages of one segment, changing `state` in place.

        Every call has exactly one result, right after it and in order: one that is missing is closed here with a
        placeholder. Total: no entry raises.
        """

    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        """Say in the instructions what a model must know to write its calls in words; else the header as it is."""

    def reader(self) -> Reader | None:
        """Make a reader for one reply; none where calls come natively."""


def observation_text(value: Any) -> str:
    """Write a tool's result as a model reads it: text as it is, else JSON, else `str`. Total."""
    if isinstance(value, str):
        return value
    for write in (_json, str):
        try:
            return write(value)
        except (TypeError, ValueError, RecursionError):
            continue
    return f"(a {type(value).__name__} that has no text)"


def given_text(value: Any) -> str:
    """Write what a program gave as a person reads it: the content of a document, else as `observation_text`. Total."""
    content = value.get("content") if isinstance(value, dict) else None
    return content if isinstance(content, str) else observation_text(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
