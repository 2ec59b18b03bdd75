"""A tool's thread may outlive the turn that called it. The attempt is then still treated as running.

A turn is one message to an agent and all the work up to its answer. An attempt is one execution of a tool call. Python
cannot stop a thread from outside. So a turn that stops waiting for a thread, after a timeout or a cancellation, calls
`ThreadCall.leave`. When the thread ends later, it hands over its result, which is not lost.

The threads and tasks of an attempt refer to its `Mark`, and its subprocesses are listed here. So this process knows
when the last of them has ended. Threads are daemons: they do not keep the process from ending.
"""

import math
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from inspect import isawaitable, iscoroutine
from threading import Lock, Thread
from typing import Any
from weakref import WeakValueDictionary, finalize

import anyio
from anyio import NoEventLoopError, RunFinishedError, current_effective_deadline, from_thread, get_cancelled_exc_class
from anyio.lowlevel import RunVar, cancel_shielded_checkpoint, current_token
from msgspec import Struct

THREADS = 100
"""Greatest number of tool threads in one event loop. Before its attempt is recorded, a further call waits for one."""
STALE_S = 0.25
"""Greatest number of seconds between the check that this process may write the run and the call of a tool.

After a longer time the tool is not called: this process may have been suspended, and another may have taken over."""
NO_LOOP = (NoEventLoopError, RunFinishedError, RuntimeError, CancelledError)
"""Exceptions that are raised in a thread whose event loop has ended."""
ThreadFunction = Callable[[], Any]
"""A function that is called in a thread."""


class Returned(Struct, frozen=True):
    """The return value of a function, or the exception that it raised."""

    value: Any = None
    failure: BaseException | None = None


class Mark:
    """An object that exists as long as an attempt is at work: its threads, tasks and calls refer to it."""

    __slots__ = ("__weakref__",)


# Global, because they are facts about this process: attempts of all records, however often a record is opened.
_STARTED_BY: ContextVar[Mark | None] = ContextVar("gesta_started_by", default=None)
_AT_WORK: WeakValueDictionary[str, Mark] = WeakValueDictionary()
_SUBPROCESSES: dict[str, list[subprocess.Popen[Any]]] = {}
_LISTING = Lock()  # held while that list of subprocesses changes
_SLOTS: RunVar[anyio.CapacityLimiter] = RunVar("gesta_threads")


def mark_of(attempt: str, keep: Callable[[], Callable[[], None]]) -> Mark:
    """Return a new mark for an attempt. The attempt is treated as running until nothing refers to the mark any more.

    Args:
        attempt: name of the attempt, unique in this process.
        keep: shows other processes that this process runs, and returns a function that ends this; see `Store.keep`.
            That function is called when the mark is freed.
    """
    mark = _AT_WORK[attempt] = Mark()
    finalize(mark, keep()).atexit = False
    return mark


def unmarked(start: Callable[..., object], *args: Any) -> None:
    """Call `start` so that the threads and tasks which it starts do not belong to the present attempt.

    An example is a connection that later attempts use too. So the attempt can end before the connection is closed.
    """

    def begin() -> None:
        _STARTED_BY.set(None)
        start(*args)

    copy_context().run(begin)


class NotBegun(Exception):
    """Raised when a tool would be called too late, because another process may have continued the run."""


def unless_stale(checked: float, call: ThreadFunction) -> Any:
    """Call a function and return its value, unless the right to write the run was checked too long ago.

    Raises NotBegun if the check was more than `STALE_S` seconds ago.

    Args:
        checked: time of the check, by `time.monotonic`.
    """
    if time.monotonic() - checked > STALE_S:
        raise NotBegun
    return call()


def works(attempt: str) -> bool:
    """Return whether a thread, task or subprocess that an attempt started may still be running."""
    return attempt in _AT_WORK or runs_subprocess(attempt)


async def outlives(attempt: str) -> bool:
    """Return whether an attempt that was just broken off still works; see `works`.

    First the callbacks run by which anyio has cancelled it: after a shield in its clean-up, they carry its context.
    """
    await cancel_shielded_checkpoint()
    return works(attempt)


def runs_subprocess(attempt: str) -> bool:
    """Return whether a subprocess that an attempt started by `Context.popen` still runs."""
    if attempt not in _SUBPROCESSES:
        return False
    with _LISTING:
        _forget_ended()
        return attempt in _SUBPROCESSES


def _forget_ended() -> None:
    """Remove the subprocesses that have ended, and read their exit codes. Until then each of them is a zombie."""
    for attempt, started in list(_SUBPROCESSES.items()):
        _SUBPROCESSES[attempt] = left = [each for each in started if each.poll() is None]
        if not left:
            del _SUBPROCESSES[attempt]


def popen(attempt: str, descriptor: int | None, *args: Any, **options: Any) -> "subprocess.Popen[Any]":
    """Start a subprocess of an attempt, and return it. While it runs, other processes see this process as running.

    Args:
        attempt: name of the attempt, unique in this process.
        descriptor: file descriptor that the subprocess inherits, see `Store.descriptor`; `None` if the store has none.
    """
    if descriptor is not None:
        options["pass_fds"] = (*options.get("pass_fds", ()), descriptor)
    started: subprocess.Popen[Any] = subprocess.Popen(*args, **options)  # noqa: S603 - what the tool's author wrote
    with _LISTING:
        _forget_ended()
        _SUBPROCESSES.setdefault(attempt, []).append(started)
    return started


