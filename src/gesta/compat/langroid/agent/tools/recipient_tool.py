"""Names of `langroid.agent.tools.recipient_tool`."""

from gesta.compat.langroid.orchestration import AddRecipientTool, RecipientTool

__all__ = ["AddRecipientTool", "RecipientTool"]
