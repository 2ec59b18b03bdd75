"""The names of Langroid's module `langroid.agent.xml_tool_message`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.xml_tool_message import XMLToolMessage

__all__ = ["XMLToolMessage"]
