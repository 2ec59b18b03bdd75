"""A worker continues the turns that are due: turns that were interrupted, answered or resumed, or whose timer ended.

A turn goes from one message of a run to its answer. A letter is a message, an approval or the like in the inbox of a
run. Between two scans of the record (the store of all runs), a worker remembers only the last entry of each run and
whether a turn was open there, which runs failed, and which wait for what no entry or letter may tell, such as a service
that is away. Those are examined again after growing pauses, one at a time, so that a service that hangs keeps no other
run waiting. Several workers may work on one record: the worker that gets the lease (the right to write a run) continues
the run. A run that fails does not stop the worker: the failure is reported, and the run is tried again after growing
pauses.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from gesta.agent import Agent
from gesta.errors import GestaError, RunHeld, WriteFailed, message_of
from gesta.events import Outcome
from gesta.record.record import Record
from gesta.record.stream import breaks_off
from gesta.record.waits import LastTurn, last_turn
from gesta.state.opening import is_message
from gesta.store import RunRow

FIRST_WAIT_S, LAST_WAIT_S = 1.0, 300.0  # between two tries of a run that fails; each wait is twice the one before
RESUME = "resume"
"""The kind of wait (`Waiting.what`) of a turn whose caller stopped waiting for it: any process may continue it."""
UNTOLD = frozenset({"doubt", "running", "child"})
"""Kinds of waits that may end without an entry or a letter: the service of `reconcile` is back, an attempt or another
process has ended."""
LOGGER = logging.getLogger("gesta")
Told = Callable[[Outcome], None]
FileId = tuple[int, int]
"""The device and the inode of a file."""


class Failed(Struct, frozen=True, kw_only=True):
    """A run that a worker could not continue, with the reason. The run stays unchanged."""

    run: str
    """Id of the run; empty if the record itself could not be read."""
    session: str
    failure: BaseException
    tries: int
    """Number of failures in a row, including this one."""
    again_s: float
    """Seconds until the next try."""

    def __str__(self) -> str:
        """Return the failure in one line, for people."""
        where = f"run {self.run}, session {self.session}" if self.run else "the record"
        said = message_of(self.failure)
        name = type(self.failure).__name__
        why = said if isinstance(self.failure, GestaError) and said else f"{name}: {said}" if said else name
        return f"{where}: {why}; looked at again in {self.again_s:g} s"


def warn(failed: Failed) -> None:
    """Log a failure as a warning."""
    LOGGER.warning("%s", failed)


class Seen(Struct, frozen=True):
    """What a worker remembers about a run after examining it and finding nothing to do."""

    last: tuple[int, str]
    """Seq and time of the run's last entry. A run that was pruned, or lost entries, may reach the same seq again."""
    open: bool
    """Whether the run has an open turn. Letters in the inbox make a run due only if it has an open turn."""
    due: datetime | None
    """Time at which the run is examined again, even if nothing new arrives; `None` for no such time."""


class Again(Struct, frozen=True):
    """When a run is tried again, and how many times in a row it has failed, or waited for the same."""

    tries: int
    at: datetime

    def due(self, now: datetime) -> bool:
        """Return whether it is time for the next try. It is also time if the clock was set back since."""
        return self.at <= now or self.at - now > timedelta(seconds=LAST_WAIT_S)


