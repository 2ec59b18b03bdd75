"""Ways in and out of a record: JSON lines, RDF in the terms of PROV, a copy into another record, and traces."""

ORDER = ("lines", "jsonl", "prov", "pushing", "otlp", "tracing")
"""Each file may import those before it, and `importers/`."""
