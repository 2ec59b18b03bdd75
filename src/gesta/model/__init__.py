"""How a model is asked (encode, send, parse), and how the tokens of a request and its reply are counted."""

ORDER = (
    "usage",
    "request",
)
"""Files in reading order: each imports only files before it."""
