"""An entry is a content with its place, time and causes. An entry is written once and never changes.

A content says what happened, such as a message or a tool call. A run is one conversation or task of an agent, stored as
a sequence of entries. An entry's seq is its number in its run, and its id is `run.seq`; there is no second id. A `Row`
is an entry in its stored form: the texts whose bytes the digest covers.

All state of a run is computed from the run's entries by a `View`, which applies the entries to a state one by one. So a
computed state can be deleted and computed again.
"""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct, to_builtins

from gesta.kinds import Content, Kind

VERSION = 2
"""Format of the entries that this release writes. Older entries are converted on reading, newer entries are refused."""

GENESIS = bytes(32)
"""The digest of a run's first entry is computed from this value, because no entry comes before it."""

Cause = int | tuple[str, int]
"""An entry that this one was made from: a seq of the same run, or (run, seq)."""


class Row(Struct, frozen=True, gc=False):
    """An entry in its stored form. Text columns can be read by people; `salt` and `digest` are raw bytes."""

    run: str
    seq: int
    kind: str
    at: str
    """Time at which the entry was written: UTC, ISO 8601 with microseconds and a final Z."""
    span: int
    causes: str
    """The causes, which are the entries that this entry was made from: a JSON array of seqs, and of [run, seq] pairs
    for entries of other runs."""
    version: int
    content: str
    """The content as a JSON object. Its member `kind` is the tag of the content's kind."""
    annotations: str | None
    """JSON object: the entry's own annotations only."""
    salt: bytes
    """16 random bytes, so that nobody can guess an erased content from its digest."""
    digest: bytes
    """32 bytes, computed from this entry and the digest of the entry before it."""
    pos: int = 0
    """Number of the entry in the whole store, in commit order. The store sets it; the digest does not cover it."""


class Entry(Struct, frozen=True, kw_only=True, gc=False):
    """A content with its place in a run, its time and its causes."""

    run: str
    seq: int
    """Number of the entry in its run, from 1 without a gap."""
    at: datetime
    """Time at which the entry was written: an aware datetime in UTC."""
    span: int
    """Seq of the `begin` entry of the span that the entry is in. A `begin` entry has its own seq here."""
    causes: tuple[Cause, ...] = ()
    content: Content
    annotations: dict[str, Any] | None = None
    """The entry's own annotations. Annotations that the entry inherits from its spans are not stored here; they are
    computed."""
    version: int = VERSION
    digest: bytes = b""
    pos: int = 0
    """Number of the entry in the whole store, in commit order; 0 until the entry is committed."""
    shared_from: str | None = None
    """Id of the run that wrote the entry, if a fork shares it; `None` for an entry of the run itself."""

    @property
    def kind(self) -> Kind:
        """The kind of the entry's content, such as a message or a tool call."""
        return self.content.kind

    @property
    def id(self) -> str:
        """The id of the entry: `run.seq`."""
        return f"{self.run}.{self.seq}"


def run_id(record: str, session: str, name: str) -> str:
    """Return the id of a run, 16 hex digits: a hash of the arguments.

    So two processes that create the same run compute the same id.

    Args:
        record: id of the record.
        session: name of the session; for a child run, the id of the run above it.
        name: name of the run.
    """
    named = json.dumps([record, session, name])
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def utc_text(at: datetime) -> str:
    """Return a time in UTC as rows store it, always with microseconds. So sorted texts are in the order of time."""
    at = at if at.tzinfo is UTC else at.astimezone(UTC)
    if at.microsecond:  # makes the same text in a tenth of the time
        text: str = to_builtins(at)
        return text
    return at.isoformat(timespec="microseconds")[:-6] + "Z"


def utc_time(text: str) -> datetime:
    """Return the time in a text that `utc_text` made. Raises ValueError for a text that is not a time in UTC."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is not UTC:
        raise ValueError(f"found the time {text!r:.60}, expected one in UTC")
    return at


S = TypeVar("S")


class View(Protocol[S]):
    """The interface of a computed state: `start` returns the state without entries, and `apply` adds an entry."""

    def start(self) -> S:
        """Return the state before the first entry."""

    def apply(self, state: S, entry: Entry) -> S:
        """Return the state after one more entry.

        Raises an error only for an entry whose content does not fit its kind.
        """


def fold(view: View[S], entries: Iterable[Entry], state: S | None = None) -> S:
    """Return the state of a view after these entries, starting from `state`, or from the view's initial state."""
    state = view.start() if state is None else state
    for entry in entries:
        state = view.apply(state, entry)
    return state
