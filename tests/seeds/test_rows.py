"""Rows of the page of parity that no other test shows by their very thing: what is written in the row is done here."""

import json
import math
import sqlite3
from contextlib import closing
from typing import Any

import msgspec
import pytest
from tests.journeys.minds import joined, mind, plan, told

import gesta
from gesta.address import open_record
from gesta.codec.rows import PythonValue
from gesta.compat import agent_catalog
from gesta.compat.langchain import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    from_lc,
    to_lc,
)
from gesta.compat.trustgraph import Action, AgentRequest, PatternBase, agent_session_uri
from gesta.compat.trustgraph.requests import request_of
from gesta.compat.trustgraph.schema import BLANK, IRI, LITERAL, TRIPLE, Term, Triple
from gesta.compat.trustgraph.wire import triple_from_wire, triple_to_wire
from gesta.entry import VERSION, Entry
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    DecisionContent,
    Kind,
    PlanContent,
    RequestHeaderContent,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.patterns.plan import plan_then_execute
from gesta.patterns.react import react
from gesta.patterns.router import router
from gesta.patterns.supervisor import supervisor


def of(entries: list[Entry], kind: type[Any]) -> list[Any]:
    """Return the contents of one kind."""
    return [entry.content for entry in entries if isinstance(entry.content, kind)]


@gesta.tool(effect="pure")
def look(x: int) -> str:
    """Look something up.

    Args:
        x: What to look at.
    """
    return f"saw {x}"


# ------------------------------------------------------------------------------------------------------ agent-catalog


def test_all_content_classes_come_from_one_import() -> None:
    found = {name.removesuffix("Content") for name in dir(agent_catalog) if name.endswith("Content")}
    assert found >= {"System", "ToolCall", "ToolResult", "ChatCompletion", "RequestHeader", "User", "Assistant"}
    assert found >= {"Begin", "End", "Edge", "KeyValue"}
    assert agent_catalog.EdgeContent(source=["a"], dest=["b"]).kind == agent_catalog.Kind.Edge


def test_each_record_has_its_number_its_span_with_the_parent_and_the_version_of_its_form(tmp_path: Any) -> None:
    with gesta.open_sync(str(tmp_path / "a.gesta")) as record:
        with record.span("app", session="s") as span, span.span("inner") as inner:
            inner.log(UserContent(value="hi"))
        entries = record.read(record.find("s").run)
    assert [(entry.seq, entry.span) for entry in entries] == [(1, 1), (2, 2), (3, 2), (4, 2), (5, 1)]
    begun = entries[1].content
    assert isinstance(begun, BeginContent)
    assert (begun.name, begun.parent) == ("inner", 1)
    with closing(sqlite3.connect(tmp_path / "a.gesta")) as db:
        rows = db.execute("SELECT seq, span, version FROM entries ORDER BY seq").fetchall()
    assert rows == [(entry.seq, entry.span, VERSION) for entry in entries]


def test_log_writes_any_value_and_not_a_number_stays_not_a_number(tmp_path: Any) -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("no words")

    loop: list[Any] = []
    loop.append(loop)
    with gesta.open_sync(str(tmp_path / "a.gesta")) as record:
        with record.span("app", session="s") as span:
            for odd in (Mute(), loop, {1: {2}}, float("nan")):
                span.log(ToolResultContent(tool_result=odd))
        mute, _, table, number = (each.tool_result for each in of(record.read(record.find("s").run), ToolResultContent))
    assert isinstance(mute, PythonValue)
    assert table == {1: {2}}
    assert math.isnan(number)


async def test_a_call_that_a_model_wrote_wrongly_is_logged_as_it_wrote_it() -> None:
    wrong = gesta.reply("", calls=[gesta.call("look", x="one"), gesta.call("nobody", y=1)])
    async with open_record(":memory:") as record:
        agent = gesta.Agent("desk", model=gesta.scripted(wrong, "done"), tools=[look])
        outcome = await record.run(agent, "go")
        made = of(await record.read(outcome.run), ToolCallContent)
    assert outcome.answer == "done"
    assert [(each.tool_name, each.status) for each in made] == [("look", "error"), ("nobody", "error")]
    assert [each.tool_args for each in made] == [{"x": "one"}, {"y": 1}]
    assert all("error" in (each.meta or {}) for each in made), "what is wrong stands beside it"


