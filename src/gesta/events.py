"""An event is what a listener hears while a run goes on. Events are not stored: what matters is an entry.

Only `answer` and `thought` deltas are sent before their entry is durable. `retract` withdraws words of a lost stream.
An outcome says how a turn ended or what it waits for; it is read from the folded state, not written down.
"""

from collections.abc import Callable
from typing import Generic, Literal, cast

from msgspec import Struct, field

from gesta.decide.move import Waiting
from gesta.errors import NoAnswer
from gesta.function_tool.output import T
from gesta.kinds import Content, Error, Reason
from gesta.lineage import NodeType
from gesta.state.account import Spent

EventType = Literal["thought", "observation", "answer", "explain", "error", "retract"]


class Explain(Struct, frozen=True):
    """The place of an entry in the explanation of the answer."""

    node: NodeType
    derived_from: tuple[str, ...]
    """Ids of the nodes that it was made from, as `Explanation` has them."""
    holds: Content | None = None
    """What the entry holds."""


class Event(Struct, frozen=True, kw_only=True):
    """One thing that a listener hears."""

    type: EventType
    content: str = ""
    message: int = 0
    """Seq of the request that the words belong to; 0 outside of one."""
    run: str = ""
    span: tuple[str, ...] = ()
    seq: int | None = None
    """The entry that it tells of, once written."""
    end_of_message: bool = False
    end_of_dialog: bool = False
    explain_id: str | None = None
    """Id of the entry that is explained."""
    explain_graph: Explain | None = None


Listener = Callable[[Event], None]


class Outcome(Struct, Generic[T], frozen=True, kw_only=True):
    """How a turn ended, or what it waits for. `T` is the type of the agent's answer."""

    run: str
    session: str
    turn: int
    """Seq of the begin of the turn."""
    reason: Reason | Literal["waiting"]
    answer: str | None = None
    given: T | None = field(name="value", default=None)
    """`value`, or None where there is none."""
    waiting: tuple[Waiting, ...] = ()
    queued: bool = False
    """Whether the message waits behind another turn of the run, whose outcome this is."""
    doubts: tuple[str, ...] = ()
    """Names of tools with a call whose outcome was still unknown when the turn ended."""
    error: Error | None = None
    """Of a turn that was not answered: what went wrong, or which limit was reached."""
    requests: int = 0
    """Answers that the model gave."""
    tokens_in: int = 0
    tokens_out: int = 0
    unknown_usage: int = 0
    """Answers that came without a count of tokens; those are not in the sums."""
    spent: Spent | None = None
    """What the turn and its child runs spent; `None` if no account was kept, see `Budget`."""
    end: int | None = None
    """Seq of the `end` of the turn; `None` while the turn waits."""

    @property
    def value(self) -> T:
        """The answer as the agent's `output`, or the value that its program returned; else the text of the answer.

        Raises:
            NoAnswer: the turn was not answered; look at `reason` first.
        """
        if self.reason != "answered":
            raise NoAnswer(self.run, self.reason, self.error.message if self.error is not None else None)
        return cast("T", self.given)

    @property
    def usd(self) -> float | None:
        """What the turn cost, in US dollars; `None` if a price is unknown, or if no account was kept."""
        return self.spent.usd if self.spent is not None else None
