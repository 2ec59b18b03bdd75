"""Writes a run, which is the list of entries of one agent's conversation.

The journal is the run's only writer. A log is a handle on one span (named part) of the run. A fork is a run that shares
the first entries of another run.
"""

ORDER = (
    "steering",
    "shared",
    "journal",
)
"""Files in reading order: each imports only files before it."""
