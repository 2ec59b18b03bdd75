"""The names of other systems, for programs that were written for those systems. A package here may import any rib."""

ORDER = ("agent_catalog", "langchain", "kodeagent", "trustgraph", "langroid", "forms")
"""Each package may import those before it."""
