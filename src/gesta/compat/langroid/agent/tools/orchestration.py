"""Names of `langroid.agent.tools.orchestration`."""

from gesta.compat.langroid.orchestration import (
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

__all__ = [
    "AgentDoneTool",
    "AgentSendTool",
    "DonePassTool",
    "DoneTool",
    "FinalResultTool",
    "ForwardTool",
    "PassTool",
    "ResultTool",
    "SendTool",
]
