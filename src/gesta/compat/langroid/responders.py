"""An agent responds to a message in three ways: its methods handle tools, its model answers, or a person answers.

A tool message is a tool call as data; to handle a tool means to run the method that the call names. Each way of
responding has an asynchronous method and a synchronous twin, which a subclass or a program may replace. Messages are
documents, with a sender and a recipient. A document is tainted if it has text from outside. Each answer is recorded
before its method returns. So an interrupted task continues in the middle of a response: a recorded reply of the model
is not requested again, and a recorded tool call is not run again.
"""

import copy
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from textwrap import indent
from typing import Any, Self

import msgspec
from anyio import to_thread

from gesta.compat.langroid import responding
from gesta.compat.langroid.callbacks import Callbacks, heard, told
from gesta.compat.langroid.chat_config import AgentConfig, ChatAgentConfig
from gesta.compat.langroid.chat_document import USER_QUIT_STRINGS, ChatDocument, Entity
from gesta.compat.langroid.messages import Messages, Said, derived
from gesta.compat.langroid.orchestration import AgentDoneTool, ForwardTool
from gesta.compat.langroid.overriding import RESPONDERS, called, nearest_twin, overrides, restart
from gesta.compat.langroid.signals import NO_ANSWER
from gesta.compat.langroid.tool_message import ToolForm
from gesta.compat.langroid.toolset import effect_of_class, shortened
from gesta.compat.langroid.working import RunContext
from gesta.entry import Entry
from gesta.formatters.tool_calls import UNANSWERED
from gesta.kinds import SystemContent, ToolCallContent, UserContent
from gesta.model.request import Reply
from gesta.record.record import Record
from gesta.state.calls import OpenCall

ONE_TOOL = "Use ONE tool at a time: {name} was not carried out, and neither were the others."
QUOTED = re.compile("[\"'](.*)[\"']")
LITERAL = "literal"
"""The `source` of a document with a quit word that a person wrote in quotes, so that it does not end the task."""
OBSERVED = "Observation: "
"""The words before each tool result in a history whose tool calls the model writes as text."""
NO_SYSTEM = "SYSTEM:"
"""With this prefix, a person's answer becomes a system message."""


