"""A record is an opened store of runs: the object that `gesta.open` returns.

A run is the recorded conversation or task of one agent. An entry is one recorded fact of a run; its seq is its number
there, and its pos its number in the record. A turn is one message to an agent and all the work up to its answer. A span
is a named part of a run. The id of a run is derived from its session and name, so two processes that create the same
run get the same id. Each run has a lease: the right to append entries to it, which one process holds at a time. All
other processes send letters to the inbox of the run.
"""

import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Any, Unpack, cast

import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from gesta.agent import Agent
from gesta.decide.waiting import Waiting
from gesta.errors import AgentError, BadArguments, OtherType, RunHeld, refuse_unknown
from gesta.events import Event, Listener, Outcome
from gesta.function_tool.output import T
from gesta.integrity.verify import Flaw, Head, Report, audit, heads, report
from gesta.kinds import BeginContent, Kind, Opened, Part, SignalContent, UserContent
from gesta.log.journal import Clock, Journal, Log, closing, open_root, read, refuse_misspelt, utc_now
from gesta.model.request import Unasked
from gesta.perform.child import no_agent_error
from gesta.record.answers import check_home, check_turn
from gesta.record.followers import MOST_WAITING, Follower, Followers, OpenedTurn, Target
from gesta.record.inbox import Inbox
from gesta.record.options import MessageOptions, TurnOptions, of_turn
from gesta.record.stream import Stream, listened
from gesta.record.turns import Turns
from gesta.record.waits import opened_before, state_of
from gesta.state.opening import Opening, check_here, close_orphans, refuse_names, shielded
from gesta.store import Info, Store
from gesta.text.redactor import SECRETS
from gesta.text.tracing import trace_context

Said = str | Part | Sequence[str | Part]
"""A person's message: a text, or a list of texts, images and files."""
OF_MESSAGE = {"session", "key", "user", "traceparent"}
"""Options that belong to the message. The other options change how the agent runs the turn."""


