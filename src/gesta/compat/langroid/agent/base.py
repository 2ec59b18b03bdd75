"""The names of Langroid's module `langroid.agent.base`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.chat_config import AgentConfig
from gesta.compat.langroid.responders import Agent

__all__ = ["Agent", "AgentConfig"]
