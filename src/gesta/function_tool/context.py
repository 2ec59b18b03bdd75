"""The context that a tool gets for a call, and the answers that its `reconcile` can return."""

import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol

from msgspec import Struct

from gesta.errors import AgentError, BadTool, GestaError
from gesta.kinds import Error, Hit, Reason
from gesta.text.redactor import LEAST, SECRETS

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    D = TypeVar("D", covariant=True, default=Any)  # noqa: PLC0105 - users read it in what checkers say
else:
    from typing import TypeVar

    D = TypeVar("D")


def no_tables(*_: Any) -> list[tuple[Any, ...]]:
    """Raise BadTool: only a transactional tool may run statements."""
    raise BadTool("context.sql is for transactional tools. Write @tool(effect='transactional').")


def no_subprocess(*_: Any, **__: Any) -> "subprocess.Popen[Any]":
    """Raise GestaError: a subprocess can be started only during an attempt."""
    raise GestaError("context.popen starts a subprocess of an attempt; there is none here. Use subprocess.Popen.")


async def no_part(*_: Any) -> "ChildOutcome":
    """Refuse to call an agent outside of an attempt. Raises GestaError."""
    raise GestaError("context.call_as calls an agent from a tool call; there is none here.")


class ToolQuestion(Struct, frozen=True):
    """A question of a tool to a person."""

    text: str
    schema: dict[str, Any] | None = None
    """JSON Schema of the answer; `None` for any text."""


class NeedsAnswer(BaseException):
    """A tool raises this if it cannot continue before a person has answered. Its call is then made again.

    The next attempt finds the answers in `Context.answers`, and `state` in `Context.state`. The call has had no effect
    so far, or whatever goes on with it can tell by the state what has happened. It is no error; do not catch it.
    """

    def __init__(self, questions: Mapping[str, ToolQuestion], state: Any = None) -> None:
        super().__init__(", ".join(questions))
        self.questions, self.state = dict(questions), state


class ChildOutcome(Protocol):
    """The outcome of an agent that a tool called; see `gesta.Outcome`."""

    @property
    def run(self) -> str:
        """Id of the child run."""

    @property
    def reason(self) -> Reason | Literal["waiting"]:
        """Why the turn ended."""

    @property
    def answer(self) -> str | None:
        """The text of the answer, `None` if there is no answer."""

    @property
    def value(self) -> Any:
        """The answer as plain JSON. Raises NoAnswer if there is no answer."""

    @property
    def error(self) -> Error | None:
        """The error of a turn that was not answered."""


class Context(Struct, Generic[D], frozen=True, kw_only=True):
    """The facts about a call that its tool gets in a parameter annotated `gesta.Context`; no model sees that parameter.

    `D` is the type of its deps: a tool with a parameter annotated `gesta.Context[Shop]` needs deps of that type.
    """

    record: str
    """Address of the record."""
    run: str
    session: str
    user: str | None
    key: str
    """Idempotency key, 64 hex: the same in every attempt of this call, and different for any other call."""
    explain_id: str
    """Id of the entry under which explanations show this call."""
    streaming: bool
    clock: Callable[[], datetime]
    respond: Callable[[str], None]
    """Sends words as an observation to the listeners of the run."""
    call: Callable[[Any, str], Awaitable[ChildOutcome]]
    """Calls another agent in a child run, and returns its outcome. A second attempt continues the same child run."""
    call_as: Callable[[str, Any, str], Awaitable[ChildOutcome]] = no_part
    """Does the same in a child run whose name ends with a given part; `call` numbers the agents that it calls."""
    answers: Mapping[str, Any] = {}
    """Answers to what earlier attempts of this call asked by `NeedsAnswer`, by the tool's own names."""
    state: Any = None
    """The state that the attempt before raised `NeedsAnswer` with; `None` if it ended in another way."""
    found: Callable[[str, Sequence[Hit]], None] = lambda _query, _hits: None
    """Writes a query and the passages that it found: they explain the tool's result."""
    sql: Callable[..., list[tuple[Any, ...]]] = no_tables
    """For a transactional tool: runs a statement on tables in the record's own file, in the commit of the result."""
    popen: Callable[..., "subprocess.Popen[Any]"] = no_subprocess
    """Starts a subprocess as `subprocess.Popen` does; the attempt is not over before the subprocess has ended."""
    cancelled: Callable[[], bool]
    """Returns whether nobody waits for the call any more. A function in a thread should ask this, because nobody can
    stop it."""
    deps: D = None  # type: ignore[assignment]  # a tool that needs them never runs without
    """The `deps` that the program passed when it began or resumed the turn. They are never on record."""
    traceparent: str | None = None
    """W3C trace context of this call's span, to send along with requests; `None` in a child run resumed by itself."""


def secret(name: str, value: str) -> str:
    """Declare a secret of this process, and return it. From then on no record, message or export contains the secret.

    Variables whose names end in KEY, TOKEN, SECRET or PASSWORD, and the keys of models, need no declaration.

    Args:
        name: name of the secret, which is written in its place as `<secret NAME>`.
        value: at least 8 characters.

    Raises:
        AgentError: the value is shorter. A shorter text would be found in ordinary words too.
    """
    if len(value.strip()) < LEAST:
        found = f"has {len(value.strip())} characters, expected at least {LEAST}"
        raise AgentError(
            f"The secret {name!r} {found}: a shorter text stands in ordinary words too. Take a longer one."
        )
    SECRETS.add(name, value)
    return value


class Done(Struct, frozen=True):
    """Answer of `reconcile`: the effect happened, with this result."""

    result: Any = None


class NotDone(Struct, frozen=True):
    """Answer of `reconcile`: the effect did not happen. This answer counts once the attempt is over."""

    void: bool = False
    """Whether the key can never have an effect any more, as after a cancelled order. Then the answer counts at once,
    and the next attempt has a new key."""


class Unknown(Struct, frozen=True):
    """Answer of `reconcile`: it cannot be found out whether the effect happened."""


Reconciled = Done | NotDone | Unknown
Reconcile = (
    Callable[[str], Reconciled | Awaitable[Reconciled]] | Callable[[str, Context], Reconciled | Awaitable[Reconciled]]
)
"""A function that finds out whether an effect happened. Its arguments are the idempotency key and, if it takes two, the
context."""
