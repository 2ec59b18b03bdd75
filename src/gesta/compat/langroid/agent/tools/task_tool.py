"""Names of `langroid.agent.tools.task_tool`."""

from gesta.compat.langroid.task_tool import TaskTool

__all__ = ["TaskTool"]
