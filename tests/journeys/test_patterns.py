"""Patterns as a user drives them: plans, supervisors and routers, with what goes wrong in each."""

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import programs
from tests.journeys.minds import QUICK, everything, goals, joined, mind, plan, told
from tests.laws.scenes import Tape, again

import gesta
from gesta import address
from gesta.entry import Entry, run_id
from gesta.kinds import (
    ApprovalContent,
    BeginContent,
    DecisionContent,
    Hit,
    PlanContent,
    RequestContent,
    RequestHeaderContent,
    RetrievalContent,
    Step,
)
from gesta.patterns.plan import in_order, plan_then_execute, read_plan
from gesta.patterns.react import react
from gesta.patterns.roles import BadAnswer, prompt
from gesta.patterns.router import TaskType, read_choice, router
from gesta.patterns.supervisor import read_goals, supervisor
from gesta.record.record import Record
from gesta.views.lineage import Node, unexplained


def quick(agent: gesta.Agent) -> gesta.Agent:
    return msgspec.structs.replace(agent, policy=QUICK)


def contents(entries: list[Entry], kind: type[Any]) -> list[Any]:
    return [entry.content for entry in entries if isinstance(entry.content, kind)]


async def chain(record: address.Record, run: str) -> tuple[dict[str, Node], list[Node]]:
    """The nodes of a run's answer, by id, and in order."""
    answer = next(entry for entry in reversed(await record.read(run)) if entry.kind == "assistant")
    found = await record.explain(answer)
    assert found.complete
    return {node.id: node for node in found.nodes}, list(found.nodes)


def sources(nodes: dict[str, Node], node: Node) -> list[str]:
    return sorted(nodes[id].type for id in node.derived_from)


def parrot(messages: list[dict[str, Any]]) -> str:
    """Do a step or a goal by saying it again in capitals."""
    text = messages[-1]["content"]
    return (json.loads(text)["goal"] if text.startswith("{") else text).upper()


def paying(messages: list[dict[str, Any]]) -> Any:
    """Pay where that is the goal, else do as a parrot."""
    if told(messages)["goal"] != "pay":
        return parrot(messages)
    return gesta.call("pay", cents=5) if messages[-1]["role"] == "user" else messages[-1]["content"]


# plan, then execute


async def test_steps_that_need_nothing_from_each_other_run_at_once() -> None:
    inside, both = 0, anyio.Event()

    @gesta.tool(effect="pure")
    async def work() -> str:
        nonlocal inside
        inside += 1
        if inside == 2:
            both.set()
        with anyio.fail_after(10):
            await both.wait()
        return "done"

    model = mind(plan=plan("a", "b", ("c", [0, 1])), execute=[gesta.call("work"), "ok"], synthesise=joined)
    async with gesta.open() as record:
        outcome = await record.run(plan_then_execute("planner", model, tools=[work]), "why?")
    assert outcome.answer == "a=ok; b=ok; c=ok"
    assert inside == 3


async def test_a_step_is_told_what_it_depends_on_and_derives_from_the_plan_and_that() -> None:
    seen: dict[str, Any] = {}

    def execute(messages: list[dict[str, Any]]) -> str:
        seen[told(messages)["goal"]] = told(messages).get("results")
        return parrot(messages)

    model = mind(plan=plan("a", ("b", [0]), "c"), execute=execute, synthesise=joined)
    async with gesta.open() as record:
        outcome = await record.run(plan_then_execute("planner", model), "why?", session="s")
        nodes, found = await chain(record, outcome.run)
        assert unexplained(await everything(record)).entries == {}
    assert seen == {"a": None, "b": [{"goal": "a", "result": "A", "ok": True}], "c": None}
    by_text = {node.text: node for node in found if node.type == "StepResult"}
    assert sources(nodes, by_text["B"]) == ["Conclusion", "Plan", "StepResult"]
    assert sources(nodes, by_text["C"]) == ["Conclusion", "Plan"]
    written = next(node for node in found if node.type == "Synthesis")
    assert sources(nodes, written) == ["Conclusion", "StepResult", "StepResult", "StepResult"]