def test_a_span_without_a_session_gets_one_and_is_entered_and_left_by_hand_with_another_state() -> None:
    span = agent_catalog.Catalog(":memory:").Span(name="app", state=1, iterable=True)
    span.enter()
    span["k"] = 0
    span.state = 2
    span.exit()
    assert span.session
    shown = [(str(log.content.kind), getattr(log.content, "state", None)) for log in span]
    assert shown == [("begin", 1), ("key-value", None), ("end", 2)]
    assert [log.identifier for log in span.logs()] == [log.identifier for log in span]


# ---------------------------------------------------------------------------------------------------------- LangChain

MESSAGES: list[BaseMessage] = [
    AIMessage("a", tool_calls=[{"name": "look", "args": {"x": 1}, "id": "c1"}]),
    HumanMessage("h"),
    SystemMessage("s"),
    ToolMessage("t", tool_call_id="c1"),
    FunctionMessage("f", name="look"),
    ChatMessage("c", role="critic"),
    RemoveMessage(id="r"),
    BaseMessage("k", type="AIMessageChunk"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)
def test_a_message_of_every_kind_goes_through_lc_json(message: BaseMessage) -> None:
    text = to_lc(message)
    assert json.loads(text)["kwargs"]["type"] == message.type
    assert from_lc(text) == message


def test_lc_json_is_ascii_and_pretty_on_request() -> None:
    message = HumanMessage("né")
    plain, pretty = to_lc(message), to_lc(message, pretty=True)
    assert plain.isascii()
    assert pretty.isascii()
    assert "\n" not in plain
    assert pretty == json.dumps(json.loads(plain), indent=2)


# --------------------------------------------------------------------------------------------------------- TrustGraph


async def test_patterns_and_task_types_are_taken_by_name_from_a_configuration_that_is_text() -> None:
    ways = {name: react(name, mind(other=name)) for name in ("react", "plan")}
    texts = {
        "sums": '{"name": "Sums", "description": "of numbers", "valid_patterns": ["plan"]}',
        "talk": '{"description": "of the day", "valid_patterns": ["react"]}',
    }
    for said, chosen in (("sums", "plan"), ("talk", "react")):
        async with gesta.open() as record:
            agent = router("front", mind(classify=said), ways, task_types=texts)
            outcome = await record.run(agent, "2 + 2?")
            decided = of(await record.read(outcome.run), DecisionContent)
        assert outcome.answer == chosen
        assert [each.choice for each in decided] == [said, chosen]


async def test_a_step_that_reaches_its_limit_leaves_what_the_others_found() -> None:
    def execute(messages: list[dict[str, Any]]) -> Any:
        return gesta.call("look", x=1) if told(messages)["goal"] == "b" else told(messages)["goal"].upper()

    model = mind(plan=plan("a", "b", "c"), other=execute, synthesise=joined)
    policy = gesta.Policy(limits=gesta.Limits(requests=3))
    worker = gesta.Agent("worker", model=model, tools=[look], policy=policy)
    async with gesta.open() as record:
        outcome = await record.run(plan_then_execute("planner", model, executor=worker), "why?")
        [made] = of(await record.read(outcome.run), PlanContent)
    assert [step.goal for step in made.steps] == ["a", "b", "c"]
    assert outcome.answer is not None
    assert outcome.answer.startswith("a=A; b=")
    assert outcome.answer.endswith("; c=C")


async def test_a_model_is_told_name_description_and_arguments_of_each_tool() -> None:
    async with gesta.open() as record:
        outcome = await record.run(gesta.Agent("desk", model=gesta.scripted("ok"), tools=[look]), "go")
        [header] = of(await record.read(outcome.run), RequestHeaderContent)
    [shown] = header.tools
    assert (shown["name"], shown["description"]) == ("look", "Look something up.")
    assert shown["args_schema"]["properties"] == {"x": {"type": "integer", "description": "What to look at."}}
    assert shown["args_schema"]["required"] == ["x"]


async def test_an_entry_of_every_kind_that_a_run_holds_can_be_explained() -> None:
    async with gesta.open() as record:
        agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("look", x=1), "ok"), tools=[look])
        outcome = await record.run(agent, "go")
        entries = await record.read(outcome.run)
        nodes = {entry.kind: (await record.explain(entry)).nodes[-1] for entry in entries}
    assert {Kind.Begin, Kind.RequestHeader, Kind.Request, Kind.Attempt, Kind.ToolResult} <= set(nodes)
    assert {nodes[kind].type for kind in (Kind.Begin, Kind.RequestHeader, Kind.Request)} == {"Entry"}


