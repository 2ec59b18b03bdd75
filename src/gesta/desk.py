"""A desk is what one worker has at hand while it works on a run: its log, the folds over it, and who listens.

Everything on it can be thrown away and made again from the log.
"""

import logging
from collections.abc import Callable, MutableMapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gesta.agent import Agent
from gesta.approver import Approver
from gesta.entry import Cause, Entry
from gesta.event import Event, EventType, Explain, Listener
from gesta.formatter import observation_text
from gesta.kinds import Content, RequestHeaderContent, SystemContent, ToolResultContent
from gesta.log import Log
from gesta.model import Envelope
from gesta.origins import Key, NodeType, Origin, derived
from gesta.outcome import Outcome
from gesta.policy import Budget, Limits
from gesta.prompt import Prompt
from gesta.standing import RunState, RunView
from gesta.stop import GRACE_S, Stop
from gesta.store import Letter

Told = tuple[Listener | None, Stop]
"""Who listens to a turn, and what asks it to stop."""
ASKED = "gone= of gesta.open"
"""Who said that a process has ended, where the program was asked."""
LOGGER = logging.getLogger("gesta")


def unknown(_process: str) -> None:
    """Return that nobody knows whether a process has ended."""


class Terms(msgspec.Struct, frozen=True):
    """What a program that opens a record says of its turns."""

    grace_s: float = GRACE_S
    approver: Approver | None = None
    gone: Callable[[str], bool | None] = unknown


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a run hands to a child run."""

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
    """Who can run other agents: the record."""

    @property
    def address(self) -> str:
        """Address of the record."""

    @property
    def terms(self) -> Terms:
        """What the program says of its turns."""

    async def child(self, agent: Any, task: Task, desk: "Desk") -> Outcome:
        """Take the turn of a child run, or go on with it, or give its outcome if it has ended."""

    def save(self, result: Letter) -> None:
        """Send what came of an attempt that nobody waits for any more to whoever goes on; callable in any thread."""

    async def child_run(self, name: str, desk: "Desk") -> str:
        """Give the id of a child run."""

    async def call_off(self, desk: "Desk", names: Sequence[str] | None = None) -> None:
        """End what runs below still have open.

        Args:
            names: of the child runs that are ended, with all below them; `None` for all.
        """


class Heading(msgspec.Struct, frozen=True):
    """What holds for all requests of an agent: made once, as long as the agent is the same."""

    agent: Agent
    header: RequestHeaderContent
    envelope: Envelope


class Desk:
    """One run at work."""

    def __init__(
        self,
        log: Log,
        state: RunState,
        prompt: Prompt,
        *,
        host: Host,
        told: Told,
        origins: MutableMapping[str, Origin] | None = None,
    ) -> None:
        listener, self.stop = told
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
        self.limits = Limits()
        """Bounds of a turn of the run."""
        self.streamed = False
        """Whether words of the last reply went out already."""
        self.heading: Heading | None = None
        """What was last made for the requests of an agent."""
        self._view = RunView()
        self._origins = {} if origins is None else origins
        self.origin = self._origins.setdefault(log.run, Origin()) if listener is not None else None
        """What explain events are made of; none where nobody listened when the desk was taken."""
        self._fresh: list[Entry] = []
        """Entries that the origin has taken in, and the other folds have not."""
        log.journal.keeps = True

    @property
    def record(self) -> str:
        """Address of the record."""
        return self.host.address

    def inside(self, log: Log) -> "Desk":
        """Give the same desk for a span of the run."""
        inner = object.__new__(Desk)
        inner.__dict__ |= self.__dict__  # `copy` takes ten times as long
        inner.log = log
        return inner

    @property
    def clock(self) -> Callable[[], datetime]:
        """The clock that stamps entries."""
        return self.log.journal.clock

    def absorb(self) -> list[Entry]:
        """Fold what was written since the last call, and give it."""
        if self.origin is None:
            entries = self.log.journal.take()
        else:
            self._trace()
            entries = self._fresh.copy()
            self._fresh.clear()  # in place: the desks of inner spans share it
        for entry in entries:
            self.state = self._view.apply(self.state, entry)
            self.prompt.add(entry)
        return entries

    def head(self, agent: Agent) -> Heading:
        """Give what holds for all requests of an agent."""
        if self.heading is None or self.heading.agent is not agent:
            header = agent.formats().dress(agent.header())
            self.heading = Heading(agent, header, agent.asked().envelope(header))
        return self.heading

    def write(self, content: Content, *causes: Cause) -> Entry:
        """Write an entry in the turn's span."""
        return self.log.journal.write(content, self.log.span_seq, causes)

    def tell(self, type_: EventType, content: str, *, message: int = 0, seq: int | None = None) -> None:
        """Tell the listener a whole message once all that is written so far is durable.

        Args:
            message: seq of the request that the words belong to.
            seq: the entry that they tell of.
        """
        if self.listener is not None:
            last = type_ in ("answer", "error")
            self._later(
                Event(type=type_, content=content, message=message, seq=seq, end_of_message=True, end_of_dialog=last)
            )

    def tell_now(self, type_: EventType, content: str, message: int = 0, *, last: bool = False) -> None:
        """Tell the listener at once: only for words that may still be taken back.

        Args:
            last: whether it ends a message.
        """
        self._hear(Event(type=type_, content=content, message=message, end_of_message=last))

    def take_back(self, message: int) -> None:
        """Take back the words that went out of the reply to a request: they are no answer."""
        if self.streamed:
            self.streamed = False
            self.tell("retract", "", message=message)

    def observe(self, entry: Entry) -> None:
        """Tell of a tool's result and where it stands, once it is durable."""
        assert isinstance(entry.content, ToolResultContent)
        if self.listener is not None:
            self.tell("observation", observation_text(entry.content.tool_result), seq=entry.seq)
            self.explain("Observation", entry)

    def explain(self, node: NodeType, entry: Entry) -> None:
        """Tell where an entry stands in the explanation, once it is durable."""
        if self.listener is None or self.origin is None:
            return
        self._trace()
        sources = derived(self._origins, (entry.run, entry.seq), self._shown)
        graph = Explain(node, tuple(f"{run}.{seq}" for run, seq in sources))
        self._later(Event(type="explain", seq=entry.seq, explain_id=entry.id, explain_graph=graph))

    def place(self, entry: Entry) -> None:
        """Tell where an entry stands in the explanation, if it stands there."""
        self._trace()
        node = self.origin.nodes.get(entry.seq) if self.origin is not None else None
        if node is not None:
            self.explain(node, entry)

    def _trace(self) -> None:
        """Take in what was written from what."""
        if self.origin is not None:
            fresh = self.log.journal.take()
            for entry in fresh:
                self.origin.add(entry)
            self._fresh += fresh

    def _shown(self, key: Key) -> bool:
        """Say whether an entry is a node; of a run that is not at work it is taken for one, as its Conclusion is."""
        origin = self._origins.get(key[0])
        return origin is None or (key[1] in origin.nodes and not origin.became(key[1]))

    def pass_on(self, event: Event) -> None:
        """Tell the listener what a child run tells; it never ends the dialogue."""
        self._say(msgspec.structs.replace(event, end_of_dialog=False))

    def _later(self, event: Event) -> None:
        self.log.journal.after(lambda: self._hear(event))

    def _hear(self, event: Event) -> None:
        self._say(msgspec.structs.replace(event, run=self.log.run, span=self.log.path))

    def _say(self, event: Event) -> None:
        if self.listener is not None and not self.deaf:
            try:
                self.listener(event)
            except BaseException as failure:
                self.deaf.append(failure)
                LOGGER.warning("A listener of run %s raised, and hears no more of it.", self.log.run, exc_info=failure)
