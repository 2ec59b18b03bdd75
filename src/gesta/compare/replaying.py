"""A replay runs the agent's code again on a recorded run. The record answers in place of people, models and tools.

The recorded run may be the work of several processes, one after another, so a replay simulates processes inside this
one. The replay starts a process and compares each entry that the process writes with the record. At the first
difference the replay ends the process. An entry that came from outside the agent's code is copied, and the next process
continues after it. If a process does not get further, the replay has diverged. The stage is the store to which a replay
writes. A child run is a run of another agent, to which the run gave a task. A turn is the work on one message.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from gesta.address import bind
from gesta.agent import Agent, chained
from gesta.compare.children import before, children, is_child, opened_in
from gesta.compare.offered import Offered
from gesta.compare.outside import begins_turn, by_tool, from_outside, left_below, opens
from gesta.compare.played import PlayedModel, hooking, instructing, nobody, played
from gesta.compare.same import MISSING, Difference, by_lot
from gesta.compare.stage import Found, Stage
from gesta.entry import Entry, fold
from gesta.errors import AgentError, GestaError, OtherProgram
from gesta.events import Outcome
from gesta.hooks import CallHook, call_hooks
from gesta.kinds import (
    AttemptContent,
    BeginContent,
    EndContent,
    FaultContent,
    Kind,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.loop import outcome_of, take_in
from gesta.models.hosted import unsent
from gesta.perform.checks import guarded
from gesta.perform.execution import LiveRun, Task, TurnCaller
from gesta.record.turns import Turns
from gesta.state.calls import DEPTH
from gesta.state.opening import Opening
from gesta.state.run import RunState, RunView
from gesta.state.turn import REPLACED


class Divergence(Struct, frozen=True):
    """The first place at which a replay differs from the record."""

    run: str
    seq: int
    recorded: Entry | None
    """The recorded entry; `None` if the code continues after the end of the record."""
    replayed: Entry | None
    """The entry that the code wrote instead of the recorded one; `None` if the code wrote no entry."""
    difference: Difference
    """The first difference between the two entries. Its path is a JSON path in the content, `span` or `causes`."""


class Replayed(Struct, frozen=True):
    """The result of replaying a run."""

    run: str
    entries: int
    """Number of entries up to the first difference, all of which are equal to the recorded ones."""
    divergence: Divergence | None
    made: Sequence[Entry] = ()
    """The entries that the replay wrote or copied, up to the first difference."""
    below: tuple["Replayed", ...] = ()
    """The results for the child runs, to which this run gave tasks."""

    @property
    def first(self) -> Divergence | None:
        """The first divergence of the run itself, otherwise of a child run; `None` if nothing diverges."""
        return next((each.divergence for each in self.every() if each.divergence is not None), None)

    def every(self) -> list["Replayed"]:
        """Return this result, and the results for all child runs at any depth."""
        return [self, *(one for each in self.below for one in each.every())]


class How(Struct, frozen=True, kw_only=True):
    """The options of a replay."""

    prompts: bool = True
    """Whether prompts are compared: the request headers, and the digests of request bodies."""
    live: Collection[str] = ()
    """Names of the tools that really run. Their new results are compared with the recorded ones."""
    moves: bool = False
    """Whether an entry of the same kind as the recorded one is accepted even if its content differs."""
    guards: tuple[CallHook, ...] = ()
    """For a child run: the `call` hooks of the agents above it."""


EARLIER = 8  # greatest number of entries to go back for the start of a process
Runs = Mapping[str, Sequence[Entry]]
"""Entries by run id."""


async def replay_run(runs: Runs, run: str, agent: Agent[Any], how: How | None = None) -> Replayed:
    """Replay a run and its child runs, without effects, without asking a model, and without an API key.

    Args:
        runs: the entries of the run and of its child runs, by run id, each from its first entry.
        agent: the agent with the model of the run. The model builds requests but never sends one, so it needs no key.
        how: what is compared, and which tools really run; by default no tool runs.

    Raises:
        AgentError: the run has no turn of an agent, because a program only recorded it.
    """
    how = how or How()
    agent = guarded(keyless(agent), how.guards)
    rehearsal = Rehearsal(runs[run], runs, how)
    found = await rehearsal.play(agent)
    how = msgspec.structs.replace(how, guards=call_hooks(agent.hooks) if agent.hooks else how.guards)
    below = [await replay_run(runs, each, one, how) for each, one in rehearsal.agents(agent).items() if each in runs]
    return msgspec.structs.replace(found, below=tuple(below))


def keyless(agent: Agent[Any]) -> Agent[Any]:
    """Return a copy of the agent whose model cannot send, and so needs no API key."""
    named = isinstance(agent.model, str) and agent.model
    return bind(agent, {str(agent.model): unsent(str(agent.model))} if named else None)


class Rehearsal:
    """The replay of one run: it starts simulated processes until the record ends or the replay diverges."""

    def __init__(self, entries: Sequence[Entry], runs: Runs, how: How) -> None:
        self._entries, self._runs = entries, runs
        opened = next((each.content.opened for each in reversed(entries) if _opening(each)), None)  # type: ignore[union-attr]
        if opened is None or not any(map(begins_turn, entries)):
            run = entries[0].run if entries else "?"
            raise AgentError(
                f"Run {run!r} has no turn of an agent: it was imported or only recorded, so nothing can be "
                "replayed. Name a run in which an agent took a turn."
            )
        self.stage = Stage(entries, opened, prompts=how.prompts, live=how.live)
        self.stage.moves = how.moves
        self._shared = opened.base.seq if opened.base is not None else 0
        for entry in entries[: self._shared]:
            self.stage.copy(entry)
        self.stage.children = children(runs, self.stage.run)
        self._called: dict[str, Agent] = {}

    async def play(self, agent: Agent) -> Replayed:
        """Replay the run, one simulated process after another, and return the result."""
        stage = self.stage
        tools = [played(stage, tool) for tool in agent.tools]
        model = PlayedModel(stage, agent.asked()) if agent.model != "" else agent.model
        offered = Offered(stage, agent)
        deps = agent.deps if stage.live else None
        acting = msgspec.structs.replace(agent, model=model, tools=tools, instructions=instructing(stage, agent))
        hooks, sources = hooking(stage, agent.hooks), (offered,) if offered.any else ()
        acting = msgspec.structs.replace(acting, hooks=hooks, fallbacks=(), sources=sources, deps=deps)
        others = [(PlayedModel(stage, each.asked()), each.price) for each in agent.fallbacks]
        rest = chained([msgspec.structs.replace(acting, model=each, price=price) for each, price in others])
        acting = msgspec.structs.replace(acting, fallbacks=rest)
        while stage.next is not None:
            started, before = stage.done, stage.found
            failure = await self._live(acting)
            if stage.over:
                break
            if self._gave_other():
                return self._ended(self._divergence(failure, None))
            if stage.done == started and not self._taken_over() and not await self._earlier(acting):
                return self._ended(self._divergence(failure, before))
        return self._ended(None)

    def agents(self, agent: Agent) -> dict[str, Agent]:
        """Return the agent of each child run, by the id of the child run.

        Child runs whose agent is not known, because a plain function called the agent, are left out.
        """
        found = {}
        for run, entries in self._runs.items():
            opened = opened_in(entries)
            if opened is not None and opened.parent_run == self.stage.run:
                tool = agent.tool(opened.name.partition("#")[0])
                if tool is not None and tool.agent is not None:
                    found[run] = tool.agent
        return {run: each for run, each in (found | self._called).items() if each.program is not nobody}

    async def _earlier(self, agent: Agent) -> bool:
        """Start a simulated process at an earlier entry, because the recorded process may have begun there.

        Returns whether the new process got further than the process before it. If not, the work of the new process is
        undone.
        """
        stage, reached, found = self.stage, self.stage.done, self.stage.found
        for head in range(reached - 1, max(reached - EARLIER, self._shared) - 1, -1):
            gone = stage.back(head)
            await self._live(agent)
            if stage.done > reached or stage.over:
                return True
            stage.back(head)
            stage.forth(gone)
        stage.found = found
        return False

    def _taken_over(self) -> bool:
        """Copy the next recorded entry if it came from outside the agent's code or is a random choice.

        Return whether the entry was copied.
        """
        entry = self.stage.next
        if entry is None or not (from_outside(self._entries, entry) or self._by_lot(entry)):
            return False
        self.stage.copy(entry)
        return True

    def _gave_other(self) -> bool:
        """Return whether the process stopped because a tool that really ran returned another result than recorded."""
        found = self.stage.found
        if found is None or found[0].kind is not found[1].kind:
            return False
        attempt = by_tool(found[0])
        content = self._entries[attempt - 1].content if attempt is not None else None
        call = self._entries[content.of - 1].content if isinstance(content, AttemptContent) else None
        return isinstance(call, ToolCallContent) and call.tool_name in self.stage.live

    def _by_lot(self, entry: Entry) -> bool:
        """Return whether the recorded entry and the replayed one are random choices among the same options.

        A replay does not compare such choices.
        """
        return self.stage.found is not None and by_lot(entry, self.stage.found[1])

    async def _live(self, agent: Agent) -> GestaError | None:
        """Run one simulated process until its turn ends or waits, or until the stage stops it at a difference.

        Return the exception that ended the process; `None` if no exception did.
        """
        stage, turns = self.stage, Understudy(self)
        state = fold(RunView(), stage.made)
        try:
            replaced = self._replaced(state)
            if state.open and not replaced:
                await turns.resume(agent, stage.run)
            else:
                if replaced:
                    policy = msgspec.structs.replace(agent.policy, when_busy="replace")
                    agent = msgspec.structs.replace(agent, policy=policy)
                begin = next((each for each in self._entries[stage.done :] if begins_turn(each)), None)
                if begin is not None:
                    await turns.take(agent, self._opens(begin))
        except GestaError as failure:
            if not stage.stopped and not isinstance(failure, OtherProgram):
                raise
            return failure
        return None

    def _replaced(self, state: RunState) -> bool:
        """Return whether the record says next that a new message ended the open turn (`Policy.when_busy`)."""
        for entry in self._entries[self.stage.done :] if (turn := state.turn) is not None and state.open else ():
            content = entry.content
            if isinstance(content, EndContent) and turn and entry.span == turn.begin:
                return content.error is not None and content.error.message == REPLACED
            made = isinstance(content, ToolResultContent) and not from_outside(self._entries, entry)
            if not made and not isinstance(content, EndContent):
                return False
        return False

    def _opens(self, begin: Entry) -> Opening:
        """Return the recorded facts with which to open a turn again, such as its message, key and spending limit."""
        content, opened = begin.content, self.stage.opened
        assert isinstance(content, BeginContent)
        said = next((each for each in self._entries[begin.seq : begin.seq + 1] if opens(self._entries, each)), None)
        return Opening(
            name=opened.name,
            session=opened.session,
            content=said.content
            if said is not None and isinstance(said.content, UserContent | SystemContent)
            else None,
            key=content.key,
            parent_run=opened.parent_run,
            causes=said.causes if said is not None else (),
            base=opened.base,
            allowance=content.allowance,
            depth=opened.depth,
            doubts=content.doubts or opened.doubts,
        )

    async def child(self, agent: Agent, task: Task) -> Outcome | None:
        """Return the recorded outcome of a child run, once the replay has written all entries recorded before it.

        Return `None` if the record contains no outcome of the child run, or if the replay cannot get that far.
        """
        assert isinstance(task.cause, tuple)
        after = self._entries[task.cause[1] :]
        waits = next((each for each in after if isinstance(each.content, FaultContent) and self._of(each, task)), None)
        if waits is not None:
            self._call(agent, task)
            await self.stage.comes(waits.seq - 1)
            return None
        named = [(each, cause) for each in after for cause in each.causes if isinstance(cause, tuple)]
        named = [each for each in named if is_child(self._runs.get(each[1][0], ()), self.stage.run, task.name)]
        for entry, (run, end) in named if any(each.kind is not Kind.Budget for each, _ in named) else ():
            self._called[run] = agent
            state = fold(RunView(), self._runs[run][:end])
            return (
                outcome_of(run, state)
                if await self.stage.comes(before(self._entries, task.cause[1], entry.seq))
                else None
            )
        self._call(agent, task)
        return None

    def _call(self, agent: Agent, task: Task) -> None:
        """Store which agent runs a child run, for the replay of that child run."""
        for run, entries in self._runs.items():
            if is_child(entries, self.stage.run, task.name):
                self._called[run] = agent

    def _of(self, fault: Entry, task: Task) -> bool:
        """Return whether a fault is about the tool or hook that gave this task, and which got no outcome of it."""
        assert isinstance(fault.content, FaultContent) and isinstance(task.cause, tuple)
        return fault.content.of in self._entries[task.cause[1] - 1].causes and fault.content.error.type != DEPTH

    def _divergence(self, failure: GestaError | None, before: Found | None) -> Divergence:
        """Return where the replay differs from the record.

        Args:
            failure: the exception that ended the last process.
            before: the difference that stopped the process before the last one. It is returned if both processes
                stopped at the same recorded entry, unless the last one wrote an entry of the recorded kind there.
        """
        entry, found, run = self.stage.next, self.stage.found, self.stage.run
        if before is not None and entry is not None and before[0].seq == entry.seq:
            same = found is not None and found[1].kind == entry.kind
            found = found if same else before
        if found is not None:
            return Divergence(run, found[0].seq, found[0], found[1], found[2])
        assert entry is not None
        said = str(failure) if failure is not None and not self.stage.stopped else MISSING
        return Divergence(run, entry.seq, entry, None, Difference("$", str(entry.kind), said))

    def _ended(self, divergence: Divergence | None) -> Replayed:
        entries, made = self.stage.done, tuple(self.stage.made)
        return Replayed(run=self.stage.run, entries=entries, divergence=divergence, made=made)


class Understudy(Turns):
    """Runs the turns of the replayed run, and returns the recorded outcomes of child runs instead of running them."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        super().__init__(rehearsal.stage, lambda agent: agent, rehearsal.stage.now)
        self._rehearsal = rehearsal

    async def child(self, agent: Agent, task: Task, live: LiveRun) -> Outcome:
        """Return the recorded outcome of a child run.

        If the child run has no end on record, the outcome has the reason `waiting`.
        """
        live.absorb()
        await live.log.durable()
        ended = await self._rehearsal.child(agent, task)
        if ended is not None:
            return ended
        assert isinstance(task.cause, tuple)
        run = await self.child_run(task.name, live)
        return Outcome(run=run, session=self._rehearsal.stage.opened.session, turn=0, reason="waiting")

    @asynccontextmanager
    async def held(self, run: str, agent: Agent, told: TurnCaller, above: str | None = None) -> AsyncIterator[LiveRun]:
        """Yield the replayed run, opened for writing.

        Until it is closed, the stage can also count those entries of the run that are not committed yet.

        Args:
            agent: the agent that works in the run.
            told: what the caller of a turn passes, such as listeners.
            above: id of the parent run; `None` for a root run.
        """
        async with super().held(run, agent, told, above) as live:
            live.state.moved = ""  # the record that the run was moved to may be this one, and nothing is written there
            self._rehearsal.stage.journal = live.log.journal
            try:
                yield live
            finally:
                self._rehearsal.stage.journal = None

    async def call_off(self, live: LiveRun, name: str | None = None) -> list[str]:
        """Return what the child runs left in doubt, as recorded. A replay cancels none: their ends are on record."""
        return left_below(self._rehearsal.stage.settle(live.write), live.log.span_seq, name)

    async def _note_change(self, agent: Agent, live: LiveRun) -> None:
        """Write the messages in the run's inbox (approvals, answers, cancellations) into the run.

        In a live turn this method also records a change of the agent. In a replay, such a change is not recorded.
        """
        await take_in(live)


def _opening(entry: Entry) -> bool:
    return isinstance(entry.content, BeginContent) and entry.content.opened is not None
