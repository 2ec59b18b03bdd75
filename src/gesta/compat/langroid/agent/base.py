"""Names of `langroid.agent.base`."""

from gesta.compat.langroid.chat_config import AgentConfig
from gesta.compat.langroid.responders import Agent

__all__ = ["Agent", "AgentConfig"]
