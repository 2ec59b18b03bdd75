"""ReAct: each assistant message is a thought with either an action and its arguments, or an answer.

An action is sent to the model as a tool call.
"""

from typing import Any

from gesta.compat.kodeagent.history import HistoryFormatter
from gesta.compat.kodeagent.kutils import sound_args
from gesta.compat.kodeagent.models import FINISH, ChatMessage


class ReActHistoryFormatter(HistoryFormatter):
    """Makes the messages for the model of a ReAct agent."""

    def should_format_as_tool_call(self, msg: ChatMessage) -> bool:
        """Return whether an assistant message has an action and no answer. An empty answer counts as an answer."""
        action, args = getattr(msg, "action", None), getattr(msg, "args", None)
        called = bool(action) and not (action == FINISH and args is None)
        return msg.role == "assistant" and called and getattr(msg, "final_answer", None) is None

    def format_tool_call(self, msg: ChatMessage, state: dict[str, Any]) -> dict[str, Any]:
        """Return a message that calls the action's tool. In `state`, note the call's id and that its result is due."""
        made = self._tool_call(msg, state, str(msg.action), sound_args(getattr(msg, "args", None)))
        state["pending_tool_call"] = True
        return made

    def _get_tool_call_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return {"_action": getattr(msg, "action", None), "_args": getattr(msg, "args", None)}

    def _get_final_answer_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return {"_action": getattr(msg, "action", None) or FINISH}

    def _get_extra_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return self._get_tool_call_metadata(msg)
