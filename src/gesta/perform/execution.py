"""A live run is what a worker needs while it takes a run's turn: its log, the folds over it, and who listens.

Everything on it can be thrown away and made again from the log.
"""

import logging
from collections.abc import Callable, MutableMapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from gesta.agent import Agent
from gesta.codec.rows import as_recorded
from gesta.decide.approval import Approver
from gesta.entry import Cause, Entry
from gesta.events import (
    AnswerEvent,
    ErrorEvent,
    Event,
    Explain,
    ExplainEvent,
    Listener,
    ObservationEvent,
    Outcome,
    RetractEvent,
    ThoughtEvent,
)
from gesta.kinds import Content, RequestHeaderContent, SystemContent, ToolResultContent
from gesta.lineage import Key, Origin, derived
from gesta.log.journal import Log, pages
from gesta.model.request import Envelope
from gesta.perform.stop import GRACE_S, Stop
from gesta.policy import Budget, Limits
from gesta.prompt.blocks import Prompt
from gesta.prompt.formatter import observation_text
from gesta.state.run import RunState, RunView
from gesta.store import Letter, Store
from gesta.text.redactor import SECRETS

GONE_OPTION = "gone= of gesta.open"
"""Who said that a process has ended, where the program was asked."""
LOGGER = logging.getLogger("gesta")


class TurnCaller(NamedTuple):
    """The one who began or resumed a turn."""

    listener: Listener | None
    stop: Stop
    """Asks the turn to stop."""
    deps: Any = None
    """Of the tools of the turn."""


def nobody_knows(_process: str) -> None:
    """Return that nobody knows whether a process has ended."""


class Terms(msgspec.Struct, frozen=True):
    """Options of `gesta.open` that hold for all turns of the record."""

    grace_s: float = GRACE_S
    approver: Approver | None = None
    gone: Callable[[str], bool | None] = nobody_knows


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The task that a run gives to a child run."""

    name: str
    """Name of the child run."""
    key: str
    """Makes handing it over twice the same as once."""
    content: SystemContent
    cause: Cause
    """The edge."""
    source: tuple[str, ...]
    """Path of the span that it comes from."""
    allowance: dict[str, Any] | None = None
    """What it may cost, where the run that hands it over keeps an account; see `affording.share`."""
    run: str = ""
    """Id of the child run, where it was met in this turn before."""
    thread: bool = False
    """Whether that takes one turn after the other."""


class Host(Protocol):
    """What a live run needs of the record: to run other agents, and to send letters."""

    @property
    def address(self) -> str:
        """Address of the record."""

    @property
    def terms(self) -> Terms:
        """The options that hold for all turns."""

    async def child(self, agent: Any, task: Task, live: "LiveRun") -> Outcome:
        """Run the turn of a child run, continue it, or return its outcome if it has ended."""

    def save(self, result: Letter) -> None:
        """Send the result of an attempt that nobody waits for any more to the run's inbox. Callable in any thread."""

    async def child_run(self, name: str, live: "LiveRun") -> str:
        """Return the id of a child run."""

    async def call_off(self, live: "LiveRun", names: Sequence[str] | None = None) -> None:
        """End what runs below still have open.

        Args:
            names: of the child runs that are ended, with all below them; `None` for all.
        """


USUAL = Limits()
"""Bounds of a turn until its policy says otherwise."""


class Heading(msgspec.Struct, frozen=True):
    """The part of a request that is the same for all requests of an agent. It is made once."""

    agent: Agent
    header: RequestHeaderContent
    envelope: Envelope


Telling = type[ThoughtEvent] | type[ObservationEvent] | type[AnswerEvent] | type[ErrorEvent] | type[RetractEvent]


