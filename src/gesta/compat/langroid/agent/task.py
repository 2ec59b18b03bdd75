"""The names of Langroid's module `langroid.agent.task`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.chat_config import Responder, TaskConfig
from gesta.compat.langroid.done_sequences import AgentEvent, DoneSequence, EventType
from gesta.compat.langroid.task import Task

__all__ = ["AgentEvent", "DoneSequence", "EventType", "Responder", "Task", "TaskConfig"]
