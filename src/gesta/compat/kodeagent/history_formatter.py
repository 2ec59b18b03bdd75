"""The names of KodeAgent's module `history_formatter`, so that programs only change the package they import from."""

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
