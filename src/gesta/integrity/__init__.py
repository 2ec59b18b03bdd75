"""Checks that a record is unchanged: the digests of each run, digests saved elsewhere, and marks of removed runs."""

ORDER = (
    "tombstones",
    "verify",
)
"""Files in reading order: each imports only files before it."""
