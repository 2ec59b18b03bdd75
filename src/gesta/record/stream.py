"""A stream yields the events of one turn as they come, and has its outcome afterwards.

The turn goes on in a task of the record, so who listens does not slow it down. A reader that leaves early ends nothing,
unless the agent's policy says so; a turn that fails ends its own stream, and no other.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Generic

import anyio
from anyio.abc import TaskGroup

from gesta.errors import GestaError
from gesta.events import Event, Listener, Outcome
from gesta.function_tool.output import T
from gesta.perform.threads import strayed

STRAY_CANCELLATION = (
    "The turn was broken off by a cancellation that nobody asked for: a model or a program awaited something that was "
    "cancelled elsewhere. It is still open: send the message again under its key, or resume the run."
)


class Stream(Generic[T]):
    """The events of one turn, as they come: `async for event in record.stream(...)`."""

    def __init__(
        self,
        tasks: TaskGroup | None,
        work: Callable[[Listener], Awaitable[Outcome[T]]],
        *,
        stops: bool = False,
    ) -> None:
        """Prepare the stream of a turn.

        Args:
            work: takes the turn.
            stops: whether a reader that leaves early stops the turn, as if the program stopped waiting for it.
        """
        assert tasks is not None, "stream from a record that gesta.open(...) opened"
        self._tasks, self._work, self._stops = tasks, work, stops
        self._send, self._receive = anyio.create_memory_object_stream[Event](float("inf"))
        self._scope = anyio.CancelScope()
        self._begun = False
        self._failure: BaseException | None = None
        self.outcome: Outcome[T] | None = None
        """How the turn ended; `None` while it goes on, and of one that was broken off."""
        self.ended = anyio.Event()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Begin the turn, and yield its events.

        Raises:
            GestaError: the stream was begun before, or the record was closed while the turn was open.
            BaseException: whatever ended the turn without an outcome.
        """
        if self._begun:
            raise GestaError("This stream was begun before. Call record.stream(...) again to send a message again.")
        self._begun = True
        self._tasks.start_soon(self._drive)
        try:
            with self._receive:
                async for event in self._receive:
                    yield event
        finally:
            if self._stops and self.outcome is None:
                self._scope.cancel()
        if self._failure is not None:
            raise self._failure

    async def _drive(self) -> None:
        with self._send, self._scope:
            try:
                self.outcome = await self._work(self._hear)
            except BaseException as failure:
                if not breaks_off(failure):  # raised where the events are read, and nowhere else
                    stray = isinstance(failure, anyio.get_cancelled_exc_class())
                    self._failure = GestaError(STRAY_CANCELLATION) if stray else failure
                    return
                self._failure = GestaError(
                    "The turn was broken off, for its record was closed. It is still open: send the message again "
                    "under its key, or resume the run."
                )
                raise
            finally:
                self.ended.set()

    def _hear(self, event: Event) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody listens any more
            self._send.send_nowait(event)


def breaks_off(left: BaseException) -> bool:
    """Return whether an exception is a cancellation or Ctrl-C, and not a failure."""
    if isinstance(left, BaseExceptionGroup):
        return any(map(breaks_off, left.exceptions))
    cancelled = isinstance(left, anyio.get_cancelled_exc_class()) and not strayed(left)
    return cancelled or isinstance(left, KeyboardInterrupt)
