"""An explanation as PROV-O: what stands in the quads, and that other tools can read and walk them."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyoxigraph as rdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.commands import gesta_command
from tests.ribs.test_lineage import GOALS, NASTY, Made, supervisor_of, weather
from typer.testing import Result

import gesta
from gesta import kinds
from gesta.bridges import prov as bridge
from gesta.entry import Entry, fold
from gesta.kinds import AssistantContent, BeginContent, EndContent, SystemContent, UserContent
from gesta.views.across import all_nodes
from gesta.views.lineage import Lineage, nodes_of
from gesta.views.prov import quads
from gesta.views.prov_names import GRAPH, PROV, RDF_TYPE, SOURCES, TG, Quad, document_iri, names_of

SHORT = {TG: "tg:", PROV: "prov:", "http://www.w3.org/2000/01/rdf-schema#": "rdfs:", RDF_TYPE: "a"}
WALK = f"""
SELECT ?type ?far WHERE {{ GRAPH <{GRAPH}> {{
    ?near a <{TG}Conclusion> . FILTER NOT EXISTS {{ ?other <{PROV}wasDerivedFrom> ?near }}
    ?near <{PROV}wasDerivedFrom>+ ?far . ?far a ?type }} }}
"""


def told(entries: list[Entry]) -> list[Quad]:
    state = fold(Lineage(), entries)
    return list(quads(nodes_of(state)[0], state))


def short(iri: str) -> str:
    for whole, name in SHORT.items():
        iri = iri.replace(whole, name)
    return iri


def about(said: list[Quad], subject: str) -> dict[str, list[str]]:
    """What is said of one subject."""
    found: dict[str, list[str]] = {}
    for quad in said:
        if quad.subject.value == subject:
            found.setdefault(short(quad.predicate.value), []).append(short(quad.object.value))
    return found


def looked_up() -> tuple[Made, str]:
    """A question, a thought and a call, a failed call, and an answer."""
    made = Made("r")
    tools = [{"name": "f"}, {"name": "g"}]
    made.turn()
    question = made.add(UserContent(value="rates?"))
    header = made.add(kinds.RequestHeaderContent(tools=tools))
    request = made.add(kinds.RequestContent(header=header, blocks=[], body_digest=""), question)
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    analysis = made.add(kinds.ChatCompletionContent(output="I look.", model="m", usage=usage, latency_ms=12.4), request)
    made.add(kinds.ThoughtContent(value="where?"), analysis)
    call, attempt = made.use(analysis)
    result = made.add(kinds.ToolResultContent(call=call, tool_result="no", status="error", outcome="error"), attempt)
    made.add(AssistantContent(value="Nobody knows."), made.ask(result, output="Nobody knows."))
    return made, f"urn:trustgraph:agent:r.{question}"


def test_a_turn_is_a_session_with_the_names_and_words_of_the_vocabulary() -> None:
    made, session = looked_up()
    said = told(made.entries)
    assert {quad.graph.value for quad in said} == {"urn:graph:retrieval"}
    assert about(said, session) == {
        "a": ["prov:Entity", "tg:Question", "tg:AgentQuestion"],
        "rdfs:label": ["Agent Question"],
        "tg:query": ["rates?"],
        "prov:startedAtTime": ["2026-11-21T00:00:00.000000Z"],
    }
    assert about(said, f"{session}/i1") == {
        "a": ["prov:Entity", "tg:Analysis", "tg:ToolUse"],
        "rdfs:label": ["Analysis: f"],
        "tg:action": ["f"],
        "tg:arguments": ["{}"],
        "tg:toolCandidate": ["f", "g"],
        "tg:stepNumber": ["1"],
        "tg:llmDurationMs": ["12"],
        "tg:inToken": ["7"],
        "tg:outToken": ["2"],
        "tg:llmModel": ["m"],
        "tg:thought": [f"{session}/i1/thought"],
        "tg:document": [f"{session}/i1/doc"],
        "prov:wasDerivedFrom": [session],
    }
    assert about(said, f"{session}/i1/thought") == {
        "a": ["tg:Reflection", "tg:Thought"],
        "rdfs:label": ["Thought"],
        "tg:document": [f"{session}/i1/thought"],
        "prov:value": ["where?"],
        "prov:wasDerivedFrom": [f"{session}/i1"],
    }
    assert about(said, f"{session}/i1/observation") == {
        "a": ["prov:Entity", "tg:Observation", "tg:Error"],
        "rdfs:label": ["Observation"],
        "tg:toolDurationMs": ["0"],
        "tg:toolError": ["no"],
        "tg:document": [f"{session}/i1/observation"],
        "prov:value": ["no"],
        "prov:wasDerivedFrom": [f"{session}/i1"],
    }
    assert about(said, f"{session}/final") == {
        "a": ["prov:Entity", "tg:Conclusion", "tg:Answer"],
        "rdfs:label": ["Conclusion"],
        "tg:terminationReason": ["final-answer"],
        "tg:document": [f"{session}/answer"],
        "prov:wasDerivedFrom": [f"{session}/i1/observation"],
    }
    assert about(said, f"{session}/answer") == {"prov:value": ["Nobody knows."]}


def test_calls_of_one_reply_are_told_apart() -> None:
    made = Made("r")
    made.turn()
    question = made.add(UserContent(value="both?"))
    analysis = made.ask(question)
    uses = [made.use(analysis, name) for name in ("f", "g")]
    results = [made.add(kinds.ToolResultContent(call=call, tool_result=call), attempt) for call, attempt in uses]
    names = names_of(fold(Lineage(), made.entries))
    step = f"urn:trustgraph:agent:r.{question}/i1"
    assert names[f"r.{analysis}"] == step
    for place, ((call, _), result) in enumerate(zip(uses, results, strict=True)):
        assert names[f"r.{call}"] == f"{step}/call/{place}"
        assert names[f"r.{result}"] == f"{step}/call/{place}/observation"
    said = told(made.entries)
    assert about(said, step)["rdfs:label"] == ["Analysis: f, g"]
    assert about(said, f"{step}/call/1")["tg:action"] == ["g"]
    assert about(said, f"{step}/call/1/observation")["prov:wasDerivedFrom"] == [f"{step}/call/1"]


def planned(run: str = "r") -> tuple[Made, str]:
    """A question for which a plan was chosen, its two steps, and what they add up to."""
    made = Made(run)
    made.turn()
    question = made.add(UserContent(value="compare"))
    chosen = kinds.DecisionContent(choice="plan", candidates=["plan"], rationale="long", task_type="research")
    decision = made.add(chosen, question)
    steps = [kinds.Step(goal="look"), kinds.Step(goal="weigh")]
    plan = made.add(kinds.PlanContent(role="plan", steps=steps), decision)
    ends: list[int] = []
    for place, step in enumerate(steps):
        span = made.add(BeginContent(name=f"step-{place}", role="step", parent=1))
        made.add(kinds.EdgeContent(source=["a"], dest=["b"], payload=step.goal), plan, span=span)
        ends.append(made.add(EndContent(state="done"), plan, *ends, span=span))
    span = made.add(BeginContent(name="all", role="synthesis", parent=1))
    end = made.add(EndContent(state="all in all"), *ends, span=span)
    made.add(AssistantContent(value="all in all"), end)
    return made, f"urn:trustgraph:agent:{run}.{question}"


def decomposed(run: str = "r") -> tuple[Made, str]:
    """A question with two goals, what was found of each, and what it adds up to."""
    made = Made(run)
    made.turn()
    question = made.add(UserContent(value="research"))
    goals = [kinds.Step(goal="dig"), kinds.Step(goal="dive" * 20)]
    plan = made.add(kinds.PlanContent(role="decomposition", steps=goals), question)
    ends: list[int] = []
    for place, goal in enumerate(goals):
        span = made.add(BeginContent(name=f"finding-{place}", role="finding", parent=1))
        made.add(kinds.EdgeContent(source=["a"], dest=["b"], payload=goal.goal), plan, span=span)
        ends.append(made.add(EndContent(state=f"found {place}"), plan, span=span))
    span = made.add(BeginContent(name="all", role="synthesis", parent=1))
    end = made.add(EndContent(state="gold"), *ends, span=span)
    made.add(AssistantContent(value="gold"), end)
    return made, f"urn:trustgraph:agent:{run}.{question}"


def found() -> Made:
    """Two passages that a tool found."""
    made = Made("f")
    made.turn()
    call, attempt = made.use(made.ask(made.add(UserContent(value="rates?"))))
    hits = [kinds.Hit(document="https://bank.example/rates#a", score=0.5), kinds.Hit(document="rates 1.md", chunk="3")]
    made.add(kinds.RetrievalContent(query="rates", hits=hits), attempt)
    made.add(kinds.ToolResultContent(call=call, tool_result="3 %"), attempt)
    return made


def test_a_plan_its_steps_and_what_they_add_up_to() -> None:
    made, session = planned()
    said = told(made.entries)
    assert about(said, f"{session}/pattern-decision") == {
        "a": ["prov:Entity", "tg:PatternDecision"],
        "rdfs:label": ["Pattern: plan"],
        "tg:pattern": ["plan"],
        "tg:taskType": ["research"],
        "tg:reasoning": ["long"],
        "prov:wasDerivedFrom": [session],
    }
    assert about(said, f"{session}/plan") == {
        "a": ["prov:Entity", "tg:Plan"],
        "rdfs:label": ["Plan with 2 steps"],
        "tg:planStep": ["look", "weigh"],
        "prov:wasDerivedFrom": [session, f"{session}/pattern-decision"],
    }
    assert about(said, f"{session}/step/1") == {
        "a": ["prov:Entity", "tg:StepResult", "tg:Answer"],
        "rdfs:label": ["Step result: weigh"],
        "tg:planStep": ["weigh"],
        "tg:document": [f"{session}/step/1/doc"],
        "prov:wasDerivedFrom": [f"{session}/step/0", f"{session}/plan/further"],
    }
    assert about(said, f"{session}/synthesis") == {
        "a": ["prov:Entity", "tg:Synthesis", "tg:Answer"],
        "rdfs:label": ["Synthesis"],
        "tg:terminationReason": ["plan-complete"],
        "tg:document": [f"{session}/synthesis/doc"],
        "prov:wasDerivedFrom": [f"{session}/step/1", f"{session}/step/0/further"],
    }
    assert about(said, f"{session}/synthesis/doc") == {"prov:value": ["all in all"]}


def test_goals_what_was_found_of_each_and_what_it_adds_up_to() -> None:
    made, session = decomposed()
    said = told(made.entries)
    assert about(said, f"{session}/decompose") == {
        "a": ["prov:Entity", "tg:Decomposition"],
        "rdfs:label": ["Decomposed into 2 research threads"],
        "tg:subagentGoal": ["dig", "dive" * 20],
        "prov:wasDerivedFrom": [session],
    }
    assert about(said, f"{session}/finding/1") == {
        "a": ["prov:Entity", "tg:Finding", "tg:Answer"],
        "rdfs:label": [f"Finding: {'dive' * 15}"],
        "tg:subagentGoal": ["dive" * 20],
        "tg:document": [f"{session}/finding/1/doc"],
        "prov:wasDerivedFrom": [f"{session}/decompose"],
    }
    assert about(said, f"{session}/finding/1/doc") == {"prov:value": ["found 1"]}
    whole = about(said, f"{session}/synthesis")
    assert whole["tg:terminationReason"] == ["subagents-complete"]
    assert whole["prov:wasDerivedFrom"] == [f"{session}/finding/1", f"{session}/finding/0/further"]
    beside = {"a": ["prov:Entity"], "prov:wasDerivedFrom": [f"{session}/finding/0"]}
    assert about(said, f"{session}/finding/0/further").items() >= beside.items()


def test_parts_of_a_session_have_the_names_that_are_known() -> None:
    made, session = looked_up()
    parts = {quad.subject.value.removeprefix(session) for quad in told(made.entries)}
    assert parts == {"", "/i1", "/i1/doc", "/i1/thought", "/i1/observation", "/final", "/answer"}
    made, session = planned()
    parts = {quad.subject.value.removeprefix(session) for quad in told(made.entries)}
    steps = {f"/step/{place}{doc}" for place in range(2) for doc in ("", "/doc")}
    made_of = {"/plan/further", "/step/0/further"}
    ends = {"/synthesis", "/synthesis/doc", "/final", "/answer"}
    assert parts == {"", "/pattern-decision", "/plan", *steps, *made_of, *ends}
    made, session = decomposed()
    parts = {quad.subject.value.removeprefix(session) for quad in told(made.entries)}
    findings = {f"/finding/{place}{doc}" for place in range(2) for doc in ("", "/doc")}
    assert parts == {"", "/decompose", *findings, "/finding/0/further", *ends}


CLASSES = {
    *("Question", "AgentQuestion", "Exploration", "ChunkSelection", "Analysis", "ToolUse", "Thought", "Observation"),
    *("Conclusion", "PatternDecision", "Error", "Decomposition", "Finding", "Plan", "StepResult", "Synthesis"),
    *("Answer", "Reflection", "DocRagQuestion", "Grounding", "Document", "Chunk"),
}
PREDICATES = {
    *("query", "concept", "reasoning", "score", "document", "chunkCount", "selectedChunk"),
    *("thought", "action", "arguments", "toolCandidate", "stepNumber", "terminationReason", "pattern", "taskType"),
    *("llmDurationMs", "toolDurationMs", "toolError", "inToken", "outToken", "llmModel", "subagentGoal", "planStep"),
}


def test_no_word_of_the_vocabulary_is_used_but_those_of_agents_and_of_passages() -> None:
    made = [looked_up()[0], planned("p")[0], decomposed("d")[0], found()]
    said = told([entry for each in made for entry in each.entries])
    types: dict[str, set[str]] = {}
    for quad in said:
        if quad.predicate.value == RDF_TYPE:
            types.setdefault(quad.subject.value, set()).add(short(quad.object.value).removeprefix("tg:"))
    assert set[str]().union(*types.values()) == {"prov:Entity", *CLASSES}
    assert {short(quad.predicate.value) for quad in said} == {
        *("a", "rdfs:label", "prov:wasDerivedFrom", "prov:startedAtTime", "prov:value"),
        *(f"tg:{name}" for name in PREDICATES),
    }
    answers = {"Conclusion", "Finding", "StepResult", "Synthesis"}
    assert all(bool(each & answers) == ("Answer" in each) for each in types.values())
    assert all(("Thought" in each) == ("Reflection" in each) for each in types.values())


@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": 9}, {"prompt_tokens": None, "completion_tokens": None}])
def test_what_a_model_call_took_is_left_out_where_it_is_not_known(usage: dict[str, Any] | None) -> None:
    made = Made("r")
    made.turn()
    question = made.add(UserContent(value="rates?"))
    request = made.add(kinds.RequestContent(header=1, blocks=[], body_digest=""), question)
    made.use(made.add(kinds.ChatCompletionContent(output="", usage=usage), request))
    step = about(told(made.entries), f"urn:trustgraph:agent:r.{question}/i1")
    assert not {"tg:inToken", "tg:outToken", "tg:llmDurationMs", "tg:llmModel", "tg:document"} & set(step)


def test_a_run_of_its_own_is_a_session_derived_from_where_its_task_came_from() -> None:
    parent, child = Made("p"), Made("c")
    parent.turn()
    question = parent.add(UserContent(value="research"))
    goals = parent.add(kinds.PlanContent(role="decomposition", steps=[kinds.Step(goal="dig")]), question)
    span = parent.add(BeginContent(name="finding-0", role="finding", parent=1))
    edge = parent.add(kinds.EdgeContent(source=["a"], dest=["b"], payload="dig"), goals, span=span)
    child.turn(opened=kinds.Opened(session="s", name="c", record="x", parent_run="p"))
    task = child.add(SystemContent(value="dig"), ("p", edge))
    end = child.add(EndContent(status="error", reason="limit"), task)
    parent.add(EndContent(status="error"), ("c", end), span=span)
    said, session = told([*parent.entries, *child.entries]), f"urn:trustgraph:agent:p.{question}"
    assert about(said, f"{session}/decompose")["rdfs:label"] == ["Decomposed into 1 research threads"]
    assert about(said, f"{session}/decompose")["tg:subagentGoal"] == ["dig"]
    own = f"urn:trustgraph:agent:c.{task}"
    assert about(said, own)["prov:wasDerivedFrom"] == [f"{session}/decompose"]
    assert about(said, f"{own}/final")["tg:terminationReason"] == ["max-iterations"]
    assert about(said, f"{own}/final")["a"] == ["prov:Entity", "tg:Conclusion", "tg:Answer", "tg:Error"]
    assert about(said, f"{session}/finding/0")["rdfs:label"] == ["Finding: dig"]
    assert about(said, f"{session}/finding/0")["prov:wasDerivedFrom"] == [f"{session}/decompose", f"{own}/final"]


def test_passages_are_chunks_of_documents() -> None:
    made = found()
    entry = next(entry for entry in made.entries if isinstance(entry.content, kinds.RetrievalContent))
    said = told(made.entries)
    chosen = [f"urn:trustgraph:prov:chunk:{entry.id}:{place}" for place in range(2)]
    assert about(said, f"urn:trustgraph:docrag:{entry.id}/exploration")["tg:selectedChunk"] == chosen
    assert about(said, chosen[0])["tg:document"] == ["https://bank.example/rates#a"]
    assert about(said, chosen[0])["tg:score"] == ["0.5"]
    assert about(said, chosen[1])["tg:document"] == ["urn:gesta:document:rates%201.md#3"]


def test_a_lookup_that_was_ranked_again_still_leads_to_its_answer() -> None:
    made = Made("r")
    made.turn()
    question = made.add(UserContent(value="rates?"))
    call, attempt = made.use(made.ask(question))
    hits = [kinds.Hit(document=f"urn:d:{place}", score=0.5) for place in range(3)]
    first = made.add(kinds.RetrievalContent(query="rates", hits=hits), attempt)
    best = made.add(kinds.RetrievalContent(query="rates", hits=hits[1:2]), first)
    result = made.add(kinds.ToolResultContent(call=call, tool_result="3 %"), best)
    made.add(AssistantContent(value="3 %"), made.ask(question, result, output="3 %"))
    said, session = told(made.entries), f"urn:trustgraph:agent:r.{question}"
    stages = [
        f"urn:trustgraph:docrag:r.{seq}{stage}" for seq in (best, first) for stage in ("/exploration", "/grounding", "")
    ]
    walk = [f"{session}/final", f"{session}/i1/observation", *stages, f"{session}/i1", session]
    for later, earlier in pairwise(walk):
        assert about(said, later)["prov:wasDerivedFrom"][-1] == earlier
    assert [about(said, stage)["tg:chunkCount"] for stage in stages[::3]] == [["1"], ["3"]]


def test_numbers_and_times_are_typed() -> None:
    made, _ = looked_up()
    types = {short(quad.predicate.value): quad.object.datatype.rpartition("#")[2] for quad in told(made.entries)}
    assert types["prov:startedAtTime"] == "dateTime"
    assert {types[name] for name in ("tg:stepNumber", "tg:inToken", "tg:outToken", "tg:llmDurationMs")} == {"integer"}
    assert types["tg:query"] == ""


@pytest.mark.parametrize("format", ["trig", "nquads"])
async def test_a_query_walks_from_the_answer_to_its_question(format: str) -> None:
    async with gesta.open(":memory:") as record:
        outcome = await record.run(supervisor_of(*GOALS), "where is gold?", session="s")
        text = "".join([part async for part in bridge.export(record, outcome.run, format)])
        every = "".join([part async for part in bridge.export(record, None, format)])
        nodes, state = await all_nodes(record, outcome.run)
        said = list(quads(nodes, state))
    read = set(rdf.parse(text.encode(), format=bridge.FORMATS[format]))
    assert read == {bridge.statement(quad) for quad in said} == set(rdf.parse(every.encode(), bridge.FORMATS[format]))
    store = rdf.Store()
    store.extend(read)
    rows: Any = store.query(WALK)
    far: dict[str, set[str]] = {}
    for row in rows:
        far.setdefault(short(row["type"].value).removeprefix("tg:"), set()).add(row["far"].value)
    assert {name: len(found) for name, found in far.items() if name in KINDS} == KINDS
    asked = next(node.id for node in nodes if node.text == "where is gold?")
    assert names_of(state)[asked] in far["Question"]


KINDS = {
    "Question": 5,
    "Conclusion": 4,
    "Decomposition": 1,
    "Finding": 2,
    "Synthesis": 1,
    "Analysis": 6,
    "Observation": 4,
}


async def test_what_is_told_live_is_what_is_exported_afterwards() -> None:
    script = [gesta.reply(calls=[gesta.call("weather", city=city)]) for city in ("Rome", "Oslo")]
    agent = gesta.Agent("guide", model=gesta.scripted(*script, "Dry."), tools=[weather])
    early: dict[str, dict[str, list[str]]] = {}
    async with gesta.open(":memory:") as record:
        async for event in record.stream(agent, "Rome?", session="s"):
            if event.type == "explain":
                entries = await record.read(event.run)
                assert event.explain_id is not None
                name = names_of(fold(Lineage(), entries))[event.explain_id]
                early[name] = about(told(entries), name)
        said = told(await record.read(event.run))
    assert len(early) == 6
    for name, found in early.items():
        assert found == about(said, name)


hostile = st.text(max_size=20) | st.sampled_from(
    [NASTY, '"""', "\\", "<urn:x>", "} GRAPH {", "\x00", "\ud800", "\ufffe"]
)


