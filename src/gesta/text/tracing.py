"""The ids of traces and spans. They are computed from the record, so a span has the same id whenever it is sent.

A trace is one turn of a root run with everything that the turn caused. A span is named by the entry that began it. The
header `traceparent` passes both ids from one program to another.

Source: W3C Trace Context, sections 3.2 and 4 (W3C Recommendation, 2021-11-23).
"""

import hashlib
import re

from msgspec import Struct

TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(Struct, frozen=True):
    """A span of a program, which can be the parent of spans in another program."""

    trace: str
    """Id of the trace, 32 hex."""
    span: str
    """Id of the span, 16 hex."""
    sampled: bool = True
    """Whether the program sends its own spans."""

    def __str__(self) -> str:
        """Return the value of the header `traceparent`."""
        return f"00-{self.trace}-{self.span}-{self.sampled:02x}"


def trace_context(header: str | None) -> TraceContext | None:
    """Return the context in a header `traceparent`; `None` if there is none, or if it is malformed."""
    found = TRACEPARENT.fullmatch(header.strip()) if header else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace, 16) or not int(span, 16):
        return None
    return TraceContext(trace, span, bool(int(flags, 16) & 1))


def trace_id(run: str, turn: int) -> str:
    """Return the id of the trace of a turn, 32 hex. Used if the turn's caller sent no trace context.

    Args:
        run: id of the root run.
        turn: seq of the begin of the turn.
    """
    return hashlib.sha256(f"gesta trace {run}.{turn}".encode()).hexdigest()[:32]


def span_id(run: str, seq: int) -> str:
    """Return the id of the span that an entry began, 16 hex."""
    return hashlib.sha256(f"gesta span {run}.{seq}".encode()).hexdigest()[:16]
