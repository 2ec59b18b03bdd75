"""An opened store: who holds a run takes its turns; leases, forks, streams, and the door of it all."""

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
"""Files in reading order: each imports only those before it."""