class Record(Inbox):
    """An opened record (store of runs), as `gesta.open` returns it."""

    def __init__(
        self, store: Store, bind: Callable[[Agent], Agent], tasks: TaskGroup | None = None, clock: Clock = utc_now
    ) -> None:
        super().__init__(store)
        self._tasks = tasks
        self.turns = Turns(store, bind, clock)
        """Runs the turns of the record's runs."""
        self.followers = Followers(store, self.turns.broadcast, shared=tasks is not None)
        """Creates the followers that read events of the record's runs."""

    def now(self) -> datetime:
        """Return the current time by the clock that stamps entries."""
        return self.turns.clock()

    def close(self) -> None:
        """Ask all running turns to stop. Called when the block that opened the record ends."""
        self.turns.close()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine in the background. If it still runs when the record is closed, it is cancelled."""
        assert self._tasks is not None, "start something in a record that gesta.open(...) opened"
        self._tasks.start_soon(work)

    @property
    def info(self) -> Info:
        """Id, address and creation time of the store; for a copied record also the pos of the last copied entry."""
        return self.store.info

    async def run(
        self,
        agent: Agent[T],
        message: Said,
        *,
        listener: Listener | None = None,
        **options: Unpack[MessageOptions],
    ) -> Outcome[T]:
        """Send a message to an agent, and run the turn until it ends or has to wait. Return the outcome.

        Args:
            agent: the agent that answers.
            message: a text, or a list of texts, images and files (see `gesta.message.attached`).
            listener: function that is called with each event of the turn. If the turn was begun before, the function
                gets its recorded events first.
            options: see `MessageOptions`. The turn of an earlier `key` is continued, or its outcome returned.

        Raises:
            NoDeps: a tool needs deps (objects that the program passes to tools), and there are none.
            OtherMessage: the key was used for another message.
            TurnOpen, RunHeld: another turn of this run is open, or another process writes the run, and the agent's
                policy says `when_busy="raise"`.
            RunMirrored: the run is continued in another record.
            OtherType: the turn with that key was answered when the agent had another `output`.
        """
        agent, opening = opening_of(agent, message, options)
        if listener is None:
            return typed(agent, await self.turns.take(agent, opening))
        work, follow = self._followed(agent, opening, joins=False)
        return await listened(self._tasks, await follow(), work, listener)

    def stream(self, agent: Agent[T], message: Said, **options: Unpack[MessageOptions]) -> Stream[T]:
        """Return a stream of the events of a turn. The message is sent when somebody begins to read the stream.

        After the last event, `outcome` of the stream is set. If a turn with this `key` was begun before, in any
        process, the stream yields the events of that turn, first those on record.

        Args:
            agent: the agent that answers.
            message: a text, or a list of texts, images and files.
            options: see `MessageOptions`. If its `key` was used for another message, reading raises OtherMessage.
        """
        agent, opening = opening_of(agent, message, options)
        work, follow = self._followed(agent, opening, joins=True)
        return Stream(self._tasks, work, follow, stops=agent.policy.when_left == "stop")

    async def follow(
        self, name: str | Target, *, after: int | str = 0, until_end: bool = False, most: int = MOST_WAITING
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a run, or of a whole session: first the recorded events, then each new event.

        Args:
            name: id of a run, a unique prefix of an id, `last`, or the name of a session; or a `Target`.
            after: `id` of the last event that was read, or a `pos` (see `Entry`); only later events are yielded.
            until_end: whether to stop as soon as no turn is open.
            most: greatest number of entries and words that may wait to be read.

        Raises:
            NoRun, SeveralRuns: no run fits the name, or several do.
            FollowerTooSlow: more than `most` entries and words waited. Follow again after the last event.
            RecordError: the record was closed.
        """
        assert self._tasks is not None, "follow runs of a record that gesta.open(...) opened"
        if isinstance(name, str):
            name = await self.followers.target(name, self.find, until_end=until_end)
        follower = self.followers.follower(name, after, most)
        async with aclosing(follower.events(self._tasks)) as events:
            async for event in events:
                yield event

    def _followed(
        self, agent: Agent[T], opening: Opening, *, joins: bool
    ) -> tuple[Callable[[], Awaitable[Outcome[T]]], Callable[[], Awaitable[Follower]]]:
        """Return two functions: one runs the turn of a message, the other returns a reader of that turn's events.

        Args:
            opening: the turn to begin, with its message.
            joins: whether to wait for the turn if another process is running it.
        """
        opened = OpenedTurn(opening.key)

        async def work() -> Outcome[T]:
            return typed(agent, await self.turns.take(agent, replace(opening, begun=opened.note, joins=joins)))

        async def follow() -> Follower:
            run = await self.turns.run_of(opening.session, opening.name)
            if opening.key is not None:
                await opened_before(self.store, run, opening)  # another message under its key is refused at once
            return self.followers.follower(Target(runs=(run,), root=run, session=opening.session, turn=opened.fits))

        return work, follow

    async def resume(
        self,
        run: str,
        agent: Agent[T],
        *,
        listener: Listener | None = None,
        by: str | None = "resume",
        **options: Unpack[TurnOptions],
    ) -> Outcome[T]:
        """Continue the open turn of a run, and return its outcome.

        Without an open turn, run those of messages in the inbox, and return the outcome of the last turn.

        Args:
            run: id of the run, a unique prefix of it, a session, or `last`.
            agent: the agent of the run.
            listener: called with each event that is recorded from now on.
            by: name of the person who resumes; `None` for a worker. Only a person can resume a turn in which too many
                processes died.
            options: see `TurnOptions`. The options with which the turn began are not on record: pass them again.

        Raises:
            NoDeps: a tool needs deps, and there are none.
            NoRun: there is no such run, or no turn was begun in it.
            OtherType: the last turn was answered when the agent had another `output`.
            AgentError: the run belongs to an agent of another name.
        """
        agent = of_turn(agent, options)

        async def work() -> Outcome[T]:
            known = await self._named(run, exact=by is None)  # a worker has it from the record
            await check_agent(self.store, known, agent.name)
            return typed(agent, await self.turns.resume(agent, known, by=by, deps=options.get("deps")))

        if listener is None:
            return await work()
        follower = self.followers.follower(await self.followers.target(run, self.find), await self.store.last())
        return await listened(self._tasks, follower, work, listener)

    async def cancel(self, waiting: Waiting | str, *, by: str, reason: str | None = None) -> Outcome | None:
        """End the open turn of a run with the reason `cancelled`, and return its outcome.

        Return `None` if another process writes the run, and ends the turn at its next step, or has begun the next one.
        A message that waits in the inbox stays there: whoever goes on with the run begins its turn.

        Args:
            waiting: an element of `outcome.waiting`; or the run: its id, a unique prefix of it, a session, or `last`.
            by: name of the person who cancels the turn.
            reason: why, in the person's words; it is kept on record.

        Raises:
            NotWaiting: no turn is open, or not the one of the wait that was shown.
            RunMirrored: the run is continued in another record.
        """
        row = await self._row(waiting)
        state = await self.state(row.run)
        check_turn(waiting, row.run, state, self.now())
        assert state.turn is not None
        await check_home(self.store, row.run, state)
        shown = state.turn.begin
        await self.send(row.run, SignalContent(name="cancel", by=by, reason=reason, of=shown), key=f"cancel-{shown}")
        try:
            ended = await self.turns.resume(Agent(row.name, Unasked()), row.run, by=by, only=shown)
            return ended if ended.turn == shown else None
        except RunHeld:
            return None

    async def verify(self, *kept: Iterable[Head]) -> list[Flaw]:
        """Check that no entry and no blob (a value stored apart from its entry) was changed. Return the flaws found.

        Cost: reads the whole record.

        Args:
            kept: lists of heads that earlier calls of `heads` returned. Without them, a run that lost its last entries
                is not noticed.
        """
        return await audit(self.store, *kept)

    async def report(self, *kept: Iterable[Head]) -> Report:
        """Check the record as `verify` does, and return the flaws with further facts.

        The report also lists data that no digest covers, and entries whose time is before that of an earlier entry.
        """
        return await report(self.store, *kept)

    async def heads(self) -> list[Head]:
        """Return the head of each run: the seq and the digest of its last entry.

        Keep the heads where nobody who can write the record can change them, and pass them to `verify` later.
        """
        return await heads(self.store)

    @asynccontextmanager
    async def span(
        self,
        name: str,
        *,
        session: str,
        run: str | None = None,
        skip: Collection[Kind] = (),
        state: Any = None,
        **annotations: Any,
    ) -> AsyncIterator[Log]:
        """Open a span in a run, and yield a log. A program that is not a Gesta agent can write entries into the log.

        Args:
            name: name of the span.
            session: name of the session.
            run: name of the run in the session; by default `name`.
            skip: kinds of entries that are not recorded.
            state: a value that is recorded when the span begins, and again, with all changes, when the span ends.
            annotations: every entry in the span inherits them.

        Raises:
            TypeError: the name of an annotation looks like a misspelt parameter, such as `skp`.
            RunHeld: another process writes the run.
            RunMirrored: the run is continued in another record.
        """
        refuse_misspelt(annotations)
        async with writing(self, session, run or name) as (journal, opened):
            begin = BeginContent(name=name, state=state, annotations=annotations or None)
            log = open_root(journal, begin, opened, skip)
            with closing(log, state):
                yield log


