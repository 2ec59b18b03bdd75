"""A chat agent remembers its conversation: each request to its model contains the history of the agent's run.

A run is a list of entries, and a record is the store of all runs. Messages are passed as documents: a text with its
sender and recipient, and tool messages (tool calls as data).
"""

import copy
import os
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from gesta.compat.langroid import responding
from gesta.compat.langroid.chat_config import ChatAgentConfig
from gesta.compat.langroid.chat_document import ChatDocument, Entity
from gesta.compat.langroid.facts import facts_of
from gesta.compat.langroid.messages import Said
from gesta.compat.langroid.orchestration import AgentDoneTool, effect_of
from gesta.compat.langroid.responders import Agent
from gesta.compat.langroid.steering import steer
from gesta.compat.langroid.tool_message import ToolForm
from gesta.errors import GestaError
from gesta.kinds import AssistantContent
from gesta.message import Message
from gesta.record.record import Record

__all__ = ["ChatAgent", "ChatAgentConfig", "ChatDocument", "Entity"]


class ChatAgent(Agent):
    """An agent that remembers its conversation: its model is shown all earlier messages that are not hidden."""

    def __init__(
        self,
        config: ChatAgentConfig | None = None,
        task: Sequence[Message] | None = None,
        *,
        record: Record | str | None = None,
        session: str = "",
    ) -> None:
        self._lent: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        """Names of the tools that `set_output_format` enabled for the model, and of those it enabled for the agent."""
        super().__init__(config, record=record, session=session)
        for role, message in [(each.role, each.text) for each in task or ()]:
            if role == "system":
                self.config.system_message = message
            else:
                self.config.user_message = message

    def llm_response(self, message: Said = None) -> ChatDocument | None:
        """Return the model's answer to `message`; without a message, to the history. `None` if there is no answer."""
        return self.wait_for(lambda: self.llm_response_async(message), "llm_response_async")

    async def llm_response_async(self, message: Said = None) -> ChatDocument | None:
        """Return the model's answer to a message; `None` if there is no answer. See `llm_response`."""
        return await self._spoken(message)

    @staticmethod
    def from_id(id: str) -> "ChatAgent":
        """Raise GestaError: Gesta has no registry of agents, so a program must keep its own reference to the agent."""
        raise GestaError(f"No agent is kept under an id, found {id!r}. Keep the agent; its record has what it said.")

    def set_output_format(
        self,
        output_type: Any,
        force_tools: bool | None = None,  # noqa: FBT001 - the names that users know, here and below
        use: bool | None = None,  # noqa: FBT001
        handle: bool | None = None,  # noqa: FBT001
    ) -> None:
        """Set the type that the model's answers must have from now on; `None` allows any text.

        Args:
            output_type: a type, or a class of tool messages, in which case the model must use that tool.
            force_tools: whether the model must use the tool; true by default.
            use: whether the model may use the tool; true by default.
            handle: whether the agent runs the tool's handler when the model calls it; true by default.
        """
        self.llm_tools_usable -= self._lent[0]
        self.llm_tools_handled -= self._lent[1]
        self._lent, self.llm_tool_forced = (frozenset(), frozenset()), None
        self.config = msgspec.structs.replace(self.config, output_format=output_type)
        if isinstance(output_type, type) and issubclass(output_type, ToolForm):
            known = self.llm_tools_usable.copy(), self.llm_tools_handled.copy()
            name, forced = output_type.name(), force_tools is not False
            self.enable_message(
                output_type, name in known[0] or use is not False, name in known[1] or handle is not False, forced
            )
            self._lent = frozenset(self.llm_tools_usable - known[0]), frozenset(self.llm_tools_handled - known[1])

    async def rewind(self, doc: ChatDocument) -> None:
        """Replace an earlier message of the model, and hide all messages after it. `doc` contains the `RewindTool`.

        The histories of other agents do not change. If the model has written fewer messages than the tool's `n`,
        nothing is hidden, and `doc` gets a text that says so.
        """
        tool, doc.tool_messages = doc.tool_messages[0], []
        async with self.working() as context:
            own = [one for one in await self._shown(context) if one.role == "assistant" and one.sources]
            name = facts_of(type(tool)).name
            if own and (name in own[-1].text or name in {call.name for call in own[-1].calls}):
                own.pop()  # this message contains the call of the tool itself
            if tool.n > len(own):
                doc.content, doc.metadata.sender = (
                    f"You have said {len(own)} messages, so {tool.n} is none.",
                    Entity.AGENT,
                )
                return
            first, last = min(own[tool.n - 1].sources), context.live.log.journal.head
            hidden = self._hide(context, first, last)
            kept = self._write(context, AssistantContent(value=tool.content, history=True), hidden.seq)
            doc.content, doc.metadata.id, doc.metadata.oai_tool_id = tool.content, kept.id, ""

    def _steered(self, message: ToolForm, chat_doc: ChatDocument | None = None) -> ChatDocument:
        """Apply a steering message, such as `DoneTool`, to `chat_doc`, and return the new document.

        A message about an earlier text, such as `PassTool`, is applied to the history instead if `chat_doc` is `None`
        or contains a message of the same class.
        """
        doc, effect = self.create_agent_response(tool_messages=[message]), effect_of(message)
        assert effect is not None
        held = chat_doc is None or any(type(each) is type(message) for each in self.get_tool_messages(chat_doc))
        trail = [chat_doc] if chat_doc is not None else []
        if held and effect.gives in ("pending", "unsent"):
            trail = [ChatDocument.from_LLMMessage(each) for each in self.message_history[1:]]
        if chat_doc is not None:
            doc.metadata.parent_id, doc.metadata.tainted = chat_doc.metadata.id, chat_doc.metadata.tainted
        steer(doc, trail)
        if effect.gives == "rewind":
            self.wait_for(lambda: self.rewind(doc), "rewind")
        elif effect.ends:
            if effect.gives == "pending":
                message = AgentDoneTool(content=doc.content, tools=doc.tool_messages)
            doc.tool_messages = [message, *(() if effect.gives == "itself" else doc.tool_messages)]
        return doc

    def __getitem__(self, output_type: Any) -> Self:
        """Return a copy of the agent whose answers have this type, as in `agent[int]`. The copy shares the history."""
        other = copy.copy(self)
        other.own_tools()
        other.set_output_format(output_type)
        return other

    async def llm_response_forget_async(self, message: str) -> ChatDocument | None:
        """Return the model's answer to a message; `None` if there is none. Hide both from the history."""
        return await Agent.llm_response_async(self, message)

    def llm_response_forget(self, message: str) -> ChatDocument | None:
        """Return the model's answer to a message; `None` if there is none. Hide both from the history."""
        return self.wait_for(lambda: self.llm_response_forget_async(message), "llm_response_forget_async")

    async def _spoken(self, message: Said) -> ChatDocument | None:
        """Return the model's answer to a message or, without one, to the history; `None` if there is no answer.

        While a tool of this agent runs, the message and the answer are stored in a separate run. The agent's own
        history cannot be sent then: it contains a call without a result, which providers refuse.
        """
        context = self._context
        if context is None or not context.handling:
            return await super()._spoken(message)
        shown, calls = await self._shown(context), set(context.live.state.calls)
        known = next((place for place, one in enumerate(shown) if calls & {*one.sources}), len(shown))
        text = message.content if isinstance(message, ChatDocument) else message or ""
        asked = [Message(role="system", text=self.settings.system_message), *shown[:known]]
        return await self._beside([*asked, Message(role="user", text=text)], name=os.urandom(4).hex())

    async def llm_response_messages_async(
        self, messages: Sequence[Message], output_len: int | None = None, tool_choice: Any = "auto"
    ) -> ChatDocument | None:
        """Return the model's answer to `messages` instead of the history; `None` if there is no answer.

        The first message may be a system message. The answer is recorded in a run of its own.

        Args:
            output_len: longest answer in tokens; `None` for the provider's default.
            tool_choice: `auto`, `none`, `required`, or a specific tool.
        """
        return await self._beside(messages, output_len, tool_choice)

    async def _beside(
        self, messages: Sequence[Message], output_len: int | None = None, tool_choice: Any = "auto", name: str = ""
    ) -> ChatDocument | None:
        """Return the model's answer to a list of messages; `None` if there is no answer.

        A separate run, whose name ends with `name`, records it.
        """
        other, calls = self.clone(0), dict[str, int]()
        other.config = msgspec.structs.replace(
            self.settings, name="-".join(filter(None, [self.name, "messages", name]))
        )
        if output_len is not None:
            other.config.settings = other.config.settings | {"max_completion_tokens": output_len}
        if messages and messages[0].role == "system":
            other.config.system_message = messages[0].text
            messages = messages[1:]
        await other.clear_history_async(1)
        async with other.working() as context:
            for message in messages:
                other.put(context, message, calls)
            context.done += await responding.ask(context, tool_choice)
            return responding.said(context, context.done, other.llm_tools_map)

    def llm_response_messages(
        self, messages: Sequence[Message], output_len: int | None = None, tool_choice: Any = "auto"
    ) -> ChatDocument | None:
        """Return the model's answer to a list of messages, or `None`; see `llm_response_messages_async`."""
        return self.wait_for(
            lambda: self.llm_response_messages_async(messages, output_len, tool_choice), "llm_response_messages_async"
        )
