"""Packages with the names and the behaviour of other agent systems, so that programs written for them run on Gesta.

These packages may import every part of the library, but not the programs that are built on it, such as the command line
and the server. CONTRIBUTING.md lists both.
"""

ORDER = ("agent_catalog", "langchain", "kodeagent", "trustgraph", "langroid", "forms")
"""The packages and modules in reading order. Each may import only those before it."""
