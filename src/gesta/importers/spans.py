"""Writes the entries of one run in nested spans, for sources of nested events.

A span is a part of a run from its begin to its end, and is named by the seq (number) of its begin. So two spans may be
open at the same time, and each entry states its span.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from gesta.importers.foreign import ForeignEntry
from gesta.kinds import BeginContent, Content, EndContent, Error, KeyValueContent

UNENDED = Error(type="unfinished", message="The source has no end of this span.")
UNREADABLE = "unreadable-message"
"""Key of a key-value entry that keeps a value which is not a message, observation or event."""


class When(NamedTuple):
    """The time of an entry. `sure` is true if the source states the time, with its time zone, for this entry."""

    at: datetime | None = None
    sure: bool = False


NEVER = When()


class Spans:
    """Collects the entries and spans of one imported run, in the order in which they will be stored."""

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
        """Add an entry, and return its seq.

        Args:
            span: seq of the begin entry of the span that contains the new entry; 0 if there is none. A new begin entry
                starts another span inside that span.
            when: the time of the entry.
            causes: seqs of the entries that it was made from.
            inferred: fields that the reader inferred.
            notes: annotations of the entry other than `inferred`.
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
        """Write the first span, which holds facts about the whole conversation.

        Args:
            notes: the facts, which become the state of the span's begin entry.
            unreadable: values of the source that could not be read. Each is kept in an entry of its own.
        """
        span = self.write(BeginContent(name="import", role="import", state=notes or None), 0)
        for value in unreadable:
            self.write(KeyValueContent(key=UNREADABLE, value=value), span)
        self.write(EndContent(), span)

    def change(self, seq: int, content: Content) -> None:
        """Replace the content of an entry that was written."""
        self.entries[seq - 1] = replace(self.entries[seq - 1], content=content)
