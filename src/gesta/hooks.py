"""Hooks are functions that an agent calls before it acts: on a message, a request, a tool call and an answer.

A hook returns `None` to allow the action, or one of the verdicts below. The verdict is written as a `check` entry
before it takes effect. If the process crashes before the `check` entry is written, the hook is called again. If a hook
raises, the turn ends, and the message, request, call or answer is not used. A hook receives the context of the turn. A
hook can ask another agent with `context.call`. The other agent is asked only once, even if the hook is called again.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct

from gesta.errors import AgentError
from gesta.function_tool.context import Context
from gesta.function_tool.signature import check_call

Point = Literal["message", "request", "call", "answer"]
"""The occasions on which an agent calls a hook."""


class Refuse(Struct, frozen=True):
    """The verdict that refuses the message, the request, the call or the answer.

    If a call is refused, the model reads `words` as the result of the call. In all other cases the turn ends with
    reason `failed` and `words` as its error message.
    """

    words: str


class Change(Struct, frozen=True):
    """The verdict that replaces the message, the arguments of the call, or the answer with `value`."""

    value: Any


class AskAgain(Struct, frozen=True):
    """The verdict that sends an answer back: the model reads `words` and answers again.

    This happens at most `Retry.corrections` times in a turn.
    """

    words: str


class AskPerson(Struct, frozen=True):
    """The verdict that asks a person before a call runs, as for a tool with `approval=True`."""

    words: str = ""
    """Why a person is asked; the `check` entry stores it."""


class Add(Struct, frozen=True):
    """The verdict that adds `words` to a request, after all other messages."""

    words: str


Verdict = Refuse | Change | AskAgain | AskPerson | Add
VERDICTS: dict[Point, tuple[type[Verdict], ...]] = {
    "message": (Refuse, Change),
    "request": (Refuse, Add),
    "call": (Refuse, Change, AskPerson),
    "answer": (Refuse, Change, AskAgain),
}
"""The verdicts that a hook may return for each point, besides `None`."""


class Calling(Struct, frozen=True):
    """The tool call that is about to run. A hook allows, changes or refuses it."""

    tool: str
    args: dict[str, Any]
    """A copy of the arguments. To replace them, return `Change`."""
    effect: str
    seq: int


class Asking(Struct, frozen=True):
    """The request to the model that is about to be sent. A hook allows or refuses it, or adds words to it."""

    number: int
    """Number of the request in the turn, from 1. A repeated try of a request has the number of the first try."""
    message: str
    """The text that opened the turn: a person's message, or the task of a child run."""


CallHook = (
    Callable[[Calling, Context[Any]], Refuse | Change | AskPerson | None]
    | Callable[[Calling, Context[Any]], Awaitable[Refuse | Change | AskPerson | None]]
)
"""A function that is asked about tool calls."""


class CallHooks(Struct, frozen=True):
    """The `call` hooks of an agent in a child run: those of the agents above it, and then its own."""

    each: tuple[CallHook, ...]

    def __call__(self, calling: Calling, context: Context[Any]) -> None:
        """Raise AgentError, because each of the hooks is asked, and not this object."""
        raise AgentError("CallHooks is not a hook: each of its hooks is asked.")


class Hooks(Struct, frozen=True, kw_only=True):
    """The functions that an agent calls before it acts. A function may be async or not; all run in the event loop."""

    message: (
        Callable[[str, Context[Any]], Refuse | Change | None]
        | Callable[[str, Context[Any]], Awaitable[Refuse | Change | None]]
        | None
    ) = None
    """Called before the first request of a turn, with the text that opened the turn."""
    request: (
        Callable[[Asking, Context[Any]], Refuse | Add | None]
        | Callable[[Asking, Context[Any]], Awaitable[Refuse | Add | None]]
        | None
    ) = None
    """Called before each request."""
    call: CallHook | None = None
    """Called for each tool call, before a person is asked to approve it and before its first attempt.

    It is also called for the tool calls of the agents that this agent calls, before their own hooks.
    """
    answer: (
        Callable[[Any, Context[Any]], Refuse | Change | AskAgain | None]
        | Callable[[Any, Context[Any]], Awaitable[Refuse | Change | AskAgain | None]]
        | None
    ) = None
    """Called with each answer before it is sent: a value of the agent's `output` type if it has one, else a text."""

    def __post_init__(self) -> None:
        """Raise AgentError if a hook is not a function, or cannot be called with two arguments."""
        for point in VERDICTS:
            hook = getattr(self, point)
            if hook is not None and not callable(hook):
                raise AgentError(f"Hooks({point}={hook!r:.60}): expected a function of what is checked and a Context.")
            if hook is not None:
                check_call(hook, (point, "context"), f"Hooks({point}=...): found ")


def call_hooks(hooks: Hooks | None) -> tuple[CallHook, ...]:
    """Return the functions that are asked about a call, in their order."""
    hook = hooks.call if hooks is not None else None
    return hook.each if isinstance(hook, CallHooks) else () if hook is None else (hook,)
