"""Langroid's enumerations, such as who can send a message in a task and how a task can end; and a model's messages."""

import enum
from typing import Any

import msgspec
from msgspec import Struct

from gesta.message import Message


class Entity(enum.StrEnum):
    """A possible sender of a message in a task. An entity equals its name as text, in upper or lower case."""

    AGENT = "Agent"
    LLM = "LLM"
    USER = "User"
    SYSTEM = "System"

    @classmethod
    def _missing_(cls, value: object) -> "Entity | None":
        return next((each for each in cls if each == value), None)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and str.lower(self) == str.lower(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str.lower(self))


class StatusCode(enum.StrEnum):
    """The ways in which a task can end."""

    OK = "OK"
    ERROR = "ERROR"
    DONE = "DONE"
    STALLED = "STALLED"
    INF_LOOP = "INF_LOOP"
    KILL = "KILL"
    FIXED_TURNS = "FIXED_TURNS"
    MAX_TURNS = "MAX_TURNS"
    MAX_COST = "MAX_COST"
    MAX_TOKENS = "MAX_TOKENS"
    TIMEOUT = "TIMEOUT"
    NO_ANSWER = "NO_ANSWER"
    USER_QUIT = "USER_QUIT"


class Role(enum.StrEnum):
    """The role of a message in the history that a model is shown."""

    USER = "user"
    SYSTEM = "system"
    ASSISTANT = "assistant"
    FUNCTION = "function"
    TOOL = "tool"


class StreamEventType(enum.StrEnum):
    """The kinds of pieces in a model's streamed answer: text of the answer, or reasoning."""

    TEXT = "text"
    REASONING = "reasoning"


class LLMFunctionCall(Struct):
    """The name and the arguments of a call that a model wrote."""

    name: str
    arguments: dict[str, Any] | None = None
    """The arguments; `None` if they are not a JSON object."""
    raw: str | None = None
    """The text of the arguments, if it is not a JSON object."""


class OpenAIToolCall(Struct, kw_only=True):
    """A call that the model made through the provider's tool-calling interface."""

    id: str | None = None
    type: str = "function"
    function: LLMFunctionCall


class LLMMessage(Message, frozen=True, kw_only=True):
    """A message of a history. Its fields have Langroid's names in addition to Gesta's."""

    content: str | None = None
    """The same as `text`."""
    tool_call_id: str | None = None
    """The same as `call_id`."""

    def __post_init__(self) -> None:
        """Set both names of a field, such as `text` and `content`, to the value that was passed for one of them."""
        for own, theirs in (("text", "content"), ("call_id", "tool_call_id")):
            value = getattr(self, theirs) or getattr(self, own)
            msgspec.structs.force_setattr(self, own, value)
            msgspec.structs.force_setattr(self, theirs, value)

    @staticmethod
    def of(message: Message) -> "LLMMessage":
        """Return a copy of a message as an `LLMMessage`."""
        return LLMMessage(**{name: getattr(message, name) for name in message.__struct_fields__})

    @property
    def tool_calls(self) -> list[OpenAIToolCall] | None:
        """The tool calls in the message; `None` if it has none."""
        calls = [(each.id, LLMFunctionCall(each.name, dict(each.args))) for each in self.calls]
        return [OpenAIToolCall(id=id_, function=function) for id_, function in calls] or None