@given(st.lists(hostile, min_size=4, max_size=4), st.sampled_from(["trig", "nquads"]))
def test_no_text_breaks_out_of_what_is_written(texts: list[str], format: str) -> None:
    made = Made(f"run {texts[0]}")
    made.turn()
    question = made.add(UserContent(value=texts[1]))
    call, attempt = made.use(made.ask(question, output=texts[2]), texts[3])
    hits = [
        kinds.Hit(document=texts[0], chunk=texts[1]),
        kinds.Hit(document=f"https://{texts[2]}"),
        kinds.Hit(document=""),
    ]
    made.add(kinds.RetrievalContent(query=texts[2], hits=hits), attempt)
    result = made.add(kinds.ToolResultContent(call=call, tool_result=texts), attempt)
    made.add(AssistantContent(value=texts[3]), result)
    said = told(made.entries)
    text = bridge.write(said, format)
    read = {*rdf.parse(text.encode(), format=bridge.FORMATS[format])}
    assert read == {bridge.statement(quad) for quad in said}
    assert {quad.graph_name for quad in read} == {rdf.NamedNode(GRAPH), rdf.NamedNode(SOURCES)}
    assert len(said) == len(set(said)) == len(read)


@given(hostile | st.from_regex(r"(urn|https?)://?[a-z\[:#%/ ]{0,12}", fullmatch=True), st.none() | hostile)
def test_any_document_has_an_iri(document: str, chunk: str | None) -> None:
    rdf.NamedNode(document_iri(kinds.Hit(document=document, chunk=chunk)))


