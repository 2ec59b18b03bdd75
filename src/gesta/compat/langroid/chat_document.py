"""A chat document is a message from one responder of a task to the next, with its sender and its recipient.

A tool message is a tool call as data. A responder is an agent's own methods, its model, a person, or a sub-task. The id
of a document is the id of its entry in the record (the store of all runs), so Gesta needs no registry of documents.
Providers require one result for each tool call, so `to_LLMMessage` makes one for each waiting call, even if the
document contains none for that call. `to_state` converts a document to JSON values, and `from_state` converts these
back.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct, field

from gesta.compat.langchain.steps import UNANSWERED
from gesta.compat.langroid.entities import Entity, LLMFunctionCall, LLMMessage, OpenAIToolCall, StatusCode
from gesta.compat.langroid.facts import fits, shaped
from gesta.compat.langroid.message_states import message_of, message_state
from gesta.compat.langroid.signals import (
    AT,
    DONE,
    NO_ANSWER,
    PASS,
    PASS_TO,
    SEND_TO,
    USER_QUIT_STRINGS,
    parse_recipient,
)
from gesta.compat.langroid.task_log import LogFields
from gesta.compat.langroid.tool_message import ToolForm, address_in, to_json, values_of
from gesta.kinds import Part
from gesta.message import Call, Message
from gesta.model.request import Reply
from gesta.perform.call_contents import plain
from gesta.policy import Spelled
from gesta.prompt import observation_text
from gesta.text.objects import objects

__all__ = ["AT", "DONE", "NO_ANSWER", "PASS", "PASS_TO", "SEND_TO", "USER_QUIT_STRINGS"]
__all__ += ["ChatDocAttachment", "ChatDocMetaData", "ChatDocument", "Entity", "LLMFunctionCall", "LogFields"]
__all__ += ["OpenAIToolCall", "StatusCode", "from_ChatDocument", "from_state", "process_tool_results", "to_state"]

ToolChoiceTypes = Literal["none", "auto", "required"]
"""Whether a model must not, may, or must use a tool."""
Tools = Mapping[str, type[ToolForm]]
"""Classes of tool messages by tool name."""
TOGETHER = "Answered together with the call before it."
NUMBER = re.compile(r"[+-]?(\d+)(\.\d*)?([eE][+-]?\d+)?|[+-]?\.\d+([eE][+-]?\d+)?", re.ASCII)
BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class ChatDocAttachment(SimpleNamespace):
    """Further data of a document. Subclass it, or pass any keywords. The values are stored as JSON."""


class ChatDocMetaData(Struct, kw_only=True):
    """Facts about a document: its sender and recipient, its entry in the record, its tool calls and its status."""

    sender: Entity
    sender_name: str = ""
    recipient: str = ""
    """Name of the responder that the document is for; empty for any responder."""
    block: Entity | None = None
    """The entity that must not answer; `None` if every entity may."""
    id: str = ""
    """Id of the document's entry; empty until the document is recorded."""
    parent_id: str = ""
    """Id of the document that this document answers."""
    source: str = ""
    oai_tool_id: str = ""
    """Id of a tool call, if the content is the result of that one call."""
    calls: list[int] = field(default_factory=list)
    """Numbers (seqs), within the run, of the entries of the tool calls in the document."""
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None
    displayed: bool = False
    """Whether the document was already shown to a person."""
    status: StatusCode | None = None
    tools_from_agent: bool = False
    """Whether the tool messages come from a model or a program, not from a person."""
    tainted: bool = False
    """Whether the document contains text from outside, such as a person's text."""

    def __post_init__(self) -> None:
        """Set `tools_from_agent` if the sender is the model: its tool messages do not come from a person."""
        self.tools_from_agent |= self.sender == Entity.LLM


