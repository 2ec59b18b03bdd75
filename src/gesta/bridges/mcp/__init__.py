"""Tools, resources and prompts of MCP servers as tools of an agent, over stdio and streamable HTTP.

A source describes a server and is put among an agent's tools. A record opens one connection to each server and keeps it
for later turns. The library `mcp` is imported when the first connection begins.
"""

ORDER = (
    "slips",
    "spec",
    "stderr",
    "sender",
    "asking",
    "results",
    "link",
    "offers",
    "flight",
    "connection",
    "remote",
    "source",
)
"""Files in reading order: each imports only those before it."""
