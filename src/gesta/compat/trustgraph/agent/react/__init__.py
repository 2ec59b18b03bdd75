"""Names of `trustgraph.agent.react`."""

ORDER = ("types",)
