"""agent-catalog: its activity log, written from any run. `gesta.importers.agent_catalog` reads one."""

ORDER = ("export",)
"""Each file may import those before it."""
