"""Exports explanations as PROV-O quads, with the vocabulary and the names that TrustGraph's explain clients read.

A quad is one statement of an RDF graph. A completion is the entry with a model's reply, and a span is a named part of a
run. A node is an entry that the explanation shows; in the graph it is an entity. The text of a node is the
`prov:value` of its document in the same graph, so a client needs no second store. Numbers and times are typed literals.
A retrieval is a session of its own, as TrustGraph's document queries are: a question, its grounding and its
exploration. The sources of passages are in another graph.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gesta import kinds
from gesta.entry import Entry, utc_text
from gesta.errors import BrokenRecord
from gesta.kinds import Kind
from gesta.model.usage import tokens
from gesta.prompt import observation_text
from gesta.state.run import UNFIT
from gesta.views.lineage import Node, State
from gesta.views.prov_chain import Chain
from gesta.views.prov_names import (
    LABEL,
    PARTS,
    PROV,
    RDF_TYPE,
    SOURCES,
    TG,
    XSD,
    Quad,
    Term,
    causes_of,
    is_task_type,
    literal,
    maker_of,
    names_of,
    quad,
    quoted,
    way_to,
)

TYPES = {
    "Question": ("Question", "AgentQuestion"),
    "Thought": ("Reflection", "Thought"),
    "Retrieval": ("Exploration",),
    "ToolUse": ("Analysis", "ToolUse"),
    **{each: (each,) for each in ("PatternDecision", "Analysis", "Observation", "Decomposition", "Plan")},
    **{each: (each, "Answer") for each in ("Conclusion", "Finding", "StepResult", "Synthesis")},
}
"""Classes in TrustGraph's vocabulary for each type of node. Other nodes are plain entities."""
ENDINGS = {"answered": "final-answer", "limit": "max-iterations"}
"""Termination reasons in that vocabulary, by the reason of a turn. Every other reason is an error."""
TITLE = 60
"""Greatest number of characters of a goal in a label."""
DERIVED = PROV + "wasDerivedFrom"


def quads(nodes: Sequence[Node], state: State) -> Iterator[Quad]:
    """Yield the statements about nodes and their derivations, each statement once.

    Args:
        nodes: the nodes with their sources, as `views.across.all_nodes` returns them.
        state: the state that `all_nodes` returns with them.

    Raises:
        BrokenRecord: a content has a member of another type than its kind declares.
    """
    names = names_of(state)
    told = set[Quad]()
    for node in nodes:
        try:
            made = list(_of(node, names, state)) if node.id in names else []
        except UNFIT as error:
            raise BrokenRecord(f"entry {node.id}", f"a member is not of its type ({error!r})") from error
        for each in made:
            if each not in told:
                told.add(each)
                yield each
    yield from _derivations(nodes, names)


def _derivations(nodes: Sequence[Node], names: Mapping[str, str]) -> Iterator[Quad]:
    """Yield the statements that say from which sources each entity derives.

    Args:
        names: IRI of each node's entity, by node id.
    """
    types: dict[str, frozenset[str]] = {}
    sources: dict[str, list[str]] = {}
    for node in nodes:
        if node.id in names:
            name = names[node.id]
            types[name] = types.get(name, frozenset()) | {node.type}
            found = sources.setdefault(name, [])
            found += [names[each] for each in node.derived_from if names.get(each, name) != name]
    chain = Chain(types, sources)
    for name, source in chain.links():
        retrieved = "Retrieval" in types.get(name, ())
        yield quad(name.removesuffix("/exploration") if retrieved else name, DERIVED, source)
    for name, source in chain.further.items():
        yield from (quad(name, RDF_TYPE, PROV + "Entity"), quad(name, LABEL, literal(f"Further of {source}")))
    for name, source in chain.continued.items():
        yield from (quad(name, RDF_TYPE, each) for each in (PROV + "Entity", TG + "Analysis"))
        yield quad(name, LABEL, literal(f"Continued: {source}"))


