"""Checks that a record (the store of all runs) is unchanged.

The checks use the digests of each run, digests saved elsewhere, and the tombstones, which remain of removed runs.
"""

ORDER = (
    "tombstones",
    "verify",
)
"""Files in reading order: each imports only files before it."""
