"""An entry is a content with its place, time and causes; it is written once and never changes.

Its id is `run.seq`; there is no second id. A `Draft` is a content before it is written, an `Entry` is on the record,
and a `Row` is an entry as it is stored: the text whose bytes the digest covers.

A view is a fold over entries. So everything that is computed from a run can be deleted and computed again.
"""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct, to_builtins

from gesta.kinds import Content, Kind

VERSION = 2
"""Format of the entries that this release writes. Older entries are upcast on reading, newer entries are refused."""

GENESIS = bytes(32)
"""The digest that the first entry of a run is chained to."""

Cause = int | tuple[str, int]
"""An entry that this one was made from: a seq of the same run, or (run, seq)."""


class Row(Struct, frozen=True, gc=False):
    """An entry as it is stored. Text columns hold text for people; the other columns hold raw bytes."""

    run: str
    seq: int
    kind: str
    at: str
    """UTC, ISO 8601 with microseconds and a final Z."""
    span: int
    causes: str
    """JSON array of seqs and [run, seq] pairs."""
    version: int
    content: str
    """JSON object of the content, with its tag."""
    annotations: str | None
    """JSON object: the entry's own annotations only."""
    salt: bytes
    """16 random bytes, so that nobody can guess an erased content from its digest."""
    digest: bytes
    """32 bytes: the link to every entry before it."""
    pos: int = 0
    """Place in the whole store, in commit order. The store sets it; the digest does not cover it."""


class Entry(Struct, frozen=True, kw_only=True, gc=False):
    """A content with its place in a run, its time and its causes."""

    run: str
    seq: int
    """From 1, without a gap."""
    at: datetime
    """UTC, aware."""
    span: int
    """Seq of the begin of the entry's span; a begin has its own seq here."""
    causes: tuple[Cause, ...] = ()
    content: Content
    annotations: dict[str, Any] | None = None
    """The entry's own annotations; inherited annotations are computed."""
    version: int = VERSION
    digest: bytes = b""
    pos: int = 0
    """Place in the whole store; 0 until the store has given it."""
    shared_from: str | None = None
    """The run that wrote the entry, if a fork reads the entry as its own."""

    @property
    def kind(self) -> Kind:
        """The tag of its content."""
        return self.content.kind

    @property
    def id(self) -> str:
        """The id of the entry: `run.seq`."""
        return f"{self.run}.{self.seq}"


class Draft(Struct, frozen=True):
    """A content that is to become an entry."""

    content: Content
    causes: tuple[Cause, ...] = ()
    annotations: dict[str, Any] | None = None


def run_id(record: str, session: str, name: str) -> str:
    """Return the id of a run, 16 hex digits: two processes that make the same run get the same id."""
    named = json.dumps([record, session, name])
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def utc_text(at: datetime) -> str:
    """Return a time as rows hold it, always with microseconds, so that texts sort by time."""
    at = at if at.tzinfo is UTC else at.astimezone(UTC)
    if at.microsecond:  # a tenth of the time, and the same text
        text: str = to_builtins(at)
        return text
    return at.isoformat(timespec="microseconds")[:-6] + "Z"


def utc_time(text: str) -> datetime:
    """Return the time that a text in a row holds. Raises ValueError for a text that is no time in UTC."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is not UTC:
        raise ValueError(f"found the time {text!r:.60}, expected one in UTC")
    return at


S = TypeVar("S")


class View(Protocol[S]):
    """A fold over entries: a first state, and a function that returns the state after one more entry."""

    def start(self) -> S:
        """Return the state before the first entry."""

    def apply(self, state: S, entry: Entry) -> S:
        """Return the state after one more entry. No entry makes it raise."""


def fold(view: View[S], entries: Iterable[Entry], state: S | None = None) -> S:
    """Return the state of a view after some entries, counted from its start or from `state`."""
    state = view.start() if state is None else state
    for entry in entries:
        state = view.apply(state, entry)
    return state
