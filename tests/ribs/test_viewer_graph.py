"""The lineage of an answer as a picture: where its boxes stand, what is folded, and what an edge stands for."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.views.drawn import drawn, narrowed
from gesta.views.lineage import Explanation, Node
from gesta.web.graph import FOLDED, PART, RunFacts, Shown, pictured
from gesta.web.layered import ROW, Box, Edge, lay_out

SIZE = 100.0


def boxes(root: Box) -> list[Box]:
    return [each for inner in root.inside for each in (inner, *boxes(inner))]


def overlap(one: Box, other: Box) -> bool:
    beside = one.x + one.width <= other.x + 0.01 or other.x + other.width <= one.x + 0.01
    below = one.y + one.height <= other.y + 0.01 or other.y + other.height <= one.y + 0.01
    return not beside and not below


def tidy(root: Box) -> None:
    """Check that no boxes overlap, and that each box is inside the one that holds it."""
    for box in (root, *boxes(root)):
        assert not any(overlap(one, other) for one, other in combinations(box.inside, 2))
        for each in box.inside:
            assert box.x <= each.x
            assert each.x + each.width <= box.x + box.width + 0.01
            assert box.y <= each.y
            assert each.y + each.height <= box.y + box.height + 0.01


PAIRS = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=60, unique=True)


@given(PAIRS, st.integers(0, 19), st.integers(0, 19))
def test_boxes_never_overlap_whatever_leads_where(pairs: list[tuple[int, int]], first: int, second: int) -> None:
    leaves = [Box(str(number), SIZE + number, SIZE) for number in range(20)]
    one, other = sorted((first, second))
    inner = Box("inner", inside=leaves[one:other])
    root = Box("", inside=[*leaves[:one], *([inner] if inner.inside else []), *leaves[other:]])
    edges = [Edge(str(source), str(target)) for source, target in pairs]
    lay_out(root, edges)
    tidy(root)
    assert all(each.points for each in edges if each.source != each.target)


@given(PAIRS)
def test_what_was_made_of_something_stands_below_it_and_nothing_depends_on_chance(pairs: list[tuple[int, int]]) -> None:
    forward = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    made = []
    for _ in range(2):
        root = Box("", inside=[Box(str(number), SIZE, SIZE) for number in range(20)])
        lay_out(root, [Edge(str(source), str(target)) for source, target in forward])
        made.append(root)
    places = {each.id: each for each in made[0].inside}
    assert all(places[str(source)].y < places[str(target)].y for source, target in forward)
    assert made[0] == made[1]


def test_a_chain_of_two_thousand_boxes_is_one_column() -> None:
    root = Box("", inside=[Box(str(number), SIZE, SIZE) for number in range(2000)])
    lay_out(root, [Edge(str(number), str(number + 1)) for number in range(1999)])
    assert len({round(each.x) for each in root.inside}) == 1
    assert root.inside[-1].layer == 1999


def test_many_boxes_beside_each_other_become_rows() -> None:
    root = Box("", inside=[Box(str(number), SIZE, SIZE) for number in range(23)])
    lay_out(root, [Edge("0", str(number)) for number in range(1, 23)])
    tidy(root)
    assert root.width < (ROW + 1) * (SIZE + 20)


def test_a_line_that_passes_boxes_runs_beside_them_and_lines_of_one_source_share_a_lane() -> None:
    root = Box("", inside=[Box(str(number), SIZE, SIZE) for number in range(5)])
    edges = [Edge(str(number), str(number + 1)) for number in range(4)] + [Edge("0", "3"), Edge("0", "4")]
    lay_out(root, edges)
    assert [len(each.points) for each in edges] == [2, 2, 2, 2, 6, 6]
    lane = {point[0] for each in edges[4:] for point in each.points[2:4]}
    assert len(lane) == 1
    assert lane.pop() >= max(each.x + each.width for each in root.inside)


# ------------------------------------------------------------------------------------- which nodes, edges and groups
def node(run: str, seq: int, type_: Any, text: str, *sources: str) -> Node:
    return Node(type_, f"{run}.{seq}", run, seq, "user", text, derived_from=sources)  # type: ignore[arg-type]


def picture(nodes: list[Node], shown: Shown | None = None, **runs: RunFacts) -> dict[str, Any]:
    question = next(each.id for each in nodes if each.type == "Question" and each.run == nodes[-1].run)
    found = Explanation(nodes[-1].id, tuple(nodes), (question,))
    passages = drawn(found)
    kept = narrowed(found, passages) if passages else {each.id for each in nodes}
    return pictured(found, passages, kept, {"r": RunFacts("desk", None, [(1, 1)])} | runs, shown or Shown())


def ends(found: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(each["from"], each["to"]): each["kind"] for each in found["edges"]}


def test_an_edge_leads_past_the_nodes_that_are_not_shown() -> None:
    nodes = [
        node("r", 2, "Question", "Where is order 1017?"),
        node("r", 4, "Analysis", "I look.", "r.2"),
        node("r", 5, "ToolUse", "look {}", "r.4"),
        node("r", 7, "Observation", "in Lisbon", "r.5"),
        node("r", 9, "Analysis", "", "r.7"),
        node("r", 10, "Conclusion", "It is in Lisbon.", "r.9"),
    ]
    near, whole = picture(nodes), picture(nodes, Shown(all=True))
    assert [each["type"] for each in near["nodes"]] == ["Question", "ToolUse", "Observation", "Conclusion"]
    assert ends(near) == {("r.2", "r.5"): "cause", ("r.5", "r.7"): "cause", ("r.7", "r.10"): "drawn"}
    assert (near["near"], near["all"], len(whole["nodes"])) == (4, 6, 6)
    assert ends(whole)["r.7", "r.10"] == "drawn"
    assert near["nodes"][2]["marks"] == [(0, 9)]


def test_the_turns_of_a_sub_agent_stand_inside_the_turn_that_called_it() -> None:
    nodes = [
        node("c", 3, "Instructions", "You look things up in Lisbon."),
        node("r", 2, "Question", "Where?"),
        node("r", 5, "ToolUse", "ask {}", "r.2"),
        node("c", 2, "Question", "Where?", "r.5"),
        node("c", 8, "Conclusion", "in Lisbon", "c.2"),
        node("r", 7, "Observation", "in Lisbon", "c.8"),
        node("r", 10, "Conclusion", "It is in Lisbon.", "r.7"),
    ]
    found = picture(nodes, Shown(all=True), c=RunFacts("looker", "r", [(1, 1)]))
    outer, inner = sorted(found["groups"], key=lambda each: each["depth"])
    assert (outer["title"], inner["title"]) == ("Turn 1", "looker")
    assert outer["x"] < inner["x"]
    assert inner["y"] + inner["height"] < outer["y"] + outer["height"]
    assert ends(found)["c.3", "c.8"] == "cause"  # what a run was told leads to the first thing that it made
    folded = picture(nodes, Shown(all=True, turned={inner["id"]}), c=RunFacts("looker", "r", [(1, 1)]))
    assert {("r.5", inner["id"]), (inner["id"], "r.7")} <= set(ends(folded))


def test_instructions_are_shown_with_their_run_or_with_words_of_the_answer() -> None:
    nodes = [
        node("b", 3, "Instructions", "You count."),
        node("c", 3, "Instructions", "The shop is in Lisbon."),
        node("r", 2, "Question", "Where?"),
        node("r", 10, "Conclusion", "It is in Lisbon.", "r.2"),
    ]
    told = RunFacts("told", "r", [(1, 1)])
    assert [each["id"] for each in picture(nodes, b=told, c=told)["nodes"]] == ["c.3", "r.2", "r.10"]


def test_runs_that_call_each_other_or_are_nested_too_deep_are_drawn_all_the_same() -> None:
    runs = {f"d{number}": RunFacts(f"d{number}", f"d{number - 1}", [(1, 1)]) for number in range(1, 12)}
    nodes = [
        node(f"d{number}", 2, "Question", "Where?", *([f"d{number - 1}.2"] if number else [])) for number in range(12)
    ]
    found = picture(nodes, Shown(all=True), d0=RunFacts("d0", "d11", [(1, 1)]), **runs)
    assert len(found["nodes"]) == 12
    assert len(found["groups"]) == 12


def test_turns_follow_each_other_downwards() -> None:
    nodes = [node("r", seq, "Question", f"Question {seq}?") for seq in (2, 12, 22)]
    found = picture(nodes, Shown(all=True), r=RunFacts("desk", None, [(1, 1), (11, 2), (21, 3)]))
    assert [each["title"] for each in sorted(found["groups"], key=lambda each: each["y"])] == [
        "Turn 1",
        "Turn 2",
        "Turn 3",
    ]


def long(turns: int, each: int) -> tuple[list[Node], RunFacts]:
    """Return a chain of nodes in some turns."""
    count = turns * each
    nodes = [node("r", 2, "Question", "What?")]
    nodes += [node("r", seq, "Observation", f"step {seq}", f"r.{seq - 1}") for seq in range(3, count + 2)]
    starts = [(2 + number * each, number + 1) for number in range(turns)]
    return nodes, RunFacts("desk", None, starts)


def test_a_graph_that_can_be_read_is_not_folded_and_a_larger_one_by_turn_but_the_last() -> None:
    nodes, facts = long(10, FOLDED // 10)
    assert len(picture(nodes, Shown(all=True), r=facts)["nodes"]) == FOLDED
    nodes, facts = long(20, 40)
    found = picture(nodes, Shown(all=True), r=facts)
    assert [each["folded"] for each in found["groups"]] == [True] * 19 + [False]
    assert len(found["nodes"]) == 40
    assert found["groups"][0]["counts"] == {"Question": 1, "Observation": 39}
    first, last = found["groups"][0]["id"], found["groups"][-1]["id"]
    opened = picture(nodes, Shown(all=True, turned={first, last}), r=facts)
    assert [each["folded"] for each in opened["groups"]] == [False] + [True] * 19


def test_a_long_turn_is_folded_in_parts() -> None:
    nodes, facts = long(1, 2000)
    found = picture(nodes, Shown(all=True), r=facts)
    assert len(found["groups"]) == 2000 // PART
    assert len(found["nodes"]) == PART
    assert found["groups"][3]["title"] == "Turn 1 · part 4 of 20"
    assert [each["y"] for each in found["groups"]] == sorted(each["y"] for each in found["groups"])


def test_the_only_turn_stays_open_and_ids_that_mean_nothing_do_nothing() -> None:
    nodes, facts = long(1, 5)
    assert len(picture(nodes, Shown(all=True, turned={"r.t1", "", "x.t9"}), r=facts)["nodes"]) == 5


@pytest.mark.parametrize("before", [0, 5000])
def test_of_a_long_entry_the_part_is_sent_that_the_answer_repeats(before: int) -> None:
    nodes = [
        node("r", 2, "Question", "?"),
        node("r", 4, "Observation", "x " * before + "in Lisbon " + "y " * 5000, "r.2"),
    ]
    nodes.append(node("r", 6, "Conclusion", "It is in Lisbon.", "r.4"))
    sent = picture(nodes)["nodes"][1]
    assert [sent["text"][start:end] for start, end in sent["marks"]] == ["in Lisbon"]
    assert sent["cut"] == [before > 0, True]
    assert len(sent["text"]) < 1000
