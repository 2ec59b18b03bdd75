"""A record is an opened store: sessions, runs and turns, and the right to write them.

A run is found by session and name; its id is derived, so that two processes which make it collide instead of doubling
it. Only who holds a run's lease appends to it. Everybody else puts a letter into its inbox.
"""

import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from gesta.agent import Agent
from gesta.audit import Flaw, audit
from gesta.codec import encode_content
from gesta.decide import Finish
from gesta.desk import Desk
from gesta.entry import Entry, run_id, utc_text
from gesta.errors import NoRun, SeveralRuns, TurnOpen
from gesta.event import Listener
from gesta.kinds import BeginContent, Content, EndContent, Error, KeyValueContent, Opened, UserContent
from gesta.log import Clock, Journal, Log, closing, open_root, read, utc_now
from gesta.perform import perform
from gesta.prompt import Prompt
from gesta.run import Outcome, outcome, take_in, turn
from gesta.standing import AGENT, RunState, RunView
from gesta.store import Info, Lease, Letter, RunRow, Store
from gesta.stream import Stream
from gesta.view import fold

KEPT_RUNS = 64  # of the runs written last, what was folded is kept for the next turn


class Message(Struct, frozen=True, kw_only=True):
    """What a person sends: the text, and who and where."""

    text: str
    session: str
    key: str | None = None
    """Makes sending it twice the same as sending it once."""
    user: str | None = None


class Kept(Struct, frozen=True):
    """What was folded of a run up to its head."""

    head: int
    digest: bytes
    state: RunState
    prompt: Prompt


