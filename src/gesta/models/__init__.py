"""Models: wire dialects, the HTTP sender, and models that need no key. Import from the file that has it."""

ORDER = (
    "jsontext",
    "faults",
    "sse",
    "parts",
    "kept",
    "gathered",
    "chat_completions",
    "responses_items",
    "responses_reply",
    "responses",
    "anthropic_schema",
    "anthropic_reply",
    "anthropic_messages",
    "gemini_schema",
    "gemini_reply",
    "gemini",
    "providers",
    "prices",
    "http",
    "hosted",
    "scripted",
    "replay",
    "function",
)
"""Each file may import those before it."""
