"""KodeAgent: histories in its formats, made from any run, and written back as entries."""

ORDER = ("llm_message", "history", "react", "codeact")
"""Each file may import those before it."""
