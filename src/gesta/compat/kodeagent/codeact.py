"""CodeAct: a message is a thought with code, or an answer; code is sent as a call of a pseudo tool."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gesta.compat.kodeagent.history import HistoryFormatter
from gesta.compat.kodeagent.models import ChatMessage
from gesta.formatters.codeact_text import CODE_ACT_PSEUDO_TOOL_NAME, code_of

__all__ = ["CODE_ACT_PSEUDO_TOOL_NAME", "CodeActHistoryFormatter"]


class CodeActHistoryFormatter(HistoryFormatter):
    """Formatter of CodeAct histories; a native call of a tool is shown as the code that calls it."""

    def should_format_as_tool_call(self, msg: ChatMessage) -> bool:
        """Return whether an assistant message has code. An answer, even an empty one, has no code."""
        coded = bool(getattr(msg, "code", None))
        return msg.role == "assistant" and coded and getattr(msg, "final_answer", None) is None

    def format_tool_call(self, msg: ChatMessage, state: dict[str, Any]) -> dict[str, Any]:
        """Make a tool call from code. As in KodeAgent, `state` does not note that a result is pending."""
        arguments = json.dumps({"code": getattr(msg, "code", None) or ""})
        return self._tool_call(msg, state, CODE_ACT_PSEUDO_TOOL_NAME, arguments)

    def view(self, msg: ChatMessage, args: Mapping[str, Any]) -> ChatMessage:
        """Return a message with its call as Python code. A message that has code is returned unchanged."""
        return msg if msg.code else msgspec.structs.replace(msg, code=code_of(str(msg.action), args))

    def _get_tool_call_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return {"_code": getattr(msg, "code", None)}

    def _get_extra_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return self._get_tool_call_metadata(msg)
