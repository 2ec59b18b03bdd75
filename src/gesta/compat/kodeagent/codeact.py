"""CodeAct: each assistant message is a thought with either code or an answer.

Code is sent to the model as a call of a pseudo tool, whose only argument is the code.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gesta.compat.kodeagent.history import HistoryFormatter
from gesta.compat.kodeagent.models import ChatMessage
from gesta.formatters.codeact_text import CODE_ACT_PSEUDO_TOOL_NAME, code_of

__all__ = ["CODE_ACT_PSEUDO_TOOL_NAME", "CodeActHistoryFormatter"]


class CodeActHistoryFormatter(HistoryFormatter):
    """Makes the messages for the model of a CodeAct agent. Calls of real tools are shown as Python code."""

    def should_format_as_tool_call(self, msg: ChatMessage) -> bool:
        """Return whether an assistant message has code and no answer. An empty answer counts as an answer."""
        coded = bool(getattr(msg, "code", None))
        return msg.role == "assistant" and coded and getattr(msg, "final_answer", None) is None

    def format_tool_call(self, msg: ChatMessage, state: dict[str, Any]) -> dict[str, Any]:
        """Return a message that calls the pseudo tool with the code of `msg`. Store the id of the call in `state`."""
        arguments = json.dumps({"code": getattr(msg, "code", None) or ""})
        return self._tool_call(msg, state, CODE_ACT_PSEUDO_TOOL_NAME, arguments)

    def view(self, msg: ChatMessage, args: Mapping[str, Any]) -> ChatMessage:
        """Return a message whose tool call is written as Python code. A message that has code is returned unchanged.

        Args:
            args: the arguments of the tool call.
        """
        return msg if msg.code else msgspec.structs.replace(msg, code=code_of(str(msg.action), args))

    def _get_tool_call_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return {"_code": getattr(msg, "code", None)}

    def _get_extra_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return self._get_tool_call_metadata(msg)
