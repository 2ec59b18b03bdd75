"""LangChain: steps of an agent as actions and observations, and as LangChain's own serialized objects."""

ORDER = ("steps", "lc")
"""Each file may import those before it."""
