"""Names of `trustgraph.agent`, under the paths from which programs import them."""

ORDER = ("react", "tool_filter", "orchestrator")
"""The modules in order: each imports only modules before it."""
