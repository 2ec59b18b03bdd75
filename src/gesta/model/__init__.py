"""The interface of models: encode messages, send a request, parse the reply, and count the tokens of both."""

ORDER = (
    "usage",
    "request",
)
"""Files in reading order: each imports only files before it."""