class ChatDocument(Struct, kw_only=True, metaclass=Spelled):
    """A message from one responder of a task to the next."""

    content: str = ""
    content_any: Any = None
    """The result as a value, such as a number or a struct, if it is more than a text; `content` shows it as text."""
    reasoning: str = ""
    files: list[Part] = field(default_factory=list)
    oai_tool_calls: list[OpenAIToolCall] | None = None
    oai_tool_id2result: dict[str, str] | None = None
    """Results of several tool calls by call id, in the order of the calls."""
    oai_tool_choice: str | dict[str, Any] = "auto"
    """Whether the model may use tools in the next request: `auto`, `none`, `required`, or a specific tool."""
    function_call: LLMFunctionCall | None = None
    """A call in an older form of providers. A model is shown it as text."""
    tool_messages: list[Any] = field(default_factory=list)
    metadata: ChatDocMetaData
    attachment: ChatDocAttachment | None = None

    def __str__(self) -> str:
        meta, fields = self.metadata, self.log_fields()
        name = f"[{meta.sender_name}]" if meta.sender_name else ""
        to = f" => {meta.recipient}" if meta.recipient else ""
        tool = f" {fields.tool_type}[{fields.tool}]:" if fields.tool_type else ""
        return f"{meta.sender}{name}{to}:{tool} {self.content}"

    def id(self) -> str:
        """Return the id of the document's entry; empty until the document is recorded."""
        return self.metadata.id

    @staticmethod
    def deepcopy(doc: "ChatDocument") -> "ChatDocument":
        """Return a deep copy of a document. The copy has no id, because it is not recorded."""
        copied = copy.deepcopy(doc)
        copied.metadata.id = ""
        return copied

    @staticmethod
    def from_str(text: str) -> "ChatDocument":
        """Return a document with a person's text. A prefix `TO[name]:` of the text names the recipient."""
        recipient, content = parse_recipient(text)
        meta = ChatDocMetaData(sender=Entity.USER, recipient=recipient, tainted=True)
        return ChatDocument(content=content, metadata=meta)

    @staticmethod
    def from_LLMResponse(  # noqa: N802 - the name that users know
        response: Reply,
        displayed: bool = False,  # noqa: FBT001, FBT002 - as above
        tools: Tools | None = None,
        *,
        recognize_recipient_in_content: bool = True,
    ) -> "ChatDocument":
        """Return a document for a model's reply. Its recipient is a call's argument `recipient`, or else in the text.

        The argument does not count if the tool's class in `tools` defines it. `displayed` is stored in the metadata.
        """
        content = response.text.strip()
        content = "" if content in ('""', "''") else content
        calls = [OpenAIToolCall(id=call.id, function=_function(call.name, call.args)) for call in response.calls]
        addresses = [address_in(call.function.name, call.function.arguments or {}, tools or {}) for call in calls]
        recipient = next(filter(None, addresses), "")
        if not recipient and recognize_recipient_in_content:
            recipient, content = _addressee(content, tools or {})
        meta = ChatDocMetaData(
            sender=Entity.LLM,
            recipient=recipient,
            usage=response.usage,
            finish_reason=response.finish_reason,
            displayed=displayed,
            tools_from_agent=True,
        )
        reasoning = response.thought or ""
        return ChatDocument(content=content, reasoning=reasoning, oai_tool_calls=calls or None, metadata=meta)

    @staticmethod
    def from_LLMMessage(message: Message, sender_name: str = "", recipient: str = "") -> "ChatDocument":  # noqa: N802
        """Return a document for a message of a history. The sender of a tool result is the model, as in Langroid."""
        sender = {"user": Entity.USER, "system": Entity.SYSTEM}.get(message.role, Entity.LLM)
        calls = [OpenAIToolCall(id=c.id, function=LLMFunctionCall(c.name, dict(c.args))) for c in message.calls]
        meta = ChatDocMetaData(
            sender=sender,
            sender_name=sender_name,
            recipient=recipient,
            oai_tool_id=message.call_id or "",
            tools_from_agent=sender is Entity.LLM,
        )
        files = list(message.parts)
        return ChatDocument(content=message.text, files=files, oai_tool_calls=calls or None, metadata=meta)

    @staticmethod
    def to_LLMMessage(  # noqa: N802 - the name that users know
        message: "str | ChatDocument", oai_tools: Sequence[OpenAIToolCall] | None = None
    ) -> list[LLMMessage]:
        """Return the messages for a model: one tool result for each call in `oai_tools`, then the remaining text."""
        if isinstance(message, str):
            message = ChatDocument(content=message, metadata=ChatDocMetaData(sender=Entity.USER))
        pending = {_id(call, n): call.function.name for n, call in enumerate(oai_tools or ())}
        results, rest = _results(message, list(pending))
        made = [LLMMessage(role="tool", text=results[id_], call_id=id_, name=pending[id_]) for id_ in pending]
        said = message.metadata.sender
        calls = message.oai_tool_calls or []
        if said is Entity.LLM:
            own = [
                Call(_id(call, n), call.function.name, call.function.arguments or {}) for n, call in enumerate(calls)
            ]
            shown = [message.function_call] if message.function_call else []
        else:
            own, shown = [], [call.function for call in calls]
            shown += [message.function_call] if message.function_call else []
        lines = [f"{each.name} {each.raw or json.dumps(each.arguments, ensure_ascii=False)}" for each in shown]
        text = "\n".join(filter(None, [rest, *lines]))
        if text or own or message.files or not made:
            role: Any = {Entity.LLM: "assistant", Entity.SYSTEM: "system"}.get(said, "user")
            made.append(LLMMessage(role=role, text=text, parts=tuple(message.files), calls=tuple(own)))
        return made

    @staticmethod
    def delete_id(id: str) -> None:
        """Do nothing: there is no registry of documents, and a record keeps its entries."""

    def pop_tool_ids(self) -> None:
        """Do nothing: a document never contains ids of calls in other documents."""

    def get_json_tools(self) -> list[str]:
        """Return the names of the tools in the JSON objects that the content contains."""
        names = [(one.value or {}).get("request") for one in objects(self.content)] if "request" in self.content else []
        return [name for name in names if isinstance(name, str)]

    get_tool_names = get_json_tools

    def log_fields(self) -> LogFields:
        """Return the document's columns in the log of a task, such as its sender and its tool names."""
        meta, type_, names = self.metadata, "", list[str]()
        if self.function_call is not None:
            type_, names = "FUNC", [self.function_call.name]
        elif self.oai_tool_calls:
            type_, names = "OAI_TOOL", [call.function.name for call in self.oai_tool_calls]
        elif meta.sender is not Entity.SYSTEM and (names := self.get_json_tools()):
            type_ = "TOOL"
        return LogFields(
            sender_entity=meta.sender.name,
            sender_name=meta.sender_name,
            recipient=meta.recipient,
            block=meta.block.name if meta.block is not None else "",
            tool_type=type_,
            tool=",".join(names),
            content=self.content,
        )


