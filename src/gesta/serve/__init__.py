"""Agents behind HTTP: sessions, messages, streams, approvals, and the chat completions that other programs speak.

All state of the server is on the record: another server, or this server after a restart, goes on where it ended.
Needs the extra `serve`.
"""

from gesta.serve.access import Access
from gesta.serve.app import app

ORDER = (
    "bodies",
    "access",
    "chat_messages",
    "chat_sessions",
    "service",
    "sse",
    "people",
    "runs",
    "chat",
    "routes",
    "openapi",
    "app",
    "server",
    "mcp",
)
"""Files in reading order: each imports only those before it."""

__all__ = ["Access", "app"]
