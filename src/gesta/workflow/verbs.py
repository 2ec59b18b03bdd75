"""Verbs are the methods by which a program acts: `call`, `note`, `now`, `pick` and others.

A program is an async function that runs an agent's turn in place of a model. Each use of a verb is a step with a name
of its own. If a result is on record under this name, the verb returns the result and does nothing else. So a program
that crashed, or that had to wait, is started again from its beginning and continues where it was. A pass is one
execution of the program; code outside of the verbs is executed in every pass. Only entries are kept between two passes.
The order of the names is not checked, so the code may change between releases. A child run is the run of an agent that
a step calls; an `edge` entry names it.
"""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from gesta.agent import Agent
from gesta.codec.rows import as_recorded, digest_of
from gesta.decide.budget import returned
from gesta.decide.move import Finish, depth_error
from gesta.decide.waiting import Waiting
from gesta.entry import Cause, Entry, utc_text, utc_time
from gesta.errors import AgentError, OtherProgram, nearest
from gesta.events import AnswerEvent, Broadcast, Event, Listener, Outcome, RetractEvent
from gesta.function_tool.context import ToolQuestion
from gesta.kinds import (
    Content,
    DecisionContent,
    EdgeContent,
    EndContent,
    Error,
    KeyValueContent,
    QuestionContent,
    SystemContent,
    TimerContent,
)
from gesta.log.steering import refuse_own
from gesta.loop import take_in
from gesta.perform.call_contents import plain
from gesta.perform.child import check_called, too_deep
from gesta.perform.execution import LiveRun, Task
from gesta.prompt import given_text, observation_text
from gesta.state.steps import NOTE_NAME, WorkflowStep
from gesta.workflow.step import Ended, ProgramTurn, Stopped, check_name

C = TypeVar("C", bound=Content)
GATHERS = ("step", "synthesis")
"""Roles of steps that combine their inputs: the `end` entry of such a step also has the causes of the inputs."""


AT_ONCE_S = 1.0
"""Longest time in seconds that `sleep` waits inside the process; for a longer time the turn waits."""


class Result(Struct, frozen=True, kw_only=True):
    """The result of calling another agent: its answer or its failure."""

    name: str
    text: str
    """The answer, or the error message after a failure."""
    value: Any = None
    """The answer as plain JSON, also if the called agent answers with a value of another type."""
    reason: str = "answered"
    error: Error | None = None
    seq: int
    """Seq of the entry that ended the step. Pass it as a cause of what you make from this result."""

    @property
    def ok(self) -> bool:
        """Whether the called agent answered."""
        return self.reason == "answered"


class StepInput(Struct, frozen=True, kw_only=True):
    """The input of a step that calls an agent: the agent, its task and further facts."""

    agent: Agent[Any]
    run: str
    """Name of the child run."""
    content: SystemContent
    """The task: it opens the turn of the child run."""
    payload: Any
    """The input in the form that the `edge` entry stores."""
    causes: Sequence[Cause] = ()
    hear: Listener | None = None
    thread: bool = False
    """Whether the child run has several turns, one after the other."""


