"""An agent and a state give the next move, without a look at the outside: every limit and wait is decided here."""

ORDER = (
    "approval",
    "budget",
    "open_call",
    "compaction",
    "waiting",
    "move",
)
"""Files in reading order: each imports only those before it."""
