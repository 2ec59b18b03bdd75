"""Names of `trustgraph.agent.orchestrator`."""

ORDER = ("turn", "processor", "pattern_base")
"""Each may import those before it."""
