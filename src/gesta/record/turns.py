"""Runs the turns of all runs in a record, which is a store of runs.

A turn begins with a person's message, or with a task of a parent run. A child run is found by its parent run and its
name, and its turn by the key of the task. So a task given twice is done once. A lease is the right to write a run. A
live run is a run whose lease this process holds.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from gesta.agent import Agent
from gesta.codec.rows import encode_content
from gesta.decide.move import Finish
from gesta.decide.waiting import Waiting
from gesta.entry import run_id
from gesta.errors import GestaError, NoRun, RecordError, RunHeld, TurnOpen
from gesta.events import LOGGER, Broadcast, Outcome
from gesta.hooks import call_hooks
from gesta.kinds import BeginContent, Error, FaultContent, KeyValueContent, Opened, SignalContent, UserContent
from gesta.log.journal import Clock, Journal, Log, letters, open_root
from gesta.loop import outcome_of, take_in, taken, wake
from gesta.perform.checks import guarded
from gesta.perform.execution import Kept, LiveRun, Task, Terms, TurnCaller, folded
from gesta.perform.late import send_all
from gesta.perform.move import perform
from gesta.perform.sources import Sources
from gesta.perform.stop import Stop, TurnLeft, attended
from gesta.prompt import way
from gesta.record.cancel import cancel_below
from gesta.record.entry_events import waiting_event
from gesta.record.forks import advance, base_below
from gesta.record.leases import Leases, queue_of
from gesta.record.options import supplied
from gesta.record.renamed import refuse_renamed
from gesta.record.waits import left_in_doubt, opened_before, with_waits_below
from gesta.state.calls import LOST
from gesta.state.opening import (
    Opening,
    check_here,
    check_same,
    close_orphans,
    is_message,
    message_key,
    queue_message,
    shielded,
)
from gesta.state.turn import AGENT, REPLACED
from gesta.store import Letter, Store

TurnWork = Callable[[TurnCaller], Awaitable[Outcome]]
FIRST_WAIT_S, LAST_WAIT_S = 0.02, 0.5  # pauses between two checks whether a busy run is free
KEPT_RUNS = 64  # greatest number of runs whose state is kept in memory


class Turns:
    """Runs the turns of all runs in one store. `bind` returns a copy of an agent whose model is ready for use."""

    def __init__(self, store: Store, bind: Callable[[Agent], Agent], clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.bind = bind
        self.terms = Terms()
        self.leases = Leases(store, lambda process: self.terms.gone(process))  # noqa: PLW0108 - the terms are set later
        self._kept: dict[str, Kept] = {}
        self._broadcasts: WeakValueDictionary[str, Broadcast] = WeakValueDictionary()  # of root runs
        self._digests: dict[bytes, str] = {}  # digests of agents, by their descriptions
        self.sources = Sources()  # the opened tool sources of agents
        self._stops = set[Stop]()  # of running root turns
        self._unsaved = list[Letter]()  # results that are not on record

    @property
    def address(self) -> str:
        """Address of the record."""
        return self.store.info.address

    def close(self) -> None:
        """Ask all running turns to stop, because the record is being closed."""
        for stop in list(self._stops):
            stop.ask()

    def broadcast(self, run: str) -> Broadcast:
        """Return the object that sends the text of a root run, and of the runs below it, while models write it."""
        return self._broadcasts.get(run) or self._broadcasts.setdefault(run, Broadcast())

    async def take(
        self, agent: Agent[Any], opening: Opening, broadcast: Broadcast | None = None, above: Stop | None = None
    ) -> Outcome:
        """Run the turn that `opening` describes. It stops when `above`, the `Stop` of its parent turn, does."""
        run = opening.run or await self.run_of(opening.session, opening.name, opening.parent_run)
        given = (broadcast or self.broadcast(run), opening.deps, opening.trace, opening.guards)
        return await self._leaving(agent, lambda told: self._take(agent, run, opening, told), given, above)

    async def resume(
        self, agent: Agent[Any], run: str, *, by: str | None = None, deps: Any = None, only: int | None = None
    ) -> Outcome:
        """Continue the open turn of a run, or run the turns of messages in the inbox. Return the last turn's outcome.

        `by` names the person who resumes. Without a name, a turn in which too many processes died continues to wait.
        The tools get `deps` as `Context.deps`. With `only`, the seq of a `begin`, nothing but that turn is continued.
        Raises NoRun if there is no turn.
        """
        bound = self.bind(agent)

        async def go_on(told: TurnCaller) -> Outcome:
            nonlocal bound
            bound = await self.sources.listed(bound) if bound.sources else bound
            async with self.held(run, bound, told) as live:
                if live.state.turn is None:
                    raise NoRun(run)
                if not live.state.open or only not in (None, live.state.turn.begin):
                    waits = await self._serve(bound, live) if only is None else None
                    return waits if waits is not None else outcome_of(live.log.run, live.state)
                check_here(live.log.run, live.state, self.store)
                wake(bound, live, by)
                ended = await self._advance(bound, live)
                return await self._served(bound, live, ended) if only is None else ended

        return await self._leaving(bound, go_on, (self.broadcast(run), deps, None, ()))

    async def _leaving(
        self, agent: Agent, work: TurnWork, given: tuple[Any, ...], above: Stop | None = None
    ) -> Outcome:
        """Run a turn in its own task, and return its outcome. If the caller is cancelled, ask the turn to stop.

        `work` runs the turn with `given`: broadcast, `deps`, tracing span, guards. `above` is the parent turn's `Stop`.
        """
        if agent.sources and not self.sources.ready:  # the record is opened for each call
            async with self.sources:
                return await self._leaving(agent, work, given, above)
        (broadcast, deps, *rest), own = given, agent.deps or agent.hooks or agent.instructions.__class__ is not str
        if deps is None and (own or any(tool.needs or tool.agent for tool in agent.tools)):
            deps = await supplied(agent)
        stop = Stop(self.terms.grace_s, above)
        self._stops |= {stop} if above is None else set()
        try:
            return await attended(stop, lambda: work(TurnCaller(broadcast, stop, deps, *rest)))
        except TurnLeft:
            if above is not None:
                raise
            raise RecordError(
                f"{self.address!r} was closed before the turn could begin. Open it again with gesta.open(...)."
            ) from None
        finally:
            self._stops.discard(stop)

    async def _take(self, agent: Agent, run: str, opening: Opening, told: TurnCaller) -> Outcome:
        if opening.parent_run is not None:
            return await self._turn(agent, run, opening, told)
        if agent.policy.when_busy == "raise":
            try:
                return await self._turn(agent, run, opening, told)
            except RunHeld as held:
                if held.run != run or not (opening.joins and await opened_before(self.store, run, opening)):
                    raise
        stop, wait_s, queue = told.stop, FIRST_WAIT_S, queue_of(id(self), run)
        name = os.urandom(8).hex() if agent.policy.when_busy == "replace" else ""
        if queue.locked() and (ended := await self._busy(run, opening, name)) is not None:
            return ended
        async with stop.holding(queue):  # messages of one process take turns in their order
            while True:
                try:
                    return await self._turn(agent, run, opening, told)
                except RunHeld as held:
                    if held.run != run or held.unknown is not None:  # a child run is held, or it is unknown by whom
                        raise
                    if (name or wait_s == FIRST_WAIT_S) and (ended := await self._busy(run, opening, name)) is not None:
                        return ended
                    await stop.wait(wait_s)
                    wait_s = min(wait_s * 1.5, LAST_WAIT_S)

    async def _busy(self, run: str, opening: Opening, name: str) -> Outcome | None:
        """Return the outcome of the turn that `opening` began before; `None` if there is none, or it has not ended.

        If there is none, ask the run's process to cancel the open turn: once for each `name`, not if it is empty.
        """
        before = await opened_before(self.store, run, opening)
        if before is None and name:
            cancel = encode_content(SignalContent(name="cancel", by="a new message"))
            await self.store.send(Letter(run, f"replaced-{name}", cancel))
        return before if before is not None and before.end is not None else None

    async def _turn(self, agent: Agent, run: str, opening: Opening, told: TurnCaller) -> Outcome:
        bound = self.bind(agent)
        bound = await self.sources.listed(bound) if bound.sources else bound
        async with self.held(run, bound, told, opening.parent_run if opening.thread else None) as live:
            known = live.state.turns.get(opening.key) if opening.key is not None else None
            if known is None:
                busy = await self._behind(bound, opening, live)
                if busy is not None:
                    return busy
                known = live.state.turns.get(opening.key) if opening.key is not None else None
            if known is not None:
                check_same(run, opening, known)
                opening.begun(known.begin)
                if known.reason is not None:
                    return outcome_of(live.log.run, live.state, of=known)
                check_here(live.log.run, live.state, self.store)
                wake(bound, live, opening.by)
            else:
                await self.begin(bound, opening, live)
                opening.begun(live.log.span_seq)
            ended = await self._advance(bound, live, new=known is None)
            return await self._served(bound, live, ended)

    async def _behind(self, agent: Agent, opening: Opening, live: LiveRun) -> Outcome | None:
        """Finish or cancel earlier turns. If one waits, queue `opening` and return that turn's outcome, else `None`."""
        check_here(live.log.run, live.state, self.store)
        turn, policy = live.state.turn, agent.policy.when_busy
        if live.state.open:
            assert turn is not None
            if policy == "raise" or opening.content is None:
                raise TurnOpen(live.log.run, turn.begin, "not finished")
            if policy == "replace":
                await take_in(live)
                await perform(agent, Finish("cancelled", Error(type="cancelled", message=REPLACED)), live)
            else:
                ended = await self._advance(agent, live)
                if ended.end is None:
                    return await self._queued(opening, live, ended)
        elif turn is not None:
            await take_in(live)  # letters that came since the last turn are about that turn
        waits = await self._serve(agent, live)
        return await self._queued(opening, live, waits) if waits is not None else None

    async def _queued(self, opening: Opening, live: LiveRun, ended: Outcome) -> Outcome:
        """Send a message to the inbox, where it waits for the open turn. Return `ended`, the outcome of that turn."""
        if ended.waiting and ended.waiting[0].what == "resume":
            return ended  # the caller stopped waiting, so the message is not sent
        if not isinstance(opening.content, UserContent):
            raise TurnOpen(live.log.run, ended.turn, "not finished")
        await queue_message(self.store, live.log.run, opening, opening.content)
        return replace(ended, queued=True)

    async def _served(self, agent: Agent, live: LiveRun, ended: Outcome) -> Outcome:
        """Return `ended`, a turn's outcome. If that turn has ended, first run the turns of messages in the inbox."""
        if ended.end is not None:
            if agent.sources and self.sources.holding:
                self.sources.ended(live.log.run)
            await self._serve(agent, live)
        elif live.state.opened is not None and live.state.opened.parent_run is None:
            for each in ended.waiting:
                live.broadcast.tell(waiting_event(each, ended.run), live.log.journal.durable_head)
        return ended

    async def _serve(self, agent: Agent, live: LiveRun) -> Outcome | None:
        """Run a turn for each message in the inbox until one waits. Return its outcome; `None` if all turns ended."""
        for letter, content in await letters(self.store, live.log.run):
            opened = live.state.opened
            if opened is None or not is_message(letter) or not isinstance(content, UserContent):
                continue
            check_here(live.log.run, live.state, self.store)
            await take_in(live)  # what came before this turn begins is about the turn before
            name, session, key = opened.name, opened.session, message_key(letter)
            await self.begin(agent, Opening(name=name, session=session, content=content, key=key, letter=letter), live)
            ended = await self._advance(agent, live, new=True)
            if ended.end is None:
                return ended
        return None

    async def child(self, agent: Agent, task: Task, live: LiveRun) -> Outcome:
        """Run the turn of a child run of `live` that does `task`. Return its outcome, even if it ended before."""
        opened, turn = live.state.opened, live.state.turn
        assert opened is not None
        live.absorb()  # the entries that the task comes from must be durable
        await live.log.durable()
        left = await left_in_doubt(self.store, live.log.run, opened.session, task.left) if task.left else ()
        opening = Opening(
            name=task.name,
            run=task.run,
            thread=task.thread,
            session=opened.session,
            content=msgspec.structs.replace(task.content, source=list(task.source), user_id=live.state.user),
            key=task.key,
            parent_run=live.log.run,
            causes=(task.cause,),
            allowance=task.allowance,
            base=await base_below(task.name, live),
            depth=opened.depth + 1,
            doubts=sorted({*live.state.doubts(), *left, *task.doubts}) or None,
            by=live.by,
            deps=live.deps,
            trace=live.span(turn.begin) if turn is not None else None,
            guards=live.guards,
        )
        return await self.take(guarded(agent, live.guards), opening, live.broadcast, live.stop)

    async def child_run(self, name: str, live: LiveRun) -> str:
        """Return the id of the child run with this name; `live` is its parent run."""
        assert live.state.opened is not None
        return await self.run_of(live.state.opened.session, name, live.log.run)

    async def call_off(self, live: LiveRun, name: str | None = None) -> list[str]:
        """End the open turns of child runs of `live`, and return what they left in doubt; see `Host.call_off`."""
        return await cancel_below(self.leases, self.clock, live, name)

    async def run_of(self, session: str, name: str, parent: str | None = None) -> str:
        """Return the id of a run: the recorded id or, for a new run, an id made from the arguments."""
        rows = [row for row in await self.store.runs(session, name) if row.parent_run == parent]
        return rows[-1].run if rows else run_id(self.store.info.id, parent or session, name)

    async def _advance(self, agent: Agent, live: LiveRun, *, new: bool = False) -> Outcome:
        """Run the open turn (`new`: it just began). If stopped, it waits for `resume`; a child run raises TurnLeft."""
        try:
            if not new:  # its begin has just named the agent
                await self._note_change(agent, live)
            ended = await advance(agent, live)
            return await with_waits_below(self.store, ended, self.clock()) if ended.waiting else ended
        except TurnLeft:
            live.absorb()
            await live.log.durable()
            if live.state.opened is not None and live.state.opened.parent_run is not None:
                raise
            return outcome_of(live.log.run, live.state, (Waiting("resume"),))

    async def _note_change(self, agent: Agent, live: LiveRun) -> None:
        """Write an entry with the agent's name and digest, if the agent differs from the one that began the turn."""
        await take_in(live)
        turn_, ref = live.state.turn, agent.ref(self._digests)
        if turn_ is not None and turn_.cancelled is None and turn_.agent != ref.digest:
            live.write(KeyValueContent(key=AGENT, value=msgspec.to_builtins(ref)))
            live.absorb()

    async def begin(self, agent: Agent, opening: Opening, live: LiveRun) -> None:
        """Write the `begin` entry of a turn, and then the message or task that opens the turn."""
        if live.state.opened is None and opening.parent_run is None:
            await refuse_renamed(agent, opening, live, self.held)
        await live.encode_for(agent)  # the turn before may have asked a fallback
        close_orphans(live.log.journal, live.state)
        facts = {each: getattr(opening, each) for each in ("session", "name", "parent_run", "base", "depth", "doubts")}
        opened = Opened(record=self.store.info.id, **facts)
        while len(self._digests) > KEPT_RUNS:
            del self._digests[next(iter(self._digests))]
        begin = BeginContent(name=agent.name, role="turn", agent=agent.ref(self._digests), key=opening.key)
        new = sorted({*opening.doubts} - live.state.doubts()) if opening.doubts and live.state.opened else []
        begin = replace(begin, allowance=opening.allowance, doubts=new or None)
        live.log = open_root(live.log.journal, begin, opened)
        if opening.letter is not None and opening.content is not None:
            live.log.journal.take_in(opening.letter, opening.content, live.log.span_seq)
        elif opening.content is not None:
            live.write(opening.content, *opening.causes)
        live.absorb()

    @asynccontextmanager
    async def held(self, run: str, agent: Agent, told: TurnCaller, above: str | None = None) -> AsyncIterator[LiveRun]:
        """Hold a run's lease in the block. Yield the live run, which keeps `told`. `above` is the parent run's id."""
        async with self.leases.leased(run, above) as lease:
            await self._save(run, ())
            kept = self._kept.pop(run, None)
            now = (lease.head, lease.digest, way(agent.formats(), agent.asked()), self.store.info.mark)
            if kept is not None and (kept.head, kept.digest, kept.prompt.way, kept.state.mark) == now:
                state, prompt = kept.state, kept.prompt
            else:
                state, prompt = await folded(self.store, run, agent)
            taken(state, lease.head, self.store.info.mark)
            begin, path = (state.turn.begin, (state.turn.name,)) if state.turn is not None else (0, ())
            journal = Journal(self.store, lease, self.clock)
            live = LiveRun(Log(journal, begin, path), state, prompt, host=self, told=told)
            live.budget, live.limits = agent.policy.budget, agent.policy.limits
            live.guards = call_hooks(agent.hooks) if agent.hooks is not None else told.guards
            try:
                if lease.lost and state.open and state.moved in ("", self.store.info.id):
                    died = Error(type=LOST, message="the process that held the run ended, or lost it")
                    live.write(FaultContent(of=begin, error=died), begin)
                    live.absorb()
                    await live.log.durable()  # also if this process only reads an earlier answer
                yield live
                live.absorb()
            finally:
                journal.leave()
                try:
                    await self._save(run, journal.unsaved())
                finally:
                    journal.forget()
            if journal.durable_head == journal.head:
                if not live.state.open:
                    self.leases.keep(replace(lease, head=journal.head, digest=journal.digest), above)
                self._kept[run] = Kept(journal.head, journal.digest, live.state, live.prompt)
                if len(self._kept) > KEPT_RUNS:
                    del self._kept[next(iter(self._kept))]

    def save(self, result: Letter) -> None:
        """Send a tool result to its run's inbox, because it came too late for the turn. Any thread may call this."""
        try:
            self.store.deliver(result)
        except GestaError as failure:
            self._unsaved.append(result)  # `_save` sends it before the next turn of this process
            LOGGER.warning("A late result of run %s is not on record yet: %s", result.run, failure)

    async def _save(self, run: str, results: Sequence[Letter]) -> None:
        """Send `results`, and results that failed to be sent before, to their runs' inboxes, those of `run` first."""
        self._unsaved += results
        if self._unsaved:
            with shielded():
                await send_all(self._unsaved, run, self.store)
