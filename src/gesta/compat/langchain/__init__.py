"""LangChain's agent classes under their own names, their JSON form, and functions that show steps to the model."""

from gesta.compat.langchain.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from gesta.compat.langchain.lc import from_lc, to_lc
from gesta.compat.langchain.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    Serializable,
    SystemMessage,
    ToolMessage,
)
from gesta.compat.langchain.scratchpads import (
    format_log_to_messages,
    format_log_to_str,
    format_to_openai_function_messages,
    format_to_tool_messages,
    format_xml,
)

ORDER = ("messages", "agents", "steps", "lc", "scratchpads")
"""Files in reading order: each imports only files before it."""

__all__ = [
    "AIMessage",
    "AgentAction",
    "AgentActionMessageLog",
    "AgentFinish",
    "AgentStep",
    "BaseMessage",
    "ChatMessage",
    "FunctionMessage",
    "HumanMessage",
    "RemoveMessage",
    "Serializable",
    "SystemMessage",
    "ToolMessage",
    "format_log_to_messages",
    "format_log_to_str",
    "format_to_openai_function_messages",
    "format_to_tool_messages",
    "format_xml",
    "from_lc",
    "to_lc",
]
