"""A follower yields the events of a run: first the events on record, then each new event, whichever process writes it.

A record is the store of all runs, and a session is the runs of one conversation. An entry is one recorded fact of a
run; its seq is its number there, and its pos its number in the record. A watch reads new entries, and each follower
makes events from them. Words are text that a model is still writing, and that is not on record yet. A broadcast sends
the words of turns in this process. Words come before the event of the entry that will contain them, and this event then
leaves out the words that were sent.
"""

import heapq
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from gesta.entry import Entry
from gesta.errors import GestaError, RecordError, RunError
from gesta.events import AnswerEvent, Broadcast, EndEvent, Event, ThoughtEvent, WaitingEvent
from gesta.kinds import BeginContent
from gesta.log.journal import pages
from gesta.record.entry_events import EntryEvents
from gesta.record.told_words import ToldWords
from gesta.record.watch import Watch, bound_of
from gesta.store import RunRow, Store

MOST_WAITING = 1000  # greatest number of entries and words in the queue of a follower
Source = tuple[int, str, deque[Entry], AsyncGenerator[list[Entry], None]]
"""One followed run: the pos of its next entry, its id, the entries already read, and a generator of later pages."""
CLOSED = "The record was closed while it was followed. Open it again, and follow(…, after={after!r}) to go on."


class FollowerTooSlow(RunError):
    """A listener read its events so slowly that the queue of its follower was full."""

    def __init__(self, most: int, after: str) -> None:
        todo = f"Follow it from there: record.follow(…, after={after!r}). With most={10 * most} it keeps more"
        self.found, self.after = f"{most:,} entries and words waited to be read; a follower keeps no more", after
        super().__init__(f"{self.found}. {todo}.")


class Target(Struct, frozen=True, kw_only=True):
    """What a follower follows: some runs, a whole session, or one turn."""

    runs: tuple[str, ...] = ()
    """Ids of the runs; their child runs are followed too."""
    root: str = ""
    """Id of the topmost run above `runs`; empty if `whole` is set."""
    session: str | None = None
    """Name of the session of the runs. If `whole` is set, all runs of the session are followed, also runs that begin
    later."""
    whole: bool = False
    turn: Callable[[BeginContent, int], bool] | None = None
    """Returns whether to follow the turn with this `begin` content and seq; `None` to follow all turns."""
    until_end: bool = False
    """Whether the follower ends as soon as no turn is open."""


class OpenedTurn:
    """Recognises the turn that a message opened.

    The `begin` entry of a turn stores the key of the message. If the message has no key, whoever begins the turn passes
    the seq of this entry to `note`.
    """

    def __init__(self, key: str | None) -> None:
        self._key, self._seq = key, 0

    def note(self, seq: int) -> None:
        """Store the seq of the `begin` entry of the turn."""
        self._seq = seq

    def fits(self, begin: BeginContent, seq: int) -> bool:
        """Return whether a `begin` entry opened the turn of the message."""
        return begin.key == self._key if self._key is not None else seq == self._seq


