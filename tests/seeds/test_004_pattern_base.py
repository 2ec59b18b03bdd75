"""Patterns as TrustGraph's users write them run on the record: what they emit, what they send, and where they go on."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import anyio
import msgspec
import pytest
from tests import programs
from tests.journeys.minds import QUICK, everything
from tests.laws.scenes import Tape, again

import gesta
import gesta.compat.trustgraph as tg
from gesta import address
from gesta.compat.trustgraph.agent.orchestrator.pattern_base import PatternBase
from gesta.compat.trustgraph.agent.react.types import Action, Final
from gesta.compat.trustgraph.agent.tool_filter import get_next_state
from gesta.compat.trustgraph.provenance import (
    agent_finding_uri,
    agent_observation_uri,
    agent_step_result_uri,
    agent_thought_uri,
)
from gesta.compat.trustgraph.requests import agent_for
from gesta.compat.trustgraph.schema import AgentRequest, AgentResponse, AgentStep, PlanStep
from gesta.kinds import (
    ApprovalContent,
    AttemptContent,
    RequestHeaderContent,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
)
from gesta.record.record import Record
from gesta.store import Batch
from gesta.views.across import all_nodes
from gesta.views.lineage import unexplained
from gesta.views.prov_names import names_of


class React(PatternBase):
    """One thought and one tool a step, as `react_pattern.py` does it."""

    prompts: ClassVar[Mapping[str, Any]] = {"agent-react": "Think, then act."}

    async def iterate(self, request: AgentRequest, respond: Any, next: Any, flow: Any) -> None:
        streaming, session = request.streaming, request.session_id
        history = self.build_history(request)
        number, uri = len(history) + 1, self.processor.provenance_session_uri(session)
        if number == 1:
            await self.emit_session_triples(
                flow, uri, request.question, request.user, request.collection, respond, streaming
            )
        think = self.make_think_callback(respond, streaming, message_id=agent_thought_uri(session, number))
        observe = self.make_observe_callback(respond, streaming, message_id=agent_observation_uri(session, number))
        tools = self.filter_tools(self.processor.agent.tools, request)
        context = self.make_context(flow, request.user, respond=respond, streaming=streaming)
        shown = [{"action": each.name, "observation": each.observation} for each in history]
        said = json.loads(await context("prompt-request").agent_react({"question": request.question, "history": shown}))
        await think(said["thought"], is_final=True)
        act: Any = Final(said["thought"], said["final"]) if "final" in said else Action(**said)
        if isinstance(act, Final):
            await self.emit_final_triples(flow, session, number, uri, act.final, request, respond, streaming)
            if self.is_subagent(request):
                await self.emit_subagent_completion(request, next, act.final)
            else:
                await self.send_final_response(respond, streaming, act.final)
            return
        await self.emit_iteration_triples(flow, session, number, uri, act, request, respond, streaming)
        act.observation = (await tools[act.name].implementation(context).invoke(**act.arguments)).strip()
        await observe(act.observation, is_final=True)
        await self.emit_observation_triples(flow, session, number, act.observation, request, respond)
        state = get_next_state(tools[act.name], request.state or "undefined")
        await next(self.build_next_request(request, [*history, act], session, request.collection, streaming, state))


class Plan(PatternBase):
    """A plan, a tool for each of its steps, and a synthesis, as `plan_pattern.py` does it."""

    prompts: ClassVar[Mapping[str, Any]] = {
        "plan-create": {"prompt": "Plan.", "response-type": "json"},
        "plan-synthesise": "Sum up.",
    }

    async def iterate(self, request: AgentRequest, respond: Any, next: Any, flow: Any) -> None:
        session, at = request.session_id, (request.user, request.collection, respond, request.streaming)
        context = self.make_context(flow, request.user, respond=respond, streaming=request.streaming)
        uri = self.processor.provenance_session_uri(session)
        plan = list(request.history[-1].plan) if request.history else []
        left = next_pending(plan)
        if not plan:
            await self.emit_session_triples(flow, uri, request.question, *at)
            steps = await context("prompt-request").prompt(id="plan-create", variables={"question": request.question})
            plan = [PlanStep(goal=each["goal"]) for each in steps]
            await self.emit_plan_triples(flow, session, uri, [each.goal for each in plan], *at)
        elif left is not None:
            tool = self.processor.agent.tools["fetch"]
            result = await tool.implementation(context).invoke(place=plan[left].goal)
            plan[left] = PlanStep(goal=plan[left].goal, status="completed", result=result)
            await self.emit_step_result_triples(flow, session, left, plan[left].goal, result, *at)
        else:
            shown = {"steps": [[each.goal, each.result] for each in plan]}
            client = context("prompt-request")
            text = await self.prompt_as_answer(client, "plan-synthesise", shown, respond, request.streaming)
            await self.emit_synthesis_triples(flow, session, agent_step_result_uri(session, len(plan) - 1), text, *at)
            await self.send_final_response(respond, request.streaming, text, already_streamed=request.streaming)
            return
        history = [*request.history, AgentStep(step_type="plan", plan=plan)]
        await next(AgentRequest(question=request.question, history=history, session_id=session, user=request.user))


class Supervisor(PatternBase):
    """Goals, a sub-agent for each, and a synthesis, as `supervisor_pattern.py` does it."""

    prompts: ClassVar[Mapping[str, Any]] = {
        **React.prompts,
        "supervisor-decompose": {"prompt": "Divide.", "response-type": "json"},
        "supervisor-synthesise": "Sum up.",
    }
    patterns: ClassVar[Mapping[str, type[PatternBase]]] = {"react": React}

    async def iterate(self, request: AgentRequest, respond: Any, next: Any, flow: Any) -> None:
        session, at = request.session_id, (request.user, request.collection, respond, request.streaming)
        context = self.make_context(flow, request.user, respond=respond, streaming=request.streaming)
        client, uri = context("prompt-request"), self.processor.provenance_session_uri(session)
        found = {goal: text for each in request.history for goal, text in each.subagent_results.items()}
        if not found:
            await self.emit_session_triples(flow, uri, request.question, *at)
            goals = await client.prompt(id="supervisor-decompose", variables={"question": request.question})
            await self.emit_decomposition_triples(flow, session, uri, goals, *at)
            for goal in goals:
                await next(
                    AgentRequest(
                        question=goal,
                        group=request.group,
                        user=request.user,
                        session_id=str(uuid4()),
                        pattern="react",
                        correlation_id="c",
                        parent_session_id=session,
                        subagent_goal=goal,
                        expected_siblings=len(goals),
                    )
                )
            self.processor.aggregator.register_fanout("c", session, len(goals), request_template=request)
            return
        shown = {"results": [{"goal": goal, "result": text} for goal, text in found.items()]}
        text = await self.prompt_as_answer(client, "supervisor-synthesise", shown, respond, request.streaming)
        await self.emit_synthesis_triples(flow, session, agent_finding_uri(session, len(found) - 1), text, *at)
        await self.send_final_response(respond, request.streaming, text, already_streamed=request.streaming)


def next_pending(plan: list[PlanStep]) -> int | None:
    return next((place for place, each in enumerate(plan) if each.status == "pending"), None)


def says(messages: list[dict[str, Any]], header: Any) -> str:
    """Stand in for the model."""
    given = json.loads(messages[-1]["content"])
    match header.meta["prompt"]["name"]:
        case "agent-react":
            acts: list[dict[str, Any]] = [
                {"thought": "The attic first.", "name": "fetch", "arguments": {"place": "attic"}},
                {"thought": "", "name": "fetch", "arguments": {"place": "cellar"}},
                {"thought": "I know.", "final": f"It is in the {given['history'][-1:] and 'cellar'}."},
            ]
            return json.dumps(acts[len(given["history"])])
        case "plan-create":
            return '```json\n[{"goal": "attic"}, {"goal": "cellar"}]\n```'
    return " and ".join(result for _, result in given["steps"])


def divided(messages: list[dict[str, Any]], header: Any) -> str:
    """Stand in for the model of a supervisor, and of its sub-agents."""
    given = json.loads(messages[-1]["content"])
    match header.meta["prompt"]["name"]:
        case "supervisor-decompose":
            return '["attic", "cellar"]'
        case "supervisor-synthesise":
            return " and ".join(each["result"] for each in given["results"])
    seen, place = given["history"], given["question"]
    act = {"final": seen[0]["observation"]} if seen else {"name": "fetch", "arguments": {"place": place}}
    return json.dumps({"thought": f"The {place}.", **act})


ROOT = Path(__file__).resolve().parents[2]
FETCHED = Counter[str]()


@gesta.tool(effect="once", reconcile=lambda _key: gesta.NotDone(void=True))
async def fetch(place: str) -> str:
    """Fetch what is there."""
    FETCHED[place] += 1
    return f"gold of the {place}"


class Kept:
    """A processor with a library of its own."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.saved: list[tuple[str, str, str, str]] = []

    async def save_answer_content(self, doc_id: str, user: str, content: str, title: str) -> str:
        if self.fails:
            raise OSError("the library is down")
        self.saved.append((doc_id, user, content, title))
        return doc_id


