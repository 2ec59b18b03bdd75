"""TrustGraph's explain client reads what is exported to its end: each session whole, each node once, with its words.

With trustgraph-base at hand (`.ci/originals trustgraph`) it is that very client, over five hundred random runs. Without
it a reader of the same bounds takes its place, over a few.
"""

import dataclasses
import importlib
import random
from collections import Counter
from typing import Any

import pytest
from tests.seeds.explained_cases import SHAPES, Case, Graph, case

from gesta.compat.trustgraph import provenance as ours
from gesta.views.prov_chain import ENDS, FOLLOWED
from gesta.views.prov_names import PROV, RDF_TYPE, TG

try:
    from trustgraph.api.explainability import ExplainabilityClient
except ImportError:
    ExplainabilityClient = None  # where it is not installed

EACH = 46 if ExplainabilityClient is not None else 1
"""Runs of each shape: 552 in all where the client is at hand."""
CLASSES = {
    "continued": "of a node from which more derives than a client asks for, an Analysis that goes on with it",
    "equal goals": "goals of one text are one statement",
    "sub-trace": "what was looked up is read as a session of its own",
    "no form": "lone surrogates are replaced",
}
"""In what the client reads something else than `record.explain` says."""


class Reader:
    """Reads as TrustGraph's client does: fifty deep, twenty of what derives from a node, a node for each way to it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def steps(self, session: str, depth: int = 50) -> list[str]:
        found: list[str] = []
        if depth > 0:
            for each in self.graph.triples_query(p=PROV + "wasDerivedFrom", o=session, limit=20):
                name = each["s"]["i"]
                types = {
                    row["o"]["i"] for row in self.graph.triples_query(s=name, limit=100) if row["p"]["i"] == RDF_TYPE
                }
                named = {each.removeprefix(TG) for each in types}
                if named & (FOLLOWED | ENDS) and "Question" not in named:
                    found.append(name)
                if named & FOLLOWED and "Question" not in named:
                    found += self.steps(name, depth - 1)
        return found


@pytest.mark.sample(4)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(EACH))
async def test_each_session_is_read_to_its_end_and_each_node_once(shape: str, seed: int) -> None:
    made = await case(seed, shape)
    graph = Graph(made.quads)
    for session in made.sessions():
        steps = [each for each in Reader(graph).steps(session) if not each.endswith("/more")]
        assert Counter(steps) == Counter(list(made.expected(session))), (shape, seed, session)


@pytest.mark.timeout(300)
@pytest.mark.skipif(ExplainabilityClient is None, reason="needs trustgraph-base; see .ci/originals trustgraph")
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_client_of_trustgraph_reads_what_is_explained(shape: str) -> None:
    differ = Counter[str]()
    for seed in range(EACH):
        made = await case(seed, shape)
        graph = Graph(made.quads)
        client = ExplainabilityClient(graph, retry_delay=0)
        for session in made.sessions():
            trace = client.fetch_agent_trace(session)
            assert trace["question"].question_type == "agent"
            compare(made, graph, session, trace, differ)
    print(f"{shape}: {EACH} runs, {dict(differ)}")
    assert set(+differ) <= set(CLASSES)


def compare(made: Case, graph: Graph, session: str, trace: dict[str, Any], differ: Counter[str]) -> None:
    """What the client read of a session is what its nodes say."""
    expected, read = made.expected(session), Counter[str]()
    (question,) = [node for node in made.nodes if made.names.get(node.id) == session]
    same(trace["question"].query, question.text, differ)
    for step in trace["steps"]:
        if isinstance(step, dict):
            differ["sub-trace"] += 1
            assert step["trace"]["exploration"] is not None
            continue
        if step.uri.endswith("/more"):
            differ["continued"] += 1
            continue
        read[step.uri] += 1
        node = next((each for each in expected[step.uri] if each.type == "ToolUse"), expected[step.uri][0])
        if step.entity_type in ("decomposition", "plan"):
            goals = [each.goal for each in made.state.entries[node.run, node.seq].content.steps]  # type: ignore[union-attr]
            said = step.goals if step.entity_type == "decomposition" else step.steps
            differ["equal goals"] += len(set(goals)) < len(goals)
            assert Counter(said) == Counter(set(goals))
        elif step.entity_type == "analysis" and step.action:
            same(f"{step.action} {step.arguments}", node.text, differ)
        elif node.type != "Analysis" or node.text:
            same(graph.text(getattr(step, "document", "") or f"{step.uri}/doc"), node.text, differ)
    assert read == Counter(list(expected)), (session, read)


def same(said: str, meant: str, differ: Counter[str]) -> None:
    if said != meant:
        differ["no form"] += 1
        assert said == meant.encode("utf-8", "surrogatepass").decode("utf-8", "replace"), (said, meant)


BUILDERS = (
    "session",
    "iteration",
    "observation",
    "final",
    "decomposition",
    "finding",
    "plan",
    "step_result",
    "synthesis",
)


def drawn(draw: random.Random, builder: str) -> tuple[list[Any], dict[str, Any]]:
    """What a pattern hands to a builder of statements."""
    uri, text = f"urn:trustgraph:agent:{draw.random()}", draw.choice(("a", "ünï\n犬", 'x"y', "z" * 90))
    document = draw.choice((None, "urn:doc"))
    match builder:
        case "session":
            return [uri, text, "2026-01-01T00:00:00Z"], {}
        case "iteration":
            args = draw.choice(({}, {"x": [1, None, {"y": text}]}, None))
            source = draw.choice(({"question_uri": "urn:q"}, {"previous_uri": "urn:p"}, {}))
            thought = draw.choice(({}, {"thought_uri": "urn:t", "thought_document_id": document}))
            return [uri], {"action": text, "arguments": args, **source, **thought}
        case "observation":
            return [uri, "urn:i"], {"document_id": document}
        case "final":
            return [uri], {"document_id": document, draw.choice(("question_uri", "previous_uri")): "urn:p"}
        case "decomposition" | "plan":
            return [uri, "urn:s", [draw.choice(("a", "b", text)) for _ in range(draw.randrange(4))]], {}
        case "finding" | "step_result":
            return [uri, "urn:s", text, document], {}
    return [uri, draw.choice(("urn:p", ["urn:p", "urn:q"])), document], {}


@pytest.mark.skipif(ExplainabilityClient is None, reason="needs trustgraph-base; see .ci/originals trustgraph")
@pytest.mark.parametrize("builder", BUILDERS)
def test_the_statements_that_a_pattern_sends_are_those_of_trustgraph(builder: str) -> None:
    theirs = importlib.import_module("trustgraph.provenance")
    for seed in range(60):
        args, named = drawn(random.Random(seed), builder)
        made = [getattr(each, f"agent_{builder}_triples")(*args, **named) for each in (theirs, ours)]
        said = [Counter(repr(dataclasses.asdict(triple)) for triple in each) for each in made]
        assert said[0] == said[1], (seed, args, named)
        graphs = [each.set_graph(triples, "urn:g") for each, triples in zip((theirs, ours), made, strict=True)]
        assert {triple.g for each in graphs for triple in each} == {"urn:g"}
    for name in ("iteration", "thought", "observation", "finding", "step_result"):
        assert getattr(ours, f"agent_{name}_uri")("s", 3) == getattr(theirs, f"agent_{name}_uri")("s", 3)
    for name in ("session", "final", "decomposition", "plan", "synthesis"):
        assert getattr(ours, f"agent_{name}_uri")("s") == getattr(theirs, f"agent_{name}_uri")("s")
