"""What a message between responders is made of, and which tools are in it.

Tools are read once, where the message is made: of a model's, with its calls. Text that a person sends has only tools
that the model may use too, so nobody outside can set off one that is for programs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gesta.compat.langroid.chat_document import (
    ChatDocMetaData,
    ChatDocument,
    Entity,
    OpenAIToolCall,
    from_ChatDocument,
    process_tool_results,
)
from gesta.compat.langroid.facts import facts_of
from gesta.compat.langroid.histories import Histories
from gesta.compat.langroid.tool_message import ToolForm, address_in, arguments_of, attempt, attempts, to_json
from gesta.perform.result import plain
from gesta.prompt.formatter import observation_text

Said = str | ChatDocument | None


class Messages(Histories):
    """A chat agent's messages."""

    def response_template(self, e: Entity, content: Any = None, **fields: Any) -> ChatDocument:
        """Make a document as if it came from an entity; `fields` are those of a `ChatDocument`, and `recipient`."""
        recipient, tainted = fields.pop("recipient", ""), fields.pop("tainted", False)
        value = fields.pop("content_any", None)
        if content is not None and not isinstance(content, str):
            content, value = observation_text(plain(content)), content
        meta = ChatDocMetaData(
            sender=e,
            sender_name=self.name,
            recipient=recipient,
            tainted=tainted,
            tools_from_agent=e != Entity.USER,
        )
        return ChatDocument(content=content or "", content_any=value, metadata=meta, **fields)

    def create_agent_response(self, content: Any = None, **fields: Any) -> ChatDocument:
        """Make a document as if it came from the agent; see `response_template`."""
        return self.response_template(Entity.AGENT, content, **fields)

    def create_llm_response(self, content: Any = None, **fields: Any) -> ChatDocument:
        """Make a document as if it came from the model; see `response_template`."""
        return self.response_template(Entity.LLM, content, **fields)

    def create_user_response(self, content: Any = None, **fields: Any) -> ChatDocument:
        """Make a document as if it came from a person; see `response_template`."""
        return self.response_template(Entity.USER, content, **fields)

    def to_ChatDocument(  # noqa: N802 - the name that users know, here and below
        self,
        msg: Any,
        orig_tool_name: str | None = None,
        chat_doc: ChatDocument | None = None,
        author_entity: Entity = Entity.AGENT,
    ) -> ChatDocument | None:
        """Make a document of what a responder or handler gave; a tool message goes along as itself."""
        del orig_tool_name  # a tool's own message is told by the handler that returns it
        if msg is None or isinstance(msg, ChatDocument):
            return msg
        parent = chat_doc.metadata.id if chat_doc is not None else ""
        if isinstance(msg, ToolForm):
            doc = self.response_template(author_entity, to_json(msg), tool_messages=[msg])
        else:
            doc = self.response_template(author_entity, msg)
        doc.metadata.parent_id = parent
        return doc

    def from_ChatDocument(self, msg: ChatDocument, output_type: Any) -> Any:  # noqa: N802
        """Find a value of a type in a document; see `gesta.compat.langroid.chat_document`."""
        return from_ChatDocument(msg, output_type)

    def process_tool_results(
        self,
        results: str,
        id2result: Mapping[str, str] | None,
        tool_calls: Sequence[OpenAIToolCall] | None = None,
    ) -> tuple[str, dict[str, str] | None, str | None]:
        """Pair what came of tools with calls; see `gesta.compat.langroid.chat_document`."""
        return process_tool_results(results, id2result, tool_calls)

    def get_tool_messages(self, msg: Said, all_tools: bool = False) -> list[ToolForm]:  # noqa: FBT001, FBT002
        """Return the tool messages of a message: those that this agent handles and that are for it, or all."""
        if msg is None:
            return []
        if isinstance(msg, ChatDocument):
            own = msg.metadata.sender == Entity.USER and not msg.metadata.tools_from_agent and not msg.tool_messages
            found = msg.tool_messages or ([] if msg.metadata.calls else self.get_json_tool_messages(msg.content))
            found = [each for each in found if not own or facts_of(type(each)).name in self.llm_tools_usable]
        else:
            found = self.get_json_tool_messages(msg)
        return [each for each in found if all_tools or self._is_mine(each)]

    def get_json_tool_messages(self, input_str: str) -> list[ToolForm]:
        """Return the tool messages that stand in a text as JSON."""
        return [one.tool for one in attempts(input_str, self.llm_tools_map) if one.tool is not None]

    get_formatted_tool_messages = get_json_tool_messages

    def get_function_call_class(self, msg: ChatDocument) -> ToolForm | None:
        """Return the tool message of a function call in the older form, if it is one."""
        if msg.function_call is None:
            return None
        tried = attempt(msg.function_call.name, msg.function_call.arguments or {}, self.llm_tools_map)
        return tried.tool

    def get_oai_tool_calls_classes(self, msg: ChatDocument) -> list[ToolForm]:
        """Return the tool messages of the native calls in a document."""
        calls = [call.function for call in msg.oai_tool_calls or ()]
        tried = [attempt(call.name, call.arguments or {}, self.llm_tools_map) for call in calls]
        return [one.tool for one in tried if one.tool is not None]

    def has_tool_message_attempt(self, msg: Said) -> bool:
        """Return whether a message tries to use a tool, well or badly."""
        if isinstance(msg, ChatDocument):
            if msg.tool_messages or msg.oai_tool_calls or msg.metadata.calls:
                return True
            return msg.metadata.sender == Entity.LLM and bool(attempts(msg.content, self.llm_tools_map))
        return msg is not None and bool(attempts(msg, self.llm_tools_map))

    def has_only_unhandled_tools(self, msg: Said) -> bool:
        """Return whether a message has tools, but no tool that this agent handles."""
        return bool(self.get_tool_messages(msg, all_tools=True)) and not self.get_tool_messages(msg)

    def tool_validation_error(self, ve: Exception) -> str:
        """Return the text that tells the model which fields of a tool message are wrong, and to send it again."""
        return str(ve)

    def _is_mine(self, message: ToolForm) -> bool:
        """Return whether this agent handles a message, and it is for nobody else."""
        name = facts_of(type(message)).name
        to = address_in(name, arguments_of(message), self.llm_tools_map)
        return name in self.llm_tools_handled and to in ("", self.name)