class LiveRun:
    """A run while this process takes its turn."""

    def __init__(
        self,
        log: Log,
        state: RunState,
        prompt: Prompt,
        *,
        host: Host,
        told: TurnCaller,
        origins: MutableMapping[str, Origin] | None = None,
    ) -> None:
        listener, self.stop, self.deps = told
        """Whether the turn is to be left."""
        self.log = log
        self.state = state
        self.prompt = prompt
        self.host = host
        self.listener = listener
        self.streaming = listener is not None
        self.deaf: list[BaseException] = []
        """What the listener raised, also in a span inside; it hears no more, and the turn goes on."""
        self.budget: Budget | None = None
        """What a turn of the run may cost."""
        self.limits = USUAL
        """Bounds of a turn of the run."""
        self.by: str | None = None
        """The person who resumes the turn."""
        self.streamed = False
        """Whether words of the last reply went out already."""
        self.heading: Heading | None = None
        """What was last made for the requests of an agent."""
        self.made: tuple[Agent, str, Agent] | None = None
        """An agent whose instructions a function makes, what it gave for the open turn, and the agent with that."""
        self._view = RunView()
        self._origins = {} if origins is None else origins
        self.origin = self._origins.setdefault(log.run, Origin()) if listener is not None else None
        """What explain events are made of; `None` if nobody listened when the turn was begun."""
        self._fresh: list[Entry] = []
        """Entries that the origin has taken in, and the other folds have not."""
        self._untold: list[Entry] = []
        """Entries whose place in the explanation is not known yet."""
        log.journal.keeps = True

    @property
    def record(self) -> str:
        """Address of the record."""
        return self.host.address

    def inside(self, log: Log) -> "LiveRun":
        """Return a copy of this live run that writes into a span of the run."""
        inner = object.__new__(LiveRun)
        inner.__dict__ |= self.__dict__  # `copy` takes ten times as long
        inner.log = log
        return inner

    @property
    def clock(self) -> Callable[[], datetime]:
        """The clock that stamps entries."""
        return self.log.journal.clock

    def absorb(self) -> list[Entry]:
        """Fold the entries written since the last call, and return them."""
        journal = self.log.journal
        if self.origin is None:
            if not journal.fresh:
                return []
            entries = journal.take()
        else:
            self.trace()
            entries = self._fresh.copy()
            self._fresh.clear()  # in place: the live runs of inner spans share the list
        for entry in entries:
            self.state = self._view.apply(self.state, entry)
            self.prompt.add(entry)
        return entries

    def head(self, agent: Agent) -> Heading:
        """Return the part of a request that is the same for all requests of an agent."""
        if self.heading is None or self.heading.agent is not agent:
            header = agent.formats().dress(agent.header())
            if self.made is not None and self.made[2] is agent:
                header = msgspec.structs.replace(header, made=self.made[1])
            header = as_recorded(header)
            self.heading = Heading(agent, header, agent.asked().envelope(header))
        return self.heading

    def write(self, content: Content, *causes: Cause) -> Entry:
        """Write an entry in the turn's span."""
        return self.log.journal.write(content, self.log.span_seq, causes)

    def tell(self, type_: Telling, content: str, *, message: int = 0, seq: int | None = None) -> None:
        """Send the listener a whole message once everything written so far is durable.

        Args:
            message: seq of the request that the words belong to.
            seq: the entry that the words are about.
        """
        if self.listener is not None:
            last = type_ in (AnswerEvent, ErrorEvent)
            self._later(type_(content=content, message=message, seq=seq, end_of_message=True, end_of_dialog=last))

    def tell_now(self, type_: Telling, content: str, message: int = 0, *, last: bool = False) -> None:
        """Send the listener words at once, before they are durable. They may be retracted later.

        Args:
            last: whether these words end a message.
        """
        self._hear(type_(content=content, message=message, end_of_message=last))

    def take_back(self, message: int) -> None:
        """Send the listener a `retract` event: the words streamed for a request are not the answer."""
        if self.streamed:
            self.streamed = False
            self.tell(RetractEvent, "", message=message)

    def observe(self, entry: Entry) -> None:
        """Send the listener a tool's result and its place in the explanation, once the result is durable."""
        assert isinstance(entry.content, ToolResultContent)
        if self.listener is not None:
            self.tell(ObservationEvent, observation_text(entry.content.tool_result), seq=entry.seq)
            self.trace()

    def trace(self) -> None:
        """Add the new entries to the record of causes, and tell the listener of each that the explanation shows.

        A completion, and what was made of it, is told as soon as it is known what it became.
        """
        if self.origin is None:
            return
        fresh = self.log.journal.take()
        for entry in fresh:
            self.origin.add(entry)
        self._fresh += fresh
        if self.listener is not None:
            self._untold += fresh
            left = [entry for entry in self._untold if not self._explained(entry)]
            self._untold[:] = left  # in place, as above

    def _explained(self, entry: Entry) -> bool:
        """Return whether an entry's place in the explanation is known; the listener hears of it once it is durable."""
        assert self.origin is not None
        key, run = (entry.run, entry.seq), entry.run
        if any(self.origin.undecided(seq) for other, seq in (key, *self.origin.links[entry.seq]) if other == run):
            return False
        node = self.origin.nodes.get(entry.seq)
        if node is not None and self._shown(key):
            sources = tuple(f"{run}.{seq}" for run, seq in derived(self._origins, key, self._shown))
            graph = Explain(node, sources, entry.content)
            self._later(ExplainEvent(seq=entry.seq, explain_id=entry.id, explain_graph=graph))
        return True

    def _shown(self, key: Key) -> bool:
        """Return whether an entry is a node of the explanation. An entry of a run that is not at work counts as one."""
        origin = self._origins.get(key[0])
        return origin is None or (key[1] in origin.nodes and not origin.became(key[1]))

    def pass_on(self, event: Event) -> None:
        """Send the listener an event of a child run. Such an event never ends the dialogue."""
        self._say(msgspec.structs.replace(event, end_of_dialog=False))

    def _later(self, event: Event) -> None:
        self.log.journal.after(lambda: self._hear(event))

    def _hear(self, event: Event) -> None:
        self._say(msgspec.structs.replace(event, run=self.log.run, span=self.log.path))

    def _say(self, event: Event) -> None:
        if self.listener is not None and not self.deaf:
            if SECRETS.search is not None and (said := SECRETS.text(event.content)) is not event.content:
                event = msgspec.structs.replace(event, content=said)
            try:
                self.listener(event)
            except BaseException as failure:
                self.deaf.append(failure)
                LOGGER.warning("A listener of run %s raised, and hears no more of it.", self.log.run, exc_info=failure)


class Kept(msgspec.Struct, frozen=True):
    """The folded state of a run up to its head."""

    head: int
    digest: bytes
    state: RunState
    prompt: Prompt
    origin: Origin | None
    """Of runs that somebody listened to."""


async def folded(store: Store, run: str, agent: Agent) -> tuple[RunState, Prompt]:
    """Fold a run into where it stands and what its next request holds. Cost: reads the run."""
    state, prompt, view = RunState(), Prompt(agent.formats(), agent.asked()), RunView()
    async for page in pages(store, run):
        for entry in page:
            state = view.apply(state, entry)
            prompt.add(entry)
    return state, prompt


async def traced(store: Store, run: str) -> Origin:
    """Return the fold that explain events are made from; it is needed only if somebody listens. Cost: reads the run."""
    origin = Origin()
    async for page in pages(store, run):
        for entry in page:
            origin.add(entry)
    return origin
