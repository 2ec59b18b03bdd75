"""A stream yields the events of one turn as they come. Afterwards it has the outcome of the turn.

A turn is one message to an agent and all the work up to its answer. The turn runs in a background task of the record,
so a slow reader does not slow the turn down. If the reader leaves early, the turn continues, unless the agent's policy
says `when_left="stop"`. A turn that fails ends only its own stream.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Generic

import anyio
from anyio.abc import TaskGroup

from gesta.errors import GestaError
from gesta.events import LOGGER, Event, Listener, Outcome
from gesta.function_tool.output import T
from gesta.perform.threads import strayed
from gesta.record.followers import Follower, FollowerTooSlow

STRAY_CANCELLATION = (
    "The turn was broken off by a cancellation that nobody asked for: a model or a program awaited something that was "
    "cancelled elsewhere. It is still open: send the message again under its key, or resume the run."
)
CLOSED_TURN = (
    "The turn was broken off, for its record was closed. It is still open: send the message again under its key, or "
    "resume the run."
)


class Stream(Generic[T]):
    """The events of one turn as they come: `async for event in record.stream(...)`."""

    def __init__(
        self,
        tasks: TaskGroup | None,
        work: Callable[[], Awaitable[Outcome[T]]],
        follow: Callable[[], Awaitable[Follower]],
        *,
        stops: bool = False,
    ) -> None:
        """Prepare the stream of a turn. The turn begins when the stream is read.

        Args:
            tasks: task group of the opened record, in which the turn runs.
            work: runs the turn and returns its outcome.
            follow: returns the follower that yields the events of the turn.
            stops: whether the turn is stopped if the reader leaves before the last event.
        """
        assert tasks is not None, "stream from a record that gesta.open(...) opened"
        self._tasks, self._work, self._follow, self._stops = tasks, work, follow, stops
        self._scope = anyio.CancelScope()
        self._begun = False
        self._follower: Follower | None = None
        self._failure: BaseException | None = None
        self.outcome: Outcome[T] | None = None
        """The outcome of the turn; `None` until the turn has ended or waits, and if it was interrupted."""
        self.ended = anyio.Event()
        """Set once the turn has ended, waits, or was interrupted."""

    @property
    def at_work(self) -> bool:
        """Whether the turn was begun by this stream, and goes on, also if nobody reads the stream any more."""
        return self._begun and not self.ended.is_set()

    async def ready(self) -> None:
        """Prepare to read the stream, so that a refused message is known before. The message is not sent yet.

        Raises OtherMessage if the key of the message was used for another message.
        """
        self._follower = await self._follow()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Begin the turn, and yield its events. If the turn was begun before, its events on record come first.

        Raises:
            GestaError: the stream was read before, or the record was closed while the turn was open.
            FollowerTooSlow: too many entries and words waited to be read; the turn continues.
            BaseException: the exception that ended the turn without an outcome.
        """
        if self._begun:
            raise GestaError("This stream was begun before. Call record.stream(...) again to send a message again.")
        self._begun = True
        follower = self._follower or await self._follow()
        self._tasks.start_soon(self._drive, follower)
        try:
            async with aclosing(follower.events(self._tasks)) as events:
                async for event in events:
                    yield event
        except FollowerTooSlow:
            raise
        except GestaError:
            await self.ended.wait()
            if self._failure is None:
                raise
        else:
            await self.ended.wait()
        finally:
            if self._stops and self.outcome is None:
                self._scope.cancel()
        if self._failure is not None:
            raise self._failure

    async def _drive(self, follower: Follower) -> None:
        with self._scope:
            try:
                self.outcome = await self._work()
            except BaseException as failure:
                if not breaks_off(failure):  # the reader of the events raises it
                    stray = isinstance(failure, anyio.get_cancelled_exc_class())
                    self._failure = GestaError(STRAY_CANCELLATION) if stray else failure
                    return
                self._failure = GestaError(CLOSED_TURN)
                raise
            finally:
                self.ended.set()
                follower.finish()


async def listened(
    tasks: TaskGroup | None, follower: Follower, work: Callable[[], Awaitable[Outcome[T]]], listener: Listener
) -> Outcome[T]:
    """Await a turn and return its outcome. Meanwhile, call a listener with each of its events.

    If the listener raises, the error is logged, the listener is not called again, and the turn continues.

    Args:
        tasks: task group of the opened record; `None` to watch the record in a task group of this call.
        follower: yields the events of the turn.
        work: runs the turn and returns its outcome.
    """
    failure: BaseException | None = None
    outcome: Outcome[T] | None = None

    async def tell() -> None:
        try:
            await hear()
        except GestaError as unread:  # the turn continues without it
            LOGGER.warning("A listener hears no more: the record cannot be read.", exc_info=unread)

    async def hear() -> None:
        async with aclosing(follower.events(tasks or own)) as events:
            async for event in events:
                try:
                    listener(event)
                except BaseException as raised:  # noqa: BLE001 - the listener's own failure
                    LOGGER.warning("A listener of run %s raised, and hears no more of it.", event.run, exc_info=raised)
                    return

    async with anyio.create_task_group() as own:
        own.start_soon(tell)
        try:
            outcome = await work()
        except BaseException as raised:  # noqa: BLE001 - raised below, outside of the group, as itself
            failure = raised
            if breaks_off(raised):
                own.cancel_scope.cancel()
        follower.finish()
    if failure is not None:
        raise failure
    assert outcome is not None
    return outcome


async def followed(follower: Follower, listener: Listener) -> None:
    """Call a listener with the events of a follower until there are no more. Raises what the listener raises.

    This function needs no task group of an opened record, so it can run in an event loop of its own.
    """
    failure: BaseException | None = None
    async with anyio.create_task_group() as own:
        try:
            async with aclosing(follower.events(own)) as events:
                async for event in events:
                    listener(event)
        except BaseException as raised:  # noqa: BLE001 - raised below, outside of the group, as itself
            failure = raised
        own.cancel_scope.cancel()
    if failure is not None:
        raise failure


def breaks_off(left: BaseException) -> bool:
    """Return whether an exception is a cancellation of this task, or Ctrl-C, and not a failure of the turn."""
    if isinstance(left, BaseExceptionGroup):
        return any(map(breaks_off, left.exceptions))
    cancelled = isinstance(left, anyio.get_cancelled_exc_class()) and not strayed(left)
    return cancelled or isinstance(left, KeyboardInterrupt)
