"""The base of patterns that run step by step, under the names of TrustGraph's `PatternBase`.

`iterate` is written as in TrustGraph. What differs lies below it: a finished step is on the record, so a pattern that
was interrupted runs again from its start and does nothing twice. `next` goes on with the next step. Each `emit_` writes
one node of the explanation, and its explain event is sent once the node is durable. New code needs none of this: an
async function of the verbs does the same.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

import anyio
import msgspec

from gesta.agent import Agent, Unanswered
from gesta.codec.rows import digest_of
from gesta.compat.trustgraph.context import Action, Flow, Next, Prompted, Respond, Say, UserAwareContext, teller
from gesta.compat.trustgraph.requests import AgentRequest, AgentResponse, HistoryStep
from gesta.decide.move import Finish
from gesta.entry import Cause
from gesta.events import Event
from gesta.function_tool.tool import Tool
from gesta.kinds import Content, EndContent, Error, PlanContent, Step, ToolCallContent, ToolResultContent
from gesta.model.request import Model
from gesta.patterns.roles import Prompts, answer_of, role
from gesta.perform.child import call_key
from gesta.perform.execution import LiveRun
from gesta.state.steps import WorkflowStep
from gesta.workflow.step import Ended, Stopped
from gesta.workflow.verbs import Verbs

PROMPT = ("prompt", "prompt-request")
LIMIT = 10
COMPLETION = "subagent-completion"


class Pattern:
    """What a pattern is made of: the verbs, and the services that all patterns share."""

    limit: ClassVar[int] = LIMIT
    """Steps that it may take."""
    prompts: ClassVar[Prompts] = {}
    """Texts in place of those in `prompts/`."""

    def __init__(self, verbs: Verbs) -> None:
        self.verbs = verbs
        self.call, self.note, self.now, self.pick = verbs.call, verbs.note, verbs.now, verbs.pick
        self.answer: str | None = None
        """Set by the response that ends the dialogue."""
        self._final: str | None = None
        self._told: list[str] = []
        """Words of the answer that were told."""
        self._asked: dict[str, int] = {}
        self.last: Cause = verbs.question
        """What the next node derives from, unless another cause is named."""
        self._parts: list[Cause] = []
        self._context: UserAwareContext | None = None

    @classmethod
    def agent(cls, name: str, model: Model | str, *, tools: Sequence[Tool] = (), instructions: str = "") -> Agent:
        """Make an agent that takes its turns by this pattern."""

        async def program(verbs: Verbs, question: str) -> str:
            return await cls(verbs).advance(question)

        program.__qualname__ = f"{cls.__qualname__}.advance"
        return Agent(name, model=model, tools=tuple(tools), instructions=instructions, program=program)

    async def iterate(self, request: AgentRequest, respond: Respond, next: Next, flow: Flow) -> None:
        """Run one step: pass the request of the next step to `next`, or end with `send_final_response`."""
        raise NotImplementedError(f"{type(self).__name__} has no iterate(request, respond, next, flow)")

    async def advance(self, question: str) -> str:
        """Run steps until one answers.

        Raises:
            Stopped: `limit` steps were run without an answer.
            Unanswered: a step neither answered nor asked for another.
        """
        await self.verbs.live.log.durable()  # whoever listens hears of the question before the first words
        waiting = [self.first_request(question)]

        async def go_on(request: AgentRequest) -> None:
            last = request.history[-1] if request.history else None
            if last is not None and last.step_type == COMPLETION:
                self.answer = last.observation
            waiting.append(request)

        for _ in range(self.limit):
            await self.iterate(waiting.pop(), self.respond, go_on, self.flow)
            if self.answer is not None:
                return self.answer
            if not waiting:
                raise Unanswered("The pattern neither answered nor asked for another step.")
        message = f"The pattern reached its limit of {self.limit} steps without an answer."
        raise Stopped(Finish("limit", Error(type="steps", message=message)))

    def first_request(self, question: str) -> AgentRequest:
        """Make the request of the first step from the turn that is taken."""
        agent, live = self.verbs.agent, self.verbs.live
        opened = live.state.opened
        assert opened is not None
        parent = opened.parent_run or ""
        return AgentRequest(
            question=question,
            state=agent.state,
            group=None if agent.groups is None else list(agent.groups),
            user=live.state.user or "",
            streaming=live.streaming,
            session_id=live.log.run,
            conversation_id=opened.session,
            framing=agent.instructions,
            correlation_id=parent,
            parent_session_id=parent,
            subagent_goal=question if parent else "",
        )

    async def respond(self, response: AgentResponse) -> None:
        """Send the listener a response. The one that ends the dialogue is sent once the answer is durable."""
        live = self.verbs.live
        if response.message_type == "answer" and response.end_of_dialog:
            told = "".join(self._told)
            self.answer = self._final if self._final is not None else told + response.content
            if self._told and told != self.answer:
                self._take_back()
        elif response.message_type == "answer":
            self._told.append(response.content)
            self.verbs.aloud(Event(type="answer", content=response.content))
        elif response.message_type == "thought":
            live.tell_now("thought", response.content, last=response.end_of_message)
        elif response.message_type == "observation":
            live.tell_now("observation", response.content, last=response.end_of_message)
        # explain events go out with the entries that they tell of; an error is what a pattern raises

    def _take_back(self) -> None:
        self._told.clear()
        self.verbs.aloud(Event(type="retract"))

    def flow(self, service_name: str) -> Any:
        """Return the service `prompt`, in which a role answers.

        Raises:
            LookupError: there is no other; give `make_context` a flow of your own.
        """
        if service_name in PROMPT:
            return self
        raise LookupError(f"No service {service_name!r}. Known: {', '.join(PROMPT)}.")

    async def prompt(
        self,
        id: str,
        variables: Mapping[str, Any],
        streaming: bool = False,  # noqa: FBT001, FBT002 - as its users write it
        chunk_callback: Callable[[str, bool], Awaitable[None]] | None = None,
    ) -> str:
        """Have a role answer once, its variables handed over as typed JSON. Raises Unanswered."""
        agent = role(self.verbs, id, self.prompts)
        name = f"{id} {digest_of([id, dict(variables)])[:8]}"
        self._asked[name] = number = self._asked.get(name, 0) + 1
        send, receive = anyio.create_memory_object_stream[Event](float("inf"))
        heard: list[str] = []

        async def tell() -> None:
            async for event in receive:
                if event.type == "retract":
                    heard.clear()
                    self._take_back()
                elif event.type != "answer":
                    self.verbs.live.pass_on(event)
                elif event.content and chunk_callback is not None and streaming:
                    heard.append(event.content)
                    await chunk_callback(event.content, False)  # noqa: FBT003 - as its users write it

        named = name if number == 1 else f"{name} ({number})"
        async with receive, anyio.create_task_group() as group:
            group.start_soon(tell)
            with send:
                said = await self.call(agent, dict(variables), named, causes=[self.last], hear=send.send_nowait)
        self.last = said.seq
        answer = answer_of(said)
        if chunk_callback is not None and streaming:
            if not heard:  # it stood on record
                await chunk_callback(answer, False)  # noqa: FBT003 - as its users write it
            await chunk_callback("", True)  # noqa: FBT003 - as its users write it
        return answer

    async def prompt_as_answer(
        self,
        client: Prompted,
        prompt_id: str,
        variables: Mapping[str, Any],
        respond: Respond,
        streaming: bool,  # noqa: FBT001 - as its users write it
    ) -> str:
        """Have a prompt answered, telling its words as the answer when streaming, and give the whole."""
        if not streaming:
            return await client.prompt(id=prompt_id, variables=variables)

        async def on_chunk(text: str, _end: bool) -> None:  # noqa: FBT001 - as its users write it
            if text:
                await respond(AgentResponse(message_type="answer", content=text))

        return await client.prompt(id=prompt_id, variables=variables, streaming=True, chunk_callback=on_chunk)

    async def send_final_response(
        self,
        respond: Respond,
        streaming: bool,  # noqa: FBT001 - as its users write it
        answer_text: str,
        already_streamed: bool = False,  # noqa: FBT001, FBT002 - as its users write it
    ) -> None:
        """Send the answer and end the dialogue. Words that were sent before are not sent again."""
        self._final = answer_text
        if streaming and not already_streamed and answer_text:
            await respond(AgentResponse(message_type="answer", content=answer_text))
        whole = "" if streaming else answer_text
        await respond(AgentResponse(message_type="answer", content=whole, end_of_message=True, end_of_dialog=True))

    def make_think_callback(self, respond: Respond, streaming: bool, message_id: str = "") -> Say:  # noqa: FBT001 - as its users write it
        """Make what tells thoughts."""
        return teller("thought", respond, streaming, message_id)

    def make_observe_callback(self, respond: Respond, streaming: bool, message_id: str = "") -> Say:  # noqa: FBT001 - as its users write it
        """Make what tells observations."""
        return teller("observation", respond, streaming, message_id)

    def make_answer_callback(self, respond: Respond, streaming: bool) -> Say:  # noqa: FBT001 - as its users write it
        """Make what tells the answer, or pieces of it when streaming."""
        tell = teller("answer", respond, streaming, "")

        async def answer(text: str) -> None:
            await tell(text)

        return answer

    def make_context(
        self,
        flow: Flow,
        user: str,
        respond: Respond | None = None,
        streaming: bool = False,  # noqa: FBT001, FBT002 - as its users write it
    ) -> UserAwareContext:
        """Wrap a flow so that it knows for whom it works."""
        live, made = self.verbs.live, UserAwareContext(flow, user, respond=respond, streaming=streaming)
        opened = live.state.opened
        assert opened is not None
        made.current_explain_uri = self._id(self.last)
        made.key = call_key(opened.record, live.log.run, self.verbs.question)
        made.clock = live.clock
        made.cancelled = lambda: live.state.turn is not None and live.state.turn.cancelled is not None
        self._context = made
        return made

    def _id(self, cause: Cause) -> str:
        run, seq = cause if isinstance(cause, tuple) else (self.verbs.live.log.run, cause)
        return f"{run}.{seq}"

    def is_subagent(self, request: AgentRequest) -> bool:
        """Return whether another agent asks."""
        return bool(request.correlation_id)

    def filter_tools(self, tools: Sequence[Tool], request: AgentRequest) -> list[Tool]:
        """Return the tools that a request may use in its state; the engine does the same before each model is asked."""
        groups = {"default"} if request.group is None else set(request.group)
        return [tool for tool in tools if tool.offered(groups, request.state or "undefined")]

    def build_history(self, request: AgentRequest) -> list[Action]:
        """Read the actions out of a history."""
        return [
            Action(thought=each.thought, name=each.action, arguments=each.arguments, observation=each.observation)
            for each in request.history
        ]

    def build_next_request(
        self,
        request: AgentRequest,
        history: Sequence[Action],
        session_id: str,
        collection: str,
        streaming: bool,  # noqa: FBT001 - as its users write it
        next_state: str,
    ) -> AgentRequest:
        """Make the request of the next step; arguments stay what they were, and nothing else is lost."""
        taken = [
            HistoryStep(thought=each.thought, action=each.name, arguments=each.arguments, observation=each.observation)
            for each in history
        ]
        return msgspec.structs.replace(
            request, history=taken, session_id=session_id, collection=collection, streaming=streaming, state=next_state
        )

    async def emit_subagent_completion(self, request: AgentRequest, next: Next, answer_text: str) -> None:
        """End a sub-agent's work with its answer: `advance` takes it for that, and its run's `end` is the finding."""
        done = HistoryStep(
            thought="Subagent completed", action="complete", observation=answer_text, step_type=COMPLETION
        )
        await next(msgspec.structs.replace(request, history=[done], state="", pattern="", streaming=False))

    async def emit_session(self) -> int:
        """Return the seq of the question, which was written and sent as the turn began."""
        return self.verbs.question

    async def emit_iteration(self, iteration_num: int, act: Action, causes: Sequence[Cause] = ()) -> int:
        """Write what was decided, before it is done; it derives from the question, or what was seen or said last."""
        meta = {"thought": act.thought} if act.thought else None
        content = ToolCallContent(tool_name=act.name, tool_args=act.arguments, meta=meta)
        return await self._emit(f"iteration {iteration_num}", content, causes or [self.last])

    async def emit_observation(self, iteration_num: int, observation: Any, error: str | None = None) -> int:
        """Write what came of an iteration."""
        call = self._noted(f"iteration {iteration_num}")
        outcome: Any = "ok" if error is None else "error"
        status: Any = "success" if error is None else "error"
        result = observation if error is None else error
        content = ToolResultContent(call=call, tool_result=result, status=status, outcome=outcome)
        return await self._emit(f"observation {iteration_num}", content, [call])

    async def emit_final(self, answer_text: str, causes: Sequence[Cause] = ()) -> None:
        """Set what the answer derives from. The engine writes the answer, and sends it, as the turn ends."""
        self._final = answer_text
        self.verbs.sources = tuple(causes or [self.last])

    async def emit_decomposition(self, goals: Sequence[str], causes: Sequence[Cause] = ()) -> int:
        """Write the goals that a question was divided into."""
        content = PlanContent(role="decomposition", steps=[Step(goal=goal) for goal in goals])
        return await self._emit("decomposition", content, causes or [self.last])

    async def emit_plan(self, steps: Sequence[Step | str], causes: Sequence[Cause] = ()) -> int:
        """Write a plan."""
        content = PlanContent(
            role="plan", steps=[each if isinstance(each, Step) else Step(goal=each) for each in steps]
        )
        return await self._emit("plan", content, causes or [self.last])

    async def emit_finding(self, index: int, goal: str, answer_text: str, causes: Sequence[Cause] = ()) -> int:
        """Write what a goal came to, where no `call` with the role `finding` did."""
        return await self._gave(
            "finding", f"finding {index}", (goal, answer_text), causes or [self._noted("decomposition")]
        )

    async def emit_step_result(self, index: int, goal: str, answer_text: str, causes: Sequence[Cause] = ()) -> int:
        """Write what a step came to, where no `call` with the role `step` did; causes: the plan and what it used."""
        return await self._gave("step", f"step {index}", (goal, answer_text), causes or [self._noted("plan")])

    async def emit_synthesis(self, answer_text: str, causes: Sequence[Cause] = ()) -> int:
        """Write what was made of all that was found, where no `call` with the role `synthesis` did."""
        seq = await self._gave("synthesis", "synthesis", ("", answer_text), causes or self._parts or [self.last])
        self.verbs.sources = (seq,)
        return seq

    async def _emit(self, name: str, content: Content, causes: Sequence[Cause]) -> int:
        """Write a note, and wait until it is durable and told of."""
        _, entry = self.note(name, content, causes)
        self.last = entry.seq
        if self._context is not None:
            self._context.current_explain_uri = entry.id
        await self.verbs.live.log.durable()
        return entry.seq

    async def _gave(self, role: str, name: str, said: tuple[str, str], causes: Sequence[Cause]) -> int:
        """Write a step that gave a text."""
        goal, text = said

        async def work(_desk: LiveRun, _step: WorkflowStep) -> Ended:
            return EndContent(state=text, goal=goal or None), tuple(causes)

        written = await self.verbs.step(name, work, role=role)
        await self.verbs.live.log.durable()
        self.last = written.end_seq
        if role != "synthesis":
            self._parts.append(written.end_seq)
        return written.end_seq

    def _noted(self, name: str) -> int:
        entry = self.verbs.live.state.steps.notes.get(name)
        return entry.seq if entry is not None else self.verbs.question