def process_tool_results(
    results: str, id2result: Mapping[str, str] | None, tool_calls: Sequence[OpenAIToolCall] | None = None
) -> tuple[str, dict[str, str] | None, str | None]:
    """Pair the tool results in `id2result` with `tool_calls`, the calls that wait for them. Each call gets one result.

    Results are paired by call id. If no id matches and the numbers are equal, they are paired in order: the ids may
    come from another agent's model. Without `id2result`, the text `results` is the result of the first call.

    Returns:
        One call, and no other text or result: the call's result, `None`, the call's id. Otherwise: all text that
        belongs to no call; the results by call id (`None` without calls); `None`.
    """
    pending = [_id(call, n) for n, call in enumerate(tool_calls or ())]
    given = dict(id2result or {})
    if not given and pending:
        given, results = dict.fromkeys(pending, TOGETHER) | {pending[0]: results}, ""
    elif len(given) == len(pending) and not given.keys() & set(pending):
        given = dict(zip(pending, given.values(), strict=True))
    others = "\n\n".join(filter(None, [results, *(given[key] for key in given if key not in pending)]))
    paired = {id_: given.get(id_, UNANSWERED) for id_ in pending}
    if len(pending) == 1 and not others:
        return paired[pending[0]], None, pending[0]
    return others, paired or None, None


def from_ChatDocument(msg: ChatDocument, output_type: Any) -> Any:  # noqa: N802 - the name that users know
    """Return a value of `output_type` from a document; `None` if the document contains none.

    The value is searched for in `content_any`, the text, the tool messages and their fields. A JSON value in
    `content_any`, or a text that is JSON as a whole, may be converted, for example to a dataclass.
    """
    if msg.content_any is not None and (value := shaped(msg.content_any, output_type)) is not None:
        return value
    if output_type in (str, int, float, bool) and (found := _in_text(msg.content, output_type)) is not None:
        return found
    if isinstance(output_type, type) and (
        same := [each for each in msg.tool_messages if isinstance(each, output_type)]
    ):
        return same[0]
    item = get_args(output_type)[:1] if get_origin(output_type) is list else ()
    if item and (same := [each for each in msg.tool_messages if fits(each, item[0])]):
        return same
    fields = (value for each in msg.tool_messages for value in values_of(each).values())
    found = next((value for value in fields if fits(value, output_type)), None)
    return _in_json(msg.content, output_type) if found is None else found


