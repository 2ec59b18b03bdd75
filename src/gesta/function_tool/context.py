"""What a tool is told about its call, and the answers of its `reconcile`."""

import subprocess
from collections.abc import Awaitable, Callable, Sequence
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
    """Refuse statements of a tool that is not transactional. Raises BadTool."""
    raise BadTool("context.sql is for transactional tools. Write @tool(effect='transactional').")


def no_subprocess(*_: Any, **__: Any) -> "subprocess.Popen[Any]":
    """Refuse to start a subprocess outside of an attempt. Raises GestaError."""
    raise GestaError("context.popen starts a subprocess of an attempt; there is none here. Use subprocess.Popen.")


class ChildOutcome(Protocol):
    """How the turn of an agent that a tool called ended; see `gesta.Outcome`."""

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
        """What went wrong in a turn that was not answered."""


class Context(Struct, Generic[D], frozen=True, kw_only=True):
    """What a tool is told about its call, in a parameter annotated `gesta.Context`; the model never sees it.

    `D` is the type of its deps: a tool with a parameter annotated `gesta.Context[Shop]` needs deps of that type.
    """

    record: str
    """Address of the record."""
    run: str
    session: str
    user: str | None
    key: str
    """Idempotency key, 64 hex: the same however often this call is tried, and no other call's."""
    explain_id: str
    """Entry that explanations of this call hang under."""
    streaming: bool
    clock: Callable[[], datetime]
    respond: Callable[[str], None]
    """Sends an observation to the listener of the run."""
    call: Callable[[Any, str], Awaitable[ChildOutcome]]
    """Has another agent answer in a run of its own, and gives its outcome; done once, however often this is tried."""
    found: Callable[[str, Sequence[Hit]], None] = lambda _query, _hits: None
    """Writes down a query and the passages that it found: the tool's result is explained by them."""
    sql: Callable[..., list[tuple[Any, ...]]] = no_tables
    """Of a transactional tool: runs a statement on tables in the record's own file, in the commit of the result."""
    popen: Callable[..., "subprocess.Popen[Any]"] = no_subprocess
    """Starts a subprocess as `subprocess.Popen` does; the attempt is not over before that has ended too."""
    cancelled: Callable[[], bool]
    """For functions in a thread: nobody can stop those from outside."""
    deps: D = None  # type: ignore[assignment]  # a tool that needs them never runs without
    """What the program gave as `deps` where it began or resumed the turn. It is never on record."""


def secret(name: str, value: str) -> str:
    """Declare a secret of this process, and return it. From then on it is kept out of records, messages and exports.

    Variables whose names end in KEY, TOKEN, SECRET or PASSWORD, and the keys of models, need no declaration.

    Args:
        name: stands where the secret would stand, as `<secret NAME>`.
        value: at least 8 characters.

    Raises:
        AgentError: the value is shorter. Such a text would be found in ordinary words too.
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
    """Answer of `reconcile`: the effect is not there. It is believed once the attempt is over."""

    void: bool = False
    """Whether the key can no longer act, as after a cancelled order: believed at once, and a new key is drawn."""


class Unknown(Struct, frozen=True):
    """Answer of `reconcile`: nobody can tell."""


Reconciled = Done | NotDone | Unknown
Reconcile = (
    Callable[[str], Reconciled | Awaitable[Reconciled]] | Callable[[str, Context], Reconciled | Awaitable[Reconciled]]
)
"""Idempotency key, and the context of the call where that is asked for, to what became of the effect."""
