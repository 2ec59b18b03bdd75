"""Spans of OpenTelemetry, before any encoding.

Attributes follow the GenAI semantic conventions of `SCHEMA`. Facts for which these have no name are under `gesta.`. A
text in a span has a bounded length, holds no secret of this process, and has no character that a backend refuses.
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
"""The semantic conventions that the attributes follow: 1.41.0, the last release that holds `gen_ai.*` itself."""
NAME, SHORT = 120, 1000
"""Greatest number of characters of a name, and of an attribute that holds no content."""
EVENTS = 128
"""Greatest number of events of one span, which is OpenTelemetry's own limit."""

Scalar = str | bool | int | float
AttributeValue = Scalar | Sequence[str]


class SpanEvent(Struct, frozen=True):
    """A fact with a time inside a span."""

    at: datetime
    name: str
    attributes: Mapping[str, AttributeValue]


class Link(Struct, frozen=True):
    """A reference to another span, which a span continues."""

    trace: str
    span: str


class TraceSpan(Struct, frozen=True, kw_only=True):
    """A span that has ended."""

    trace: str
    """Id of the span's trace, 32 hex."""
    span: str
    """Id of the span, 16 hex."""
    parent: str | None
    """Id of the span above it; `None` for the root of a trace."""
    name: str
    kind: Literal["internal", "client"] = "internal"
    start: datetime
    end: datetime
    attributes: Mapping[str, AttributeValue]
    events: Sequence[SpanEvent] = ()
    dropped: int = 0
    """Number of events above the limit `EVENTS`, which are left out."""
    links: Sequence[Link] = ()
    failure: str | None = None
    """Why the span failed; `None` if it did not fail."""
    run: str
    """Id of the run that the span belongs to."""
    seq: int
    """Seq of the entry that began the span."""


class Above(Struct, frozen=True, kw_only=True):
    """The place of a turn in a trace."""

    trace: str
    """Id of the trace."""
    parent: str | None = None
    """Id of the span above: that of the program that sent the message, or of the tool call that called the agent."""
    root: str
    """Id of the root run."""
    session: str
    sampled: bool = True
    """Whether the program that sent the message sends its own spans."""
    base: Link | None = None
    """For a turn that a fork shares with its base: the span of the base's turn."""


def above_of(run: str, begin: int, session: str, message: Entry | None) -> Above:
    """Return the place of a turn that no other run called.

    Args:
        message: the entry after the begin; `None` for a turn that began before a fork.
    """
    said = message.content if message is not None else None
    caller = trace_context(said.traceparent) if isinstance(said, UserContent) else None
    if caller is None:
        return Above(trace=trace_id(run, begin), root=run, session=session)
    return Above(trace=caller.trace, parent=caller.span, root=run, session=session, sampled=caller.sampled)


class Notes(Struct):
    """The attributes and events of a span that is open."""

    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    dropped: int = 0

    def add(self, at: datetime, name: str, attributes: Mapping[str, Any]) -> None:
        """Add an event. Attributes that are `None` are left out; the others get the prefix `gesta.`."""
        if len(self.events) >= EVENTS:
            self.dropped += 1
            return
        given = {f"gesta.{key}": value for key, value in attributes.items() if value is not None}
        self.events.append(SpanEvent(at, f"gesta.{name}", given))

    def fail(self, at: datetime, error: Error, attributes: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Add an exception, in OpenTelemetry's form. For `attributes`, see `add`."""
        if len(self.events) >= EVENTS:
            self.dropped += 1
            return
        given = {f"gesta.{key}": value for key, value in attributes.items() if value is not None}
        said = {"exception.type": shown(error.type, NAME), "exception.message": shown(error.message, SHORT)}
        self.events.append(SpanEvent(at, "exception", said | given))


def shown(text: str, most: int) -> str:
    """Return a text without secrets of this process and without lone surrogates, cut at a number of characters."""
    text = SECRETS.text(text)
    if len(text) > most:
        text = f"{text[:most]}… ({len(text) - most:,} characters more)"
    return whole(text)


def whole(text: str) -> str:
    """Return a text with a question mark for each lone surrogate, which no message can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def name_of(*words: str) -> str:
    """Return the name of a span: the words that are not empty, on one line, cut to a bounded length."""
    said = " ".join(word for word in words if word)
    return shown("".join(each if each.isprintable() else " " for each in said[: 2 * NAME]), NAME) or "span"


def as_json(value: Any) -> str:
    """Return a value as JSON text. Never raises."""
    try:
        return whole(SECRETS.text(json.dumps(value, ensure_ascii=False, default=str)))
    except (TypeError, ValueError, RecursionError):
        return json.dumps(f"(a {type(value).__name__} that has no text)")
