"""Converts RDF triples to and from the short JSON of TrustGraph's gateway.

A term has the keys `t` (type), `i` (IRI), `d` (blank node), `v`, `dt` and `ln` (literal, its datatype and language)
and `tr` (nested triple). A triple has `s`, `p`, `o`, and `g` for its graph. The long keys of older messages can be
read, too.
"""

from collections.abc import Mapping
from typing import Any

from gesta.compat.trustgraph.schema import BLANK, IRI, LITERAL, TRIPLE, Term, Triple

KEYS = {IRI: (("i", "iri"),), BLANK: (("d", "id"),), LITERAL: (("v", "value"), ("dt", "datatype"), ("ln", "language"))}
"""For each type of term: its keys in JSON, each with the name of the field in `Term`."""
LONG = {"type": "t", "iri": "i", "id": "d", "value": "v", "datatype": "dt", "language": "ln", "triple": "tr"}
TYPES = {"iri": IRI, "blank": BLANK, "literal": LITERAL, "triple": TRIPLE}


def triple_to_wire(triple: Triple) -> dict[str, Any]:
    """Return a triple as a dict for JSON. Missing terms and an empty graph are left out."""
    terms = {name: _term_to_wire(term) for name in "spo" if (term := getattr(triple, name)) is not None}
    return terms | ({"g": triple.g} if triple.g else {})


def triple_from_wire(data: Mapping[str, Any]) -> Triple:
    """Return the triple that a dict from JSON describes."""
    terms = {name: _term_from_wire(data[name]) for name in "spo" if data.get(name)}
    return Triple(**terms, g=data.get("g"))


def _term_to_wire(term: Term) -> dict[str, Any]:
    made: dict[str, Any] = {"t": term.type}
    for key, field in KEYS.get(term.type, ()):
        value = getattr(term, field)
        if value or key not in ("dt", "ln"):
            made[key] = value
    if term.type == TRIPLE and term.triple is not None:
        made["tr"] = triple_to_wire(term.triple)
    return made


def _term_from_wire(data: Mapping[str, Any]) -> Term:
    short = {LONG.get(key, key): value for key, value in data.items()}
    kind = TYPES.get(short.get("t", ""), short.get("t", ""))
    fields = {field: short.get(key, "") for key, field in KEYS.get(kind, ())}
    nested = short.get("tr") if kind == TRIPLE else None
    return Term(type=kind, **fields, triple=triple_from_wire(nested) if nested else None)
