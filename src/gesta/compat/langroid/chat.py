"""A chat agent remembers: its model is asked with all that was said in its run."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gesta.compat.langroid import responding
from gesta.compat.langroid.chat_config import ChatAgentConfig
from gesta.compat.langroid.chat_document import ChatDocument, Entity
from gesta.compat.langroid.messages import Said
from gesta.compat.langroid.responders import Agent
from gesta.errors import GestaError
from gesta.message import Message
from gesta.record.record import Record

__all__ = ["ChatAgent", "ChatAgentConfig", "ChatDocument", "Entity"]


class ChatAgent(Agent):
    """A handle on an agent and a run."""

    def __init__(
        self,
        config: ChatAgentConfig | None = None,
        task: Sequence[Message] | None = None,
        *,
        record: Record | str | None = None,
        session: str = "",
    ) -> None:
        super().__init__(config, record=record, session=session)
        for role, message in [(each.role, each.text) for each in task or ()]:
            if role == "system":
                self.config.system_message = message
            else:
                self.config.user_message = message

    def llm_response(self, message: Said = None) -> ChatDocument | None:
        """Have the model answer a message, or what is in the history; `None` where it has nothing to say."""
        return self.wait_for(lambda: self.llm_response_async(message), "llm_response_async")

    async def llm_response_async(self, message: Said = None) -> ChatDocument | None:
        """Have the model answer a message; see `llm_response`."""
        return await self._spoken(message)

    @staticmethod
    def from_id(id: str) -> "ChatAgent":
        """Raise GestaError: agents are not registered, and the record has what they said."""
        raise GestaError(f"No agent is kept under an id, found {id!r}. Keep the agent; its record has what it said.")

    async def llm_response_forget_async(self, message: str) -> ChatDocument | None:
        """Have the model answer a message, and hide both from its history."""
        return await Agent.llm_response_async(self, message)

    def llm_response_forget(self, message: str) -> ChatDocument | None:
        """Have the model answer a message, and hide both from its history."""
        return self.wait_for(lambda: self.llm_response_forget_async(message), "llm_response_forget_async")

    async def llm_response_messages_async(
        self, messages: Sequence[Message], output_len: int | None = None, tool_choice: Any = "auto"
    ) -> ChatDocument | None:
        """Have the model answer a list of messages, in a run beside its own; the first may be a system message.

        Args:
            output_len: longest answer in tokens; `None` for the provider's default.
            tool_choice: `auto`, `none`, `required`, or a specific tool.
        """
        other, calls = self.clone(0), dict[str, int]()
        other.config = msgspec.structs.replace(self.settings, name=f"{self.name}-messages")
        if output_len is not None:
            other.config.settings = other.config.settings | {"max_completion_tokens": output_len}
        if messages and messages[0].role == "system":
            other.config.system_message = messages[0].text
            messages = messages[1:]
        await other.clear_history_async(1)
        async with other.working() as context:
            for message in messages:
                other.put(context, message, calls)
            context.done = await responding.ask(context, tool_choice)
            return responding.said(context, context.done, other.llm_tools_map, other.config.output_format)

    def llm_response_messages(
        self, messages: Sequence[Message], output_len: int | None = None, tool_choice: Any = "auto"
    ) -> ChatDocument | None:
        """Have the model answer a list of messages; see `llm_response_messages_async`."""
        return self.wait_for(
            lambda: self.llm_response_messages_async(messages, output_len, tool_choice), "llm_response_messages_async"
        )
