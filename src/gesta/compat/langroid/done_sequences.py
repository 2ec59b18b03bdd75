"""A done sequence is a pattern of responses that ends a task: `T, A` is a tool message, then a response of the agent.

A response is what the agent, its model, the user or a sub-task answered. A tool message is a tool call as data. The
letters: T is a model's message with a tool, `T[name]` one with that tool, L a model's message without a tool, A a
response of the agent, U of the user, N the absence of a response, C any text, `C[regex]` a text in which the regex
matches somewhere. TOOL, AGENT, LLM and USER mean T, A, L and U; case does not matter. A task ends when its newest
responses match the letters one by one. A missing response matches N; for every other letter, it is skipped.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gesta.compat.langroid.facts import facts_of

LETTERS = "T, A, L, U, N, C, T[tool] or C[regex]"
TOKEN = re.compile(r"\s*([A-Za-z_]+)\s*(?:\[(.*)\])?\s*", re.DOTALL)


class EventType(enum.StrEnum):
    """The kind of a response in a done sequence."""

    TOOL = "tool"
    SPECIFIC_TOOL = "specific_tool"
    LLM_RESPONSE = "llm_response"
    AGENT_RESPONSE = "agent_response"
    USER_RESPONSE = "user_response"
    CONTENT_MATCH = "content_match"
    NO_RESPONSE = "no_response"


WORDS: Mapping[str, EventType] = {
    "T": EventType.TOOL,
    "TOOL": EventType.TOOL,
    "A": EventType.AGENT_RESPONSE,
    "AGENT": EventType.AGENT_RESPONSE,
    "L": EventType.LLM_RESPONSE,
    "LLM": EventType.LLM_RESPONSE,
    "U": EventType.USER_RESPONSE,
    "USER": EventType.USER_RESPONSE,
    "N": EventType.NO_RESPONSE,
    "C": EventType.CONTENT_MATCH,
}


class AgentEvent(Struct, frozen=True, kw_only=True):
    """One letter of a done sequence, which describes a response."""

    event_type: EventType
    tool_name: str | None = None
    """For `T[name]`: the name of the tool, or of its class."""
    tool_class: Any = None
    content_pattern: str | None = None
    """Regular expression to search for, in which case does not matter; `None` for any text."""
    responder: str | None = None
    """Name of the entity or task that must have responded; `None` for any."""
    sender: str | None = None
    """Name of the entity that must be the sender; `None` for any."""


class DoneSequence(Struct, frozen=True, kw_only=True):
    """A pattern of consecutive responses that ends a task."""

    events: Sequence[AgentEvent]
    name: str | None = None


class Response(Struct, frozen=True, kw_only=True):
    """A response in a task, with the facts that done sequences compare."""

    sender: str
    """The sender: `Agent`, `LLM`, `User` or `System`; case does not matter."""
    responder: str = ""
    """Name of the entity or task that responded; empty if it is the sender."""
    tools: Sequence[str] = ()
    """Names of the tools in the response, and of their classes."""
    content: str = ""
    none: bool = False
    """Whether the agent, model, user or sub-task that was asked gave no response."""


def parse_done_sequence(sequence: str | DoneSequence, tools: Mapping[str, type] | None = None) -> DoneSequence:
    """Return a done sequence, parsed if it is a text.

    Args:
        tools: classes of tool messages by tool name. With them, the name in `T[name]` may also be that of a class.

    Raises:
        ValueError: the text is not a done sequence. The error shows which part of the text is wrong.
    """
    if isinstance(sequence, DoneSequence):
        if not sequence.events:
            raise ValueError(f"found no events in {sequence!r}; expected at least one")
        return sequence
    if not isinstance(sequence, str):
        raise ValueError(f"found {sequence!r} as a done sequence; expected a text such as 'T, A', or a DoneSequence")  # noqa: TRY004
    events = [_event(token, sequence, tools or {}) for token in _tokens(sequence) if token.strip()]
    if not events:
        raise ValueError(f"found no events in the done sequence {sequence!r}; expected {LETTERS}, with commas")
    return DoneSequence(events=events, name=sequence)


def parse_done_sequences(
    sequences: Iterable[str | DoneSequence] | None, tools: Mapping[str, type] | None = None
) -> list[DoneSequence]:
    """Return several done sequences; see `parse_done_sequence`. Raises ValueError if a text is not a done sequence."""
    return [parse_done_sequence(sequence, tools) for sequence in sequences or ()]


def matched(sequences: Iterable[DoneSequence], responses: Sequence[Response]) -> DoneSequence | None:
    """Return the first done sequence that matches the newest responses; `None` if none of them matches."""
    return next((sequence for sequence in sequences if _matches(sequence.events, responses)), None)


def _matches(events: Sequence[AgentEvent], responses: Sequence[Response]) -> bool:
    place = len(responses)
    for event in reversed(events):
        place -= 1
        while place >= 0 and responses[place].none and event.event_type != EventType.NO_RESPONSE:
            place -= 1
        if place < 0 or not _is(event, responses[place]):
            return False
    return True


def _is(event: AgentEvent, response: Response) -> bool:
    """Return whether a response is of the kind that an event describes."""
    sender, responder = response.sender.lower(), (response.responder or response.sender).lower()
    if (event.sender or sender).lower() != sender or (event.responder or responder).lower() != responder:
        return False
    match event.event_type:
        case EventType.NO_RESPONSE:
            return response.none
        case EventType.TOOL:
            return sender == "llm" and bool(response.tools)
        case EventType.SPECIFIC_TOOL:
            wanted = {event.tool_name}
            if event.tool_class is not None:
                wanted = {event.tool_class.__name__, facts_of(event.tool_class).name}
            return sender == "llm" and not wanted.isdisjoint(response.tools)
        case EventType.LLM_RESPONSE:
            return sender == "llm" and not response.tools
        case EventType.AGENT_RESPONSE:
            return sender == "agent"
        case EventType.USER_RESPONSE:
            return sender == "user"
        case EventType.CONTENT_MATCH:
            if event.content_pattern is None:
                return bool(response.content.strip())
            return re.search(event.content_pattern, response.content, re.IGNORECASE) is not None


def _tokens(sequence: str) -> list[str]:
    """Split a sequence at commas that are outside of brackets. Raises ValueError if a bracket is not closed."""
    tokens, depth, start, skip = list[str](), 0, 0, False
    for place, letter in enumerate(sequence):
        if skip or (depth and letter == "\\"):
            skip = not skip
        elif letter == "[":
            depth += 1
        elif letter == "]" and depth:
            depth -= 1
        elif letter == "," and not depth:
            tokens.append(sequence[start:place])
            start = place + 1
    if depth:
        raise ValueError(f"found a bracket that is not closed in the done sequence {sequence!r}; expected a `]`")
    return [*tokens, sequence[start:]]


def _event(token: str, sequence: str, tools: Mapping[str, type]) -> AgentEvent:
    found = TOKEN.fullmatch(token)
    type_ = WORDS.get(found[1].upper()) if found else None
    if found is None or type_ is None:
        raise ValueError(f"found {token.strip()!r} in the done sequence {sequence!r}; expected {LETTERS}")
    inner = found[2]
    if inner is None:
        return AgentEvent(event_type=type_)
    if type_ == EventType.TOOL and inner.strip():
        name = inner.strip()
        cls = tools.get(name) or next((each for each in tools.values() if each.__name__ == name), None)
        return AgentEvent(event_type=EventType.SPECIFIC_TOOL, tool_name=name, tool_class=cls)
    if type_ != EventType.CONTENT_MATCH or not inner:
        raise ValueError(
            f"found {token.strip()!r} in the done sequence {sequence!r}; brackets expected: T[tool], C[regex]"
        )
    try:
        re.compile(inner)
    except re.error as wrong:
        raise ValueError(f"found {token.strip()!r} in the done sequence {sequence!r}; no regex: {wrong}") from wrong
    return AgentEvent(event_type=type_, content_pattern=inner)
