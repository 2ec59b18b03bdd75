"""Checks that a record is unchanged: the chain of every run, heads that are kept elsewhere, and tombstones."""

ORDER = (
    "tombstones",
    "verify",
)
"""Files in reading order: each imports only files before it."""
