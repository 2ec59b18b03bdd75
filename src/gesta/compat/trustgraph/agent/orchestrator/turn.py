"""A turn of a run, as the `flow` (the source of services) that TrustGraph's patterns expect.

A turn is the work on one question. A run is a list of entries. An entry's seq is its number in its run, and its causes
are the entries it was made from. All work that a pattern does through the flow is recorded: a prompt as a child run,
the use of a tool as a tool call, an emitted step as an entry. So an interrupted pattern is run again from its start,
but repeats no recorded work. A pattern asks for its next step by calling `next`; that step is in the same turn.
"""
# ruff: noqa: FBT001, FBT002, FBT003 - as its users write it

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import anyio
import msgspec

from gesta.agent import Agent, Unanswered
from gesta.codec.rows import digest_of
from gesta.compat.trustgraph.agent.orchestrator.fan_out import fan_out, synthesis_request
from gesta.compat.trustgraph.context import Action, UserAwareContext
from gesta.compat.trustgraph.requests import AgentRequest, AgentResponse
from gesta.compat.trustgraph.schema import Triples
from gesta.decide.move import Close, Finish, Wait, decide_calls
from gesta.decide.open_call import placeholder
from gesta.entry import Cause, Entry
from gesta.events import AnswerEvent, Event, ObservationEvent, RetractEvent, ThoughtEvent
from gesta.function_tool.tool import Tool
from gesta.kinds import (
    Content,
    EndContent,
    Error,
    PlanContent,
    Step,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
)
from gesta.loop import step
from gesta.patterns.roles import Prompts, answer_of, role, take
from gesta.perform.child import call_key
from gesta.perform.execution import LiveRun, Telling
from gesta.perform.move import perform
from gesta.prompt import observation_text
from gesta.state.steps import WorkflowStep
from gesta.workflow.step import Ended, Stopped
from gesta.workflow.verbs import Verbs

PROMPT = ("prompt", "prompt-request")
EXPLAIN = "explainability"
COMPLETION = "subagent-completion"
TOLD: dict[str, Telling] = {"thought": ThoughtEvent, "observation": ObservationEvent}
Chunk = Callable[[str, bool], Awaitable[None]]


class Stepping(Protocol):
    """Protocol of a pattern: the methods that a turn calls."""

    @property
    def iterate(self) -> Callable[..., Awaitable[None]]:
        """The function that runs one step."""

    @property
    def emit_finding_triples(self) -> Callable[..., Awaitable[None]]:
        """The function that saves a sub-agent's answer and sends RDF triples about it."""


