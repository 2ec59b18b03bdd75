"""Names of `langroid.agent.tools.rewind_tool`."""

from gesta.compat.langroid.orchestration import RewindTool

__all__ = ["RewindTool"]
