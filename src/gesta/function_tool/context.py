"""The context that a tool receives for a call, and the answers that its `reconcile` function can return.

A run is one conversation or task of an agent; a child run is the run of another agent that it calls. A turn goes from
one message to its answer. The record is the store of all runs. Deps are objects that a program passes to its tools. An
attempt is one execution of the tool for a call. After a crash nobody may know whether the attempt had its effect. Then
`reconcile`, a function of the tool's author, is asked.
"""

import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol

from msgspec import Struct

from gesta.errors import AgentError, BadTool, GestaError, InDoubt
from gesta.kinds import Error, Hit, Reason
from gesta.text.redactor import LEAST, SECRETS

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    D = TypeVar("D", covariant=True, default=Any)  # noqa: PLC0105 - users read this name in messages of type checkers
else:
    from typing import TypeVar

    D = TypeVar("D")


def no_tables(*_: Any) -> list[tuple[Any, ...]]:
    """Raise BadTool: `Context.sql` is only for transactional tools."""
    raise BadTool("context.sql is for transactional tools. Write @tool(effect='transactional').")


def no_subprocess(*_: Any, **__: Any) -> "subprocess.Popen[Any]":
    """Raise GestaError: `Context.popen` can be used only in a call of a tool."""
    raise GestaError("context.popen starts a subprocess of an attempt; there is none here. Use subprocess.Popen.")


async def no_part(*_: Any) -> "ChildOutcome":
    """Raise GestaError: `Context.call_as` can be used only in a call of a tool."""
    raise GestaError("context.call_as calls an agent from a tool call; there is none here.")


class ToolQuestion(Struct, frozen=True):
    """A question of a tool to a person."""

    text: str
    schema: dict[str, Any] | None = None
    """JSON Schema of the answer; `None` for any text."""

    def fits(self) -> bool:
        """Return whether the fields have their types. If not, nobody could answer the question."""
        return isinstance(self.text, str) and isinstance(self.schema, dict | None)


class NeedsAnswer(BaseException):
    """A tool raises this if it cannot continue before a person has answered.

    The turn waits for the answer; then the tool is called again, in a new attempt.

    The new attempt finds the answers in `Context.answers`, and the given `state` in `Context.state`. The tool must not
    have had an effect before it raises this. Otherwise the state must tell the next attempt of the effect. This
    exception is not an error; do not catch it.

    If the questions cannot be asked, as when there are none, the constructor raises BadTool. If there is a `state`, it
    raises InDoubt, because the tool may have had an effect.
    """

    def __init__(self, questions: Mapping[str, ToolQuestion], state: Any = None) -> None:
        fits = isinstance(questions, Mapping) and all(
            isinstance(name, str) and isinstance(each, ToolQuestion) and each.fits() for name, each in questions.items()
        )
        if not fits or not questions:
            wrong = "NeedsAnswer needs a dict with at least one name and its ToolQuestion, as in"
            wrong += ' NeedsAnswer({"size": ToolQuestion("Which size?")}).'
            raise BadTool(wrong) if state is None else InDoubt(wrong)
        super().__init__(", ".join(questions))
        self.questions, self.state = dict(questions), state


class ChildOutcome(Protocol):
    """The outcome of an agent that a tool called, with some of the attributes of `gesta.Outcome`."""

    @property
    def run(self) -> str:
        """Id of the child run."""

    @property
    def reason(self) -> Reason | Literal["waiting"]:
        """Why the agent's turn ended; `waiting` if it waits and has not ended."""

    @property
    def answer(self) -> str | None:
        """The text of the answer; `None` if there is no answer."""

    @property
    def value(self) -> Any:
        """The answer as plain JSON. Raises NoAnswer if there is no answer."""

    @property
    def error(self) -> Error | None:
        """The error of a turn that ended without an answer; `None` if the turn has an answer."""


