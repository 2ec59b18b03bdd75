"""The state of a running server: its agents, its record, its limits, and whether it is about to end.

A record is the store of all runs. A turn is one message to an agent and all the work up to its answer.
"""

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Protocol

import anyio

from gesta.address import Record
from gesta.agent import Agent
from gesta.errors import AgentError, GestaError, RunHeld, message_of, nearest
from gesta.events import Outcome
from gesta.record.names import run_of_id
from gesta.record.stream import breaks_off
from gesta.serve.bodies import Refused, unopened
from gesta.serve.chat_sessions import Conversations
from gesta.worker import FileId, Worker, file_of

LOGGER = logging.getLogger("gesta")


class Followed(Protocol):
    """A turn that a client follows, and that goes on if the client leaves."""

    ended: anyio.Event
    """Set once the turn has ended, waits, or was interrupted."""

    @property
    def at_work(self) -> bool:
        """Whether the turn has begun and goes on."""


class Service:
    """The agents of a server, the record that it serves, and its limits."""

    def __init__(self, agents: Sequence[Agent[Any]], *, turns: int, followers: int) -> None:
        """Prepare a service, which can answer requests once `begin` was called.

        Args:
            agents: the agents, which must have different names.
            turns: greatest number of turns at the same time; a further request is refused with status 429.
            followers: greatest number of open event streams; a further request is refused with status 429.

        Raises:
            AgentError: there is no agent, two agents have the same name, or something else is among them.
        """
        if isinstance(agents, str | Agent) or not all(isinstance(each, Agent) for each in agents):
            raise AgentError(f"The agents of a server are {agents!r:.60}, expected a list of agents, as in [agent].")
        names = [agent.name for agent in agents]
        if not agents or len(set(names)) < len(names):
            raise AgentError(
                f"A server has one or more agents of different names, found: {', '.join(names) or 'none'}."
            )
        self.agents = {agent.name: agent for agent in agents}
        self.turns = Places(turns, "turns at work", "turns= or --turns")
        self.followers = Places(followers, "streams open", "followers= or --followers")
        self.draining = anyio.Event()
        """Set when the server is about to end: then streams end, and running turns are left open."""
        self.beside: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """Further functions that run as long as the record is served."""
        self.worker: Worker | None = None
        """The worker that continues unfinished turns; `None` if this server has none, or is not open."""
        self._receiving: set[anyio.CancelScope] = set()
        self._record: Record | None = None
        self._file: FileId | None = None
        self._conversations: Conversations | None = None

    @property
    def conversations(self) -> Conversations:
        """The object that finds or begins the session (one recorded conversation) of a chat-completions request."""
        assert self._conversations is not None
        return self._conversations

    @property
    def address(self) -> str:
        """The address of the record; empty before it is opened."""
        return self._record.info.address if self._record is not None else ""

    @property
    def record(self) -> Record:
        """The record. Raises Refused if the server has not opened it yet, or is about to end."""
        self.check()
        assert self._record is not None
        return self._record

    def check(self) -> None:
        """Raise Refused if the server has not opened its record yet, or is about to end."""
        if self._record is None:
            raise unopened()
        if self.draining.is_set():
            raise Refused(503, "Draining", "This server is ending. Ask again.", {"Retry-After": "1"})

    async def check_record(self) -> None:
        """Raise Refused if no message can be taken, also because the record was moved, replaced, lost or closed."""
        record = self.record
        try:
            await record.store.runs("")
            there = file_of(record) == self._file
        except GestaError:
            there = False
        if not there:  # without the path, because everybody may ask for the health
            found = "The record is not where it was opened, or cannot be read, so no message can be taken."
            raise Refused(503, "NoRecord", f"{found} Put it back, or start the server again.", {"Retry-After": "1"})

    def agent(self, name: str | None) -> Agent[Any]:
        """Return the agent with this name. Without a name, return the only agent.

        Raises:
            Refused: there is no agent with this name, or no name was given and there are several agents.
        """
        if name is None and len(self.agents) == 1:
            return next(iter(self.agents.values()))
        if name is None:
            raise Refused(400, "NoAgent", f"Name the agent: {', '.join(self.agents)}.")
        if name not in self.agents:
            message = f"No agent {name!r:.80} is served here.{nearest(name, self.agents)}"
            raise Refused(404, "NoAgent", f"{message} There are: {', '.join(self.agents)}.")
        return self.agents[name]

    def begin(self, record: Record, *, work: bool) -> None:
        """Begin to serve a record, until it is closed.

        Args:
            work: whether this server also continues unfinished turns of other processes, as `gesta work` does.
        """
        self._record, self._conversations = record, Conversations(record)
        self._file, self.draining = file_of(record), anyio.Event()
        for each in self.beside:
            record.start(each)
        if work:
            self.worker = Worker(record, list(self.agents.values()), jobs=self.turns.most)
            record.start(partial(self.worker.work, _went))

    def drain(self) -> None:
        """Refuse new requests, end all streams, and leave running turns open for the next start."""
        if not self.draining.is_set():
            self.draining.set()
            for scope in list(self._receiving):
                scope.cancel()
            if self._record is not None:
                self._record.close()

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Receive the body of a request in the block. Raises Refused if the server is about to end meanwhile."""
        with anyio.CancelScope() as scope:
            self._receiving.add(scope)
            try:
                yield
            finally:
                self._receiving.discard(scope)
        if scope.cancelled_caught:
            self.check()

    def leave(self, turn: Followed | None) -> None:
        """Count one turn less, because its client has left: now, or when the turn has ended if it still goes on."""
        if turn is not None and turn.at_work and not self.draining.is_set() and self._record is not None:
            self._record.start(partial(self.turns.free_after, turn.ended))
        else:
            self.turns.free()

    def go_on(self, run: str) -> None:
        """Continue a run in the background, after a person's answer was recorded. Runs that called it continue, too."""
        self.record.start(partial(self._go_on, run))

    @asynccontextmanager
    async def alone(self, run: str) -> AsyncIterator[None]:
        """Keep the worker of this server from continuing a run while the block runs."""
        async with AsyncExitStack() as left:
            if self.worker is not None:
                await left.enter_async_context(self.worker.leaving(run))
            yield

    async def _go_on(self, run: str) -> None:
        record = self.record
        try:
            row = await run_of_id(record.store, run) or await record.find(run)
            while row.parent_run is not None:
                row = await run_of_id(record.store, row.parent_run) or await record.find(row.parent_run)
            if row.name in self.agents:
                await record.resume(row.run, self.agents[row.name], by=None)
        except RunHeld:  # the process that holds the run reads the answer from the inbox
            return
        except BaseException as raised:
            if breaks_off(raised):
                raise
            how = message_of(raised) if isinstance(raised, GestaError) else type(raised).__name__
            LOGGER.warning("Run %s could not go on: %s", run, how, exc_info=None if how else raised)


