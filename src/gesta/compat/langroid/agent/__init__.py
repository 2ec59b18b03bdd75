"""The names of Langroid's package `langroid.agent`, at the paths from which programs import them."""

from gesta.compat.langroid.agent import (
    base,
    batch,
    chat_agent,
    chat_document,
    done_sequence_parser,
    task,
    tool_message,
    tools,
    xml_tool_message,
)
from gesta.compat.langroid.agent.base import Agent, AgentConfig
from gesta.compat.langroid.agent.chat_agent import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.agent.chat_document import (
    ChatDocAttachment,
    ChatDocLoggerFields,
    ChatDocMetaData,
    ChatDocument,
)
from gesta.compat.langroid.agent.task import Task
from gesta.compat.langroid.agent.tool_message import ToolMessage
from gesta.compat.langroid.agent.xml_tool_message import XMLToolMessage

ORDER = (
    "base",
    "batch",
    "chat_agent",
    "chat_document",
    "done_sequence_parser",
    "task",
    "tool_message",
    "xml_tool_message",
    "tools",
)
"""Files in reading order: each imports only files before it."""

__all__ = [
    "Agent",
    "AgentConfig",
    "ChatAgent",
    "ChatAgentConfig",
    "ChatDocAttachment",
    "ChatDocLoggerFields",
    "ChatDocMetaData",
    "ChatDocument",
    "Task",
    "ToolMessage",
    "XMLToolMessage",
    "base",
    "batch",
    "chat_agent",
    "chat_document",
    "done_sequence_parser",
    "task",
    "tool_message",
    "tools",
    "xml_tool_message",
]
