"""Native tool calls: a completion with its calls, then one result for each call, directly after it and in order.

A completion is the entry with a model's reply; an entry's seq is its number in its run. Most providers require this
order. The entries may have another order, for example because a result came late or a process crashed. A segment is the
entries from one request to the next.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from msgspec import Struct, field

from gesta.entry import Entry
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    Kind,
    RequestHeaderContent,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.message import Call, Message, Native
from gesta.prompt import observation_text

UNANSWERED = "This call has no result on record."
ID = re.compile(r"[!-~]{1,40}")
"""Matches ids that every provider accepts in a history. Some providers refuse longer ids."""
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Matches function names that providers accept. A model may write other names."""
SEQ: Callable[[tuple[int, Call]], int] = itemgetter(0)
CALL: Callable[[tuple[int, Call]], Call] = itemgetter(1)
MOST = 128
"""Greatest number of calls in a message of Chat Completions: "array too long", openai/openai-dotnet#317, 2024-12-31."""


class Open(Struct):
    """A completion that still lacks results for some of its calls."""

    text: str
    sources: tuple[int, ...]
    """The seq of the completion; empty if a program made the calls without a completion."""
    native: Native | None = None
    calls: list[tuple[int, Call]] = field(default_factory=list)
    results: dict[int, Entry] = field(default_factory=dict)


class State(Struct):
    """The values that `format` keeps from one segment to the next."""

    ids: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Id and tool name of every call, by the seq of the call."""
    used: set[str] = field(default_factory=set)
    completions: set[int] = field(default_factory=set)
    child: bool = False
    """Whether the next `system` entry is the task of a child run."""
    open: Open | None = None
    waiting: list[Message] = field(default_factory=list)
    """Messages that are sent after the results of the open completion's calls."""
    messages: list[Message] = field(default_factory=list)
    most: int | None = None
    """Greatest number of calls in one message; `None` if calls are not sent natively."""


class ToolCalls:
    """The formatter that sends tool calls in the provider's own form."""

    name = "tool-calls/1"

    def start(self) -> State:
        """Return the formatter's state before the first segment."""
        return State(most=MOST)

    def format(self, entries: Sequence[Entry], state: State) -> list[Message]:
        """Return the messages made from `entries`, one segment. What later segments need is kept in `state`."""
        for entry in entries:
            if (kind := entry.content.kind) in HANDLERS:
                HANDLERS[kind](entry, entry.content, state)
        _close(state)
        messages, state.messages = state.messages, []
        return messages

    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        """Return the request header (tools and settings) unchanged: tools are sent in the provider's own form."""
        return header

    def reader(self) -> None:
        """Return `None`: no reader has to find calls in a reply's text, because the provider reports them apart."""


def _begin(_entry: Entry, content: BeginContent, state: State) -> None:
    state.child |= content.opened is not None and content.opened.parent_run is not None


def _system(entry: Entry, content: SystemContent, state: State) -> None:
    task, state.child = state.child or content.source is not None, False
    _say(state, Message(role="user" if task else "system", text=content.value, sources=(entry.seq,)))


def _user(entry: Entry, content: UserContent, state: State) -> None:
    parts = tuple(content.parts or ())
    _say(state, Message(role="user", text=content.value, parts=parts, sources=(entry.seq,)))


def _assistant(entry: Entry, content: AssistantContent, state: State) -> None:
    if content.value and not any(cause in state.completions for cause in entry.causes):
        _say(state, Message(role="assistant", text=content.value, sources=(entry.seq,)))


def _completion(entry: Entry, content: ChatCompletionContent, state: State) -> None:
    _close(state)
    state.completions.add(entry.seq)
    state.open = Open(content.output, (entry.seq,), _native(content))


def _native(content: ChatCompletionContent) -> Native | None:
    """Return the parts of a completion that its provider wants sent back unchanged; `None` if it has none."""
    kept = (content.meta or {}).get("native")
    return Native(str(kept.get("by")), kept.get("items")) if isinstance(kept, dict) else None


