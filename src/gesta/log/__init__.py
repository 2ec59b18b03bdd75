"""Writes a run (the entries of one agent's conversation): the journal, the log, and the shared entries of forks.

The journal is the run's only writer. A log is a handle on one span (named part) of the run. A fork shares the first
entries of another run.
"""

ORDER = (
    "steering",
    "shared",
    "journal",
)
"""Files in reading order: each imports only files before it."""
