"""The classes of agent-catalog (contents, spans, catalog) under its own names, and the export of its activity log."""

from gesta.compat.agent_catalog.contents import (
    AssistantContent,
    BadContent,
    BaseContent,
    BeginContent,
    ChatCompletionContent,
    Content,
    EdgeContent,
    EndContent,
    KeyValueContent,
    RequestHeaderContent,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
    content_of,
)
from gesta.compat.agent_catalog.spans import Catalog, GlobalSpan, Log, Span
from gesta.content import Kind

ORDER = ("export", "contents", "spans")
"""Files in reading order: each imports only files before it."""

__all__ = [
    "AssistantContent",
    "BadContent",
    "BaseContent",
    "BeginContent",
    "Catalog",
    "ChatCompletionContent",
    "Content",
    "EdgeContent",
    "EndContent",
    "GlobalSpan",
    "KeyValueContent",
    "Kind",
    "Log",
    "RequestHeaderContent",
    "Span",
    "SystemContent",
    "ToolCallContent",
    "ToolResultContent",
    "UserContent",
    "content_of",
]
