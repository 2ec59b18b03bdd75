"""A chat agent is a handle: it is put to work at the desk of a run, where all that it does is written.

A task puts it there for each response. Used by itself it takes the desk of a run of its own, in its record and session,
for as long as one call lasts; so two handles on one run agree, and nothing of a conversation is kept but entries.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from gesta.acting import Stopped
from gesta.agent import Agent, Program
from gesta.decide import Finish, Wait
from gesta.desk import Desk
from gesta.entry import Entry
from gesta.errors import GestaError, TurnOpen
from gesta.kinds import EndContent
from gesta.opening import Opening
from gesta.patterns.chat_config import ChatAgentConfig
from gesta.patterns.facts import facts_of
from gesta.patterns.home import Home
from gesta.patterns.orchestration import TOOLS
from gesta.patterns.toolset import Described, Toolset
from gesta.record import Record
from gesta.stop import Stop
from gesta.verbs import Verbs

BY_HAND = "by hand"
"""Key of a turn that an agent takes by itself; it stays open until a task begins one of its own."""


class Seat:
    """A place at a desk."""

    def __init__(
        self, desk: Desk, agent: Agent, config: ChatAgentConfig, verbs: Verbs | None = None, done: Sequence[Entry] = ()
    ) -> None:
        self.desk = desk
        self.agent = agent
        """What it is bound to there."""
        self.config = config
        """The settings that hold there."""
        self.interactive: bool | None = None
        """Whether a person is asked; None where the agent says it."""
        self.default_human_response: str | None = None
        self.verbs = verbs
        self.done = list(done)
        """What the response that is being made has on record already."""


async def nobody(_verbs: Any, _text: str) -> str:
    """Stand for the program of an agent that has no model; it is never played."""
    raise GestaError("This agent has no model. Write llm=... in its config.")


class Working(Toolset):
    """An agent's settings, its tools, and where it works."""

    def __init__(
        self, config: ChatAgentConfig | None = None, *, record: Record | str | None = None, session: str = ""
    ) -> None:
        super().__init__()
        self.config = msgspec.structs.replace(config) if config is not None else ChatAgentConfig()
        self.home = Home(record, session)
        self.interactive = True
        self.default_human_response: str | None = None
        self._seat: Seat | None = None
        if self.config.enable_orchestration_tool_handling:
            for cls in TOOLS:
                if facts_of(cls).name:
                    self.enable_message(cls, use=False)

    @property
    def settings(self) -> ChatAgentConfig:
        """The settings that hold where it is at work."""
        return self._seat.config if self._seat is not None else self.config

    @property
    def name(self) -> str:
        """Name of the agent, or of the task that it is in."""
        return self.settings.name

    def describe(self, config: ChatAgentConfig | None = None, program: Program | None = None) -> Described:
        """Give the frozen description that settings make, by default its own."""
        config = config or self.config
        model = config.llm if config.llm is not None else ""
        return Described(
            config.name,
            model,
            instructions=config.system_message,
            tools=self.tools(in_text=config.formatter == "json-text"),
            formatter=config.formatter,
            policy=config.policy,
            settings=config.settings,
            program=program or (nobody if model == "" else None),
            usable=frozenset(self.llm_tools_usable),
            forced=self.llm_tool_forced,
            schema=msgspec.json.schema(config.output_format) if config.output_format is not None else None,
        )

    @contextmanager
    def at(self, seat: Seat) -> Iterator[None]:
        """Work at a desk until the block is left. Raises GestaError where it is at work in another run."""
        before, opened = self._seat, seat.desk.state.opened
        if (
            before is not None
            and opened is not None
            and before.desk.log.run not in (seat.desk.log.run, opened.parent_run)
        ):
            raise GestaError(f"{self.name!r} is at work in run {before.desk.log.run}. Clone it for work beside that.")
        self._seat = seat
        try:
            yield
        finally:
            self._seat = before

    def leave(self) -> None:
        """Be at work nowhere."""
        self._seat = None

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Seat]:
        """Take a place: the one that a task gave, or at the desk of a run of its own, in a turn that stays open."""
        if self._seat is not None:
            yield self._seat
            return
        holder = self.home.record.holder
        agent = holder.bind(self.describe())
        run = await holder.run_of(self.home.session, self.name)
        async with holder.held(run, agent, (None, Stop())) as desk:
            turn = desk.state.turn
            if turn is None or turn.reason is not None:
                await holder.begin(agent, Opening(name=self.name, session=self.home.session, key=BY_HAND), desk)
            elif turn.key != BY_HAND:
                raise TurnOpen(run, turn.begin, "not finished")
            seat = Seat(desk, agent, self.config)
            with self.at(seat):
                yield seat
            await desk.log.durable()


async def end_by_hand(record: Record, run: str, agent: Agent) -> None:
    """End the turn that an agent took by itself, if it is open: a task goes on in its run."""
    async with record.holder.held(run, agent, (None, Stop())) as desk:
        turn = desk.state.turn
        if turn is not None and turn.reason is None and turn.key == BY_HAND:
            desk.write(EndContent(status="success", reason="answered"))
            desk.absorb()
            await desk.log.durable()


def leave(seat: Seat, move: Wait | Finish) -> BaseException:
    """Give what is raised when the run waits for somebody, or must end."""
    if seat.verbs is not None:
        return seat.verbs.wait(move.what) if isinstance(move, Wait) else Stopped(move)
    assert seat.desk.state.turn is not None
    if isinstance(move, Wait):
        what = ", ".join(f"{each.what} of {each.tool}" for each in move.what)
        return TurnOpen(seat.desk.log.run, seat.desk.state.turn.begin, f"waiting: {what}")
    return GestaError(move.error.message if move.error is not None else move.reason)
