"""Ways in and out of a record in Gesta's own form, or as others read it while it grows: JSON lines, PROV, a push."""

ORDER = ("lines", "jsonl", "prov", "pushing")
"""Each file may import those before it, and `importers/`."""
