"""Functions on texts: remove secrets, mark invisible characters, and find JSON."""

ORDER = (
    "redactor",
    "visible",
    "objects",
    "tracing",
)
"""Files in reading order: each imports only files before it."""
