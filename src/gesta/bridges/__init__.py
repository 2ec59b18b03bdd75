"""Ways in and out of a record: Gesta's own JSON lines, RDF in the terms of PROV, and a copy into another record."""

ORDER = ("lines", "jsonl", "prov", "pushing")
"""Each file may import those before it, and `importers/`."""