def _went(outcome: Outcome) -> None:
    LOGGER.info("run %s, session %s: %s", outcome.run, outcome.session, outcome.reason)


class Places:
    """A counter of running turns or open streams, which refuses more than a limit.

    Args:
        most: the limit.
        what: what is counted, for the error message.
        raised_by: the options that raise the limit, for the error message.
    """

    def __init__(self, most: int, what: str, raised_by: str) -> None:
        self.most, self._what, self._raised_by = most, what, raised_by
        self.taken = 0

    def __enter__(self) -> None:
        """Count one more turn or stream; see `occupy`."""
        self.occupy()

    def __exit__(self, *_: object) -> None:
        """Count one turn or stream less."""
        self.free()

    def occupy(self) -> None:
        """Count one more turn or stream. Raises Refused with status 429 if the limit is reached."""
        if self.taken >= self.most:
            found = f"There are {self.taken} {self._what}, and no more are taken at once."
            found = f"{found} Ask again, or raise {self._raised_by}."
            raise Refused(429, "TooMany", found, {"Retry-After": "1"})
        self.taken += 1

    def free(self) -> None:
        """Count one turn or stream less."""
        self.taken -= 1

    async def free_after(self, ended: anyio.Event) -> None:
        """Count one turn less once it has ended."""
        try:
            await ended.wait()
        finally:
            self.free()
