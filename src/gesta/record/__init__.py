"""An opened store: the turns of its runs, leases, forks, streams, the inbox, and the record that has them all."""

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
