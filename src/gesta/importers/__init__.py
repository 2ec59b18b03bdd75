"""What people recorded with other systems comes in as entries: a reader of each format, and one way to write.

A reader gives the conversations of a file, each as the entries that it becomes. How those are written, once and whole,
is the same for all and stands in `file`. Readers of benchmarks' recordings are in `research/`.
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
    "known",
    "file",
)
"""Each file may import those before it."""
