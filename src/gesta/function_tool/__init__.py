"""A tool is a typed function that a model may call: its signature, what it is told, its type of answer."""

ORDER = (
    "doubt",
    "signature",
    "context",
    "tool",
    "output",
)
"""Files in reading order: each imports only those before it."""
