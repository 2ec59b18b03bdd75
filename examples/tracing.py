"""A small OpenTelemetry receiver, and an agent whose runs are sent to it while they happen. Needs the extra `otel`.

Prints:
    The lamp is in shelf 7.
    invoke_agent desk, under 00f067440a9902b7
      chat scripted
      execute_tool shelf
      chat scripted
"""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import gesta
from gesta.bridges.tracing import tracing

SPANS: list[Any] = []


class Receiver(BaseHTTPRequestHandler):
    """An HTTP handler that keeps the spans it receives."""

    def do_POST(self) -> None:
        """Accept one message, and keep its spans."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":
            told = ExportTraceServiceRequest.FromString(body).resource_spans
            SPANS.extend(span for each in told for held in each.scope_spans for span in held.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print no line for a request."""


@gesta.tool(effect="pure")
def shelf(item: str) -> int:
    """Look an item up."""
    return len(item) + 3


agent = gesta.Agent("desk", gesta.scripted(gesta.call("shelf", item="lamp"), "The lamp is in shelf 7."), tools=[shelf])
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067440a9902b7-01"  # the traceparent header of a web request


async def main(address: str) -> None:
    async with gesta.open("desk.gesta") as record, tracing(record, address, place="sent.json"):
        print((await record.run(agent, "Where is the lamp?", traceparent=CALLER)).answer)


server = HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
asyncio.run(main(f"http://127.0.0.1:{server.server_port}"))
turn, *others = sorted(SPANS, key=lambda each: each.start_time_unix_nano)
print(f"{turn.name}, under {turn.parent_span_id.hex()}")
print(*(f"  {span.name}" for span in others if span.parent_span_id == turn.span_id), sep="\n")
