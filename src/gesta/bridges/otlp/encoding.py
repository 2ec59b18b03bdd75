"""Encodes spans and metrics as OTLP messages in OTLP's JSON form; `protobuf` converts these to the binary form.

Source: OTLP specification 1.11 (JSON Protobuf Encoding), opentelemetry-proto 1.11, read 2026-11.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from gesta.bridges.otlp.metrics import BOUNDS, UNITS, Point
from gesta.views.spans import SCHEMA, AttributeValue, SpanEvent, TraceSpan

KINDS = {"internal": 1, "client": 3}
ERROR, CUMULATIVE = 2, 2
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Message = dict[str, Any]


def scope() -> Message:
    """Return the name and version of the library that makes the spans, as OTLP's instrumentation scope."""
    try:
        return {"name": "gesta", "version": version("gesta")}
    except PackageNotFoundError:
        return {"name": "gesta"}


def nanos(at: datetime) -> int:
    """Return a time as nanoseconds since 1970."""
    past = at - EPOCH
    return ((past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds) * 1000


def span_message(span: TraceSpan) -> Message:
    """Return a span as an OTLP message in JSON form."""
    made: Message = {
        "traceId": span.trace,
        "spanId": span.span,
        **({"parentSpanId": span.parent} if span.parent else {}),
        "flags": 1,
        "name": span.name,
        "kind": KINDS[span.kind],
        "startTimeUnixNano": str(nanos(span.start)),
        "endTimeUnixNano": str(nanos(span.end)),
        "attributes": attributes(span.attributes),
        "events": [_event(each) for each in span.events],
    }
    if span.failure is not None:
        made["status"] = {"code": ERROR, "message": span.failure}
    if span.dropped:
        made["droppedEventsCount"] = span.dropped
    if span.links:
        made["links"] = [{"traceId": each.trace, "spanId": each.span, "flags": 1} for each in span.links]
    return made


def _event(event: SpanEvent) -> Message:
    return {"timeUnixNano": str(nanos(event.at)), "name": event.name, "attributes": attributes(event.attributes)}


def attributes(given: Mapping[str, AttributeValue]) -> list[Message]:
    """Return attributes in OTLP's form, a list of keys and typed values."""
    return [{"key": name, "value": _value(value)} for name, value in given.items()]


def _value(value: AttributeValue) -> Message:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case _:
            return {"arrayValue": {"values": [{"stringValue": each} for each in value]}}


def traces(spans: Sequence[Message], resource: Sequence[Message]) -> Message:
    """Return the body of a request that sends spans, in JSON form. `resource` has the attributes of this program."""
    held = {"scope": scope(), "spans": list(spans), "schemaUrl": SCHEMA}
    return {"resourceSpans": [{"resource": {"attributes": list(resource)}, "scopeSpans": [held], "schemaUrl": SCHEMA}]}


def metrics(points: Iterable[Point], resource: Sequence[Message], since: datetime, at: datetime) -> Message:
    """Return the body of a request that sends metrics, in JSON form.

    Args:
        points: the histograms to send, each with the counts since `since`.
        resource: the attributes of this program.
        since: start of the time in which the metrics were counted.
        at: end of that time.
    """
    times = {"startTimeUnixNano": str(nanos(since)), "timeUnixNano": str(nanos(max(at, since)))}
    named: dict[str, list[Message]] = {}
    for each in points:
        named.setdefault(each.metric, []).append(
            {
                **times,
                "attributes": attributes(dict(each.labels)),
                "count": str(each.count),
                "sum": each.sum,
                "min": each.min,
                "max": each.max,
                "bucketCounts": [str(count) for count in each.buckets],
                "explicitBounds": list(BOUNDS[each.metric]),
            }
        )
    told = [
        {
            "name": name,
            "unit": UNITS[name],
            "histogram": {"aggregationTemporality": CUMULATIVE, "dataPoints": points},
        }
        for name, points in named.items()
    ]
    held = {"scope": scope(), "metrics": told, "schemaUrl": SCHEMA}
    return {
        "resourceMetrics": [{"resource": {"attributes": list(resource)}, "scopeMetrics": [held], "schemaUrl": SCHEMA}]
    }


def as_json(message: Message) -> bytes:
    """Return a message as the bytes of its JSON form."""
    return msgspec.json.encode(message)
