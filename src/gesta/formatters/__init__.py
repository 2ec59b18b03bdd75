"""Makers of the spine's `Formatter`."""

ORDER = (
    "tool_calls",
    "llm_message",
    "history",
    "react",
    "codeact",
    "text_form",
    "react_text",
    "codeact_text",
    "json_text",
    "transcript",
    "repair",
)
