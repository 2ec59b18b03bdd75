"""Writes explanations as RDF for other stores and tools: N-Quads with one statement a line, or TriG for people to read.

An explanation says from which entries of the record an answer was made. `views.prov` makes the statements; this module
only converts them to text.
"""

from collections.abc import AsyncIterator, Iterable

from gesta.errors import MissingExtra
from gesta.record.record import Record
from gesta.views.across import all_nodes
from gesta.views.prov import quads
from gesta.views.prov_names import PREFIXES, Quad, Term

try:
    from pyoxigraph import Literal, NamedNode, RdfFormat, serialize
    from pyoxigraph import Quad as Statement
except ImportError as missing:
    raise MissingExtra("Writing RDF", "pyoxigraph", "prov") from missing

FORMATS = {"nquads": RdfFormat.N_QUADS, "trig": RdfFormat.TRIG}


def write(statements: Iterable[Quad], format: str) -> str:
    """Return statements as text in the format `nquads` or `trig`. The same statements always give the same text."""
    prefixes = PREFIXES if format == "trig" else {}
    made = (statement(each) for each in statements)
    text: str = serialize(made, format=FORMATS[format], prefixes=prefixes).decode()  # type: ignore[union-attr]
    lines = text.split("\n")
    return "\n".join(sorted(lines[: len(prefixes)]) + lines[len(prefixes) :])  # the library's order is random


def statement(quad: Quad) -> Statement:
    """Return a statement of `views.prov` as an object of the library `pyoxigraph`."""
    subject, predicate, graph = (NamedNode(term.value) for term in (quad.subject, quad.predicate, quad.graph))
    return Statement(subject, predicate, _term(quad.object), graph)


async def export(record: Record, run: str | None, format: str) -> AsyncIterator[str]:
    """Yield text with the provenance of one run and of its sources in other runs, or of all runs if `run` is `None`."""
    nodes, state = await all_nodes(record, run)
    yield write(quads(nodes, state), format)


def _term(term: Term) -> NamedNode | Literal:
    if term.type == "iri":
        return NamedNode(term.value)
    return Literal(term.value, datatype=NamedNode(term.datatype) if term.datatype else None)
