"""An explanation as PROV-O quads, in the vocabulary and the names that TrustGraph's explain clients read.

A question and what came of it are one session, `urn:trustgraph:agent:{id of the question's entry}`; the task of a child
run opens a session of its own, derived from where it came from. What a node says stands beside it as `prov:value` of
its document, so no second store can lose it. Numbers and times are typed. Quads are plain tuples; an RDF library is
needed to write them only.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from gesta import kinds
from gesta.entry import Entry, utc_text
from gesta.errors import BrokenRecord
from gesta.kinds import Kind
from gesta.model.usage import tokens
from gesta.prompt.formatter import DECIMAL_BITS, numbers_in_hex, observation_text
from gesta.state.run import UNFIT
from gesta.views.lineage import Node, State

TG = "https://trustgraph.ai/ns/"
PROV = "http://www.w3.org/ns/prov#"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
XSD = "http://www.w3.org/2001/XMLSchema#"
PREFIXES = {"tg": TG, "prov": PROV, "rdfs": LABEL.removesuffix("label"), "xsd": XSD}
SESSION = "urn:trustgraph:agent:"
GRAPH = "urn:graph:retrieval"
"""The graph that all of it stands in."""

TYPES = {
    "Question": ("Question", "AgentQuestion"),
    "Thought": ("Reflection", "Thought"),
    "Retrieval": ("Exploration",),
    **{each: (each,) for each in ("PatternDecision", "Analysis", "ToolUse", "Observation", "Decomposition", "Plan")},
    **{each: (each, "Answer") for each in ("Conclusion", "Finding", "StepResult", "Synthesis")},
}
"""What each node is in that vocabulary; the others are entities without a class of their own."""
PARTS = {
    "PatternDecision": "pattern-decision",
    "Conclusion": "final",
    "Decomposition": "decompose",
    "Finding": "finding",
    "Plan": "plan",
    "StepResult": "step",
    "Synthesis": "synthesis",
}
"""Their names in a session; findings and steps are counted from 0."""
ENDINGS = {"answered": "final-answer", "limit": "max-iterations"}
"""Why a session ended; by anything else it ended with an error."""
TITLE = 60
"""Characters of a goal in a label."""

# An IRI that is taken as it is; any other name of a document is quoted into one.
PLAIN = r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
IRI = re.compile(rf"(?:urn:[A-Za-z0-9][A-Za-z0-9-]*:|https?://[A-Za-z0-9.-]+(?::\d+)?(?=[/?#]|$)){PLAIN}(?:#{PLAIN})?")
SURROGATE = re.compile("[\ud800-\udfff]")


class Term(NamedTuple):
    """A node or value of a graph."""

    type: Literal["iri", "literal"]
    value: str
    datatype: str = ""
    """IRI of the type of a literal; empty for plain text."""


class Quad(NamedTuple):
    """One statement."""

    subject: Term
    predicate: Term
    object: Term
    graph: Term = Term("iri", GRAPH)


def quads(nodes: Sequence[Node], state: State) -> Iterator[Quad]:
    """Yield what each node is, and what it was made from.

    Args:
        nodes: with those that they derive from, as `views.across.all_nodes` gives them.
        state: what was folded of their entries.

    Raises:
        BrokenRecord: a content holds other types than its kind declares.
    """
    names = names_of(state)
    told = set[Quad]()
    for node in nodes:
        try:
            made = list(_of(node, names, state)) if node.id in names else []
        except UNFIT as error:
            raise BrokenRecord(f"entry {node.id}", f"a member is not of its type ({error!r})") from error
        for quad in made:
            if quad not in told:
                told.add(quad)
                yield quad


def names_of(state: State) -> dict[str, str]:
    """Return each node the IRI of its entity, by id. A lone call and the analysis that made it are one entity."""
    names: dict[str, str] = {}
    taken = set[str]()
    for run, origin in state.origins.items():
        shown = [seq for seq in sorted(origin.nodes) if not origin.became(seq)]
        makers = {seq: _maker(state, state.entries[run, seq]) for seq in shown}
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
                case "Analysis":
                    counted[session] += 1
                    name = f"{session}/i{counted[session]}"
                case "ToolUse" if maker in names and calls[maker] == 1:
                    names[id] = over
                    continue
                case "ToolUse":
                    counted[f"{over}/call"] += 1
                    name = f"{over}/call/{counted[f'{over}/call'] - 1}"
                case "Thought" if maker not in names:
                    name = f"{session}/i{counted[session] + 1}/thought"
                case "Thought" | "Observation":
                    name = f"{over}/{type_.lower()}"
                case "Retrieval":
                    name = f"urn:trustgraph:docrag:{quoted(id)}/exploration"
                case "Finding" | "StepResult":
                    part = f"{session}/{PARTS[type_]}"
                    counted[part] += 1
                    name = f"{part}/{counted[part] - 1}"
                case _ if type_ in PARTS:
                    name = f"{session}/{PARTS[type_]}"
                case _:
                    name = f"{session}/{type_.lower()}/{seq}"
            names[id] = name if name not in taken else f"{name}/{seq}"
            taken.add(names[id])
    return names


def quoted(text: str) -> str:
    """Write any text as a part of an IRI."""
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def literal(value: Any) -> Term:
    """Make a value; what RDF cannot hold in a text is replaced."""
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
    """Name the passage that was found: its own IRI, or one that is made of its names."""
    if hit.chunk is not None and IRI.fullmatch(hit.chunk):
        return hit.chunk
    document = hit.document if IRI.fullmatch(hit.document) else f"urn:gesta:document:{quoted(hit.document)}"
    return document if hit.chunk is None else f"{document}{'/' if '#' in document else '#'}{quoted(hit.chunk)}"


def _of(node: Node, names: dict[str, str], state: State) -> Iterator[Quad]:
    """Yield what is said of one node."""
    name, entry = names[node.id], state.entries[node.run, node.seq]
    types = [] if node.type == "Thought" else [PROV + "Entity"]
    for type_ in [*types, *(TG + each for each in TYPES.get(node.type, ()))]:
        yield _quad(name, RDF_TYPE, type_)
    if node.type != "ToolUse" or names.get(_maker(state, entry)) != name:  # else the analysis is labelled
        yield _quad(name, LABEL, literal(_label(node, entry, state)))
    for predicate, value in _facts(node, entry, state):
        yield _quad(name, predicate, literal(value) if not isinstance(value, Term) else value)
    if node.type == "Thought" and (analysis := names.get(_maker(state, entry))):
        yield _quad(analysis, TG + "thought", name)
    if node.type == "Question":
        yield _quad(name, PROV + "startedAtTime", Term("literal", utc_text(entry.at), XSD + "dateTime"))
    elif node.type == "Analysis":
        yield _quad(name, TG + "stepNumber", literal(int(name.rpartition("/i")[2])))
    elif node.type == "Retrieval":
        yield from _passages(node, name, entry)
    document = _document(node, name)
    if document is not None:
        yield _quad(name, TG + "document", document)
    if _failed(node, entry):
        yield _quad(name, RDF_TYPE, TG + "Error")
    for source in dict.fromkeys(names.get(each, name) for each in node.derived_from):
        if source != name:
            yield _quad(name, PROV + "wasDerivedFrom", source)
    if document is not None:
        yield _quad(document, PROV + "value", literal(node.text))


def _facts(node: Node, entry: Entry, state: State) -> Iterator[tuple[str, Any]]:
    """Yield what a node says in the predicates of the vocabulary."""
    content = entry.content
    match content:
        case kinds.UserContent() | kinds.SystemContent():
            yield TG + "query", node.text
        case kinds.DecisionContent(choice=choice, rationale=why, task_type=task):
            yield TG + "pattern", choice
            if task:
                yield TG + "taskType", task
            if why:
                yield TG + "reasoning", why
        case kinds.ToolCallContent(tool_name=tool, tool_args=args):
            yield TG + "action", tool
            yield TG + "arguments", json.dumps(args, ensure_ascii=False, default=str)
        case kinds.ToolResultContent():
            attempts = [each for each in _causes(state, entry) if each.kind is Kind.Attempt]
            if attempts:
                yield TG + "toolDurationMs", round((entry.at - attempts[-1].at).total_seconds() * 1000)
            if _failed(node, entry):
                yield TG + "toolError", node.text
        case kinds.PlanContent(steps=steps):
            for step in steps:
                yield TG + ("subagentGoal" if node.type == "Decomposition" else "planStep"), step.goal
        case kinds.ChatCompletionContent():
            yield from ((TG + "toolCandidate", name) for name in _offered(state, entry))
            yield from _spent(content)
    if node.type in ("Finding", "StepResult"):
        yield TG + ("subagentGoal" if node.type == "Finding" else "planStep"), _goal(entry, state)
    elif node.type == "Synthesis":
        found = any(type_ == "Finding" for type_ in state.origins[node.run].nodes.values())
        yield TG + "terminationReason", "subagents-complete" if found else "plan-complete"
    elif node.type == "Conclusion":
        reason = (content.reason if isinstance(content, kinds.EndContent) else None) or "answered"
        yield TG + "terminationReason", ENDINGS.get(reason, "error")
        for each in _causes(state, entry):
            if isinstance(each.content, kinds.ChatCompletionContent):
                yield from _spent(each.content)


def _label(node: Node, entry: Entry, state: State) -> str:
    """Name a node for people."""
    match entry.content:
        case kinds.DecisionContent(choice=choice):
            return f"Pattern: {choice}"
        case kinds.ToolCallContent(tool_name=tool):
            return f"Tool use: {tool}"
        case kinds.PlanContent(steps=steps) if node.type == "Decomposition":
            return f"Decomposed into {len(steps)} research threads"
        case kinds.PlanContent(steps=steps):
            return f"Plan with {len(steps)} steps"
    match node.type:
        case "Question":
            return "Agent Question"
        case "Analysis":
            followers = state.followers.get((node.run, node.seq), ())
            calls = (state.entries[key].content for key in followers)
            tools = [call.tool_name for call in calls if isinstance(call, kinds.ToolCallContent)]
            return f"Analysis: {', '.join(tools)}" if tools else "Analysis"
        case "Finding":
            return f"Finding: {_goal(entry, state)[:TITLE]}"
        case "StepResult":
            return f"Step result: {_goal(entry, state)[:TITLE]}"
        case "Retrieval":
            return "Exploration"
    return node.type if node.status is None or node.type in TYPES else f"{node.type}: {node.status}"


def _document(node: Node, name: str) -> str | None:
    """Name the document that holds what a node says; `None` where the vocabulary has words for it."""
    match node.type:
        case "Conclusion":
            return name.replace("/final", "/answer")
        case "Finding" | "StepResult" | "Synthesis":
            return f"{name}/doc"
        case "Analysis":
            return f"{name}/doc" if node.text.strip() else None
    return name if node.type in ("Thought", "Observation") or node.type not in TYPES else None


def _passages(node: Node, name: str, entry: Entry) -> Iterator[Quad]:
    """Yield the passages that a retrieval found."""
    assert isinstance(entry.content, kinds.RetrievalContent)
    yield _quad(name, TG + "query", literal(entry.content.query))
    yield _quad(name, TG + "chunkCount", literal(len(entry.content.hits)))
    for place, hit in enumerate(entry.content.hits):
        chosen = f"urn:trustgraph:prov:chunk:{quoted(node.id)}:{place}"
        yield _quad(name, TG + "selectedChunk", chosen)
        yield _quad(chosen, RDF_TYPE, TG + "ChunkSelection")
        yield _quad(chosen, TG + "document", document_iri(hit))
        if hit.score is not None:
            yield _quad(chosen, TG + "score", literal(float(hit.score)))


def _spent(completion: kinds.ChatCompletionContent) -> Iterator[tuple[str, Any]]:
    """Yield what a model call took; what is not known is left out."""
    if completion.latency_ms is not None:
        yield TG + "llmDurationMs", round(completion.latency_ms)
    if counted := tokens(completion.usage):
        yield TG + "inToken", counted.input
        yield TG + "outToken", counted.output
    if completion.model:
        yield TG + "llmModel", completion.model


def _offered(state: State, completion: Entry) -> Iterator[str]:
    """Yield the names of the tools that a model could use."""
    for request in _causes(state, completion):
        if isinstance(request.content, kinds.RequestContent):
            header = state.entries.get((request.run, request.content.header))
            tools = header.content.tools if header and isinstance(header.content, kinds.RequestHeaderContent) else None
            yield from (str(tool.get("name")) for tool in tools or ())


def _goal(entry: Entry, state: State) -> str:
    """Return what a span was to find or do: its goal, else what it handed over, else its name."""
    if isinstance(entry.content, kinds.EndContent) and entry.content.goal:
        return entry.content.goal
    inside = [each.content for key, each in state.entries.items() if key[0] == entry.run and each.span == entry.span]
    handed = next((each.payload for each in inside if isinstance(each, kinds.EdgeContent)), None)
    if isinstance(handed, Mapping) and isinstance(handed.get("goal"), str):
        return str(handed["goal"])
    if handed is not None:
        return observation_text(handed)
    return next((each.name for each in inside if isinstance(each, kinds.BeginContent)), "")


def _maker(state: State, entry: Entry) -> str:
    """Return the id of the analysis that a call or thought belongs to, or of the call or question that was answered."""
    if entry.kind in (Kind.ToolCall, Kind.Thought):
        made = (each.id for each in _causes(state, entry) if each.kind is Kind.ChatCompletion)
        return next(made, "")
    of = getattr(entry.content, "call", None) or getattr(entry.content, "of", None)
    return f"{entry.run}.{of}" if of else ""


def _failed(node: Node, entry: Entry) -> bool:
    """Return whether a tool or a turn went wrong."""
    return node.type in ("Observation", *PARTS) and getattr(entry.content, "status", None) == "error"


def _causes(state: State, entry: Entry) -> list[Entry]:
    """Return the entries of its run that an entry was made from."""
    links = state.links((entry.run, entry.seq))
    return [state.entries[key] for key in links if key[0] == entry.run and key in state.entries]


def _quad(subject: str, predicate: str, value: str | Term) -> Quad:
    value = Term("iri", value) if isinstance(value, str) else value
    return Quad(Term("iri", subject), Term("iri", predicate), value)