class PatternTurn:
    """One turn of a pattern, which runs the pattern's steps and records the work of each step."""

    def __init__(self, verbs: Verbs, prompts: Mapping[str, Any], limit: int) -> None:
        self.verbs = verbs
        self.most = limit
        """Largest number of steps in the turn."""
        self.texts: Prompts = {
            name: text if isinstance(text, str) else text["prompt"] for name, text in prompts.items()
        }
        self._typed = {name for name, text in prompts.items() if not isinstance(text, str) and _typed(text)}
        """Names of the prompts whose answer is JSON."""
        self.answer: str | None = None
        """The answer; `None` until the response that ends the dialogue has set it."""
        self._final: str | None = None
        self._told: list[str] = []
        """Pieces of the answer that were streamed to listeners."""
        self._seen: str | None = None
        """A tool result that listeners have already received. An observation with the same text is not sent again."""
        self._asked: dict[str, int] = {}
        self.last: Cause = verbs.question
        """The newest entry of the pattern. By default the next entry names it as its cause."""
        self._parts: list[Cause] = []
        self._read: list[Cause] = []
        """Findings of sub-agents that no prompt has used yet. They are the causes of the next prompt."""
        self._context: UserAwareContext | None = None

    async def advance(self, question: str, pattern: Stepping, workers: Mapping[str, Agent]) -> str:
        """Run steps until the pattern answers, and return the answer.

        Args:
            workers: the agents that answer requests to sub-agents, by the name of the pattern in the request.

        Raises:
            Stopped: the limit of steps (`self.most`) was reached without an answer.
            Unanswered: a step neither answered nor asked for another step.
        """
        await self.verbs.live.log.durable()  # listeners receive the question before the first words
        waiting, sent = [self.first_request(question)], list[AgentRequest]()

        async def go_on(request: AgentRequest) -> None:
            last = request.history[-1] if request.history else None
            if last is not None and last.step_type == COMPLETION:
                self.answer = last.observation
            goes_below = request.parent_session_id == self.verbs.live.log.run
            (sent if goes_below else waiting).append(request)

        for _ in range(self.most):
            taken = waiting.pop()
            await pattern.iterate(taken, self.respond, go_on, self)
            if self.answer is not None:
                return self.answer
            if sent:
                waiting.append(await self._joined(taken, sent, pattern, workers))
                sent.clear()
            if not waiting:
                raise Unanswered("The pattern neither answered nor asked for another step.")
        message = f"The pattern reached its limit of {self.most} steps without an answer."
        raise Stopped(Finish("limit", Error(type="steps", message=message)))

    async def _joined(
        self, request: AgentRequest, sent: Sequence[AgentRequest], pattern: Stepping, workers: Mapping[str, Agent]
    ) -> AgentRequest:
        """Run one of `workers` for each request in `sent`. Return the request for the next step, with their answers."""
        first = len(self._parts)
        found = await fan_out(self.verbs, sent, workers, first, self.last)
        self._read = [result.seq for _, result in found]
        for place, (goal, result) in enumerate(found, first):
            at = (request.user, request.collection, self.respond, request.streaming)
            await pattern.emit_finding_triples(self, self.verbs.live.log.run, place, goal, result.text, *at)
        return synthesis_request(request, found)

    def first_request(self, question: str) -> AgentRequest:
        """Return the request for the first step of the turn, made from its question and its agent."""
        agent, live = self.verbs.agent, self.verbs.live
        opened = live.state.opened
        assert opened is not None
        parent = opened.parent_run or ""
        return AgentRequest(
            question=question,
            state=agent.state,
            group=None if agent.groups is None else list(agent.groups),
            user=live.state.user or "",
            streaming=bool(live.broadcast.listeners),
            session_id=live.log.run,
            conversation_id=opened.session,
            framing=agent.instructions if isinstance(agent.instructions, str) else "",
            correlation_id=parent,
            parent_session_id=parent,
            subagent_goal=question if parent else "",
        )

    async def respond(self, response: AgentResponse) -> None:
        """Send a response to the listeners. An answer that ends the dialogue is not sent but kept in `answer`.

        Gesta sends this answer after it is safely stored. Raises Unanswered if `response` reports an error.
        """
        live, told, text = self.verbs.live, "".join(self._told), response.content
        match response.message_type:
            case "answer" if response.end_of_dialog:
                self.answer = self._final if self._final is not None else told + text
                if self._told and told != self.answer:
                    self._take_back()
            case "answer":
                self._told.append(text)
                self.verbs.aloud(AnswerEvent(content=text))
            case "observation" if text == self._seen:  # the engine sent it with the result
                self._seen = None
            case "thought" | "observation" as kind:
                live.tell(TOLD[kind], text, last=response.end_of_message)
            case "error":
                raise Unanswered(text)
            case _:  # explain events are sent together with the entries that they describe
                pass

    def _take_back(self) -> None:
        self._told.clear()
        self.verbs.aloud(RetractEvent())

    def __call__(self, service_name: str) -> Any:
        """Return the service with this name, `prompt` or `explainability`. This object offers both.

        Raises:
            LookupError: the service is unknown. For other services, pass a flow of your own to `make_context`.
        """
        if service_name in (*PROMPT, EXPLAIN):
            return self
        raise LookupError(f"No service {service_name!r}. Known: {', '.join((*PROMPT, EXPLAIN))}.")

    async def send(self, triples: Triples) -> None:
        """Ignore RDF triples: the record already has their facts, and `gesta export` writes them as triples."""

    async def prompt(
        self, id: str, variables: Mapping[str, Any], streaming: bool = False, chunk_callback: Chunk | None = None
    ) -> Any:
        """Ask a model with the prompt named `id`, and return the answer; at once if the answer is on record.

        It is a text, or a JSON value if the prompt's `response-type` is `json`. Raises Unanswered if there is none.

        Args:
            variables: the values to fill into the prompt.
            streaming: whether `chunk_callback` gets each piece of the answer as it arrives.
        """
        agent = role(self.verbs, id, self.texts)
        send, receive = anyio.create_memory_object_stream[Event](float("inf"))
        heard: list[str] = []

        async def tell() -> None:
            async for event in receive:
                if event.type == "retract":
                    heard.clear()
                    self._take_back()
                elif event.content and chunk_callback is not None and streaming:
                    heard.append(event.content)
                    await chunk_callback(event.content, False)

        named, causes, self._read = self._named(id, dict(variables)), self._read or [self.last], []
        async with receive, anyio.create_task_group() as group:
            group.start_soon(tell)
            with send:
                said = await self.verbs.call(agent, dict(variables), named, causes=causes, hear=send.send_nowait)
        self.last = said.seq
        answer = answer_of(said)
        if chunk_callback is not None and streaming:
            if not heard:  # the answer was already on record
                await chunk_callback(answer, False)
            await chunk_callback("", True)
        return take(answer, Any) if id in self._typed else answer

    async def agent_react(
        self, variables: Mapping[str, Any], streaming: bool = False, chunk_callback: Chunk | None = None
    ) -> str:
        """Return the answer to the prompt named `agent-react`, as `prompt` does."""
        return str(await self.prompt("agent-react", variables, streaming, chunk_callback))

    async def use(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Run a tool and return its result, or its error, as text. A result that is on record is returned at once.

        If the pattern's newest entry is a call of this tool without a result, that call is run. Otherwise a new call is
        recorded and run.
        """
        emitted, agent = self._open(tool.name), msgspec.structs.replace(self.verbs.agent, tools=[tool])

        async def work(live: LiveRun, done: WorkflowStep) -> Ended:
            entries = list(done.entries)
            seq = emitted or next((each.seq for each in entries if isinstance(each.content, ToolCallContent)), 0)
            if not seq and not any(isinstance(each.content, ToolResultContent) for each in entries):
                call = ToolCallContent(tool_name=tool.name, tool_args=dict(arguments))
                seq = live.write(call, self.last).seq
                live.absorb()
            while seq in live.state.calls:
                move, made = await step(agent, live, decide_calls)
                entries += made
                if move is None:  # the call was denied, or cannot be carried out
                    entries += await perform(agent, Close((placeholder(agent, live.state.calls[seq]),), None), live)
                if isinstance(move, Wait):
                    raise self.verbs.wait(move.what)
                if isinstance(move, Finish):
                    raise Stopped(move)
            result = next(each for each in entries if isinstance(each.content, ToolResultContent))
            assert isinstance(result.content, ToolResultContent)
            return EndContent(state=observation_text(result.content.tool_result)), (result.seq,)

        written = await self.verbs.step(self._named(tool.name, dict(arguments)), work, role="tool")
        assert written.end is not None
        self.last, self._seen = written.end_seq, str(written.end.state).strip()
        return str(written.end.state)

    def _open(self, tool: str) -> int:
        """Return the seq of the newest entry if that entry is a call of this tool without a result; else 0."""
        calls = self.verbs.live.state.calls
        return next((seq for seq in reversed(calls) if seq == self.last and calls[seq].name == tool), 0)

    def _named(self, name: str, given: Mapping[str, Any]) -> str:
        """Return a name for a workflow step with the input `given`. If the same input comes again, add a number."""
        name = f"{name} {digest_of([name, given])[:8]}"
        self._asked[name] = number = self._asked.get(name, 0) + 1
        return name if number == 1 else f"{name} ({number})"

    def dress(self, context: UserAwareContext) -> None:
        """Set the context's fields `current_explain_uri`, `key`, `clock` and `cancelled` to the values of this turn."""
        live = self.verbs.live
        opened = live.state.opened
        assert opened is not None
        context.current_explain_uri = self._id(self.last)
        context.key = call_key(opened.record, live.log.run, self.verbs.question)
        context.clock = live.clock
        context.cancelled = lambda: live.state.turn is not None and live.state.turn.cancelled is not None
        self._context = context

    def _id(self, cause: Cause) -> str:
        run, seq = cause if isinstance(cause, tuple) else (self.verbs.live.log.run, cause)
        return f"{run}.{seq}"

    async def emit_session(self) -> int:
        """Return the seq of the question, which was recorded when the turn began."""
        return self.verbs.question

    async def emit_iteration(self, iteration_num: int, act: Action, causes: Sequence[Cause] = ()) -> int:
        """Record an action before it runs, and return the entry's seq. Default cause: the pattern's newest entry."""
        content = ToolCallContent(tool_name=act.name, tool_args=act.arguments)
        seq = await self._emit(f"iteration {iteration_num}", content, causes or [self.last])
        if act.thought:
            self.verbs.note(f"thought {iteration_num}", ThoughtContent(value=act.thought), [seq])
            await self.verbs.live.log.durable()
        return seq

    async def emit_observation(self, iteration_num: int, observation: Any, error: str | None = None) -> int:
        """Record the result of an action, unless a tool's result records it. Return the seq of the newest entry."""
        call, name = self._noted(f"iteration {iteration_num}"), f"observation {iteration_num}"
        if call != self.verbs.question and call not in self.verbs.live.state.calls and not self._written(name):
            return self.last if isinstance(self.last, int) else self.last[1]
        outcome: Any = "ok" if error is None else "error"
        status: Any = "success" if error is None else "error"
        result = observation if error is None else error
        content = ToolResultContent(call=call, tool_result=result, status=status, outcome=outcome)
        return await self._emit(name, content, [call])

    async def emit_final(self, answer_text: str, causes: Sequence[Cause] = ()) -> None:
        """Set the answer's text and its causes. Gesta records and sends the answer when the turn ends."""
        self._final = answer_text
        self.verbs.sources = tuple(causes or [self.last])

    async def emit_decomposition(self, goals: Sequence[str], causes: Sequence[Cause] = ()) -> int:
        """Record the goals into which a question was divided, and return the seq of the entry."""
        content = PlanContent(role="decomposition", steps=[Step(goal=goal) for goal in goals])
        return await self._emit("decomposition", content, causes or [self.last])

    async def emit_plan(self, steps: Sequence[Step | str], causes: Sequence[Cause] = ()) -> int:
        """Record a plan, and return the seq of the entry."""
        content = PlanContent(
            role="plan", steps=[each if isinstance(each, Step) else Step(goal=each) for each in steps]
        )
        return await self._emit("plan", content, causes or [self.last])

    async def emit_finding(self, index: int, goal: str, answer_text: str, causes: Sequence[Cause] = ()) -> int:
        """Record a sub-agent's answer to `goal`, as finding `index`, if not yet recorded. Return the entry's seq."""
        named = causes or self._since("decomposition")
        return await self._gave("finding", f"finding {index}", (goal, answer_text), named)

    async def emit_step_result(self, index: int, goal: str, answer_text: str, causes: Sequence[Cause] = ()) -> int:
        """Record the result of the plan's step `index`, unless the record has it. Return the seq of the entry.

        Args:
            causes: by default the plan and the newest entry, but never the result of another step.
        """
        return await self._gave("step", f"step {index}", (goal, answer_text), causes or self._since("plan"))

    async def emit_synthesis(self, answer_text: str, causes: Sequence[Cause] = ()) -> int:
        """Record the answer made from all sub-agents' results, if not yet recorded. Return the seq of its entry."""
        named = causes or [*self._parts, *([self.last] if self.last not in self._parts else [])]
        seq = await self._gave("synthesis", "synthesis", ("", answer_text), named)
        self.verbs.sources = (seq,)
        return seq

    def _since(self, name: str) -> list[Cause]:
        """Return default causes: the entry `name` (`plan`, …), and the newest entry unless that is a step's result."""
        noted = self._noted(name)
        return [noted, *([self.last] if self.last not in (noted, *self._parts) else [])]

    async def _emit(self, name: str, content: Content, causes: Sequence[Cause]) -> int:
        """Write an entry, unless the turn has one of this name. Return its seq when it is safely stored."""
        _, entry = self.verbs.note(name, content, causes)
        self.last = entry.seq
        if self._context is not None:
            self._context.current_explain_uri = entry.id
        await self.verbs.live.log.durable()
        return entry.seq

    async def _gave(self, role: str, name: str, said: tuple[str, str], causes: Sequence[Cause]) -> int:
        """Record `said` (goal, text) as a step with this name, unless a child run did. Return the seq of its `end`."""
        goal, text = said
        written = self.verbs.live.state.steps.named.get(name)

        async def work(_live: LiveRun, _step: WorkflowStep) -> Ended:
            return EndContent(state=text, goal=goal or None), tuple(causes)

        if written is None or written.edge is None:  # no child run recorded the result
            written = await self.verbs.step(name, work, role=role)
        await self.verbs.live.log.durable()
        self.last = written.end_seq
        if role != "synthesis":
            self._parts.append(written.end_seq)
        return written.end_seq

    def _written(self, name: str) -> Entry | None:
        return self.verbs.live.state.steps.notes.get(name)

    def _noted(self, name: str) -> int:
        entry = self._written(name)
        return entry.seq if entry is not None else self.verbs.question


def _typed(prompt: Mapping[str, Any]) -> bool:
    return prompt.get("response-type") == "json"
