"""Who can say something in a task, and how a task can end."""

import enum


class Entity(enum.StrEnum):
    """Who can say something; equal to its name in any case."""

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
    """How a task ended."""

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
    """In whose name a message stands in a history."""

    USER = "user"
    SYSTEM = "system"
    ASSISTANT = "assistant"
    FUNCTION = "function"
    TOOL = "tool"


class StreamEventType(enum.StrEnum):
    """What the words are that a callback hears while a model speaks."""

    TEXT = "text"
    REASONING = "reasoning"
