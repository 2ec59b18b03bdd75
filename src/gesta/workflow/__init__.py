"""A workflow: an async program that takes a turn by calling verbs. Each of its steps is done once."""

ORDER = (
    "step",
    "verbs",
    "turn",
)
"""Files in reading order: each imports only files before it."""