class Agent(Messages):
    """An agent whose model is shown only the current message. The model of a `ChatAgent` also sees earlier ones."""

    def __init__(
        self, config: AgentConfig | None = None, *, record: Record | str | None = None, session: str = ""
    ) -> None:
        if config is not None and not isinstance(config, ChatAgentConfig):
            config = ChatAgentConfig(**{name: getattr(config, name) for name in config.__struct_fields__})
        super().__init__(config, record=record, session=session)
        self.get_user_response: Callable[[str], str] | None = None
        """A function that asks a person; `None` to ask at the console, if there is one."""
        self.callbacks = Callbacks()
        """Functions that receive the agent's answers."""
        self._indent = ""
        restart(self)

    @property
    def indent(self) -> str:
        """The indentation of texts that are shown to a person at the console."""
        return self._indent

    @indent.setter
    def indent(self, value: str) -> None:
        self._indent = value

    # responders

    def entity_responders(self) -> list[tuple[Entity, Callable[[Said], Any]]]:
        """Return pairs of a responder (agent, model, user) and its method, in the order in which a task asks them."""
        return [(entity, getattr(self, name)) for entity, name in RESPONDERS.items()]

    def entity_responders_async(self) -> list[tuple[Entity, Callable[[Said], Any]]]:
        """Return pairs of a responder (agent, model, user) and its asynchronous method; see `entity_responders`."""
        return [(entity, getattr(self, f"{name}_async")) for entity, name in RESPONDERS.items()]

    def agent_response(self, msg: Said = None) -> ChatDocument | None:
        """Handle the tools in a message, and return the agent's answer; `None` if there is nothing to answer."""
        return self.wait_for(lambda: self.agent_response_async(msg), "agent_response_async")

    async def agent_response_async(self, msg: Said = None) -> ChatDocument | None:
        """Handle the tools in a message, and return the agent's answer or `None`; see `agent_response`."""
        if msg is None:
            return None
        doc = ChatDocument.from_str(msg) if isinstance(msg, str) else msg
        if overrides(self, "handle_message", "handle_message_async"):
            value = await called(getattr(self, nearest_twin(self, "handle_message")), doc)
            made = self.to_ChatDocument(value, chat_doc=doc)
        else:
            made = await self._handled(doc)
        if made is not None:
            told(self.callbacks.show_agent_response, made.content, is_tool=bool(made.tool_messages))
        return None if made is None else derived(made, doc)

    async def _handled(self, doc: ChatDocument, shown: ChatDocument | None = None) -> ChatDocument | None:
        """Run the tools in a document, and return the results. Without a tool, return what `_unhandled` returns.

        Return `None` if the tools are those of other agents, or still wait. Handlers are given `shown`, else `doc`.
        """
        async with self.working() as context:
            results = [each for each in context.done if each.content.kind == "tool-result"]
            mine = responding.is_own(context, doc)
            tools = self.get_tool_messages(doc)
            if not any(isinstance(each.content, ToolCallContent) for each in context.done) and not results:
                others = self.get_tool_messages(doc, all_tools=True)
                if others and not tools and not (mine and context.live.state.calls):
                    return None
                responding.call_of(context, doc, [] if mine else tools)
            self._document = shown or doc
            calls = responding.open_calls(context, mine=mine)
            bad = [call.name for call in calls if not call.good and call.name in self.llm_tools_usable]
            results += self._refused(context, calls)
            context.handling = True
            try:
                results += await responding.handle(context, self.llm_tools_handled, mine=mine)
            finally:
                context.handling = False
            if results:
                ids = None if mine else self._call_ids(doc, tools)
                made = responding.answered(context, results, self.llm_tools_map, self.name, ids)
                if self.config.strict_recovery and len(results) == 1 and bad:
                    made.oai_tool_choice = {"type": "function", "function": {"name": bad[0]}}
                return made
            return None if responding.open_calls(context, mine=mine) else await self._unhandled(doc)

    async def _unhandled(self, doc: ChatDocument) -> ChatDocument | None:
        """Return a text that tells the model which of its tool messages are invalid, and why.

        If none is invalid, return the answer of `handle_message_fallback`, which may be `None`.
        """
        wrong = self._attempts_in(doc) if doc.metadata.sender == Entity.LLM else []
        problems = [each.problem for each in wrong if each.problem]
        if problems:
            return self.create_agent_response("\n\n".join(problems))
        method, own = self.handle_message_fallback, overrides(self, "handle_message_fallback")
        return self.to_ChatDocument(await called(method, doc) if own else method(doc), chat_doc=doc)

    def llm_response(self, msg: Said = None) -> ChatDocument | None:
        """Return the model's answer; `None` if there is none. Later requests contain neither `msg` nor the answer."""
        return self.wait_for(lambda: self.llm_response_async(msg), "llm_response_async")

    async def llm_response_async(self, msg: Said = None) -> ChatDocument | None:
        """Return the model's answer to a message; `None` if there is no answer. See `llm_response`."""
        if self._context is not None and self._context.handling:
            return await self._spoken(msg)
        async with self.working() as context:
            head = context.live.log.journal.head
            doc = await self._spoken(msg)
            context.done = []
            self._hide(context, head + 1, context.live.log.journal.head)
            return doc

    async def _spoken(self, message: Said) -> ChatDocument | None:
        """Return the model's answer to a message or, without one, to the history; `None` if there is no answer."""
        if not self.llm_can_respond(message):
            return None
        async with self.working() as context:
            if not context.done:
                await self._take_in(context, message)
            choice = message.oai_tool_choice if isinstance(message, ChatDocument) else "auto"
            with heard(self.callbacks, context.live):
                context.done += await responding.ask(context, choice)
            doc = responding.said(context, context.done, self.llm_tools_map)
            streamed = self.callbacks.start_llm_stream is not None
            show = self.callbacks.finish_llm_stream if streamed else self.callbacks.show_llm_response
            told(show, doc.content, is_tool=self.has_tool_message_attempt(doc))
            await self._shorten(context)
            doc.metadata.sender_name = self.name
            if isinstance(message, ChatDocument):
                doc.metadata.parent_id = message.metadata.id
            empty = not (doc.content or doc.tool_messages or doc.oai_tool_calls or doc.metadata.calls)
            if empty and doc.metadata.finish_reason == "content_filter":
                doc.content = self.config.content_filter_message or ""
            return None if empty and not doc.content else doc

    def _render_llm_response(self, response: ChatDocument, citation_only: bool = False) -> None:  # noqa: FBT001, FBT002
        """Pass an answer to the callback `show_llm_response`. With `citation_only`, do nothing."""
        if not citation_only:
            is_tool = self.has_tool_message_attempt(response)
            told(self.callbacks.show_llm_response, response.content, is_tool=is_tool)

    def user_response(self, msg: Said = None) -> ChatDocument | None:
        """Return a person's answer; `None` if no person can be asked or the answer is empty."""
        return self.wait_for(lambda: self.user_response_async(msg), "user_response_async")

    async def user_response_async(self, msg: Said = None) -> ChatDocument | None:
        """Return a person's answer; `None` if there is none. See `user_response`."""
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
            doc.metadata.tainted = sender == Entity.USER
            if isinstance(msg, ChatDocument):
                doc.metadata.parent_id = msg.metadata.id
            if (quoted := QUOTED.fullmatch(doc.content)) and quoted[1] in USER_QUIT_STRINGS:
                doc.content, doc.metadata.source = quoted[1], LITERAL
            return doc

    def user_can_respond(self, msg: Said = None) -> bool:
        """Return whether a person is asked: the agent is interactive, or the message is addressed to the user."""
        asked = self._context.interactive if self._context is not None else None
        return (self.interactive if asked is None else asked) or (
            isinstance(msg, ChatDocument) and msg.metadata.recipient == Entity.USER
        )

    def llm_can_respond(self, message: Said = None) -> bool:
        """Return whether the model may answer: the agent has a model, and all tools in the message were handled."""
        if self.config.llm is None:
            return False
        if isinstance(message, ChatDocument) and message.metadata.sender in (Entity.LLM, Entity.AGENT):
            said = message.content or message.content_any is not None or message.oai_tool_id2result or message.files
            tools_alone = message.metadata.sender == Entity.AGENT and message.tool_messages and not said
            if message.metadata.calls or (tools_alone and not message.metadata.oai_tool_id):
                return False
        return not (message is not None and self.get_tool_messages(message))

    def can_respond(self, message: Said = None) -> bool:
        """Return whether the agent may answer: `False` if all tools in the message are for other recipients.

        With `respond_tools_only`, the agent answers only messages with tools.
        """
        tools = message is not None and self.has_tool_message_attempt(message)
        if self.config.respond_tools_only and not tools:
            return False
        return not (message is not None and self.has_only_unhandled_tools(message))

    # handling

    def handle_message(self, msg: str | ChatDocument) -> Any:
        """Run the tools in a message, and return the result; `None` without tools.

        The result is a text, a document, or a dict from call id to text.

        Args:
            msg: a text is trusted like the program itself, so it may call any tool that the agent handles, not only
                those that a model may use.
        """
        return self.wait_for(lambda: self.handle_message_async(msg), "handle_message_async")

    async def handle_message_async(self, msg: str | ChatDocument) -> Any:
        """Run the tools in a message; see `handle_message`."""
        return await self._handled_value(self.create_agent_response(msg) if isinstance(msg, str) else msg)

    async def _handled_value(self, doc: ChatDocument, shown: ChatDocument | None = None) -> Any:
        """Run the tools in a document, and return the result; see `handle_message` and `_handled`."""
        made = await self._handled(doc, shown)
        if made is None:
            return None
        doc = derived(made, doc)
        plain_text = not doc.tool_messages and not doc.metadata.recipient
        if doc.oai_tool_id2result and not doc.content:
            return doc.oai_tool_id2result
        return doc.content if plain_text or doc.oai_tool_id2result else doc

    def handle_tool_message(self, tool: ToolForm, chat_doc: ChatDocument | None = None) -> Any:
        """Run the handler of one tool message, which is given `chat_doc`; see `handle_message`."""
        doc = self.response_template(Entity.LLM, tool_messages=[tool])
        if chat_doc is not None:
            doc.metadata.parent_id, doc.metadata.tainted = chat_doc.metadata.id, chat_doc.metadata.tainted
        return self.wait_for(lambda: self._handled_value(doc, chat_doc), "handle_message_async")

    def handle_message_fallback(self, msg: ChatDocument) -> Any:
        """Return the answer to a message without tools: from a tool's fallback, else from `handle_llm_no_tool`."""
        if fallbacks := self.fallbacks():
            return fallbacks[-1](self, msg)
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
        """Hide earlier messages from the model. Called for each new agent and restart; a subclass may extend it."""
        if not self._begins:
            self.clear_history(1)

    def update_token_usage(
        self,
        response: Reply,
        prompt: Any,
        stream: bool,  # noqa: FBT001 - the names that users know
        chat: bool = True,  # noqa: FBT001, FBT002
        print_response_stats: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        """Do nothing: the entry of each reply already contains the usage that the provider reported."""

    def ask_agent(
        self,
        agent: "Agent",
        request: str,
        no_answer: str = NO_ANSWER,
        user_confirm: bool = True,  # noqa: FBT001, FBT002 - as above
    ) -> str | None:
        """Return another model's answer to `request`; `None` if a person refuses or the answer is `no_answer`.

        Args:
            agent: the agent whose model is asked.
            user_confirm: whether to ask a person first, if this agent is interactive.
        """
        if user_confirm and self.interactive:
            doc = self.user_response(f"May {agent.name} be asked? y/n\n{request}")
            if doc is None or not doc.content.lower().startswith("y"):
                return None
        answer = agent.llm_response(request)
        return None if answer is None or answer.content == no_answer else answer.content

    def clone(self, i: int = 0) -> Self:
        """Return a copy of the agent named `name-i`, with a set of tools and a history of its own."""
        other = copy.copy(self)
        other.config = msgspec.structs.replace(self.config, name=f"{self.name}-{i}")
        other.own_tools()
        other.leave()
        restart(other)
        return other

    async def _shorten(self, context: RunContext) -> None:
        """Shorten the tool results that the model has already seen, if their tools set `_max_retained_tokens`."""
        bounds = {name: cls._max_retained_tokens for name, cls in self.llm_tools_map.items()}
        if not any(bound is not None for bound in bounds.values()):
            return
        for message in await self._shown(context):
            bound, head = bounds.get(message.name or ""), OBSERVED if message.text.startswith(OBSERVED) else ""
            bound = None if UNANSWERED in message.text else bound  # the call has no result yet
            if bound is not None and (cut := head + shortened(message.text[len(head) :], bound)) != message.text:
                first, last = min(message.sources), max(message.sources)
                self._hide(context, first, last, cut)

    async def _take_in(self, context: RunContext, message: Said) -> None:
        """Write a message for the model into the run, after the configured user message if the history is empty.

        Without a message, hide the model's last answer if it is the last message, so that the model answers anew.
        """
        shown = await self._shown(context) if message is None or self.settings.user_message else []
        if not shown:
            self._write_user_message(context)
        if isinstance(message, ChatDocument):
            responding.take_in_answer(context, message)
            responding.take_in_document(context, message)
        elif message is not None:
            self._write(context, UserContent(value=message))
        elif shown:
            last = shown[-1]
            if last.role == "assistant" and not last.calls:  # the model shall answer again
                self._hide(context, min(last.sources), max(last.sources))

    async def _asked(self, msg: Said) -> str:
        """Return `default_human_response` if it is set, else a person's answer; empty if no person can be asked."""
        given = self._context.default_human_response if self._context is not None else None
        given = self.default_human_response if given is None else given
        if given is not None:
            return given
        shown = msg.content if isinstance(msg, ChatDocument) else str(msg or "")
        if self.callbacks.get_user_response is not None:
            text = await to_thread.run_sync(partial(self.callbacks.get_user_response, prompt=shown))
        elif self.get_user_response is not None:
            text = await to_thread.run_sync(self.get_user_response, shown)
        elif self.has_console():
            text = await to_thread.run_sync(input, indent(f"{shown}\n{self.config.human_prompt}", self._indent))
        else:
            text = ""
        return text.strip()

    def has_console(self) -> bool:
        """Return whether standard input is a terminal."""
        return sys.stdin is not None and sys.stdin.isatty()

    def _refused(self, context: RunContext, calls: Sequence[OpenCall]) -> list[Entry]:
        """Refuse several calls in one reply if only one is allowed. Return the entries of the errors.

        Only one call is allowed if a call ends or redirects the task, or if `allow_multiple_tools` is false.
        """
        steers = [call for call in calls if effect_of_class(self.llm_tools_map.get(call.name, type(None))) is not None]
        if len(calls) > 1 and (steers or not self.config.allow_multiple_tools):
            return responding.refuse(context, calls, ONE_TOOL)
        return []
