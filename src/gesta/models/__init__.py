"""Models: the request formats of providers, the sender over HTTP, and models that need no key.

Nothing is exported here: import each model from its own file.
"""

ORDER = (
    "jsontext",
    "faults",
    "bounds",
    "sse",
    "parts",
    "settings",
    "incoming",
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
    "credential",
    "http",
    "hosted",
    "scripted",
    "replay",
    "function",
)
"""The files of this folder in reading order. Each file imports only files before it."""
