"""Runs as OpenTelemetry spans and metrics, sent by OTLP over HTTP as they come, or written to a file.

The record is read, and no turn waits for it. A place is remembered up to which everything was taken, so that an
exporter that was killed, or that found nobody, goes on there; a span has the same id however often it is sent.
"""

ORDER = ("folding", "metrics", "encoding", "protobuf", "settings", "place", "sending", "files", "following")
"""Each file may import those before it."""
