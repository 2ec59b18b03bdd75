"""The parts of an opened record (the store of all runs): turns, leases, forks, event streams and inboxes."""

ORDER = (
    "forks",
    "leases",
    "names",
    "waits",
    "answers",
    "cancel",
    "renamed",
    "options",
    "entry_events",
    "turns",
    "told_words",
    "watch",
    "followers",
    "stream",
    "calls",
    "inbox",
    "record",
)
"""Files in reading order: each imports only files before it."""
