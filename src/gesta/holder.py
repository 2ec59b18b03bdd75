"""Who holds a run takes its turns; what was folded of it is kept for the next one.

A turn is opened by a person's message, or by the task of a parent run: a child run is found by its parent and a name,
and its turn by the key that the parent gives, so handing a task over twice is the same as once.
"""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gesta.agent import Agent
from gesta.codec import decode_content, encode_content
from gesta.decide import Finish
from gesta.desk import Desk, Task
from gesta.entry import run_id, utc_text
from gesta.errors import NoRun, OtherProgram, RunHeld, TurnOpen
from gesta.event import Listener
from gesta.fencing import advance, base_below
from gesta.kinds import (
    AgentRef,
    BeginContent,
    EndContent,
    Error,
    KeyValueContent,
    Kind,
    Opened,
    SignalContent,
    SystemContent,
)
from gesta.leases import Leases
from gesta.log import Clock, Journal, Log, open_root, pages, read
from gesta.opening import Opening, close_orphans
from gesta.origins import Origin
from gesta.outcome import Outcome
from gesta.perform import perform
from gesta.prompt import Prompt, way
from gesta.run import outcome, take_in
from gesta.spending import ALLOWANCE
from gesta.standing import RunState, RunView
from gesta.store import Letter, RunRow, Store
from gesta.turn import AGENT, Turn
from gesta.view import fold

FIRST_WAIT_S, LAST_WAIT_S = 0.02, 0.5  # between two looks whether a busy run is free
KEPT_RUNS = 64  # of the runs written last, what was folded is kept for the next turn


class Kept(Struct, frozen=True):
    """What was folded of a run up to its head."""

    head: int
    digest: bytes
    state: RunState
    prompt: Prompt
    origin: Origin | None
    """Of runs that somebody listened to."""


