"""Places boxes in layers, from the top down, each below the boxes that it was made from. A box may hold boxes.

An edge to the next layer is drawn straight. All others run in lanes at the right side of the box that holds both ends,
so that no line is hidden behind a box: edges with a common end share a lane. Nothing depends on chance.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct, field

ACROSS, DOWN, PADDING, HEAD, LANE = 18.0, 32.0, 14.0, 26.0, 9.0
"""Gaps between boxes beside and below each other, the margin inside a box, the height of its title, a lane's width."""
ROW = 5
"""Greatest number of boxes beside each other; further boxes of a layer become layers of their own."""
PULL = 0.2
"""How much of its distance to the middle of the picture a box gives up, so that a long chain does not wander off."""
SWEEPS = 6
"""Number of times that all layers are put in order, alternately by what is above and what is below."""


class Box(Struct):
    """A rectangle with a place."""

    id: str
    width: float = 0.0
    """Width in pixels; of a box that holds others, it is found by the layout."""
    height: float = 0.0
    inside: list["Box"] = field(default_factory=list)
    """The boxes that it holds, in the order of time."""
    x: float = 0.0
    """Its left side; `y` is its top."""
    y: float = 0.0
    layer: int = 0
    """Number of its layer, from 0, in the box that holds it."""
    lanes: float = 0.0
    """Where the first lane begins, from its left side."""

    @property
    def middle(self) -> float:
        """The middle between its left and its right side."""
        return self.x + self.width / 2


class Edge(Struct):
    """A line from one box to another."""

    source: str
    target: str
    drawn: bool = True
    """Whether it is a line; otherwise it only says that one box is above the other."""
    points: list[tuple[float, float]] = field(default_factory=list)
    """Its corners: two points for a line from layer to layer, six for one in a lane."""


class Link(Struct):
    """An edge as the box sees it that holds both of its ends."""

    edge: Edge
    above: Box
    below: Box
    lane: int = -1
    """Number of its lane; -1: it needs none."""


def lay_out(root: Box, edges: Iterable[Edge]) -> None:
    """Place all boxes inside a box, and set the corners of the edges between them.

    An edge whose end is no box, or holds its other end, gets no corners.

    Cost: near linear in the number of boxes and edges.
    """
    ways = {root.id: [root]}
    left = [root]
    for box in left:
        for each in box.inside:
            ways[each.id] = [*ways[box.id], each]
            left.append(each)
    within = defaultdict[str, list[Link]](list)
    for edge in edges:
        pair = list(zip(ways.get(edge.source, ()), ways.get(edge.target, ()), strict=False))
        fork = next((place for place, (one, other) in enumerate(pair) if one is not other), None)
        if fork:
            within[pair[fork - 1][0].id].append(Link(edge, *pair[fork]))
    for box in reversed(left):
        if box.inside:
            _fill(box, within[box.id], ways)
    for box in left:
        for each in box.inside:
            each.x, each.y = each.x + box.x, each.y + box.y
    for id_, links in within.items():
        for link in links:
            _route(link, ways[id_][-1], ways)


def _fill(box: Box, links: list[Link], ways: dict[str, list[Box]]) -> None:
    """Place what a box holds, in its own coordinates, and find its size."""
    _layer(box.inside, links)
    rows = _order(box.inside, links)
    _across(rows, links)
    first = min(each.x for each in box.inside)
    y = PADDING + HEAD
    for row in rows:
        for each in row:
            each.x, each.y = each.x - first + PADDING, y
        y += max(each.height for each in row) + DOWN
    box.lanes = max(each.x + each.width for each in box.inside) + PADDING
    used = _lanes([link for link in links if link.edge.drawn and _is_long(link, ways)])
    box.width, box.height = box.lanes + used * LANE, y - DOWN + PADDING


def _layer(boxes: list[Box], links: list[Link]) -> None:
    """Put each box into the layer below the last one of those above it; links that close a circle are left out."""
    above, below = _neighbours(links)
    waits = {each.id: len(above[each.id]) for each in boxes}
    numbers = {each.id: place for place, each in enumerate(boxes)}
    ready = sorted((number for id_, number in numbers.items() if not waits[id_]), reverse=True)
    done = set[str]()
    rest = iter(boxes)
    while len(done) < len(boxes):
        box = boxes[ready.pop()] if ready else next(each for each in rest if each.id not in done)
        if box.id in done:
            continue
        done.add(box.id)
        box.layer = max((each.layer + 1 for each in above[box.id] if each.id in done), default=0)
        for each in below[box.id]:
            waits[each.id] -= 1
            if not waits[each.id] and each.id not in done:
                ready.append(numbers[each.id])
    for box in boxes:
        under = [each.layer for each in below[box.id] if each.layer > box.layer]
        if under and not above[box.id] and box is not boxes[0]:
            box.layer = min(under) - 1  # close to what was made from it


