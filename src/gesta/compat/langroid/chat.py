"""A chat agent answers messages in three ways: its own methods handle tools, its model speaks, a person speaks.

Each is one asynchronous function, with a synchronous door. What a response does is on record before it is given, so
a task that was broken off goes on in the middle of one: a model's answer is not bought again, a tool that has run is
not run again.
"""

import copy
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from anyio import to_thread

from gesta.compat.langroid import responding
from gesta.compat.langroid.chat_config import ChatAgentConfig
from gesta.compat.langroid.chat_document import USER_QUIT_STRINGS, ChatDocument, Entity
from gesta.compat.langroid.messages import Messages, Said
from gesta.compat.langroid.orchestration import AgentDoneTool, ForwardTool
from gesta.compat.langroid.tool_message import ToolForm
from gesta.compat.langroid.toolset import effect_of_class
from gesta.compat.langroid.working import RunContext
from gesta.entry import Entry
from gesta.kinds import ChatCompletionContent, CompactionContent, SystemContent, ToolCallContent, UserContent
from gesta.message import Message
from gesta.record.record import Record

__all__ = ["ChatAgent", "ChatAgentConfig", "ChatDocument", "Entity"]

ONE_TOOL = "Use ONE tool at a time: {name} was not carried out, and neither were the others."
QUOTED = re.compile("[\"'](.*)[\"']")
LITERAL = "literal"
"""Source of a person's words that are to be taken as they are: they were written in quotes."""
NO_SYSTEM = "SYSTEM:"
"""What a person writes before words that are the application's."""


