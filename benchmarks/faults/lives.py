"""A process of a case, as its parent sees it: it is forked, meets faults from outside, and is waited for."""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.faults.agents import Scene
from benchmarks.faults.driving import Driver, witness_of
from benchmarks.faults.striking import Strike, Striker
from benchmarks.faults.witness import Line

LIFE_S = 45.0
"""Seconds after which a process is killed and counts as stuck."""


class Life:
    """One forked process of a case."""

    def __init__(self, work: Callable[[tuple[int, int]], None]) -> None:
        """Fork the process, and run `work` in it.

        Args:
            work: gets the two ends of pipes by which the process asks its parent for faults and waits for them.
        """
        up, down = os.pipe(), os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if not self.process:
            os.close(up[0])
            os.close(down[1])
            _be(lambda: work((down[0], up[1])))
        os.close(up[1])
        os.close(down[0])
        self._asks, self._answers = up[0], down[1]
        self.code: int | None = None
        self.struck = 0
        """Number of faults that the process asked for."""

    def follow(self, strike: Callable[[], None] | None = None, kill_after_s: float | None = None) -> int:
        """Wait until the process ends, and call `strike` whenever it asks for a fault.

        Return its exit code, negative for a signal.

        Args:
            kill_after_s: seconds after which the process is killed.
        """
        began = time.monotonic()
        while True:
            left = LIFE_S - (time.monotonic() - began)
            if kill_after_s is not None:
                left = min(left, kill_after_s - (time.monotonic() - began))
            ready, _, _ = select.select([self._asks], [], [], max(left, 0))
            if not ready:
                os.kill(self.process, signal.SIGKILL)
            elif os.read(self._asks, 1):
                self.struck += 1
                if strike is not None:
                    strike()
                with suppress(BrokenPipeError):  # the fault killed the process
                    os.write(self._answers, b".")
                continue
            return self.wait()

    def stopped(self) -> bool:
        """Wait until the process stops itself or ends. Return whether it stopped."""
        _, status = os.waitpid(self.process, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        self._ended(status)
        return False

    def wake(self) -> None:
        """Continue the stopped process."""
        os.kill(self.process, signal.SIGCONT)

    def wait(self) -> int:
        """Wait until the process ends, and return its exit code."""
        if self.code is None:
            self._ended(os.waitpid(self.process, 0)[1])
        assert self.code is not None
        return self.code

    def _ended(self, status: int) -> None:
        self.code = os.waitstatus_to_exitcode(status)
        os.close(self._asks)
        os.close(self._answers)


SAYS: list[Path] = []
"""Files that get the output of the processes of a case; the last one is used. The worker sets it."""


def _be(work: Callable[[], None]) -> None:
    """Run `work` as the body of a forked process, and end the process."""
    code = 1
    try:
        if SAYS:
            os.dup2(os.open(SAYS[-1], os.O_APPEND | os.O_CREAT | os.O_WRONLY), 2)
        os.dup2(2, 1)
        work()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 - a child of a fork must never go on as its parent
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def begin(scene: Scene, strikes: Sequence[Strike] = (), **options: Any) -> Life:
    """Start a process that drives the sessions of a case."""

    def work(pipe: tuple[int, int]) -> None:
        Driver(scene, Striker(witness_of(scene), strikes, pipe), **options).live()

    return Life(work)


def done(work: Callable[[], None]) -> int:
    """Run `work` in a forked process, and return its exit code."""
    return Life(lambda _: work()).follow()


def kill_note(scene: Scene, fault: str, place: str = "at any instruction") -> None:
    """Note in the witness file that a process was killed from outside."""
    witness_of(scene).tell(Line(what="strike", fault=fault, place=place))
