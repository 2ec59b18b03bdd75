"""Adds up spans to the client metrics of OpenTelemetry's conventions for generative AI.

Each metric is a cumulative histogram: every message has the sums from the start. So a message that is sent twice
changes nothing, and a lost message is made up for by the next one. The sums are stored together with the place in the
record up to which they count.
Source: "Generative AI client metrics", semantic conventions 1.41.0, read 2026-11.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gesta.views.spans import TraceSpan

TOKENS, DURATION = "gen_ai.client.token.usage", "gen_ai.client.operation.duration"
BOUNDS: Mapping[str, tuple[float, ...]] = {
    TOKENS: tuple(float(4**power) for power in range(14)),
    DURATION: tuple(round(0.01 * 2**power, 2) for power in range(14)),
}
"""Upper bounds of the histogram buckets of each metric, as the conventions recommend."""
UNITS = {TOKENS: "{token}", DURATION: "s"}
LABELS = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.agent.name",
    "gen_ai.tool.name",
    "error.type",
)
OPERATIONS = ("chat", "execute_tool", "invoke_agent")
MOST = 1000
"""Greatest number of sets of attributes of one metric. Values of further sets go to `otel.metric.overflow`."""
OVERFLOW = (("otel.metric.overflow", "true"),)
Labels = tuple[tuple[str, str], ...]


class Point(Struct):
    """The histogram of one metric for one set of attributes."""

    metric: str
    labels: Labels
    buckets: list[int]
    count: int = 0
    sum: float = 0.0
    min: float = 0.0
    max: float = 0.0


class Meter:
    """Adds up the metrics of spans."""

    def __init__(self, points: list[Point] | None = None) -> None:
        self._points = {(each.metric, each.labels): each for each in points or ()}

    @property
    def points(self) -> list[Point]:
        """The histograms of all spans added so far."""
        return list(self._points.values())

    def add(self, span: TraceSpan) -> None:
        """Count a span. Spans whose operation is not in `OPERATIONS` are ignored."""
        given: Mapping[str, Any] = span.attributes
        operation = given.get("gen_ai.operation.name")
        if operation not in OPERATIONS:
            return
        labels = tuple((name, str(given[name])) for name in LABELS if name in given)
        self._count(DURATION, labels, (span.end - span.start).total_seconds())
        for kind in ("input", "output") if operation == "chat" else ():
            count = given.get(f"gen_ai.usage.{kind}_tokens")
            if isinstance(count, int):
                self._count(TOKENS, (*labels, ("gen_ai.token.type", kind)), count)

    def _count(self, metric: str, labels: Labels, value: float) -> None:
        if (metric, labels) not in self._points and sum(name == metric for name, _ in self._points) >= MOST:
            labels = OVERFLOW
        bounds = BOUNDS[metric]
        point = self._points.get((metric, labels))
        if point is None:
            point = Point(metric, labels, [0] * (len(bounds) + 1), min=value, max=value)
            self._points[metric, labels] = point
        point.buckets[bisect_left(bounds, value)] += 1
        point.count, point.sum = point.count + 1, point.sum + value
        point.min, point.max = min(point.min, value), max(point.max, value)