async def test_a_step_that_fails_is_a_result_that_later_steps_and_the_answer_are_told() -> None:
    def execute(messages: list[dict[str, Any]]) -> str:
        if told(messages)["goal"] == "a":
            raise ValueError("no luck")
        return "without a" if not told(messages)["results"][0]["ok"] else "?"

    async with gesta.open() as record:
        model = mind(plan=plan("a", ("b", [0])), execute=execute, synthesise=joined)
        outcome = await record.run(quick(plan_then_execute("planner", model)), "why?")
    assert (outcome.reason, outcome.answer) == ("answered", "a=no luck; b=without a")


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([("a", [1]), ("b", [0])], "in a circle"),
        ([("a", []), ("b", [7])], "Step 1 depends on 7; there are steps 0 to 1"),
        ([("a", [0]), ("b", [])], "in a circle"),
    ],
)
async def test_a_plan_that_cannot_be_followed_goes_back_twice_and_is_then_taken_in_order(
    steps: list[Any], problem: str
) -> None:
    told_: list[Any] = []

    def planner(messages: list[dict[str, Any]]) -> str:
        told_.append(told(messages).get("problem"))
        return plan(*steps)

    async with gesta.open() as record:
        model = mind(plan=planner, execute=parrot, synthesise=joined)
        outcome = await record.run(plan_then_execute("planner", model), "why?")
        (made,) = contents(await record.read(outcome.run), PlanContent)
        names = [row.name for row in await record.store.runs()]
    assert told_[0] is None
    assert len(told_) == 3
    assert all(problem in each for each in told_[1:])
    assert [step.depends_on for step in made.steps] == [None, [0]]
    assert {"plan", "plan (2)", "plan (3)"} <= set(names)
    assert outcome.answer == "a=A; b=B"


async def test_a_plan_that_is_mended_is_used() -> None:
    def planner(messages: list[dict[str, Any]]) -> str:
        asked = told(messages)
        return plan("a") if "problem" in asked else "I would rather not say."

    async with gesta.open() as record:
        outcome = await record.run(
            plan_then_execute("planner", mind(plan=planner, execute=parrot, synthesise=joined)), "why?"
        )
    assert outcome.answer == "a=A"


async def test_without_a_plan_the_question_is_the_only_step() -> None:
    async with gesta.open() as record:
        model = mind(plan="no plan today", execute=parrot, synthesise=joined)
        outcome = await record.run(plan_then_execute("planner", model), "why?")
    assert outcome.answer == "why?=WHY?"


async def test_a_plan_that_is_too_long_is_cut_and_a_long_one_ends() -> None:
    many = [(f"s{n}", [n - 1] if n else []) for n in range(12)]
    model = mind(plan=plan(*many), execute=parrot, synthesise=joined)
    async with gesta.open() as record:
        cut = await record.run(plan_then_execute("planner", model, max_steps=3), "why?")
        whole = await record.run(plan_then_execute("planner", model, max_steps=12), "why?")
    assert cut.answer == "s0=S0; s1=S1; s2=S2"
    assert whole.answer is not None
    assert whole.answer.endswith("s11=S11")


async def test_an_unknown_tool_and_a_tool_that_fails_are_told_to_who_carries_the_step_out() -> None:
    @gesta.tool(effect="pure")
    async def broken() -> str:
        raise ValueError("out of paper")

    says = [gesta.call("nope"), gesta.call("broken"), "gave up"]
    model = mind(plan=plan("a"), execute=says, synthesise=joined)
    async with gesta.open() as record:
        outcome = await record.run(plan_then_execute("planner", model, tools=[broken]), "why?")
        results = contents(await everything(record), gesta.kinds.ToolResultContent)
    assert outcome.answer == "a=gave up"
    assert "no tool 'nope'" in results[0].tool_result
    assert results[1].tool_result == "ValueError: out of paper"


@given(st.lists(st.lists(st.integers(-1, 5), max_size=3), min_size=1, max_size=5), st.integers(1, 6))
def test_whatever_a_plan_depends_on_what_is_carried_out_has_no_circle(needs: list[list[int]], most: int) -> None:
    text = plan(*[(f"s{n}", each) for n, each in enumerate(needs)])
    try:
        steps = read_plan(text, most=most)
    except BadAnswer as wrong:
        steps = wrong.instead
    assert 0 < len(steps) <= most
    assert [step.goal for step in steps] == [f"s{n}" for n in range(len(steps))]
    done: set[int] = set()
    while len(done) < len(steps):
        ready = {n for n, step in enumerate(steps) if n not in done and done.issuperset(step.depends_on or ())}
        assert ready, "some step waits for ever"
        done |= ready


