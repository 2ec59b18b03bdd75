"""Export and import of whole records: JSON lines, RDF in the terms of PROV, copies into another record, and traces."""

ORDER = ("lines", "jsonl", "prov", "pushing", "otlp", "tracing")
"""Each file may import those before it, and `importers/`."""
