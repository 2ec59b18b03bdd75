"""Every name of TrustGraph's orchestrator has its place, and each line of its table holds."""

import importlib
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from tests import programs
from tests.journeys.minds import QUICK, everything, mind, told
from tests.laws.scenes import Tape, again

import gesta
from gesta import address
from gesta.compat.trustgraph.agent.tool_filter import validate_tool_config
from gesta.compat.trustgraph.context import Action, Flow, Next, Respond, UserAwareContext
from gesta.compat.trustgraph.pattern import Pattern
from gesta.compat.trustgraph.requests import (
    AgentRequest,
    AgentResponse,
    HistoryStep,
    PlanStep,
    Problem,
    agent_for,
    contents_of,
    request_of,
    response_of,
    responses_of,
    used_of,
)
from gesta.kinds import RequestHeaderContent, Step, ThoughtContent, ToolCallContent, ToolResultContent
from gesta.patterns.plan import plan_then_execute
from gesta.patterns.roles import Prompts
from gesta.patterns.supervisor import supervisor
from gesta.record.record import Record
from gesta.views.lineage import Node, unexplained

SERVICES = (
    *("is_subagent", "filter_tools", "make_context", "build_history", "prompt_as_answer", "send_final_response"),
    *("build_next_request", "emit_subagent_completion", "iterate", "advance"),
    *("make_think_callback", "make_observe_callback", "make_answer_callback"),
    *("emit_session", "emit_iteration", "emit_observation", "emit_final", "emit_decomposition", "emit_finding"),
    *("emit_plan", "emit_step_result", "emit_synthesis"),
)
PATHS = [
    "gesta.compat.trustgraph.context.UserAwareContext",
    *(
        f"gesta.compat.trustgraph.requests.{name}"
        for name in ("AgentRequest", "AgentResponse", "HistoryStep", "PlanStep")
    ),
    *("gesta.patterns.react.react", "gesta.patterns.plan.plan_then_execute"),
    *("gesta.patterns.supervisor.supervisor", "gesta.patterns.router.router"),
]
DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_there(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_there(name: str) -> None:
    assert callable(getattr(Pattern, name))


@pytest.mark.parametrize("page", ["patterns.md", "coming-from/trustgraph.md"])
def test_the_page_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    for code, shown in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        done = programs.run(["-c", code], cwd=tmp_path)
        assert (done.stderr, done.stdout) == ("", shown)


def test_the_table_gives_each_field_its_place() -> None:
    text = (DOCS / "patterns.md").read_text(encoding="utf-8")
    for shape in (AgentRequest, AgentResponse, HistoryStep, PlanStep):
        rows = text.partition(f"### `{shape.__name__}`\n")[2].partition("\n#")[0]
        found = [
            name for row in re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
        ]
        assert sorted(found) == sorted(shape.__struct_fields__)


# a pattern as its users write one

ANSWERER = gesta.Agent("eyes", model=mind(other=lambda messages: f"saw {messages[-1]['content']}"))


class Looking(Pattern):
    """Looks twice, then answers."""

    limit = 4
    prompts: ClassVar[Prompts] = {"answer": "Answer."}
    seen: list[AgentRequest]

    async def iterate(self, request: AgentRequest, respond: Respond, next: Next, flow: Flow) -> None:
        self.seen = [*getattr(self, "seen", []), request]
        streaming, history = request.streaming, self.build_history(request)
        context = self.make_context(flow, request.user, respond, streaming)
        number = len(history) + 1
        if number <= 2:
            act = Action(thought=f"I look {number}.", name="look", arguments={"x": number, "deep": {"k": [1, None]}})
            await self.make_think_callback(respond, streaming)(act.thought, is_final=True)
            await self.emit_iteration(number, act)
            assert context.current_explain_uri == f"{request.session_id}.{self.last}"
            said = await self.call(ANSWERER, act.arguments, f"look {number}")
            await self.make_observe_callback(respond, streaming)(said.text, is_final=True)
            await self.emit_observation(number, said.text)
            history.append(msgspec.structs.replace(act, observation=said.text))
            await next(self.build_next_request(request, history, request.session_id, "books", streaming, "looked"))
            return
        variables = {"question": request.question, "seen": [act.observation for act in history]}
        answer = await self.prompt_as_answer(context("prompt"), "answer", variables, respond, streaming)
        await self.emit_final(answer)
        await self.send_final_response(respond, streaming, answer, already_streamed=streaming)


def looking() -> gesta.Agent:
    return Looking.agent("looker", mind(answer=lambda messages: f"I {' and '.join(told(messages)['seen'])}, at last."))


SAW = [f'saw {{"x": {n}, "deep": {{"k": [1, null]}}}}' for n in (1, 2)]
ANSWER = f"I {' and '.join(SAW)}, at last."


async def test_a_pattern_is_taken_step_by_step_and_explained_as_a_chain() -> None:
    events: list[gesta.Event] = []
    async with gesta.open() as record:
        outcome = await record.run(looking(), "Why?", session="s", listener=events.append)
        own, every = await record.read(outcome.run), await everything(record)
        answer = next(entry for entry in own if entry.kind == "assistant")
        found = await record.explain(answer)
    assert outcome.answer == ANSWER
    assert unexplained(every).entries == {}
    assert found.complete
    chain = [node for node in found.nodes if node.run == outcome.run]
    assert [node.type for node in chain] == [
        *("Question", "ToolUse", "Thought", "Observation", "ToolUse", "Thought", "Observation", "Conclusion"),
    ]
    for before, after in pairwise([node for node in chain[:-1] if node.type != "Thought"]):
        assert after.derived_from == (before.id,)
    live = [event for event in events if event.run == outcome.run and event.explain_graph is not None]
    assert [event.explain_id for event in live] == [node.id for node in chain]
    afterwards = {node.id: (node.type, node.derived_from) for node in chain}
    told_live = {e.explain_id: (e.explain_graph.node, e.explain_graph.derived_from) for e in live if e.explain_graph}
    assert told_live == afterwards, "the explanation is the same live and afterwards"


async def test_thought_comes_before_analysis_and_observation_before_its_own_node() -> None:
    events: list[gesta.Event] = []
    async with gesta.open() as record:
        outcome = await record.run(looking(), "Why?", listener=events.append)
    own = [event for event in events if event.run == outcome.run]
    shown = [event.explain_graph.node if event.explain_graph is not None else event.type for event in own]
    step = ["thought", "call", "ToolUse", "Thought", "observation", "result", "Observation"]
    assert shown[:15] == ["Question", *step, *step]
    assert set(shown[15:-3]) == {"answer"}
    assert shown[-3:] == ["Conclusion", "answer", "end"]
    assert "".join(event.content for event in own if event.type == "answer") == ANSWER
    assert [(event.end_of_message, event.end_of_dialog) for event in own if event.type == "answer"][-1] == (True, True)
    assert sum(event.end_of_dialog for event in events) == 1


async def test_a_pattern_that_nobody_listens_to_answers_whole() -> None:
    async with gesta.open() as record:
        assert (await record.run(looking(), "Why?")).answer == ANSWER


async def test_a_pattern_that_is_broken_off_anywhere_goes_on_where_it_was() -> None:
    tape = Tape()
    whole = await Record(tape, address.bind).run(looking(), "Why?", session="s", key="m")
    for cut in range(1, len(tape.tape)):
        events: list[gesta.Event] = []
        record = Record(await again(tape.tape[:cut]), address.bind)
        done = await record.run(looking(), "Why?", session="s", key="m", listener=events.append)
        assert (done.run, done.answer) == (whole.run, ANSWER), f"cut at commit {cut}"
        shown = "".join(e.content for e in events if e.run == whole.run and e.type == "answer")
        assert shown == ANSWER, f"cut at commit {cut}"
        entries = await everything(record)
        assert len([entry for entry in entries if isinstance(entry.content, ToolCallContent)]) == 2
        assert unexplained(entries).entries == {}


async def test_a_pattern_that_has_no_iterate_or_no_end_says_so() -> None:
    class Round(Pattern):
        async def iterate(self, request: AgentRequest, respond: Respond, next: Next, flow: Flow) -> None:
            await next(request)

    class Silent(Pattern):
        async def iterate(self, request: AgentRequest, respond: Respond, next: Next, flow: Flow) -> None:
            return

    async with gesta.open() as record:
        ends = [await record.run(made.agent("p", mind()), "Why?") for made in (Pattern, Silent, Round)]
    assert [(end.reason, end.error.message) for end in ends if end.error is not None] == [
        ("failed", "Pattern has no iterate(request, respond, next, flow)"),
        ("failed", "The pattern neither answered nor asked for another step."),
        ("limit", "The pattern reached its limit of 10 steps without an answer."),
    ]


async def test_arguments_stay_typed_from_step_to_step_and_nothing_else_is_lost() -> None:
    taken: list[AgentRequest] = []

    class Kept(Looking):
        async def iterate(self, request: AgentRequest, respond: Respond, next: Next, flow: Flow) -> None:
            taken.append(request)
            await super().iterate(request, respond, next, flow)

    agent = Kept.agent("looker", mind(answer="Done."), instructions="Be brief.")
    async with gesta.open() as record:
        outcome = await record.run(
            msgspec.structs.replace(agent, groups=["g"], state="new"), "Why?", session="s", user="u"
        )
    first, second, third = taken
    assert (first.question, first.user, first.group, first.state) == ("Why?", "u", ["g"], "new")
    assert (first.session_id, first.conversation_id, first.framing) == (outcome.run, "s", "Be brief.")
    assert third.history[0].arguments == {"x": 1, "deep": {"k": [1, None]}}
    assert [step.observation for step in third.history] == SAW
    assert (second.state, second.collection) == ("looked", "books")
    same = ("question", "group", "user", "session_id", "conversation_id", "framing", "streaming")
    assert all(getattr(first, name) == getattr(third, name) for name in same)


async def test_a_sub_agent_ends_with_a_completion_and_its_parent_sees_the_finding() -> None:
    class Sub(Pattern):
        async def iterate(self, request: AgentRequest, respond: Respond, next: Next, flow: Flow) -> None:
            assert self.is_subagent(request)
            assert request.subagent_goal == request.question
            await self.emit_subagent_completion(request, next, request.question.upper())

    class Boss(Pattern):
        async def iterate(self, request: AgentRequest, respond: Respond, next: Next, flow: Flow) -> None:
            assert not self.is_subagent(request)
            plan = await self.emit_decomposition(["a", "b"])
            found = [
                await self.call(Sub.agent("sub", mind()), goal, f"finding {n}", role="finding", causes=[plan])
                for n, goal in enumerate("ab")
            ]
            await self.emit_synthesis("".join(each.text for each in found), [each.seq for each in found])
            await self.send_final_response(respond, request.streaming, "AB!")

    async with gesta.open() as record:
        outcome = await record.run(Boss.agent("boss", mind()), "Why?", session="s")
        nodes = await explained(record, outcome.run)
    assert outcome.answer == "AB!"
    assert [node.text for node in nodes if node.type == "Finding"] == ["A", "B"]
    assert sources(nodes, "Synthesis") == [["Finding", "Finding"]]
    assert sources(nodes, "Conclusion")[-1] == ["Synthesis"]


async def test_plans_results_and_findings_that_a_pattern_makes_itself_are_nodes_too() -> None:
    class Own(Pattern):
        async def iterate(self, request: AgentRequest, respond: Respond, next: Next, flow: Flow) -> None:
            question = await self.emit_session()
            assert question == self.verbs.question
            plan = await self.emit_plan([Step(goal="a"), "b"])
            one = await self.emit_step_result(0, "a", "A")
            await self.emit_step_result(1, "b", "B", [plan, one])
            await self.emit_decomposition(["c"])
            await self.emit_finding(0, "c", "C")
            await self.emit_synthesis("ABC")
            await self.send_final_response(respond, request.streaming, "ABC")

    events: list[gesta.Event] = []
    async with gesta.open() as record:
        outcome = await record.run(Own.agent("own", mind()), "Why?", session="s", listener=events.append)
        nodes = await explained(record, outcome.run)
        assert unexplained(await everything(record)).entries == {}
    assert sources(nodes, "Plan") == [["Question"]]
    assert sources(nodes, "StepResult") == [["Plan"], ["Plan", "StepResult"]]
    assert sources(nodes, "Finding") == [["Decomposition"]]
    assert sources(nodes, "Synthesis") == [["Finding", "StepResult", "StepResult"]]
    assert [event.explain_graph.node for event in events if event.explain_graph is not None] == [
        *("Question", "Plan", "StepResult", "StepResult", "Decomposition", "Finding", "Synthesis", "Conclusion"),
    ]


async def explained(record: Any, run: str) -> list[Node]:
    answer = next(entry for entry in await record.read(run) if entry.kind == "assistant")
    found = await record.explain(answer)
    assert found.complete
    return list(found.nodes)


def sources(nodes: list[Node], type_: str) -> list[list[str]]:
    types = {node.id: node.type for node in nodes}
    return [sorted(types[id] for id in node.derived_from) for node in nodes if node.type == type_]


# services over a respond of one's own


class Told:
    """Keeps what was told."""

    def __init__(self) -> None:
        self.responses: list[AgentResponse] = []

    async def __call__(self, response: AgentResponse) -> None:
        self.responses.append(response)

    @property
    def flags(self) -> list[tuple[str, str, bool, bool]]:
        return [(each.message_type, each.content, each.end_of_message, each.final) for each in self.responses]


async def with_pattern(do: Any) -> None:
    """Return a pattern at work."""

    async def program(verbs: Any, question: str) -> str:
        await do(Pattern(verbs))
        return "done"

    async with gesta.open() as record:
        outcome = await record.run(gesta.Agent("p", model=mind(), program=program), "Why?")
    assert outcome.answer == "done", outcome.error


@pytest.mark.parametrize("kind", ["thought", "observation"])
async def test_thoughts_and_observations_end_with_their_last_piece_or_are_whole(kind: str) -> None:
    async def do(pattern: Pattern) -> None:
        make = pattern.make_think_callback if kind == "thought" else pattern.make_observe_callback
        streamed, whole = Told(), Told()
        say = make(streamed, True, "m1")
        await say("a")
        await say("b", is_final=True)
        await make(whole, False)("ab")
        assert streamed.flags == [(kind, "a", False, False), (kind, "b", True, False)]
        assert [each.message_id for each in streamed.responses] == ["m1", "m1"]
        assert whole.flags == [(kind, "ab", True, False)]

    await with_pattern(do)


async def test_pieces_of_an_answer_end_nothing() -> None:
    async def do(pattern: Pattern) -> None:
        streamed, whole = Told(), Told()
        await pattern.make_answer_callback(streamed, True)("a")
        await pattern.make_answer_callback(whole, False)("a")
        assert (streamed.flags, whole.flags) == ([("answer", "a", False, False)], [("answer", "a", True, False)])

    await with_pattern(do)


@pytest.mark.parametrize(
    ("streaming", "already", "flags"),
    [
        (True, False, [("answer", "x", False, False), ("answer", "", True, True)]),
        (True, True, [("answer", "", True, True)]),
        (False, False, [("answer", "x", True, True)]),
        (False, True, [("answer", "x", True, True)]),
    ],
)
async def test_a_final_response_ends_the_dialogue_once(streaming: bool, already: bool, flags: list[Any]) -> None:
    async def do(pattern: Pattern) -> None:
        heard = Told()
        await pattern.send_final_response(heard, streaming, "x", already_streamed=already)
        assert heard.flags == flags

    await with_pattern(do)


async def test_a_prompt_is_answered_by_any_client_that_has_one() -> None:
    class Client:
        async def prompt(self, id: str, variables: Any, streaming: bool = False, chunk_callback: Any = None) -> str:
            if streaming:
                for text in ("a", "", "b"):
                    await chunk_callback(text, text == "b")
            return f"{id}: ab"

    async def do(pattern: Pattern) -> None:
        heard = Told()
        assert await pattern.prompt_as_answer(Client(), "p", {}, heard, streaming=True) == "ab"
        assert heard.flags == [("answer", "a", False, False), ("answer", "b", False, False)]
        assert await pattern.prompt_as_answer(Client(), "p", {}, heard, streaming=False) == "p: ab"

    await with_pattern(do)


async def test_a_context_tells_services_for_whom_they_work() -> None:
    class Service:
        _current_user = ""

    made = {name: Service() for name in ("structured-query-request", "row-embeddings-query-request", "other")}

    async def do(pattern: Pattern) -> None:
        heard = Told()
        context = pattern.make_context(made.__getitem__, "eva", heard, streaming=True)
        assert isinstance(context, UserAwareContext)
        assert (context.respond, context.streaming, len(context.key), context.cancelled()) == (heard, True, 64, False)
        assert context.current_explain_uri == f"{pattern.verbs.live.log.run}.{pattern.verbs.question}"
        assert context.key == pattern.make_context(made.__getitem__, "eva").key
        assert context.clock().tzinfo is not None
        assert [context(name)._current_user for name in made] == ["eva", "eva", ""]
        with pytest.raises(LookupError, match="No service 'graph-rag'"):
            pattern.flow("graph-rag")
        with pytest.raises(LookupError, match=r"No prompt 'nope'. Known: classify"):
            await pattern.prompt("nope", {})

    await with_pattern(do)


def offered(group: list[str] | None, state: str) -> list[str]:
    async def nothing() -> None: ...

    tools = [
        gesta.tool(nothing, name="plain"),
        gesta.tool(nothing, name="g", group="g"),
        gesta.tool(nothing, name="both", group=["default", "g"]),
        gesta.tool(nothing, name="start", applicable_states="undefined"),
        gesta.tool(nothing, name="late", applicable_states=["late"]),
        gesta.tool(nothing, name="any", applicable_states="*"),
    ]
    request = AgentRequest(question="?", group=group, state=state)
    return [tool.name for tool in Pattern.filter_tools(None, tools, request)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"group": "g"}, "Tool 'group' field must be a list of strings, got 'g'"),
        ({"group": ["g", 1]}, "All group names must be strings, got ['g', 1]"),
        ({"applicable-states": None}, "Tool 'applicable-states' field must be a list of strings, got None"),
        ({"applicable-states": [[]]}, "All state names must be strings, got [[]]"),
        ({"state": ["late"]}, "Tool 'state' field must be a string, got ['late']"),
    ],
)
def test_groups_and_states_of_a_tool_that_are_no_texts_are_refused_in_words(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        validate_tool_config(config)
    validate_tool_config({"group": ["g"], "applicable-states": ["*"], "state": "late", "name": 1})


@pytest.mark.parametrize(
    ("group", "state", "names"),
    [
        (None, "", ["plain", "both", "start", "any"]),
        ([], "", []),
        (["g"], "", ["g", "both"]),
        (["*"], "late", ["plain", "g", "both", "late", "any"]),
        (["default"], "late", ["plain", "both", "late", "any"]),
        (["none such"], "late", []),
    ],
)
def test_tools_are_filtered_by_group_and_state(group: list[str] | None, state: str, names: list[str]) -> None:
    assert offered(group, state) == names


async def test_a_tool_that_changes_the_state_changes_what_is_offered_next_under_a_new_header() -> None:
    @gesta.tool(effect="pure", applicable_states="undefined", state="in")
    async def enter() -> str:
        return "in"

    @gesta.tool(effect="pure", applicable_states="in")
    async def leave() -> str:
        return "out"

    agent = gesta.Agent(
        "door", model=gesta.scripted(gesta.call("enter"), gesta.call("leave"), "ok"), tools=[enter, leave]
    )
    async with gesta.open() as record:
        outcome = await record.run(agent, "go")
        headers = [e.content for e in await record.read(outcome.run) if isinstance(e.content, RequestHeaderContent)]
        assert [[tool["name"] for tool in header.tools or ()] for header in headers] == [["enter"], ["leave"]]
        assert request_of(await record.read(outcome.run)).state == "in"


# messages

FULL = AgentRequest(
    question="q",
    state="s",
    group=["g"],
    history=[
        HistoryStep(thought="t", action="look", arguments={"n": 0, "deep": {"k": [1, 2]}}, observation="o"),
        HistoryStep(
            step_type="plan", plan=[PlanStep(goal="g", tool_hint="h", depends_on=[0], status="failed", result="r")]
        ),
        HistoryStep(step_type="synthesise", subagent_results={"g": "r"}),
    ],
    user="u",
    collection="c",
    streaming=True,
    session_id="sid",
    conversation_id="cid",
    pattern="react",
    task_type="tt",
    framing="f",
    correlation_id="corr",
    parent_session_id="p",
    subagent_goal="sg",
    expected_siblings=3,
)


def test_a_request_goes_through_json_without_loss() -> None:
    assert AgentRequest.from_json(FULL.to_json()) == FULL
    assert AgentRequest.from_json('{"question": "q", "novel": 1}') == AgentRequest(question="q")
    with pytest.raises(msgspec.ValidationError, match="question"):
        AgentRequest.from_json('{"question": 1}')


def test_a_response_leaves_out_what_is_empty_but_for_its_flags() -> None:
    assert json.loads(AgentResponse(message_type="answer").to_json()) == {
        "message_type": "answer",
        "end_of_message": False,
        "end_of_dialog": False,
    }
    whole = AgentResponse(
        message_type="error",
        content="c",
        end_of_message=True,
        end_of_dialog=True,
        message_id="m",
        explain_id="e",
        explain_graph="g",
        explain_triples=[{"s": "x"}],
        error=Problem(message="boom"),
        in_token=0,
        out_token=2,
        model="m",
    )
    assert AgentResponse.from_json(whole.to_json()) == whole
    assert json.loads(whole.to_json())["error"] == {"type": "agent-error", "message": "boom"}
    assert json.loads(whole.to_json())["in_token"] == 0
    assert whole.final


def test_both_spellings_of_the_type_are_read() -> None:
    old = AgentResponse.from_json('{"chunk_type": "thought", "content": "t", "end_of_message": true}')
    new = AgentResponse.from_json('{"message_type": "thought", "content": "t", "end_of_message": true}')
    assert old == new
    assert not old.final


@gesta.tool(effect="pure")
async def look(x: int) -> str:
    """Look."""
    return f"saw {x}"


async def test_a_turn_is_told_as_responses() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    calls = gesta.reply("I look.", calls=[gesta.call("look", x=1)], usage=usage)
    agent = gesta.Agent("eye", model=gesta.scripted(calls, gesta.reply("All dry.", usage=usage)), tools=[look])
    events: list[gesta.Event] = []
    async with gesta.open() as record:
        outcome = await record.run(agent, "Why?", listener=events.append)
        counted = used_of(await everything(record))
    told_ = responses_of(events, counted)
    shown = [each.message_type for each in told_ if not (each.message_type == "answer" and not each.end_of_dialog)]
    order = ["explain", "retract", "thought", "explain", "explain", "observation", "explain", "explain", "answer"]
    assert shown == order, "a thought, its analysis before the tool runs, what was seen, and its node after that"
    observation = next(each for each in told_ if each.message_type == "observation")
    assert (observation.content, observation.end_of_message, observation.final) == ("saw 1", True, False)
    assert observation.message_id
    explain = told_[0]
    assert (explain.content, explain.explain_graph, explain.message_id) == ("", "urn:graph:retrieval", "")
    assert explain.explain_id == f"{outcome.run}.2"
    last = told_[-1]
    assert (last.final, last.in_token, last.out_token, last.model) == (True, 6, 8, "scripted"), "of the whole turn"
    assert all(each.in_token is None for each in told_[:-1])


async def test_a_failure_is_told_with_its_error() -> None:
    agent = gesta.Agent("eye", model=gesta.scripted(gesta.fault("400", message="bad")), policy=QUICK)
    events: list[gesta.Event] = []
    async with gesta.open() as record:
        outcome = await record.run(agent, "Why?", listener=events.append)
    assert events[-1].type == "end"
    last = response_of(events[-2])
    assert outcome.reason == "failed"
    assert (last.message_type, last.content, last.final, last.end_of_message) == ("error", "bad", True, True)
    assert last.error == Problem(type="agent-error", message="bad")


async def test_a_request_is_read_off_a_run_and_its_history_gives_contents() -> None:
    agent = gesta.Agent("eye", model=gesta.scripted(["I look.", gesta.call("look", x=1)], "Dry."), tools=[look])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Why?", session="s", user="eva")
        entries = await record.read(outcome.run)
    request = request_of(entries)
    assert (request.question, request.user, request.session_id, request.conversation_id) == (
        "Why?",
        "eva",
        outcome.run,
        "s",
    )
    assert request.history == [HistoryStep(thought="I look.", action="look", arguments={"x": 1}, observation="saw 1")]
    assert request_of(entries, before=entries[3].seq).history == []
    made = contents_of(request.history)
    assert [each.kind.value for each in made] == ["chat-completion", "tool-call", "tool-result"]
    calls = [each for each in made if isinstance(each, ToolCallContent)]
    results = [each for each in made if isinstance(each, ToolResultContent)]
    assert (calls[0].tool_args, results[0].tool_result) == ({"x": 1}, "saw 1")
    assert not any(isinstance(each, ThoughtContent) for each in made)


async def test_a_request_of_a_child_names_its_parent_and_one_of_a_plan_its_steps() -> None:
    def execute(messages: list[dict[str, Any]]) -> str:
        if told(messages)["goal"] == "b":
            raise ValueError("no luck")
        return "A"

    says = '{"steps": [{"goal": "a", "tool_hint": "t"}, {"goal": "b", "depends_on": [0]}]}'
    agent = plan_then_execute("planner", mind(plan=says, execute=execute, synthesise="Done."))
    async with gesta.open() as record:
        outcome = await record.run(msgspec.structs.replace(agent, policy=QUICK), "Why?", session="s")
        runs = {row.name: await record.read(row.run) for row in await record.store.runs()}
    request = request_of(runs["planner"])
    assert request.history[-1].plan == [
        PlanStep(goal="a", tool_hint="t", status="completed", result="A"),
        PlanStep(goal="b", depends_on=[0], status="failed", result="no luck"),
    ]
    child = request_of(runs["step 0"])
    assert (child.correlation_id, child.parent_session_id) == (outcome.run, outcome.run)
    assert json.loads(child.subagent_goal) == {"goal": "a", "tool_hint": "t"}


async def test_a_request_of_a_supervisor_holds_the_answers_by_goal() -> None:
    says = '{"goals": ["a", "b"]}'
    agent = supervisor("boss", mind(decompose=says, research=lambda m: m[-1]["content"].upper(), synthesise="Done."))
    async with gesta.open() as record:
        outcome = await record.run(agent, "Why?")
        [step] = request_of(await record.read(outcome.run)).history
    assert (step.step_type, step.subagent_results) == ("synthesise", {"a": "A", "b": "B"})


def test_a_request_chooses_its_agent_with_groups_state_and_framing() -> None:
    boss, front = supervisor("boss", mind()), gesta.Agent("front", model=mind(), instructions="Hello.", groups=["x"])
    request = AgentRequest(question="?", pattern="supervisor", group=["g"], state="late", framing="Be brief.")
    made = agent_for(request, {"supervisor": boss}, front)
    assert (made.name, made.groups, made.state, made.instructions) == ("boss", ("g",), "late", "Be brief.")
    routed = agent_for(AgentRequest(question="?"), {"supervisor": boss}, front)
    assert (routed.name, routed.groups, routed.state, routed.instructions) == ("front", ["x"], "", "Hello.")


async def test_sub_agents_speak_in_their_own_run_between_analysis_and_observation() -> None:
    helper = gesta.Agent("helper", model=gesta.scripted(gesta.call("look", x=1), "Found."), tools=[look])
    top = gesta.Agent("top", model=gesta.scripted(gesta.call("helper", task="go"), "Fine."), tools=[helper.as_tool()])
    events: list[gesta.Event] = []
    async with gesta.open() as record:
        outcome = await record.run(top, "Why?", listener=events.append)
    named = [(e.run == outcome.run, e.explain_graph.node if e.explain_graph is not None else e.type) for e in events]
    inside = [place for place, (own, _) in enumerate(named) if not own]
    assert inside == list(range(inside[0], inside[-1] + 1))
    assert named[inside[0] - 3 : inside[0]] == [(True, "Analysis"), (True, "call"), (True, "ToolUse")]
    assert [name for own, name in named[inside[-1] + 1 :]][:3] == ["result", "observation", "Observation"]
    assert [e.end_of_dialog for e in events] == [False] * (len(events) - 2) + [True, False]
