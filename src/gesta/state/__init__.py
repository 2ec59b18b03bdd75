"""The state of a run, computed from its entries: open calls, steps of a workflow, turns, costs."""

ORDER = (
    "calls",
    "steps",
    "account",
    "turn",
    "checks",
    "run",
    "opening",
)
"""Files in reading order: each imports only files before it."""