def to_state(doc: ChatDocument) -> dict[str, Any]:
    """Return a document as JSON values. Only a `content_any` that JSON cannot hold stays a Python object."""
    state: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(doc, content_any=None, tool_messages=[], attachment=None)
    )
    given = {
        "content_any": plain(doc.content_any),
        "tool_messages": [message_state(each) for each in doc.tool_messages],
        "attachment": None if doc.attachment is None else plain(vars(doc.attachment)),
    }
    return state | given


def from_state(state: Mapping[str, Any], tools: Tools) -> ChatDocument:
    """Return the document from which `to_state` made these JSON values.

    Raises:
        BadTool: a tool message's class is neither in `tools` nor imported.
        BadArguments: a tool message no longer fits its class.
    """
    given = dict(state)
    any_, messages, attached = (given.pop(key, None) for key in ("content_any", "tool_messages", "attachment"))
    doc = msgspec.convert(given, ChatDocument)
    doc.content_any = any_
    doc.tool_messages = [message_of(each, tools) for each in messages or ()]
    doc.attachment = None if attached is None else ChatDocAttachment(**attached)
    return doc


def _id(call: OpenAIToolCall, place: int) -> str:
    return call.id or f"call_{place + 1}"


def _function(name: str, text: str) -> LLMFunctionCall:
    """Return a call with parsed arguments. The word `functions`, which some models write before a name, is removed."""
    name = re.sub(r"^functions[.: ]+(?=.)", "", name.strip())
    try:
        value = json.loads(text, strict=False) if text.strip() else {}
    except (ValueError, RecursionError):
        value = None
    known = isinstance(value, dict)
    return LLMFunctionCall(name, value if known else None, None if known else text)


def _addressee(text: str, tools: Tools) -> tuple[str, str]:
    """Return the recipient that a text names (in a prefix or in a JSON tool call), and the text without the prefix."""
    recipient, rest = parse_recipient(text)
    if not recipient and "recipient" in text:
        values = [found.value for found in objects(text) if found.value]
        found = (address_in(str(value.get("request", "")), value, tools) for value in values)
        recipient = next(filter(None, found), "")
    return recipient, rest


def _results(doc: ChatDocument, pending: list[str]) -> tuple[dict[str, str], str]:
    """Return a result for each call id in `pending`, by this id, and the text that belongs to none of these calls."""
    given = dict(doc.oai_tool_id2result or {})
    text = doc.content or ("" if doc.content_any is None else observation_text(plain(doc.content_any)))
    text = text or ("" if given else "\n".join(map(to_json, doc.tool_messages)))
    one = doc.metadata.oai_tool_id
    if one not in pending and doc.metadata.sender is Entity.AGENT and len(pending) == 1 and not given:
        one = pending[0]
    if one in pending and one not in given:
        given[one], text = text, ""
    others = [given[key] for key in given if key not in pending]
    return {key: given.get(key, UNANSWERED) for key in pending}, "\n\n".join(filter(None, [text, *others]))


def _in_json(text: str, type_: Any) -> Any:
    """Return a JSON text as a value of `type_`; `None` if the text is not a JSON object or array, or does not fit."""
    try:
        value = msgspec.json.decode(text) if text.lstrip()[:1] in ("{", "[") else None
    except msgspec.DecodeError:
        value = None
    return None if value is None else shaped(value, type_)


def _in_text(text: str, type_: type) -> Any:
    """Return the text as a value of `type_` (`str`, `bool`, `int` or `float`); `None` if it is no such value."""
    text = text.strip() if type_ is not str else text
    number = NUMBER.fullmatch(text)
    if type_ is str:
        return text or None
    if type_ is bool:
        return BOOLEANS.get(text.lower())
    if number is None or (type_ is int and (number[1] is None or number[2] or number[3])):
        return None
    try:
        return type_(text)
    except ValueError:  # Python converts no text with so many digits
        return None
