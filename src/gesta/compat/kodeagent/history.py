"""The base class of KodeAgent's history formatters, which turn a run into a list of messages for the model.

A run is a list of entries. An entry's seq is its number in the run, and its causes are the entries it was made from. A
run is formatted in segments: each request adds the entries that are new. A hook is a method that a subclass may
override to change a message.

Parallel calls become one message each, followed by its result. Whatever the hooks return, each call has its own id and
exactly one result, which is a placeholder if the run has none. A thought in the text of a reply is sent to the model
again; the provider's hidden reasoning is not.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, get_args
from uuid import uuid4

import msgspec
from msgspec import Struct

from gesta.compat.kodeagent.kutils import (
    CALL_ID,
    args_text,
    make_user_message,
    object_of,
    parts_of,
    sound_args,
    text_of,
    with_id,
)
from gesta.compat.kodeagent.llm_message import LLMMessage
from gesta.compat.kodeagent.models import ChatMessage, call_content, message_content
from gesta.entry import Entry
from gesta.formatters.codeact_text import CODE_ACT_PSEUDO_TOOL_NAME
from gesta.formatters.tool_calls import ID, UNANSWERED, ToolCalls
from gesta.formatters.tool_calls import State as Paired
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    Part,
    RequestHeaderContent,
    ThoughtContent,
    ToolCallContent,
)
from gesta.log.journal import Log
from gesta.message import Call, Message, Role
from gesta.prompt import Reader

__all__ = ["CODE_ACT_PSEUDO_TOOL_NAME", "ChatMessage", "HistoryFormatter", "State"]

NO_ID = "call_00000000"
"""The id of a call that a hook adds to a message of a run. It is replaced before the message is sent."""
NOT_IN_NAMES = re.compile("[^a-zA-Z0-9_-]")


class State(dict[str, Any]):
    """Facts about earlier segments of a run that are needed to format the next segment.

    The keys `last_tool_call_id` and `pending_tool_call` are KodeAgent's, for hooks. The attributes are for this module.
    """

    def __init__(self) -> None:
        super().__init__(last_tool_call_id=None, pending_tool_call=False)
        self.paired = Paired()
        self.used: set[str] = set()
        """Ids of the calls that were sent, none of which may be used again."""


class Said(Struct):
    """The entries of one segment, with the thoughts and answers found in the model's replies."""

    by_seq: dict[int, Entry]
    thoughts: dict[int, str]
    """The thought that a reply contains. The key is the seq of the reply's entry."""
    answers: dict[int, str]
    """The part of a reply that is the answer. The key is the seq of the reply's entry."""


Sent = tuple[LLMMessage, Message]
"""The same message in two forms: the dict that the hooks made, and Gesta's message that is sent to the model."""


