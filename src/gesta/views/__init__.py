"""Views compute answers to questions about runs from the entries of the runs. Each module answers one question."""

ORDER = (
    "lineage",
    "drawn",
    "across",
    "prov_names",
    "prov_chain",
    "prov",
    "losses",
    "sent",
    "sent_changes",
    "exchanges",
    "stats",
    "history",
    "sessions",
    "overview",
    "children",
    "timeline",
    "sentences",
    "files",
    "lines",
    "spans",
    "span_messages",
    "span_attributes",
    "span_events",
    "traces",
)
"""Files in reading order: each imports only files before it."""
