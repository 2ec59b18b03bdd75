"""Serves agents as tools of the Model Context Protocol (MCP). Also serves a record (the store of all runs) for reading.

Over streamable HTTP, MCP is one more path of `gesta.serve`, with the same tokens and limits. Over stdio, the server is
a child process of its client. Needs the extra `mcp`.
"""

from gesta.serve.mcp.http import app, reader

ORDER = ("described", "asked", "results", "calls", "server", "facts", "reading", "http", "stdio")
"""Files in reading order: each imports only those before it."""

__all__ = ["app", "reader"]
