"""The parts of an opened record: turns of runs, leases, forks, event streams, inboxes, and the class `Record`."""

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