class ChatAgent(Messages):
    """A handle on an agent and a run."""

    def __init__(
        self, config: ChatAgentConfig | None = None, *, record: Record | str | None = None, session: str = ""
    ) -> None:
        super().__init__(config, record=record, session=session)
        self.get_user_response: Callable[[str], str] | None = None
        """Asks a person; by default the console, where there is one."""

    # responders

    def entity_responders(self) -> list[tuple[Entity, Callable[[Said], ChatDocument | None]]]:
        """Return the responders, in the order in which they are asked."""
        return [
            (Entity.AGENT, self.agent_response),
            (Entity.LLM, self.llm_response),
            (Entity.USER, self.user_response),
        ]

    def entity_responders_async(self) -> list[tuple[Entity, Callable[[Said], Any]]]:
        """Return the responders, in the order in which they are asked."""
        return [
            (Entity.AGENT, self.agent_response_async),
            (Entity.LLM, self.llm_response_async),
            (Entity.USER, self.user_response_async),
        ]

    def agent_response(self, msg: Said = None) -> ChatDocument | None:
        """Handle the tools of a message; `None` where there is nothing to do."""
        return self.wait_for(lambda: self.agent_response_async(msg), "agent_response_async")

    async def agent_response_async(self, msg: Said = None) -> ChatDocument | None:
        """Handle the tools of a message; see `agent_response`."""
        if msg is None:
            return None
        doc = ChatDocument.from_str(msg) if isinstance(msg, str) else msg
        async with self.working() as context:
            results = [each for each in context.done if each.content.kind == "tool-result"]
            if not any(isinstance(each.content, ToolCallContent) for each in context.done) and not results:
                doc.tool_messages = doc.tool_messages or self.get_tool_messages(doc, all_tools=True)
                if doc.tool_messages and not self.get_tool_messages(doc) and not context.live.state.calls:
                    return None
                responding.call_of(context, doc)
            self._document = doc
            results += self._refused(context)
            results += await responding.handle(context, self.llm_tools_handled)
            made: ChatDocument | None = None
            if results:
                made = responding.answered(context, results, self.llm_tools_map, self.name)
            elif context.live.state.calls:
                return None
            else:
                made = self.to_ChatDocument(self.handle_message_fallback(doc))
            if made is not None:
                made.metadata.parent_id = doc.metadata.id
            return made

    def llm_response(self, message: Said = None) -> ChatDocument | None:
        """Have the model answer a message, or what is in the history; `None` where it has nothing to say."""
        return self.wait_for(lambda: self.llm_response_async(message), "llm_response_async")

    async def llm_response_async(self, message: Said = None) -> ChatDocument | None:
        """Have the model answer a message; see `llm_response`."""
        if not self.llm_can_respond(message):
            return None
        async with self.working() as context:
            if not any(isinstance(each.content, ChatCompletionContent) for each in context.done):
                if not context.done:
                    await self._take_in(context, message)
                context.done += await responding.ask(context)
            doc = responding.said(context, context.done, self.llm_tools_map, self.config.output_format)
            doc.metadata.sender_name = self.name
            if isinstance(message, ChatDocument):
                doc.metadata.parent_id = message.metadata.id
            empty = not (doc.content or doc.tool_messages or doc.oai_tool_calls or doc.metadata.calls)
            return None if empty else doc

    def user_response(self, msg: Said = None) -> ChatDocument | None:
        """Have a person answer; `None` where there is nobody, or nothing was said."""
        return self.wait_for(lambda: self.user_response_async(msg), "user_response_async")

    async def user_response_async(self, msg: Said = None) -> ChatDocument | None:
        """Have a person answer; see `user_response`."""
        if not self.user_can_respond(msg):
            return None
        async with self.working() as context:
            entry = next((each for each in context.done if each.content.kind in ("user", "system")), None)
            if entry is None:
                text = await self._asked(msg)
                if not text:
                    return None
                told = text.removeprefix(NO_SYSTEM).strip() if text.startswith(NO_SYSTEM) else None
                content = UserContent(value=text) if told is None else SystemContent(value=told)
                said = msg.metadata.id if isinstance(msg, ChatDocument) else ""
                entry = self._write(context, content, *responding.cause_of(said, context.live.log.run))
            sender = Entity.USER if entry.content.kind == "user" else Entity.SYSTEM
            doc = ChatDocument.from_str(getattr(entry.content, "value", ""))
            doc.metadata.sender, doc.metadata.id, doc.metadata.sender_name = sender, entry.id, self.name
            if (quoted := QUOTED.fullmatch(doc.content)) and quoted[1] in USER_QUIT_STRINGS:
                doc.content, doc.metadata.source = quoted[1], LITERAL
            return doc

    def user_can_respond(self, msg: Said = None) -> bool:
        """Return whether a person is asked: in an interactive agent, and where the message is for the user."""
        asked = self._context.interactive if self._context is not None else None
        return (self.interactive if asked is None else asked) or (
            isinstance(msg, ChatDocument) and msg.metadata.recipient == Entity.USER
        )

    def llm_can_respond(self, message: Said = None) -> bool:
        """Return whether the model answers: it has one, and the message holds no tool that the agent handles."""
        if self.config.llm is None:
            return False
        waits = isinstance(message, ChatDocument) and message.metadata.sender == Entity.LLM and message.metadata.calls
        return not waits and not (message is not None and self.get_tool_messages(message))

    def can_respond(self, message: Said = None) -> bool:
        """Return whether the agent answers at all: not where it has only tools that others handle."""
        tools = message is not None and self.has_tool_message_attempt(message)
        if self.config.respond_tools_only and not tools:
            return False
        return not (message is not None and self.has_only_unhandled_tools(message))

    # handling

    def handle_message(self, msg: str | ChatDocument) -> Any:
        """Handle the tools of a message: None, a text, results by the id of their call, or a document."""
        doc = self.agent_response(msg)
        if doc is None:
            return None
        plain_text = doc.metadata.oai_tool_id and not doc.tool_messages and not doc.metadata.recipient
        if doc.oai_tool_id2result and not doc.content:
            return doc.oai_tool_id2result
        return doc.content if plain_text or doc.oai_tool_id2result else doc

    def handle_tool_message(self, tool: ToolForm, chat_doc: ChatDocument | None = None) -> Any:
        """Handle one tool message; see `handle_message`."""
        doc = self.response_template(Entity.LLM, tool_messages=[tool])
        doc.metadata.parent_id = chat_doc.metadata.id if chat_doc is not None else ""
        return self.handle_message(doc)

    def handle_message_fallback(self, msg: ChatDocument) -> Any:
        """Answer a message without tools; override it, or set `handle_llm_no_tool`."""
        answer = self.config.handle_llm_no_tool
        if answer is None or msg.metadata.sender != Entity.LLM or self.has_tool_message_attempt(msg):
            return None
        if answer == "user":
            return ForwardTool(agent="User")
        if answer == "done":
            return AgentDoneTool(content=msg.content, tools=msg.tool_messages)
        return answer(msg) if callable(answer) and not isinstance(answer, ToolForm) else answer

    # the rest

    def init_state(self) -> None:
        """Forget what was said."""
        self.init_message_history()

    async def llm_response_forget_async(self, message: str) -> ChatDocument | None:
        """Have the model answer a message, and hide both from its history."""
        async with self.working() as context:
            head = context.live.log.journal.head
            doc = await self.llm_response_async(message)
            context.done = []
            self._write(context, CompactionContent(from_seq=head + 1, to_seq=context.live.log.journal.head))
            return doc

    def llm_response_forget(self, message: str) -> ChatDocument | None:
        """Have the model answer a message, and hide both from its history."""
        return self.wait_for(lambda: self.llm_response_forget_async(message), "llm_response_forget_async")

    async def llm_response_messages_async(self, messages: Sequence[Message]) -> ChatDocument | None:
        """Have the model answer a list of messages, in a run beside its own; the first may be a system message."""
        other, calls = self.clone(0), dict[str, int]()
        other.config = msgspec.structs.replace(self.settings, name=f"{self.name}-messages")
        if messages and messages[0].role == "system":
            other.config.system_message = messages[0].text
            messages = messages[1:]
        await other.clear_history_async(1)
        async with other.working() as context:
            for message in messages:
                other.put(context, message, calls)
            context.done = await responding.ask(context)
            return responding.said(context, context.done, other.llm_tools_map, other.config.output_format)

    def llm_response_messages(self, messages: Sequence[Message]) -> ChatDocument | None:
        """Have the model answer a list of messages; see `llm_response_messages_async`."""
        return self.wait_for(lambda: self.llm_response_messages_async(messages), "llm_response_messages_async")

    def clone(self, i: int = 0) -> "ChatAgent":
        """Return an agent like this, with tools of its own and no history, named `name-i`."""
        other = copy.copy(self)
        other.config = msgspec.structs.replace(self.config, name=f"{self.name}-{i}")
        other.own_tools()
        other.leave()
        return other

    async def _take_in(self, context: RunContext, message: Said) -> None:
        """Write what the model is to answer; without a message, what begins the conversation or nothing new."""
        if isinstance(message, ChatDocument):
            responding.take_in_document(context, message)
        elif message is not None:
            self._write(context, UserContent(value=message))
        elif not context.live.state.answered and self.settings.user_message:
            self._write(context, SystemContent(value=self.settings.user_message, source=[self.name]))
        elif shown := await self._shown(context):
            last = shown[-1]
            if last.role == "assistant" and not last.calls:  # it is to be said anew
                self._write(context, CompactionContent(from_seq=min(last.sources), to_seq=max(last.sources)))

    async def _asked(self, msg: Said) -> str:
        """Ask a person; a text in quotes is taken as it is, so that `"q"` can be said too."""
        given = self._context.default_human_response if self._context is not None else None
        given = self.default_human_response if given is None else given
        if given is not None:
            return given
        if self.get_user_response is not None:
            text = await to_thread.run_sync(self.get_user_response, str(msg or ""))
        elif self.has_console():
            text = await to_thread.run_sync(input, f"{msg}\n{self.config.human_prompt}")
        else:
            text = ""
        return text.strip()

    def has_console(self) -> bool:
        """Return whether a person sits at the terminal."""
        return sys.stdin is not None and sys.stdin.isatty()

    def _refused(self, context: RunContext) -> list[Entry]:
        """Refuse calls that may not be made together: several where one is allowed, or one that steers the task."""
        calls = list(context.live.state.calls.values())
        steers = [call for call in calls if effect_of_class(self.llm_tools_map.get(call.name, type(None))) is not None]
        if len(calls) > 1 and (steers or not self.config.allow_multiple_tools):
            return responding.refuse(context, calls, ONE_TOOL)
        return []
