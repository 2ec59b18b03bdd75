"""Makes the names for the export of explanations as PROV: terms, statements, and the IRI of each node.

A node is an entry that an explanation shows; in the graph it is an entity. A question and all nodes that follow from it
are one session, `urn:trustgraph:agent:{id of the question's entry}`. The task of a child run opens a session of its
own. Quads are plain tuples, so that only writing them to a file needs an RDF library.
"""

import re
from collections import Counter
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from gesta import kinds
from gesta.entry import Entry
from gesta.kinds import Kind
from gesta.lineage import Key
from gesta.prompt import DECIMAL_BITS, numbers_in_hex
from gesta.views.lineage import State

TG = "https://trustgraph.ai/ns/"
PROV = "http://www.w3.org/ns/prov#"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
XSD = "http://www.w3.org/2001/XMLSchema#"
PREFIXES = {"tg": TG, "prov": PROV, "rdfs": LABEL.removesuffix("label"), "xsd": XSD}
SESSION = "urn:trustgraph:agent:"
GRAPH = "urn:graph:retrieval"
"""IRI of the graph with the explanations."""
SOURCES = "urn:graph:source"
"""IRI of the graph with the documents, pages and passages that were retrieved."""

PARTS = {
    "PatternDecision": "pattern-decision",
    "Conclusion": "final",
    "Decomposition": "decompose",
    "Finding": "finding",
    "Plan": "plan",
    "StepResult": "step",
    "Synthesis": "synthesis",
}
"""Names of node types inside a session. Findings and steps also get a number from 0, the number of their goal."""
# A document name that is an IRI already is used unchanged; any other name is percent-encoded into an IRI.
PLAIN = r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
IRI = re.compile(rf"(?:urn:[A-Za-z0-9][A-Za-z0-9-]*:|https?://[A-Za-z0-9.-]+(?::\d+)?(?=[/?#]|$)){PLAIN}(?:#{PLAIN})?")
SURROGATE = re.compile("[\ud800-\udfff]")


class Term(NamedTuple):
    """A term of a graph: an IRI, or a literal value."""

    type: Literal["iri", "literal"]
    value: str
    datatype: str = ""
    """IRI of the literal's type; empty for plain text."""


class Quad(NamedTuple):
    """One statement of a graph."""

    subject: Term
    predicate: Term
    object: Term
    graph: Term = Term("iri", GRAPH)


def quad(subject: str, predicate: str, value: str | Term, graph: str = GRAPH) -> Quad:
    """Return a statement. Texts are IRIs; `value`, the object of the statement, may also be a term."""
    value = Term("iri", value) if isinstance(value, str) else value
    return Quad(Term("iri", subject), Term("iri", predicate), value, Term("iri", graph))


def names_of(state: State) -> dict[str, str]:
    """Return the IRI of each node's entity, by the id of the node's entry.

    If a model's reply made only one call, the reply and the call have the same IRI.
    """
    names: dict[str, str] = {}
    taken = set[str]()
    for run, origin in state.origins.items():
        shown = [seq for seq in sorted(origin.nodes) if not origin.became(seq)]
        makers = {seq: maker_of(state, state.entries[run, seq]) for seq in shown}
        calls = Counter(maker for seq, maker in makers.items() if origin.nodes[seq] == "ToolUse")
        counted, session = Counter[str](), SESSION + quoted(run)
        for seq in shown:
            type_, maker, id = origin.nodes[seq], makers[seq], state.entries[run, seq].id
            over = names.get(maker, session)
            if type_ == "Question":
                session = SESSION + quoted(id)
            match type_:
                case "Question":
                    name = session
                case "ToolUse" if maker in names and calls[maker] == 1:
                    names[id] = over
                    continue
                case "ToolUse" if maker in names:
                    counted[f"{over}/call"] += 1
                    name = f"{over}/call/{counted[f'{over}/call'] - 1}"
                case "Analysis" | "ToolUse":
                    counted[session] += 1
                    name = f"{session}/i{counted[session]}"
                case "Thought" if maker not in names:
                    name = f"{session}/i{counted[session] + 1}/thought"
                case "Thought" | "Observation":
                    name = f"{over}/{type_.lower()}"
                case "Retrieval":
                    name = f"urn:trustgraph:docrag:{quoted(id)}/exploration"
                case "PatternDecision" if is_task_type(state, (run, seq)):
                    name = f"{session}/task-type"
                case "Finding" | "StepResult":
                    part = f"{session}/{PARTS[type_]}"
                    counted[part] += 1
                    name = f"{part}/{_place(state, run, seq, counted[part] - 1)}"
                case _ if type_ in PARTS:
                    name = f"{session}/{PARTS[type_]}"
                case _:
                    name = f"{session}/{type_.lower()}/{seq}"
            names[id] = name if name not in taken else f"{name}/{seq}"
            taken.add(names[id])
    return names


