"""Packages with the names and the behaviour of other agent systems, so that programs written for them run on Gesta.

These packages may import all other packages of Gesta, except the command line, the servers and the tests.
"""

ORDER = ("agent_catalog", "langchain", "kodeagent", "trustgraph", "langroid", "forms")
"""The packages and modules in reading order. Each may import only those before it."""