def _call(entry: Entry, content: ToolCallContent, state: State) -> None:
    turn = state.open
    said = turn is not None and not turn.calls and state.waiting
    others = turn is not None and said and entry.causes and not {*entry.causes} & {*turn.sources}
    if turn is None or turn.results or others:  # a program made the call after another message
        _close(state)
        turn = state.open = Open("", ())
    name = content.tool_name if NAME.fullmatch(content.tool_name) else "unknown"
    call = Call(_call_id(entry, content, state), name, content.tool_args)
    state.used.add(call.id)
    state.ids[entry.seq] = call.id, call.name
    turn.calls.append((entry.seq, call))


def _result(entry: Entry, content: ToolResultContent, state: State) -> None:
    calls, answered = ([], {}) if state.open is None else (state.open.calls, state.open.results)
    waits = [seq for seq, _ in calls if seq not in answered and content.call in (None, seq)]
    if content.call is None and content.tool_call_id is not None:
        waits = [seq for seq in waits if state.ids[seq][0] == content.tool_call_id] or waits
    if waits:
        answered[waits[0]] = entry
        return
    call_id, name = state.ids.get(content.call or 0, (content.tool_call_id or "?", "a tool"))
    text = f"[Late result of call {call_id} to {name}]\n{observation_text(content.tool_result)}"
    _say(state, Message(role="user", text=text, sources=(entry.seq,)))


def _say(state: State, message: Message) -> None:
    (state.messages if state.open is None else state.waiting).append(message)


def _close(state: State) -> None:
    """Append the reply of the open completion to `state.messages`, and one result for each of its calls.

    After these, append the messages that had to wait because they came between the calls and their results.
    """
    turn, state.open = state.open, None
    if turn is not None and (turn.text or turn.calls):
        size = state.most or len(turn.calls) or 1
        for start in range(0, len(turn.calls) or 1, size):
            state.messages += _said(turn, start, turn.calls[start : start + size])
    state.messages += state.waiting
    state.waiting = []


def _said(turn: Open, start: int, calls: Sequence[tuple[int, Call]]) -> Iterator[Message]:
    """Yield a message with the given calls of a completion, then the results of these calls.

    Args:
        turn: the completion with all its calls and results.
        start: index of `calls[0]` among all calls of the completion. If it is 0, the message also has the completion's
            text.
    """
    made = tuple(map(SEQ, calls))
    yield Message(
        role="assistant",
        text="" if start else turn.text,
        calls=tuple(map(CALL, calls)),
        native=turn.native if len(calls) == len(turn.calls) else None,
        sources=made if start else turn.sources + made,
    )
    for seq, call in calls:
        yield _answer(seq, call, turn.results.get(seq))


def _answer(seq: int, call: Call, result: Entry | None) -> Message:
    if result is None:
        return Message(role="tool", text=UNANSWERED, call_id=call.id, name=call.name, sources=(seq,))
    assert isinstance(result.content, ToolResultContent)
    text, failed = observation_text(result.content.tool_result), result.content.status == "error"
    return Message(role="tool", text=text, call_id=call.id, name=call.name, failed=failed, sources=(result.seq,))


def _call_id(entry: Entry, content: ToolCallContent, state: State) -> str:
    """Return the provider's id of a call.

    If this id is missing, invalid or already used, return an id computed from the run and the call's number.
    """
    own = content.tool_call_id
    if own and ID.fullmatch(own) and own not in state.used:
        return own
    run = entry.shared_from or entry.run  # a fork continues with the ids that its base sent
    digest, end = hashlib.sha256(f"{run}|{len(state.ids) + 1}".encode()).hexdigest(), 8
    while (made := f"call_{digest[:end]}") in state.used:
        end += 1
    return made


HANDLERS: dict[Kind, Callable[[Entry, Any, State], None]] = {
    Kind.Begin: _begin,
    Kind.System: _system,
    Kind.User: _user,
    Kind.Assistant: _assistant,
    Kind.ChatCompletion: _completion,
    Kind.ToolCall: _call,
    Kind.ToolResult: _result,
}