class Follower:
    """Yields events to one listener. A queue keeps the entries and words that the listener has not read yet.

    Args:
        watch: reads new entries of the record.
        broadcast: returns the broadcast of a root run, which sends words that are not on record yet.
        target: the runs, or the turn, to follow.
        after: `id` of the last event that the listener read, or a pos; later events are yielded.
        most: greatest number of entries and words in the queue.
    """

    def __init__(
        self,
        watch: Watch,
        broadcast: Callable[[str], Broadcast],
        target: Target,
        after: int | str = 0,
        most: float = MOST_WAITING,
    ) -> None:
        self.runs: dict[str, int] = dict.fromkeys(target.runs, 0)
        """For each followed run, the seq of the last entry whose events were yielded."""
        self._watch, self._broadcast, self._target = watch, broadcast, target
        self._after, self._most = after_event(after), bound_of(most)
        self._pos = 0
        self._events = EntryEvents()
        self._waiting: deque[Entry | tuple[Event, int] | None] = deque()
        self._failed = False
        self._failure: BaseException | None = None
        self._bell: anyio.Event | None = None
        self._held: list[tuple[Event, int]] = []
        self._words = ToldWords()
        self._waits: set[tuple[str, str, str, int | None]] = set()
        self._broadcasts: list[Broadcast] = []
        self._turn: int | None = None
        self._told = str(after)
        self._over = self._slow = False

    def opens(self, entry: Entry) -> bool:
        """Return whether an entry opens a run that is to be followed too. If so, add the run."""
        opened = entry.content.opened if isinstance(entry.content, BeginContent) else None
        if opened is None or entry.run in self.runs:
            return False
        root = self._target.whole and opened.parent_run is None and opened.session == self._target.session
        if root or opened.parent_run in self.runs:
            self._include(entry.run, root=root)
            return True
        return False

    def _include(self, run: str, *, root: bool) -> None:
        """Add a run to the followed runs. If it is a root run, also listen to words that are not on record yet."""
        self.runs.setdefault(run, 0)
        if root:
            self._hear(run)

    def _hear(self, root: str) -> None:
        """Listen to the words of a root run and of the runs below it."""
        broadcast = self._broadcast(root)
        self._broadcasts.append(broadcast)
        broadcast.join(self._say)

    def take(self, found: Entry | GestaError) -> None:
        """Add an entry to the queue. An error ends the follower after the queued events."""
        if isinstance(found, GestaError):
            self.fail(found)
        else:
            self._put(found)

    def fail(self, failure: BaseException | None) -> None:
        """End the follower with an error after the queued events; `None` means that the record was closed."""
        if not self._failed:
            self._failed, self._failure = True, failure
        self._ring()

    def finish(self) -> None:
        """End the follower after it has yielded the events of all entries that are on record now."""
        self._put(None, always=True)

    async def events(self, tasks: TaskGroup) -> AsyncGenerator[Event, None]:
        """Yield the events that are on record, and then each new event.

        Args:
            tasks: task group in which the record is watched, if it is not watched yet.

        Raises:
            FollowerTooSlow: too many entries and words waited to be read.
            GestaError: the record was closed, or cannot be read any more.
        """
        try:
            if self._target.root:
                self._hear(self._target.root)
            await self._watch.join(self, tasks)
            if self._after[0]:  # a crash of a server may have lost what the listener has read
                self._after = min(self._after, (await self._watch.store.last(), float("inf")))
            async for entry in self._on_record(await self._reached()):
                for event in self._take_entry(entry):
                    self._told = event.id or self._told
                    yield event
            while not self._done():
                for event in await self._next():
                    self._told = event.id or self._told
                    yield event
        finally:
            self._watch.leave(self)
            for broadcast in self._broadcasts:
                broadcast.leave(self._say)

    def _done(self) -> bool:
        """Return whether the follower has nothing more to yield."""
        if self._over or not self._target.until_end or self._waiting:
            return self._over
        roots = [
            run.state.open
            for run in self._events.runs.values()
            if self._target.whole or run is self._events.runs[self._target.runs[0]]
        ]
        return bool(roots) and not any(roots)  # a session that has not begun is waited for

    async def _next(self) -> Iterable[Event]:
        """Wait for the next entry or words in the queue, and return the events to yield."""
        while not self._waiting and not self._failed:
            self._bell = anyio.Event()
            await self._bell.wait()
        if not self._waiting and self._slow:
            raise FollowerTooSlow(int(self._most), self._told)
        if not self._waiting:
            raise self._failure or RecordError(CLOSED.format(after=self._told))
        found = self._waiting.popleft()
        if isinstance(found, Entry):
            missed = await self._missed(found) if found.seq > self.runs[found.run] + 1 else []
            return missed + self._take_entry(found)
        if found is not None:
            return self._take_words(*found)
        told: list[Event] = []
        async for entry in self._on_record(await self._watch.store.last()):
            told += self._take_entry(entry)
        self._over = True
        return told

    async def _reached(self) -> int:
        """Add all runs on record that the target includes. Return a pos: the watch reports the entries after it."""
        while True:
            reached = self._watch.pos
            rows = await self._watch.store.runs(self._target.session)
            if not self._add(rows):
                return reached

    def _add(self, rows: Iterable[RunRow]) -> bool:
        """Add the given runs that the target includes, and their child runs. Return whether any run was added."""
        known = len(self.runs)
        for row in rows:  # in the order in which they were opened
            root = self._target.whole and row.parent_run is None
            if row.run not in self.runs and (root or row.parent_run in self.runs):
                self._include(row.run, root=root)
        return len(self.runs) > known

    async def _on_record(self, until: int) -> AsyncGenerator[Entry, None]:
        """Yield the entries up to the pos `until`, in the order of the record, except entries that were read before."""
        if until and self._pos:
            self._add(await self._watch.store.runs(self._target.session))
        order: list[Source] = []
        for run, seq in list(self.runs.items()):  # another may be included meanwhile, whose entries come after `until`
            await _advance(order, run, pages(self._watch.store, run, seq))
        while order and order[0][0] <= until:
            _, run, entries, source = heapq.heappop(order)
            yield entries.popleft()
            if entries:
                heapq.heappush(order, (entries[0].pos, run, entries, source))
            else:
                await _advance(order, run, source)

    async def _missed(self, before: Entry) -> list[Event]:
        """Return the events of the entries that come before `before` in its run, and that the watch did not report."""
        told: list[Event] = []
        async for page in pages(self._watch.store, before.run, self.runs[before.run]):
            for entry in page:
                if entry.seq >= before.seq:
                    return told
                events = self._take_entry(entry)
                told += events if entry.shared_from is None else []  # not those that a fork shares
        return told

    def _take_entry(self, entry: Entry) -> list[Event]:
        """Return the events of an entry, and after them the words that were held back until these events."""
        if entry.seq <= self.runs[entry.run]:
            return []
        self.runs[entry.run] = entry.seq
        self._pos = max(self._pos, entry.pos)
        told = self._events.add(entry)
        if not self._ours(entry):
            return []
        self._waits |= {_waited(each) for each in told if isinstance(each, WaitingEvent)}
        news = [each for each in told if (each.pos, each.part) > self._after]
        heard = [each for event in news for each in self._words.without(event)]
        for event in told:
            if isinstance(event, EndEvent) and self._turn == event.outcome.turn and event.run in self._target.runs:
                self._over = True
        held, self._held = self._held, []  # words that still have to wait are held again
        return heard + [told for words in held for told in self._take_words(*words)]

    def _ours(self, entry: Entry) -> bool:
        """Return whether to yield the events of an entry: always, unless the target is a turn that has not begun."""
        wanted, content = self._target.turn, entry.content
        if wanted is None or self._turn is not None:
            return True
        if isinstance(content, BeginContent) and content.role == "turn" and entry.run in self._target.runs:
            self._turn = entry.seq if wanted(content, entry.seq) else None
        return self._turn is not None

    def _take_words(self, event: Event, durable: int) -> list[Event]:
        """Return `[event]` if its words are to be yielded now; else an empty list.

        The words are kept for later if the events of earlier entries have not been yielded. They are dropped if they
        are on record by now, or belong to a turn that this listener did not ask for.

        Args:
            event: the event with the words.
            durable: seq of the last entry on disk when the words were sent.
        """
        told = self.runs.get(event.run)
        if told is None and self._target.root not in self.runs and not self._target.whole:
            return []  # another run below the same root run
        if told is None or told < durable:
            self._held.append((event, durable))
            return []
        if told > durable or (self._target.turn is not None and self._turn is None):
            return []
        if isinstance(event, WaitingEvent) and _waited(event) in self._waits:
            return []  # it was sent when the entry that asks was read
        return [event] if self._words.add(event) else []

    def _say(self, event: Event, durable: int) -> None:
        """Add the words in `event` to the queue. If it is more than half full, join them to words of the same message.

        `durable` is the seq of the last entry on disk when the words were sent.
        """
        last = self._waiting[-1] if len(self._waiting) > self._most / 2 else None
        if isinstance(last, tuple) and isinstance(event, AnswerEvent | ThoughtEvent):
            before = last[0]
            same = (before.type, before.run, before.message, last[1]) == (event.type, event.run, event.message, durable)
            if same and not before.end_of_message:
                self._waiting[-1] = msgspec.structs.replace(event, content=before.content + event.content), durable
                return
        self._put((event, durable))

    def _put(self, found: Entry | tuple[Event, int] | None, *, always: bool = False) -> None:
        if always or (not self._failed and len(self._waiting) < self._most):
            self._waiting.append(found)
        elif not self._failed:
            self._failed = self._slow = True
        self._ring()

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.set()


