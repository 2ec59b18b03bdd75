"""Models: wire dialects, the HTTP sender, and models that need no key. Import from the file that has it."""

ORDER = (
    "jsontext",
    "faults",
    "sse",
    "gathered",
    "chat_completions",
    "providers",
    "prices",
    "http",
    "scripted",
    "replay",
    "function",
)
"""Each file may import those before it."""
