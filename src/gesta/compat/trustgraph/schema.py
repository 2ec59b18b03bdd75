"""The messages of TrustGraph under the names of `trustgraph.schema`, and the RDF triples of its explanations."""

from dataclasses import dataclass, field

from gesta.compat.trustgraph.requests import AgentRequest, AgentResponse, PlanStep
from gesta.compat.trustgraph.requests import HistoryStep as AgentStep
from gesta.compat.trustgraph.requests import Problem as Error

IRI, BLANK, LITERAL, TRIPLE = "i", "b", "l", "t"
"""Types of a term."""


@dataclass
class Term:
    """A node or a literal of an RDF graph."""

    type: str = ""
    """`IRI`, `BLANK`, `LITERAL` or `TRIPLE`; it decides which of the other fields have a value."""
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
    """The graph that the triple belongs to; `None` for the default graph."""


@dataclass
class Metadata:
    """The id of the entity that triples are about, and the user and collection that they were made for."""

    id: str = ""
    root: str = ""
    user: str = ""
    collection: str = ""


@dataclass
class Triples:
    """A batch of triples, in the form that the service `explainability` expects."""

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