@pytest.mark.parametrize(
    "text",
    [
        '{"steps": [{"goal": "a"}]}',
        '[{"goal": "a"}]',
        'Sure [1]!\n```json\n{"steps": [{"goal": "a", "tool_hint": "t", "why": "x"}]}\n```\nGood luck.',
        'Here:\n```\n[{"goal": "a"}]\n```',
        '{"thinking": true} {"steps": [{"goal": "a"}, {"goal": " "}]}',
    ],
)
def test_a_plan_is_read_whatever_stands_around_it(text: str) -> None:
    assert [step.goal for step in read_plan(text, most=5)] == ["a"]


@pytest.mark.parametrize(
    "text", ["", "{", "[", '{"steps": []}', '{"steps": "a"}', "[1, 2]", '{"steps": [{"gaol": "a"}]}']
)
def test_what_is_no_plan_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(BadAnswer, match=r"Write (one object|at least one)"):
        read_plan(text, most=5)


def test_steps_behind_one_without_words_depend_on_the_steps_that_the_planner_meant() -> None:
    steps = read_plan(plan(" ", "look up the fee", "write a poem", ("tell the fee", [1, 0])), most=5)
    assert [(step.goal, step.depends_on) for step in steps] == [
        ("look up the fee", None),
        ("write a poem", None),
        ("tell the fee", [0]),
    ]


def test_in_order_each_step_depends_on_the_one_before() -> None:
    steps = in_order([Step(goal="a", depends_on=[2]), Step(goal="b", tool_hint="t")])
    assert steps == [Step(goal="a"), Step(goal="b", tool_hint="t", depends_on=[0])]


# supervisor


async def test_equal_goals_are_pursued_each_in_a_run_of_its_own() -> None:
    async with gesta.open() as record:
        model = mind(decompose=goals("a", "a", 7, None, "b"), research=parrot, synthesise=joined)
        outcome = await record.run(supervisor("boss", model), "why?", session="s")
        names = Counter(row.name for row in await record.store.runs())
        nodes, found = await chain(record, outcome.run)
        assert unexplained(await everything(record)).answers == ()
    assert outcome.answer == "a=A; a=A; b=B"
    assert names == Counter(["boss", "decompose", "finding 0", "finding 1", "finding 2", "synthesis"])
    findings = [node for node in found if node.type == "Finding"]
    assert [sources(nodes, node) for node in findings] == [["Conclusion"]] * 3
    decomposed = next(node for node in found if node.type == "Decomposition")
    asked = [node for node in found if node.type == "Question" and node.text in ("a", "b")]
    assert [node.derived_from for node in asked] == [(decomposed.id,)] * 3
    written = next(node for node in found if node.type == "Synthesis")
    assert sources(nodes, written) == ["Conclusion", *["Finding"] * 3]
    assert sources(nodes, found[-1]) == ["Synthesis"]


async def test_a_goal_that_fails_is_a_finding_and_the_others_are_told() -> None:
    def research(messages: list[dict[str, Any]]) -> str:
        if messages[0]["content"] == "b":
            raise ValueError("no luck")
        return parrot(messages)

    def synthesise(messages: list[dict[str, Any]]) -> str:
        return " ".join(f"{each['result']}:{each['ok']}" for each in told(messages)["results"])

    async with gesta.open() as record:
        model = mind(decompose=goals("a", "b", "c"), research=research, synthesise=synthesise)
        outcome = await record.run(quick(supervisor("boss", model)), "why?")
        _, found = await chain(record, outcome.run)
    assert (outcome.reason, outcome.answer) == ("answered", "A:True no luck:False C:True")
    assert [(node.text, node.status) for node in found if node.type == "Finding"].count(("no luck", "failed")) == 1


@pytest.mark.parametrize(
    ("said", "pursued"),
    [
        (goals(), ["why?"]),
        ("cannot say", ["why?"]),
        (goals(1, 2), ["why?"]),
        ('["x", "y"]', ["x", "y"]),
        (goals(*"abcdefg"), ["a", "b", "c"]),
    ],
)
async def test_goals_are_taken_as_they_can_be(said: str, pursued: list[str]) -> None:
    async with gesta.open() as record:
        agent = supervisor("boss", mind(decompose=said, research=parrot, synthesise=joined), max_subagents=3)
        outcome = await record.run(agent, "why?")
        (made,) = contents(await record.read(outcome.run), PlanContent)
    assert [step.goal for step in made.steps] == pursued
    assert made.role == "decomposition"


