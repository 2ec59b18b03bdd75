"""The base class of patterns, with the method names and parameters of TrustGraph's class.

A pattern is a class that runs an agent step by step; an instance stores nothing between steps. A flow is an object that
returns services by name. Triples are RDF statements that explain a step. An iteration is a step with an action and its
observation (the result). A finding is the answer of a sub-agent. In a recorded turn (the work on one question), `flow`
is a `PatternTurn`. Each `emit_` method then writes an entry to the record, saves the content with the processor, and
sends the triples. With any other flow, no entry is written.
"""
# ruff: noqa: FBT001, FBT002 - as its users write it

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from gesta.agent import Agent
from gesta.compat.trustgraph import provenance as prov
from gesta.compat.trustgraph.agent.orchestrator.processor import Processor
from gesta.compat.trustgraph.agent.orchestrator.turn import COMPLETION, PatternTurn
from gesta.compat.trustgraph.agent.tool_filter import filter_tools_by_group_and_state
from gesta.compat.trustgraph.context import Action, Flow, Next, Prompted, Respond, Say, UserAwareContext
from gesta.compat.trustgraph.provenance import GRAPH_RETRIEVAL, set_graph
from gesta.compat.trustgraph.schema import AgentRequest, AgentResponse, AgentStep, Metadata, Triple, Triples
from gesta.function_tool.tool import Tool
from gesta.model.request import Model
from gesta.workflow.verbs import Verbs

LOGGER = logging.getLogger("gesta")
LIMIT = 10


