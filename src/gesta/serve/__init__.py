"""Serves agents over HTTP: sessions, messages, streams, approvals, and OpenAI's chat completions for other programs.

The server keeps its state only in the record, the store of all runs. So open turns (messages without an answer yet) are
continued after a restart, also by another server.
Needs the extra `serve`.
"""

from gesta.serve.access import Access
from gesta.serve.app import app

ORDER = (
    "bodies",
    "advice",
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
