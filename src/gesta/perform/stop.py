"""When the caller of a turn stops waiting, nothing new starts, and running tools with effects may finish.

A turn is one message to an agent and all the work up to its answer. A child run is the run of another agent that a turn
calls. The turn runs in a task of its own, which a cancellation of its caller does not reach. The caller asks the turn
to stop, and waits until it has stopped. Work without effects is cancelled at once. A tool with effects may run for some
more seconds (the grace), so that its result is recorded. The turn can be resumed later.
"""

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TypeVar

import anyio

T = TypeVar("T")
GRACE_S = 10.0
"""Default number of seconds for which a tool with effects may go on after its turn was asked to stop."""


class TurnLeft(BaseException):
    """Raised in a turn that was asked to stop. This exception is not an error; do not catch it."""


class Stop:
    """A way to ask a turn to stop. It knows the cancel scopes of the turn, and the turns of its child runs.

    Args:
        grace_s: seconds for which tools with effects may go on.
        above: for a child run, the `Stop` of the calling turn.
    """

    def __init__(self, grace_s: float = GRACE_S, above: "Stop | None" = None) -> None:
        self.grace_s = grace_s
        self.asked = False
        """Whether the turn was asked to stop, so that nothing new may start."""
        self._now = False
        self._at_once: list[anyio.CancelScope] = []  # lists, because an empty set takes four times the memory
        self._graced: list[anyio.CancelScope] = []
        self.below: list[Stop] = []
        self._spared: list[tuple[anyio.CancelScope, Stop]] = []
        self.above = above
        self.until = math.inf  # when the grace ends, by `time.monotonic`
        self._ahead_s = math.nan
        if above is not None:
            above.join(self)

    def join(self, below: "Stop") -> None:
        """Add the `Stop` of a child run's turn, which is then asked to stop whenever this turn is."""
        self.below.append(below)
        if self.asked:
            below.ask(now=self._now)

    def part(self, below: "Stop") -> None:
        """Remove the `Stop` of a child run's turn. If it was not added, do nothing."""
        if below in self.below:
            self.below.remove(below)

    def spared(self) -> "Stop":
        """Return a `Stop` for the child runs of a tool with effects: they may go on as long as the tool may.

        The `Stop` has to be passed to `enter`, with the cancel scope of the tool. When the tool is cancelled, its child
        runs are asked to stop because they were called in that scope.
        """
        below = Stop(self.grace_s)
        below.above = self
        return below

    def ask(self, *, now: bool = False) -> None:
        """Ask this turn and the turns that it waits for to stop.

        Args:
            now: whether tools with effects are cancelled at once too, without the grace.
        """
        self.asked, self._now = True, self._now or now
        self.until = min(self.until, time.monotonic() + self.grace_s)
        for scope in self._at_once:
            scope.cancel()
        for scope in self._graced:
            self._bound(scope)
        for below in list(self.below):
            below.ask(now=now)
        for _, below in list(self._spared) if now else ():
            below.ask(now=True)

    def done(self) -> None:
        """Remove this turn from the `Stop` of its calling turn, because this turn has ended."""
        if self.above is not None:
            self.above.part(self)

    def check(self) -> None:
        """Raise TurnLeft if the turn was asked to stop."""
        if self.asked:
            raise TurnLeft

    def breaking(self) -> "Breaking":
        """Return a context manager whose block is cancelled when the turn is asked to stop."""
        return Breaking(self)

    def enter(self, scope: anyio.CancelScope, *, graced: bool, below: "Stop | None" = None) -> None:
        """Add a cancel scope of the turn, to be cancelled when the turn is asked to stop.

        Args:
            scope: the cancel scope.
            graced: whether the scope is cancelled only after the grace, as for a tool with effects.
            below: the `Stop` that `spared` returned, for a tool with effects that may call agents.
        """
        if below is not None:
            self._spared.append((scope, below))
        (self._graced if graced else self._at_once).append(scope)
        if self.asked:
            self._bound(scope) if graced else scope.cancel()

    def leave(self, scope: anyio.CancelScope) -> None:
        """Remove a cancel scope that `enter` added, because its tool has ended or was cancelled."""
        for each in self._spared:
            if each[0] is scope:
                self._spared.remove(each)
                if each[1].below:  # a task or thread that the tool left behind still waits for a child run
                    self.join(each[1])
                break
        if scope in self._at_once:
            self._at_once.remove(scope)
        elif scope in self._graced:
            self._graced.remove(scope)

    def now(self) -> float:
        """Return the time of the event loop's clock, in seconds, for deadlines."""
        now = time.monotonic()
        if self._ahead_s != self._ahead_s:
            self._ahead_s = anyio.current_time() - now
        return now + self._ahead_s

    async def wait(self, seconds: float) -> None:
        """Sleep for some seconds. Raises TurnLeft at once if the turn is asked to stop."""
        with self.breaking():
            await anyio.sleep(seconds)
        self.check()

    @asynccontextmanager
    async def holding(self, lock: anyio.Lock) -> AsyncIterator[None]:
        """Hold a lock inside the block. Raises TurnLeft if the turn is asked to stop before the lock is acquired."""
        held = False
        try:
            with self.breaking():
                await lock.acquire()
                held = True
            self.check()
            yield
        finally:
            if held:
                lock.release()

    def _bound(self, scope: anyio.CancelScope) -> None:
        until, above = self.until, self.above
        while above is not None:
            until, above = min(until, above.until), above.above
        left = until - time.monotonic()
        if self._now or left <= 0:
            scope.cancel()
        else:
            scope.deadline = min(scope.deadline, self.now() + left)


class Breaking:
    """Context manager whose block is cancelled when its turn is asked to stop."""

    __slots__ = ("_scope", "_stop")

    def __init__(self, stop: Stop) -> None:
        self._stop, self._scope = stop, anyio.CancelScope()

    def __enter__(self) -> anyio.CancelScope:
        """Enter the block, and return its cancel scope."""
        scope = self._scope.__enter__()
        self._stop.enter(scope, graced=False)
        return scope

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Leave the block. If the block was cancelled because the turn was asked to stop, no cancellation is raised."""
        self._stop.leave(self._scope)
        return bool(self._scope.__exit__(kind, raised, trace))


async def attended(stop: Stop, work: Callable[[], Awaitable[T]]) -> T:
    """Await work in a task of its own, and return its value.

    If the caller is cancelled, the work is asked to stop, and the caller waits for it. A second cancellation of the
    caller cancels the work at once, without the grace.
    """
    given: list[T] = []
    failures: list[BaseException] = []

    async def carry() -> None:
        with anyio.CancelScope(shield=True):
            try:
                given.append(await work())
            except BaseException as failure:  # noqa: BLE001 - raised below, in the caller's task
                failures.append(failure)
            finally:
                stop.done()

    async with anyio.create_task_group() as group:
        carried = group.start_soon(carry)
        try:
            await carried.wait()
        except anyio.get_cancelled_exc_class():
            stop.ask()
            try:
                with anyio.CancelScope(shield=True):
                    await carried.wait()
            except anyio.get_cancelled_exc_class():  # cancellations by asyncio itself pass through a shield
                stop.ask(now=True)
            raise
    if failures:
        raise failures[0]
    return given[0]
