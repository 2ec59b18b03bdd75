"""Langroid: chat agents and tasks, their tools as messages, the documents that pass between them."""

ORDER = (
    "entities",
    "facts",
    "tool_message",
    "orchestration",
    "signals",
    "task_log",
    "chat_document",
    "done_sequences",
    "toolset",
    "chat_config",
    "home",
    "working",
    "histories",
    "messages",
    "responding",
    "chat",
    "task_rules",
    "task_steps",
    "task",
    "batch",
)
"""Each file may import those before it."""