async def test_what_a_pattern_thought_saw_and_answered_stands_on_record_though_its_library_fails() -> None:
    class Down:
        agent = None

        async def save_answer_content(self, **_: Any) -> str:
            raise OSError("the library is down")

    class Looking(PatternBase):
        async def iterate(self, request: AgentRequest, respond: Any, next: Any, flow: Any) -> None:
            session, uri = request.session_id, agent_session_uri(request.session_id)
            act = Action(thought="Why not?", name="look", arguments={"x": 1})
            await self.emit_iteration_triples(flow, session, 1, uri, act, request, respond, False)
            await self.emit_observation_triples(flow, session, 1, "saw 1", request, respond)
            await self.emit_final_triples(flow, session, 2, uri, "Dry.", request, respond, False)
            await self.send_final_response(respond, False, "Dry.")

    async with gesta.open() as record:
        outcome = await record.run(Looking.agent("looker", gesta.scripted(), processor=Down()), "Where?")
        entries = await record.read(outcome.run)
    assert outcome.answer == "Dry."
    assert [each.value for each in of(entries, ThoughtContent)] == ["Why not?"]
    assert [each.tool_result for each in of(entries, ToolResultContent)] == ["saw 1"]
    assert [each.value for each in of(entries, AssistantContent)] == ["Dry."]


async def test_a_request_that_is_read_off_a_run_names_pattern_kind_of_task_groups_framing_and_siblings() -> None:
    """O7."""
    ways = {"react": react("reader", mind(other="Dry.")), "plan": react("planner", mind(other="?"))}
    model = mind(classify="research", route="react")
    front = router("front", model, ways, task_types={"research": {"framing": "Be brief."}, "chat": {}})
    front = msgspec.structs.replace(front, groups=["open"], state="late")
    says = '{"goals": ["a", "a", "b"]}'
    boss = supervisor("boss", mind(decompose=says, research=lambda m: m[-1]["content"].upper(), synthesise="Done."))
    async with gesta.open() as record:
        asked = await record.run(front, "Rome?")
        request = request_of(await record.read(asked.run), agent=front)
        divided = await record.run(boss, "Why?")
        above = await record.read(divided.run)
        below = [await record.read(row.run) for row in await record.store.runs() if row.name.startswith("finding")]
        children = [request_of(each, parent=above) for each in below]
    assert (request.pattern, request.task_type) == ("react", "research")
    assert (request.group, request.state, request.framing) == (["open"], "late", front.instructions)
    assert [each.expected_siblings for each in children] == [3, 3, 3]
    assert sorted(each.subagent_goal for each in children) == ["a", "a", "b"]
    [step] = request_of(above).history
    assert step.subagent_results == {"a": "A", "a (2)": "A", "b": "B"}, "two equal goals stay two"


FACT = Triple(s=Term(IRI, "urn:a"), p=Term(IRI, "urn:p"), o=Term(LITERAL, value="é", datatype="urn:t", language=""))
QUOTED = Triple(s=Term(BLANK, id="b1"), p=Term(IRI, "urn:p"), o=Term(TRIPLE, triple=FACT), g="urn:graph:source")


def test_statements_have_a_short_spelling_and_the_long_one_is_read() -> None:
    short = {
        "s": {"t": "i", "i": "urn:a"},
        "p": {"t": "i", "i": "urn:p"},
        "o": {"t": "l", "v": "é", "dt": "urn:t"},
    }
    assert triple_to_wire(FACT) == short
    quoted = {"s": {"t": "b", "d": "b1"}, "p": short["p"], "o": {"t": "t", "tr": short}, "g": "urn:graph:source"}
    assert triple_to_wire(QUOTED) == quoted
    for each in (FACT, QUOTED, Triple(s=Term(IRI, "urn:a"))):
        assert triple_from_wire(json.loads(json.dumps(triple_to_wire(each)))) == each
    long = {"s": {"type": "i", "iri": "urn:a"}, "p": {"type": "iri", "iri": "urn:p"}, "o": {"type": "l", "value": "x"}}
    assert triple_from_wire(long) == Triple(s=FACT.s, p=FACT.p, o=Term(LITERAL, value="x"))


def test_trustgraphs_own_client_spells_statements_the_same() -> None:
    theirs: Any = pytest.importorskip("trustgraph.messaging.translators.primitives")
    for each in (FACT, QUOTED):
        wire = triple_to_wire(each)
        assert theirs.TripleTranslator().encode(theirs.TripleTranslator().decode(wire)) == wire
