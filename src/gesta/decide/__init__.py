"""The next move is decided from an agent and a state alone: every limit and wait is decided here."""

ORDER = (
    "approval",
    "budget",
    "open_call",
    "compaction",
    "waiting",
    "move",
)
"""Files in reading order: each imports only files before it."""