class Flow:
    """A flow that is none of Gesta's, and all that was sent through it and told."""

    def __init__(self) -> None:
        self.sent: list[tg.Triples] = []
        self.told: list[AgentResponse] = []

    def __call__(self, name: str) -> "Flow":
        assert name == "explainability"
        return self

    async def send(self, triples: tg.Triples) -> None:
        self.sent.append(triples)

    async def respond(self, response: AgentResponse) -> None:
        self.told.append(response)

    def said(self) -> list[list[tuple[str, str, str]]]:
        return [[(short(triple.s), short(triple.p), short(triple.o)) for triple in each.triples] for each in self.sent]


def short(term: Any) -> str:
    return name(term.iri) or str(term.value)


def name(iri: str) -> str:
    return (
        iri.rpartition("#")[2].rpartition("/")[2]
        if iri.startswith("http")
        else iri.removeprefix("urn:trustgraph:agent:")
    )


ACT = Action("Why not?", "look", {"n": 1})
ASKED = AgentRequest(question="Where?", user="eva", collection="books", session_id="s")


async def emitted(processor: Kept) -> Flow:
    flow, pattern = Flow(), PatternBase(processor)
    said = ("eva", "books", flow.respond, True)
    await pattern.emit_session_triples(flow, "urn:trustgraph:agent:s", "Where?", *said)
    await pattern.emit_iteration_triples(flow, "s", 1, "urn:trustgraph:agent:s", ACT, ASKED, flow.respond, True)
    await pattern.emit_observation_triples(flow, "s", 1, "seen", ASKED, flow.respond)
    await pattern.emit_iteration_triples(flow, "s", 2, "urn:trustgraph:agent:s", ACT, ASKED, flow.respond, True)
    await pattern.emit_final_triples(flow, "s", 2, "urn:trustgraph:agent:s", "There.", ASKED, flow.respond, True)
    await pattern.emit_decomposition_triples(flow, "s", "urn:trustgraph:agent:s", ["a", "b"], *said)
    await pattern.emit_finding_triples(flow, "s", 0, "a" * 70, "A", *said)
    await pattern.emit_plan_triples(flow, "s", "urn:trustgraph:agent:s", ["p"], *said)
    await pattern.emit_step_result_triples(flow, "s", 0, "p", "P", *said)
    await pattern.emit_synthesis_triples(flow, "s", agent_step_result_uri("s", 0), "All.", *said)
    return flow


