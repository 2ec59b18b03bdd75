"""The names of Langroid's module `langroid.agent.tools.task_tool`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.task_tool import TaskTool

__all__ = ["TaskTool"]