class ThreadSlot:
    """Permission to start one thread in this event loop, which allows `THREADS` at a time."""

    def __init__(self) -> None:
        try:
            self._slots = _SLOTS.get()
        except LookupError:
            self._slots = anyio.CapacityLimiter(THREADS)
            _SLOTS.set(self._slots)
        self._held = False

    def free(self) -> bool:
        """Reserve the slot if a thread may be started now. Return whether the slot was reserved."""
        try:
            self._slots.acquire_on_behalf_of_nowait(self)
        except anyio.WouldBlock:
            return False
        self._held = True
        return True

    async def wait(self) -> None:
        """Wait until a thread may be started, and reserve the slot. Slots are given in the order of the calls."""
        await self._slots.acquire_on_behalf_of(self)
        self._held = True

    def leave(self) -> None:
        """Release the slot. A second call of this method does nothing."""
        if self._held:
            self._held = False
            self._slots.release_on_behalf_of(self)


class ThreadCall:
    """A call of a function in a thread. The thread may go on after its caller has stopped waiting.

    Args:
        late: called in the thread with the result, if nobody waits for it when the function ends.
        slot: permission to start the thread; `None` for a thread that is not counted.
    """

    def __init__(self, late: Callable[[Returned], None], slot: ThreadSlot | None) -> None:
        self._late = late
        self._slot = slot
        self.begun = False
        self._lock = Lock()
        self.left = False
        """Whether the caller has stopped waiting."""
        self._returned: Returned | None = None

    async def carry_out(self, call: ThreadFunction) -> Any:
        """Call the function in a thread of its own, and return its result. Raises the exceptions of the function.

        The slot is released when the thread has ended, even if nobody waits for the result any more.
        """
        done, token, context = anyio.Event(), current_token(), [outside_of_loops()]
        mark = [_STARTED_BY.get()]
        self.begun = True

        def ended() -> None:
            done.set()
            if self._slot is not None:
                self._slot.leave()

        def work() -> None:
            self._note(context.pop().run, call)  # popped, so that the context does not keep the mark alive
            mark.clear()  # only after a late result was handed over: until then the attempt is not over
            with suppress(*NO_LOOP):
                from_thread.run_sync(ended, token=token)

        Thread(target=work, name="gesta tool", daemon=True).start()
        await done.wait()
        assert self._returned is not None
        if self._returned.failure is not None:
            raise self._returned.failure
        return self._returned.value

    def leave(self) -> Returned | None:
        """Stop waiting. Return the result of the function, or `None` if it still runs.

        If it still runs, its result is passed to `late` when it ends. An awaitable is not a result: its end is unknown.
        """
        with self._lock:
            self.left, returned = True, self._returned
            return None if returned is not None and isawaitable(returned.value) else returned

    def gave(self, failure: BaseException) -> bool:
        """Return whether this exception object was raised by the function in the thread."""
        return self._returned is not None and self._returned.failure is failure

    def _note(self, run: Callable[[ThreadFunction], Any], call: ThreadFunction) -> None:
        try:
            returned = Returned(run(call))
        except BaseException as failure:  # noqa: BLE001 - raised again by `carry_out`, or passed to `late`
            returned = Returned(failure=failure)
        del run
        with self._lock:
            self._returned = returned
            left = self.left
        if left:
            self._late(returned)


async def caught(work: Awaitable[Any], marks: Sequence[Mark | None] = ()) -> Returned:
    """Await a tool's code, and return its value or the exception that it raised.

    A cancellation of this task is raised and not returned. Exceptions such as GeneratorExit are returned, because they
    would break the task group around the call.

    Args:
        marks: a list with one item, the mark of the attempt. The caller empties the list when the attempt is over (see
            `Mark`). Threads and tasks that the tool's code starts refer to this mark. If the list is empty, they refer
            to the mark of the code that called this function.
    """
    before = _STARTED_BY.set(marks[0] if marks else _STARTED_BY.get())
    try:
        return Returned(await work)
    except BaseException as failure:
        if _meant(failure):
            raise
        return Returned(failure=failure)
    finally:
        _STARTED_BY.reset(before)


def _meant(failure: BaseException) -> bool:
    """Return whether an exception, such as a cancellation or Ctrl-C, is meant for this task and not for the tool."""
    if isinstance(failure, BaseExceptionGroup):
        return any(map(_meant, failure.exceptions))
    if isinstance(failure, get_cancelled_exc_class()):
        return not strayed(failure)
    return isinstance(failure, KeyboardInterrupt)


def unawaited(value: Any) -> bool:
    """Return whether a value is an awaitable, which nobody will await. A coroutine is closed, so that it never runs."""
    if iscoroutine(value):
        value.close()
    return isawaitable(value)


def outside_of_loops() -> Context:
    """Return a copy of the context variables for a thread, in which libraries find no running event loop."""
    context, sniffio = copy_context(), sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context


def strayed(stop: BaseException) -> bool:
    """Return whether a cancellation came from a future that a tool awaited. If so, this task itself is not cancelled.

    This can happen only with asyncio.
    """
    if not isinstance(stop, get_cancelled_exc_class()) or current_effective_deadline() == -math.inf:
        return False
    loop = sys.modules.get("asyncio")
    task = loop.current_task() if loop is not None else None
    return task is not None and task.cancelling() == 0