async def test_what_is_emitted_is_saved_sent_and_told_in_that_order_without_a_record() -> None:
    library = Kept()
    flow = await emitted(library)
    of = "urn:trustgraph:agent:s"
    assert library.saved == [
        (f"{of}/i1/thought", "eva", "Why not?", "Agent Thought: look"),
        (f"{of}/i1/observation", "eva", "seen", "Agent Observation"),
        (f"{of}/i2/thought", "eva", "Why not?", "Agent Thought: look"),
        (f"{of}/answer", "eva", "There.", "Agent Answer: Where?..."),
        (f"{of}/finding/0/doc", "eva", "A", "Finding: " + "a" * 60),
        (f"{of}/step/0/doc", "eva", "P", "Step result: p"),
        (f"{of}/synthesis/doc", "eva", "All.", "Synthesis"),
    ]
    parts = [
        "",
        "/i1",
        "/i1/observation",
        "/i2",
        "/final",
        "/decompose",
        "/finding/0",
        "/plan",
        "/step/0",
        "/synthesis",
    ]
    assert [each.explain_id for each in flow.told] == [of + part for part in parts]
    assert [each.metadata for each in flow.sent] == [
        tg.Metadata(id=of + part, user="eva", collection="books") for part in parts
    ]
    assert {each.chunk_type for each in flow.told} == {"explain"}
    assert {triple.g for each in flow.sent for triple in each.triples} == {"urn:graph:retrieval"}
    assert flow.said()[1] == [
        ("s/i1", "type", "Entity"),
        ("s/i1", "type", "Analysis"),
        ("s/i1", "type", "ToolUse"),
        ("s/i1", "label", "Analysis: look"),
        ("s/i1", "action", "look"),
        ("s/i1", "arguments", '{"n": 1}'),
        ("s/i1", "wasDerivedFrom", "s"),
        ("s/i1", "thought", "s/i1/thought"),
        ("s/i1/thought", "type", "Reflection"),
        ("s/i1/thought", "type", "Thought"),
        ("s/i1/thought", "label", "Thought"),
        ("s/i1/thought", "wasDerivedFrom", "s/i1"),
        ("s/i1/thought", "document", "s/i1/thought"),
    ]
    made_of = {each[0][0]: [o for s, p, o in each if p == "wasDerivedFrom" and s == each[0][0]] for each in flow.said()}
    assert made_of == {
        "s": [],
        "s/i1": ["s"],
        "s/i1/observation": ["s/i1"],
        "s/i2": ["s/i1/observation"],
        "s/final": ["s/i1/observation"],
        "s/decompose": ["s"],
        "s/finding/0": ["s/decompose"],
        "s/plan": ["s"],
        "s/step/0": ["s/plan"],
        "s/synthesis": ["s/step/0"],
    }


