"""The names of TrustGraph's package `trustgraph.agent.orchestrator`."""

ORDER = ("fan_out", "turn", "processor", "pattern_base")
"""The modules in reading order: each imports only modules before it."""
