"""Decides what a turn does next, from the agent and the run's state only. All limits and waits are decided here."""

ORDER = (
    "approval",
    "budget",
    "open_call",
    "compaction",
    "waiting",
    "move",
)
"""Files in reading order: each imports only files before it."""
