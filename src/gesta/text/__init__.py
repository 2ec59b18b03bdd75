"""Functions on texts: remove secrets, mark invisible characters, find JSON objects, compute the ids of trace spans."""

ORDER = (
    "redactor",
    "visible",
    "objects",
    "tracing",
)
"""Files in reading order: each imports only files before it."""
