"""A model is asked by build, send and parse; usage is what it says that a reply took."""

ORDER = (
    "usage",
    "request",
)
"""Files in reading order: each imports only those before it."""
