"""A record is watched once for all who follow runs of it: each entry that is committed is read once, and handed out."""

from contextlib import aclosing
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from gesta.entry import Entry, Row
from gesta.errors import GestaError
from gesta.kinds import Kind
from gesta.log.journal import entry_of
from gesta.store import Store


class RunFollower(Protocol):
    """What entries are handed to."""

    runs: dict[str, int]
    """The runs whose entries it takes."""

    def opens(self, entry: Entry) -> bool:
        """Return whether an entry opens one more of them."""

    def take(self, found: Entry | GestaError) -> None:
        """Keep the next entry until it is heard; or an error, with which nothing more comes."""

    def fail(self, failure: BaseException | None) -> None:
        """End with an error; `None` stands for a record that was closed."""


class Watch:
    """Reads what is committed to a record, once for all its followers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.pos = 0
        """Of the last entry that was handed to the followers."""
        self._followers: set[RunFollower] = set()
        self._scope: anyio.CancelScope | None = None

    @property
    def at_work(self) -> bool:
        """Whether there is anybody to hand entries to."""
        return self._scope is not None

    async def join(self, follower: RunFollower, tasks: TaskGroup) -> None:
        """Hand what is committed from now on to a follower."""
        last = await self.store.last() if self._scope is None else 0
        if self._scope is None:
            self.pos, self._scope = last, anyio.CancelScope()
            tasks.start_soon(self._watch, self._scope)
        self._followers.add(follower)

    def leave(self, follower: RunFollower) -> None:
        """Hand nothing more to a follower."""
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
                        await checkpoint()  # each page is to be taken before the next
        except Exception as error:  # noqa: BLE001 - raised where somebody follows, and nowhere else
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
