"""An act is done once, in a span of its own: what is on record under its name is given in place of doing it.

Several may go on at once. One that cannot go on until somebody answers rests until the others have come to an end or
rest too, so that nothing which runs beside it is broken off; then the program is left, and its turn stays open.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from gesta.agent import Agent
from gesta.decide.budget import share
from gesta.decide.move import Finish, Waiting, decide_act
from gesta.entry import Cause, Entry
from gesta.errors import GestaError, OtherProgram
from gesta.kinds import BeginContent, EndContent
from gesta.lineage import ROLES
from gesta.log.journal import Log
from gesta.loop import take_in
from gesta.perform.execution import LiveRun
from gesta.state.steps import Act

Ended = tuple[EndContent, tuple[Cause, ...]]
"""How an act ended, and what that was made from."""


class Suspended(BaseException):
    """Leaves a program whose turn waits for somebody; no error, and not to be caught."""


class Stopped(BaseException):
    """Leaves a program whose turn is to end."""

    def __init__(self, finish: Finish) -> None:
        self.finish = finish


class ProgramTurn:
    """What does acts, in the live run of a program."""

    def __init__(self, agent: Agent, live: LiveRun) -> None:
        self.agent = agent
        self.live = live
        self.waits: list[Waiting] = []
        """What those acts wait for that cannot go on."""
        self.sources: tuple[Cause, ...] = ()
        """What the answer is made from; by default the last act."""
        self._used: set[str] = set()
        self._left = False
        """Whether the program is being left because it waits."""
        self._busy = self._resting = 0
        self._tasks: set[int] = set()
        """Tasks that are in an act."""
        self._handing = 0
        self._changed = anyio.Event()

    @property
    def question(self) -> int:
        """Seq of what opened the turn."""
        turn = self.live.state.turn
        assert turn is not None
        return turn.question

    def handed(self) -> Entry | None:
        """Return the entry that opened the turn: the message or the task, with everything that came with it."""
        return self.live.state.acts.question

    @property
    def session(self) -> str:
        """The session that the run belongs to."""
        assert self.live.state.opened is not None
        return self.live.state.opened.session

    async def act(self, name: str, work: Callable[[LiveRun, Act], Awaitable[Ended]], *, role: str = "step") -> Act:
        """Do a work in a span of its own, once; what is on record of it is in the act.

        Args:
            work: writes through the live run that it is given, and does no acts itself. When it is broken off it is
                called again, with what it had written in the act.
        """
        self.use(name)
        act = self.live.state.acts.named.get(name)
        if act is not None and act.end is not None:
            return act
        task = anyio.get_current_task().id
        if task in self._tasks:
            raise OtherProgram(name, "it is done inside another act", "acts one after the other, or beside each other")
        self._tasks.add(task)
        self._busy += 1
        try:
            await self._ready(name)
            act = act or self._begin(name, role)
            log = self.live.log
            inner = self.live.inside(Log(log.journal, act.begin, (*log.path, name)))
            end, causes = await work(inner, act)
        except Suspended:
            await self._rest()
            self._left = True
            raise
        except GestaError:  # the turn stays open: what runs beside this is not broken off, so that it is found done
            await self._rest()
            raise
        finally:
            self._busy -= 1
            self._tasks.discard(task)
            self._wake()
        ended = inner.write(end, *causes)
        if role in ROLES:
            self.live.place(ended)
        self.live.absorb()
        return act

    def _begin(self, name: str, role: str) -> Act:
        log = self.live.log
        log.journal.write(BeginContent(name=name, role=role, parent=log.span_seq), 0)
        self.live.absorb()
        return self.live.state.acts.named[name]

    async def allowance(self) -> dict[str, Any] | None:
        """Return what a child run may spend: an equal share among the child runs that start at this moment.

        The edge must be written before anybody else gets a turn.
        """
        turn, budget = self.live.state.turn, self.agent.policy.budget
        assert turn is not None
        if budget is None and turn.spending.allowed is None:
            return None
        self._handing += 1
        try:
            await checkpoint()  # lets those come this far that were started together
            return share(budget, self.live.state, self._handing)
        finally:
            self._handing -= 1

    async def rest(self, waits: Sequence[Waiting]) -> Suspended:
        """Return the exception to raise where a program waits outside of a step, once no other step is running."""
        self.waits += waits
        self._busy += 1
        try:
            await self._rest()
        finally:
            self._busy -= 1
            self._wake()
        self._left = True
        return Suspended()

    def wait(self, waits: Sequence[Waiting]) -> Suspended:
        """Return the exception that a step raises if it cannot continue until somebody answers."""
        self.waits += waits
        return Suspended()

    def use(self, name: str) -> None:
        """Mark a name as used in this pass. Raises OtherProgram if it was used before."""
        if self._left:
            raise Suspended  # a `finally` of the program: its time has not come
        if name in self._used:
            raise OtherProgram(name, "the name was used before in this turn", "another name for each act and note")
        self._used.add(name)

    async def _ready(self, name: str) -> None:
        """Read the inbox before a step begins. Raises Stopped or Suspended if it may not begin."""
        self.live.stop.check()
        await take_in(self.live)
        move = decide_act(self.agent, self.live.state, name)
        if isinstance(move, Finish):
            raise Stopped(move)
        if move is not None:
            raise self.wait(move.what)

    async def _rest(self) -> None:
        """Wait until no other act goes on: what runs beside one that waits is not broken off."""
        self._resting += 1
        self._wake()
        try:
            await checkpoint()  # what was started beside it may not have come to its first act
            while self._busy > self._resting:
                await self._changed.wait()
        finally:
            self._resting -= 1

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
