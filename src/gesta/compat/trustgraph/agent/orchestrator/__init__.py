"""Names of `trustgraph.agent.orchestrator`."""

ORDER = ("fan_out", "turn", "processor", "pattern_base")
"""Each may import those before it."""
