"""A formatter turns entries into neutral messages; making a provider's body of those is the model's alone.

It works on segments: the entries from one request to the next. A segment gives its messages once, and they never
change, so a resumed run sends the same bytes as one that was never interrupted.
"""

import json
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from gesta.entry import Entry
from gesta.message import Message

S = TypeVar("S")


class Formatter(Protocol[S]):
    """Entries to messages."""

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


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
