"""A move is carried out and written down: a model is asked, tools are called, child runs are run."""

ORDER = (
    "stop",
    "execution",
    "threads",
    "result",
    "late",
    "child",
    "checks",
    "doubts",
    "compaction",
    "generated",
    "instructions",
    "model_call",
    "tool_call",
    "move",
)
"""Files in reading order: each imports only those before it."""