def test_an_empty_list_of_goals_is_an_answer_and_a_list_without_texts_is_none() -> None:
    assert read_goals(goals(), most=3) == []
    with pytest.raises(BadAnswer, match="None of the goals is a text"):
        read_goals(goals(1), most=3)


async def test_an_answer_that_nobody_can_write_fails_the_turn_and_says_why() -> None:
    def synthesise(messages: list[dict[str, Any]]) -> str:
        raise ValueError("out of ink")

    async with gesta.open() as record:
        model = mind(decompose=goals("a"), research=parrot, synthesise=synthesise)
        outcome = await record.run(quick(supervisor("boss", model)), "why?")
    assert outcome.reason == "failed"
    assert outcome.error is not None
    assert outcome.error.message == "synthesis ended with reason failed: out of ink"


async def test_a_second_message_has_acts_and_runs_of_its_own() -> None:
    async with gesta.open() as record:
        agent = supervisor("boss", mind(decompose=goals("a"), research=parrot, synthesise=joined))
        first = await record.run(agent, "why?", session="s", key="m1")
        assert (await record.run(agent, "why?", session="s", key="m1")) == first
        second = await record.run(agent, "and then?", session="s", key="m2")
        names = [row.name for row in await record.store.runs()]
    assert first.run == second.run
    assert second.answer == "a=A"
    assert sorted(names) == sorted(
        ["boss", *(f"{name}{again}" for name in ("decompose", "finding 0", "synthesis") for again in ("", "#2"))]
    )


