"""Hooks are functions that an agent asks before it acts: on a message, a request, a tool call and an answer.

A hook returns `None` to allow it, or one of the verdicts below. A verdict is written as a `check` entry before it takes
effect. Until then the hook may be asked again, as after a crash. If a hook raises, the turn ends, and the message,
request, call or answer is not used. A hook is called with the context of the turn; `context.call` asks another agent,
which is called once.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct

from gesta.errors import AgentError
from gesta.function_tool.context import Context

Point = Literal["message", "request", "call", "answer"]
"""The point at which a hook is asked."""


class Refuse(Struct, frozen=True):
    """Refuses the message, the request, the call or the answer.

    For a call, the model reads the words as the result; in all other cases the turn ends `failed` with the words.
    """

    words: str


class Change(Struct, frozen=True):
    """Replaces the message, the arguments of the call, or the answer."""

    value: Any


class AskAgain(Struct, frozen=True):
    """For an answer: the model reads the words and answers again, at most `Retry(corrections=)` times."""

    words: str


class AskPerson(Struct, frozen=True):
    """For a call: a person is asked first, as for a tool with `approval=True`."""

    words: str = ""
    """The reason, for the record."""


class Add(Struct, frozen=True):
    """For a request: the model reads these words too, after all other messages."""

    words: str


Verdict = Refuse | Change | AskAgain | AskPerson | Add
VERDICTS: dict[Point, tuple[type[Verdict], ...]] = {
    "message": (Refuse, Change),
    "request": (Refuse, Add),
    "call": (Refuse, Change, AskPerson),
    "answer": (Refuse, Change, AskAgain),
}
"""The verdicts that a hook may return at each point, besides `None`."""


class Calling(Struct, frozen=True):
    """The tool call that a hook is asked about."""

    tool: str
    args: dict[str, Any]
    """A copy of the arguments; `Change` replaces them."""
    effect: str
    seq: int


class Asking(Struct, frozen=True):
    """The request that a hook is asked about."""

    number: int
    """Number of the request in the turn, from 1; a further try of a request has the same number."""
    message: str
    """The message of the person, or the task of a child run, that the turn is about."""


class Hooks(Struct, frozen=True, kw_only=True):
    """The functions that an agent asks, each async or not; they run in the event loop."""

    message: (
        Callable[[str, Context[Any]], Refuse | Change | None]
        | Callable[[str, Context[Any]], Awaitable[Refuse | Change | None]]
        | None
    ) = None
    """Asked before the first request of a turn, about the text that began the turn."""
    request: (
        Callable[[Asking, Context[Any]], Refuse | Add | None]
        | Callable[[Asking, Context[Any]], Awaitable[Refuse | Add | None]]
        | None
    ) = None
    """Asked before each request."""
    call: (
        Callable[[Calling, Context[Any]], Refuse | Change | AskPerson | None]
        | Callable[[Calling, Context[Any]], Awaitable[Refuse | Change | AskPerson | None]]
        | None
    ) = None
    """Asked before a person is asked to approve a call, and before the first attempt of the call."""
    answer: (
        Callable[[Any, Context[Any]], Refuse | Change | AskAgain | None]
        | Callable[[Any, Context[Any]], Awaitable[Refuse | Change | AskAgain | None]]
        | None
    ) = None
    """Asked about each answer, before it is sent: a value of the agent's `output` if it has one, else a text."""

    def __post_init__(self) -> None:
        """Check that each hook is a function. Raises AgentError."""
        for point in VERDICTS:
            if (hook := getattr(self, point)) is not None and not callable(hook):
                raise AgentError(f"Hooks({point}={hook!r:.60}): expected a function of what is checked and a Context.")