class Worker:
    """Continues the open turns of some agents in one record, until it is stopped."""

    def __init__(
        self, record: Record, agents: Sequence[Agent[Any]], *, jobs: int = 4, failed: Callable[[Failed], None] = warn
    ) -> None:
        """Prepare a worker.

        Args:
            agents: the agents whose runs the worker continues. The agent of a run is found by its name.
            jobs: number of turns that run at once.
            failed: a function that is called with each failure; by default the logger `gesta` logs a warning.
        """
        self._record = record
        self._file = file_of(record)
        self._agents = {agent.name: agent for agent in agents}
        self._limit = anyio.CapacityLimiter(jobs)
        self._failed = failed
        self._seen: dict[str, Seen] = {}
        self._turns: dict[str, LastTurn] = {}
        self._again: dict[str, Again] = {}  # runs that failed, or were left
        self._untold: dict[str, Again] = {}  # runs that wait for what no entry or letter may tell
        self._asking: str | None = None  # the one of those that is looked at now
        self._busy: dict[str, anyio.Event] = {}  # set once the worker is done with the run
        self._left: Counter[str] = Counter()  # runs that a program continues itself
        self._went = 0

    async def look(self, told: Told) -> int:
        """Continue every run that is due now, and return the number of runs that were due.

        Args:
            told: is called with the outcome of each continued turn.

        Raises:
            WriteFailed: the record cannot be read.
        """
        before, unread = self._went, list[WriteFailed]()
        async with anyio.create_task_group() as group:
            try:
                await self._begin(group, told)
            except WriteFailed as failure:  # raised below, so that the task group does not wrap it
                unread.append(failure)
        if unread:
            raise unread[0]
        return self._went - before

    async def work(
        self, told: Told, *, every_s: float = 1.0, stopping: Callable[[int], None] = lambda _turns: None
    ) -> None:
        """Scan for due runs and continue them, until this task is cancelled. Up to `jobs` turns run at once.

        Args:
            told: is called with each outcome.
            every_s: seconds between two scans. While the record cannot be read, the pauses grow.
            stopping: is called when the task is cancelled, with the number of turns that are still running.
        """
        tries = 0
        async with anyio.create_task_group() as group:
            try:
                while True:
                    try:
                        await self._begin(group, told)
                        tries = 0
                    except WriteFailed as failure:
                        tries += 1
                        wait_s = min(every_s * 2.0 ** min(tries, 20), LAST_WAIT_S)
                        self._failed(Failed(run="", session="", failure=failure, tries=tries, again_s=wait_s))
                        await anyio.sleep(wait_s)
                    await anyio.sleep(every_s)
            except anyio.get_cancelled_exc_class():
                stopping(len(self._busy))
                raise

    @asynccontextmanager
    async def leaving(self, run: str) -> AsyncIterator[None]:
        """Leave a run alone while the block runs. The block begins once the worker is done with the run.

        A program that continues a run with another agent than the worker's needs this: once an answer is in the inbox
        of the run, the worker could continue the run first, with its own agent.
        """
        self._left[run] += 1
        try:
            if (busy := self._busy.get(run)) is not None:
                await busy.wait()
            yield
        finally:
            self._left[run] -= 1
            self._left += Counter()  # forgets the runs with the number 0

    async def _begin(self, group: TaskGroup, told: Told) -> None:
        """Start a task for each run that is due. Each task calls `told` with the outcome."""
        async for row in self._due():
            self._busy[row.run] = anyio.Event()
            group.start_soon(self._go_on, row, told)

    async def _go_on(self, row: RunRow, told: Told) -> None:
        """Continue one run, and call `told` with the outcome.

        Errors are reported, except a cancellation or Ctrl-C, which ends the worker.
        """
        try:
            async with self._limit:
                outcome = await self._record.resume(row.run, self._agents[row.name], by=None)
                news = await self._remember(row, outcome) or self._asking != row.run
        except RunHeld:
            return
        except BaseException as failure:
            if breaks_off(failure):
                raise
            self._put_off(row, failure)
            return
        finally:
            self._busy.pop(row.run).set()
            self._asking = None if self._asking == row.run else self._asking
        self._went += 1
        try:
            if news:
                told(outcome)
        except Exception as failure:  # noqa: BLE001 - a callback must end no run
            LOGGER.warning("Who was told an outcome raised %s: %s", type(failure).__name__, message_of(failure))

    def _put_off(self, row: RunRow, failure: BaseException) -> None:
        """Schedule the next try of a run that failed, and report the failure."""
        tries, again_s = self._later(row.run, self._again)
        self._failed(Failed(run=row.run, session=row.session, failure=failure, tries=tries, again_s=again_s))

    def _later(self, run: str, again: dict[str, Again]) -> tuple[int, float]:
        """Schedule the next try of a run in `again`: each wait is twice as long as the previous one.

        Returns:
            The number of tries in a row, and the wait in seconds.
        """
        last = again.get(run)
        tries = last.tries + 1 if last is not None else 1
        wait_s = min(FIRST_WAIT_S * 2.0 ** min(tries - 1, 20), LAST_WAIT_S)
        again[run] = Again(tries, self._record.turns.clock() + timedelta(seconds=wait_s))
        return tries, wait_s

    async def _due(self) -> AsyncIterator[RunRow]:
        """Yield the due runs of the worker's agents; no child runs. Raises WriteFailed if the record cannot be read."""
        if file_of(self._record) != self._file:  # nobody else writes the one that is open: nothing would ever be due
            found = "it is not the file that was opened: it was moved, deleted or replaced"
            raise WriteFailed(self._record.info.address, f"{found}. Put it back, or start this program again")
        rows = await self._record.store.runs()
        below: dict[str | None, list[str]] = {}
        for row in rows:
            below.setdefault(row.parent_run, []).append(row.run)
        for row in rows:
            if row.parent_run is not None or row.name not in self._agents:
                continue
            if row.run in self._busy or row.run in self._left:
                continue
            try:
                due = await self._is_due(row, below)
            except WriteFailed:
                raise
            except GestaError as failure:  # this run cannot be read, but others can
                self._put_off(row, failure)
                continue
            if due:
                yield row

    async def _is_due(self, row: RunRow, below: dict[str | None, list[str]]) -> bool:
        now = self._record.turns.clock()
        again, seen = self._again.get(row.run), self._seen.get(row.run)
        if again is not None:
            return again.due(now)
        last = (row.head, row.last_at)
        moved = seen is None or seen.last != last
        idle = moved and not (await self._last_turn(row.run)).begin  # another program may have ended its turn
        if idle and not await self._record.store.inbox(row.run):  # else a message may wait for its turn
            self._seen[row.run] = seen = Seen(last, open=False, due=None)
            moved = False
        if seen is None or moved or (seen.due is not None and seen.due <= now):
            return True
        if seen.open and await self._letter(row.run, below):
            return True
        untold = self._untold.get(row.run)
        if untold is None or self._asking is not None or not untold.due(now):
            return False
        self._asking = row.run
        return True

    async def _last_turn(self, run: str) -> LastTurn:
        """Return whether a turn of a run is open now. Cost: reads the entries since the last call."""
        self._turns[run] = await last_turn(self._record.store, run, self._turns.get(run, LastTurn()))
        return self._turns[run]

    async def _letter(self, run: str, below: dict[str | None, list[str]]) -> bool:
        """Return whether the inbox of a run or of its child runs, at any depth, has a letter that is not a message.

        `below` has the child runs of each run, by the run's id.
        """
        left = [run]
        while left:
            one = left.pop()
            if not all(map(is_message, await self._record.store.inbox(one))):  # a message waits for the turn's end
                return True
            left += below.get(one, ())
        return False

    async def _remember(self, row: RunRow, outcome: Outcome) -> bool:
        """Remember that the run has nothing to do now: its last seq, and the time at which to examine it again.

        Returns whether anything was written to the run since it was last examined.
        """
        turn, before = await self._last_turn(row.run), self._seen.get(row.run)
        rows = await self._record.store.read(row.run, turn.head - 1, turn.head)
        last = (turn.head, rows[0].at if rows else "")
        due = (each.expires or each.due for each in outcome.waiting)  # a wait that ends without an answer
        soonest = min((each for each in due if each is not None), default=None)
        self._seen[row.run] = Seen(last, open=turn.begin > 0, due=soonest)
        waits = {str(each.what) for each in outcome.waiting}
        for again, wanted in ((self._again, RESUME in waits), (self._untold, bool(waits & UNTOLD))):
            if wanted:
                self._later(row.run, again)
            else:
                again.pop(row.run, None)
        return before is None or before.last != last


def file_of(record: Record) -> FileId | None:
    """Return what tells the file of a record from every other file; `None` if it is not a file, or is gone."""
    try:
        found = Path(record.info.address).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