class Record:
    """An opened record. Made by `gesta.open`."""

    def __init__(
        self, store: Store, bind: Callable[[Agent], Agent], tasks: TaskGroup | None = None, clock: Clock = utc_now
    ) -> None:
        self.store = store
        self._bind = bind
        self._tasks = tasks
        self._clock = clock
        self._kept: dict[str, Kept] = {}
        self.closing = False
        """Whether the block that opened it is being left."""

    @property
    def info(self) -> Info:
        """What the store says of itself."""
        return self.store.info

    async def run(
        self,
        agent: Agent,
        text: str,
        *,
        session: str | None = None,
        key: str | None = None,
        user: str | None = None,
        listener: Listener | None = None,
    ) -> Outcome:
        """Send a message to an agent and take its turn to the end, or until it waits for somebody.

        Args:
            session: without one, a new session each time.
            key: a key that this run already has gives that turn's outcome, or goes on with it.
            listener: is told the events of the streaming contract, in this task.

        Raises:
            TurnOpen: another turn of this run is open.
            RunHeld: another process writes this run.
        """
        message = Message(text=text, session=session or f"s-{os.urandom(4).hex()}", key=key, user=user)
        return await self._take_turn(agent, message, listener)

    def stream(
        self, agent: Agent, text: str, *, session: str | None = None, key: str | None = None, user: str | None = None
    ) -> "Stream":
        """Send a message and hear the events as they come; the outcome is on the stream afterwards."""
        message = Message(text=text, session=session or f"s-{os.urandom(4).hex()}", key=key, user=user)
        return Stream(self._tasks, lambda listener: self._take_turn(agent, message, listener))

    async def resume(self, run: str, agent: Agent, *, listener: Listener | None = None) -> Outcome:
        """Go on with the open turn of a run; without one, give the outcome of its last.

        Raises:
            NoRun: no such run, or one in which no turn was begun.
        """
        bound = self._bind(agent)
        async with self._held(run, bound, listener) as desk:
            if desk.state.turn is None:
                raise NoRun(run)
            return await self._advance(bound, desk) if desk.state.open else outcome(desk)

    async def send(self, run: str, content: Content, *, key: str) -> bool:
        """Put something into a run's inbox; needs no lease and no agent. False if the key was used before."""
        return await self.store.send(Letter(run, key, encode_content(content, None), utc_text(self._clock())))

    async def read(self, run: str, after: int = 0) -> list[Entry]:
        """Read a run's entries by seq, those after `after`."""
        return await read(self.store, run, after)

    async def state(self, run: str) -> RunState:
        """Fold where a run stands, as somebody sees it who does not hold its lease."""
        return fold(RunView(), await self.read(run))

    async def find(self, name: str) -> RunRow:
        """Find a run by id, unique prefix of an id, session name (its newest root run), or `last`.

        Raises:
            NoRun: there is none.
            SeveralRuns: several ids begin so.
        """
        rows = await self.store.runs()
        roots = [row for row in rows if row.parent_run is None]
        if name == "last" and roots:
            return max(roots, key=lambda row: (row.last_at, row.pos))
        exact = [row for row in rows if row.run == name]
        named = exact or [row for row in roots if row.session == name]
        starts = named or [row for row in rows if row.run.startswith(name)]
        if not named and len(starts) > 1:
            raise SeveralRuns(name, [row.run for row in starts])
        if not starts:
            raise NoRun(name, [word for row in rows for word in (row.run, row.session)])
        return starts[-1]

    async def verify(self) -> list[Flaw]:
        """Check every entry and blob against the chain of its run; no flaw, an empty list. Cost: reads it all."""
        return await audit(self.store)

    @asynccontextmanager
    async def span(self, name: str, *, session: str, run: str | None = None, **options: Any) -> AsyncIterator[Log]:
        """Record a program of one's own: a span at the root of the run `run` (by default `name`) in that session.

        Args:
            options: `skip` (kinds that are not recorded), `state` (read again at the end), and annotations.
        """
        skip, state = options.pop("skip", ()), options.pop("state", None)
        found = await self._run_of(session, run or name)
        async with self._leased(found) as lease:
            journal = Journal(self.store, lease, self._clock)
            opened = Opened(session=session, name=run or name, record=self.info.id)
            close_orphans(journal, fold(RunView(), await read(self.store, found)))
            log = open_root(journal, BeginContent(name=name, state=state, annotations=options or None), opened, skip)
            try:
                with closing(log, state):
                    yield log
            finally:
                with shielded():
                    await log.durable()

    async def _take_turn(self, agent: Agent, message: Message, listener: Listener | None) -> Outcome:
        run = await self._run_of(message.session, agent.name)
        bound = self._bind(agent)
        async with self._held(run, bound, listener) as desk:
            known = desk.state.turns.get(message.key) if message.key is not None else None
            if known is not None and known.reason is not None:
                return outcome(desk, of=known)
            if known is None:
                if desk.state.open:
                    assert desk.state.turn is not None
                    raise TurnOpen(run, desk.state.turn.begin, "not finished")
                if desk.state.turn is not None:
                    await take_in(desk)  # what came since the last turn is about that one
                close_orphans(desk.log.journal, desk.state)
                self._begin(bound, message, desk)
            return await self._advance(bound, desk)

    async def _advance(self, agent: Agent, desk: Desk) -> Outcome:
        """Take the turn on. A cancelled scope ends it `cancelled`; Ctrl-C and closing the record leave it open."""
        try:
            await self._note_change(agent, desk)
            ended = await turn(agent, desk)
        except anyio.get_cancelled_exc_class():
            if not self.closing and anyio.current_effective_deadline() == -math.inf:
                with anyio.CancelScope(shield=True):
                    desk.absorb()
                    if desk.state.open:
                        error = Error(type="cancelled", message="the program cancelled the turn")
                        await perform(agent, Finish("cancelled", error), desk)
                    await desk.log.durable()
            raise
        if desk.failure is not None:
            raise desk.failure
        return ended

    async def _note_change(self, agent: Agent, desk: Desk) -> None:
        """Write down that an agent of another description goes on with the turn; it is not refused."""
        await take_in(desk)
        turn_, ref = desk.state.turn, agent.ref()
        if turn_ is not None and turn_.cancelled is None and turn_.agent != ref.digest:
            desk.write(KeyValueContent(key=AGENT, value=msgspec.to_builtins(ref)))
            desk.absorb()

    def _begin(self, agent: Agent, message: Message, desk: Desk) -> None:
        opened = Opened(session=message.session, name=agent.name, record=self.info.id)
        begin = BeginContent(name=agent.name, role="turn", agent=agent.ref(), key=message.key)
        desk.log = open_root(desk.log.journal, begin, opened)
        question = desk.write(UserContent(value=message.text, user_id=message.user))
        desk.explain("Question", question)
        desk.absorb()

    async def _run_of(self, session: str, name: str) -> str:
        """Look a run up, and derive an id only when there is none, so that a copied record goes on."""
        rows = await self.store.runs(session, name)
        if rows:
            return rows[-1].run
        return run_id(self.info.id, session, name)

    @asynccontextmanager
    async def _leased(self, run: str) -> AsyncIterator[Lease]:
        lease = await self.store.lease(run)
        try:
            yield lease
        finally:
            with shielded():
                await self.store.release(lease)

    @asynccontextmanager
    async def _held(self, run: str, agent: Agent, listener: Listener | None) -> AsyncIterator[Desk]:
        """Hold a run, folded to its head. What was folded is kept for its next turn."""
        async with self._leased(run) as lease:
            kept = self._kept.pop(run, None)
            way = f"{agent.formats().name}+{agent.asked().encoder}"
            if kept is not None and (kept.head, kept.digest, kept.prompt.encoder) == (lease.head, lease.digest, way):
                state, prompt = kept.state, kept.prompt
            else:
                state, prompt = RunState(), Prompt(agent.formats(), agent.asked())
                for entry in await read(self.store, run):
                    state = RunView().apply(state, entry)
                    prompt.add(entry)
            state.since = lease.head
            begin, path = (state.turn.begin, (state.turn.name,)) if state.turn is not None else (0, ())
            journal = Journal(self.store, lease, self._clock)
            desk = Desk(Log(journal, begin, path), state, prompt, record=self.info.address, listener=listener)
            yield desk
            desk.absorb()
            if journal.durable_head == journal.head:
                self._kept[run] = Kept(journal.head, journal.digest, desk.state, prompt)
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