class HistoryFormatter(ABC):
    """Base class of formatters with hooks. A subclass defines which messages are sent as tool calls, and how."""

    version = 1
    """Number to increase whenever a change of a hook changes the messages that are sent."""

    @property
    def name(self) -> str:
        """The name and the version of the class, as in `ReActHistoryFormatter/1`."""
        return f"{type(self).__name__}/{self.version}"

    def start(self) -> State:
        """Return a new state, with which to format the first segment of a run."""
        return State()

    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        """Return the request header (tools, instructions) unchanged: tools are sent through the provider's API."""
        return header

    def reader(self) -> Reader | None:
        """Return `None`: the model's text needs no parsing, because the provider reports tool calls itself."""
        return None

    def format(self, entries: Sequence[Entry], state: State) -> list[Message]:
        """Return the model's messages for one segment of a run, and update `state`."""
        return [message for _, message in self._sent(entries, state)]

    def history(self, entries: Sequence[Entry]) -> list[LLMMessage]:
        """Return the messages of a whole run as dicts with metadata, for programs that call the model themselves."""
        return [made for made, _ in self._sent(entries, self.start())]

    def sourced(self, entries: Sequence[Entry]) -> list[tuple[LLMMessage, tuple[int, ...]]]:
        """Return the messages of `history`, each with the seqs of the entries from which it was made."""
        return [(made, message.sources) for made, message in self._sent(entries, self.start())]

    # hooks

    @abstractmethod
    def should_format_as_tool_call(self, msg: ChatMessage) -> bool:
        """Return whether to send a message as a tool call."""

    @abstractmethod
    def format_tool_call(self, msg: ChatMessage, state: dict[str, Any]) -> dict[str, Any]:
        """Return a message with a tool call. In `state`, note the id of the call and that its result is pending."""

    def pydantic_to_dict(self, msg: ChatMessage) -> LLMMessage:
        """Return the dict to send: a tool call if `should_format_as_tool_call(msg)`, else `msg`'s answer or content."""
        state = getattr(msg, "state", None)
        if self.should_format_as_tool_call(msg):
            made_id = CALL_ID.get() or self._generate_tool_call_id(msg)
            made = with_id(made_id, self.format_tool_call, msg, State() if state is None else state)
            metadata = self._get_common_metadata(msg) | self._successful(msg, usual=False)
            if (own := getattr(msg, "own_id", None)) is not None:
                metadata["_tool_call_id"] = own
            return _merged(metadata | self._get_tool_call_metadata(msg), made)
        answer = getattr(msg, "final_answer", None)
        if answer is not None:
            metadata = self._get_common_metadata(msg) | self._successful(msg, usual=True)
            return _merged(metadata | self._get_final_answer_metadata(msg), {"role": "assistant", "content": answer})
        return self._format_user_or_generic(msg, extra_metadata=self._get_extra_metadata(msg))

    def view(self, msg: ChatMessage, args: Mapping[str, Any]) -> ChatMessage:
        """Return the message to pass to hooks for a call with these arguments: `msg`, unless a subclass changes it."""
        return msg

    def _generate_tool_call_id(self, msg: ChatMessage | None = None) -> str:
        """Return the message's call id, or else one derived from its content; by default, of the formatted message."""
        if msg is None:
            return CALL_ID.get() or f"call_{uuid4().hex[:8]}"
        parts = [getattr(msg, name, None) for name in ("thought", "action", "args", "code")]
        text = json.dumps(parts, default=str)
        return getattr(msg, "tool_call_id", None) or f"call_{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def _get_common_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return {"_thought": getattr(msg, "thought", None), "files": getattr(msg, "files", None)}

    def _get_tool_call_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return {}

    def _get_final_answer_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return {}

    def _get_extra_metadata(self, msg: ChatMessage) -> dict[str, Any]:
        return {}

    def _format_user_or_generic(self, msg: ChatMessage, extra_metadata: dict[str, Any] | None = None) -> LLMMessage:
        metadata = self._get_common_metadata(msg) | self._successful(msg, usual=True) | (extra_metadata or {})
        if msg.role == "user":
            return _merged(metadata, make_user_message(msg.content, getattr(msg, "files", None))[0])
        made = {"role": msg.role, "content": "" if msg.content is None else msg.content}
        if msg.role == "tool":
            made |= {"tool_call_id": getattr(msg, "tool_call_id", None), "name": getattr(msg, "action", None)}
        return _merged(metadata, {key: value for key, value in made.items() if value is not None})

    # helpers for hooks

    def _successful(self, msg: ChatMessage, *, usual: bool) -> dict[str, Any]:
        told = getattr(msg, "task_successful", None)
        return {"_task_successful": usual if told is None else told}

    def _tool_call(self, msg: ChatMessage, state: dict[str, Any], name: str, arguments: str) -> dict[str, Any]:
        made = self._generate_tool_call_id(msg)
        state["last_tool_call_id"] = made
        call = {"id": made, "type": "function", "function": {"name": name, "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    # from entries to messages

    def _sent(self, entries: Sequence[Entry], state: State) -> Iterator[Sent]:
        said = _said(entries)
        paired = iter(ToolCalls().format(entries, state.paired))
        for message in paired:
            if not message.calls:
                yield from self._exchange(_plain(message, said), message.sources, state)
                continue
            first, seqs = message.sources[: -len(message.calls)], message.sources[-len(message.calls) :]
            thought = said.thoughts.get(first[0] if first else 0, message.text) or None
            for place, (call, seq) in enumerate(zip(message.calls, seqs, strict=True)):
                content = cast("ToolCallContent", said.by_seq[seq].content)
                msg = self.view(_called(call, content, None if place else thought), call.args)
                sources = (seq,) if place else (*first, seq)
                yield from self._exchange(msg, sources, state, (call, seq, next(paired)))

    def _exchange(
        self,
        msg: ChatMessage,
        sources: tuple[int, ...],
        state: State,
        on_record: tuple[Call, int, Message] | None = None,
    ) -> Iterator[Sent]:
        """Yield the message to send for `msg` and, if it has a call, the result. `on_record`: call, its seq, result."""
        msg = msgspec.structs.replace(msg, state=state)
        made = _merged({}, with_id(msg.tool_call_id or NO_ID, self.pydantic_to_dict, msg))
        call = _call(made, msg, on_record[0] if on_record else None)
        if call is not None:
            call = self._own(call, msg, state)
            made["tool_calls"] = [_wire(made["tool_calls"][0], call)]
            state["last_tool_call_id"], state["pending_tool_call"] = call.id, True
        elif "tool_calls" in made:
            del made["tool_calls"]
        yield from _neutral(made, msg, sources, call)
        if on_record is None and call is None:
            return
        told, seqs, name = UNANSWERED, sources[-1:], call.name if call else ""
        if on_record is not None:
            asked, seq, result = on_record
            told, seqs, name = result.text, result.sources, name or asked.name
            if told != UNANSWERED or seqs != (seq,):
                state["pending_tool_call"] = False
        call_id = call.id if call else None
        answer = ChatMessage(role="tool", content=told, action=name, tool_call_id=call_id, state=state)
        yield self._answer(_merged({}, self.pydantic_to_dict(answer)), answer, seqs)
        state["last_tool_call_id"], state["pending_tool_call"] = None, False

    def _answer(self, made: LLMMessage, answer: ChatMessage, sources: tuple[int, ...]) -> Sent:
        """Return the tool result `answer`, which hooks made into `made`; as a user message if it has no call id."""
        text, name = text_of(made.get("content")), answer.action or ""
        if answer.tool_call_id is not None:
            made.update(role="tool", tool_call_id=answer.tool_call_id, name=name)
            return made, Message(role="tool", text=text, call_id=answer.tool_call_id, name=name, sources=sources)
        if made.get("role") != "user":
            text = f"[Result of {name}]\n{text}"
        for key in ("tool_call_id", "name", "tool_calls"):
            made.pop(key, None)
        made.update(role="user", content=text)
        return made, Message(role="user", text=text, sources=sources)

    def _own(self, call: Call, msg: ChatMessage, state: State) -> Call:
        """Return the call with an id that is unique in the run: its own, else that of `msg`, else a new one."""
        own = [call.id, msg.tool_call_id or ""]
        long = hashlib.sha256(f"{own}|{len(state.used)}".encode()).hexdigest()
        own += [f"call_{long[:end]}" for end in range(8, 36)]
        made = next(made for made in own if made != NO_ID and ID.fullmatch(made) and made not in state.used)
        state.used.add(made)
        return msgspec.structs.replace(call, id=made)

    # from messages to entries

    def write(self, log: Log, msg: ChatMessage, call: int | None = None) -> list[Entry]:
        """Write a message as entries, from which the same message can be read again. Return the entries.

        An assistant message becomes several entries: a completion (the model's reply), then a thought, then a call or
        an answer. The completion is the cause of the others.

        Args:
            log: the log of the span (named part of a run) in which the entries are written.
            msg: the message.
            call: for a tool message, the seq of the call that it answers.
        """
        if msg.role != "assistant":
            return [log.write(message_content(msg, call), () if call is None else (call,))]
        calls, said = self.should_format_as_tool_call(msg), msg.final_answer
        said = text_of(msg.content) if said is None else said
        output = "\n\n".join(text for text in (msg.thought, "" if calls else said) if text)
        completion = log.write(ChatCompletionContent(output=output))
        written = [completion]
        if msg.thought is not None:
            written.append(log.write(ThoughtContent(value=msg.thought), (completion.seq,)))
        if calls:
            written.append(log.write(call_content(msg), (completion.seq,)))
        elif msg.final_answer is not None:
            written.append(log.write(AssistantContent(value=msg.final_answer), (completion.seq,)))
        return written


def _merged(metadata: Mapping[str, Any], made: Mapping[str, Any]) -> LLMMessage:
    message = LLMMessage()
    message.update(metadata)
    message.update(made)
    return message


def _said(entries: Sequence[Entry]) -> Said:
    said, last = Said({entry.seq: entry for entry in entries}, {}, {}), 0
    for entry in entries:
        content = entry.content
        causes = [cause for cause in entry.causes if isinstance(cause, int) and cause in said.by_seq]
        causes = [seq for seq in causes if isinstance(said.by_seq[seq].content, ChatCompletionContent)]
        if isinstance(content, ChatCompletionContent):
            last = entry.seq
        elif isinstance(content, ThoughtContent) and (causes or last):
            completion = said.by_seq[causes[0] if causes else last]
            if content.value and _stands(content.value, cast("ChatCompletionContent", completion.content).output):
                said.thoughts.setdefault(completion.seq, content.value)
        elif isinstance(content, AssistantContent) and causes:
            output = cast("ChatCompletionContent", said.by_seq[causes[0]].content).output
            part = _stands(content.value, output) if content.value else causes[0] in said.thoughts
            said.answers[causes[0]] = content.value if part else output
    return said


def _stands(text: str, output: str) -> bool:
    """Return whether a model's output contains a text, either unchanged or escaped as in a JSON string."""
    return any(form in output for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]))


