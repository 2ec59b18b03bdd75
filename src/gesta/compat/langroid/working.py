"""A chat agent is a handle: it is put to work in a live run, where all that it does is written.

A task puts it there for each response. Used by itself it takes a live run of its own, in its record and session,
for as long as one call lasts; so two handles on one run agree, and nothing of a conversation is kept but entries.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from anyio.lowlevel import current_token

from gesta.agent import Agent, Program
from gesta.compat.langroid.chat_config import ChatAgentConfig
from gesta.compat.langroid.chat_document import ChatDocument
from gesta.compat.langroid.facts import facts_of
from gesta.compat.langroid.home import Home
from gesta.compat.langroid.language_models.base import LLMConfig
from gesta.compat.langroid.orchestration import TOOLS, RewindTool
from gesta.compat.langroid.tool_message import ToolForm
from gesta.compat.langroid.toolset import Described, Toolset
from gesta.compat.langroid.xml_tool_message import XMLToolMessage
from gesta.decide.move import Finish, Wait
from gesta.entry import Entry
from gesta.errors import GestaError, TurnOpen
from gesta.kinds import EndContent
from gesta.perform.execution import LiveRun, TurnCaller
from gesta.perform.stop import Stop
from gesta.record.record import Record
from gesta.state.opening import Opening
from gesta.workflow.step import Stopped
from gesta.workflow.verbs import Verbs

BY_HAND = "by hand"
"""Key of a turn that an agent takes by itself; it stays open until a task begins one of its own."""


class RunContext:
    """A place in a live run."""

    def __init__(
        self,
        live: LiveRun,
        agent: Agent,
        config: ChatAgentConfig,
        verbs: Verbs | None = None,
        done: Sequence[Entry] = (),
    ) -> None:
        self.live = live
        self.agent = agent
        """What it is bound to there."""
        self.config = config
        """The settings that hold there."""
        self.interactive: bool | None = None
        """Whether a person is asked; None where the agent says it."""
        self.default_human_response: str | None = None
        self.trail: Sequence[ChatDocument] = ()
        """The messages that waited for an answer in the task, newest last."""
        self.verbs = verbs
        self.handling = False
        """Whether tools are at work, which may ask the model of their agent something."""
        self.token = current_token()
        """The event loop of the run, for the synchronous methods of an agent that is called in a thread."""
        self.done = list(done)
        """What the response that is being made has on record already."""


def _is_xml(cls: type) -> bool:
    return issubclass(cls, XMLToolMessage)


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
        self._context: RunContext | None = None
        if self.config.enable_orchestration_tool_handling:
            for cls in TOOLS:
                if facts_of(cls).name and cls is not RewindTool:
                    self.enable_message(cls, use=False)

    def trail(self) -> Sequence[ChatDocument]:
        """Return the messages that waited for an answer in the task that it is in, newest last."""
        return self._context.trail if self._context is not None else ()

    @property
    def settings(self) -> ChatAgentConfig:
        """The settings that hold where it is at work."""
        return self._context.config if self._context is not None else self.config

    @property
    def name(self) -> str:
        """Name of the agent, or of the task that it is in."""
        return self.settings.name

    def describe(self, config: ChatAgentConfig | None = None, program: Program | None = None) -> Described:
        """Return the frozen description that settings make, by default its own."""
        config = config or self.config
        llm, settings, wanted, price = config.llm, config.settings, config.output_format, None
        if isinstance(llm, LLMConfig):
            settings, price = llm.settings() | settings, llm.price()
            llm = llm.model()
        model = llm if llm is not None else ""
        return Described(
            config.name,
            model,
            instructions=config.system_message,
            tools=self.tools(in_text=config.formatter == "json-text"),
            formatter=config.formatter,
            policy=config.policy,
            settings=settings,
            price=price,
            program=program or (nobody if model == "" else None),
            usable=frozenset(self.llm_tools_usable),
            written={name: each.json_instructions() for name, each in self.llm_tools_map.items() if _is_xml(each)},
            strict=self.strict_tools(),
            forced=self.llm_tool_forced,
            output=None if isinstance(wanted, type) and issubclass(wanted, ToolForm) else wanted,
        )

    @contextmanager
    def at(self, context: RunContext) -> Iterator[None]:
        """Work in a live run until the block is left. Raises GestaError where it is at work in another run."""
        before, opened = self._context, context.live.state.opened
        if (
            before is not None
            and opened is not None
            and before.live.log.run not in (context.live.log.run, opened.parent_run)
        ):
            raise GestaError(f"{self.name!r} is at work in run {before.live.log.run}. Clone it for work beside that.")
        self._context = context
        try:
            yield
        finally:
            self._context = before

    def leave(self) -> None:
        """Be at work nowhere."""
        self._context = None

    @asynccontextmanager
    async def working(self) -> AsyncIterator[RunContext]:
        """Yield the context that a task gave, or a context in a run of its own, in a turn that stays open."""
        if self._context is not None:
            yield self._context
            return
        turns = self.home.record.turns
        agent = turns.bind(self.describe())
        run = await turns.run_of(self.home.session, self.name)
        async with turns.held(run, agent, TurnCaller(None, Stop())) as live:
            turn = live.state.turn
            if turn is None or turn.reason is not None:
                await turns.begin(agent, Opening(name=self.name, session=self.home.session, key=BY_HAND), live)
            elif turn.key != BY_HAND:
                raise TurnOpen(run, turn.begin, "not finished")
            context = RunContext(live, agent, self.config)
            with self.at(context):
                yield context
            await live.log.durable()


async def end_by_hand(record: Record, run: str, agent: Agent) -> None:
    """End the turn that an agent took by itself, if it is open: a task goes on in its run."""
    async with record.turns.held(run, agent, TurnCaller(None, Stop())) as live:
        turn = live.state.turn
        if turn is not None and turn.reason is None and turn.key == BY_HAND:
            live.write(EndContent(status="success", reason="answered"))
            live.absorb()
            await live.log.durable()


def leave(context: RunContext, move: Wait | Finish) -> BaseException:
    """Return what is raised when the run waits for somebody, or must end."""
    if context.verbs is not None:
        return context.verbs.wait(move.what) if isinstance(move, Wait) else Stopped(move)
    assert context.live.state.turn is not None
    if isinstance(move, Wait):
        what = ", ".join(each.text for each in move.what)
        return TurnOpen(context.live.log.run, context.live.state.turn.begin, f"waiting: {what}")
    return GestaError(move.error.message if move.error is not None else move.reason)