# ------------------------------------------------------------------------------------------------- on the command line
@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GESTA_RECORD", raising=False)
    agent = gesta.Agent("guide", model=gesta.scripted("Dry."), tools=[weather])
    for session in ("s", "t"):
        gesta.run_sync(agent, "Rome?", record="runs.gesta", session=session)
    return tmp_path


def export(*words: str) -> Result:
    return gesta_command("export", *words)


def test_export_writes_each_format(shell: Path) -> None:
    for format, loaded in bridge.FORMATS.items():
        one, both = export("s", "--format", format), export("--all", "--format", format)
        assert (one.exit_code, both.exit_code) == (0, 0)
        few, many = (set(rdf.parse(done.stdout.encode(), format=loaded)) for done in (one, both))
        assert few < many
        assert len(many) == 2 * len(few)
    assert export("s", "--format", "trig", "-o", "s.trig").stderr.endswith("1 run written to s.trig\n")
    assert (shell / "s.trig").read_text(encoding="utf-8").startswith("@prefix")
    assert export("--all", "--format", "agent-catalog").stdout.count('"kind":"assistant"') == 2
    wrong = export("s", "--format", "tirg")
    assert wrong.exit_code == 2
    assert "No format 'tirg' to write. Did you mean 'trig'?" in wrong.stderr


def test_without_the_library_the_line_that_installs_it_is_said(shell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    monkeypatch.delitem(sys.modules, "gesta.bridges.prov")
    monkeypatch.delattr("gesta.bridges.prov")
    done = export("s", "--format", "trig")
    assert done.exit_code == 1
    assert "pip install 'gesta[prov]'" in done.stderr
    assert "Traceback" not in done.stderr
