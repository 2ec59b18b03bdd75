"""Ready-made agents: workflows in which several agents work together, written with the verbs of `gesta.workflow`."""

ORDER = ("roles", "summariser", "react", "plan", "supervisor", "router")
"""Files in reading order: each imports only files before it."""
