"""Importers turn recordings of other systems into entries. Each format has a reader, and one module writes for all.

A reader returns the conversations of a file, each as the entries that it becomes. The module `file` writes the entries
of all formats, each conversation once and in one commit. Readers of benchmarks' recordings are in `research/`.
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
"""Files in reading order: each imports only files before it."""
