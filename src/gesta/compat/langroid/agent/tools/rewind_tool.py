"""The names of Langroid's module `langroid.agent.tools.rewind_tool`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.orchestration import RewindTool

__all__ = ["RewindTool"]
