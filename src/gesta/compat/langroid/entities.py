"""Langroid's enumerations: who can send a message in a task, how a task can end, and the roles of messages."""

import enum


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
