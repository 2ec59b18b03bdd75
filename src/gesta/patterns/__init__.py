"""Ways for agents to work together: functions over the verbs."""

ORDER = ("roles", "summariser", "react", "plan", "supervisor", "router")
"""Each file may import those before it."""
