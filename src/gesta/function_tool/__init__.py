"""A tool is a typed function that a model may call: its signature, its context, and the type of an agent's answer."""

ORDER = (
    "doubt",
    "signature",
    "context",
    "reconcile",
    "tool",
    "source",
    "output",
)
"""Files in reading order: each imports only files before it."""
