"""Ready-made workflows in which several agents work together, written with the verbs of `gesta.workflow`."""

ORDER = ("roles", "summariser", "react", "plan", "supervisor", "router")
"""Each file may import those before it."""
