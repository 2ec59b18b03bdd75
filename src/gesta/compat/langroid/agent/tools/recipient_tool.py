"""Names of `langroid.agent.tools.recipient_tool`."""

from gesta.compat.langroid.orchestration import RecipientTool

__all__ = ["RecipientTool"]
