"""A record is an opened store: sessions, runs and turns, and the right to write them.

A run is found by session and name; its id is derived, so that two processes which make it collide instead of doubling
it. Only who holds a run's lease appends to it. Everybody else puts a letter into its inbox.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from anyio.abc import TaskGroup

from gesta.agent import Agent
from gesta.audit import Flaw, Head, audit, heads
from gesta.codec import encode_content
from gesta.entry import Entry
from gesta.errors import AgentError, BadArguments, NoRun, OtherType, SeveralRuns
from gesta.event import Listener
from gesta.holder import Holder
from gesta.kinds import BeginContent, Content, Opened, Part, UserContent
from gesta.late import SAYABLE
from gesta.log import Clock, Journal, Log, closing, open_root, read, utc_now
from gesta.opening import Opening, check_here, close_orphans, shielded
from gesta.outcome import Outcome
from gesta.standing import RunState, RunView
from gesta.store import Info, Letter, RunRow, Store
from gesta.stream import Stream
from gesta.tombstone import SESSION
from gesta.view import fold

Said = str | Part | Sequence[str | Part]
"""A message of a person: a text, or texts, images and files."""


class Record:
    """An opened record. Made by `gesta.open`."""

    def __init__(
        self, store: Store, bind: Callable[[Agent], Agent], tasks: TaskGroup | None = None, clock: Clock = utc_now
    ) -> None:
        self.store = store
        self._tasks = tasks
        self.holder = Holder(store, bind, clock)
        """What takes the turns."""

    def close(self) -> None:
        """Leave the turns that are at work: the block that opened the record is left."""
        self.holder.close()

    @property
    def info(self) -> Info:
        """What the store says of itself."""
        return self.store.info

    async def run(
        self,
        agent: Agent,
        message: Said,
        *,
        session: str | None = None,
        key: str | None = None,
        user: str | None = None,
        listener: Listener | None = None,
    ) -> Outcome:
        """Send a message to an agent and take its turn to the end, or until it waits for somebody.

        Args:
            message: a text, or texts, images and files (`gesta.message.attached`) in a list.
            session: without one, a new session each time.
            key: a key that this run already has gives that turn's outcome, or goes on with it.
            listener: is told the events of the streaming contract, in this task.

        Raises:
            OtherMessage: the key stands for another message.
            TurnOpen, RunHeld: another turn of this run is open, or another process writes it, and the agent's policy
                says `when_busy="raise"`.
            RunMirrored: the run goes on in another record.
            OtherType: the turn of that key was answered under another `output`.
        """
        opening = opening_of(agent, message, session, key, user)
        return typed(agent, await self.holder.take(agent, opening, listener))

    def stream(
        self,
        agent: Agent,
        message: Said,
        *,
        session: str | None = None,
        key: str | None = None,
        user: str | None = None,
    ) -> "Stream":
        """Send a message and hear the events as they come; the outcome is on the stream afterwards."""
        opening = opening_of(agent, message, session, key, user)

        async def take(listener: Listener | None) -> Outcome:
            return typed(agent, await self.holder.take(agent, opening, listener))

        return Stream(self._tasks, take, stops=agent.policy.when_left == "stop")

    async def resume(
        self, run: str, agent: Agent, *, listener: Listener | None = None, by: str | None = "resume"
    ) -> Outcome:
        """Go on with the open turn of a run; without one, give the outcome of its last.

        Args:
            by: the person who says so. Without one, as for a worker, a turn in which too many processes died waits.

        Raises:
            NoRun: no such run, or one in which no turn was begun.
            OtherType: the last turn was answered under another `output`.
        """
        return typed(agent, await self.holder.resume(agent, run, listener, by=by))

    async def send(self, run: str, content: Content, *, key: str) -> bool:
        """Put something into a run's inbox; needs no lease and no agent. False if the key was used before.

        Args:
            content: what a person or the application says: an approval, answer, resolution, signal, text for the open
                turn, key-value, or compaction.

        Raises:
            AgentError: the run's holder alone writes such a content.
        """
        if not isinstance(content, SAYABLE):
            known = ", ".join(each.__name__ for each in SAYABLE)
            raise AgentError(f"A {type(content).__name__} is written by the run itself. Send one of: {known}.")
        return await self.store.send(Letter(run, key, encode_content(content, None)))

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
        if name == "last" and (told := [row for row in roots if row.session != SESSION]):
            return max(told, key=lambda row: (row.last_at, row.pos))
        exact = [row for row in rows if row.run == name]
        named = exact or [row for row in roots if row.session == name]
        starts = named or [row for row in rows if row.run.startswith(name)]
        if not named and len(starts) > 1:
            raise SeveralRuns(name, [row.run for row in starts])
        if not starts:
            raise NoRun(name, [word for row in rows for word in (row.run, row.session)])
        return starts[-1]

    async def verify(self, *kept: Iterable[Head]) -> list[Flaw]:
        """Check every entry and blob against the chain of its run; no flaw, an empty list. Cost: reads it all.

        Args:
            kept: heads as `heads` gave them at some time; those of another time by themselves.
        """
        return await audit(self.store, *kept)

    async def heads(self) -> list[Head]:
        """Give the last entry of each run with its digest, to be kept where who writes the record cannot change it."""
        return await heads(self.store)

    @asynccontextmanager
    async def span(self, name: str, *, session: str, run: str | None = None, **options: Any) -> AsyncIterator[Log]:
        """Record a program of one's own: a span at the root of the run `run` (by default `name`) in that session.

        Args:
            options: `skip` (kinds that are not recorded), `state` (read again at the end), and annotations.

        Raises:
            RunHeld: somebody else writes the run. RunMirrored: it goes on in another record.
        """
        skip, kept = options.pop("skip", ()), options.pop("state", None)
        found = await self.holder.run_of(session, run or name)
        async with self.holder.leases.leased(found) as lease:
            journal = Journal(self.store, lease, self.holder.clock)
            opened = Opened(session=session, name=run or name, record=self.info.id)
            state = fold(RunView(), await read(self.store, found))
            check_here(found, state, self.store)
            close_orphans(journal, state)
            log = open_root(journal, BeginContent(name=name, state=kept, annotations=options or None), opened, skip)
            try:
                with closing(log, kept):
                    yield log
            finally:
                with shielded():
                    await log.durable()


def typed(agent: Agent, outcome: Outcome) -> Outcome:
    """Give the answer as a value of the agent's `output`. Raises OtherType for one that was given before."""
    if agent.output is None or outcome.answer is None:
        return outcome
    try:
        return msgspec.structs.replace(outcome, value=agent.output.given(outcome.value))
    except BadArguments as wrong:
        raise OtherType(outcome.run, outcome.turn, str(wrong)) from wrong


def opening_of(agent: Agent, said: Said, session: str | None, key: str | None, user: str | None) -> Opening:
    """Make of a person's message what opens a turn; without a session, in one of its own. Raises AgentError."""
    words = said if isinstance(said, Sequence) and not isinstance(said, str | bytes) else [said]
    for word in words:
        if not isinstance(word, str | Part):
            found = f"A message holds {word!r:.60}, expected a text, or a list of texts, images and files."
            raise AgentError(f"{found} Write gesta.message.attached(PATH) for a file.")
    text = "\n\n".join(word for word in words if isinstance(word, str))
    parts = [word for word in words if isinstance(word, Part)]
    content = UserContent(value=text, user_id=user, parts=parts or None)
    return Opening(name=agent.name, content=content, session=session or f"s-{os.urandom(4).hex()}", key=key)