def _of(node: Node, names: dict[str, str], state: State) -> Iterator[Quad]:
    """Yield the statements about one node.

    Args:
        names: IRI of each node's entity, by node id.
    """
    name, entry = names[node.id], state.entries[node.run, node.seq]
    types = [] if node.type == "Thought" else [PROV + "Entity"]
    own = TYPES.get(node.type, ()) if not is_task_type(state, (node.run, node.seq)) else ()
    for type_ in [*types, *(TG + each for each in own)]:
        yield quad(name, RDF_TYPE, type_)
    if node.type != "ToolUse" or names.get(maker_of(state, entry)) != name:  # else it has the analysis' label
        yield quad(name, LABEL, literal(_label(node, entry, state)))
    for predicate, value in _facts(node, entry, state):
        yield quad(name, predicate, literal(value) if not isinstance(value, Term) else value)
    if node.type == "Thought" and (analysis := names.get(maker_of(state, entry))):
        yield quad(analysis, TG + "thought", name)
    if node.type == "Question":
        yield quad(name, PROV + "startedAtTime", Term("literal", utc_text(entry.at), XSD + "dateTime"))
    elif node.type in ("Analysis", "ToolUse") and (number := name.rpartition("/i")[2]).isdecimal():
        yield quad(name, TG + "stepNumber", literal(int(number)))
    elif node.type == "Retrieval":
        yield from _passages(node, name, entry)
    document = _document(node, name)
    if document is not None:
        yield quad(name, TG + "document", document)
    if _failed(node, entry):
        yield quad(name, RDF_TYPE, TG + "Error")
    if document is not None:
        yield quad(document, PROV + "value", literal(node.text))


def _facts(node: Node, entry: Entry, state: State) -> Iterator[tuple[str, Any]]:
    """Yield the facts of a node, each as a predicate (IRI) of the vocabulary and a value."""
    content = entry.content
    match content:
        case kinds.UserContent() | kinds.SystemContent():
            yield TG + "query", node.text
        case kinds.DecisionContent(choice=choice, rationale=why, task_type=task):
            if not is_task_type(state, (node.run, node.seq)):
                yield TG + "pattern", choice
            if task:
                yield TG + "taskType", task
            if why:
                yield TG + "reasoning", why
        case kinds.ToolCallContent(tool_name=tool, tool_args=args):
            yield TG + "action", tool
            yield TG + "arguments", json.dumps(args, ensure_ascii=False, default=str)
        case kinds.ToolResultContent():
            attempts = [each for each in causes_of(state, entry) if each.kind is Kind.Attempt]
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
        for each in causes_of(state, entry):
            if isinstance(each.content, kinds.ChatCompletionContent):
                yield from _spent(each.content)


def _label(node: Node, entry: Entry, state: State) -> str:
    """Return the label of a node, which people read."""
    match entry.content:
        case kinds.DecisionContent(choice=choice):
            return f"{'Task type' if is_task_type(state, (node.run, node.seq)) else 'Pattern'}: {choice}"
        case kinds.ToolCallContent(tool_name=tool):
            return f"Analysis: {tool}"
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
    """Return the IRI of the document that holds a node's text; `None` if other predicates express all of the text.

    Args:
        name: IRI of the node's entity.
    """
    match node.type:
        case "Conclusion":
            return name.replace("/final", "/answer")
        case "Finding" | "StepResult" | "Synthesis":
            return f"{name}/doc"
        case "Analysis":
            return f"{name}/doc" if node.text.strip() else None
    return name if node.type in ("Thought", "Observation") or node.type not in TYPES else None


