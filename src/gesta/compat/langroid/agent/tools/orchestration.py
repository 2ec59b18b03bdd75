"""The names of Langroid's module `langroid.agent.tools.orchestration`, at the same path after `gesta.compat`."""

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
