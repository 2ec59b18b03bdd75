"""Writes the entries of one run in nested spans, for sources of nested events.

A span is named by the seq of its begin, so two spans may be open side by side, and each entry names its span.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from gesta.importers.foreign import ForeignEntry
from gesta.kinds import BeginContent, Content, EndContent, Error, KeyValueContent

UNENDED = Error(type="unfinished", message="The source has no end of this span.")
UNREADABLE = "unreadable-message"
"""Key of a key-value that holds a value which is no message, observation or event."""


class When(NamedTuple):
    """A time, and whether the source has it, with its zone, for the entry itself."""

    at: datetime | None = None
    sure: bool = False


NEVER = When()


class Spans:
    """The entries of a run that is being written."""

    def __init__(self) -> None:
        self.entries: list[ForeignEntry] = []

    def write(
        self,
        content: Content,
        span: int,
        when: When = NEVER,
        causes: tuple[int, ...] = (),
        inferred: Collection[str] = (),
        notes: dict[str, Any] | None = None,
    ) -> int:
        """Write an entry, and return its seq.

        Args:
            span: seq of the begin of its span; for a begin, that of the span around it, 0 if there is none.
            notes: annotations of the entry beside `inferred`.
        """
        seq = len(self.entries) + 1
        if isinstance(content, BeginContent):
            content, span = replace(content, parent=span or None), seq
        entry = ForeignEntry(
            content=content,
            span=span,
            causes=causes,
            at=when.at,
            sure=when.sure,
            inferred=tuple(inferred),
            annotations=notes,
        )
        self.entries.append(entry)
        return seq

    def leading(self, notes: dict[str, Any], unreadable: Iterable[Any] = ()) -> None:
        """Write the first span, whose begin holds the facts about the whole conversation in its state."""
        span = self.write(BeginContent(name="import", role="import", state=notes or None), 0)
        for value in unreadable:
            self.write(KeyValueContent(key=UNREADABLE, value=value), span)
        self.write(EndContent(), span)

    def change(self, seq: int, content: Content) -> None:
        """Replace the content of an entry."""
        self.entries[seq - 1] = replace(self.entries[seq - 1], content=content)
