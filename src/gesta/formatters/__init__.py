"""Makers of the spine's `Formatter`."""

ORDER = ("tool_calls", "llm_message", "history", "react", "codeact")