class PatternBase:
    """Base class of patterns. A pattern is a subclass that defines `iterate`, the method that does one step."""

    limit: ClassVar[int] = LIMIT
    """Largest number of steps in a turn."""
    prompts: ClassVar[Mapping[str, Any]] = {}
    """Prompts by name. Each is a text, or a mapping with `prompt` and `response-type` (`text` or `json`)."""
    patterns: ClassVar[Mapping[str, "type[PatternBase]"]] = {}
    """Patterns of sub-agents, by the name in a request. Any other name means a plain agent with the same tools."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    @classmethod
    def agent(
        cls,
        name: str,
        model: Model | str,
        *,
        tools: Sequence[Tool] = (),
        instructions: str = "",
        processor: Any = None,
    ) -> Agent:
        """Return an agent whose turns are run by this pattern.

        Args:
            processor: object with `save_answer_content`. By default, contents are stored in the record only.
        """

        async def program(verbs: Verbs, question: str) -> str:
            turn, pattern = cls._at_work(verbs, processor)
            workers = {name: each.agent(name, model, processor=processor) for name, each in cls.patterns.items()}
            return await turn.advance(question, pattern, workers)

        program.__qualname__ = f"{cls.__qualname__}.advance"
        return Agent(name, model=model, tools=tuple(tools), instructions=instructions, program=program)

    @classmethod
    def _at_work(cls, verbs: Verbs, processor: Any) -> tuple[PatternTurn, "PatternBase"]:
        """Return a new turn, which runs the steps of a pattern, and a new instance of this pattern for it."""
        turn = PatternTurn(verbs, cls.prompts, cls.limit)
        return turn, cls(processor if processor is not None else Processor(turn))

    def is_subagent(self, request: AgentRequest) -> bool:
        """Return whether a request is for a sub-agent."""
        return bool(getattr(request, "correlation_id", ""))

    async def emit_subagent_completion(self, request: AgentRequest, next: Next, answer_text: str) -> None:
        """End the work of a sub-agent by calling `next` with its answer. The sub-agent's run stores the answer."""
        done = AgentStep(thought="Subagent completed", action="complete", observation=answer_text, step_type=COMPLETION)
        fresh = {"state": "", "pattern": "", "task_type": "", "framing": "", "streaming": False}
        await next(_request(request, {"history": [done], **fresh}))

    def filter_tools(self, tools: Any, request: AgentRequest) -> Any:
        """Return the tools that a request may use: as a mapping if `tools` is a mapping, else as a list."""
        groups, state = getattr(request, "group", None), getattr(request, "state", None)
        if isinstance(tools, Mapping):
            return filter_tools_by_group_and_state(tools=tools, requested_groups=groups, current_state=state)
        return list(filter_tools_by_group_and_state({tool.name: tool for tool in tools}, groups, state).values())

    def make_context(
        self, flow: Flow, user: str, respond: Respond | None = None, streaming: bool = False
    ) -> UserAwareContext:
        """Return a flow that wraps `flow` and has facts about the current turn, such as the user and the clock."""
        made = UserAwareContext(flow, user, respond=respond, streaming=streaming)
        turn = _turn(flow, self)
        if turn is not None:
            turn.dress(made)
        return made

    def build_history(self, request: AgentRequest) -> list[Action]:
        """Return the actions in the history of a request."""
        return [
            Action(thought=each.thought, name=each.action, arguments=each.arguments, observation=each.observation)
            for each in request.history or ()
        ]

    def make_think_callback(self, respond: Respond, streaming: bool, message_id: str = "") -> Say:
        """Return a callback that sends a thought. When streaming, each call sends one piece of the thought."""

        async def think(x: str, is_final: bool = False) -> None:
            await respond(_message("thought", x, is_final or not streaming, message_id))

        return think

    def make_observe_callback(self, respond: Respond, streaming: bool, message_id: str = "") -> Say:
        """Return a callback that sends an observation. When streaming, each call sends a piece of the observation."""

        async def observe(x: str, is_final: bool = False) -> None:
            await respond(_message("observation", x, is_final or not streaming, message_id))

        return observe

    def make_answer_callback(
        self, respond: Respond, streaming: bool, message_id: str = ""
    ) -> Callable[[str], Awaitable[None]]:
        """Return a callback that sends the answer. When streaming, each call sends one piece of the answer."""

        async def answer(x: str) -> None:
            await respond(_message("answer", x, not streaming, message_id))

        return answer

    async def emit_session_triples(
        self,
        flow: Flow,
        session_uri: str,
        question: str,
        user: str,
        collection: str,
        respond: Respond,
        streaming: bool,
    ) -> None:
        """Send the triples about the question, which was recorded when the turn began."""
        turn = _turn(flow, self)
        entry = turn.verbs.handed() if turn is not None else None
        at = entry.at if entry is not None else datetime.now(UTC)
        triples = prov.agent_session_triples(session_uri, question, at.isoformat().replace("+00:00", "Z"))
        await _send(flow, respond, Metadata(id=session_uri, user=user, collection=collection), triples)

    async def emit_iteration_triples(
        self,
        flow: Flow,
        session_id: str,
        iteration_num: int,
        session_uri: str,
        act: Action,
        request: AgentRequest,
        respond: Respond,
        streaming: bool,
    ) -> None:
        """Record an action before it runs, save its thought, and send the triples about both."""
        if (turn := _turn(flow, self)) is not None:
            await turn.emit_iteration(iteration_num, act)
        uri, thought = prov.agent_iteration_uri(session_id, iteration_num), None
        if act.thought:
            thought = await self._save(f"{uri}/thought", request.user, act.thought, f"Agent Thought: {act.name}")
        triples = prov.agent_iteration_triples(
            uri,
            **_source(session_id, iteration_num, session_uri),
            action=act.name,
            arguments=act.arguments,
            thought_uri=prov.agent_thought_uri(session_id, iteration_num) if thought else None,
            thought_document_id=thought,
        )
        await _send(flow, respond, _about(uri, request), triples)

    async def emit_observation_triples(
        self,
        flow: Flow,
        session_id: str,
        iteration_num: int,
        observation_text: str,
        request: AgentRequest,
        respond: Respond,
    ) -> None:
        """Record the observation of an iteration, save it, and send the triples about it."""
        if (turn := _turn(flow, self)) is not None:
            await turn.emit_observation(iteration_num, observation_text)
        uri, document = prov.agent_observation_uri(session_id, iteration_num), None
        if observation_text:
            document = await self._save(uri, request.user, observation_text, "Agent Observation")
        made_of = prov.agent_iteration_uri(session_id, iteration_num)
        await _send(flow, respond, _about(uri, request), prov.agent_observation_triples(uri, made_of, document))

    async def emit_final_triples(
        self,
        flow: Flow,
        session_id: str,
        iteration_num: int,
        session_uri: str,
        answer_text: str,
        request: AgentRequest,
        respond: Respond,
        streaming: bool,
    ) -> None:
        """Pass the answer to the turn, which records it; then save the answer, and send the triples about it."""
        if (turn := _turn(flow, self)) is not None:
            await turn.emit_final(answer_text)
        uri, document = prov.agent_final_uri(session_id), None
        if answer_text:
            title, id = f"Agent Answer: {request.question[:50]}...", f"{prov.agent_session_uri(session_id)}/answer"
            document = await self._save(id, request.user, answer_text, title)
        sources = _source(session_id, iteration_num, session_uri)
        await _send(flow, respond, _about(uri, request), prov.agent_final_triples(uri, **sources, document_id=document))

    async def emit_decomposition_triples(
        self,
        flow: Flow,
        session_id: str,
        session_uri: str,
        goals: Sequence[str],
        user: str,
        collection: str,
        respond: Respond,
        streaming: bool,
    ) -> None:
        """Record the goals into which a question was divided, and send the triples about them."""
        if (turn := _turn(flow, self)) is not None:
            await turn.emit_decomposition(goals)
        uri = prov.agent_decomposition_uri(session_id)
        triples = prov.agent_decomposition_triples(uri, session_uri, goals)
        await _send(flow, respond, Metadata(id=uri, user=user, collection=collection), triples)

    async def emit_finding_triples(
        self,
        flow: Flow,
        session_id: str,
        index: int,
        goal: str,
        answer_text: str,
        user: str,
        collection: str,
        respond: Respond,
        streaming: bool,
    ) -> None:
        """Record the finding for a goal, save it, and send the triples about it."""
        if (turn := _turn(flow, self)) is not None:
            await turn.emit_finding(index, goal, answer_text)
        uri, made_of = prov.agent_finding_uri(session_id, index), prov.agent_decomposition_uri(session_id)
        document = await self._save(f"{uri}/doc", user, answer_text, f"Finding: {goal[:60]}")
        triples = prov.agent_finding_triples(uri, made_of, goal, document)
        await _send(flow, respond, Metadata(id=uri, user=user, collection=collection), triples)

    async def emit_plan_triples(
        self,
        flow: Flow,
        session_id: str,
        session_uri: str,
        steps: Sequence[str],
        user: str,
        collection: str,
        respond: Respond,
        streaming: bool,
    ) -> None:
        """Record a plan, and send the triples about it."""
        if (turn := _turn(flow, self)) is not None:
            await turn.emit_plan(steps)
        uri = prov.agent_plan_uri(session_id)
        triples = prov.agent_plan_triples(uri, session_uri, steps)
        await _send(flow, respond, Metadata(id=uri, user=user, collection=collection), triples)

    async def emit_step_result_triples(
        self,
        flow: Flow,
        session_id: str,
        index: int,
        goal: str,
        answer_text: str,
        user: str,
        collection: str,
        respond: Respond,
        streaming: bool,
    ) -> None:
        """Record the result (`answer_text`) of step `index` of a plan, save it, and send triples about it."""
        if (turn := _turn(flow, self)) is not None:
            await turn.emit_step_result(index, goal, answer_text)
        uri, made_of = prov.agent_step_result_uri(session_id, index), prov.agent_plan_uri(session_id)
        document = await self._save(f"{uri}/doc", user, answer_text, f"Step result: {goal[:60]}")
        triples = prov.agent_step_result_triples(uri, made_of, goal, document)
        await _send(flow, respond, Metadata(id=uri, user=user, collection=collection), triples)

    async def emit_synthesis_triples(
        self,
        flow: Flow,
        session_id: str,
        previous_uri: str,
        answer_text: str,
        user: str,
        collection: str,
        respond: Respond,
        streaming: bool,
    ) -> None:
        """Record the answer made from all findings, save it, and send the triples about it."""
        if (turn := _turn(flow, self)) is not None:
            await turn.emit_synthesis(answer_text)
        uri = prov.agent_synthesis_uri(session_id)
        document = await self._save(f"{uri}/doc", user, answer_text, "Synthesis")
        triples = prov.agent_synthesis_triples(uri, previous_uri, document)
        await _send(flow, respond, Metadata(id=uri, user=user, collection=collection), triples)

    async def prompt_as_answer(
        self, client: Prompted, prompt_id: str, variables: Mapping[str, Any], respond: Respond, streaming: bool
    ) -> str:
        """Return the answer to a prompt. When streaming, also send each piece as a part of the agent's answer."""
        if not streaming:
            return await client.prompt(id=prompt_id, variables=variables)
        told: list[str] = []

        async def on_chunk(text: str, _end: bool) -> None:
            if text:
                told.append(text)
                await respond(_message("answer", text, last=False))

        whole = await client.prompt(id=prompt_id, variables=variables, streaming=True, chunk_callback=on_chunk)
        return whole if isinstance(client, PatternTurn) else "".join(told)  # `told` may include a lost stream's words

    async def send_final_response(
        self, respond: Respond, streaming: bool, answer_text: str, already_streamed: bool = False
    ) -> None:
        """Send the response that ends the dialogue. An answer that was already streamed is not sent again."""
        if streaming and not already_streamed and answer_text:
            await respond(_message("answer", answer_text, last=False))
        whole = "" if streaming else answer_text
        await respond(AgentResponse(chunk_type="answer", content=whole, end_of_message=True, end_of_dialog=True))

    def build_next_request(
        self,
        request: AgentRequest,
        history: Sequence[Action],
        session_id: str,
        collection: str,
        streaming: bool,
        next_state: str,
    ) -> AgentRequest:
        """Return the request for the next step: a copy of `request` with the values of the other arguments."""
        taken = [
            AgentStep(thought=each.thought, action=each.name, arguments=each.arguments, observation=each.observation)
            for each in history
        ]
        changed = {"session_id": session_id, "collection": collection, "streaming": streaming, "state": next_state}
        return _request(request, {"history": taken, **changed})

    async def iterate(self, request: AgentRequest, respond: Respond, next: Next, flow: Flow) -> None:
        """Run one step: either send the final answer, or call `next` with the request for the next step."""
        raise NotImplementedError(f"{type(self).__name__} has no iterate(request, respond, next, flow)")

    async def _save(self, id: str, user: str, content: str, title: str) -> str | None:
        """Save a content under `id` by `self.processor`, and return `id`. If this fails, log it and return `None`."""
        try:
            await self.processor.save_answer_content(doc_id=id, user=user, content=content, title=title)
        except Exception:
            LOGGER.warning("The document %s could not be saved.", id, exc_info=True)
            return None
        return id