def _neighbours(links: list[Link]) -> tuple[dict[str, list[Box]], dict[str, list[Box]]]:
    """Return the boxes above and below each box."""
    above, below = defaultdict[str, list[Box]](list), defaultdict[str, list[Box]](list)
    for link in links:
        above[link.below.id].append(link.above)
        below[link.above.id].append(link.below)
    return above, below


def _order(boxes: list[Box], links: list[Link]) -> list[list[Box]]:
    """Return the layers, each with its boxes near those that they are linked to; no layer is longer than a row."""
    layers = defaultdict[int, list[Box]](list)
    for each in boxes:
        layers[each.layer].append(each)
    rows = [layers[number] for number in sorted(layers)]
    above, below = _neighbours(links)
    places = {each.id: float(place) for row in rows for place, each in enumerate(row)}
    for sweep in range(SWEEPS):
        near, turn = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in turn:
            row.sort(key=lambda each: _mean((places[other.id] for other in near[each.id]), places[each.id]))
            places |= {each.id: float(place) for place, each in enumerate(row)}
    rows = [row[first : first + ROW] for row in rows for first in range(0, len(row), ROW)]
    for number, row in enumerate(rows):
        for each in row:
            each.layer = number
    return rows


def _mean(numbers: Iterable[float], otherwise: float) -> float:
    found = list(numbers)
    return sum(found) / len(found) if found else otherwise


def _across(rows: list[list[Box]], links: list[Link]) -> None:
    """Place boxes from left to right around 0, as near to those above and below as the boxes beside them allow."""
    near = [link for link in links if link.below.layer == link.above.layer + 1]
    above, below = _neighbours(near)
    for row in rows:
        _spread(row, [0.0] * len(row))
    for sweep in range(SWEEPS):
        other, turn = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in turn:
            wanted = (_mean((each.middle for each in other[box.id]), box.middle) for box in row)
            _spread(row, [each * (1 - PULL) for each in wanted])


def _spread(row: list[Box], wanted: Sequence[float]) -> None:
    """Place the boxes of a row so that none overlap and the squares of the distances to the wanted middles are least.

    Source: the pool of adjacent violators, for isotonic regression; Barlow and others, 1972.
    """
    steps, at = [0.0], 0.0  # the middles, if all boxes stood close together
    for one, other in pairwise(row):
        at += (one.width + other.width) / 2 + ACROSS
        steps.append(at)
    pools: list[tuple[float, int]] = []
    for want, step in zip(wanted, steps, strict=True):
        mean, size = want - step, 1
        while pools and pools[-1][0] >= mean:
            before, more = pools.pop()
            mean, size = (before * more + mean * size) / (more + size), size + more
        pools.append((mean, size))
    offsets = [mean for mean, size in pools for _ in range(size)]
    for box, offset, step in zip(row, offsets, steps, strict=True):
        box.x = offset + step - box.width / 2


def _is_long(link: Link, ways: dict[str, list[Box]]) -> bool:
    """Return whether a straight line would run behind other boxes."""
    if link.below.layer != link.above.layer + 1:
        return True
    source, target = ways[link.edge.source], ways[link.edge.target]
    from_, to = source[source.index(link.above) :], target[target.index(link.below) :]
    held = pairwise(from_)
    last = all(each.layer == max(other.layer for other in box.inside) for box, each in held)
    return not last or any(each.layer for each in to[1:])


def _lanes(links: list[Link]) -> int:
    """Assign lanes to links, and return the number of lanes. Links with a common end share one."""
    out, into = defaultdict[str, int](int), defaultdict[str, int](int)
    for link in links:
        out[link.edge.source] += 1
        into[link.edge.target] += 1
    bundles = defaultdict[tuple[bool, str], list[Link]](list)
    for link in links:
        by_source = out[link.edge.source] >= into[link.edge.target]
        bundles[by_source, link.edge.source if by_source else link.edge.target].append(link)
    spans = []
    for each in bundles.values():
        layers = [box.layer for link in each for box in (link.above, link.below)]
        spans.append((min(layers), max(layers), each))
    free: list[int] = []  # for each lane the last layer in which it is taken
    for start, end, each in sorted(spans, key=lambda span: span[:2]):
        lane = next((number for number, until in enumerate(free) if until < start), len(free))
        free[lane : lane + 1] = [end]
        for link in each:
            link.lane = lane
    return len(free)


def _route(link: Link, box: Box, ways: dict[str, list[Box]]) -> None:
    """Set the corners of an edge."""
    source, target = ways[link.edge.source][-1], ways[link.edge.target][-1]
    start, end = (source.middle, source.y + source.height), (target.middle, target.y)
    if link.lane < 0:
        link.edge.points = [start, end] if link.edge.drawn else []
        return
    lane, aside = box.x + box.lanes + link.lane * LANE, 7 + link.lane % 5 * 3.0
    turns = [(start[0], start[1] + aside), (lane, start[1] + aside), (lane, end[1] - aside), (end[0], end[1] - aside)]
    link.edge.points = [start, *turns, end]
