"""Langroid: chat agents, tasks, tool messages, and the documents (messages with metadata) that agents exchange.

`import gesta.compat.langroid as lr` replaces `import langroid as lr`. Only those of
Langroid's names exist that Gesta implements.
"""

from gesta.compat.langroid import agent, exceptions, language_models, mytypes, utils
from gesta.compat.langroid.batch import agent_response_batch, llm_response_batch, run_batch_tasks
from gesta.compat.langroid.chat import ChatAgent
from gesta.compat.langroid.chat_config import AgentConfig, ChatAgentConfig, TaskConfig
from gesta.compat.langroid.chat_document import (
    ChatDocAttachment,
    ChatDocMetaData,
    ChatDocument,
    LLMFunctionCall,
    OpenAIToolCall,
    ToolChoiceTypes,
)
from gesta.compat.langroid.entities import Entity, Role, StatusCode
from gesta.compat.langroid.exceptions import InfiniteLoopException
from gesta.compat.langroid.orchestration import DoneTool, ForwardTool, PassTool, RecipientTool
from gesta.compat.langroid.responders import Agent
from gesta.compat.langroid.signals import NO_ANSWER
from gesta.compat.langroid.task import Task
from gesta.compat.langroid.tool_message import LLMFunctionSpec, ToolMessage

ORDER = (
    "exceptions",
    "entities",
    "mytypes",
    "facts",
    "tool_message",
    "xml_tool_message",
    "message_states",
    "orchestration",
    "signals",
    "task_log",
    "chat_document",
    "steering",
    "done_sequences",
    "language_models",
    "callbacks",
    "toolset",
    "chat_config",
    "home",
    "working",
    "histories",
    "messages",
    "responding",
    "overriding",
    "responders",
    "chat",
    "task_rules",
    "task_steps",
    "task",
    "task_tool",
    "batch",
    "agent",
    "utils",
)
"""Files in reading order: each imports only files before it."""

__all__ = [
    "NO_ANSWER",
    "Agent",
    "AgentConfig",
    "ChatAgent",
    "ChatAgentConfig",
    "ChatDocAttachment",
    "ChatDocMetaData",
    "ChatDocument",
    "DoneTool",
    "Entity",
    "ForwardTool",
    "InfiniteLoopException",
    "LLMFunctionCall",
    "LLMFunctionSpec",
    "OpenAIToolCall",
    "PassTool",
    "RecipientTool",
    "Role",
    "StatusCode",
    "Task",
    "TaskConfig",
    "ToolChoiceTypes",
    "ToolMessage",
    "agent",
    "agent_response_batch",
    "exceptions",
    "language_models",
    "llm_response_batch",
    "mytypes",
    "run_batch_tasks",
    "utils",
]
