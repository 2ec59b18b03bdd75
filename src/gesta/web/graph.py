"""The lineage of an answer as a picture: nodes (the entries it was made from), edges between them, and their places.

A run is a list of entries; a turn is the work on one message. Each turn of a run is a group; the turns of a sub-agent
are inside the turn that called it. A picture with more than `FOLDED` nodes is large. In it, long turns are split into
parts, and each group except the answer's is folded into one card.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from gesta.views.drawn import Drawn
from gesta.views.lineage import Explanation, Node
from gesta.web.layered import Box, Edge, lay_out

FOLDED = 500
"""Number of nodes above which groups are folded."""
PART = 100
"""Greatest number of nodes in a part of a folded turn."""
DEEP = 6
"""Greatest depth of groups inside groups; groups of deeper sub-agents are placed beside the others."""
WIDTH, HEIGHT = 236.0, 62.0
"""Size of a node in pixels."""
TEXT, BEFORE = 700, 60
"""Number of characters of a node's text that are sent, and how many of them come before the first marked passage."""
BETWEEN = frozenset({"Analysis", "Thought"})
"""Types of nodes that only connect other nodes; they are shown only when a person asks for all nodes."""


class RunFacts(Struct):
    """Facts about a run for the picture: its agent, its parent run and its turns."""

    agent: str
    parent: str | None
    turns: list[tuple[int, int]]
    """The seq of the first entry and the number of each turn, in order."""


class Shown(Struct):
    """A person's choice of nodes and open groups in the picture."""

    all: bool = False
    """Whether all nodes are shown; otherwise only those that the answer drew on."""
    turned: Collection[str] = ()
    """Ids of the groups that a person clicked on: open groups are then folded, and folded groups opened."""


class Group(Struct):
    """A turn of a run in the picture, or a part of a long turn."""

    id: str
    run: str
    turn: int
    title: str = ""
    nodes: list[Node] = field(default_factory=list)
    inside: list["Group"] = field(default_factory=list)
    depth: int = 0
    parts: int = 1
    part: int = 1
    folded: bool = False

    def all_nodes(self) -> list[Node]:
        """Return the nodes of the group and of all groups inside it."""
        return [*self.nodes, *(node for each in self.inside for node in each.all_nodes())]


def pictured(
    found: Explanation, passages: Sequence[Drawn], kept: Collection[str], runs: dict[str, RunFacts], shown_as: Shown
) -> dict[str, Any]:
    """Return the data for drawing an explanation: nodes and groups with their places, edges with their corners.

    Args:
        passages: passages of the sources that the answer repeats.
        kept: ids of the nodes that the answer drew on.
        runs: facts about each run that has nodes, by run id.
        shown_as: the person's choice of nodes and open groups.
    """
    target = found.nodes[-1]
    near = _near(found, kept, {each.id for each in passages})
    shown = list(found.nodes) if shown_as.all else near
    ends = _causes(found.nodes, {node.id for node in shown}) | {(each.id, target.id): "drawn" for each in passages}
    ends = _instructions(shown) | ends
    tops, groups = _nested(_grouped(shown, len(shown) > FOLDED, runs), ends, runs)
    _fold(groups, tops, target, shown_as.turned, fold=len(shown) > FOLDED)
    stands = _visible(tops)
    root = Box("", inside=[_box(each) for each in tops])
    lines = {(stands[one], stands[other]): kind for (one, other), kind in reversed(ends.items())}
    edges = [Edge(*pair) for pair in lines if pair[0] != pair[1]]
    lay_out(root, [*edges, *_in_order(groups)])
    boxes = {each.id: each for each in _inside(root)}
    return {
        "id": found.id,
        "complete": found.complete,
        "width": root.width,
        "height": root.height,
        "all": len(found.nodes),
        "near": len(near),
        "nodes": [_node(node, boxes[node.id], passages) for node in shown if node.id in boxes],
        "groups": [_group(each, boxes[each.id]) for each in groups if each.id in boxes],
        "edges": [
            {"from": each.source, "to": each.target, "kind": lines[each.source, each.target], "points": each.points}
            for each in edges
        ],
        "text": target.text,
        "drawn": [{"id": each.id, "at": each.at, "to": each.to} for each in passages],
    }


