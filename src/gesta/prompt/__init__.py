"""The prompt of the next request: a formatter makes messages of entries, and a model makes blocks of messages."""

ORDER = (
    "formatter",
    "blocks",
)
"""Files in reading order: each imports only files before it."""
