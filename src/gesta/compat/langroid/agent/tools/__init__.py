"""Names of `langroid.agent.tools`."""

from gesta.compat.langroid.agent.tools import orchestration, recipient_tool
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
from gesta.compat.langroid.agent.tools.recipient_tool import RecipientTool

ORDER = ("orchestration", "recipient_tool")
"""Each file may import those before it."""

__all__ = [
    "AgentDoneTool",
    "AgentSendTool",
    "DonePassTool",
    "DoneTool",
    "FinalResultTool",
    "ForwardTool",
    "PassTool",
    "RecipientTool",
    "ResultTool",
    "SendTool",
    "orchestration",
    "recipient_tool",
]
