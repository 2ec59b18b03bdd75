"""Folds over entries. Each module answers one question about runs."""

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
