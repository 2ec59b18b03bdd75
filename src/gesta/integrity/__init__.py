"""Whether a record is what was written: the check of every entry, heads that are kept elsewhere, tombstones."""

ORDER = (
    "tombstones",
    "verify",
)
"""Files in reading order: each imports only those before it."""