async def test_a_library_that_fails_costs_the_link_and_nothing_else() -> None:
    flow = await emitted(Kept(fails=True))
    assert len(flow.sent) == len(flow.told) == 10
    assert [p for each in flow.said() for _, p, _ in each if p in ("document", "thought")] == []


def reacting() -> gesta.Agent:
    return React.agent("reader", gesta.function(says), tools=[fetch])


def planning() -> gesta.Agent:
    return Plan.agent("planner", gesta.function(says), tools=[fetch])


def supervising() -> gesta.Agent:
    return Supervisor.agent("boss", gesta.function(divided), tools=[fetch])


GOLD = "gold of the attic and gold of the cellar"
ANSWERS = {reacting: "It is in the cellar.", planning: GOLD, supervising: GOLD}


async def test_a_react_pattern_is_a_chain_of_calls_with_their_attempts() -> None:
    events: list[gesta.Event] = []
    async with gesta.open() as record:
        outcome = await record.run(reacting(), "Where is gold?", listener=events.append)
        entries = await record.read(outcome.run)
        nodes = [each for each in (await record.explain(entries[-2])).nodes if each.run == outcome.run]
    assert outcome.answer == ANSWERS[reacting]
    assert [(node.type, node.text) for node in nodes] == [
        ("Question", "Where is gold?"),
        ("ToolUse", 'fetch {"place": "attic"}'),
        ("Thought", "The attic first."),
        ("Observation", "gold of the attic"),
        ("ToolUse", 'fetch {"place": "cellar"}'),
        ("Observation", "gold of the cellar"),
        ("Conclusion", "It is in the cellar."),
    ]
    kinds = Counter(type(each.content) for each in entries)
    assert [kinds[each] for each in (ToolCallContent, AttemptContent, ToolResultContent, ThoughtContent)] == [
        2,
        2,
        2,
        1,
    ]
    said = [each.content for each in events if each.type == "observation" and each.run == outcome.run]
    assert said == ["gold of the attic", "gold of the cellar"], "each is told once"


