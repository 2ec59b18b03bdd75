"""An event describes one entry of a run, or words that are not on record yet.

An entry is one stored fact, such as a tool call; a run is the sequence of an agent's entries, and an entry's seq is its
number in it. Events are not stored. Words of an answer or of a thought are sent while the model generates them; every
other event is sent after its entry is durable. A `retract` event withdraws words that did not become the answer.
`Event` is a closed union; `event.type` says which of its classes an event has. An `Outcome` says how a turn (from a
message to its answer) ended or what it waits for. It is computed from the state of the run and not stored.
"""

import logging
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, cast

from msgspec import Struct, field

from gesta.decide.waiting import Waiting
from gesta.errors import NoAnswer
from gesta.function_tool.output import T
from gesta.kinds import Content, Error, Reason
from gesta.lineage import NodeType
from gesta.state.account import Spent


class Explain(Struct, frozen=True):
    """An entry in the explanation of an answer: its type, and the entries that it was made from."""

    node: NodeType
    derived_from: tuple[str, ...]
    """Ids of the nodes that the entry was made from."""
    holds: Content | None = None
    """The content of the entry: what happened, such as a message or a tool call."""


class Outcome(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of a turn: how it ended, or what it waits for. `T` is the type of the agent's answer."""

    run: str
    session: str
    turn: int
    """Seq of the `begin` entry of the turn."""
    reason: Reason | Literal["waiting"]
    answer: str | None = None
    given: T | None = field(name="value", default=None)
    """The value of the answer; `None` if there is no value. Read it through `value`, which checks the reason."""
    waiting: tuple[Waiting, ...] = ()
    queued: bool = False
    """Whether the message still waits for another turn of the run to end. Then this outcome is that other turn's
    outcome."""
    doubts: tuple[str, ...] = ()
    """Names of tools with a call whose outcome was still unknown when the turn ended."""
    error: Error | None = None
    """Why the turn has no answer: an error, or the limit that was reached."""
    requests: int = 0
    """Number of replies that the model made."""
    tokens_in: int = 0
    tokens_out: int = 0
    unknown_usage: int = 0
    """Number of replies without a count of tokens; `tokens_in` and `tokens_out` do not include them."""
    spent: Spent | None = None
    """What the turn and its child runs spent; `None` if no budget was set with `Policy(budget=...)`."""
    end: int | None = None
    """Seq of the `end` of the turn; `None` while the turn waits."""

    @property
    def value(self) -> T:
        """The answer as a value of the agent's `output` type, or as its program returned it; else the answer's text.

        Raises:
            NoAnswer: the turn has no answer. Check `reason` first.
        """
        if self.reason != "answered":
            raise NoAnswer(self.run, self.reason, self.error.message if self.error is not None else None)
        return cast("T", self.given)

    @property
    def usd(self) -> float | None:
        """What the turn cost, in US dollars; `None` if a price is unknown, or if no budget was set."""
        return self.spent.usd if self.spent is not None else None


class AnyEvent(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The fields that every event has."""

    content: str = ""
    """The text of the event; empty if other events have sent all of this text before."""
    message: int = 0
    """Seq of the request whose reply the words belong to; 0 if they belong to no reply."""
    run: str = ""
    span: tuple[str, ...] = ()
    """Names of the spans that the event is in, from the root of the run inwards."""
    seq: int | None = None
    """Seq of the entry that the event is about; `None` for words that are not on record yet."""
    pos: int = 0
    """Pos (number in the whole store) of the entry that caused the event; 0 for words that are not on record yet."""
    part: int = 0
    """Index of the event among the events that have the same `pos`, from 0."""
    end_of_message: bool = False
    end_of_dialog: bool = False
    explain_id: str | None = None
    """Id of the entry that is explained."""
    explain_graph: Explain | None = None

    @property
    def id(self) -> str | None:
        """Pos and part, such as `12-0`, for `record.follow(after=…)`; `None` for words that are not on record yet."""
        return f"{self.pos}-{self.part}" if self.pos else None


class ThoughtEvent(AnyEvent, frozen=True, kw_only=True, tag="thought"):
    """Reasoning of a model, or text that a model wrote in the same reply as tool calls."""

    type: ClassVar[Literal["thought"]] = "thought"


class CallEvent(AnyEvent, frozen=True, kw_only=True, tag="call"):
    """A tool is about to be called: the event comes before the tool runs. Its `seq` is the seq of the call entry."""

    type: ClassVar[Literal["call"]] = "call"
    tool: str
    arguments: dict[str, Any]
    error: str | None = None
    """Why the call is invalid and does not run; `None` for a valid call."""


class ResultEvent(AnyEvent, frozen=True, kw_only=True, tag="result"):
    """A tool call has a result. The text of the result follows in an `observation` event."""

    type: ClassVar[Literal["result"]] = "result"
    call: int | None
    """Seq of the call; `None` if an imported record does not name it."""
    tool: str | None
    """Name of the tool; `None` if the call is not known."""
    result: Any
    outcome: Literal["ok", "error", "denied", "interrupted", "unknown", "late"]


class ObservationEvent(AnyEvent, frozen=True, kw_only=True, tag="observation"):
    """The text that a tool returned. Without a `seq`, it is text that the tool sent while it was running."""

    type: ClassVar[Literal["observation"]] = "observation"


class AnswerEvent(AnyEvent, frozen=True, kw_only=True, tag="answer"):
    """The whole answer of a turn, or its next words while the model generates it."""

    type: ClassVar[Literal["answer"]] = "answer"


class ExplainEvent(AnyEvent, frozen=True, kw_only=True, tag="explain"):
    """An entry in the explanation: `explain_id` names it, and `explain_graph` says what it was made from."""

    type: ClassVar[Literal["explain"]] = "explain"
    explain_id: str
    explain_graph: Explain


class WaitingEvent(AnyEvent, frozen=True, kw_only=True, tag="waiting"):
    """The turn waits for a person, a time or another run; `waiting` says what it waits for."""

    type: ClassVar[Literal["waiting"]] = "waiting"
    waiting: Waiting


class RetryEvent(AnyEvent, frozen=True, kw_only=True, tag="retry"):
    """A request failed and will be sent again. `content` says why it failed; `message` is the seq of the request."""

    type: ClassVar[Literal["retry"]] = "retry"
    error: Error
    wait_s: float
    """Seconds until the next try."""


class CompactionEvent(AnyEvent, frozen=True, kw_only=True, tag="compaction"):
    """Some entries are no longer shown to the model. The `content` is the summary shown instead; it may be empty."""

    type: ClassVar[Literal["compaction"]] = "compaction"
    from_seq: int
    to_seq: int


class ErrorEvent(AnyEvent, frozen=True, kw_only=True, tag="error"):
    """The turn ended without an answer: `content` says why."""

    type: ClassVar[Literal["error"]] = "error"


class RetractEvent(AnyEvent, frozen=True, kw_only=True, tag="retract"):
    """The words that were sent with this `message` number are withdrawn: they are not part of the answer."""

    type: ClassVar[Literal["retract"]] = "retract"


class EndEvent(AnyEvent, frozen=True, kw_only=True, tag="end"):
    """A turn has ended: this event is the last event of the turn. `content` is the reason."""

    type: ClassVar[Literal["end"]] = "end"
    outcome: Outcome[Any]


Event = (
    ThoughtEvent
    | CallEvent
    | ResultEvent
    | ObservationEvent
    | AnswerEvent
    | ExplainEvent
    | WaitingEvent
    | RetryEvent
    | CompactionEvent
    | ErrorEvent
    | RetractEvent
    | EndEvent
)
"""The closed union of all events. A `match` on `event.type` that handles every type ends in `assert_never`.

An event can be sent as JSON with `msgspec.json.encode(event)`. `msgspec.json.decode(text, type=gesta.Event)` reads it.
"""

Listener = Callable[[Event], None]
LOGGER = logging.getLogger("gesta")


class Broadcast(Struct, eq=False, weakref=True):
    """Sends words that a model is still generating to the listeners of a root run and the runs below it."""

    listeners: list[Callable[[Event, int], None]] = field(default_factory=list)
    """Functions that are called with an event, and with the seq of the last durable entry of the run at that time."""
    coming: dict[str, list[tuple[Event, int]]] = field(default_factory=dict)
    """For listeners that join later: for each run, the word events of its newest message so far. Each has beside it the
    seq of the run's last durable entry at the time when the event was sent."""

    def join(self, listener: Callable[[Event, int], None]) -> None:
        """Add a listener. Before that, call it with the words that were already sent of each run's newest message."""
        for each in [told for words in self.coming.values() for told in words]:
            listener(*each)
        self.listeners.append(listener)

    def leave(self, listener: Callable[[Event, int], None]) -> None:
        """Remove a listener. If the listener was not added before, do nothing."""
        if listener in self.listeners:
            self.listeners.remove(listener)

    def tell(self, event: Event, durable: int) -> None:
        """Send an event with words to all listeners. A listener that raises is removed, and its error is logged.

        Args:
            durable: seq of the run's last entry on disk when the words came; each listener gets this number too.
        """
        if not self.listeners:
            return
        words = self.coming.setdefault(event.run, [])
        if words and words[0][0].message != event.message:
            words.clear()
        words.append((event, durable))
        for listener in self.listeners.copy():
            try:
                listener(event, durable)
            except BaseException as failure:
                self.leave(listener)
                LOGGER.warning("A listener of run %s raised, and hears no more of it.", event.run, exc_info=failure)
