"""A workflow does each step once, in a span (named part of a run) of its own.

The program of a workflow is an async function that runs a turn in place of a model. A child run is the run of another
agent that a step calls. A step that is on record under its name is not done again. Several steps may run at once. If a
step has to wait for a person, a time or another run, all other steps first end or have to wait too, so none is
interrupted. Then the program is stopped, and its turn stays open. When the turn is resumed, the program starts again,
and reads the results of finished steps from the record.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from gesta.agent import Agent
from gesta.decide.budget import share
from gesta.decide.move import Finish, decide_step
from gesta.decide.waiting import Waiting
from gesta.entry import Cause, Entry
from gesta.errors import AgentError, GestaError, OtherProgram
from gesta.kinds import BeginContent, EndContent
from gesta.log.journal import Log
from gesta.loop import take_in
from gesta.perform.execution import LiveRun
from gesta.state.steps import WorkflowStep

Ended = tuple[EndContent, tuple[Cause, ...]]
"""The `end` of a step, and the causes of this entry."""


class Suspended(BaseException):
    """Raised in a program whose turn has to wait, to stop the program. It is not an error; do not catch it."""


class Stopped(BaseException):
    """Raised in a program whose turn has to end, to stop the program; `finish` says how the turn ends."""

    def __init__(self, finish: Finish) -> None:
        self.finish = finish


def check_name(name: object) -> None:
    """Raise AgentError if the name of a step or note is not a text: nothing would be found under it again."""
    if not isinstance(name, str):
        raise AgentError(f"The name of a step is {name!r:.60}, expected a text.")


class ProgramTurn:
    """Runs the steps of a program in one turn, and keeps what the steps wait for."""

    def __init__(self, agent: Agent, live: LiveRun) -> None:
        self.agent = agent
        self.live = live
        self.waits: list[Waiting] = []
        """What the steps that cannot continue wait for."""
        self.sources: tuple[Cause, ...] = ()
        """Causes of the answer, if the program declared any. If empty, the last step is the cause of the answer."""
        self._used: set[str] = set()
        self._broken: set[str] = set()
        """Names of the steps that this pass broke off, for example by a timeout of the program's own."""
        self.left = False
        """Whether the program is being stopped because its turn waits."""
        self._busy = self._resting = 0
        self._tasks: set[int] = set()
        """Ids of the tasks that are doing a step."""
        self._handing = 0
        self._changed = anyio.Event()

    @property
    def question(self) -> int:
        """Seq of the message or task that opened the turn."""
        turn = self.live.state.turn
        assert turn is not None
        return turn.question

    def handed(self) -> Entry | None:
        """Return the entry with the message or task that opened the turn; `None` if the turn has none."""
        return self.live.state.steps.question

    @property
    def session(self) -> str:
        """Name of the session that the run belongs to."""
        assert self.live.state.opened is not None
        return self.live.state.opened.session

    @property
    def behind(self) -> bool:
        """Whether this pass of the program has still to reach a step that an earlier pass ended."""
        named = self.live.state.steps.named.items()
        return any(step.end is not None and name not in self._used for name, step in named)

    async def step(
        self, name: str, work: Callable[[LiveRun, WorkflowStep], Awaitable[Ended]], *, role: str = "step"
    ) -> WorkflowStep:
        """Return a finished step. If it has not been done yet, first call `work` to do it, in a span of its own.

        Args:
            work: writes the step's entries through the given live run. The function must not do other steps. After an
                interruption it is called again; the given step then has the entries that were written before.
        """
        self.use(name)
        step = self.live.state.steps.named.get(name)
        if step is not None and step.end is not None:
            return step
        task = anyio.get_current_task().id
        if task in self._tasks:
            expected = "steps one after the other, or beside each other"
            raise OtherProgram(name, "it is done inside another step", expected)
        self._tasks.add(task)
        self._busy += 1
        try:
            await self._ready(name)
            step = step or self._begin(name, role)
            log = self.live.log
            inner = self.live.inside(Log(log.journal, step.begin, (*log.path, name)))
            end, causes = await work(inner, step)
        except Suspended:
            await self._rest()
            self.left = True
            raise
        except GestaError:  # the turn stays open: let other running steps end and be recorded
            await self._rest()
            raise
        except BaseException:
            self._broken.add(name)
            raise
        finally:
            self._busy -= 1
            self._tasks.discard(task)
            self._wake()
        inner.write(end, *causes)
        self.live.absorb()
        return step

    def _begin(self, name: str, role: str) -> WorkflowStep:
        log = self.live.log
        log.journal.write(BeginContent(name=name, role=role, parent=log.span_seq), 0)
        self.live.absorb()
        return self.live.state.steps.named[name]

    async def unreached(self) -> tuple[str, ...]:
        """Return the keys of the tasks of open steps that this pass of the program has not reached, or has broken off.

        Its code may have changed since, so that it never reaches them. Another step may then make a call of theirs
        again.
        """
        steps = self.live.state.steps.open
        if not self._broken and all(step.name in self._used for step in steps.values()):
            return ()
        await checkpoint()  # tasks started at the same time may not have reached a step yet
        reached = self._used - self._broken
        return tuple(f"{self.live.log.run}.{step.begin}" for step in steps.values() if step.name not in reached)

    async def allowance(self) -> dict[str, Any] | None:
        """Return the bounds of what a child run may spend, such as its tokens; `None` if there is no budget.

        Child runs that start at the same time share the rest of the budget. The caller must write the child run's
        `edge` entry, which stores these bounds, before its next `await`. Otherwise another child run gets the same
        share.
        """
        turn, budget = self.live.state.turn, self.agent.policy.budget
        assert turn is not None
        if budget is None and turn.spending.allowed is None:
            return None
        self._handing += 1
        try:
            await checkpoint()  # so that steps which were started together are counted
            return share(budget, self.live.state, self._handing)
        finally:
            self._handing -= 1

    async def rest(self, waits: Sequence[Waiting]) -> Suspended:
        """Wait until every other step has ended or has to wait too. Return the exception to raise in this step.

        Args:
            waits: what this step waits for.
        """
        self.waits += waits
        self._busy += 1
        try:
            await self._rest()
        finally:
            self._busy -= 1
            self._wake()
        self.left = True
        return Suspended()

    def wait(self, waits: Sequence[Waiting]) -> Suspended:
        """Note what a step waits for. Return the exception that the step must raise, because it cannot continue."""
        self.waits += waits
        return Suspended()

    def use(self, name: str) -> None:
        """Register the name of a step. Raises OtherProgram if the program has used the name since it was started."""
        if self.left:
            raise Suspended  # called in a `finally` of the program, or after it has caught this exception
        check_name(name)
        if name in self._used:
            raise OtherProgram(name, "the name was used before in this turn", "another name for each step and note")
        self._used.add(name)

    async def _ready(self, name: str) -> None:
        """Read the run's inbox, and check whether a step may begin.

        Raises:
            Stopped: the turn has to end.
            Suspended: the step has to wait.
            TurnLeft: the caller of the turn stopped waiting, so nothing new may start.
        """
        self.live.stop.check()
        await take_in(self.live)
        move = decide_step(self.agent, self.live.state, name)
        if isinstance(move, Finish):
            raise Stopped(move)
        if move is not None:
            raise self.wait(move.what)

    async def _rest(self) -> None:
        """Wait until every other step has ended or has to wait too, so that no running step is interrupted."""
        self._resting += 1
        self._wake()
        try:
            await checkpoint()  # tasks started at the same time may not have reached a step yet
            while self._busy > self._resting:
                await self._changed.wait()
        finally:
            self._resting -= 1

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