async def check_agent(store: Store, run: str, name: str) -> None:
    """Raise AgentError if the run was begun by an agent with another name than `name`. Cost: reads one row."""
    first = next(iter(await read(store, run, 0, 1)), None)
    began = first.content if first is not None and isinstance(first.content, BeginContent) else None
    if began is None or began.agent is None or began.agent.name == name:
        return
    above = began.opened.parent_run if began.opened is not None else None
    todo = f"It was called by run {above!r}: resume that run." if above else f"Resume it with {began.agent.name!r}."
    raise AgentError(f"Run {run!r} is one of agent {began.agent.name!r}, and {name!r} was given. {todo}")


@asynccontextmanager
async def writing(record: Record, session: str, name: str) -> AsyncIterator[tuple[Journal, Opened]]:
    """Hold the lease of the run `name` of a session, so that spans can be written into it.

    Spans that an ended process left open are closed first.

    Yields:
        The journal of the run, which appends entries, and the facts that the first `begin` entry of a new run must
            contain.

    Raises:
        RunHeld: another process writes the run.
        RunMirrored: the run is continued in another record.
    """
    if not isinstance(session, str) or not isinstance(name, str):
        raise AgentError(f"A span with session={session!r:.60}, run={name!r:.60}: expected two texts.")
    run = await record.turns.run_of(session, name)
    async with record.turns.leases.leased(run) as lease:
        journal = Journal(record.store, lease, record.turns.clock)
        before = await state_of(record.store, run)
        check_here(run, before, record.store)
        close_orphans(journal, before)
        try:
            yield journal, Opened(session=session, name=name, record=record.info.id)
        finally:
            with shielded():
                await journal.durable()
            journal.leave()


