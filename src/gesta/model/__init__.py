"""A model is asked by build, send and parse; usage is the number of tokens that a reply took."""

ORDER = (
    "usage",
    "request",
)
"""Files in reading order: each imports only those before it."""
