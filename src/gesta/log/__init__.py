"""The writer of a run, its handle, and the entries that a fork shares with its base."""

ORDER = (
    "steering",
    "shared",
    "journal",
)
"""Files in reading order: each imports only those before it."""
