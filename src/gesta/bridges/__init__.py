"""Ways in and out of a record: Gesta's own JSON lines, and importers of recorded conversations.

A format of one kind of foreign file is a reader: file in, conversations out, as the entries that they become. How
those are written, once and whole, is the same for all and stands in `importing`.
"""

ORDER = (
    "source",
    "foreign",
    "chat",
    "lines",
    "jsonl",
    "tau_bench",
    "tau2_bench",
    "agent_catalog",
    "prov",
    "importing",
    "pushing",
)
