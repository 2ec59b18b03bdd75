"""Names of `trustgraph.agent`, at the paths that its users import them from."""

ORDER = ("react", "tool_filter", "orchestrator")
"""Each may import those before it."""
