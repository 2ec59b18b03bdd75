"""Names of `langroid.agent.chat_agent`."""

from gesta.compat.langroid.chat import ChatAgent
from gesta.compat.langroid.chat_config import ChatAgentConfig

__all__ = ["ChatAgent", "ChatAgentConfig"]
