"""A live run is a run while a process takes its turn: the log, the folded state, and the listeners.

All of it can be made again from the log, so nothing is lost with the process.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gesta.agent import Agent
from gesta.codec.rows import as_recorded
from gesta.decide.approval import Approver
from gesta.entry import Cause, Entry
from gesta.events import AnswerEvent, Broadcast, ObservationEvent, Outcome, RetractEvent, ThoughtEvent
from gesta.kinds import Content, RequestHeaderContent, SystemContent
from gesta.log.journal import Log, pages
from gesta.model.request import Envelope
from gesta.perform.sources import Sources
from gesta.perform.stop import GRACE_S, Stop
from gesta.policy import Budget, Limits
from gesta.prompt.blocks import Prompt, way
from gesta.state.run import RunState, RunView
from gesta.store import Letter, Store
from gesta.text.redactor import SECRETS
from gesta.text.tracing import TraceContext, span_id, trace_context, trace_id

GONE_OPTION = "gone= of gesta.open"
"""The name under which the record notes an answer of `gesta.open(gone=...)`, in place of a person."""


class TurnCaller(msgspec.Struct, eq=False):
    """The values that the caller of a turn passes: listeners, a stop request, and deps."""

    broadcast: Broadcast | None
    """Sends the words of the turn to listeners; `None` if nobody can follow it."""
    stop: Stop
    """Asks the turn to stop."""
    deps: Any = None
    """Deps for the tools of the turn."""
    trace: TraceContext | None = None
    """For a child run that its parent run called: the span of the turn above."""


def nobody_knows(_process: str) -> None:
    """Return `None`: whether a process has ended is not known. The default of `gesta.open(gone=...)`."""


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
    """Key of the task: a task that is given twice under one key is done once."""
    content: SystemContent
    cause: Cause
    """Run and seq of the edge."""
    source: tuple[str, ...]
    """Path of the span that gives the task."""
    allowance: dict[str, Any] | None = None
    """The amount that the child run may spend, if the run above keeps an account; see `decide.budget.share`."""
    run: str = ""
    """Id of the child run, if it was called in this turn before."""
    thread: bool = False
    """Whether the child run takes several turns, one after the other."""


class Host(Protocol):
    """The methods of a record that a live run uses: to run other agents, and to send letters."""

    @property
    def address(self) -> str:
        """Address of the record."""

    @property
    def terms(self) -> Terms:
        """The options that hold for all turns."""

    @property
    def sources(self) -> Sources:
        """The tool sources of agents."""

    async def child(self, agent: Any, task: Task, live: "LiveRun") -> Outcome:
        """Run the turn of a child run, continue it, or return its outcome if it has ended."""

    def save(self, result: Letter) -> None:
        """Send to the run's inbox the result of an attempt that nobody waits for any more.

        May be called in any thread.
        """

    async def child_run(self, name: str, live: "LiveRun") -> str:
        """Return the id of a child run."""

    async def call_off(self, live: "LiveRun", names: Sequence[str] | None = None) -> None:
        """End the open turns of child runs.

        Args:
            names: names of the child runs to end, with all runs below them; `None` for all.
        """


USUAL = Limits()
"""Bounds of a turn whose agent's policy is not known yet."""


class Heading(msgspec.Struct, frozen=True):
    """The part of a request that all requests of an agent share. It is made once."""

    agent: Agent
    header: RequestHeaderContent
    envelope: Envelope


