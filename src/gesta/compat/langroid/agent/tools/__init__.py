"""The names of Langroid's package `langroid.agent.tools`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.agent.tools import orchestration, recipient_tool, rewind_tool, task_tool
from gesta.compat.langroid.agent.tools.orchestration import (
    AgentDoneTool,
    AgentSendTool,
    DonePassTool,
    DoneTool,
    FinalResultTool,
    ForwardTool,
    PassTool,
    ResultTool,
    SendTool,
)
from gesta.compat.langroid.agent.tools.recipient_tool import AddRecipientTool, RecipientTool
from gesta.compat.langroid.agent.tools.rewind_tool import RewindTool
from gesta.compat.langroid.agent.tools.task_tool import TaskTool

ORDER = ("orchestration", "recipient_tool", "rewind_tool", "task_tool")
"""Files in reading order: each imports only files before it."""

__all__ = [
    "AddRecipientTool",
    "AgentDoneTool",
    "AgentSendTool",
    "DonePassTool",
    "DoneTool",
    "FinalResultTool",
    "ForwardTool",
    "PassTool",
    "RecipientTool",
    "ResultTool",
    "RewindTool",
    "SendTool",
    "TaskTool",
    "orchestration",
    "recipient_tool",
    "rewind_tool",
    "task_tool",
]
