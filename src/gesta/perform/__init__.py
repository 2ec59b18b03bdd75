"""Carries out the moves that `decide` chooses, and records what happened: asks models, calls tools, runs child runs.

A move is the next thing that a run does. Examples are `Ask` (send a request to the model) and `Use` (run tools). A
child run is the run of another agent that a turn calls.
"""

ORDER = (
    "stop",
    "sources",
    "execution",
    "threads",
    "call_contents",
    "late",
    "child",
    "context",
    "checks",
    "doubts",
    "compaction",
    "instructions",
    "model_call",
    "tool_wait",
    "tool_call",
    "move",
)
"""Files in reading order: each imports only files before it."""
