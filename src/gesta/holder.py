"""Who holds a run takes its turns; what was folded of it is kept for the next one.

A turn is opened by a person's message, or by the task of a parent run: a child run is found by its parent and a name,
and its turn by the key that the parent gives, so handing a task over twice is the same as once.
"""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any
from weakref import WeakValueDictionary

import anyio
import msgspec
from msgspec import Struct

from gesta.agent import Agent
from gesta.decide import Finish
from gesta.desk import Desk, Task
from gesta.entry import Cause, run_id
from gesta.errors import NoRun, RunHeld, TurnOpen
from gesta.event import Listener
from gesta.kinds import BeginContent, EndContent, Error, KeyValueContent, Opened, SystemContent, UserContent
from gesta.log import Clock, Journal, Log, open_root, read
from gesta.origins import Origin
from gesta.outcome import Outcome
from gesta.perform import perform
from gesta.playing import play
from gesta.prompt import Prompt
from gesta.run import outcome, take_in, turn
from gesta.spending import ALLOWANCE
from gesta.standing import AGENT, RunState, RunView
from gesta.store import Lease, Store

FIRST_WAIT_S, LAST_WAIT_S = 0.02, 0.5  # between two looks whether a busy run is free
KEPT_RUNS = 64  # of the runs written last, what was folded is kept for the next turn


class Opening(Struct, frozen=True, kw_only=True):
    """What opens a turn."""

    name: str
    """Of the run."""
    session: str
    content: UserContent | SystemContent | None = None
    """None for a turn whose program says itself what it is about."""
    key: str | None = None
    """Makes sending it twice the same as sending it once."""
    parent_run: str | None = None
    causes: tuple[Cause, ...] = ()
    allowance: dict[str, Any] | None = None
    """What the turn may cost, by the run above."""


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
        self._kept: dict[str, Kept] = {}
        self._queues: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._origins: WeakValueDictionary[str, Origin] = WeakValueDictionary()  # of runs that are held or kept
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
        run = await self.run_of(opening.session, opening.name, opening.parent_run)
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
        async with self.held(run, bound, listener) as desk:
            known = desk.state.turns.get(opening.key) if opening.key is not None else None
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
            return await self._advance(bound, desk)

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
        )
        return await self.take(agent, opening, desk.pass_on if desk.listener is not None else None)

    async def child_run(self, name: str, desk: Desk) -> str:
        """Give the id of a child run."""
        assert desk.state.opened is not None
        return await self.run_of(desk.state.opened.session, name, desk.log.run)

    async def run_of(self, session: str, name: str, parent: str | None = None) -> str:
        """Look a run up, and derive an id only when there is none, so that a copied record goes on."""
        rows = [row for row in await self.store.runs(session, name) if row.parent_run == parent]
        return rows[-1].run if rows else run_id(self.store.info.id, parent or session, name)

    @asynccontextmanager
    async def leased(self, run: str) -> AsyncIterator[Lease]:
        """Hold the right to write a run."""
        lease = await self.store.lease(run)
        try:
            yield lease
        finally:
            with shielded():
                await self.store.release(lease)

    async def _advance(self, agent: Agent, desk: Desk) -> Outcome:
        """Take the turn on. A cancelled scope ends it `cancelled`; Ctrl-C and closing the record leave it open."""
        try:
            await self._note_change(agent, desk)
            ended = await (turn if agent.program is None else play)(agent, desk)
        except anyio.get_cancelled_exc_class():
            if not self.closing and anyio.current_effective_deadline() == -math.inf:
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
        turn_, ref = desk.state.turn, agent.ref()
        if turn_ is not None and turn_.cancelled is None and turn_.agent != ref.digest:
            desk.write(KeyValueContent(key=AGENT, value=msgspec.to_builtins(ref)))
            desk.absorb()

    def begin(self, agent: Agent, opening: Opening, desk: Desk) -> None:
        """Begin a turn, with what opens it."""
        opened = Opened(
            session=opening.session, name=opening.name, record=self.store.info.id, parent_run=opening.parent_run
        )
        extra = {ALLOWANCE: opening.allowance} if opening.allowance is not None else None
        begin = BeginContent(name=agent.name, role="turn", agent=agent.ref(), key=opening.key, extra=extra)
        desk.log = open_root(desk.log.journal, begin, opened)
        if opening.content is not None:
            question = desk.write(opening.content, *opening.causes)
            desk.explain("Question", question)
        desk.absorb()

    async def _origin(self, run: str) -> Origin:
        """Fold what explain events are made of: only where somebody listens."""
        origin = Origin()
        for entry in await read(self.store, run):
            origin.add(entry)
        return origin

    @asynccontextmanager
    async def held(self, run: str, agent: Agent, listener: Listener | None) -> AsyncIterator[Desk]:
        """Hold a run, folded to its head. What was folded is kept for its next turn."""
        async with self.leased(run) as lease:
            kept = self._kept.pop(run, None)
            way = f"{agent.formats().name}+{agent.asked().encoder}"
            if kept is not None and (kept.head, kept.digest, kept.prompt.encoder) == (lease.head, lease.digest, way):
                state, prompt, origin = kept.state, kept.prompt, kept.origin
            else:
                state, prompt, origin = RunState(), Prompt(agent.formats(), agent.asked()), None
                for entry in await read(self.store, run):
                    state = RunView().apply(state, entry)
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
            yield desk
            desk.absorb()
            if journal.durable_head == journal.head:
                self._kept[run] = Kept(journal.head, journal.digest, desk.state, prompt, origin)
                if len(self._kept) > KEPT_RUNS:
                    del self._kept[next(iter(self._kept))]


def shielded() -> AbstractContextManager[Any]:
    """Finish what is begun though the task is cancelled; without an event loop nothing can cancel it."""
    try:
        return anyio.CancelScope(shield=True)
    except anyio.NoEventLoopError:
        return nullcontext()


def close_orphans(journal: Journal, state: RunState) -> None:
    """Close the spans that a writer left open when it died; an open turn is none, somebody goes on with it."""
    for span in sorted(state.spans):
        error = Error(type="orphaned", message="its writer ended without closing it")
        journal.write(EndContent(status="error", error=error), span)
