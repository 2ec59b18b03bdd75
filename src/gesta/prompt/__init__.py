"""The prompt of the next request: a formatter makes messages from entries, and a model makes blocks from messages."""

ORDER = (
    "formatter",
    "blocks",
)
"""Files in reading order: each imports only files before it."""