async def test_a_plan_pattern_has_its_results_made_from_its_plan_and_its_tools() -> None:
    async with gesta.open() as record:
        outcome = await record.run(planning(), "Where is gold?")
        entries = await record.read(outcome.run)
        found = (await record.explain(entries[-2])).nodes
    types = {node.id: node.type for node in found}
    results = [[types[id] for id in node.derived_from] for node in found if node.type == "StepResult"]
    assert (outcome.answer, results) == (GOLD, [["Plan", "Observation"]] * 2)
    (synthesis,) = [node for node in found if node.type == "Synthesis"]
    assert [types[id] for id in synthesis.derived_from].count("StepResult") == 2


def cuts(tape: Sequence[Batch]) -> Iterator[list[Batch]]:
    """All beginnings of a tape, broken off after a commit, or in it after a result: another run may part what follows."""
    for place, batch in enumerate(tape):
        for number, row in enumerate(batch.rows[:-1], 1):
            if row.kind == "tool-result":
                yield [*tape[:place], msgspec.structs.replace(batch, rows=batch.rows[:number])]
        if place < len(tape) - 1:
            yield [*tape[: place + 1]]


@pytest.mark.sample(3)
@pytest.mark.parametrize("agent", ANSWERS)
async def test_a_pattern_with_tools_that_is_broken_off_anywhere_does_nothing_twice(agent: Any) -> None:
    tape = Tape()
    FETCHED.clear()
    await Record(tape, address.bind).run(agent(), "Where is gold?", session="s", key="m")
    assert FETCHED == {"attic": 1, "cellar": 1}
    for cut, kept in enumerate(cuts(tape.tape)):
        FETCHED.clear()
        before = Record(await again(kept), address.bind)
        done = [each.content.call for each in await everything(before) if isinstance(each.content, ToolResultContent)]
        record = Record(await again(kept), address.bind)
        outcome = await record.run(agent(), "Where is gold?", session="s", key="m")
        assert outcome.answer == ANSWERS[agent], f"cut {cut}"
        assert sum(FETCHED.values()) == 2 - len(done), f"cut {cut}"
        assert unexplained(await everything(record)).entries == {}


async def test_a_pattern_with_a_processor_of_its_own_has_its_contents_saved_there() -> None:
    class Saving(Kept):
        agent = None

        def provenance_session_uri(self, session_id: str) -> str:
            return tg.agent_session_uri(session_id)

    class Answering(PatternBase):
        async def iterate(self, request: AgentRequest, respond: Any, next: Any, flow: Any) -> None:
            uri = self.processor.provenance_session_uri(request.session_id)
            await self.emit_final_triples(flow, request.session_id, 1, uri, "Here.", request, respond, False)
            await self.send_final_response(respond, request.streaming, "Here.")

    library = Saving()
    async with gesta.open() as record:
        outcome = await record.run(Answering.agent("a", gesta.function(says), processor=library), "Where?", user="eva")
    assert library.saved == [(f"urn:trustgraph:agent:{outcome.run}/answer", "eva", "Here.", "Agent Answer: Where?...")]


