"""An agent does its work in a live run (one that is open for writing), which records all its messages and calls.

A task provides the live run for each response. Without a task, the agent opens a live run in its own record and session
for each call of a method. A turn is the work on one message; it stays open until that work is done. The conversation is
stored only in the record, so two agent objects with the same run see the same history.
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
"""The key of a turn that an agent opens without a task. The turn stays open until a task begins one in the run."""


class RunContext:
    """The live run in which an agent works, with the settings for this run."""

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
        """The description of the agent in this run."""
        self.config = config
        """The settings of the agent in this run."""
        self.interactive: bool | None = None
        """Whether a person is asked; `None` to use the agent's attribute `interactive`."""
        self.default_human_response: str | None = None
        self.trail: Sequence[ChatDocument] = ()
        """The messages that the task had to answer so far, newest last."""
        self.verbs = verbs
        self.handling = False
        """Whether tools are running. If a tool then asks the model of its agent, a separate run is used."""
        self.token = current_token()
        """The token of the run's event loop, with which a thread can call asynchronous methods in that loop."""
        self.done = list(done)
        """The entries that the current response has already written."""


def _is_xml(cls: type) -> bool:
    return issubclass(cls, XMLToolMessage)


async def nobody(_verbs: Any, _text: str) -> str:
    """Raise GestaError. An agent without a model runs this function instead of asking a model."""
    raise GestaError("This agent has no model. Write llm=... in its config.")


class Working(Toolset):
    """Base class of chat agents: the settings of an agent, and the live run in which it works."""

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
        """Return the messages that the agent's task had to answer so far, newest last; empty outside of a task."""
        return self._context.trail if self._context is not None else ()

    @property
    def settings(self) -> ChatAgentConfig:
        """The settings that apply to the agent now: those of its current run, or else its own."""
        return self._context.config if self._context is not None else self.config

    @property
    def name(self) -> str:
        """The name of the task in which the agent works, or else of the agent."""
        return self.settings.name

    def describe(self, config: ChatAgentConfig | None = None, program: Program | None = None) -> Described:
        """Return an immutable description of the agent with these settings; by default with its own.

        `program` is a function that runs instead of asking a model; `None` to ask the model.
        """
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
        """Make the agent work in the run of `context` while the `with` block runs.

        Raises:
            GestaError: the agent already works in another run.
        """
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
        """Leave the current run, so that the agent can work in another one."""
        self._context = None

    @asynccontextmanager
    async def working(self) -> AsyncIterator[RunContext]:
        """Yield the context of the agent's current run. If there is none, open its own run until the block ends."""
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
    """End the turn that an agent opened without a task, if it is open, so that a task can begin its own turn."""
    async with record.turns.held(run, agent, TurnCaller(None, Stop())) as live:
        turn = live.state.turn
        if turn is not None and turn.reason is None and turn.key == BY_HAND:
            below = await live.host.call_off(live) if turn.handed > 0 else []
            doubts = sorted({*live.state.left_in_doubt(), *below}) or None
            live.write(EndContent(status="success", reason="answered", doubts=doubts, below=below or None))
            live.absorb()
            await live.log.durable()


def leave(context: RunContext, move: Wait | Finish) -> BaseException:
    """Return the exception to raise when the run waits for a person or an event (`Wait`) or must end (`Finish`)."""
    if context.verbs is not None:
        return context.verbs.wait(move.what) if isinstance(move, Wait) else Stopped(move)
    assert context.live.state.turn is not None
    if isinstance(move, Wait):
        what = ", ".join(each.text for each in move.what)
        return TurnOpen(context.live.log.run, context.live.state.turn.begin, f"waiting: {what}")
    return GestaError(move.error.message if move.error is not None else move.reason)
