"""A live run holds what a process needs while it takes a turn: the run's log, its state, and the listeners.

A run is the recorded conversation or task of one agent. An entry is one recorded fact of a run; its seq is its number
there. A turn is one message to an agent and all the work up to its answer. A child run is the run of another agent that
a turn calls. The state is folded: computed by reading the entries in order. So it can be made again at any time, and
nothing is lost if the process ends.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gesta.agent import Agent
from gesta.codec.rows import as_recorded
from gesta.decide.approval import Approver
from gesta.entry import Cause, Entry
from gesta.events import AnswerEvent, Broadcast, ObservationEvent, Outcome, RetractEvent, ThoughtEvent
from gesta.hooks import CallHook
from gesta.kinds import Content, RequestHeaderContent, SystemContent
from gesta.log.journal import Log, pages
from gesta.model.request import Envelope
from gesta.perform.sources import Sources
from gesta.perform.stop import GRACE_S, Stop
from gesta.policy import Budget, Limits
from gesta.prompt import Prompt, way
from gesta.state.run import RunState, RunView
from gesta.store import Letter, Store
from gesta.text.redactor import SECRETS
from gesta.text.tracing import TraceContext, span_id, trace_context, trace_id

GONE_OPTION = "gone= of gesta.open"
"""Name that the record notes when `gesta.open(gone=...)`, and not a person, said that a process has ended."""


class TurnCaller(msgspec.Struct, eq=False):
    """The things that the caller of a turn passes: listeners, a way to stop the turn, and dependencies of the tools."""

    broadcast: Broadcast | None
    """Sends the words of the turn to listeners; `None` if nobody can listen."""
    stop: Stop
    """The caller's means to ask the turn to stop."""
    deps: Any = None
    """Object that tools get as `Context.deps`; it is never on record."""
    trace: TraceContext | None = None
    """For a child run: the tracing span of the turn that called it; `None` for other runs."""
    guards: tuple[CallHook, ...] = ()
    """For a child run: the `call` hooks of the agents above it, the outermost first."""


def nobody_knows(_process: str) -> None:
    """Return `None`: it is not known whether the process has ended. This is the default of `gesta.open(gone=...)`."""


class Terms(msgspec.Struct, frozen=True):
    """Options of `gesta.open` that apply to all turns of the record."""

    grace_s: float = GRACE_S
    """Seconds for which a tool with effects may go on after its turn was asked to stop."""
    approver: Approver | None = None
    """Checks who approves a call; `None` to believe every name."""
    gone: Callable[[str], bool | None] = nobody_knows
    """Function that returns whether the process with a given id has ended; `None` if it does not know."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task that a run passes to a child run."""

    name: str
    """Name of the child run."""
    key: str
    """Key of the task. A second task with the same key is not done again."""
    content: SystemContent
    cause: Cause
    """Id of the run that passes the task, and seq of its `edge` entry."""
    source: tuple[str, ...]
    """Names of the spans (parts of the calling run) that contain the call. The outermost comes first."""
    allowance: dict[str, Any] | None = None
    """Tokens and US dollars that the child run may spend; `None` without a budget. See `decide.budget.share`."""
    run: str = ""
    """Id of the child run if this turn called it before, else empty."""
    thread: bool = False
    """Whether the child run takes several turns, one after the other."""
    left: tuple[str, ...] = ()
    """Keys of the tasks of open steps that the calling program has not reached since it was started again, or whose
    calls the caller broke off."""
    doubts: tuple[str, ...] = ()
    """Names of tools that earlier agents of the same tool or hook left in doubt. No entry of the run names them yet."""


class Host(Protocol):
    """What a live run needs of the record (the opened store of all runs) that it belongs to."""

    @property
    def address(self) -> str:
        """Address of the record."""

    @property
    def terms(self) -> Terms:
        """The options of `gesta.open` that apply to all turns."""

    @property
    def sources(self) -> Sources:
        """The opened tool sources of agents, such as connections to MCP servers."""

    async def child(self, agent: Any, task: Task, live: "LiveRun") -> Outcome:
        """Run a turn of a child run, and return its outcome.

        An open turn is continued. If the turn has ended before, its outcome is returned.

        Args:
            agent: the agent of the child run.
            task: its task.
            live: the run that calls it.
        """

    def save(self, result: Letter) -> None:
        """Send the result of an attempt to the run's inbox, because the run no longer waits for it.

        May be called in any thread.
        """

    async def child_run(self, name: str, live: "LiveRun") -> str:
        """Return the id of the child run with this name; `live` is its parent run."""

    async def call_off(self, live: "LiveRun", name: str | None = None) -> list[str]:
        """End the open turns of child runs, and of all runs below them, because nobody waits for them any more.

        Args:
            live: the run that started the child runs.
            name: name of the first child run that a call or a hook started. It and the others that the same call or
                hook started, whose names begin with it, are ended. `None` for all child runs.

        Returns:
            The sorted names of tools with a call of unknown outcome in these runs, also in those that ended before.
        """


USUAL = Limits()
"""Limits of a turn before the policy of its agent is known."""


class Heading(msgspec.Struct, frozen=True):
    """The part of a request that all requests of an agent have in common, such as its instructions and tools."""

    agent: Agent
    header: RequestHeaderContent
    envelope: Envelope


Telling = type[ThoughtEvent] | type[ObservationEvent] | type[AnswerEvent] | type[RetractEvent]