def typed(agent: Agent[T], outcome: Outcome[Any]) -> Outcome[T]:
    """Return a copy of an outcome whose answer is converted to the agent's `output` type.

    Raises OtherType if the answer does not fit that type.
    """
    if agent.answer_type is None or outcome.answer is None:
        return outcome
    try:
        return msgspec.structs.replace(outcome, given=agent.answer_type.given(outcome.given))
    except BadArguments as wrong:
        raise OtherType(outcome.run, outcome.turn, str(wrong)) from wrong


def opening_of(agent: Agent[T], said: Said, options: MessageOptions) -> tuple[Agent[T], Opening]:
    """Return a copy of the agent with the options, and a description of the turn that the message opens.

    Without the option `session`, the turn gets a new session with a random name.

    Args:
        said: the message.

    Raises:
        AgentError: the message is neither a text nor a list of texts, images and files, `traceparent` is malformed, or
            another option or the agent's settings have a wrong type.
        TypeError: an option is unknown.
    """
    if not isinstance(agent, Agent):
        raise no_agent_error(agent)
    if options.keys() - OF_MESSAGE:
        of_message = {name: each for name, each in options.items() if name not in OF_MESSAGE}
        refuse_unknown("Record.run", of_message, MessageOptions.__annotations__)
        agent = of_turn(agent, cast("TurnOptions", of_message))
    refuse_names({name: options.get(name) for name in OF_MESSAGE})
    try:
        msgspec.to_builtins((agent.settings, agent.meta))
    except (TypeError, ValueError, RecursionError) as wrong:
        found = f"Agent {agent.name!r:.60}: its settings or meta hold what JSON cannot hold ({wrong})"
        raise AgentError(f"{found}. Write that value as JSON values, as the provider documents it.") from wrong
    words = said if isinstance(said, Sequence) and not isinstance(said, str | bytes) else [said]
    for word in words:
        if not isinstance(word, str | Part):
            found = f"A message holds {word!r:.60}, expected a text, or a list of texts, images and files."
            raise AgentError(f"{found} Write gesta.message.attached(PATH) for a file.")
    text = "\n\n".join(word for word in words if isinstance(word, str))
    parts = [word for word in words if isinstance(word, Part)]
    caller = options.get("traceparent")
    if caller is not None and trace_context(caller) is None:
        raise AgentError(f"traceparent={caller!r:.80}: expected 00-TRACE-SPAN-FLAGS, with 32, 16 and 2 hex digits.")
    content = UserContent(value=text, user_id=options.get("user"), parts=parts or None, traceparent=caller)
    key = options.get("key")
    session = SECRETS.text(named) if (named := options.get("session")) else f"s-{os.urandom(4).hex()}"
    key, deps = SECRETS.text(key) if key else key, options.get("deps")
    return agent, Opening(name=agent.name, content=content, session=session, key=key, deps=deps)
