"""Tools, resources and prompts of MCP servers as tools of an agent, over stdio and streamable HTTP.

A source is a frozen description of a server; a connection is opened for each server of a record and reused over turns.
The library `mcp` is imported when the first connection begins.
"""

ORDER = ("spec", "stderr", "sender", "asking", "results", "link", "offers", "flight", "connection", "remote", "source")
"""Files in reading order: each imports only those before it."""
