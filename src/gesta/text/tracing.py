"""Computes the ids of trace spans (as in OpenTelemetry) from the record, so a span has the same id whenever it is sent.

A run is the recorded conversation of one agent, and its entries are numbered by `seq`. A root run is one that no other
run started. A trace is one turn of a root run with everything that the turn caused. A span's id is computed from its
run and from the seq of its first entry. The HTTP header `traceparent` passes both ids from one program to another.

Source: W3C Trace Context, sections 3.2 and 4 (W3C Recommendation, 2021-11-23).
"""

import hashlib
import re

from msgspec import Struct

TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(Struct, frozen=True):
    """The ids of a trace and a trace span.

    A program passes these ids to another program, whose trace spans become children of this trace span.
    """

    trace: str
    """Id of the trace, 32 hex digits."""
    span: str
    """Id of the span, 16 hex digits."""
    sampled: bool = True
    """Whether the program sends its own spans to a tracing tool."""

    def __str__(self) -> str:
        """Return the context as the value of the HTTP header `traceparent`."""
        return f"00-{self.trace}-{self.span}-{self.sampled:02x}"


def trace_context(header: str | None) -> TraceContext | None:
    """Return the context in the value of an HTTP header `traceparent`; `None` if the value is missing or malformed."""
    found = TRACEPARENT.fullmatch(header.strip()) if header else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace, 16) or not int(span, 16):
        return None
    return TraceContext(trace, span, bool(int(flags, 16) & 1))


def trace_id(run: str, turn: int) -> str:
    """Return the id of the trace of a turn, 32 hex digits.

    The id is used if the caller of the turn sent no trace context.

    Args:
        run: id of the root run.
        turn: seq of the turn's `begin` entry.
    """
    return hashlib.sha256(f"gesta trace {run}.{turn}".encode()).hexdigest()[:32]


def span_id(run: str, seq: int) -> str:
    """Return the id of a trace span, 16 hex digits.

    Args:
        run: id of the run.
        seq: seq of the span's first entry.
    """
    return hashlib.sha256(f"gesta span {run}.{seq}".encode()).hexdigest()[:16]
