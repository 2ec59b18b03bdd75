"""The names of TrustGraph's package `trustgraph.agent`, at the paths from which programs import them."""

ORDER = ("react", "tool_filter", "orchestrator")
"""The modules in reading order: each imports only modules before it."""