def _passages(node: Node, name: str, entry: Entry) -> Iterator[Quad]:
    """Yield statements about the passages that a retrieval found, and about their sources.

    Args:
        name: IRI of the node's entity.
        entry: the entry of the retrieval.
    """
    assert isinstance(entry.content, kinds.RetrievalContent)
    query, asked = literal(entry.content.query), name.removesuffix("/exploration")
    grounding = f"{asked}/grounding"
    for subject, types, label in (
        (asked, ("Question", "DocRagQuestion"), "DocRAG Question"),
        (grounding, ("Grounding",), "Grounding"),
    ):
        yield from (quad(subject, RDF_TYPE, each) for each in (PROV + "Entity", *(TG + each for each in types)))
        yield quad(subject, LABEL, literal(label))
    yield quad(asked, TG + "query", query)
    yield quad(asked, PROV + "startedAtTime", Term("literal", utc_text(entry.at), XSD + "dateTime"))
    yield from (quad(grounding, TG + "concept", query), quad(grounding, DERIVED, asked), quad(name, DERIVED, grounding))
    yield quad(name, TG + "query", query)
    yield quad(name, TG + "chunkCount", literal(len(entry.content.hits)))
    for place, hit in enumerate(entry.content.hits):
        way = way_to(hit)
        chosen = f"urn:trustgraph:prov:chunk:{quoted(node.id)}:{place}"
        yield quad(name, TG + "selectedChunk", chosen)
        yield quad(chosen, RDF_TYPE, TG + "ChunkSelection")
        yield quad(chosen, TG + "document", way[-1][1])
        if hit.score is not None:
            yield quad(chosen, TG + "score", literal(float(hit.score)))
        yield from _way(hit, way)


def _way(hit: kinds.Hit, way: Sequence[tuple[str, str]]) -> Iterator[Quad]:
    """Yield statements about the sources of a passage: it derives from a page, and the page from a document.

    Args:
        hit: the passage.
        way: class and IRI of document, page and passage, as `way_to` returns them.
    """
    labels = {"Document": hit.document, "Page": f"Page {hit.page}", "Chunk": str(hit.chunk)}
    for place, (type_, name) in enumerate(way):
        yield from (quad(name, RDF_TYPE, each, SOURCES) for each in (PROV + "Entity", TG + type_))
        yield quad(name, LABEL, literal(labels[type_]), SOURCES)
        if type_ == "Page":
            yield quad(name, TG + "pageNumber", literal(hit.page), SOURCES)
        if place:
            yield quad(name, DERIVED, way[place - 1][1], SOURCES)


def _spent(completion: kinds.ChatCompletionContent) -> Iterator[tuple[str, Any]]:
    """Yield the duration, the tokens and the model of a model call, if known, each as a predicate and a value."""
    if completion.latency_ms is not None:
        yield TG + "llmDurationMs", round(completion.latency_ms)
    if counted := tokens(completion.usage):
        yield TG + "inToken", counted.input
        yield TG + "outToken", counted.output
    if completion.model:
        yield TG + "llmModel", completion.model


def _offered(state: State, completion: Entry) -> Iterator[str]:
    """Yield the names of the tools that were offered to the model in the request that a completion answers."""
    for request in causes_of(state, completion):
        if isinstance(request.content, kinds.RequestContent):
            header = state.entries.get((request.run, request.content.header))
            tools = header.content.tools if header and isinstance(header.content, kinds.RequestHeaderContent) else None
            yield from (str(tool.get("name")) for tool in tools or ())


def _goal(entry: Entry, state: State) -> str:
    """Return the goal that the `end` entry of a span states.

    If it states none, return the task that the span passed to another agent, or else the span's name.
    """
    if isinstance(entry.content, kinds.EndContent) and entry.content.goal:
        return entry.content.goal
    inside = [each.content for key, each in state.entries.items() if key[0] == entry.run and each.span == entry.span]
    handed = next((each.payload for each in inside if isinstance(each, kinds.EdgeContent)), None)
    if isinstance(handed, Mapping) and isinstance(handed.get("goal"), str):
        return str(handed["goal"])
    if handed is not None:
        return observation_text(handed)
    return next((each.name for each in inside if isinstance(each, kinds.BeginContent)), "")


def _failed(node: Node, entry: Entry) -> bool:
    """Return whether the result of a tool, or the end of a span, has the status `error`."""
    return node.type in ("Observation", *PARTS) and getattr(entry.content, "status", None) == "error"
