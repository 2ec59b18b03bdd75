"""KodeAgent's history formatters, messages and models under its own names.

The formatters work on every run of Gesta.
"""

from gesta.compat.kodeagent.history_formatter import (
    CODE_ACT_PSEUDO_TOOL_NAME,
    CodeActHistoryFormatter,
    HistoryFormatter,
    LLMMessage,
    ReActHistoryFormatter,
)
from gesta.compat.kodeagent.kutils import make_user_message
from gesta.compat.kodeagent.models import (
    AgentPlan,
    ChatMessage,
    CodeActChatMessage,
    ObserverResponse,
    PlanStep,
    ReActChatMessage,
)

ORDER = ("llm_message", "kutils", "models", "history", "react", "codeact", "history_formatter", "react_agent")
"""Files in reading order: each imports only files before it."""

__all__ = [
    "CODE_ACT_PSEUDO_TOOL_NAME",
    "AgentPlan",
    "ChatMessage",
    "CodeActChatMessage",
    "CodeActHistoryFormatter",
    "HistoryFormatter",
    "LLMMessage",
    "ObserverResponse",
    "PlanStep",
    "ReActChatMessage",
    "ReActHistoryFormatter",
    "make_user_message",
]
