"""Names of `langroid.agent.tool_message`."""

from gesta.compat.langroid.tool_message import LLMFunctionSpec, ToolMessage

__all__ = ["LLMFunctionSpec", "ToolMessage"]
