"""What programs need that come from other systems: their names, thin over the record. Each may import any rib."""

ORDER = ("agent_catalog", "langchain", "kodeagent", "trustgraph", "langroid")
"""Each may import those before it."""
