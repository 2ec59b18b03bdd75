"""Sends the runs of a record as OpenTelemetry spans and metrics by OTLP over HTTP, or writes them to a file.

A record is the store of all runs; a turn is an agent's work on one message. No turn waits for a receiver: an exporter
reads the record and sends new entries as they appear. The exporter stores its place, which is the last entry up to
which all spans were sent. After a crash, or while no receiver answers, nothing is lost: the next exporter continues at
that place. A span that is sent twice has the same id both times.
"""

ORDER = ("folding", "metrics", "encoding", "protobuf", "settings", "place", "sending", "files", "following")
"""Each file may import those before it in this list."""
