"""The names of Langroid's module `langroid.agent.tools.recipient_tool`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.orchestration import AddRecipientTool, RecipientTool

__all__ = ["AddRecipientTool", "RecipientTool"]
