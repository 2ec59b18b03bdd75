"""Makes documents (messages with a sender and a recipient), and finds the tool messages in documents and texts.

A tool message is a tool call as data. A responder is an agent's own methods, its model, a person, or a sub-task. A
document is tainted if it contains words from outside, or was made from a tainted document. From a tainted document,
only tools that the model may use are read, so that nobody outside can start a tool that is meant for programs only.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partialmethod
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from gesta.compat.langroid.chat_document import (
    ChatDocMetaData,
    ChatDocument,
    Entity,
    LLMFunctionCall,
    OpenAIToolCall,
    from_ChatDocument,
    process_tool_results,
)
from gesta.compat.langroid.facts import facts_of
from gesta.compat.langroid.histories import Histories
from gesta.compat.langroid.tool_message import Attempt, ToolForm, address_in, arguments_of, attempt, attempts
from gesta.kinds import Part
from gesta.perform.call_contents import plain
from gesta.prompt import observation_text

P = ParamSpec("P")
R = TypeVar("R")
Said = str | ChatDocument | None


def _made_by(e: Entity, method: Callable[Concatenate[Any, Entity, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls `method` with the sender `e` as its first argument."""
    return cast("Callable[Concatenate[Any, P], R]", partialmethod(method, e))


class Messages(Histories):
    """Base class of chat agents: the methods that make documents and find tool messages."""

    def response_template(
        self,
        e: Entity,
        content: Any = None,
        content_any: Any = None,
        tool_messages: Sequence[ToolForm] = (),
        oai_tool_calls: list[OpenAIToolCall] | None = None,
        oai_tool_choice: str | dict[str, Any] = "auto",
        oai_tool_id2result: dict[str, str] | None = None,
        function_call: LLMFunctionCall | None = None,
        recipient: str = "",
        *,
        files: Sequence[Part] = (),
        tainted: bool = False,
    ) -> ChatDocument:
        """Return a new document whose sender is `e`. A document from a person is always tainted.

        Args:
            content: a text. Any other value is stored in `content_any`, and also converted to text.
            recipient: name of the responder that the document is for; empty for any responder.
            tainted: whether the document contains text from outside, although its sender is not a person.

        Each other argument becomes the document's member of the same name.
        """
        if content is not None and not isinstance(content, str):
            content, content_any = observation_text(plain(content)), content
        meta = ChatDocMetaData(
            sender=e,
            sender_name=self.name,
            recipient=recipient,
            tainted=tainted or e == Entity.USER,
            tools_from_agent=bool(tool_messages) and e != Entity.USER,
        )
        return ChatDocument(
            content=content or "",
            content_any=content_any,
            files=list(files),
            oai_tool_calls=oai_tool_calls,
            oai_tool_choice=oai_tool_choice,
            oai_tool_id2result=oai_tool_id2result,
            function_call=function_call,
            tool_messages=list(tool_messages),
            metadata=meta,
        )

    create_agent_response = _made_by(Entity.AGENT, response_template)
    """Returns a document whose sender is the agent."""
    create_llm_response = _made_by(Entity.LLM, response_template)
    """Returns a document whose sender is the model."""
    create_user_response = _made_by(Entity.USER, response_template)
    """Returns a document whose sender is a person."""

    def to_ChatDocument(  # noqa: N802 - the name that users know, here and below
        self,
        msg: Any,
        orig_tool_name: str | None = None,
        chat_doc: ChatDocument | None = None,
        author_entity: Entity = Entity.AGENT,
    ) -> ChatDocument | None:
        """Return the result of a responder or tool handler as a document. `None` and documents are returned unchanged.

        A tool message becomes the only member of `tool_messages`; any other value becomes the content.

        Args:
            msg: the result.
            orig_tool_name: ignored.
            chat_doc: the document that was responded to.
            author_entity: the sender of the new document.
        """
        del orig_tool_name  # not needed: the handler that returns a tool message knows its tool
        if msg is None or isinstance(msg, ChatDocument):
            return msg
        parent = chat_doc.metadata.id if chat_doc is not None else ""
        if isinstance(msg, ToolForm):
            doc = self.response_template(author_entity, tool_messages=[msg])
        else:
            doc = self.response_template(author_entity, msg)
        doc.metadata.parent_id = parent
        return doc

    def from_ChatDocument(self, msg: ChatDocument, output_type: Any) -> Any:  # noqa: N802
        """Return a value of `output_type` that a document contains; see `chat_document.from_ChatDocument`."""
        return from_ChatDocument(msg, output_type)

    def process_tool_results(
        self,
        results: str,
        id2result: Mapping[str, str] | None,
        tool_calls: Sequence[OpenAIToolCall] | None = None,
    ) -> tuple[str, dict[str, str] | None, str | None]:
        """Pair tool results with the calls that wait for them, by id; see `chat_document.process_tool_results`."""
        return process_tool_results(results, id2result, tool_calls)

    def get_tool_messages(self, msg: Said, all_tools: bool = False) -> list[ToolForm]:  # noqa: FBT001, FBT002
        """Return the tool messages in a message: those that this agent handles or, with `all_tools`, all of them."""
        if msg is None:
            return []
        if not isinstance(msg, ChatDocument):
            found = self.get_json_tool_messages(msg)
        else:
            found = msg.tool_messages or ([] if msg.metadata.calls else self._tools_in(msg))
        found = self._filter_user_origin_tools(msg, found)
        return [each for each in found if all_tools or self._is_mine(each)]

    def _filter_user_origin_tools(self, msg: Said, tools: Sequence[ToolForm]) -> list[ToolForm]:
        """Return `tools`, the tools of a message; if the message is tainted, only those that the model may use."""
        meta = msg.metadata if isinstance(msg, ChatDocument) else None
        outside = meta is not None and (meta.tainted or (meta.sender == Entity.USER and not meta.tools_from_agent))
        return [each for each in tools if not outside or facts_of(type(each)).name in self.llm_tools_usable]

    def _tools_in(self, msg: ChatDocument) -> list[ToolForm]:
        """Return the tool messages made from the calls in a document or, if it has no calls, from its text."""
        called = self.get_function_call_class(msg)
        native = self.get_oai_tool_calls_classes(msg) or ([called] if called is not None else [])
        return native or self.get_json_tool_messages(msg.content)

    def _attempts_in(self, msg: ChatDocument) -> list[Attempt]:
        """Return the calls of known tools in a document or, if it has no calls, in its text, valid or not."""
        calls = [*(call.function for call in msg.oai_tool_calls or ()), msg.function_call]
        native = [attempt(each.name, each.arguments or {}, self.llm_tools_map) for each in calls if each is not None]
        return [each for each in native or attempts(msg.content, self.llm_tools_map) if each.name in self.llm_tools_map]

    def get_json_tool_messages(self, input_str: str) -> list[ToolForm]:
        """Return the tool messages in a text, written as JSON or in a format that a tool defines."""
        return [one.tool for one in attempts(input_str, self.llm_tools_map) if one.tool is not None]

    get_formatted_tool_messages = get_json_tool_messages

    def get_function_call_class(self, msg: ChatDocument) -> ToolForm | None:
        """Return a document's `function_call` as a tool message; `None` if there is no such call, or it is invalid."""
        if msg.function_call is None:
            return None
        tried = attempt(msg.function_call.name, msg.function_call.arguments or {}, self.llm_tools_map)
        return tried.tool

    def get_oai_tool_calls_classes(self, msg: ChatDocument) -> list[ToolForm]:
        """Return the valid calls in a document's `oai_tool_calls` as tool messages."""
        calls = [call.function for call in msg.oai_tool_calls or ()]
        tried = [attempt(call.name, call.arguments or {}, self.llm_tools_map) for call in calls]
        return [one.tool for one in tried if one.tool is not None]

    def _call_ids(self, doc: ChatDocument, tools: Sequence[ToolForm]) -> list[str | None]:
        """Return the id in `doc.oai_tool_calls` of the call of each of `tools`; `None` for a tool that has no call."""
        left = [
            (call.id, attempt(call.function.name, call.function.arguments or {}, self.llm_tools_map).tool)
            for call in doc.oai_tool_calls or ()
        ]
        ids: list[str | None] = []
        for tool in tools:
            place = next((n for n, (_, made) in enumerate(left) if made == tool), None)
            ids.append(None if place is None else left.pop(place)[0])
        return ids

    def has_tool_message_attempt(self, msg: Said) -> bool:
        """Return whether a message tries to use a tool, even if the call is invalid."""
        if isinstance(msg, ChatDocument):
            if msg.tool_messages or msg.oai_tool_calls or msg.metadata.calls:
                return True
            return msg.metadata.sender == Entity.LLM and bool(attempts(msg.content, self.llm_tools_map))
        return msg is not None and bool(attempts(msg, self.llm_tools_map))

    def has_only_unhandled_tools(self, msg: Said) -> bool:
        """Return whether a message has tool messages, and this agent handles none of them."""
        return bool(self.get_tool_messages(msg, all_tools=True)) and not self.get_tool_messages(msg)

    def tool_validation_error(self, ve: Exception) -> str:
        """Return the text that tells the model which fields of its tool message are wrong."""
        return str(ve)

    def _is_mine(self, message: ToolForm) -> bool:
        """Return whether this agent handles a tool message, and the message names no other recipient."""
        name = facts_of(type(message)).name
        to = address_in(name, arguments_of(message), self.llm_tools_map)
        return name in self.llm_tools_handled and to in ("", self.name)


def derived(made: ChatDocument, doc: ChatDocument) -> ChatDocument:
    """Return `made` with `doc` as its parent. If `doc` is tainted (contains text from outside), so is `made`."""
    made.metadata.parent_id = doc.metadata.id or made.metadata.parent_id
    made.metadata.tainted |= doc.metadata.tainted
    return made
