"""What was found wrong with the orchestrator patterns and their export at version 0.1.0: O1 to O9, a test for each."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.journeys.minds import QUICK
from tests.seeds.explained_cases import Ported

import gesta
from gesta.entry import Entry
from gesta.kinds import Hit, Kind
from gesta.patterns.plan import plan_then_execute
from gesta.patterns.react import react
from gesta.patterns.router import router
from gesta.patterns.supervisor import supervisor
from gesta.views.across import all_nodes
from gesta.views.lineage import Explanation, Node
from gesta.views.prov import quads
from gesta.views.prov_names import Quad


@gesta.tool(effect="pure")
def look(x: int) -> str:
    """Look."""
    return f"saw {x}"


class Told:
    """A turn, and all that can be read of it."""

    outcome: gesta.Outcome
    entries: list[Entry]
    events: list[gesta.Event]
    nodes: Sequence[Node]
    quads: list[Quad]
    last: Explanation

    def of(self, predicate: str) -> list[str]:
        """Objects of a predicate of the vocabulary."""
        return [each.object.value for each in self.quads if each.predicate.value.endswith("/" + predicate)]

    def chain(self) -> list[tuple[str, list[str]]]:
        """The nodes of the explanation of the last entry, with the types of those that they were made from."""
        types = {node.id: node.type for node in self.last.nodes}
        return [(node.type, [types[id] for id in node.derived_from]) for node in self.last.nodes]


async def told(agent: gesta.Agent[Any], text: str = "Why?") -> Told:
    found, found.events = Told(), []
    async with gesta.open() as record:
        found.outcome = await record.run(agent, text, listener=found.events.append)
        found.entries = await record.read(found.outcome.run)
        found.nodes, state = await all_nodes(record)
        found.quads = list(quads(found.nodes, state))
        answer = next((each for each in reversed(found.entries) if each.kind is Kind.Assistant), found.entries[-1])
        found.last = await record.explain(answer)
    return found


def says(messages: list[dict[str, Any]], header: Any) -> str:
    """Stand in for the models of patterns."""
    return {
        "classify": "research",
        "route": "boss",
        "decompose": '{"goals": ["a", "a"]}',
        "plan": '{"steps": [{"goal": "look"}, {"goal": "weigh", "depends_on": [0]}]}',
    }.get(str((header.meta.get("prompt") or {}).get("name")), "x")


MODEL = gesta.function(says)


async def test_a_react_agent_that_writes_its_calls_as_words_calls_its_tools() -> None:
    script = gesta.scripted('Thought: t\nAction: look\nArgs: {"x": 1}', "Final Answer: Dry.")
    found = await told(react("eye", script, tools=[look], form="react-text"))
    assert found.outcome.answer == "Dry."
    assert [each.content.kind for each in found.entries].count(Kind.ToolResult) == 1


def never(*_: Any) -> str:
    raise ValueError("no luck")


LIMITED = gesta.Policy(limits=gesta.Limits(requests=2))
ENDS = {
    "limit": gesta.Agent(
        "eye", model=gesta.scripted(*[gesta.call("look", x=n) for n in range(5)]), tools=[look], policy=LIMITED
    ),
    "failed": gesta.Agent("eye", model=gesta.scripted(gesta.call("look", x=1)), tools=[look], policy=QUICK),
}
LOOKED = [("Question", []), ("Analysis", ["Question"]), ("ToolUse", ["Analysis"]), ("Observation", ["ToolUse"])]
AGAIN = [("Analysis", ["Observation"]), ("ToolUse", ["Analysis"]), ("Observation", ["ToolUse"])]
END = ("Conclusion", ["Observation"])
CHAINS = {"limit": [*LOOKED, *AGAIN, END], "failed": [*LOOKED, END]}


@pytest.mark.parametrize("reason", ENDS)
async def test_a_turn_that_was_not_answered_is_explained_with_its_reason(reason: str) -> None:
    found = await told(ENDS[reason])
    assert (found.outcome.reason, found.chain()) == (reason, CHAINS[reason])
    assert (found.last.complete, len(found.last.questions)) == (True, 1)
    assert found.last.nodes[-1].status == reason
    assert found.of("terminationReason") == ["max-iterations" if reason == "limit" else "error"]
    explained = [each.explain_graph.node for each in found.events if each.explain_graph is not None]
    assert explained == [node for node, _ in CHAINS[reason]]


async def test_a_program_that_fails_is_explained_by_what_it_had_done() -> None:
    found = await told(
        msgspec.structs.replace(plan_then_execute("p", gesta.function(fails_at("synthesise"))), policy=QUICK)
    )
    assert found.outcome.reason == "failed"
    chain = [each for each in found.chain() if each[0] in ("Plan", "StepResult", "Synthesis")]
    assert [node for node, _ in chain] == ["Plan", "StepResult", "StepResult", "Synthesis"]
    assert found.chain()[-1] == ("Conclusion", ["Synthesis"])


def fails_at(name: str) -> Any:
    def mind(messages: list[dict[str, Any]], header: Any) -> str:
        return never() if header.meta["prompt"]["name"] == name else says(messages, header)

    return mind


async def test_the_export_of_a_router_says_the_pattern_and_the_kind_of_task() -> None:
    ways = {"plain": react("r", MODEL), "boss": supervisor("b", MODEL)}
    found = await told(router("front", MODEL, ways, task_types={"research": {}, "chat": {}}))
    assert (found.of("pattern"), found.of("taskType")) == (["boss"], ["research"])


async def test_a_step_of_a_plan_is_exported_by_its_goal_alone() -> None:
    found = await told(plan_then_execute("p", MODEL))
    assert sorted(found.of("planStep")) == ["look", "look", "weigh", "weigh"]
    labels = [each.object.value for each in found.quads if each.predicate.value.endswith("#label")]
    assert [each for each in labels if each.startswith("Step")] == ["Step result: look", "Step result: weigh"]


async def test_explain_events_name_every_node_and_what_it_holds() -> None:
    both = gesta.reply("Let me see.", thought="Which?", calls=[gesta.call("look", x=n) for n in (1, 2)])
    found = await told(gesta.Agent("eye", model=gesta.scripted(both, gesta.reply("Dry.", thought="So.")), tools=[look]))
    heard = {each.explain_id: each.explain_graph for each in found.events if each.explain_graph is not None}
    assert {id: (each.node, each.derived_from) for id, each in heard.items()} == {
        node.id: (node.type, node.derived_from) for node in found.nodes
    }
    assert [each.node for each in heard.values()].count("ToolUse") == 2
    assert [each.node for each in heard.values()].count("Thought") == 2
    contents: dict[str | None, Any] = {each.id: each.content for each in found.entries}
    assert all(each.holds == contents[id] for id, each in heard.items())


async def test_a_step_that_a_ported_pattern_emits_is_an_analysis_with_its_thought() -> None:
    found = await told(Ported.agent("own", MODEL))
    names = {each.subject.value.partition(":i")[0].rpartition(".")[2]: each for each in found.quads}
    assert {"2/i1", "2/i1/thought", "2/i1/observation", "2/i2"} <= set(names)
    types = [each.object.value.rpartition("/")[2] for each in found.quads if each.subject.value.endswith("/i1")]
    assert {"Analysis", "ToolUse", "look"} <= set(types)
    assert "I look." in {each.object.value for each in found.quads}


async def test_an_answer_is_explained_to_the_page_that_its_tool_found() -> None:
    @gesta.tool(effect="pure")
    async def search(word: str, context: gesta.Context) -> str:
        """Search."""
        context.found(word, [Hit(document="fees.pdf", page=3, chunk="fees.pdf-3-2", score=0.9)])
        return "2 %"

    found = await told(
        gesta.Agent("eye", model=gesta.scripted(gesta.call("search", word="fee"), "2 %."), tools=[search])
    )
    (passage,) = [node for node in found.last.nodes if node.type == "Retrieval"]
    assert passage.text == "fee\nfees.pdf page 3 fees.pdf-3-2"
    way = {
        each.subject.value: each.object.value
        for each in found.quads
        if each.graph.value == "urn:graph:source" and "Derived" in each.predicate.value
    }
    document = "urn:gesta:document:fees.pdf"
    assert way == {f"{document}#fees.pdf-3-2": f"{document}#page=3", f"{document}#page=3": document}
    assert found.of("pageNumber") == ["3"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_thought_in_words_ends_before_the_answer_begins_and_without_streaming_each_is_one_event(
    stream: bool,
) -> None:
    words = ('Thought: I look.\nAction: look\nArgs: {"x": 1}', "Thought: I know.\nFinal Answer: It is dry there.")
    found = await told(react("eye", gesta.scripted(*words, stream=stream), tools=[look], form="react-text"))
    heard = [each for each in found.events if each.type in ("thought", "answer")]
    last = heard[[each.end_of_message for each in heard].index(True) + 1 :]
    ends = [(each.type, each.end_of_message) for each in last]
    assert ends.index(("thought", True)) < next(place for place, each in enumerate(ends) if each[0] == "answer")
    assert "".join(each.content for each in last if each.type == "answer") == "It is dry there."
    if not stream:
        assert [(each.type, each.content) for each in heard] == [
            ("thought", "I look."),
            ("thought", "I know."),
            ("answer", "It is dry there."),
        ]


async def test_a_turn_that_a_person_ended_is_explained_by_the_reason_that_they_gave() -> None:
    @gesta.tool(approval=True)
    def pay_it(x: int) -> str:
        """Pay."""
        return f"paid {x}"

    async with gesta.open() as record:
        agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay_it", x=1)), tools=[pay_it])
        waits = await record.run(agent, "Pay?")
        await record.cancel(waits.run, by="ann", reason="no money")
        explained = await record.explain((await record.read(waits.run))[-1])
    assert explained.nodes[-1].text == "cancelled by ann: no money"