class Holder:
    """Holds runs of one store, one turn at a time."""

    def __init__(self, store: Store, bind: Callable[[Agent], Agent], clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.bind = bind
        self.leases = Leases(store)
        self._kept: dict[str, Kept] = {}
        self._queues: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._origins: WeakValueDictionary[str, Origin] = WeakValueDictionary()  # of runs that are held or kept
        self._digests: dict[bytes, str] = {}  # of agents, by what describes them
        self.closing = False
        """Whether the record is being closed: turns that are broken off stay open."""

    @property
    def address(self) -> str:
        """Address of the record."""
        return self.store.info.address

    async def take(self, agent: Agent, opening: Opening, listener: Listener | None) -> Outcome:
        """Take the turn that `opening` opens, or opened before.

        Raises:
            TurnOpen, RunHeld: another is open, or somebody else writes the run, and the policy says to raise.
        """
        run = opening.run or await self.run_of(opening.session, opening.name, opening.parent_run)
        if agent.policy.when_busy == "raise":
            return await self._take(agent, run, opening, listener)
        wait_s = FIRST_WAIT_S
        async with self._queues.setdefault(run, anyio.Lock()):  # first come, first served, in one process
            while True:
                try:
                    return await self._take(agent, run, opening, listener)
                except (TurnOpen, RunHeld):
                    await anyio.sleep(wait_s)
                    wait_s = min(wait_s * 1.5, LAST_WAIT_S)

    async def _take(self, agent: Agent, run: str, opening: Opening, listener: Listener | None) -> Outcome:
        bound = self.bind(agent)
        async with self.held(run, bound, listener, opening.parent_run if opening.thread else None) as desk:
            known = desk.state.turns.get(opening.key) if opening.key is not None else None
            if known is not None and opening.parent_run is not None:
                _same_task(opening, known)
            if known is not None and known.reason is not None:
                return outcome(desk, of=known)
            if known is None:
                if desk.state.open:
                    assert desk.state.turn is not None
                    raise TurnOpen(run, desk.state.turn.begin, "not finished")
                if desk.state.turn is not None:
                    await take_in(desk)  # what came since the last turn is about that one
                close_orphans(desk.log.journal, desk.state)
                self.begin(bound, opening, desk)
            return await self._advance(bound, desk, new=known is None)

    async def resume(self, agent: Agent, run: str, listener: Listener | None) -> Outcome:
        """Go on with the open turn of a run; without one, give the outcome of its last. Raises NoRun."""
        bound = self.bind(agent)
        async with self.held(run, bound, listener) as desk:
            if desk.state.turn is None:
                raise NoRun(run)
            return await self._advance(bound, desk) if desk.state.open else outcome(desk)

    async def child(self, agent: Agent, task: Task, desk: Desk) -> Outcome:
        """Take the turn of a child run, or go on with it, or give its outcome if it has ended."""
        opened = desk.state.opened
        assert opened is not None
        desk.absorb()  # the child's task was made from what the edge was made from
        await desk.log.durable()
        opening = Opening(
            name=task.name,
            run=task.run,
            thread=task.thread,
            session=opened.session,
            content=SystemContent(
                value=task.content.value,
                parts=task.content.parts,
                extra={**(task.content.extra or {}), "from": list(task.source)},
            ),
            key=task.key,
            parent_run=desk.log.run,
            causes=(task.cause,),
            allowance=task.allowance,
            base=await base_below(task.name, desk),
        )
        return await self.take(agent, opening, desk.pass_on if desk.listener is not None else None)

    async def child_run(self, name: str, desk: Desk) -> str:
        """Give the id of a child run."""
        assert desk.state.opened is not None
        return await self.run_of(desk.state.opened.session, name, desk.log.run)

    async def call_off(self, desk: Desk) -> None:
        """End what runs below still have open: nobody waits for it any more, so nobody's consent may set it going."""
        assert desk.state.opened is not None
        by = f"run {desk.log.run}"
        open_ = {desk.log.run}
        for row in await self.store.runs(desk.state.opened.session):  # in the order in which they were opened
            if row.parent_run in open_ and not await self._ended(row):
                open_.add(row.run)
                try:
                    await self._end(row.run, by)
                except RunHeld:
                    text = encode_content(SignalContent(name="cancel", by=by), None)
                    await self.store.send(Letter(row.run, f"cancel-{desk.log.run}", text, utc_text(self.clock())))

    async def _ended(self, row: RunRow) -> bool:
        """Say whether the last entry of a run is the end of a turn. Cost: two rows."""
        (last,) = await self.store.read(row.run, row.head - 1)
        begins = await self.store.read(row.run, last.span - 1, last.span) if last.kind == Kind.End else []
        contents = [decode_content(begin.content, {}) for begin in begins]
        return any(isinstance(content, BeginContent) and content.role == "turn" for content in contents)

    async def _end(self, run: str, by: str) -> None:
        """End the turn of a run that nobody is at. Raises RunHeld."""
        async with self.leases.leased(run) as lease:
            state = fold(RunView(), await read(self.store, run))
            if state.turn is None or not state.open:
                return
            journal, begin = Journal(self.store, lease, self.clock), state.turn.begin
            close_orphans(journal, state)
            signal = journal.write(SignalContent(name="cancel", by=by), begin)
            error = Error(type="cancelled", message=f"cancelled by {by}")
            journal.write(EndContent(status="error", reason="cancelled", error=error), begin, (signal.seq,))
            await journal.durable()

    async def run_of(self, session: str, name: str, parent: str | None = None) -> str:
        """Look a run up, and derive an id only when there is none, so that a copied record goes on."""
        rows = [row for row in await self.store.runs(session, name) if row.parent_run == parent]
        return rows[-1].run if rows else run_id(self.store.info.id, parent or session, name)

    async def _advance(self, agent: Agent, desk: Desk, *, new: bool = False) -> Outcome:
        """Take the turn on. A cancelled scope ends it `cancelled`; Ctrl-C and closing the record leave it open.

        A child run cannot tell what its parent was cancelled by: it stays open, and is called off if that one ends.
        """
        try:
            if not new:  # its begin has just named the agent
                await self._note_change(agent, desk)
            ended = await advance(agent, desk)
        except anyio.get_cancelled_exc_class():
            assert desk.state.opened is not None
            scoped = anyio.current_effective_deadline() == -math.inf and desk.state.opened.parent_run is None
            if scoped and not self.closing:
                with anyio.CancelScope(shield=True):
                    desk.absorb()
                    if desk.state.open:
                        error = Error(type="cancelled", message="the program cancelled the turn")
                        await perform(agent, Finish("cancelled", error), desk)
                    await desk.log.durable()
            raise
        if desk.failures:
            raise desk.failures[0]
        return ended

    async def _note_change(self, agent: Agent, desk: Desk) -> None:
        """Write down that an agent of another description goes on with the turn; it is not refused."""
        await take_in(desk)
        turn_, ref = desk.state.turn, self._ref(agent)
        if turn_ is not None and turn_.cancelled is None and turn_.agent != ref.digest:
            desk.write(KeyValueContent(key=AGENT, value=msgspec.to_builtins(ref)))
            desk.absorb()

    def _ref(self, agent: Agent) -> AgentRef:
        """Say which agent it is; those of the last turns are known."""
        if len(self._digests) > KEPT_RUNS:
            del self._digests[next(iter(self._digests))]
        return agent.ref(self._digests)

    def begin(self, agent: Agent, opening: Opening, desk: Desk) -> None:
        """Begin a turn, with what opens it."""
        parent, base = opening.parent_run, opening.base
        at = {"record": self.store.info.id, "session": opening.session, "name": opening.name}
        opened = Opened(**at, parent_run=parent, base=base)
        extra = {ALLOWANCE: opening.allowance} if opening.allowance is not None else None
        begin = BeginContent(name=agent.name, role="turn", agent=self._ref(agent), key=opening.key, extra=extra)
        desk.log = open_root(desk.log.journal, begin, opened)
        if opening.content is not None:
            question = desk.write(opening.content, *opening.causes)
            desk.explain("Question", question)
        desk.absorb()

    async def _origin(self, run: str) -> Origin:
        """Fold what explain events are made of: only where somebody listens."""
        origin = Origin()
        async for page in pages(self.store, run):
            for entry in page:
                origin.add(entry)
        return origin

    @asynccontextmanager
    async def held(
        self, run: str, agent: Agent, listener: Listener | None, above: str | None = None
    ) -> AsyncIterator[Desk]:
        """Hold a run, folded to its head. What was folded is kept for its next turn, and the lease by the run above."""
        async with self.leases.leased(run, above) as lease:
            kept = self._kept.pop(run, None)
            now = (lease.head, lease.digest, way(agent.formats(), agent.asked()))
            if kept is not None and (kept.head, kept.digest, kept.prompt.way) == now:
                state, prompt, origin = kept.state, kept.prompt, kept.origin
            else:
                state, prompt, origin, view = RunState(), Prompt(agent.formats(), agent.asked()), None, RunView()
                async for page in pages(self.store, run):
                    for entry in page:
                        state = view.apply(state, entry)
                        prompt.add(entry)
            state.since = lease.head
            begin, path = (state.turn.begin, (state.turn.name,)) if state.turn is not None else (0, ())
            journal = Journal(self.store, lease, self.clock)
            origin = None if listener is None else origin or await self._origin(run)
            if origin is not None:
                self._origins[run] = origin
            log = Log(journal, begin, path)
            desk = Desk(log, state, prompt, host=self, listener=listener, origins=self._origins)
            desk.budget = agent.policy.budget
            try:
                yield desk
                desk.absorb()
            finally:
                journal.leave()
            if journal.durable_head == journal.head:
                if not desk.state.open:
                    self.leases.keep(replace(lease, head=journal.head, digest=journal.digest), above)
                self._kept[run] = Kept(journal.head, journal.digest, desk.state, prompt, origin)
                if len(self._kept) > KEPT_RUNS:
                    del self._kept[next(iter(self._kept))]


def _same_task(opening: Opening, known: Turn) -> None:
    """Make sure that a child run was asked the same before. Raises OtherProgram."""
    asked = opening.content.value if opening.content is not None else ""
    if known.task != asked:
        found = f"it was asked {known.task!r:.200} before"
        raise OtherProgram(opening.name, found, f"the same, got {asked!r:.200}")