def _turn(flow: Any, pattern: PatternBase) -> PatternTurn | None:
    """Return the recorded turn in which a pattern works; `None` if it works without a record."""
    return next((each for each in (flow, pattern) if isinstance(each, PatternTurn)), None)


async def _send(flow: Flow, respond: Respond, about: Metadata, triples: Sequence[Triple]) -> None:
    """Send triples to the service `explainability`, then send a response that announces them."""
    await flow("explainability").send(Triples(metadata=about, triples=set_graph(triples, GRAPH_RETRIEVAL)))
    await respond(AgentResponse(chunk_type="explain", explain_id=about.id, explain_graph=GRAPH_RETRIEVAL))


def _source(session_id: str, iteration_num: int, session_uri: str) -> dict[str, str]:
    """Return `{"question_uri": …}` for the first iteration; else `{"previous_uri": …}`, the last observation's URI."""
    if iteration_num > 1:
        return {"previous_uri": prov.agent_observation_uri(session_id, iteration_num - 1)}
    return {"question_uri": session_uri}


def _about(uri: str, request: AgentRequest) -> Metadata:
    return Metadata(id=uri, user=request.user, collection=getattr(request, "collection", "default"))


def _message(kind: str, text: str, last: bool, message_id: str = "") -> AgentResponse:
    return AgentResponse(chunk_type=kind, content=text, end_of_message=last, message_id=message_id)


def _request(request: AgentRequest, fields: Mapping[str, Any]) -> AgentRequest:
    """Return a copy of a request in which `fields` have new values. The request may be of any class."""
    plain = AgentRequest()
    kept = {name: getattr(request, name, getattr(plain, name)) for name in AgentRequest.__struct_fields__}
    return AgentRequest(**{**kept, **fields})
