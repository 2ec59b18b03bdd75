"""The state of a run, a fold over its entries: open calls, steps of a workflow, turns, the account."""

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
