"""A receiver of OTLP over HTTP on the loopback interface, which decodes with `opentelemetry-proto`."""

import gzip
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Answer = tuple[int, dict[str, str], bytes]


class Receiver:
    """What came, and what is answered."""

    def __init__(self) -> None:
        self.spans: dict[bytes, Span] = {}
        """Each span by its id, as it came first."""
        self.times: Counter[bytes] = Counter()
        """How often each came."""
        self.unequal: list[tuple[Span, Span]] = []
        """Spans that came again with other bytes."""
        self.resources: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.points: dict[tuple[str, frozenset[tuple[str, str]]], Any] = {}
        """The last point of each metric by its attributes."""
        self.answers: list[Callable[[ExportTraceServiceRequest], Answer | None]] = []
        """Answers to the next messages with spans; `None` as the answer closes the connection unanswered."""
        self.loses = False
        """Whether every message is taken, and its answer lost."""
        self.metrics_status = 200
        self.address = ""
        self.news = threading.Condition()

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans of a message."""
        with self.news:
            for told in request.resource_spans:
                self.resources.append({each.key: each.value.string_value for each in told.resource.attributes})
                for span in (span for held in told.scope_spans for span in held.spans):
                    known = self.spans.setdefault(span.span_id, span)
                    self.times[span.span_id] += 1
                    if known.SerializeToString(deterministic=True) != span.SerializeToString(deterministic=True):
                        self.unequal.append((known, span))
            self.news.notify_all()

    def wait(self, number: int, timeout_s: float = 30.0) -> None:
        """Wait until this many spans came."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.spans) >= number, timeout_s), f"{len(self.spans)} of {number}"

    def named(self, name: str) -> list[Span]:
        """The spans of a name, in order."""
        found = [each for each in self.spans.values() if each.name == name]
        return sorted(found, key=lambda each: each.start_time_unix_nano)

    def under(self, span: Span) -> list[Span]:
        """The spans right below a span, in order."""
        found = [each for each in self.spans.values() if each.parent_span_id == span.span_id]
        return sorted(found, key=lambda each: (each.start_time_unix_nano, each.name))


def attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span or an event."""
    return {each.key: _plain(each.value) for each in span.attributes}


def _plain(value: Any) -> Any:
    form = value.WhichOneof("value")
    if form == "array_value":
        return [_plain(each) for each in value.array_value.values]
    return getattr(value, form)


@contextmanager
def receiving(port: int = 0, into: Receiver | None = None) -> Iterator[Receiver]:
    """Listen in this block."""
    receiver = into or Receiver()
    connections: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            connections.append(self.connection)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
            if self.path.endswith("/v1/metrics"):
                answer: Answer | None = self._metrics(body)
            else:
                answer = self._traces(body)
            if answer is None or receiver.loses:
                self.close_connection = True
                self.connection.close()
                return
            status, headers, data = answer
            self.send_response(status)
            for name, value in (headers | {"content-length": str(len(data))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def _traces(self, body: bytes) -> Answer | None:
            if self.headers["content-type"] == "application/json":
                request = from_json(json.loads(body))
                done = b"{}"
            else:
                request = ExportTraceServiceRequest.FromString(body)
                done = ExportTraceServiceResponse().SerializeToString()
            answer = receiver.answers.pop(0)(request) if receiver.answers else (200, {}, done)
            if answer is not None and answer[0] == 200:
                receiver.take(request)
            return answer

        def _metrics(self, body: bytes) -> Answer:
            if receiver.metrics_status != 200:
                return receiver.metrics_status, {}, b""
            request = ExportMetricsServiceRequest.FromString(body)
            for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
                for point in metric.histogram.data_points:
                    labels = frozenset((name, str(value)) for name, value in attributes(point).items())
                    receiver.points[metric.name, labels] = point
            return 200, {}, b""

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            del request, client_address  # an exporter that is killed resets its connection

    server = Quiet(("127.0.0.1", port), Handler)
    receiver.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        for each in connections:  # one that is kept alive would be answered on
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        server.server_close()
        thread.join()


def from_json(message: dict[str, Any]) -> ExportTraceServiceRequest:
    """Read OTLP's JSON, whose ids are in hex, as protobuf's own reader does not expect them."""
    from base64 import b64encode

    from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped] # it has no stubs

    for span in (s for r in message["resourceSpans"] for g in r["scopeSpans"] for s in g["spans"]):
        for each in (span, *span.get("links", ())):
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in each:
                    each[name] = b64encode(bytes.fromhex(each[name])).decode()
    made: ExportTraceServiceRequest = ParseDict(message, ExportTraceServiceRequest())
    return made