async def test_an_error_that_a_pattern_sends_ends_its_turn() -> None:
    class Failing(PatternBase):
        async def iterate(self, request: AgentRequest, respond: Any, next: Any, flow: Any) -> None:
            await respond(AgentResponse(chunk_type="error", content="no luck", end_of_dialog=True))

    async with gesta.open() as record:
        outcome = await record.run(Failing.agent("a", gesta.function(says)), "Where?")
    assert outcome.error is not None
    assert (outcome.reason, outcome.error.message) == ("failed", "no luck")


@pytest.mark.sample(3)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes")
@pytest.mark.parametrize("pattern", ["react", "plan", "supervisor", "their-react", "their-plan", "their-supervisor"])
def test_a_pattern_that_is_killed_in_the_middle_goes_on_and_fetches_nothing_twice(pattern: str, tmp_path: Path) -> None:
    if pattern.startswith("their") and "GESTA_TRUSTGRAPH" not in os.environ:
        pytest.skip("needs GESTA_TRUSTGRAPH=FOLDER, a checkout of TrustGraph")
    lives = [
        programs.run(["-m", "tests.seeds.killed_pattern", pattern, str(tmp_path), str(deaths)], cwd=ROOT)
        for deaths in (1, 2, 0)
    ]
    assert [each.returncode for each in lives] == [-9, -9, 0], lives[-1].stderr
    assert json.loads(lives[-1].stdout) == ["answered", GOLD, GOLD, None]
    places = [line.split()[1] for line in (tmp_path / "effects").read_text().splitlines()]
    assert sorted(places) == ["attic", "cellar"]


@pytest.mark.parametrize(
    ("group", "user", "offered"),
    [
        (None, "eva", ["open"]),
        (["vault"], "eva", []),
        (["*"], "eva", ["open"]),
        (["vault", "default"], "kim", ["open", "vault"]),
        (["*"], "root", ["open", "vault"]),
        (["*"], "stranger", []),
    ],
)
async def test_a_user_reaches_no_group_of_tools_without_a_right_to_it_whatever_a_request_asks_for(
    group: list[str] | None, user: str, offered: list[str]
) -> None:
    ran: list[str] = []

    async def use() -> str:
        ran.append("used")
        return "done"

    tools = [gesta.tool(use, name="open"), gesta.tool(use, name="vault", group="vault", effect="pure")]
    model = gesta.scripted(gesta.call("vault"), "So be it.")
    agents = {"react": gesta.Agent("eye", model=model, tools=tools)}
    request = AgentRequest(question="Open it.", pattern="react", group=group, user=user)
    rights = {"eva": ["default"], "kim": ["default", "vault"], "root": ["*"]}
    agent = agent_for(request, agents, agents["react"], rights)
    async with gesta.open() as record:
        outcome = await record.run(agent, request.question, user=user)
        headers = [
            each.content for each in await record.read(outcome.run) if isinstance(each.content, RequestHeaderContent)
        ]
    assert [tool["name"] for tool in headers[0].tools or ()] == offered
    assert bool(ran) == ("vault" in offered), "a call of what was not offered is not carried out"


@pytest.mark.parametrize(
    ("agent", "verdict"), [(React, "approved"), (React, "denied"), (Plan, "approved"), (Plan, "denied")]
)
async def test_a_pattern_waits_for_approval_of_its_tools_and_goes_on_with_what_a_person_says(
    agent: type[PatternBase], verdict: Any
) -> None:
    ran: list[str] = []

    async def ask(place: str) -> str:
        ran.append(place)
        return f"gold of the {place}"

    asking = agent.agent("seeker", gesta.function(says), tools=[gesta.tool(ask, name="fetch", approval=True)])
    async with gesta.open() as record:
        outcome = await record.run(asking, "Where is gold?", session="s")
        for _ in range(2):
            (waiting,) = outcome.waiting
            assert waiting.of is not None
            await record.send(
                outcome.run, ApprovalContent(of=waiting.of, verdict=verdict, by="ann"), key=f"{waiting.of}"
            )
            outcome = await record.resume(outcome.run, asking)
        results = [
            each.content.outcome for each in await everything(record) if isinstance(each.content, ToolResultContent)
        ]
    assert outcome.reason == "answered"
    assert ran == (["attic", "cellar"] if verdict == "approved" else [])
    assert results == ["ok" if verdict == "approved" else "denied"] * 2


