"""Agents as tools of the Model Context Protocol, and a record that an assistant may read, by the same protocol.

Over streamable HTTP the server is one more path of `gesta.serve`: the same tokens, bounds and end. Over stdio it is the
child of the client that started it. Needs the extra `mcp`.
"""

from gesta.serve.mcp.http import app, reader

ORDER = ("described", "asked", "results", "calls", "server", "facts", "reading", "http", "stdio")
"""Files in reading order: each imports only those before it."""

__all__ = ["app", "reader"]
