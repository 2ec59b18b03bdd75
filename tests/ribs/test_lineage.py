"""The lineage of an answer, node by node; and `gesta why`, which shows it on one page."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.cli.test_transcript import SAMPLES
from tests.commands import gesta_command
from typer.testing import Result

import gesta
from gesta import kinds
from gesta.cli.talk import HOSTILE
from gesta.entry import Cause, Entry, fold
from gesta.errors import NoRun
from gesta.events import Event
from gesta.kinds import AssistantContent, BeginContent, EndContent, Kind, Opened, SystemContent, UserContent
from gesta.lineage import PLACES
from gesta.views.drawn import narrowed
from gesta.views.lineage import Explanation, Lineage, Unexplained, explain, unexplained
from gesta.workflow.verbs import Verbs

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NASTY = "\x1b[2J\x1b]0;owned\x07 \u202edcba\u202c [bold]x[/bold]\r\n\x9b31m \ud800" + "犬" * 200


class Made:
    """Entries of one run, written by hand."""

    def __init__(self, run: str = "r") -> None:
        self.run = run
        self.entries: list[Entry] = []

    def add(self, content: Any, *causes: Cause, span: int = 1, inferred: bool = False) -> int:
        seq = len(self.entries) + 1
        span = seq if isinstance(content, BeginContent) else span
        notes = {"inferred": ["causes"]} if inferred else None
        self.entries.append(
            Entry(run=self.run, seq=seq, at=NOW, span=span, causes=causes, content=content, annotations=notes)
        )
        return seq

    def turn(self, **fields: Any) -> int:
        return self.add(BeginContent(name="a", role="turn", **fields))

    def ask(self, *causes: Cause, output: str = "") -> int:
        """A request and its completion."""
        request = self.add(kinds.RequestContent(header=1, blocks=[], body_digest=""), *causes)
        return self.add(kinds.ChatCompletionContent(output=output), request)

    def use(self, completion: int, name: str = "f") -> tuple[int, int]:
        """A call and its attempt."""
        call = self.add(kinds.ToolCallContent(tool_name=name, tool_args={}), completion)
        return call, self.add(kinds.AttemptContent(of=call, number=1, epoch=1), call)


def chain(found: Explanation) -> list[tuple[str, int, tuple[int, ...]]]:
    numbers = {node.id: node.seq for node in found.nodes}
    return [(node.type, node.seq, tuple(numbers[id] for id in node.derived_from)) for node in found.nodes]


@gesta.tool(effect="pure")
async def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"{city}: 21 degrees, dry"


async def told(*script: Any) -> tuple[list[Entry], list[Event]]:
    agent = gesta.Agent("guide", model=gesta.scripted(*script), tools=[weather])
    async with gesta.open(":memory:") as record:
        events = [event async for event in record.stream(agent, "Rome?", session="s")]
        return await record.read(events[0].run), events


async def test_the_chain_goes_from_question_to_conclusion() -> None:
    both = [gesta.call("weather", city="Rome"), gesta.call("weather", city="Oslo")]
    entries, _ = await told(gesta.reply("Let me see.", thought="Which city?", calls=both), "Dry.")
    found = explain(entries, next(entry.seq for entry in entries if entry.kind is Kind.Assistant))
    assert chain(found) == [
        ("Question", 2, ()),
        ("Analysis", 5, (2,)),
        ("Thought", 6, (5,)),
        ("ToolUse", 7, (5,)),
        ("ToolUse", 8, (5,)),
        ("Observation", 11, (7,)),
        ("Observation", 12, (8,)),
        ("Conclusion", 15, (11, 12)),
    ]
    assert [node.text for node in found.nodes][:4] == [
        "Rome?",
        "Let me see.",
        "Which city?",
        'weather {"city": "Rome"}',
    ]
    assert found.nodes[-2].text == "Oslo: 21 degrees, dry"
    assert (found.questions, found.complete, found.elsewhere) == ((entries[1].id,), True, ())
    assert chain(explain(entries, 5)) == [("Question", 2, ()), ("Analysis", 5, (2,))], "what came later is no reason"


async def test_what_listeners_hear_stands_in_the_explanation_under_the_same_names() -> None:
    entries, events = await told(gesta.call("weather", city="Rome"), "Dry.")
    nodes = {node.id: (node.type, node.derived_from) for node in explain(entries, len(entries) - 1).nodes}
    heard = [event for event in events if event.type == "explain"]
    assert len(heard) == 5
    for event in heard:
        assert event.explain_graph is not None
        assert event.explain_id is not None
        assert nodes[event.explain_id] == (event.explain_graph.node, event.explain_graph.derived_from)


@pytest.mark.parametrize(
    ("output", "types"),
    [
        ("Loaded. Error 400: filtered. FINAL ANSWER: 2", ["Question", "Analysis", "Conclusion"]),
        (" 2\n", ["Question", "Conclusion"]),
        ("", ["Question", "Conclusion"]),
    ],
)
def test_a_reply_that_says_more_than_the_answer_taken_from_it_stands_beside_it(output: str, types: list[str]) -> None:
    made = Made()
    made.turn()
    question = made.add(UserContent(value="How many birds?"))
    reply = made.ask(question, output=output)
    answer = made.add(AssistantContent(value="2"), reply)
    later = made.add(AssistantContent(value="As I said."), made.ask(answer, output="As I said."))
    found = explain(made.entries, answer)
    assert [node.type for node in found.nodes] == types
    assert found.nodes[-1].derived_from == (f"r.{reply if 'Analysis' in types else question}",)
    assert (f"r.{reply}" in narrowed(found, ())) == ("Analysis" in types)
    assert [node.type for node in explain(made.entries, later).nodes] == [*types, "Conclusion"]


def test_passages_that_a_tool_found_stand_between_its_call_and_its_result() -> None:
    made = Made()
    made.turn()
    question = made.add(UserContent(value="rates?"))
    call, attempt = made.use(made.ask(question))
    hits = [kinds.Hit(document="rates.md", chunk="3"), kinds.Hit(document="fees.md", chunk="1")]
    passages = made.add(kinds.RetrievalContent(query="rates", hits=hits), attempt)
    result = made.add(kinds.ToolResultContent(call=call, tool_result="3 %"), attempt)
    answer = made.add(AssistantContent(value="3 %"), made.ask(question, result))
    found = explain(made.entries, answer)
    assert chain(found)[2:] == [
        ("ToolUse", call, (4,)),
        ("Retrieval", passages, (call,)),
        ("Observation", result, (passages,)),
        ("Conclusion", answer, (result,)),
    ]
    assert found.nodes[3].text == "rates\nrates.md 3\nfees.md 1"


def test_a_plan_and_its_steps() -> None:
    made = Made()
    made.turn()
    question = made.add(UserContent(value="compare"))
    decision = made.add(kinds.DecisionContent(choice="plan", candidates=["plan", "react"]), question)
    steps = [kinds.Step(goal="look"), kinds.Step(goal="weigh")]
    plan = made.add(kinds.PlanContent(role="plan", steps=steps), made.ask(decision, output="{}"))
    ends: list[int] = []
    for place in range(2):
        span = made.add(BeginContent(name=f"step-{place}", role="step", parent=1))
        said = made.add(kinds.KeyValueContent(key="found", value=place), plan, *ends[-1:], span=span)
        ends.append(made.add(EndContent(state=f"step {place} is done"), span=span))
        assert explain(made.entries, said).nodes[-1].type == "Note"
    span = made.add(BeginContent(name="synthesis", role="synthesis", parent=1))
    answer = made.add(AssistantContent(value="all in all"), *ends, span=span)
    made.add(EndContent(), span=span)
    types = [(node.type, node.text) for node in explain(made.entries, answer).nodes]
    assert types == [
        ("Question", "compare"),
        ("PatternDecision", "plan of plan, react"),
        ("Plan", "0. look\n1. weigh"),
        ("Note", "found = 0"),
        ("StepResult", "step 0 is done"),
        ("Note", "found = 1"),
        ("StepResult", "step 1 is done"),
        ("Synthesis", "all in all"),
    ]
    assert unexplained(made.entries) == Unexplained({}, (), (), 0)


def supervisor() -> tuple[list[Entry], list[Entry], int]:
    """A decomposition whose one goal is a run of its own, and the finding that comes of it."""
    parent, child = Made("p"), Made("c")
    parent.turn()
    question = parent.add(UserContent(value="research"))
    goals = parent.add(kinds.PlanContent(role="decomposition", steps=[kinds.Step(goal="dig")]), question)
    child.turn(opened=Opened(session="s", name="c", record="x", parent_run="p"))
    task = child.add(SystemContent(value="dig"), ("p", goals))
    said = child.add(AssistantContent(value="gold"), child.ask(task, output="gold"))
    span = parent.add(BeginContent(name="finding-0", role="finding", parent=1))
    parent.add(kinds.KeyValueContent(key="child", value="c"), ("c", said), span=span)
    finding = parent.add(EndContent(state="gold"), span=span)
    answer = parent.add(AssistantContent(value="there is gold"), finding)
    return parent.entries, child.entries, answer


def test_a_finding_leads_down_through_the_run_that_made_it() -> None:
    parent, child, answer = supervisor()
    alone = explain(parent, answer)
    assert alone.elsewhere == (("c", 5),)
    for entries in ([*parent, *child], [*child, *parent]):
        found = explain(entries, answer, "p")
        assert [(node.type, node.id) for node in found.nodes if node.type != "Note"] == [
            ("Question", "p.2"),
            ("Decomposition", "p.3"),
            ("Question", "c.2"),
            ("Conclusion", "c.5"),
            ("Finding", "p.6"),
            ("Conclusion", "p.7"),
        ]
        assert (found.complete, found.elsewhere) == (True, ())
        assert unexplained(entries) == Unexplained({}, (), (), 0)


def test_a_run_that_another_opened_concludes_with_the_end_of_its_turn() -> None:
    made = Made("c")
    made.turn(opened=Opened(session="s", name="c", record="x", parent_run="p"))
    task = made.add(SystemContent(value="dig"), ("p", 7))
    end = made.add(EndContent(state="gold", reason="answered"), made.ask(task, output="gold"))
    found = explain(made.entries, end)
    assert chain(found) == [("Question", task, ()), ("Conclusion", end, (task,))]
    assert (found.questions, found.complete, found.nodes[-1].text) == ((f"c.{task}",), True, "gold")
    assert (found.nodes[-1].status, found.elsewhere) == (None, (("p", 7),))
    assert unexplained(made.entries) == Unexplained({}, (), (), 0)


def test_a_run_that_another_opened_and_that_failed_still_answers_its_task() -> None:
    made = Made("c")
    made.turn(opened=Opened(session="s", name="c", record="x", parent_run="p"))
    task = made.add(SystemContent(value="dig"))
    error = kinds.Error(type="limit", message="ten requests were made")
    end = made.add(EndContent(status="error", reason="limit", error=error))
    found = explain(made.entries, end)
    assert chain(found) == [("Question", task, ()), ("Conclusion", end, (task,))]
    assert (found.nodes[-1].status, found.nodes[-1].text) == ("limit", "ten requests were made")
    assert unexplained(made.entries) == Unexplained({}, (), (), 0)


def test_what_was_gathered_names_all_that_it_was_made_from() -> None:
    made = Made()
    made.turn()
    plan = made.add(kinds.PlanContent(role="plan", steps=[kinds.Step(goal="look")]), made.add(UserContent(value="go")))
    ends = [plan]
    for place in range(3):
        span = made.add(BeginContent(name=f"step-{place}", role="step", parent=1))
        edge = made.add(kinds.EdgeContent(source=["a"], dest=["b"], payload="look"), plan, span=span)
        ends.append(made.add(EndContent(state="seen"), *ends, (f"c{place}", 5), span=span))
        assert not {edge} & {node.seq for node in explain(made.entries, ends[-1]).nodes}
        assert chain(explain(made.entries, ends[-1]))[-1] == ("StepResult", ends[-1], tuple(ends[:-1]))
    whole = made.add(BeginContent(name="whole", role="synthesis", parent=1))
    end = made.add(EndContent(state="all in all"), *ends[1:], span=whole)
    assert chain(explain(made.entries, end))[-1] == ("Synthesis", end, tuple(ends[1:]))


@gesta.tool(effect="pure")
async def dig(where: str) -> str:
    """Dig somewhere."""
    return f"gold in the {where}"


def supervisor_of(*goals: str) -> gesta.Agent:
    """An agent that has a goal each researched by an agent of its own, at once."""

    def digger(goal: str) -> gesta.Agent:
        both = [gesta.call("dig", where=goal), gesta.call("dig", where=f"other {goal}")]
        return gesta.Agent("digger", model=gesta.scripted(gesta.reply(calls=both), f"{goal}: gold"), tools=[dig])

    async def lead(verbs: Verbs, text: str) -> str:
        planner = gesta.Agent("planner", model=gesta.scripted(" and ".join(goals)))
        planned = await verbs.call(planner, text, "decompose", role="plan")
        steps = [kinds.Step(goal=goal) for goal in planned.text.split(" and ")]
        _, plan = verbs.note("goals", kinds.PlanContent(role="decomposition", steps=steps), [planned.seq])
        found: dict[int, int] = {}

        async def research(place: int, goal: str) -> None:
            name = f"finding-{place}"
            found[place] = (await verbs.call(digger(goal), goal, name, role="finding", causes=[plan.seq])).seq

        async with anyio.create_task_group() as group:
            for place, step in enumerate(steps):
                group.start_soon(research, place, step.goal)
        writer = gesta.Agent("writer", model=gesta.scripted("Gold everywhere."))
        whole = await verbs.call(
            writer, "sum up", "sum", role="synthesis", causes=[found[each] for each in sorted(found)]
        )
        verbs.sources = (whole.seq,)
        return whole.text

    return gesta.Agent("lead", program=lead)


GOALS = ("cellar", "garden")
NODES = [
    *("Question", "Question", "Conclusion", "Decomposition"),
    *("Question", "Analysis", "ToolUse", "ToolUse", "Observation", "Observation", "Conclusion") * 2,
    *("Finding", "Finding", "Question", "Conclusion", "Synthesis", "Conclusion"),
]


async def test_the_answer_of_a_supervisor_is_explained_down_through_its_agents() -> None:
    async with gesta.open(":memory:") as record:
        outcome = await record.run(supervisor_of(*GOALS), "where is gold?", session="s")
        entries = [entry for row in await record.store.runs() for entry in await record.read(row.run)]
        own = await record.read(outcome.run)
        answer = next(entry for entry in own if entry.kind is Kind.Assistant)
        found = await record.explain(answer)
        assert found == await record.explain(answer.id) == await record.explain((answer.run, answer.seq))
    assert sorted(node.type for node in found.nodes) == sorted(NODES)
    assert (found.complete, found.elsewhere, len(found.questions)) == (True, (), 1)
    assert unexplained(entries) == Unexplained({}, (), (), 0)
    assert unexplained(own) == Unexplained({}, (), (), 0), "what lies in other runs is nothing that it lacks"
    nodes = {node.id: node for node in found.nodes}
    sources = {node.id: [nodes[id].type for id in node.derived_from] for node in found.nodes}
    decomposed = next(node for node in found.nodes if node.type == "Decomposition")
    for node in found.nodes:
        if node.text in GOALS:
            assert node.derived_from == (decomposed.id,), "the goal of an agent comes from the decomposition"
        elif node.type in ("Finding", "Decomposition"):
            assert sources[node.id] == ["Conclusion"]
        elif node.type == "Synthesis":
            assert sorted(sources[node.id]) == ["Conclusion", "Finding", "Finding"]
    assert [sources[node.id] for node in found.nodes if node.text == "sum up"] == [["Finding", "Finding"]]
    for entry in entries:  # explained alone or in the whole, an entry was made from the same
        if entry.id in nodes and entry.kind is not Kind.ToolCall:
            assert nodes[entry.id].derived_from == explain(entries, entry.seq, entry.run).nodes[-1].derived_from


async def test_explain_says_which_entry_it_does_not_find() -> None:
    async with gesta.open(":memory:") as record:
        outcome = await record.run(gesta.Agent("guide", model=gesta.scripted("Dry.")), "Rome?", session="s")
        assert (await record.explain("s.2")).nodes[-1].text == "Rome?"
        for wrong in (f"{outcome.run}.99", (outcome.run, 99)):
            with pytest.raises(
                gesta.GestaError,
                match=f"No entry 99 in run {outcome.run}. Its entries are 1 to 7; `gesta log` shows them.",
            ):
                await record.explain(wrong)
        with pytest.raises(gesta.GestaError, match="'seven' is not an id of an entry"):
            await record.explain("seven")
        with pytest.raises(gesta.GestaError, match="A value of type Outcome is not an entry"):
            await record.explain(outcome)  # type: ignore[arg-type]
        with pytest.raises(NoRun, match="No run or session 'nobody'"):
            await record.explain("nobody.1")


def test_the_synchronous_door_explains_too() -> None:
    with gesta.open_sync() as record:
        with record.span("guide", session="s") as span:
            question = span.log(UserContent(value="Rome?"))
        assert question is not None
        assert [node.text for node in record.explain(question).nodes] == ["Rome?"]


def test_a_summary_derives_from_all_that_it_stands_for() -> None:
    made = Made()
    made.turn()
    question = made.add(UserContent(value="first"))
    result = made.add(AssistantContent(value="well"), made.ask(question, output="well"))
    summary = made.add(kinds.CompactionContent(from_seq=2, to_seq=10**12, summary="they talked"))
    asked = made.add(UserContent(value="and?"))
    answer = made.add(AssistantContent(value="so"), made.ask(summary, asked))
    assert chain(explain(made.entries, answer)) == [
        ("Question", question, ()),
        ("Conclusion", result, (question,)),
        ("Summary", summary, (result,)),
        ("Question", asked, ()),
        ("Conclusion", answer, (summary, asked)),
    ]


def test_what_has_no_cause_is_named_and_greetings_and_inferred_causes_are_counted_apart() -> None:
    made = Made()
    made.turn()
    greeting = made.add(AssistantContent(value="Welcome!"))
    question = made.add(UserContent(value="hello"))
    lost = made.add(AssistantContent(value="from nowhere"))
    guessed = made.add(kinds.ChatCompletionContent(output="well"), question, inferred=True)
    good = made.add(AssistantContent(value="well"), guessed)
    call = made.add(kinds.ToolCallContent(tool_name="f", tool_args={}), good)
    orphan = made.add(kinds.ToolResultContent(tool_result=1))
    assert unexplained(made.entries) == Unexplained(
        {
            f"r.{lost}": "assistant without a cause",
            f"r.{call}": f"tool-call without a cause of kind {' or '.join(sorted(PLACES[Kind.ToolCall].causes or ()))}",
            f"r.{orphan}": "tool-result without a cause of kind attempt or tool-call",
        },
        (f"r.{lost}",),
        (f"r.{greeting}",),
        1,
    )
    assert explain(made.entries, good).nodes[-1].inferred
    assert not explain(made.entries, lost).complete
    assert explain(made.entries, greeting).questions == ()


def test_any_entry_can_be_explained() -> None:
    made = Made()
    made.turn()
    question = made.add(UserContent(value="hello"))
    made.ask(question)
    assert chain(explain(made.entries, 3)) == [("Question", 2, ()), ("Entry", 3, (2,))]
    assert chain(explain(made.entries, 1)) == [("Entry", 1, ())]
    with pytest.raises(AssertionError, match="no entry 9 in run 'r'"):
        explain(made.entries, 9)


contents = st.sampled_from([(kind, fields) for kind, fields in SAMPLES.items()])
places = st.tuples(contents, st.lists(st.tuples(st.sampled_from("rq"), st.integers(-1, 12)), max_size=3))


@given(st.lists(places, max_size=12), st.integers(0, 12))
def test_no_entries_stop_it_whatever_their_causes_are(wild: list[Any], cut: int) -> None:
    entries = []
    for place, ((kind, fields), causes) in enumerate(wild):
        run, seq = "rq"[place % 2], place // 2 + 1
        own = tuple(at if other == run else (other, at) for other, at in causes)
        entries.append(Entry(run=run, seq=seq, at=NOW, span=1, causes=own, content=kind(**fields)))
    for entry in entries:
        found = explain(entries, entry.seq, entry.run)
        assert found.nodes[-1].id == entry.id
        assert all(isinstance(node.text, str) for node in found.nodes)
    unexplained(entries)
    assert fold(Lineage(), entries[cut:], fold(Lineage(), entries[:cut])) == fold(Lineage(), entries)


def test_the_page_lists_the_causes_of_every_kind() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "lineage.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) ?\| (.*?) ?\|$", page, re.MULTILINE)
    causes = {kind: None if said == "any" else set(re.findall(r"`(.+?)`", said)) for kind, _, said in rows}
    assert causes == {kind.value: place.causes for kind, place in PLACES.items()}
    nodes = {kind: re.findall(r"[A-Z]\w+", said) for kind, said, _ in rows}
    assert all((place.node or (nodes[kind] or [None])[0]) in [*nodes[kind], None] for kind, place in PLACES.items())


# ------------------------------------------------------------------------------------------------- on the command line
@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("GESTA_RECORD", raising=False)
    return tmp_path


def why(*words: str) -> Result:
    return gesta_command("why", *words)


def recorded(*script: Any, texts: tuple[str, ...] = ("Rome?",)) -> None:
    agent = gesta.Agent("guide", model=gesta.scripted(*script), tools=[weather])
    for text in texts:
        gesta.run_sync(agent, text, record="runs.gesta", session="s")


def test_why_puts_no_dots_in_place_of_one_letter(shell: Path) -> None:
    del shell
    recorded(gesta.call("weather", city="L" * 29), "There are 21 degrees.")
    assert f"Observation   {'L' * 29}: [21 degrees], dry\n" in why("last").stdout


def test_why_shows_the_last_answer_as_a_tree(shell: Path) -> None:
    recorded(gesta.call("weather", city="Rome"), "Rome is dry.")
    done = why("s")
    assert (done.exit_code, done.stderr) == (0, "")
    assert (
        re.sub("run [0-9a-f]{16}", "run <run>", done.stdout)
        == """\
