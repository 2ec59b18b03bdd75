"""The journal that writes a run, the log handle on one span, and the entries that a fork shares with its base."""

ORDER = (
    "steering",
    "shared",
    "journal",
)
"""Files in reading order: each imports only files before it."""
