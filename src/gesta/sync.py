"""The synchronous API, through which programs without an event loop run agents and record spans.

A turn goes from one message to its answer. A record is the store of all runs; a span is a named part of a run. Running
an agent starts an event loop for that call. Recording needs no loop: a store in one file or in memory never waits for
another task, so its coroutines finish at once. Each entry is committed before `log` returns.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Generic, Literal, Unpack, cast

import anyio

from gesta.address import Address, Options, Record, bind, divided, drive, inline_store, open_record
from gesta.agent import Agent
from gesta.decide.waiting import Waiting
from gesta.entry import Entry
from gesta.errors import GestaError, refuse_unknown
from gesta.events import Event, Listener, Outcome
from gesta.first_file import tell
from gesta.function_tool.output import T
from gesta.integrity.verify import Flaw, Head, Report
from gesta.kinds import Content, Kind
from gesta.log.journal import Log
from gesta.record.answers import Receipt
from gesta.record.calls import Calls
from gesta.record.followers import MOST_WAITING, Target
from gesta.record.options import MessageOptions, TurnOptions
from gesta.record.record import Said
from gesta.record.stream import followed
from gesta.state.run import RunState
from gesta.store import Info, RunRow
from gesta.views.history import SaidMessage
from gesta.views.lineage import Explanation
from gesta.views.sessions import Session
from gesta.views.stats import By, Numbers

OF_TURN = (*MessageOptions.__annotations__, "listener")


class Span:
    """A span (named part of a run) in which the user's own program writes entries and opens further spans."""

    def __init__(self, log: Log, commit: Callable[[], None]) -> None:
        self._log = log
        self._commit = commit

    @property
    def run(self) -> str:
        """Id of the run that contains the span."""
        return self._log.run

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the spans from the root of the run to this one."""
        return self._log.path

    def log(self, content: Content, **annotations: Any) -> Entry | None:
        """Commit an entry and return it; `None` for a kind in the span's `skip`. Raises WriteFailed if that fails."""
        entry = self._log.log(content, **annotations)
        self._commit()
        return entry

    def __setitem__(self, key: str, value: Any) -> None:
        """Write one key-value entry. A second value for the same key is a second entry."""
        self._log[key] = value
        self._commit()

    @contextmanager
    def span(
        self, name: str, *, skip: Collection[Kind] = (), state: Any = None, **annotations: Any
    ) -> Iterator["Span"]:
        """Open a span inside this one; see `Log.span`."""
        try:
            with self._log.span(name, skip=skip, state=state, **annotations) as inner:
                self._commit()
                yield Span(inner, self._commit)
        finally:
            self._commit()


class SyncStream(Generic[T]):
    """The events of one turn, as they happen. The turn advances only while the caller waits for the next event.

    If the caller stops early, the turn still runs to its end; under `Policy(when_left="stop")` the turn stops instead.
    """

    def __init__(self, work: Callable[[Listener], Awaitable[Outcome[T]]], *, stops: bool) -> None:
        self._work, self._stops = work, stops
        self._begun = False
        self.outcome: Outcome[T] | None = None
        """The outcome of the turn; `None` while the turn runs, or if it was stopped."""

    def __iter__(self) -> Iterator[Event]:
        """Begin the turn, and return an iterator over its events.

        Raises:
            GestaError: the stream was begun before, or an event loop is running in this thread.
            BaseException: the error that ended the turn without an outcome.
        """
        if self._begun:
            raise GestaError("This stream was begun before. Call record.stream(...) again to send a message again.")
        refuse_inside_loop("Record.stream")
        self._begun = True
        return self._events()

    def _events(self) -> Iterator[Event]:
        heard: asyncio.Queue[Event | None] = asyncio.Queue()
        return _heard(heard, lambda: self._turn(heard.put_nowait), stops=self._stops)

    async def _turn(self, listener: Listener) -> None:
        self.outcome = await self._work(listener)


