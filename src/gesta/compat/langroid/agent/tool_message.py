"""The names of Langroid's module `langroid.agent.tool_message`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.tool_message import LLMFunctionSpec, ToolMessage

__all__ = ["LLMFunctionSpec", "ToolMessage"]
