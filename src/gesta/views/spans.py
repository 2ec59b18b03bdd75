"""The data of OpenTelemetry spans, before they are encoded for a backend.

A run is the recorded conversation or task of one agent, as a list of entries. A root run is one that no other run
started, and a fork is a run that shares the first entries of another run, its base. A turn goes from one message to its
answer. A trace span is a piece of work with a start and an end. Attributes follow the GenAI semantic conventions of
`SCHEMA`; facts that these have no name for are under `gesta.`. Each text in a span has a bounded length, contains no
secret of this process, and contains no character that a backend refuses.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct, field

from gesta.entry import Entry
from gesta.kinds import Error, UserContent
from gesta.text.redactor import SECRETS
from gesta.text.tracing import trace_context, trace_id

SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
"""The semantic conventions that the attributes follow: 1.41.0, the last release that itself defines `gen_ai.*`."""
NAME, SHORT = 120, 1000
"""Greatest number of characters of a name, and of an attribute that is not the text of a message, call or answer."""
EVENTS = 128
"""Greatest number of events of one span, which is OpenTelemetry's own default limit."""

Scalar = str | bool | int | float
AttributeValue = Scalar | Sequence[str]


class SpanEvent(Struct, frozen=True):
    """An event inside a span: a fact with a time and no duration."""

    at: datetime
    name: str
    attributes: Mapping[str, AttributeValue]


class Link(Struct, frozen=True):
    """A reference from a span to the earlier span whose work it continues."""

    trace: str
    """Id of the trace, 32 hexadecimal digits."""
    span: str
    """Id of the span, 16 hexadecimal digits."""


class TraceSpan(Struct, frozen=True, kw_only=True):
    """A span that has ended."""

    trace: str
    """Id of the trace, 32 hexadecimal digits."""
    span: str
    """Id of the span, 16 hexadecimal digits."""
    parent: str | None
    """Id of the parent span; `None` for the root of a trace."""
    name: str
    kind: Literal["internal", "client"] = "internal"
    """`client` for a request to a provider; `internal` for all else."""
    start: datetime
    end: datetime
    attributes: Mapping[str, AttributeValue]
    events: Sequence[SpanEvent] = ()
    dropped: int = 0
    """Number of events that were left out because the span had `EVENTS` already."""
    links: Sequence[Link] = ()
    failure: str | None = None
    """Why the span failed; `None` if it did not fail."""
    run: str
    """Id of the run that the span belongs to."""
    seq: int
    """Seq of the entry that began the span."""


class Above(Struct, frozen=True, kw_only=True):
    """Where a turn belongs in a trace: id of the trace, parent span, and root run."""

    trace: str
    """Id of the trace."""
    parent: str | None = None
    """Id of the parent span: the span of the program that sent the message, or of the tool call that called the agent.
    """
    root: str
    """Id of the root run."""
    session: str
    sampled: bool = True
    """Whether the program that sent the message exports its own spans."""
    base: Link | None = None
    """For a turn whose beginning a fork shares with its base: the span of that turn in the base."""


def above_of(run: str, begin: int, session: str, message: Entry | None) -> Above:
    """Return where a turn of a root run belongs in a trace.

    If `message` names a span of the caller, the turn is below that span. Otherwise the turn begins a trace.

    Args:
        run: id of the run.
        begin: seq of the turn's `begin` entry.
        session: name of the session, the runs of one conversation.
        message: the entry after `begin`, which may name the caller's trace; `None` for a turn that began before a fork.
    """
    said = message.content if message is not None else None
    caller = trace_context(said.traceparent) if isinstance(said, UserContent) else None
    if caller is None:
        return Above(trace=trace_id(run, begin), root=run, session=session)
    return Above(trace=caller.trace, parent=caller.span, root=run, session=session, sampled=caller.sampled)


class Notes(Struct):
    """The attributes and events that were collected for a span that is still open."""

    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    dropped: int = 0
    """Number of events that were left out because there were `EVENTS` already."""

    def add(self, at: datetime, name: str, attributes: Mapping[str, Any]) -> None:
        """Add an event. Attributes that are `None` are left out, and the others get the prefix `gesta.`."""
        if len(self.events) >= EVENTS:
            self.dropped += 1
            return
        given = {f"gesta.{key}": value for key, value in attributes.items() if value is not None}
        self.events.append(SpanEvent(at, f"gesta.{name}", given))

    def fail(self, at: datetime, error: Error, attributes: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Add an event for an exception, in OpenTelemetry's form. The attributes are added as in `add`."""
        if len(self.events) >= EVENTS:
            self.dropped += 1
            return
        given = {f"gesta.{key}": value for key, value in attributes.items() if value is not None}
        said = {"exception.type": shown(error.type, NAME), "exception.message": shown(error.message, SHORT)}
        self.events.append(SpanEvent(at, "exception", said | given))


def shown(text: str, most: int) -> str:
    """Return a text cut to `most` characters, without secrets of this process and without lone surrogates.

    The number of characters that were cut off is appended.
    """
    text = SECRETS.text(text)
    if len(text) > most:
        text = f"{text[:most]}… ({len(text) - most:,} characters more)"
    return whole(text)


def whole(text: str) -> str:
    """Return a text with a question mark in place of each lone surrogate, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def name_of(*words: str) -> str:
    """Return the name of a span: the words that are not empty, in one line of at most `NAME` characters."""
    said = " ".join(word for word in words if word)
    return shown("".join(each if each.isprintable() else " " for each in said[: 2 * NAME]), NAME) or "span"


def as_json(value: Any) -> str:
    """Return a value as JSON text, without secrets. Never raises."""
    try:
        return whole(SECRETS.text(json.dumps(value, ensure_ascii=False, default=str)))
    except (TypeError, ValueError, RecursionError):
        return json.dumps(f"(a {type(value).__name__} that has no text)")