def goals(*names: str, fails: str = "") -> Any:
    """Make the model of a supervisor that divides a question into goals; the one who pursues `fails` cannot."""

    def answers(messages: list[dict[str, Any]], header: Any) -> str:
        given = json.loads(messages[-1]["content"])
        if header.meta["prompt"]["name"] == "supervisor-decompose":
            return json.dumps(names)
        if header.meta["prompt"]["name"] == "supervisor-synthesise":
            return json.dumps({each["goal"]: each["result"] for each in given["results"]})
        if given["question"] == fails:
            raise ValueError("no luck")
        return divided(messages, header)

    return gesta.function(answers)


async def test_a_sub_agent_that_fails_and_equal_goals_are_findings_all_the_same() -> None:
    agent = Supervisor.agent("boss", goals("attic", "cellar", "attic", fails="cellar"), tools=[fetch])
    async with gesta.open() as record:
        outcome = await record.run(msgspec.structs.replace(agent, policy=QUICK), "Where is gold?")
        nodes = (await record.explain((await record.read(outcome.run))[-2])).nodes
        assert unexplained(await everything(record)).entries == {}
    found = json.loads(outcome.answer or "")
    assert (found["attic"], found["attic (2)"]) == ("gold of the attic", "gold of the attic")
    assert "no luck" in found["cellar"]
    types = {node.id: node.type for node in nodes}
    findings = [node for node in nodes if node.type == "Finding"]
    assert [[types[id] for id in node.derived_from] for node in findings] == [["Conclusion"]] * 3
    (synthesis,) = [node for node in nodes if node.type == "Synthesis"]
    assert {node.id for node in findings} < {*synthesis.derived_from}
    (read,) = [node for node in nodes if node.type == "Question" and node.text.startswith('{"results"')]
    assert {*read.derived_from} == {node.id for node in findings}, "who sums up has read them all"


async def test_a_finding_has_the_number_of_its_goal_whichever_comes_first() -> None:
    first = anyio.Event()

    @gesta.tool(effect="pure")
    async def fetch(place: str) -> str:
        if place == "attic":
            await first.wait()
        first.set()
        return f"gold of the {place}"

    agent = Supervisor.agent("boss", goals("attic", "cellar"), tools=[fetch])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Where is gold?")
        nodes, state = await all_nodes(record)
    names = names_of(state)
    found = {names[node.id].rpartition("/")[2]: node.text for node in nodes if node.type == "Finding"}
    assert found == {"0": "gold of the attic", "1": "gold of the cellar"}
    assert outcome.answer == json.dumps({place: f"gold of the {place}" for place in ("attic", "cellar")})


async def test_the_contents_that_sub_agents_found_are_saved_by_a_processor_of_ones_own() -> None:
    class Saving(Kept):
        def __init__(self) -> None:
            super().__init__()
            self.aggregator = self
            self.agent = None

        def register_fanout(self, *given: Any, request_template: Any) -> None:
            pass

        def provenance_session_uri(self, session_id: str) -> str:
            return tg.agent_session_uri(session_id)

    class Boss(Supervisor):
        patterns: ClassVar[Mapping[str, type[PatternBase]]] = {}

    library = Saving()
    agent = Boss.agent("boss", goals("attic"), processor=library)
    quiet = msgspec.structs.replace(
        agent, model=gesta.function(lambda _messages, h: "x" if "prompt" not in (h.meta or {}) else '["a"]')
    )
    async with gesta.open() as record:
        outcome = await record.run(quiet, "Where?", user="eva")
    of = f"urn:trustgraph:agent:{outcome.run}"
    assert [each[:3] for each in library.saved] == [
        (f"{of}/finding/0/doc", "eva", "x"),
        (f"{of}/synthesis/doc", "eva", '["a"]'),
    ]


