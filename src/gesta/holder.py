"""Who holds a run takes its turns; what was folded of it is kept for the next one.

A turn is opened by a person's message, or by the task of a parent run: a child run is found by its parent and a name,
and its turn by the key that the parent gives, so handing a task over twice is the same as once.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gesta.agent import Agent
from gesta.cancel import cancel_below
from gesta.codec import encode_content
from gesta.decide import Finish, Waiting
from gesta.desk import LOGGER, Desk, Task, Terms, Told
from gesta.entry import run_id
from gesta.errors import GestaError, NoRun, RecordError, RunHeld, TurnOpen
from gesta.event import Listener
from gesta.fencing import advance, base_below
from gesta.kinds import (
    AgentRef,
    BeginContent,
    Error,
    FaultContent,
    KeyValueContent,
    Opened,
    SignalContent,
    SystemContent,
    UserContent,
)
from gesta.leases import Leases, queue_of
from gesta.log import Clock, Journal, Log, letters, open_root, pages
from gesta.opening import MESSAGE, UNNAMED, Opening, check_here, check_same, close_orphans, is_message, key_of, shielded
from gesta.origins import Origin
from gesta.outcome import Outcome
from gesta.pending import LOST
from gesta.perform import perform
from gesta.prompt import Prompt, way
from gesta.run import outcome, take_in
from gesta.spending import ALLOWANCE
from gesta.standing import RunState, RunView
from gesta.stop import Stop, TurnLeft, attended
from gesta.store import Letter, Store
from gesta.turn import AGENT

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
        self.terms = Terms()
        self.leases = Leases(store, lambda process: self.terms.gone(process))  # noqa: PLW0108 - they change
        self._kept: dict[str, Kept] = {}
        self._origins: WeakValueDictionary[str, Origin] = WeakValueDictionary()  # of runs that are held or kept
        self._digests: dict[bytes, str] = {}  # of agents, by what describes them
        self._stops: set[Stop] = set()  # of root turns that are at work
        self._unsaved: dict[str, list[Letter]] = {}  # results by run, that no commit has taken yet

    @property
    def address(self) -> str:
        """Address of the record."""
        return self.store.info.address

    def close(self) -> None:
        """Leave all turns that are at work: the record is being closed."""
        for stop in list(self._stops):
            stop.ask()

    async def take(
        self, agent: Agent, opening: Opening, listener: Listener | None, above: Stop | None = None
    ) -> Outcome:
        """Take the turn that `opening` opens, or opened before; `above` is of the turn that waits. See `Record.run`."""
        run = opening.run or await self.run_of(opening.session, opening.name, opening.parent_run)
        return await self._leaving(lambda stop: self._take(agent, run, opening, (listener, stop)), above)

    async def resume(
        self, agent: Agent, run: str, listener: Listener | None = None, *, by: str | None = None
    ) -> Outcome:
        """Go on with the open turn of a run; without one, give the outcome of its last.

        Args:
            by: the person who resumes it, also after too many processes died in it.

        Raises:
            NoRun: no turn was ever begun in it.
        """
        bound = self.bind(agent)

        async def go_on(stop: Stop) -> Outcome:
            async with self.held(run, bound, (listener, stop)) as desk:
                turn = desk.state.turn
                if turn is None:
                    raise NoRun(run)
                if not desk.state.open:
                    return outcome(desk)
                check_here(desk.log.run, desk.state, self.store)
                if by is not None and turn.deaths >= bound.policy.deaths:
                    desk.write(SignalContent(name="wake", by=by), turn.begin)
                    desk.absorb()
                return await self._served(bound, desk, await self._advance(bound, desk))

        return await self._leaving(go_on)

    async def _leaving(self, work: Callable[[Stop], Awaitable[Outcome]], above: Stop | None = None) -> Outcome:
        """Await a turn in a task of its own, which is asked to stop when this task is cancelled."""
        stop = Stop(self.terms.grace_s, above)
        self._stops |= {stop} if above is None else set()
        try:
            return await attended(stop, lambda: work(stop))
        except TurnLeft:
            if above is not None:
                raise
            raise RecordError(f"{self.address!r} was closed before the turn could begin.") from None
        finally:
            self._stops.discard(stop)

    async def _take(self, agent: Agent, run: str, opening: Opening, told: Told) -> Outcome:
        if agent.policy.when_busy == "raise" or opening.parent_run is not None:
            return await self._turn(agent, run, opening, told)
        stop, wait_s, queue = told[1], FIRST_WAIT_S, queue_of(id(self), run)
        replaces = os.urandom(8).hex() if agent.policy.when_busy == "replace" else ""
        if replaces and queue.locked():
            await self._cancel(run, replaces)
        async with stop.holding(queue):  # first come, first served, in one process
            while True:
                try:
                    return await self._turn(agent, run, opening, told)
                except RunHeld as held:
                    if held.run != run or held.unknown is not None:  # a run below, or nobody that could be waited for
                        raise
                    if replaces:
                        await self._cancel(run, replaces)
                    await stop.wait(wait_s)
                    wait_s = min(wait_s * 1.5, LAST_WAIT_S)

    async def _cancel(self, run: str, name: str) -> None:
        """Have whoever drives the open turn end it, for a message takes its place; once for each name."""
        text = encode_content(SignalContent(name="cancel", by="a new message"), None)
        await self.store.send(Letter(run, f"replaced-{name}", text))

    async def _turn(self, agent: Agent, run: str, opening: Opening, told: Told) -> Outcome:
        bound = self.bind(agent)
        async with self.held(run, bound, told, opening.parent_run if opening.thread else None) as desk:
            known = desk.state.turns.get(opening.key) if opening.key is not None else None
            if known is None:
                busy = await self._behind(bound, opening, desk)
                if busy is not None:
                    return busy
                known = desk.state.turns.get(opening.key) if opening.key is not None else None
            if known is not None:
                check_same(run, opening, known)
                if known.reason is not None:
                    return outcome(desk, of=known)
                check_here(desk.log.run, desk.state, self.store)
            else:
                await self.begin(bound, opening, desk)
            ended = await self._advance(bound, desk, new=known is None)
            return await self._served(bound, desk, ended)

    async def _behind(self, agent: Agent, opening: Opening, desk: Desk) -> Outcome | None:
        """Bring to an end what comes before a new message; the outcome of a turn that it has to wait behind."""
        check_here(desk.log.run, desk.state, self.store)
        turn, policy = desk.state.turn, agent.policy.when_busy
        if desk.state.open:
            assert turn is not None
            if policy == "raise" or opening.content is None:
                raise TurnOpen(desk.log.run, turn.begin, "not finished")
            if policy == "replace":
                await take_in(desk)
                error = Error(type="cancelled", message="replaced by a new message")
                await perform(agent, Finish("cancelled", error), desk)
            else:
                ended = await self._advance(agent, desk)
                if ended.end is None:
                    return await self._queued(opening, desk, ended)
        elif turn is not None:
            await take_in(desk)  # what came since the last turn is about that one
        waits = await self._serve(agent, desk)
        return await self._queued(opening, desk, waits) if waits is not None else None

    async def _queued(self, opening: Opening, desk: Desk, ended: Outcome) -> Outcome:
        """Put a message into the inbox, where it waits until the open turn has ended."""
        if ended.waiting and ended.waiting[0].what == "resume":
            return ended  # who sent it stopped waiting
        if not isinstance(opening.content, UserContent):
            raise TurnOpen(desk.log.run, ended.turn, "not finished")
        key = MESSAGE + opening.key if opening.key is not None else UNNAMED + os.urandom(8).hex()
        await self.store.send(Letter(desk.log.run, key, encode_content(opening.content, None)))
        return replace(ended, queued=True)

    async def _served(self, agent: Agent, desk: Desk, ended: Outcome) -> Outcome:
        """Take the turns of messages that waited for a turn's end, and give that turn's outcome."""
        if ended.end is not None:
            desk.listener = None  # who listens hears the turn that it asked for
            await self._serve(agent, desk)
        return ended

    async def _serve(self, agent: Agent, desk: Desk) -> Outcome | None:
        """Take the turns of messages that wait in the inbox, in their order; the outcome of one that waits."""
        for letter, content in await letters(self.store, desk.log.run):
            opened = desk.state.opened
            if opened is None or not is_message(letter) or not isinstance(content, UserContent):
                continue
            name, session, key = opened.name, opened.session, key_of(letter)
            await self.begin(agent, Opening(name=name, session=session, content=content, key=key, letter=letter), desk)
            ended = await self._advance(agent, desk, new=True)
            if ended.end is None:
                return ended
        return None

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
            depth=opened.depth + 1,
            doubts=sorted(desk.state.doubts()) or None,
        )
        return await self.take(agent, opening, desk.pass_on if desk.listener is not None else None, desk.stop)

    async def child_run(self, name: str, desk: Desk) -> str:
        """Give the id of a child run."""
        assert desk.state.opened is not None
        return await self.run_of(desk.state.opened.session, name, desk.log.run)

    async def call_off(self, desk: Desk, names: Sequence[str] | None = None) -> None:
        """End what runs below still have open; see `Host.call_off`."""
        await cancel_below(self.leases, self.clock, desk, names)

    async def run_of(self, session: str, name: str, parent: str | None = None) -> str:
        """Look a run up, and derive an id only when there is none, so that a copied record goes on."""
        rows = [row for row in await self.store.runs(session, name) if row.parent_run == parent]
        return rows[-1].run if rows else run_id(self.store.info.id, parent or session, name)

    async def _advance(self, agent: Agent, desk: Desk, *, new: bool = False) -> Outcome:
        """Take the turn on. One that is left stays open: it waits to be resumed."""
        try:
            if not new:  # its begin has just named the agent
                await self._note_change(agent, desk)
            return await advance(agent, desk)
        except TurnLeft:
            desk.absorb()
            await desk.log.durable()
            if desk.state.opened is not None and desk.state.opened.parent_run is not None:
                raise
            return outcome(desk, (Waiting("resume", 0, ""),))

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

    async def begin(self, agent: Agent, opening: Opening, desk: Desk) -> None:
        """Begin a turn, with what opens it."""
        close_orphans(desk.log.journal, desk.state)
        parent, base = opening.parent_run, opening.base
        at = {"record": self.store.info.id, "session": opening.session, "name": opening.name}
        opened = Opened(**at, parent_run=parent, base=base, depth=opening.depth, doubts=opening.doubts)
        extra = {ALLOWANCE: opening.allowance} if opening.allowance is not None else None
        begin = BeginContent(name=agent.name, role="turn", agent=self._ref(agent), key=opening.key, extra=extra)
        desk.log = open_root(desk.log.journal, begin, opened)
        if opening.letter is not None and opening.content is not None:
            question = desk.log.journal.take_in(opening.letter, opening.content, desk.log.span_seq)
            desk.explain("Question", question)
        elif opening.content is not None:
            question = desk.write(opening.content, *opening.causes)
            desk.explain("Question", question)
        desk.absorb()

    @asynccontextmanager
    async def held(self, run: str, agent: Agent, told: Told, above: str | None = None) -> AsyncIterator[Desk]:
        """Hold a run, folded to its head. What was folded is kept for its next turn, and the lease by the run above.

        Args:
            told: who listens, and what asks the turn to stop.
        """
        listener = told[0]
        async with self.leases.leased(run, above) as lease:
            await self._save(run, ())
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
            state.since, state.mark = lease.head, self.store.info.mark
            begin, path = (state.turn.begin, (state.turn.name,)) if state.turn is not None else (0, ())
            journal = Journal(self.store, lease, self.clock)
            origin = None if listener is None else origin or await traced(self.store, run)
            if origin is not None:
                self._origins[run] = origin
            log = Log(journal, begin, path)
            desk = Desk(log, state, prompt, host=self, told=told, origins=self._origins)
            desk.budget, desk.limits = agent.policy.budget, agent.policy.limits
            try:
                if lease.lost and state.open and state.moved in ("", self.store.info.id):
                    died = Error(type=LOST, message="the process that held the run ended, or lost it")
                    desk.write(FaultContent(of=begin, error=died), begin)
                    desk.absorb()
                    await desk.log.durable()  # also where who holds it now only asks for an earlier answer
                yield desk
                desk.absorb()
            finally:
                journal.leave()
                try:
                    await self._save(run, journal.unsaved())
                finally:
                    journal.forget()
            if journal.durable_head == journal.head:
                if not desk.state.open:
                    self.leases.keep(replace(lease, head=journal.head, digest=journal.digest), above)
                self._kept[run] = Kept(journal.head, journal.digest, desk.state, prompt, origin)
                if len(self._kept) > KEPT_RUNS:
                    del self._kept[next(iter(self._kept))]

    def save(self, result: Letter) -> None:
        """Send what came of an attempt that nobody waits for any more to whoever goes on with its run; in any thread.

        What cannot be sent now is kept until this process takes the run's next turn.
        """
        try:
            self.store.deliver(result)
        except GestaError as failure:
            self._unsaved.setdefault(result.run, []).append(result)
            LOGGER.warning("A late result of run %s is not on record yet: %s", result.run, failure)

    async def _save(self, run: str, results: Sequence[Letter]) -> None:
        """Send results that no commit has taken to whoever goes on with the run; what cannot be sent now is kept."""
        left = [*self._unsaved.pop(run, ()), *results]
        if not left:
            return
        with shielded():
            while left:
                try:
                    await self.store.send(left[0])
                except GestaError:
                    self._unsaved[run] = left
                    return
                del left[0]


async def traced(store: Store, run: str) -> Origin:
    """Fold what explain events are made of: only where somebody listens."""
    origin = Origin()
    async for page in pages(store, run):
        for entry in page:
            origin.add(entry)
    return origin
