"""Checks that a record is as it was written: every entry, heads that are kept elsewhere, and tombstones."""

ORDER = (
    "tombstones",
    "verify",
)
"""Files in reading order: each imports only files before it."""