class LiveRun:
    """A run whose turn this process carries out, with its log, its folded state, its prompt and its listeners."""

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
        """Sends words of the run's replies to the listeners of the run."""
        self.stop = told.stop
        """The object by which the turn is asked to stop."""
        self.deps = told.deps
        self.guards = told.guards
        """The `call` hooks that also hold in child runs, the outermost first."""
        self._above = told.trace
        self.log = log
        self.state = state
        self.prompt = prompt
        self.host = host
        self.budget: Budget | None = None
        """Budget of one turn of the run; `None` for no budget."""
        self.limits = USUAL
        """Limits of one turn of the run."""
        self.by: str | None = None
        """Name of the person who resumes the turn, if a person does."""
        self.streamed = False
        """Whether words of the last reply were sent to listeners."""
        self.heading: Heading | None = None
        """The heading (header entry and surrounding bytes) of the run's last request."""
        self.made: tuple[Agent, str, Agent] | None = None
        """If a function makes the instructions: the agent, the text for the open turn, and a copy of the agent with
        this text as its instructions."""
        self._view = RunView()
        log.journal.keeps = True

    @property
    def record(self) -> str:
        """Address of the record."""
        return self.host.address

    def inside(self, log: Log) -> "LiveRun":
        """Return a copy of this live run that writes its entries into another span, through `log`."""
        inner = object.__new__(LiveRun)
        inner.__dict__ |= self.__dict__  # `copy` takes ten times as long
        inner.log = log
        return inner

    @property
    def clock(self) -> Callable[[], datetime]:
        """The clock for the times of entries."""
        return self.log.journal.clock

    def span(self, seq: int) -> TraceContext | None:
        """Return the tracing span for the part of the turn that begins with the entry `seq`.

        `None` if no turn is open, or in a child run that was resumed alone: only its parent run knows the trace.
        """
        turn, opened = self.state.turn, self.state.opened
        if turn is None or opened is None or (opened.parent_run is not None and self._above is None):
            return None
        shared = opened.base is not None and turn.question <= opened.base.seq
        above = self._above or trace_context(None if shared else turn.traceparent)
        trace = above.trace if above is not None else trace_id(self.log.run, turn.begin)
        return TraceContext(trace, span_id(self.log.run, seq), above is None or above.sampled)

    def absorb(self) -> list[Entry]:
        """Add the entries written since the last call to the state and the prompt, and return them."""
        journal = self.log.journal
        if not journal.fresh:
            return []
        entries, journal.fresh = journal.fresh, []
        for entry in entries:
            self.state = self._view.apply(self.state, entry)
            self.prompt.add(entry)
        return entries

    def head(self, agent: Agent) -> Heading:
        """Return the part of a request that all requests of an agent have in common. It is cached for each agent."""
        if self.heading is None or self.heading.agent is not agent:
            header = agent.formats().dress(agent.header())
            if self.made is not None and self.made[2] is agent:
                header = msgspec.structs.replace(header, made=self.made[1])
            header = as_recorded(header)
            self.heading = Heading(agent, header, agent.asked().envelope(header))
        return self.heading

    async def encode_for(self, agent: Agent) -> None:
        """Encode the prompt for the agent's model, if it is encoded for another one, such as a fallback.

        Cost: in that case, reads the run from its store.
        """
        if self.prompt.way != way(agent.formats(), agent.asked()):
            self.absorb()
            made, seq = Prompt(agent.formats(), agent.asked()), 0
            while seq < self.state.head:  # a task that a tool left behind may write meanwhile
                await self.log.durable()
                async for page in pages(self.log.journal.store, self.log.run, seq):
                    for entry in page:
                        made.add(entry)
                        seq = entry.seq
                self.absorb()
            self.prompt.become(made)

    def write(self, content: Content, *causes: Cause) -> Entry:
        """Write `content` as an entry in the span of the turn, and return the entry.

        Args:
            causes: the entries that this one is made from: their seqs, or (run, seq) for entries of other runs.
        """
        return self.log.journal.write(content, self.log.span_seq, causes)

    def tell(self, type_: Telling, content: str, message: int = 0, *, last: bool = False) -> None:
        """Send words to all listeners of the run before the words are on record. They may be retracted later.

        Args:
            type_: class of the event to send.
            content: the words.
            message: seq of the request that the words answer.
            last: whether these words end a message.
        """
        if self.broadcast.listeners:
            said = content if SECRETS.search is None else SECRETS.text(content)
            run, span = self.log.run, self.log.path
            event = type_(content=said, message=message, run=run, span=span, end_of_message=last)
            self.broadcast.tell(event, self.log.journal.durable_head)

    def take_back(self, message: int) -> None:
        """Report to listeners that the words streamed for a request are not the answer.

        If no words were streamed, do nothing.

        Args:
            message: seq of the request.
        """
        if self.streamed:
            self.streamed = False
            self.tell(RetractEvent, "", message, last=True)


class Kept(msgspec.Struct, frozen=True):
    """The folded state of a run, kept in memory between two turns."""

    head: int
    """Seq of the last folded entry."""
    digest: bytes
    """Digest of the last folded entry. If the run now has another digest, the kept state is not used."""
    state: RunState
    prompt: Prompt


async def folded(store: Store, run: str, agent: Agent) -> tuple[RunState, Prompt]:
    """Return the folded state of a run, and its prompt for the agent. Cost: reads all entries of the run."""
    state, prompt, view = RunState(), Prompt(agent.formats(), agent.asked()), RunView()
    async for page in pages(store, run):
        for entry in page:
            state = view.apply(state, entry)
            prompt.add(entry)
    return state, prompt
