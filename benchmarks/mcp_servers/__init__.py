"""Calls each tool, resource and prompt of the example servers of the official `mcp` package from an agent."""
