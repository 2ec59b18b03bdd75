"""Writes a run: the journal (its only writer), the log (a handle on one span), and the shared entries of forks."""

ORDER = (
    "steering",
    "shared",
    "journal",
)
"""Files in reading order: each imports only files before it."""