class Context(Struct, Generic[D], frozen=True, kw_only=True):
    """The facts about a call that its tool receives in a parameter annotated `gesta.Context`.

    No model sees that parameter.

    `D` is the type of `deps`: a tool with a parameter annotated `gesta.Context[Shop]` needs deps of the type `Shop`.
    """

    record: str
    """Address of the record."""
    run: str
    session: str
    user: str | None
    key: str
    """Idempotency key, 64 hex digits, for services that ignore a repeated request. The key is the same in every attempt
    of this call, until `NotDone` declares it void. Any other call has another key."""
    explain_id: str
    """Id of the entry that represents this call in explanations of answers."""
    streaming: bool
    clock: Callable[[], datetime]
    respond: Callable[[str], None]
    """Sends words to the listeners of the run, as an observation."""
    call: Callable[[Any, str], Awaitable[ChildOutcome]]
    """Calls another agent in a child run, and returns its outcome. A second attempt of this tool call continues the
    same child run. If the agent has to wait, the tool is stopped here, and called again from its first line after the
    wait. So call agents before the tool has its effect: code before the call runs once more, also in a `once` tool."""
    call_as: Callable[[str, Any, str], Awaitable[ChildOutcome]] = no_part
    """Like `call`, but the first argument is used in the child run's name. (`call` uses numbers instead.)"""
    answers: Mapping[str, Any] = {}
    """Answers to the questions of earlier attempts of this call (see `NeedsAnswer`), by the name of the question."""
    state: Any = None
    """The `state` that the last attempt which raised `NeedsAnswer` passed to it; `None` if none did."""
    resumed: bool = False
    """Whether the previous attempt raised `NeedsAnswer`. If it did not, but `answers` are there, an attempt after the
    answer has failed, and may have done more than `state` says."""
    found: Callable[[str, Sequence[Hit]], None] = lambda _query, _hits: None
    """Records a query and the passages that it found. The query and the passages become part of the explanation of the
    tool's result."""
    sql: Callable[..., list[tuple[Any, ...]]] = no_tables
    """For a transactional tool: executes a statement on tables in the record's database. Changes are committed together
    with the tool's result."""
    popen: Callable[..., "subprocess.Popen[Any]"] = no_subprocess
    """Starts a subprocess as `subprocess.Popen` does. The attempt is treated as running until the subprocess has ended.
    """
    cancelled: Callable[[], bool]
    """Returns whether nobody waits for the call any more. A function in a thread should check this, because threads
    cannot be stopped."""
    deps: D = None  # type: ignore[assignment]  # a tool that needs them never runs without
    """The `deps` that the program passed when it began or resumed the turn. These objects are never on record."""
    traceparent: str | None = None
    """W3C trace context of this call's span, to send along with requests; `None` in a child run that is resumed by
    itself."""


def secret(name: str, value: str) -> str:
    """Declare a secret of this process, and return it. From then on no record, message or export contains the secret.

    Keys of models need no declaration. Neither do environment variables whose names end in KEY, TOKEN, SECRET or
    PASSWORD.

    Args:
        name: is written in place of the secret, as `<secret NAME>`.
        value: at least 8 characters.

    Raises:
        AgentError: the value is shorter. A short text would also be found in ordinary words.
    """
    if len(value.strip()) < LEAST:
        found = f"has {len(value.strip())} characters, expected at least {LEAST}"
        raise AgentError(
            f"The secret {name!r} {found}: a shorter text stands in ordinary words too. Take a longer one."
        )
    SECRETS.add(name, value)
    return value


class Done(Struct, frozen=True):
    """Answer of a `reconcile` function: the effect happened, with this result."""

    result: Any = None


class NotDone(Struct, frozen=True):
    """Answer of a `reconcile` function: the effect did not happen.

    Gesta believes the answer once the attempt has ended, because a running attempt may still have the effect.
    """

    void: bool = False
    """Whether the idempotency key can never have an effect any more, as after a cancelled order. Then the answer is
    believed at once, and the next attempt has a new key."""


class Unknown(Struct, frozen=True):
    """Answer of a `reconcile` function: it is not possible to find out whether the effect happened."""


Reconciled = Done | NotDone | Unknown
Reconcile = (
    Callable[[str], Reconciled | Awaitable[Reconciled]] | Callable[[str, Context], Reconciled | Awaitable[Reconciled]]
)
"""A function that finds out whether an effect happened. The function receives the idempotency key and, if it has a
second parameter, the context."""