def scene(fired: Counter[str]) -> gesta.Agent:
    @gesta.tool(effect="idempotent")
    async def count(word: str, context: gesta.Context) -> str:
        fired[context.key] += 1
        context.found(word, [Hit(document=word)])
        return f"{word}!"

    def research(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "user":
            word = messages[-1]["content"]
            return [gesta.call("count", word=word), gesta.call("count", word=word * 2)]
        return " ".join(each["content"] for each in messages if each["role"] == "tool")

    model = mind(decompose=goals("a", "b", "a"), research=research, synthesise=joined)
    return address.bind(supervisor("boss", model, tools=[count]))


async def test_from_every_prefix_a_supervisor_reaches_the_same_answer_and_repeats_no_finished_effect() -> None:
    tape, fired = Tape(), Counter[str]()
    whole = await Record(tape, address.bind).run(scene(fired), "why?", session="s", key="m")
    assert whole.answer == "a=a! aa!; b=b! bb!; a=a! aa!"
    assert list(fired.values()) == [1] * 6
    for cut in range(1, len(tape.tape)):
        store, more = await again(tape.tape[:cut]), Counter[str]()
        record = Record(store, address.bind)
        before = contents(await everything(record), gesta.kinds.ToolResultContent)
        resumed = await record.run(scene(more), "why?", session="s", key="m")
        assert (resumed.run, resumed.answer) == (whole.run, whole.answer), f"cut at commit {cut}"
        entries = await everything(record)
        assert len(contents(entries, gesta.kinds.ToolResultContent)) == 6
        assert len(contents(entries, PlanContent)) == 1
        assert len(before) + len(more) <= 6, "a finished effect was repeated"
        found = unexplained(entries)
        assert (found.entries, found.answers) == ({}, ())


async def test_a_tool_of_a_sub_agent_knows_for_which_user_it_works() -> None:
    users: list[str | None] = []

    @gesta.tool(effect="pure")
    async def who(context: gesta.Context) -> str:
        users.append(context.user)
        return str(context.user)

    model = mind(decompose=goals("a"), research=[gesta.call("who"), "ok", gesta.call("who"), "ok"], synthesise=joined)
    boss = supervisor("boss", model, tools=[who])
    async with gesta.open() as record:
        await record.run(supervisor("below", boss.model, worker=boss), "why?", user="eva")
        entries = await everything(record)
    tasks = contents(entries, gesta.kinds.SystemContent)
    assert users == ["eva"]
    assert {each.user_id for each in tasks} == {"eva"}, "at any depth"


async def test_a_child_that_waits_leaves_the_turn_open_and_the_others_are_not_done_again() -> None:
    spoken: Counter[str] = Counter()

    @gesta.tool(effect="once", approval=True)
    async def pay(cents: int) -> str:
        return f"paid {cents}"

    def research(messages: list[dict[str, Any]]) -> Any:
        spoken[messages[0]["content"]] += 1
        if messages[0]["content"] == "pay" and messages[-1]["role"] == "user":
            return gesta.call("pay", cents=5)
        return parrot(messages)

    agent = supervisor("boss", mind(decompose=goals("look", "pay"), research=research, synthesise=joined), tools=[pay])
    async with gesta.open() as record:
        waits = await record.run(agent, "why?", session="s", key="m")
        assert waits.reason == "waiting"
        (waiting,) = waits.waiting
        assert (waiting.what, waiting.tool) == ("approval", "pay")
        assert waiting.run is not None
        assert waiting.of is not None
        assert (await record.resume(waits.run, agent)).reason == "waiting"
        await record.send(waiting.run, ApprovalContent(of=waiting.of, verdict="approved", by="eva"), key="a")
        done = await record.resume(waits.run, agent)
    assert done.answer == "look=LOOK; pay=PAID 5"
    assert spoken == {"look": 1, "pay": 2}


async def test_a_person_approves_the_call_of_a_child_at_the_command_line_and_the_run_goes_on(tmp_path: Path) -> None:
    @gesta.tool(effect="once", approval=True)
    async def pay(cents: int) -> str:
        return f"paid {cents}"

    model = mind(plan=plan("pay", ("tell", [0])), execute=paying, synthesise=joined)
    file, agent = str(tmp_path / "r.gesta"), plan_then_execute("planner", model, [pay])
    async with gesta.open(file, durability="normal") as record:
        waits = await record.run(agent, "why?", session="s", key="m")
        (waiting,) = waits.waiting
    words = ["approve", str(waiting.run), "--record", file]
    assert programs.run(["-c", "from gesta.cli import main; main()", *words]).returncode == 0
    async with gesta.open(file, durability="normal") as record:
        done = await record.resume(waits.run, agent)
        assert done.answer == "pay=paid 5; tell=TELL"
        assert unexplained(await everything(record)).answers == ()


async def test_groups_and_state_filter_the_tools_of_every_child() -> None:
    @gesta.tool(effect="pure", group="open")
    async def look() -> str:
        return "seen"

    @gesta.tool(effect="pure", group="closed")
    async def enter() -> str:
        return "in"

    @gesta.tool(effect="pure", group="open", applicable_states="late")
    async def leave() -> str:
        return "out"

    model = mind(decompose=goals("a", "b"), research=parrot, synthesise=joined)
    agent = supervisor("boss", model, tools=[look, enter, leave])
    for groups, state, offered in ((["open"], "", ["look"]), (["*"], "late", ["look", "enter", "leave"]), ([], "", [])):
        async with gesta.open() as record:
            await record.run(msgspec.structs.replace(agent, groups=groups, state=state), "why?")
            for row in await record.store.runs():
                if row.name.startswith("finding"):
                    (header,) = contents(await record.read(row.run), RequestHeaderContent)
                    assert [tool["name"] for tool in header.tools or ()] == offered


async def test_a_worker_of_ones_own_inherits_the_groups_and_keeps_its_instructions() -> None:
    worker = gesta.Agent("reader", model=mind(other=parrot), instructions="You read.", groups=["x"])
    agent = supervisor("boss", mind(decompose=goals("a"), synthesise=joined), worker=worker)
    async with gesta.open() as record:
        outcome = await record.run(msgspec.structs.replace(agent, groups=["y"]), "why?")
        headers = contents(await everything(record), RequestHeaderContent)
    assert outcome.answer == "a=A"
    assert "You read." in [header.meta["instructions"] for header in headers]


async def test_prompts_can_be_replaced_and_their_digest_stands_in_the_header() -> None:
    agent = supervisor(
        "boss", mind(decompose=goals("a"), research=parrot, synthesise=joined), prompts={"research": "Dig.\n"}
    )
    async with gesta.open() as record:
        await record.run(msgspec.structs.replace(agent, instructions="We are a bank."), "why?")
        metas = [header.meta for header in contents(await everything(record), RequestHeaderContent)]
    told_ = {meta["prompt"]["name"]: meta for meta in metas}
    assert told_["research"]["instructions"] == "Dig.\n\nWe are a bank."
    assert told_["decompose"]["instructions"] == f"{prompt('decompose')}\n\nWe are a bank."
    assert {len(meta["prompt"]["digest"]) for meta in metas} == {64}
    assert len({meta["prompt"]["digest"] for meta in metas}) == 3


async def test_the_prompts_of_a_plan_and_of_a_router_can_be_replaced_too() -> None:
    said: list[str] = []

    def model(messages: list[dict[str, Any]], header: RequestHeaderContent) -> str:
        said.append(header.meta["instructions"])  # type: ignore[index]
        return "WHY"

    prompts = {
        "plan": "Plan.\n",
        "execute": "Do.\n",
        "synthesise": "Join.\n",
        "route": "Route.\n",
        "classify": "Sort.\n",
    }
    planner = plan_then_execute("planner", gesta.function(model), prompts=prompts)
    ways = {"fast": react("fast", gesta.function(model), instructions="Be quick."), "slow": planner}
    async with gesta.open() as record:
        await record.run(planner, "why?")
        await record.run(router("desk", gesta.function(model), ways, prompts=prompts), "why?")
    assert set(said) >= {"Plan.", "Do.", "Route."}
    assert "Be quick." in said


# streaming


@pytest.mark.parametrize("stream", [True, False])
async def test_the_words_of_the_synthesis_are_the_answer_and_only_the_run_ends_the_dialogue(stream: bool) -> None:
    model = mind(stream=stream, decompose=goals("a", "b"), research=parrot, synthesise="Nobody knows why, really.")
    events: list[gesta.Event] = []
    async with gesta.open() as record:
        outcome = await record.run(supervisor("boss", model), "why?", listener=events.append)
    own = [event for event in events if event.run == outcome.run]
    assert "".join(event.content for event in own if event.type == "answer") == outcome.answer
    assert [event.end_of_dialog for event in events] == [False] * (len(events) - 2) + [True, False]
    assert (events[-2].type, events[-2].run, events[-2].end_of_message) == ("answer", outcome.run, True)
    assert (events[-1].type, events[-1].run) == ("end", outcome.run)
    explained = [event.explain_graph.node for event in own if event.explain_graph is not None]
    assert explained == ["Question", "Decomposition", "Finding", "Finding", "Synthesis", "Conclusion"]
    assert len({event.run for event in events}) == 5, "each sub-agent tells in its own run"


async def test_a_lost_stream_of_the_synthesis_is_taken_back_and_told_again() -> None:
    text = "It is because of the rain that fell in May, and of the river."
    lost = msgspec.structs.replace(gesta.fault("lost-stream", after=40), of=text)
    tries = iter([lost, text])

    def synthesise(messages: list[dict[str, Any]]) -> Any:
        return next(tries)

    shown, taken_back = "", 0

    def listen(event: gesta.Event) -> None:
        nonlocal shown, taken_back
        if event.run == run and event.type == "answer":
            shown += event.content
        elif event.run == run and event.type == "retract":
            assert shown == text[:40]
            shown, taken_back = "", taken_back + 1

    async with gesta.open() as record:
        run = run_id(record.info.id, "s", "boss")
        agent = quick(supervisor("boss", mind(decompose=goals("a"), research=parrot, synthesise=synthesise)))
        outcome = await record.run(agent, "why?", session="s", listener=listen)
    assert (outcome.run, outcome.answer, shown, taken_back) == (run, text, text, 1)


# router


async def test_a_router_writes_down_what_it_chose_from_and_why_and_the_answer_derives_from_it() -> None:
    ways = {"react": react("reader", mind(other="Dry.")), "plan": react("planner", mind(other="?"))}
    model = mind(
        classify='{"choice": "Research", "rationale": "it asks for facts"}',
        route='{"choice": "react", "rationale": "one look will do"}',
    )
    kinds = {"research": {"framing": "Be brief."}, "chat": TaskType(description="small talk")}
    events: list[gesta.Event] = []
    async with gesta.open() as record:
        agent = router("front", model, ways, descriptions={"react": "simple"}, task_types=kinds)
        outcome = await record.run(agent, "Rome?", session="s", listener=events.append)
        first, second = contents(await record.read(outcome.run), DecisionContent)
        nodes, found = await chain(record, outcome.run)
        headers = contents(await everything(record), RequestHeaderContent)
    assert outcome.answer == "Dry."
    assert first == DecisionContent(
        choice="research", candidates=["research", "chat", "general"], rationale="it asks for facts"
    )
    assert second == DecisionContent(
        choice="react", candidates=["react", "plan"], rationale="one look will do", task_type="research"
    )
    assert [header.meta.get("instructions") for header in headers].count("Be brief.") == 1
    asked = [node for node in found if node.type == "Question" and node.text == "Rome?"]
    assert [sources(nodes, node) for node in asked] == [[], ["PatternDecision"]]
    decided = [node for node in found if node.type == "PatternDecision"]
    assert sources(nodes, decided[0]) == ["Conclusion", "Question"]
    assert sources(nodes, decided[1]) == ["Conclusion", "PatternDecision"]
    own = [event for event in events if event.run == outcome.run]
    assert [event.explain_graph.node for event in own if event.explain_graph is not None] == [
        *("Question", "PatternDecision", "PatternDecision", "Conclusion"),
    ]
    assert "".join(event.content for event in own if event.type == "answer") == "Dry."


async def test_from_every_prefix_a_router_decides_once_and_has_the_same_pattern_answer() -> None:
    tape, words = Tape(), iter(["plan", "react"] * 20)
    ways = {name: react(name, mind(other=name)) for name in ("react", "plan")}
    agent = address.bind(router("front", mind(route=lambda _: next(words)), ways))
    whole = await Record(tape, address.bind).run(agent, "Rome?", session="s", key="m")
    for cut in range(1, len(tape.tape)):
        record = Record(await again(tape.tape[:cut]), address.bind)
        decided = contents(await everything(record), DecisionContent)
        done = await record.run(agent, "Rome?", session="s", key="m")
        after = contents(await record.read(whole.run), DecisionContent)
        assert after[: len(decided)] == decided
        assert [each.candidates for each in after] == [["general"], ["react", "plan"]]
        assert done.answer == after[1].choice


async def test_where_there_is_nothing_to_choose_no_model_is_asked() -> None:
    async with gesta.open() as record:
        agent = router("front", mind(), {"react": react("reader", mind(other="Dry."))})
        outcome = await record.run(agent, "Rome?")
        decided = contents(await record.read(outcome.run), DecisionContent)
        requests = contents(await everything(record), RequestContent)
    assert outcome.answer == "Dry."
    assert [(each.choice, each.rationale) for each in decided] == [
        ("general", "the only one"),
        ("react", "the only one"),
    ]
    assert len(requests) == 1


async def test_one_valid_pattern_of_a_task_type_needs_no_choice() -> None:
    ways = {name: react(name, mind(other=name)) for name in ("react", "plan")}
    async with gesta.open() as record:
        agent = router("front", mind(), ways, task_types={"sums": {"valid_patterns": ["plan", "gone"]}})
        outcome = await record.run(agent, "2 + 2?")
    assert outcome.answer == "plan"


async def test_an_answer_that_names_nothing_known_goes_back_twice_and_falls_back() -> None:
    ways = {name: react(name, mind(other=name)) for name in ("react", "plan")}
    model = mind(classify="the weather one", route="both")
    async with gesta.open() as record:
        outcome = await record.run(router("front", model, ways, task_types={"a": {}, "b": {}}), "Rome?")
        first, second = contents(await record.read(outcome.run), DecisionContent)
        names = [row.name for row in await record.store.runs()]
    assert outcome.answer == "react"
    assert (first.choice, second.choice) == ("general", "react")
    assert first.rationale.startswith("fallback: 'the weather one' is none of them.")
    assert {"classify (3)", "route (3)"} <= set(names)


@pytest.mark.parametrize(
    "said", ["plan", ' "PLAN". ', "`plan`", '{"choice": "Plan"}', '```json\n{"choice": "plan"}\n```']
)
async def test_a_choice_is_taken_in_any_case_and_in_quotes(said: str) -> None:
    ways = {name: react(name, mind(other=name)) for name in ("react", "plan")}
    async with gesta.open() as record:
        outcome = await record.run(router("front", mind(route=said), ways), "Rome?")
    assert outcome.answer == "plan"


@pytest.mark.parametrize("wrong", ["{", "[]", '{"valid_patterns": 3}', 7, None])
async def test_a_kind_of_task_that_cannot_be_read_counts_by_its_name(wrong: Any) -> None:
    async with gesta.open() as record:
        agent = router("front", mind(), {"react": react("reader", mind(other="Dry."))}, task_types={"odd": wrong})
        outcome = await record.run(agent, "Rome?")
        first, _ = contents(await record.read(outcome.run), DecisionContent)
    assert (outcome.answer, first.choice) == ("Dry.", "odd")


def test_a_router_without_patterns_is_refused() -> None:
    with pytest.raises(gesta.GestaError, match="has no pattern to choose"):
        router("front", mind(), {})


async def test_a_router_can_choose_a_supervisor_and_is_explained_down_to_its_findings() -> None:
    boss = supervisor("boss", mind(decompose=goals("a"), research=parrot, synthesise=joined))
    events: list[gesta.Event] = []
    async with gesta.open() as record:
        outcome = await record.run(
            router("front", mind(), {"super": boss}), "why?", session="s", listener=events.append
        )
        _, found = await chain(record, outcome.run)
    assert outcome.answer == "a=A"
    assert {"PatternDecision", "Decomposition", "Finding", "Synthesis", "Conclusion"} <= {node.type for node in found}
    own = [event.content for event in events if event.run == outcome.run and event.type == "answer"]
    assert "".join(own) == "a=A"
    assert sum(event.end_of_dialog for event in events) == 1


async def test_an_empty_result_of_a_tool_is_an_observation() -> None:
    @gesta.tool(effect="pure")
    async def nothing() -> str:
        return ""

    async with gesta.open() as record:
        model = mind(plan=plan("a"), execute=[gesta.call("nothing"), "none"], synthesise=joined)
        outcome = await record.run(plan_then_execute("planner", model, tools=[nothing]), "why?")
        begun = contents(await record.read(outcome.run), BeginContent)
    assert outcome.answer == "a=none"
    assert [(each.name, each.role) for each in begun[1:]] == [
        ("plan", "agent"),
        ("step 0", "step"),
        ("synthesis", "synthesis"),
    ]


@pytest.mark.parametrize("threaded", [True, False])
async def test_the_passages_that_a_tool_found_explain_its_result_live_and_afterwards(threaded: bool) -> None:
    def look(word: str, context: gesta.Context) -> str:
        context.found(word, [Hit(document="a.md", chunk="1", score=0.5), Hit(document="b.md")])
        return "found"

    async def look_async(word: str, context: gesta.Context) -> str:
        return look(word, context)

    tool = gesta.tool(look if threaded else look_async, name="look", effect="pure")
    agent = gesta.Agent("eye", model=gesta.scripted(gesta.call("look", word="fees"), "Dry."), tools=[tool])
    events: list[gesta.Event] = []
    async with gesta.open() as record:
        outcome = await record.run(agent, "Why?", session="s", listener=events.append)
        nodes, found = await chain(record, outcome.run)
        (made,) = contents(await record.read(outcome.run), RetrievalContent)
    assert made == RetrievalContent(
        query="fees", hits=[Hit(document="a.md", chunk="1", score=0.5), Hit(document="b.md")]
    )
    (retrieval,) = [node for node in found if node.type == "Retrieval"]
    assert sources(nodes, retrieval) == ["ToolUse"]
    assert [sources(nodes, node) for node in found if node.type == "Observation"] == [["Retrieval"]]
    live = {event.explain_id: event.explain_graph for event in events}
    graph = live[retrieval.id]
    assert graph is not None
    assert (graph.node, graph.derived_from) == ("Retrieval", retrieval.derived_from)


@given(st.text() | st.text("{}[]\"':, \\`ab1").map(lambda text: text + '{"steps": [{"goal": "a"}]}'))
def test_whatever_a_model_writes_an_answer_is_read_or_refused(text: str) -> None:
    for read in (partial(read_plan, most=3), partial(read_goals, most=3), partial(read_choice, options=["a", "b"])):
        said: Any = None
        try:
            said = read(text)
        except BadAnswer as wrong:
            said = str(wrong)
        assert said or said == []
