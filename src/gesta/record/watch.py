"""One watch reads each newly committed entry of a record once and passes it to the followers of its run.

A record is the store of all runs. An entry is one recorded fact of a run. A follower yields the events of some runs to
one listener.
"""

from contextlib import aclosing
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from gesta.entry import Entry, Row
from gesta.errors import AgentError, GestaError
from gesta.kinds import Kind
from gesta.log.journal import entry_of
from gesta.store import Store


class RunFollower(Protocol):
    """The interface of followers that a watch uses: the ids of their runs, and methods that receive entries."""

    runs: dict[str, int]
    """The keys are the ids of the runs whose entries the follower receives. The watch does not use the values."""

    def opens(self, entry: Entry) -> bool:
        """Return whether an entry opens a run that this follower must follow too. If so, add the run to `runs`."""

    def take(self, found: Entry | GestaError) -> None:
        """Add an entry to the follower's queue. An error ends the follower."""

    def fail(self, failure: BaseException | None) -> None:
        """End the follower with an error; `None` means that the record was closed."""


class Watch:
    """Reads the committed entries of a record, once for all followers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.pos = 0
        """Pos (place in the record) of the last entry that was passed to the followers."""
        self._followers: set[RunFollower] = set()
        self._scope: anyio.CancelScope | None = None

    @property
    def at_work(self) -> bool:
        """Whether the record is being read. The watch reads the record only while it has a follower."""
        return self._scope is not None

    async def join(self, follower: RunFollower, tasks: TaskGroup) -> None:
        """Add a follower. Every entry that is committed from now on is passed to the follower.

        Args:
            tasks: task group in which the watch runs, if this is the first follower.
        """
        last = await self.store.last() if self._scope is None else 0
        if self._scope is None:
            self.pos, self._scope = last, anyio.CancelScope()
            tasks.start_soon(self._watch, self._scope)
        self._followers.add(follower)

    def leave(self, follower: RunFollower) -> None:
        """Remove a follower. Without any follower the watch stops reading."""
        self._followers.discard(follower)
        if not self._followers and self._scope is not None:
            self._scope.cancel()
            self._scope = None

    async def _watch(self, scope: anyio.CancelScope) -> None:
        failure: BaseException | None = None
        try:
            with scope:
                async with aclosing(self.store.tail(self.pos)) as tail:
                    async for rows in tail:
                        for row in rows:
                            await self._hand_out(row)
                            self.pos = row.pos
                        await checkpoint()  # lets followers take each page before the next is read
        except Exception as error:  # noqa: BLE001 - each follower raises it
            failure = error
        finally:
            if self._scope is scope:
                self._scope = None
                for follower in list(self._followers):
                    follower.fail(failure)

    async def _hand_out(self, row: Row) -> None:
        begins = row.kind == Kind.Begin
        if not begins and not any(row.run in each.runs for each in self._followers):
            return
        found: Entry | GestaError
        try:
            found = await entry_of(self.store, row)
        except GestaError as error:
            found = error
        for each in list(self._followers):
            if row.run in each.runs or (begins and isinstance(found, Entry) and each.opens(found)):
                each.take(found)


def bound_of(most: float) -> float:
    """Return `most`, the greatest number of what may wait in a queue. Raises AgentError if it is not at least 1."""
    if not isinstance(most, int | float) or not most >= 1:  # neither is NaN
        raise AgentError(f"most= of record.follow: found {most!r:.40}, expected a number of at least 1, such as 1000.")
    return most
