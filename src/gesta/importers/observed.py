"""The observations of a trace as a tree, and the order in which they began and ended.

An observation is a node of a trace, such as a model call or a tool call. An observation names its parent. In the order
made here, an observation begins after its parent and ends before its parent, even if recorded times contradict that, as
after parallel work or late writes, or with several clocks. Each observation keeps its recorded times. The parameter
`oddities` counts problems of the source by name.
"""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from gesta.importers.foreign import Members, Oddities
from gesta.importers.python_text import decoded
from gesta.importers.spans import When

SPAN, MODEL, TOOL, EVENT = "span", "model", "tool", "event"
ROLES: Mapping[str, str] = MappingProxyType(
    {
        "AGENT": "agent",
        "CHAIN": "chain",
        "EMBEDDING": "embedding",
        "EVALUATOR": "evaluator",
        "EVENT": EVENT,
        "GENERATION": MODEL,
        "GUARDRAIL": "guardrail",
        "LLM": MODEL,
        "RERANKER": "reranker",
        "RETRIEVER": "retriever",
        "TOOL": TOOL,
    }
)
"""The role of a span by the type of its observation, or by its kind in OpenInference."""
OPERATIONS: Mapping[str, str] = MappingProxyType(
    {"create_agent": "agent", "execute_tool": TOOL, "invoke_agent": "agent"}
)
"""The role of a span by its operation in OpenTelemetry."""


class Observation(Struct, eq=False):
    """One observation of a trace, with its times, its input and its output."""

    place: int
    """Number of the observation in the file's list, from 0."""
    id: str
    name: str
    role: str
    begins: When
    ends: When
    input: Any
    """Input of the observation. A text that contains JSON or a Python value is decoded."""
    output: Any
    attributes: dict[str, Any]
    """The attributes in the observation's metadata."""
    members: Members
    """The members of the source that no field has taken yet."""
    raw: dict[str, Any]
    parent: "Observation | None" = None
    inside: list["Observation"] = field(default_factory=list)

    @property
    def above(self) -> Iterator["Observation"]:
        """The observations that contain this one, the nearest first."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent


def observation(raw: dict[str, Any], place: int, oddities: Oddities) -> Observation:
    """Return an observation from its JSON object. Its parent and children are not set yet.

    Args:
        place: number of the observation in the file's list.
    """
    members = Members(raw, oddities)
    begins, ends = When(*members.time("startTime")), When(*members.time("endTime"))
    metadata = decoded(raw.get("metadata"))
    attributes = metadata.get("attributes") if isinstance(metadata, dict) else None
    attributes = attributes if isinstance(attributes, dict) else {}
    kind, name = raw.get("type"), members.take("name", str) or ""
    for known in (*ROLES, "SPAN"):
        members.drop("type", known)
    return Observation(
        place=place,
        id=members.take("id", str) or "",
        name=name,
        role=_role(kind if isinstance(kind, str) else "", attributes),
        begins=begins,
        ends=ends,
        input=decoded(members.take("input", object)),
        output=decoded(members.take("output", object)),
        attributes=attributes,
        members=members,
        raw=raw,
    )


def _role(kind: str, attributes: dict[str, Any]) -> str:
    told = attributes.get("openinference.span.kind"), attributes.get("gen_ai.operation.name")
    tool = TOOL if isinstance(attributes.get("gen_ai.tool.name"), str) else SPAN
    named = [table.get(each) for table, each in zip((ROLES, OPERATIONS), told, strict=True) if isinstance(each, str)]
    return next((role for role in (ROLES.get(kind), *named) if role is not None), tool)


def join(found: list[Observation], oddities: Oddities) -> None:
    """Set the parent and the children of each observation.

    If the named parent is missing, or is inside the observation itself, the observation has no parent.
    """
    known: dict[str, Observation] = {}
    for each in found:
        oddities["repeated-span-id"] += each.id in known
        known.setdefault(each.id, each)
    for each in found:
        named = each.raw.get("parentObservationId")
        parent = known.get(named) if isinstance(named, str) else None
        if parent is None or parent is each or each in parent.above:
            oddities["missing-parent"] += named is not None
            continue
        each.members.take("parentObservationId", str)
        each.parent = parent
        parent.inside.append(each)


def in_order(found: list[Observation]) -> Iterator[tuple[Observation, bool]]:
    """Yield each observation twice, in order of time: with `False` when it begins, with `True` when it ends."""
    placed = {each.place: each for each in found}
    waits = {each.place: len(each.inside) for each in found}
    ready = [_begin(each) for each in found if each.parent is None]
    heapify(ready)
    while ready:
        *_, place, ends = heappop(ready)
        each = placed[place]
        yield each, ends
        if not ends:
            for inner in each.inside:
                heappush(ready, _begin(inner))
            if not waits[place]:
                heappush(ready, _end(each))
        elif each.parent is not None:
            waits[each.parent.place] -= 1
            if not waits[each.parent.place]:
                heappush(ready, _end(each.parent))


def _begin(each: Observation) -> tuple[float, int, int, bool]:
    at = each.begins.at
    return (at.timestamp() if at is not None else 0.0), 1, each.place, False


def _end(each: Observation) -> tuple[float, int, int, bool]:
    at = each.ends.at or each.begins.at
    return (at.timestamp() if at is not None else 0.0), 0, each.place, True
