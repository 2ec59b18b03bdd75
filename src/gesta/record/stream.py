"""A stream yields the events of one turn as they come, and has its outcome afterwards.

The turn runs in a task of the record, so a reader does not slow it down. A turn continues if its reader leaves early,
unless the agent's policy says otherwise. A turn that fails ends only its own stream.
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


class Stream(Generic[T]):
    """The events of one turn, as they come: `async for event in record.stream(...)`."""

    def __init__(
        self,
        tasks: TaskGroup | None,
        work: Callable[[], Awaitable[Outcome[T]]],
        follow: Callable[[], Awaitable[Follower]],
        *,
        stops: bool = False,
    ) -> None:
        """Prepare the stream of a turn.

        Args:
            work: runs the turn.
            follow: makes the follower of the turn.
            stops: whether a reader that leaves early stops the turn, as if the program stopped waiting for it.
        """
        assert tasks is not None, "stream from a record that gesta.open(...) opened"
        self._tasks, self._work, self._follow, self._stops = tasks, work, follow, stops
        self._scope = anyio.CancelScope()
        self._begun = False
        self._failure: BaseException | None = None
        self.outcome: Outcome[T] | None = None
        """The outcome of the turn; `None` while it goes on, and if it was broken off."""
        self.ended = anyio.Event()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Begin the turn, and yield its events. Events that are on record already come first.

        Raises:
            GestaError: the stream was begun before, or the record was closed while the turn was open.
            FollowerTooSlow: too many entries and words waited to be read; the turn continues.
            BaseException: whatever ended the turn without an outcome.
        """
        if self._begun:
            raise GestaError("This stream was begun before. Call record.stream(...) again to send a message again.")
        self._begun = True
        follower = await self._follow()
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
                follower.finish()


async def listened(
    tasks: TaskGroup | None, follower: Follower, work: Callable[[], Awaitable[Outcome[T]]], listener: Listener
) -> Outcome[T]:
    """Await a turn, and call a listener with its events.

    If the listener raises, the error is logged and the turn continues.
    """
    failure: BaseException | None = None
    outcome: Outcome[T] | None = None

    async def tell() -> None:
        try:
            await hear()
        except GestaError as unread:  # the turn does not depend on it
            LOGGER.warning("A listener hears no more: the record cannot be read.", exc_info=unread)

    async def hear() -> None:
        async with aclosing(follower.events(tasks or own)) as events:
            async for event in events:
                try:
                    listener(event)
                except BaseException as raised:  # noqa: BLE001 - it is the listener's own
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
    """Call a listener with the events of a follower until there are no more. For an event loop of its own."""
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
    """Return whether an exception is a cancellation or Ctrl-C; any other exception is a failure."""
    if isinstance(left, BaseExceptionGroup):
        return any(map(breaks_off, left.exceptions))
    cancelled = isinstance(left, anyio.get_cancelled_exc_class()) and not strayed(left)
    return cancelled or isinstance(left, KeyboardInterrupt)
