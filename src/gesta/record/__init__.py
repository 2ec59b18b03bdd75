"""The parts of an opened record: turns of runs, leases, forks, streams, the inbox, and the record itself."""

ORDER = (
    "forks",
    "leases",
    "waits",
    "answers",
    "cancel",
    "options",
    "entry_events",
    "turns",
    "told_words",
    "watch",
    "followers",
    "stream",
    "inbox",
    "record",
)
"""Files in reading order: each imports only files before it."""
