"""Importers turn recordings of other systems into runs. A run is a list of entries, each the record of one event.

Each foreign format has a reader: a function that yields the conversations of a file, each as the entries that it
becomes. The module `file` writes these entries to the record (the store of all runs): each conversation once, as a
whole. The readers of research benchmarks are in `research/`.
"""

ORDER = (
    "unpacked",
    "reader",
    "source",
    "foreign",
    "format",
    "unanswered",
    "chat",
    "message",
    "openai_exchange",
    "agent_catalog",
    "openai_chat",
    "inspect_message",
    "inspect_event",
    "inspect_sample",
    "inspect_log",
    "spans",
    "python_text",
    "framework_message",
    "langfuse_messages",
    "observed",
    "retold",
    "langfuse_generations",
    "langfuse",
    "research",
    "own",
    "known",
    "file",
)
"""The files of this folder in reading order. Each file imports only files before it."""