def _heard(
    heard: asyncio.Queue[Event | None], work: Callable[[], Coroutine[Any, Any, None]], *, stops: bool = True
) -> Iterator[Event]:
    """Yield the events that `work` puts into the queue `heard`, until `work` ends. It runs while the caller waits.

    If the caller stops early, `work` is cancelled if `stops` is true. Otherwise it runs to its end.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(work())
        task.add_done_callback(lambda _: heard.put_nowait(None))
        try:
            while (event := loop.run_until_complete(heard.get())) is not None:
                yield event
        except GeneratorExit:
            if stops:
                task.cancel()
            loop.run_until_complete(asyncio.wait([task]))
            raise
        task.result()


When = datetime | str | None
Counted = dict[str, Numbers]


class SyncRecord:
    """An opened record, for programs without an event loop. `gesta.open_sync` returns it."""

    def __init__(self, record: Record, calls: Calls) -> None:
        self.record, self._calls = record, calls

    @property
    def info(self) -> Info:
        """The identity of the store: its id, its address, and when it was created."""
        return self.record.info

    def run(
        self,
        agent: Agent[T],
        message: Said,
        *,
        listener: Listener | None = None,
        **options: Unpack[MessageOptions],
    ) -> Outcome[T]:
        """Send a message to an agent; see `Record.run`."""
        refuse_inside_loop("Record.run")
        return self._calls.run(lambda: self.record.run(agent, message, listener=listener, **options))

    def stream(self, agent: Agent[T], message: Said, **options: Unpack[MessageOptions]) -> SyncStream[T]:
        """Return a stream of the events of a turn; see `Record.stream`. Reading the stream sends the message."""

        def take(listener: Listener) -> Awaitable[Outcome[T]]:
            return self.record.run(agent, message, listener=listener, **options)

        return SyncStream(take, stops=agent.policy.when_left == "stop")

    def follow(
        self, name: str | Target, *, after: int | str = 0, until_end: bool = False, most: int = MOST_WAITING
    ) -> Iterator[Event]:
        """Yield the events of a run or a session, reading only while the caller waits; see `Record.follow`."""
        refuse_inside_loop("Record.follow")
        heard: asyncio.Queue[Event | None] = asyncio.Queue()

        async def follow() -> None:
            followers, find = self.record.followers, self.record.find
            target = name if isinstance(name, Target) else await followers.target(name, find, until_end=until_end)
            await followed(followers.follower(target, after, most), heard.put_nowait)

        return _heard(heard, follow)

    def resume(
        self,
        run: str,
        agent: Agent[T],
        *,
        listener: Listener | None = None,
        by: str | None = "resume",
        **options: Unpack[TurnOptions],
    ) -> Outcome[T]:
        """Continue the open turn of a run; see `Record.resume`."""
        refuse_inside_loop("Record.resume")
        return self._calls.run(lambda: self.record.resume(run, agent, listener=listener, by=by, **options))

    def send(self, run: str, content: Content, *, key: str) -> bool:
        """Send a content, such as an answer, to a run. Return False if `key` was used before; see `Record.send`."""
        return drive(self.record.send(run, content, key=key))

    def approve(
        self,
        waiting: Waiting | str,
        call: int | None = None,
        *,
        by: str,
        args: dict[str, Any] | None = None,
        reason: str | None = None,
        token: str | None = None,
    ) -> Receipt:
        """Allow a tool call that waits for approval; see `Record.approve`."""
        return drive(self.record.approve(waiting, call, by=by, args=args, reason=reason, token=token))

    def deny(
        self,
        waiting: Waiting | str,
        call: int | None = None,
        *,
        by: str,
        reason: str | None = None,
        token: str | None = None,
    ) -> Receipt:
        """Refuse a tool call that waits for approval; see `Record.deny`."""
        return drive(self.record.deny(waiting, call, by=by, reason=reason, token=token))

    def answer(
        self,
        waiting: Waiting | str,
        value: Any,
        of: int | None = None,
        *,
        by: str,
        reason: str | None = None,
        token: str | None = None,
    ) -> Receipt:
        """Answer a question that a turn waits for; see `Record.answer`."""
        return drive(self.record.answer(waiting, value, of, by=by, reason=reason, token=token))

    def resolve(
        self,
        waiting: Waiting | str,
        verdict: Literal["done", "failed", "retry"],
        call: int | None = None,
        *,
        by: str,
        result: Any = None,
    ) -> Receipt:
        """Record whether a call in doubt (one that may or may not have happened) took effect; see `Record.resolve`."""
        return drive(self.record.resolve(waiting, verdict, call, by=by, result=result))

    def cancel(self, waiting: Waiting | str, *, by: str, reason: str | None = None) -> Outcome[Any] | None:
        """End the open turn of a run, and return its outcome, or `None`; see `Record.cancel`."""
        refuse_inside_loop("Record.cancel")
        return self._calls.run(lambda: self.record.cancel(waiting, by=by, reason=reason))

    @contextmanager
    def span(
        self,
        name: str,
        *,
        session: str,
        run: str | None = None,
        skip: Collection[Kind] = (),
        state: Any = None,
        **annotations: Any,
    ) -> Iterator[Span]:
        """Open a span in a run, by default in the run `name`, and yield it; see `Record.span`.

        Args:
            skip: kinds whose contents are not recorded.
            state: a value that is recorded when the span begins, and again, with all changes, when the span ends.
            annotations: every entry in the span inherits them.
        """
        opened = self.record.span(name, session=session, run=run, skip=skip, state=state, **annotations)
        log = drive(opened.__aenter__())
        try:
            drive(log.durable())
            yield Span(log, lambda: drive(log.durable()))
        except BaseException as error:
            if not drive(opened.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            drive(opened.__aexit__(None, None, None))

    def find(self, name: str) -> RunRow:
        """Return the facts about a run: by its id, the start of its id, its session, or `last`; see `Record.find`."""
        return drive(self.record.find(name))

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """Return the entries of a run whose seq is greater than `after`; see `Record.read`."""
        return drive(self.record.read(run, after))

    def state(self, run: str) -> RunState:
        """Return the state of a run, computed from its entries; see `Record.state`."""
        return drive(self.record.state(run))

    def waiting(self, run: str) -> list[Waiting]:
        """Return what the open turn of a run waits for; see `Record.waiting`."""
        return drive(self.record.waiting(run))

    def verify(self, *kept: Iterable[Head]) -> list[Flaw]:
        """Return the flaws: entries, and blobs (values stored apart), that were changed; see `Record.verify`."""
        return drive(self.record.verify(*kept))

    def report(self, *kept: Iterable[Head]) -> Report:
        """Return the flaws that `verify` finds, and the data that no digest covers; see `Record.report`."""
        return drive(self.record.report(*kept))

    def heads(self) -> list[Head]:
        """Return the head of each run: the seq and the digest of its last entry; see `Record.heads`."""
        return drive(self.record.heads())

    def sessions(self, limit: int | None = None) -> list[Session]:
        """Return the sessions, the most recently active session first; see `Record.sessions`."""
        return drive(self.record.sessions(limit))

    def history(self, session: str, *, calls: bool = False) -> list[SaidMessage]:
        """Return what a person and the agents said in a session, in order; see `Record.history`."""
        return drive(self.record.history(session, calls=calls))

    def chat_messages(self, session: str, *, calls: bool = False) -> list[dict[str, Any]]:
        """Return the history as messages of a chat completion; see `Record.chat_messages`."""
        return drive(self.record.chat_messages(session, calls=calls))

    def stats(self, by: By = "day", *, since: When = None, until: When = None, session: str | None = None) -> Counted:
        """Return counts and costs of requests and calls; see `Record.stats`."""
        return drive(self.record.stats(by, since=since, until=until, session=session))

    def explain(self, entry: Entry | str | tuple[str, int]) -> Explanation:
        """Return the explanation of an entry; see `Record.explain`."""
        return drive(self.record.explain(entry))


class RunOptions(Options, MessageOptions, total=False):
    """The options of `run_sync`: those of `gesta.open` and of `Record.run`."""

    listener: Listener | None
    """A function that is called with each event of the turn."""


def run_sync(
    agent: Agent[T], message: Said, *, record: Address | None = None, **options: Unpack[RunOptions]
) -> Outcome[T]:
    """Send a message to an agent and return the outcome; see `Record.run`.

    Args:
        record: path of a `.gesta` file, or `:memory:` for a private record that ends with the call. `None` means
            `:memory:` too; then a note on standard error says, once, how to keep a record.
        options: see `RunOptions`.

    Raises:
        TypeError: an option is unknown.
    """
    refuse_inside_loop("Record.run")
    refuse_unknown("gesta.run_sync", options, ["record", *RunOptions.__annotations__])
    given: dict[str, Any] = dict(options)
    said = {name: given.pop(name) for name in OF_TURN if name in given}
    opening = cast("Options", given)

    async def main() -> Outcome[T]:
        async with open_record(":memory:" if record is None else record, **opening) as opened:
            return await opened.run(agent, message, **said)

    outcome = anyio.run(main)
    if record is None:
        tell(sys._getframe(1))  # noqa: SLF001  # nothing else says which file calls
    return outcome


@contextmanager
def open_sync(address: Address = ":memory:", **options: Unpack[Options]) -> Iterator[SyncRecord]:
    """Open a record for a `with` block in a program without an event loop; see `gesta.open`.

    Each entry survives a crash of the process as soon as it is written. With durability `synced`, the entries of a span
    survive a loss of power once the span has ended.
    """
    of_store, terms = divided(options)
    store = inline_store(address, **of_store)
    record, calls = Record(store, bind), Calls()
    record.turns.terms = terms
    try:
        yield SyncRecord(record, calls)
    finally:
        calls.close()
        drive(store.close())


def refuse_inside_loop(twin: str) -> None:
    """Raise GestaError if an event loop is running in this thread; the error names the async method `twin` to await."""
    try:
        anyio.get_current_task()
    except anyio.NoEventLoopError:
        return
    found = "An event loop is running in this thread, as in a notebook"
    raise GestaError(f"{found}. Write `async with gesta.open(...) as record:`, and await {twin} in it.")
