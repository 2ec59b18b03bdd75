"""The names of TrustGraph's package `trustgraph.agent.react`."""

ORDER = ("types",)
