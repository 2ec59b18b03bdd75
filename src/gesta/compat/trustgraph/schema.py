"""The messages of TrustGraph's schema under its names, and the statements that its explanations are sent as."""

from dataclasses import dataclass, field

from gesta.compat.trustgraph.requests import AgentRequest, AgentResponse, PlanStep
from gesta.compat.trustgraph.requests import HistoryStep as AgentStep
from gesta.compat.trustgraph.requests import Problem as Error

IRI, BLANK, LITERAL, TRIPLE = "i", "b", "l", "t"
"""Types of a term."""


@dataclass
class Term:
    """A node or value of a graph."""

    type: str = ""
    """`IRI`, `BLANK`, `LITERAL` or `TRIPLE`; it says which of the other fields hold something."""
    iri: str = ""
    id: str = ""
    value: str = ""
    datatype: str = ""
    language: str = ""
    triple: "Triple | None" = None


@dataclass
class Triple:
    """One statement."""

    s: Term | None = None
    p: Term | None = None
    o: Term | None = None
    g: str | None = None
    """The graph that it stands in; `None` for the default graph."""


@dataclass
class Metadata:
    """What statements are about, and for whom they were made."""

    id: str = ""
    root: str = ""
    user: str = ""
    collection: str = ""


@dataclass
class Triples:
    """Statements, as the service `explainability` is sent them."""

    metadata: Metadata | None = None
    triples: list[Triple] = field(default_factory=list)


__all__ = [
    "AgentRequest",
    "AgentResponse",
    "AgentStep",
    "Error",
    "Metadata",
    "PlanStep",
    "Term",
    "Triple",
    "Triples",
]
