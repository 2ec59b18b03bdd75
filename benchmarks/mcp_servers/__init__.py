"""The example servers of the official `mcp` package, each tool, resource and prompt of them called by an agent."""
