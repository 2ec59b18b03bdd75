"""Arranges derivations so that TrustGraph's explain client reads each session to its end, and each node once.

That client starts at a question and follows `prov:wasDerivedFrom` backwards, from node to node. It goes fifty steps
deep, and asks for at most twenty nodes that derive from a node. Conclusion and Synthesis nodes end a path. The client
shows a node once for each path to it. So within a session, each node derives directly from only one other node (the
chain). Between a node and each of its other sources there is an extra entity, `/further`. All statements are on record,
or follow from the record.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence

from gesta.views.prov_names import SESSION

FOLLOWED = frozenset({"Analysis", "ToolUse", "Observation", "Decomposition", "Finding", "Plan", "StepResult"})
"""Types of nodes from which the client goes on."""
ENDS = frozenset({"Conclusion", "Synthesis"})
"""Types of nodes that end a path of the client."""
DEEP, CHAINED, BESIDE = 49, 11, 7
"""Greatest depth of the chain; greatest numbers of chain nodes and of other nodes that derive from one node."""
Link = tuple[str, str]
"""Name of an entity, and name of an entity that it derives from."""


class Chain:
    """Computes which derivations to write, so that the client follows a single path to each node."""

    def __init__(self, types: Mapping[str, frozenset[str]], sources: Mapping[str, Sequence[str]]) -> None:
        """Store the types and the sources of the entities.

        Args:
            types: for each entity, the types of its nodes. The entities are in the order of the explanation.
            sources: for each entity, names of the entities that it was made from.
        """
        self.types, self.sources = types, sources
        self.further: dict[str, str] = {}
        """Extra entities (`/further`) between an entity and another of its sources, each with that source."""
        self.continued: dict[str, str] = {}
        """Extra entities (`/more`) that continue the chain if too many entities would derive from one; each with that
        one."""
        self._places = {name: place for place, name in enumerate(types)}
        self._up: dict[str, str] = {}
        self._depth, self._chained, self._beside = Counter[str](), Counter[str](), Counter[str]()

    def links(self) -> Iterator[Link]:
        """Yield all derivations. The derivations of a source come before those of entities made from the source."""
        for name, types in self.types.items():
            above = self._above(name) if types & (FOLLOWED | ENDS) else ""
            if above:
                above = yield from self._with_room(above)
                yield name, above
                self._chained[above] += 1
                self._up[name], self._depth[name] = above, self._depth[above] + 1
            for source in dict.fromkeys(self.sources[name]):
                if source == above:
                    continue
                if not self._leads_on(source):
                    yield name, source
                elif above or self._beside[source] >= BESIDE:
                    yield from self._by_way_of(name, source)
                else:
                    self._beside[source] += 1
                    yield name, source

    def _leads_on(self, name: str) -> bool:
        """Return whether the client, when it has reached an entity, asks for the entities that derive from it."""
        return bool(self.types.get(name, frozenset()) & (FOLLOWED | {"Question"}))

    def _above(self, name: str) -> str:
        """Return the latest source of an entity that leads the client on (see `_leads_on`); `""` if there is none.

        Only sources in the entity's own session count. In place of any other source, its own sources are searched.
        """
        found, seen, left = [""], {name}, list(self.sources[name])
        while left:
            source = left.pop()
            if source in seen:
                continue
            seen.add(source)
            if self._leads_on(source) and _session(source) == _session(name):
                found.append(source)
            else:
                left += self.sources.get(source, ())
        return max(found, key=lambda each: self._places.get(each, -1))

    def _with_room(self, name: str) -> Generator[Link, None, str]:
        """Return an entity of the chain from which one more entity may derive within the client's limits.

        That is the entity `name`, or else one before it in the chain. If none of these has room, an extra entity
        that derives from one of them is returned. The derivations of new extra entities are yielded.
        """
        each = name
        while each:
            if self._chained[each] < CHAINED and self._depth[each] < DEEP:
                return each
            each = self._up.get(each, "")
        while self._depth[name] >= DEEP:
            name = self._up[name]
        while self._chained[name] >= CHAINED:
            more = f"{name}/more"
            if more not in self.continued:
                self.continued[more] = name
                self._up[more], self._depth[more] = name, self._depth[name] + 1
                yield more, name
            name = more
        return name

    def _by_way_of(self, name: str, source: str) -> Iterator[Link]:
        beside = f"{source}/further"
        if beside not in self.further:
            self.further[beside] = source
            yield beside, source
        yield name, beside


def _session(name: str) -> str:
    return name.partition("/")[0] if name.startswith(SESSION) else ""