def _place(state: State, run: str, seq: int, counted: int) -> str:
    """Return the number of a finding or step for its IRI: the number in its span's name (`step 2`), else `counted`.

    Args:
        seq: seq of the entry with the finding or the result of the step.
        counted: the number to return if the name of the span does not end with a number.
    """
    begun = state.entries.get((run, state.entries[run, seq].span))
    number = begun.content.name.rpartition(" ")[2] if begun and isinstance(begun.content, kinds.BeginContent) else ""
    return number if number.isascii() and number.isdecimal() else str(counted)


def quoted(text: str) -> str:
    """Return a text in percent-encoding, as one part of an IRI."""
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def literal(value: Any) -> Term:
    """Return a value as a literal. Characters that RDF does not allow are replaced."""
    match value:
        case bool():
            return Term("literal", str(value).lower(), XSD + "boolean")
        case int() if value.bit_length() <= DECIMAL_BITS:
            return Term("literal", str(value), XSD + "integer")
        case float():
            return Term("literal", repr(value), XSD + "double")
        case _:
            return Term("literal", SURROGATE.sub("\ufffd", str(numbers_in_hex(value))))


def document_iri(hit: kinds.Hit) -> str:
    """Return the IRI of the passage `hit`: its own IRI, or else an IRI made from its document, page and chunk."""
    return way_to(hit)[-1][1]


def way_to(hit: kinds.Hit) -> list[tuple[str, str]]:
    """Return pairs of class and IRI, for the document, page and chunk of the passage `hit`, as far as known."""
    document = hit.document if IRI.fullmatch(hit.document) else f"urn:gesta:document:{quoted(hit.document)}"
    way, mark = [("Document", document)], "/" if "#" in document else "#"
    if hit.page is not None:
        way.append(("Page", f"{document}{mark}page={quoted(str(hit.page))}"))
    if hit.chunk is not None:
        whole = hit.chunk if IRI.fullmatch(hit.chunk) else f"{document}{mark}{quoted(hit.chunk)}"
        way.append(("Chunk", whole))
    return way


def is_task_type(state: State, key: Key) -> bool:
    """Return whether the decision entry `key` chose the type of the task, and not a pattern (a ready-made workflow)."""
    own = state.entries[key].content
    later = (state.entries[other].content for other in state.followers.get(key, ()))
    return isinstance(own, kinds.DecisionContent) and any(
        isinstance(each, kinds.DecisionContent) and each.task_type == own.choice for each in later
    )


def maker_of(state: State, entry: Entry) -> str:
    """Return the id of the entry to which an entry belongs; an empty text if there is none.

    For example, a call belongs to a model's reply, and a tool result belongs to its call.
    """
    if entry.kind in (Kind.ToolCall, Kind.Thought):
        kinds_ = (Kind.ChatCompletion, *((Kind.ToolCall,) if entry.kind is Kind.Thought else ()))
        return next((each.id for each in causes_of(state, entry) if each.kind in kinds_), "")
    of = getattr(entry.content, "call", None) or getattr(entry.content, "of", None)
    return f"{entry.run}.{of}" if of else ""


def causes_of(state: State, entry: Entry) -> list[Entry]:
    """Return the entries of the same run that an entry was made from."""
    links = state.links((entry.run, entry.seq))
    return [state.entries[key] for key in links if key[0] == entry.run and key in state.entries]
