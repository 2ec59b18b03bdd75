"""Ready-made agents in which several models work together, written as workflows with the verbs of `gesta.workflow`."""

ORDER = ("roles", "summariser", "react", "plan", "supervisor", "router")
"""Files in reading order: each imports only files before it."""
