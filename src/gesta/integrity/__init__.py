"""Checks that a record is unchanged: the digests of every run, the heads that were saved elsewhere, and tombstones."""

ORDER = (
    "tombstones",
    "verify",
)
"""Files in reading order: each imports only files before it."""
