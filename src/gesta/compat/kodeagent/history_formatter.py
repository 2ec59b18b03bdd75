"""The names of `kodeagent.history_formatter`, in a module of that name."""

from gesta.compat.kodeagent.codeact import CODE_ACT_PSEUDO_TOOL_NAME, CodeActHistoryFormatter
from gesta.compat.kodeagent.history import HistoryFormatter
from gesta.compat.kodeagent.llm_message import LLMMessage
from gesta.compat.kodeagent.react import ReActHistoryFormatter

__all__ = [
    "CODE_ACT_PSEUDO_TOOL_NAME",
    "CodeActHistoryFormatter",
    "HistoryFormatter",
    "LLMMessage",
    "ReActHistoryFormatter",
]
