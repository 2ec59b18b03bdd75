"""Places boxes in layers from top to bottom: each box is below the boxes it was made from. A box may contain boxes.

An edge to the next layer is a straight line. Any other edge runs in a lane, so that no box hides it. A lane is a
vertical track at the right side of the box that contains both ends of the edge. Edges with a common end share a lane.
The same input always gives the same picture. `ways` holds for each box, by its id, the boxes that contain it, from the
outermost on, and then the box itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct, field

ACROSS, DOWN, PADDING, HEAD, LANE = 18.0, 32.0, 14.0, 26.0, 9.0
"""In pixels: the gap between boxes side by side, the gap between layers, the margin in a box, its title, and a lane."""
ROW = 5
"""Greatest number of boxes side by side. Further boxes of a layer are put into layers of their own."""
PULL = 0.2
"""Share of its distance to the middle by which a box is moved back, so that a long chain does not drift aside."""
SWEEPS = 6
"""Number of passes that sort the boxes in each layer, alternately by the boxes above and by the boxes below."""


class Box(Struct):
    """A rectangle with a place in the picture."""

    id: str
    width: float = 0.0
    """Width in pixels. For a box that contains others, the layout computes it."""
    height: float = 0.0
    inside: list["Box"] = field(default_factory=list)
    """The boxes that it contains, in the order of time."""
    x: float = 0.0
    """Left side in pixels."""
    y: float = 0.0
    layer: int = 0
    """Number of the layer, from 0, within the box that contains this one."""
    lanes: float = 0.0
    """Distance in pixels from the left side of this box to its first lane."""

    @property
    def middle(self) -> float:
        """The horizontal middle of the box."""
        return self.x + self.width / 2


class Edge(Struct):
    """A line from one box to another."""

    source: str
    target: str
    drawn: bool = True
    """Whether the line is drawn. An edge that is not drawn only makes the layout place `target` below `source`."""
    points: list[tuple[float, float]] = field(default_factory=list)
    """Corners of the line as (x, y): two for a straight line, six for a line in a lane."""


class Link(Struct):
    """An edge between two sibling boxes, which are directly inside the same outer box.

    Each of the two boxes is an end of the edge, or contains that end.
    """

    edge: Edge
    above: Box
    below: Box
    lane: int = -1
    """Number of the edge's lane, from 0; -1 for a straight line."""


def lay_out(root: Box, edges: Iterable[Edge]) -> None:
    """Place all boxes inside a box, and set the corners of the edges between them.

    An edge gets no corners if an end is not in the picture, or if one end contains the other.

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
    """Place the boxes inside a box, relative to its top left corner, and set its size."""
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
    """Set the layer of each box, which is below all boxes that are linked to it from above.

    Links that close a circle are ignored.
    """
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
            box.layer = min(under) - 1  # close to the boxes that were made from it


def _neighbours(links: list[Link]) -> tuple[dict[str, list[Box]], dict[str, list[Box]]]:
    """Return two dicts by box id: the linked boxes above each box, and the linked boxes below it."""
    above, below = defaultdict[str, list[Box]](list), defaultdict[str, list[Box]](list)
    for link in links:
        above[link.below.id].append(link.above)
        below[link.above.id].append(link.below)
    return above, below


def _order(boxes: list[Box], links: list[Link]) -> list[list[Box]]:
    """Return the layers as rows of boxes. Linked boxes are placed near each other; a row has at most `ROW` boxes."""
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
    """Place the boxes of each row from left to right, as close as possible to the boxes they are linked to."""
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
    """Place the boxes of a row as close as possible to the wanted middles, without overlap, by least squares.

    Source: the pool of adjacent violators, for isotonic regression; Barlow and others, 1972.
    """
    steps, at = [0.0], 0.0  # the middles if the boxes were packed without free space
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
    """Return whether a straight line for this link would run behind other boxes, so that it needs a lane."""
    if link.below.layer != link.above.layer + 1:
        return True
    source, target = ways[link.edge.source], ways[link.edge.target]
    from_, to = source[source.index(link.above) :], target[target.index(link.below) :]
    held = pairwise(from_)
    last = all(each.layer == max(other.layer for other in box.inside) for box, each in held)
    return not last or any(each.layer for each in to[1:])


def _lanes(links: list[Link]) -> int:
    """Assign a lane to each link, and return the number of lanes. Links with a common end share a lane."""
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
    free: list[int] = []  # for each lane, the last layer in which it is used
    for start, end, each in sorted(spans, key=lambda span: span[:2]):
        lane = next((number for number, until in enumerate(free) if until < start), len(free))
        free[lane : lane + 1] = [end]
        for link in each:
            link.lane = lane
    return len(free)


def _route(link: Link, box: Box, ways: dict[str, list[Box]]) -> None:
    """Set the corners of a link's edge, as coordinates in the whole picture."""
    source, target = ways[link.edge.source][-1], ways[link.edge.target][-1]
    start, end = (source.middle, source.y + source.height), (target.middle, target.y)
    if link.lane < 0:
        link.edge.points = [start, end] if link.edge.drawn else []
        return
    lane, aside = box.x + box.lanes + link.lane * LANE, 7 + link.lane % 5 * 3.0
    turns = [(start[0], start[1] + aside), (lane, start[1] + aside), (lane, end[1] - aside), (end[0], end[1] - aside)]
    link.edge.points = [start, *turns, end]
