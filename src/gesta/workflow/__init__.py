"""A program takes a turn through verbs; each of its steps is done once."""

ORDER = (
    "step",
    "verbs",
    "turn",
)
"""Files in reading order: each imports only files before it."""
