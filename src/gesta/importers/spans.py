"""Entries of one run in spans that lie in each other, as sources of nested events give them.

A span is named by the seq of its begin, so two may be open side by side, and each entry says in which one it lies.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from gesta.importers.foreign import ForeignEntry
from gesta.kinds import BeginContent, Content, EndContent, Error, KeyValueContent

UNENDED = Error(type="unfinished", message="The source has no end of this span.")
UNREADABLE = "unreadable-message"
"""Key of what is no message, observation or event, kept whole."""


class When(NamedTuple):
    """A time, and whether the source says it, with its zone, of just this."""

    at: datetime | None = None
    sure: bool = False


NEVER = When()


class Spans:
    """A run that is being written down."""

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
        """Write an entry down and give its seq.

        Args:
            span: seq of the begin that it lies in; of a begin, the one above it, 0 at the root.
            notes: its annotations beside `inferred`.
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
        """Write the first span, whose begin holds in its state what is known of the whole conversation."""
        span = self.write(BeginContent(name="import", role="import", state=notes or None), 0)
        for value in unreadable:
            self.write(KeyValueContent(key=UNREADABLE, value=value), span)
        self.write(EndContent(), span)

    def change(self, seq: int, content: Content) -> None:
        """Write something else in the place of an entry."""
        self.entries[seq - 1] = replace(self.entries[seq - 1], content=content)
