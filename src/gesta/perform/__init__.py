"""The code that carries out a move and writes down the results: it asks models, calls tools and runs child runs."""

ORDER = (
    "stop",
    "sources",
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
"""Files in reading order: each imports only files before it."""
