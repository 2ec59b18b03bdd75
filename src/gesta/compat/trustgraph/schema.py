"""TrustGraph's module `trustgraph.schema`: the names of its messages, and the RDF triples of its explanations."""

from dataclasses import dataclass, field

from gesta.compat.trustgraph.requests import AgentRequest, AgentResponse, PlanStep
from gesta.compat.trustgraph.requests import HistoryStep as AgentStep
from gesta.compat.trustgraph.requests import Problem as Error

IRI, BLANK, LITERAL, TRIPLE = "i", "b", "l", "t"
"""Types of a term."""


@dataclass
class Term:
    """A node or a literal value in an RDF graph."""

    type: str = ""
    """`IRI`, `BLANK`, `LITERAL` or `TRIPLE`. The type determines which of the other fields are used."""
    iri: str = ""
    id: str = ""
    value: str = ""
    datatype: str = ""
    language: str = ""
    triple: "Triple | None" = None


@dataclass
class Triple:
    """One RDF triple: subject `s`, predicate `p` and object `o`."""

    s: Term | None = None
    p: Term | None = None
    o: Term | None = None
    g: str | None = None
    """Name of the graph that contains the triple; `None` for the default graph."""


@dataclass
class Metadata:
    """The subject of a batch of triples: the id of the described entity, its user and its collection."""

    id: str = ""
    root: str = ""
    user: str = ""
    collection: str = ""


@dataclass
class Triples:
    """A batch of triples, as TrustGraph's service `explainability` expects it."""

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
