"""The writer of a run and the handle on it; a fork reads the prefix that it shares."""

ORDER = (
    "steering",
    "shared",
    "journal",
)
"""Files in reading order: each imports only those before it."""
