"""Holds the record and the session in which a chat agent's runs are stored. By default the record is new, in memory.

A record is the store of all runs, and a run the stored history of one agent. A session is a group of runs. No other
module of this folder opens a record, so no other module imports `gesta.address`.
"""

import os
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio import from_thread

from gesta.address import bind, drive, inline_store
from gesta.codec.rows import encode_content
from gesta.entry import utc_text
from gesta.errors import GestaError
from gesta.kinds import SignalContent
from gesta.model.request import Model
from gesta.record.record import Record
from gesta.store import Letter, Store

T = TypeVar("T")


def _close(store: Store) -> None:
    """Close a store. Called when its record is garbage-collected, or when the program ends."""
    drive(store.close())


class Home:
    """The record and the session that contain the runs of a chat agent."""

    def __init__(self, record: Record | str | None = None, session: str = "") -> None:
        self._given = record
        self._record: Record | None = record if isinstance(record, Record) else None
        self._models: dict[str, Model] = {}
        self.session = session or f"s-{os.urandom(4).hex()}"

    @property
    def record(self) -> Record:
        """The record. It is opened at its first use."""
        if self._record is None:
            store = inline_store(self._given if isinstance(self._given, str) else ":memory:")
            self._record = Record(store, partial(bind, models=self._models))
            weakref.finalize(self._record, _close, store)
        return self._record

    async def rest(self) -> None:
        """Close the connections to model providers, because they cannot be used in another event loop."""
        models, self._models = list(self._models.values()), self._models
        self._models.clear()
        for made in models:
            await getattr(made, "aclose", anyio.lowlevel.checkpoint)()

    def end_now(self, work: Coroutine[Any, Any, T], twin: str) -> T:
        """Run a coroutine that awaits only operations of the record, and return its result.

        While an event loop is running, this works only if the home opened the record itself. If the program opened the
        record, GestaError is raised. Its message says to use the asynchronous method `twin` instead.
        """
        return self.wait_for(lambda: work, twin) if isinstance(self._given, Record) else drive(work)

    def wait_for(self, work: Callable[[], Awaitable[T]], twin: str, token: Any = None) -> T:
        """Run asynchronous work, wait for it, and return its result.

        Args:
            twin: name of the asynchronous method that does the same, for the error message.
            token: token of the event loop in which to run the work, if this is one of its worker threads; `None` for a
                new event loop.

        Raises:
            GestaError: an event loop is running in this thread, so waiting would block it.
        """
        try:
            anyio.get_current_task()
        except anyio.NoEventLoopError:
            pass
        else:
            raise GestaError(f"An event loop is running here, so this call would block it. Write: await {twin}(...).")

        async def main() -> T:
            try:
                return await work()
            finally:
                if token is None:
                    await self.rest()

        done: T = anyio.run(main) if token is None else from_thread.run(main, token=token)
        return done


async def kill_session(record: Record, session_id: str, task: str | None = None) -> None:
    """Cancel all open turns in a session, or only those of one task and of its child runs."""
    rows, ended = await record.store.runs(session_id), set[str]()
    for row in rows:  # a parent run comes before its child runs
        if task is not None and not (row.parent_run in ended or (row.parent_run is None and row.name == task)):
            continue
        ended.add(row.run)
        state = await record.state(row.run)
        if state.open and state.turn is not None:
            content = SignalContent(name="cancel", by="kill", of=state.turn.begin)
            key = f"kill-{state.turn.begin}"
            at = utc_text(record.turns.clock())
            await record.store.send(Letter(row.run, key, encode_content(content), at))
