"""Names of `trustgraph.agent.orchestrator`."""

ORDER = ("fan_out", "turn", "processor", "pattern_base")
"""The modules in order: each imports only modules before it."""