def _waited(event: WaitingEvent) -> tuple[str, str, str, int | None]:
    return event.run, event.waiting.run, event.waiting.what, event.waiting.of


async def _advance(order: list[Source], run: str, source: AsyncGenerator[list[Entry], None]) -> None:
    """Add the next page of a run's entries, read from `source`, to the heap `order`; nothing at the end of the run."""
    page = await anext(source, None)
    if page:
        heapq.heappush(order, (page[0].pos, run, deque(page), source))


def after_event(after: int | str) -> tuple[float, float]:
    """Return pos and index from the `id` of an event: 12 and 0 for `12-0`.

    A plain pos gets an infinite index, because all events of its entry were read.
    """
    if isinstance(after, int):
        return after, float("inf")
    pos, _, part = after.partition("-")
    if not (pos.isdecimal() and (part.isdecimal() or not part)):
        raise GestaError(f"follow(after={after!r:.60}): expected the id of an event, such as '12-0', or a pos.")
    return int(pos), int(part) if part else float("inf")


class Followers:
    """Creates the followers of the runs of a record."""

    def __init__(self, store: Store, broadcast: Callable[[str], Broadcast], *, shared: bool) -> None:
        """Prepare to follow runs of a record. Nothing is read yet.

        Args:
            store: the store of the record.
            broadcast: returns the broadcast of a root run, which sends words that are not on record yet.
            shared: whether all followers are in one event loop, so that one watch can read the record for all of them.
        """
        self._store, self._broadcast = store, broadcast
        self._watch = Watch(store) if shared else None

    @property
    def watching(self) -> bool:
        """Whether at least one follower is reading. Only then is the record watched."""
        return self._watch is not None and self._watch.at_work

    def follower(self, target: Target, after: int | str = 0, most: float = MOST_WAITING) -> Follower:
        """Return a follower of the target's runs; see `Record.follow`."""
        return Follower(self._watch or Watch(self._store), self._broadcast, target, after, most)

    async def target(self, name: str, find: Callable[[str], Awaitable[RunRow]], *, until_end: bool = False) -> Target:
        """Return the target for a name: a run with its child runs, or all runs of a session.

        Args:
            name: id of a run or name of a session; `find` looks up any other name.
            find: returns the run for a name, see `Record.find`.
            until_end: whether the follower ends as soon as no turn is open.

        Raises:
            NoRun, SeveralRuns: no run fits the name, or several do.
        """
        rows = {row.run: row for row in await self._store.runs()}
        if name not in rows and any(row.session == name for row in rows.values()):
            return Target(session=name, whole=True, until_end=until_end)
        row = root = rows.get(name) or await find(name)
        while root.parent_run in rows:
            root = rows[root.parent_run]
        return Target(runs=(row.run,), root=root.run, session=row.session, until_end=until_end)
