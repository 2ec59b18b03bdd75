"""TrustGraph: the base of its orchestrator's patterns, what its requests and responses hold, the context of a tool."""

ORDER = ("requests", "context", "pattern")
"""Each file may import those before it."""