class Verbs(ProgramTurn):
    """The methods by which a program calls agents, asks people, waits and writes notes."""

    def __init__(self, agent: Agent, live: LiveRun) -> None:
        super().__init__(agent, live)
        self._children: dict[str, str] = {}
        """Ids of the child runs that were called in this pass, by their names."""

    async def call(
        self,
        agent: Agent[Any],
        input: Any,
        name: str,
        *,
        role: str = "agent",
        causes: Sequence[Cause] = (),
        hear: Listener | None = None,
    ) -> Result:
        """Call another agent once, in a child run, and return its result, which may be a failure.

        Args:
            input: a text, or any JSON value, which the agent reads as JSON text.
            name: name of the step and of the child run.
            role: role of the step's span: agent, plan, step, finding, synthesis, or your own.
            causes: the entries that the input was made from; by default the entry that opened the turn.
            hear: function that is called with each `AnswerEvent` of the called agent, as its words come, and with a
                `RetractEvent` if words are taken back. The method `aloud` streams the words as this run's answer.

        Raises:
            OtherProgram: the name was used before in this pass, or is on record with another input.
        """
        payload = plain(input)
        content = SystemContent(value=observation_text(payload))
        handed = StepInput(
            agent=agent, run=self._run_name(name), content=content, payload=payload, causes=causes, hear=hear
        )
        return await self._hand(handed, name, role)

    async def go_on(
        self,
        agent: Agent[Any],
        content: SystemContent,
        name: str,
        *,
        thread: str,
        causes: Sequence[Cause] = (),
        hear: Listener | None = None,
    ) -> Result:
        """Call another agent again in the same child run, so that it continues its conversation; see `call`.

        Args:
            content: the task for this turn; its `document` is passed on too.
            name: name of the step.
            thread: name of the child run.
            causes: the entries that the content was made from.
            hear: is called with the events of the child run's answer; see `call`.
        """
        payload = plain(content.value if content.document is None else content.document)
        handed = StepInput(
            agent=agent, run=thread, content=content, payload=payload, causes=causes, hear=hear, thread=True
        )
        return await self._hand(handed, name, "agent")

    async def _hand(self, handed: StepInput, name: str, role: str) -> Result:
        check_called(handed.agent)
        deep = depth_error(self.live.limits, self.live.state)
        if deep is not None:
            raise Stopped(Finish("limit", deep))

        async def work(live: LiveRun, step: WorkflowStep) -> Ended:
            edge, allowance = await self._edge(live, step, handed)
            task = Task(
                name=handed.run,
                key=f"{live.log.run}.{step.begin}",
                content=handed.content,
                cause=(live.log.run, edge),
                source=live.log.path,
                allowance=allowance,
                run=self._children.get(handed.run, ""),
                thread=handed.thread,
                left=await self.unreached(),
            )
            if handed.hear is not None:
                live.broadcast = self._routed(await live.host.child_run(handed.run, live), handed.hear)
            ended = await live.host.child(handed.agent, task, live)
            self._children[handed.run] = ended.run
            end, made = self._answered(ended, name)
            spent = returned(edge, allowance, ended.spent)
            if spent is not None:
                live.write(spent, edge, *made)
            return end, (*made, *handed.causes) if role in GATHERS else made

        step = await self.step(name, work, role=role)
        end, edge = step.end, step.edge
        assert end is not None
        if edge is not None:
            _same(name, edge.payload, handed.payload)
        if too_deep(end.reason, end.error):
            raise Stopped(Finish("limit", end.error))
        ok = end.status == "success"
        text = given_text(end.state) if ok else (end.error.message if end.error else end.reason or "failed")
        reason = end.reason or ("answered" if ok else "failed")
        return Result(name=name, text=text, value=end.state, reason=reason, error=end.error, seq=step.end_seq)

    def note(self, name: str, content: C, causes: Sequence[Cause] = ()) -> tuple[C, Entry]:
        """Write a content (what an entry says) once, under a name. Return the content on record, and its entry.

        Raises:
            OtherProgram: the name was used before in this pass, or is on record with another kind.
            AgentError: only the run itself may write this kind, or set one of the given fields.
        """
        refuse_own(content, "note(...)")
        return self.keep(name, content, causes)

    def keep(self, name: str, content: C, causes: Sequence[Cause] = ()) -> tuple[C, Entry]:
        """Write a content once, as `note` does, but of any kind, including those that `note` refuses."""
        self.use(name)
        entry = self.live.state.steps.notes.get(name)
        if entry is None:
            entry = self.live.log.write(content, tuple(causes), {NOTE_NAME: name})
            self.live.absorb()
        elif entry.kind != content.kind:
            raise OtherProgram(name, f"a note of kind {entry.kind} is on record", f"one of kind {content.kind}")
        return cast("C", entry.content), entry

    def now(self, name: str) -> datetime:
        """Return the current time. If the time is on record under this name, return the recorded time."""
        written, _ = self.note(name, KeyValueContent(key=name, value=utc_text(self.live.clock())))
        return utc_time(written.value)

    async def ask(self, name: str, question: str, schema: dict[str, Any] | None = None) -> Any:
        """Ask a person once, and return the answer. The turn waits until the answer is there.

        Args:
            schema: JSON Schema of the answer; `None` for any text.

        Raises:
            AgentError: the question is not a text, or the schema is not a dict, so that nobody could answer.
            OtherProgram: the name was used before in this pass, or is on record with another question or schema.
        """
        if not ToolQuestion(question, schema).fits():
            found = f"{question!r:.60} with the schema {schema!r:.60}"
            raise AgentError(f"The question {name!r} is {found}, expected a text, and as schema a dict or None.")
        written, entry = self.note(name, QuestionContent(value=question, schema=schema), [self.question])
        _same(name, [written.value, written.schema], [question, schema])
        asked = entry.seq
        answer = self.live.state.steps.answers.get(asked)
        if answer is None:
            self.live.log.journal.sync()
            await self.live.log.durable()
            await take_in(self.live)
            answer = self.live.state.steps.answers.get(asked)
        if answer is None:
            raise await self.rest([Waiting("question", tool=name, of=asked)])
        return answer.value

    async def sleep(self, name: str, until: datetime | float) -> datetime:
        """Wait until a time, or for some seconds, and return the time at which the wait was due to end.

        A finished wait is not repeated, even if the clock is set back: the times of later entries tell that it was due.
        A wait of more than a second stops the program and leaves the turn open; `gesta work` continues the turn when it
        is due.
        """
        due = until if isinstance(until, datetime) else self.live.clock() + timedelta(seconds=until)
        due = self.note(name, TimerContent(due_at=due, key=name), [self.question])[0].due_at
        left = (due - self.live.clock()).total_seconds() if name in self.live.state.steps.timers else 0
        if left > AT_ONCE_S:
            self.live.log.journal.sync()  # the caller is told of the wait
            await self.live.log.durable()
            raise await self.rest([Waiting("timer", tool=name, of=self.live.state.steps.notes[name].seq)])
        await self.live.stop.wait(max(left, 0))
        return due

    def pick(
        self,
        name: str,
        options: Sequence[str],
        *,
        choice: str | None = None,
        why: str | None = None,
        causes: Sequence[Cause] = (),
    ) -> str:
        """Return one of the options, and write it as a decision.

        If a decision is on record under `name`, return the option that was chosen then.

        Args:
            choice: the option to return; without it, an option is drawn at random.
            why: the reason for the choice, to be recorded.
            causes: the entries that the decision is made from; by default the entry that opened the turn.
        """
        if choice is not None and choice not in options:
            found = f"{choice!r} is none of the options.{nearest(choice, options)}"
            raise OtherProgram(name, found, f"one of {', '.join(options)}")
        chosen = choice if choice is not None else random.choice(options)  # noqa: S311 - not for security
        content = DecisionContent(choice=chosen, candidates=list(options), rationale=why)
        return self.note(name, content, causes or (self.question,))[0].choice

    def aloud(self, event: Event) -> None:
        """Stream the answer of a child run as this run's own answer. Pass this method as `hear` to `call`."""
        if event.type == "answer" and event.content:
            self.live.streamed = True
            self.live.tell(AnswerEvent, event.content)
        elif event.type == "retract":
            self.live.streamed = False
            self.live.tell(RetractEvent, "", last=True)

    async def _edge(self, live: LiveRun, step: WorkflowStep, handed: StepInput) -> tuple[int, dict[str, Any] | None]:
        """Write the `edge` entry that starts a child run, unless it is on record.

        Return the seq of the `edge` entry, and the tokens and US dollars that the child run may spend; `None` in place
        of these without a budget.

        Args:
            live: the run that calls the agent.
            handed: the agent and its task.
        """
        written = next((each for each in step.entries if isinstance(each.content, EdgeContent)), None)
        if written is None:
            path, name, allowance = list(live.log.path), handed.agent.name, await self.allowance()
            edge = EdgeContent(source=path, dest=[name], payload=handed.payload, allowance=allowance)
            written = live.write(edge, *(handed.causes or (self.question,)))
            live.absorb()
            live.log.journal.sync()
        assert isinstance(written.content, EdgeContent)
        _same(step.name, written.content.payload, handed.payload)
        return written.seq, written.content.allowance

    def _routed(self, run: str, hear: Listener) -> Broadcast:
        """Return a broadcast that sends the answer of one run to `hear`, and all other words to the turn's listeners.

        Args:
            run: id of the run.
        """
        above, routed = self.live.broadcast, Broadcast()

        def route(event: Event, durable: int) -> None:
            if event.run == run and event.type in ("answer", "retract"):
                hear(event)
            else:
                above.tell(event, durable)

        routed.join(route)
        return routed

    def _answered(self, ended: Outcome, name: str) -> Ended:
        if ended.end is None:
            waits = [msgspec.structs.replace(each, run=each.run or ended.run) for each in ended.waiting]
            raise self.wait(waits or [Waiting("child", tool=name, run=ended.run)])
        ok = ended.reason == "answered"
        status = "success" if ok else "error"
        doubts = list(ended.doubts) or None
        end = EndContent(state=ended.given, status=status, reason=ended.reason, error=ended.error, doubts=doubts)  # type: ignore[arg-type]
        return end, ((ended.run, ended.end),)

    def _run_name(self, name: str) -> str:
        """Return the name of a step's child run. A number is added if an earlier turn used the name of the step."""
        check_name(name)
        before = self.live.state.steps.before.get(name, 0)
        return f"{name}#{before + 1}" if before or "#" in name else name


def _same(name: str, written: Any, handed: Any) -> None:
    """Raise OtherProgram if the input of a step or of a question differs from the input on record."""
    if written != handed and digest_of(written) != digest_of(as_recorded(handed)):
        found = f"it is on record with the input {observation_text(written)!r:.200}"
        raise OtherProgram(name, found, f"the same, got {observation_text(handed)!r:.200}")
