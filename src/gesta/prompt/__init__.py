"""What a model reads next: a formatter makes messages of entries, and the blocks of a request are made of these."""

ORDER = (
    "formatter",
    "blocks",
)
"""Files in reading order: each imports only those before it."""