def _near(found: Explanation, kept: Collection[str], repeated: Collection[str]) -> list[Node]:
    """Return the nodes that an answer drew on, without those of the types `BETWEEN`.

    A node of instructions is left out too, unless the answer repeats its words or drew on another node of its run.

    Args:
        kept: ids of the nodes that the answer drew on.
        repeated: ids of the nodes whose words the answer repeats.
    """
    target = found.nodes[-1]
    near = [node for node in found.nodes if node is target or (node.id in kept and node.type not in BETWEEN)]
    runs = {node.run for node in near if node.type != "Instructions"}
    return [node for node in near if node.run in runs or node.id in repeated]


def _causes(nodes: Iterable[Node], shown: Collection[str]) -> dict[tuple[str, str], str]:
    """Return the edges between shown nodes, each with its kind: "cause", or "inferred" if an importer guessed it.

    A path through hidden nodes becomes one edge.
    """
    above = dict[str, dict[str, bool]]()  # for each node its shown sources, and whether each was inferred
    edges = dict[tuple[str, str], str]()
    for node in nodes:
        own = dict[str, bool]()
        for source in node.derived_from:
            for id_, inferred in ({source: False} if source in shown else above.get(source, {})).items():
                own[id_] = inferred or node.inferred
        above[node.id] = own
        if node.id in shown:
            edges |= {(id_, node.id): "inferred" if inferred else "cause" for id_, inferred in own.items()}
    return edges


def _instructions(shown: Sequence[Node]) -> dict[tuple[str, str], str]:
    """Return the edges from each Instructions node to the run's next node that is not a Question, all as "cause"."""
    edges = dict[tuple[str, str], str]()
    for node in shown:
        if node.type == "Instructions":
            later = [each for each in shown if each.run == node.run and each.seq > node.seq and each.type != "Question"]
            if later:
                edges[node.id, min(later, key=lambda each: each.seq).id] = "cause"
    return edges


