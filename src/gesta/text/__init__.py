"""Texts: secrets are taken out of them, what cannot be seen in them is marked, and JSON is found in them."""

ORDER = (
    "redactor",
    "visible",
    "objects",
)
"""Files in reading order: each imports only those before it."""