def _plain(message: Message, said: Said) -> ChatMessage:
    if message.role != "assistant":
        return ChatMessage(role=message.role, content=message.text, files=message.parts or None)
    seq = message.sources[0]
    entry = said.by_seq.get(seq)
    completed = entry is not None and isinstance(entry.content, ChatCompletionContent)
    answer = said.answers.get(seq) if completed else message.text
    thought = said.thoughts.get(seq) if answer is not None else None
    return ChatMessage(role="assistant", content=message.text, thought=thought, final_answer=answer)


def _called(call: Call, content: ToolCallContent, thought: str | None) -> ChatMessage:
    code = call.args.get("code") if call.name == CODE_ACT_PSEUDO_TOOL_NAME else None
    own = content.tool_call_id
    return ChatMessage(
        role="assistant",
        content=thought,
        thought=thought,
        action=call.name,
        args=args_text(call.args),
        code=code if isinstance(code, str) else None,
        tool_call_id=call.id,
        own_id=None if own == call.id else own,
    )


def _call(made: LLMMessage, msg: ChatMessage, on_record: Call | None) -> Call | None:
    """Return the first tool call in `made`, which hooks made from `msg`; `None` if it has no call.

    If the hooks did not change the text of the arguments, the arguments of the call `on_record` are used.
    """
    match made.get("tool_calls"):
        case [{"function": {"name": str(name), **more}} as found, *_]:
            text = more.get("arguments")
        case _:
            return None
    args = on_record.args if on_record is not None and text == msg.args else object_of(text) or {}
    call_id = found.get("id")
    return Call(call_id if isinstance(call_id, str) else "", NOT_IN_NAMES.sub("_", name)[:64] or "_", args)


def _wire(found: Mapping[str, Any], call: Call) -> dict[str, Any]:
    text = found["function"].get("arguments")
    text = args_text(call.args) if object_of(text) is None else sound_args(text)
    return {**found, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}


def _neutral(made: LLMMessage, msg: ChatMessage, sources: tuple[int, ...], call: Call | None) -> Iterator[Sent]:
    role: Role = made["role"] if made.get("role") in get_args(Role)[:3] else msg.role
    role = made["role"] = "assistant" if call is not None else role
    for key in ("tool_call_id", "name"):
        made.pop(key, None)
    content, thought, parts = made.get("content"), made.get("_thought"), tuple[Part, ...]()
    text = text_of(content)
    if role == "user" and isinstance(content, list):
        text, parts = parts_of(content, made.get("files"))
    elif role == "assistant" and isinstance(thought, str) and thought not in text:
        text = f"{thought}\n\n{text}" if text else thought
    if role == "assistant" and not text and call is None:
        return  # providers refuse an empty assistant message
    if role != "user" or not isinstance(content, list):
        made["content"] = text if call is None else text or None
    yield made, Message(role=role, text=text, parts=parts, calls=(call,) if call else (), sources=sources)