def _grouped(shown: Sequence[Node], in_parts: bool, runs: dict[str, RunFacts]) -> list[Group]:  # noqa: FBT001
    """Return a group for each turn, with the turn's nodes. With `in_parts`, a long turn makes several groups."""
    turns = dict[tuple[str, int], list[Node]]()
    for node in sorted(shown, key=lambda each: each.type == "Instructions"):  # a run had them from its start
        starts = runs[node.run].turns
        place = bisect_right(starts, (node.seq, 1 << 62)) - 1
        turns.setdefault((node.run, starts[place][1] if place >= 0 else 0), []).append(node)
    groups = []
    several = Counter(run for run, _ in turns)
    target = shown[-1].run
    for (run, turn), nodes in turns.items():
        nodes.sort(key=lambda node: node.seq)
        parts = -(-len(nodes) // PART) if in_parts else 1
        title = f"Turn {turn}" if turn else "Before the first turn"
        if run != target:
            title = runs[run].agent + (f" · turn {turn}" if several[run] > 1 else "")
        for part in range(parts):
            own = nodes[part * PART : (part + 1) * PART] if parts > 1 else nodes
            name = f"{title} · part {part + 1} of {parts}" if parts > 1 else title
            id_ = f"{run}.t{turn}" + (f".{part + 1}" if parts > 1 else "")
            groups.append(Group(id_, run, turn, name, own, parts=parts, part=part + 1))
    return groups


def _nested(
    groups: list[Group], ends: Iterable[tuple[str, str]], runs: dict[str, RunFacts]
) -> tuple[list[Group], list[Group]]:
    """Put the turns of each sub-agent inside the turn that called it.

    Returns two lists: the outermost groups, and the groups of every level.

    Args:
        groups: the groups of all turns.
        ends: the ids of the two nodes of each edge.
        runs: facts about each run, by run id.
    """
    of = {node.id: group for group in groups for node in group.nodes}
    callers = defaultdict[str, list[Group]](list)
    for one, other in ends:
        for here, there in ((of[one], of[other]), (of[other], of[one])):
            if runs[here.run].parent == there.run:
                callers[here.id].append(there)
    tops = []
    for group in groups:
        above = next(iter(callers[group.id]), None)
        if above is None or _holds(group, above) or above.depth + 1 >= DEEP:
            tops.append(group)
            continue
        above.inside.append(group)
        for each in _with_inner(group):
            each.depth += above.depth + 1
    return tops, groups


def _with_inner(group: Group) -> list[Group]:
    return [group, *(inner for each in group.inside for inner in _with_inner(each))]


def _holds(group: Group, other: Group) -> bool:
    return any(each is other for each in _with_inner(group))


def _fold(groups: list[Group], tops: list[Group], target: Node, turned: Collection[str], *, fold: bool) -> None:
    """Set which groups are folded: with `fold`, all that do not contain the answer's node; otherwise none.

    A group that is the only one is never folded.

    Args:
        groups: all groups.
        tops: those groups that are in no other group.
        target: the answer's node.
        turned: ids of groups that a person clicked on. Each of them is folded if it would not be, and else opened.
        fold: whether the picture is large.
    """
    for group in groups:
        own = any(node is target for node in group.all_nodes())
        group.folded = (fold and not own) != (group.id in turned)
    if len(groups) == 1:  # nothing else would be left to see
        tops[0].folded = False


def _visible(tops: Iterable[Group]) -> dict[str, str]:
    """Return the id of the card that shows each node, by node id: its own id, or that of the folded group around it."""
    stands = dict[str, str]()
    for group in tops:
        if group.folded:
            stands |= {node.id: group.id for node in group.all_nodes()}
        else:
            stands |= {node.id: node.id for node in group.nodes} | _visible(group.inside)
    return stands


def _box(group: Group) -> Box:
    """Return the box of a group for the layout. It contains the nodes and inner groups, unless the group is folded."""
    if group.folded:
        return Box(group.id, WIDTH, HEIGHT)
    nodes = [Box(node.id, WIDTH, HEIGHT) for node in group.nodes]
    return Box(group.id, inside=nodes + [_box(each) for each in group.inside])


def _in_order(groups: Iterable[Group]) -> list[Edge]:
    """Return undrawn edges between successive turns of each run, so that the layout puts them below each other."""
    last, edges = dict[str, Group](), list[Edge]()
    for group in sorted(groups, key=lambda each: (each.run, each.turn, each.part)):
        before = last.get(group.run)
        if before is not None:
            edges.append(Edge(before.id, group.id, drawn=False))
        last[group.run] = group
    return edges


def _inside(box: Box) -> list[Box]:
    return [each for inner in box.inside for each in (inner, *_inside(inner))]


def _node(node: Node, box: Box, passages: Sequence[Drawn]) -> dict[str, Any]:
    """Return a node as JSON, with its place and a part of its text.

    The part is chosen so that it contains the first marked passages.
    """
    marks = sorted((each.start, each.end) for each in passages if each.id == node.id)
    start = max(0, marks[0][0] - BEFORE) if marks and marks[0][1] > TEXT else 0
    shown = [(one - start, other - start) for one, other in marks if start <= one and other <= start + TEXT]
    return {
        "id": node.id,
        "run": node.run,
        "seq": node.seq,
        "type": node.type,
        "kind": str(node.kind),
        "status": node.status,
        "inferred": node.inferred,
        "from": node.derived_from,
        "text": node.text[start : start + TEXT],
        "cut": [start > 0, len(node.text) > start + TEXT],
        "marks": shown,
        **_place(box),
    }


def _group(group: Group, box: Box) -> dict[str, Any]:
    held = group.all_nodes()
    return {
        "id": group.id,
        "run": group.run,
        "title": group.title,
        "depth": group.depth,
        "folded": group.folded,
        "first": min(node.seq for node in held if node.run == group.run),
        "counts": Counter(node.type for node in held),
        **_place(box),
    }


def _place(box: Box) -> dict[str, float]:
    return {"x": round(box.x, 1), "y": round(box.y, 1), "width": round(box.width, 1), "height": round(box.height, 1)}
