"""The names of Langroid's module `langroid.agent.chat_agent`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.chat import ChatAgent
from gesta.compat.langroid.chat_config import ChatAgentConfig

__all__ = ["ChatAgent", "ChatAgentConfig"]
