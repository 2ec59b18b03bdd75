"""Decides on the next move from an agent and a run's state only. Every limit and every wait is decided here."""

ORDER = (
    "approval",
    "budget",
    "open_call",
    "compaction",
    "waiting",
    "move",
)
"""Files in reading order: each imports only files before it."""