Telling = type[ThoughtEvent] | type[ObservationEvent] | type[AnswerEvent] | type[RetractEvent]


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
    ) -> None:
        self.broadcast = told.broadcast or Broadcast()
        """Sends the words of the run to its listeners."""
        self.stop = told.stop
        """The request to stop the turn."""
        self.deps = told.deps
        self._above = told.trace
        self.log = log
        self.state = state
        self.prompt = prompt
        self.host = host
        self.budget: Budget | None = None
        """Budget of a turn of the run."""
        self.limits = USUAL
        """Bounds of a turn of the run."""
        self.by: str | None = None
        """The person who resumes the turn."""
        self.streamed = False
        """Whether words of the last reply were sent already."""
        self.heading: Heading | None = None
        """The heading of the last request."""
        self.made: tuple[Agent, str, Agent] | None = None
        """For instructions that a function makes: the agent, their text in the open turn, and the agent with that
        text."""
        self._view = RunView()
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

    def span(self, seq: int) -> TraceContext | None:
        """Return the span that an entry of the open turn began, as a trace names it.

        `None` in a child run that was resumed by itself, because its trace is known to the run above alone.
        """
        turn, opened = self.state.turn, self.state.opened
        if turn is None or opened is None or (opened.parent_run is not None and self._above is None):
            return None
        shared = opened.base is not None and turn.question <= opened.base.seq
        above = self._above or trace_context(None if shared else turn.traceparent)
        trace = above.trace if above is not None else trace_id(self.log.run, turn.begin)
        return TraceContext(trace, span_id(self.log.run, seq), above is None or above.sampled)

    def absorb(self) -> list[Entry]:
        """Fold the entries written since the last call, and return them."""
        journal = self.log.journal
        if not journal.fresh:
            return []
        entries = journal.take()
        for entry in entries:
            self.state = self._view.apply(self.state, entry)
            self.prompt.add(entry)
        return entries

    def head(self, agent: Agent) -> Heading:
        """Return the part of a request that all requests of an agent share."""
        if self.heading is None or self.heading.agent is not agent:
            header = agent.formats().dress(agent.header())
            if self.made is not None and self.made[2] is agent:
                header = msgspec.structs.replace(header, made=self.made[1])
            header = as_recorded(header)
            self.heading = Heading(agent, header, agent.asked().envelope(header))
        return self.heading

    async def instead(self, agent: Agent, model: str) -> Agent:
        """Return the agent with one of its fallbacks as its model. The prompt is encoded again for that model.

        Cost: reads the run, once in a turn.
        """
        agent = agent.in_place(model)
        if self.prompt.way != way(agent.formats(), agent.asked()):
            self.absorb()
            await self.log.durable()
            self.prompt = Prompt(agent.formats(), agent.asked())
            async for page in pages(self.log.journal.store, self.log.run):
                for entry in page:
                    self.prompt.add(entry)
        return agent

    def write(self, content: Content, *causes: Cause) -> Entry:
        """Write an entry in the span of the turn."""
        return self.log.journal.write(content, self.log.span_seq, causes)

    def tell(self, type_: Telling, content: str, message: int = 0, *, last: bool = False) -> None:
        """Send words to all listeners of the run before the words are on record. They may be retracted later.

        Args:
            message: seq of the request that the words answer.
            last: whether these words end a message.
        """
        if self.broadcast.listeners:
            said = content if SECRETS.search is None else SECRETS.text(content)
            run, span = self.log.run, self.log.path
            event = type_(content=said, message=message, run=run, span=span, end_of_message=last)
            self.broadcast.tell(event, self.log.journal.durable_head)

    def take_back(self, message: int) -> None:
        """Send a `retract` event: the words streamed for a request are not the answer."""
        if self.streamed:
            self.streamed = False
            self.tell(RetractEvent, "", message, last=True)


class Kept(msgspec.Struct, frozen=True):
    """The folded state of a run up to its head."""

    head: int
    digest: bytes
    state: RunState
    prompt: Prompt


async def folded(store: Store, run: str, agent: Agent) -> tuple[RunState, Prompt]:
    """Return the folded state of a run, and its prompt. Cost: reads the run."""
    state, prompt, view = RunState(), Prompt(agent.formats(), agent.asked()), RunView()
    async for page in pages(store, run):
        for entry in page:
            state = view.apply(state, entry)
            prompt.add(entry)
    return state, prompt
