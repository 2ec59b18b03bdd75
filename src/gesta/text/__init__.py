"""Texts: removes secrets from them, marks invisible characters in them, and finds JSON in them."""

ORDER = (
    "redactor",
    "visible",
    "objects",
)
"""Files in reading order: each imports only those before it."""
