"""A worker takes up what is due: turns that were broken off, answered, woken, or whose time has come.

It holds nothing between two looks but which runs it saw waiting at which head. Several workers may look at one record:
the lease decides who goes on, and whoever comes too late looks again later.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import anyio
from msgspec import Struct

from gesta.agent import Agent
from gesta.decide import Waiting
from gesta.errors import RunHeld
from gesta.kinds import TimerContent
from gesta.outcome import Outcome
from gesta.record import Record
from gesta.store import RunRow


class Seen(Struct, frozen=True):
    """A run as it was found waiting."""

    head: int
    due: datetime | None
    """When it is to be looked at though nobody has told it anything."""


class Worker:
    """Goes on with the runs of some agents in one record."""

    def __init__(self, record: Record, agents: Sequence[Agent], *, jobs: int = 4) -> None:
        self._record = record
        self._agents = {agent.name: agent for agent in agents}
        self._limit = anyio.CapacityLimiter(jobs)
        self._seen: dict[str, Seen] = {}
        self._busy: set[str] = set()

    async def look(self, told: Callable[[Outcome], None]) -> int:
        """Go on with every run that is due now, and give how many there were; each outcome is told as it comes."""
        due = [row async for row in self._due()]

        async def go_on(row: RunRow) -> None:
            async with self._limit:
                try:
                    outcome = await self._record.resume(row.run, self._agents[row.name])
                except RunHeld:
                    return
                finally:
                    self._busy.discard(row.run)
                await self._remember(row.run, outcome)
                told(outcome)

        async with anyio.create_task_group() as group:
            for row in due:
                self._busy.add(row.run)
                group.start_soon(go_on, row)
        return len(due)

    async def _due(self) -> AsyncIterator[RunRow]:
        """Find root runs of these agents with something to do."""
        rows = await self._record.store.runs()
        below: dict[str | None, list[str]] = {}
        for row in rows:
            below.setdefault(row.parent_run, []).append(row.run)
        now = self._record.holder.clock()
        for row in rows:
            if row.parent_run is not None or row.name not in self._agents or row.run in self._busy:
                continue
            seen = self._seen.get(row.run)
            rests = seen is not None and seen.head == row.head and (seen.due is None or seen.due > now)
            if rests and not await self._told(row.run, below):
                continue
            if seen is None and not (await self._record.state(row.run)).open:
                self._seen[row.run] = Seen(row.head, None)
                continue
            yield row

    async def _told(self, run: str, below: dict[str | None, list[str]]) -> bool:
        """Say whether a letter waits for a run or one below it."""
        left = [run]
        while left:
            one = left.pop()
            if await self._record.store.inbox(one):
                return True
            left += below.get(one, ())
        return False

    async def _remember(self, run: str, outcome: Outcome) -> None:
        """Keep at which head a run waits, and when it is to be looked at again."""
        state = await self._record.state(run)
        due = [await self._due_at(each, run) for each in outcome.waiting]
        self._seen[run] = Seen(state.head, min((each for each in due if each is not None), default=None))

    async def _due_at(self, waiting: Waiting, run: str) -> datetime | None:
        """Give when something waits no longer though nobody answers: a timer, a request for approval that expires."""
        state = await self._record.state(waiting.run or run)
        if waiting.what == "timer":
            notes = (note for note in state.acts.notes.values() if note.seq == waiting.of)
            return next((note.content.due_at for note in notes if isinstance(note.content, TimerContent)), None)
        call = state.calls.get(waiting.call)
        return call.expires if call is not None else None
