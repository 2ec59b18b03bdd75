"""Names of `langroid.agent.xml_tool_message`."""

from gesta.compat.langroid.xml_tool_message import XMLToolMessage

__all__ = ["XMLToolMessage"]