what entry 11 of run <run> was made from
 2  Question         Rome?
 5  Analysis ← 2
 6  └ ToolUse        weather {"city": "Rome"}
 8    └ Observation  Rome: 21 degrees, dry
11  Conclusion ← 8   Rome is dry.
"""
    )
    assert why("last", "8").stdout.splitlines()[1:] == [line[1:] for line in done.stdout.splitlines()[1:5]]


def test_why_obeys_no_code_of_an_answer_whose_words_stand_in_a_source(shell: Path) -> None:
    del shell
    recorded("\x1b[2J\x9b31mThe order 4711-ABCD is on its way\u202e", texts=("Where is order 4711-ABCD now?",))
    said = why("last").stdout
    assert "[" in said.splitlines()[-1].split("order 4711-ABCD")[0]
    assert "\\x1b[2J" in said
    assert not HOSTILE.search(said)


def test_why_as_json_gives_each_node(shell: Path) -> None:
    recorded(NASTY)
    nodes = [json.loads(line) for line in why("s", "--json").stdout.splitlines()]
    assert [(node["type"], node["seq"], node["kind"]) for node in nodes] == [
        ("Question", 2, "user"),
        ("Conclusion", 6, "assistant"),
    ]
    assert nodes[1]["derived_from"] == [nodes[0]["id"]]
    assert nodes[1]["text"] == NASTY


def test_the_page_of_a_long_run_fits_and_says_what_it_leaves_out(shell: Path) -> None:
    steps: list[Any] = [gesta.reply(text, calls=[gesta.call("weather", city=text)]) for text in ["word " * 99] * 30]
    recorded(*steps[:10], "first", *steps, NASTY, texts=("one?", "two?"))
    lines = why("s").stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(cell_len, lines)) <= 100
    assert not HOSTILE.search("".join(lines))
    assert lines[-1].startswith("left out: ")
    assert lines[-1].endswith("(--all shows them)")
    assert "two?" in "".join(lines)
    assert "  one?" not in "".join(lines), "earlier turns are left out first"
    assert "Conclusion" in lines[-2]
    whole = why("s", "--all").stdout
    assert "left out" not in whole
    assert whole.count("Observation") == 40
    assert not HOSTILE.search(whole.replace("\n", ""))


async def test_why_goes_down_through_other_runs(shell: Path) -> None:
    async with gesta.open("runs.gesta") as record, record.span("p", session="s") as up:
        question = up.write(UserContent(value="research"))
        async with record.span("c", session="s-c") as down:
            task = down.write(SystemContent(value="dig"), ((question.run, question.seq),))
            said = down.write(AssistantContent(value="gold"), (task.seq,))
        up.write(AssistantContent(value="there is gold"), (question.seq, (said.run, said.seq)))
    lines = why_in_a_thread("s")
    assert [line.split()[1:3] for line in lines[1:]] == [
        ["Question", "research"],
        ["Conclusion", "←"],
        ["└", "Conclusion"],
    ]


def why_in_a_thread(*words: str) -> list[str]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(why, *words).result().stdout.splitlines()


def test_why_says_what_it_can_not_say(shell: Path) -> None:
    with gesta.open_sync("runs.gesta") as record:
        with record.span("greeter", session="s") as span:
            span.log(AssistantContent(value="Welcome!"))
        with record.span("greeter", session="t") as span:
            span.log(UserContent(value="hello"))
        with record.span("greeter", session="u") as span:
            span.log(UserContent(value="hello"))
            span.log(AssistantContent(value="hello yourself"))
    assert why("s").stderr == "Nobody had asked anything before it.\n"
    assert why("t").stderr == "There is no answer yet; this is the last that was said or done.\n"
    assert "whoever wrote it down named none" in why("u").stderr
    done = why("u", "9")
    assert done.exit_code == 2
    assert "No entry 9 in run" in done.stderr
    assert "Its entries are 1 to 4; `gesta log` shows them." in done.stderr