async def test_a_sub_agent_is_asked_for_the_same_user_and_has_no_group_of_tools_that_its_pattern_has_not() -> None:
    seen: list[AgentRequest] = []

    class Greedy(Supervisor):
        async def iterate(self, request: AgentRequest, respond: Any, next: Any, flow: Any) -> None:
            async def all_groups(below: AgentRequest) -> None:
                below.group = ["*"]
                await next(below)

            await super().iterate(request, respond, all_groups, flow)

    class Seeing(React):
        async def iterate(self, request: AgentRequest, respond: Any, next: Any, flow: Any) -> None:
            seen.append(request)
            await super().iterate(request, respond, next, flow)

    Greedy.patterns = {"react": Seeing}

    async def enter(place: str) -> str:
        return place

    vault = gesta.tool(enter, name="vault", group="vault")
    agent = Greedy.agent("boss", goals("attic"), tools=[fetch, vault])
    request = AgentRequest(question="Where?", pattern="boss", group=["*"], user="eva")
    agent = agent_for(request, {"boss": agent}, agent, {"eva": ["default"]})
    async with gesta.open() as record:
        outcome = await record.run(agent, request.question, user="eva")
    assert outcome.reason == "answered"
    assert {(each.user, tuple(each.group or ()), each.parent_session_id, each.subagent_goal) for each in seen} == {
        ("eva", ("default",), outcome.run, "attic")
    }


async def test_sub_agents_wait_for_a_person_beside_each_other_and_what_is_denied_is_found_so() -> None:
    ran: list[str] = []

    async def ask(place: str) -> str:
        ran.append(place)
        return f"gold of the {place}"

    tools = [gesta.tool(ask, name="fetch", approval=True, effect="once")]
    agent = Supervisor.agent("boss", goals("attic", "cellar"), tools=tools)
    async with gesta.open() as record:
        waits = await record.run(agent, "Where is gold?")
        assert [(each.what, each.tool) for each in waits.waiting] == [("approval", "fetch")] * 2
        first, second = waits.waiting
        await record.approve(first.run or "", first.of, by="ann")
        await record.deny(second.run or "", second.of, by="ann", reason="no")
        outcome = await record.resume(waits.run, agent)
        assert unexplained(await everything(record)).entries == {}
    found = json.loads(outcome.answer or "")
    assert sorted(found.values()) == ["A person did not allow this call. They said: no", f"gold of the {ran[0]}"]
    assert len(ran) == 1


async def test_a_sub_agent_that_reaches_its_limit_is_a_finding_and_agents_that_ask_themselves_end_at_the_depth() -> (
    None
):
    class Endless(React):
        async def iterate(self, request: AgentRequest, respond: Any, next: Any, flow: Any) -> None:
            await next(request)

    class Boss(Supervisor):
        patterns: ClassVar[Mapping[str, type[PatternBase]]] = {"react": Endless}

    class Itself(Supervisor):
        pass

    Itself.patterns = {"react": Itself}
    async with gesta.open() as record:
        outcome = await record.run(Boss.agent("boss", goals("attic")), "Where?")
        deep = await record.run(Itself.agent("deep", goals("attic")), "Where?")
    assert json.loads(outcome.answer or "") == {"attic": "The pattern reached its limit of 10 steps without an answer."}
    assert (deep.reason, deep.error and deep.error.type) == ("limit", "depth")
