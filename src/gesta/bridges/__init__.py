"""Export and import of whole records: JSON lines, RDF in the terms of PROV, copies into another record, and traces.

A record is the store of all runs of agents. The folder `mcp` makes the tools of MCP servers available to agents.
"""

ORDER = ("lines", "jsonl", "prov", "pushing", "otlp", "tracing", "mcp")
"""Each file may import those before it in this list, and `importers/`."""
