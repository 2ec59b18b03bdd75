"""Texts: removes secrets from them, marks invisible characters in them, finds JSON in them, makes ids of traces."""

ORDER = (
    "redactor",
    "visible",
    "objects",
    "tracing",
)
"""Files in reading order: each imports only files before it."""
