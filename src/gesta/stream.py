"""A stream gives the events of one turn as they come, and its outcome afterwards.

The turn goes on in a task of the record, so who listens neither slows it down nor, by leaving early, breaks it off.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import anyio
from anyio.abc import TaskGroup

from gesta.errors import GestaError
from gesta.event import Event, Listener
from gesta.outcome import Outcome


class Stream:
    """The events of one turn, as they come: `async for event in record.stream(...)`."""

    def __init__(self, tasks: TaskGroup | None, work: Callable[[Listener], Awaitable[Outcome]]) -> None:
        assert tasks is not None, "stream from a record that gesta.open(...) opened"
        self._tasks, self._work = tasks, work
        self._send, self._receive = anyio.create_memory_object_stream[Event](float("inf"))
        self._begun = False
        self._failure: BaseException | None = None
        self.outcome: Outcome | None = None
        """How the turn ended; none while it goes on."""
        self.ended = anyio.Event()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Begin the turn, and give its events. What ends the turn with an exception is raised here."""
        if self._begun:
            raise GestaError("This stream was begun before. Call record.stream(...) again to send a message again.")
        self._begun = True
        self._tasks.start_soon(self._drive)
        with self._receive:
            async for event in self._receive:
                yield event
        if self._failure is not None:
            raise self._failure

    async def _drive(self) -> None:
        with self._send:
            try:
                self.outcome = await self._work(self._hear)
            except Exception as failure:  # noqa: BLE001 - it is raised again where the events are read
                self._failure = failure
            finally:
                self.ended.set()

    def _hear(self, event: Event) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody listens any more
            self._send.send_nowait(event)
