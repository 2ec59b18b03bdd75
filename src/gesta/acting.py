"""An act is done once, in a span of its own: what is on record under its name is given in place of doing it.

Several may go on at once. One that cannot go on until somebody answers rests until the others have come to an end or
rest too, so that nothing which runs beside it is broken off; then the program is left, and its turn stays open.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from gesta.acts import Act
from gesta.affording import share
from gesta.agent import Agent
from gesta.decide import Finish, Waiting
from gesta.desk import Desk
from gesta.entry import Cause, Entry
from gesta.errors import GestaError, OtherProgram
from gesta.kinds import BeginContent, EndContent, Error
from gesta.log import Log
from gesta.origins import ROLES
from gesta.run import take_in

Ended = tuple[EndContent, tuple[Cause, ...]]
"""How an act ended, and what that was made from."""


class Suspended(BaseException):
    """Leaves a program whose turn waits for somebody; no error, and not to be caught."""


class Stopped(BaseException):
    """Leaves a program whose turn is to end."""

    def __init__(self, finish: Finish) -> None:
        self.finish = finish


class Acting:
    """What does acts, at the desk of a program's run."""

    def __init__(self, agent: Agent, desk: Desk) -> None:
        self.agent = agent
        self.desk = desk
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
        turn = self.desk.state.turn
        assert turn is not None
        return turn.question

    def handed(self) -> Entry | None:
        """Give what opened the turn, with all that came with it."""
        return self.desk.state.acts.question

    @property
    def session(self) -> str:
        """The session that the run belongs to."""
        assert self.desk.state.opened is not None
        return self.desk.state.opened.session

    async def act(self, name: str, work: Callable[[Desk, Act], Awaitable[Ended]], *, role: str = "step") -> Act:
        """Do a work in a span of its own, once; what is on record of it is in the act.

        Args:
            work: writes through the desk that it is given, and does no acts itself. When it is broken off it is
                called again, with what it had written in the act.
        """
        self.use(name)
        act = self.desk.state.acts.named.get(name)
        if act is not None and act.end is not None:
            return act
        task = anyio.get_current_task().id
        if task in self._tasks:
            raise OtherProgram(name, "it is done inside another act", "acts one after the other, or beside each other")
        self._tasks.add(task)
        self._busy += 1
        try:
            await self._ready(new=act is None)
            if self.desk.state.copied:  # whatever it does may be done in the record that was copied, too
                raise self.wait([Waiting("copy", 0, name)])
            act = act or self._begin(name, role)
            log = self.desk.log
            inner = self.desk.inside(Log(log.journal, act.begin, (*log.path, name)))
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
            self.desk.place(ended)
        self.desk.absorb()
        return act

    def _begin(self, name: str, role: str) -> Act:
        log = self.desk.log
        log.journal.write(BeginContent(name=name, role=role, parent=log.span_seq), 0)
        self.desk.absorb()
        return self.desk.state.acts.named[name]

    async def allowance(self) -> dict[str, Any] | None:
        """Say what a child run may spend: a fair part among those that are handed their tasks right now.

        The edge must be written before anybody else gets a turn.
        """
        turn, budget = self.desk.state.turn, self.agent.policy.budget
        assert turn is not None
        if budget is None and turn.spending.allowed is None:
            return None
        self._handing += 1
        try:
            await checkpoint()  # lets those come this far that were started together
            return share(budget, self.desk.state, self._handing)
        finally:
            self._handing -= 1

    async def rest(self, waits: Sequence[Waiting]) -> Suspended:
        """Give what is raised where a program waits outside of an act, once no act goes on beside it."""
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
        """Give what an act raises that cannot go on until somebody answers."""
        self.waits += waits
        return Suspended()

    def use(self, name: str) -> None:
        """Take a name, once in a pass. Raises OtherProgram for one that was taken."""
        if self._left:
            raise Suspended  # a `finally` of the program: its time has not come
        if name in self._used:
            raise OtherProgram(name, "the name was used before in this turn", "another name for each act and note")
        self._used.add(name)

    async def _ready(self, *, new: bool) -> None:
        """Take in what came from outside before something is done; a cancelled turn does nothing more."""
        self.desk.stop.check()
        await take_in(self.desk)
        turn, bound = self.desk.state.turn, self.agent.policy.limits.calls
        assert turn is not None
        if turn.cancelled is not None:
            raise Stopped(Finish("cancelled", Error(type="cancelled", message=f"cancelled by {turn.cancelled}")))
        if new and bound is not None and len(self.desk.state.acts.named) >= bound:
            raise Stopped(Finish("limit", Error(type="calls", message=f"The turn reached its limit of {bound} calls.")))

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
