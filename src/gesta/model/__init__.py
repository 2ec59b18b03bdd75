"""How a model is asked: build, send and parse; and usage, the number of tokens of a request and its reply."""

ORDER = (
    "usage",
    "request",
)
"""Files in reading order: each imports only files before it."""
