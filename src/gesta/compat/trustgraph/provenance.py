"""The RDF triples about an agent's steps that TrustGraph's patterns send, and the URIs of the entities in them.

An iteration is one step of an agent: a thought, an action and its observation (the result). A session here is the work
on one question, which may be divided into goals; a finding is the answer to one goal. A `document_id` is the
IRI of a document with the text of an entity. Patterns that were ported to Gesta send these triples.
`gesta.views.prov` exports a whole record with the same vocabulary.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from gesta.compat.trustgraph.schema import IRI, LITERAL, Term, Triple
from gesta.views.prov import TITLE
from gesta.views.prov_names import GRAPH, LABEL, PROV, RDF_TYPE, SESSION, TG

GRAPH_RETRIEVAL = GRAPH
ENTITY = PROV + "Entity"
DERIVED = PROV + "wasDerivedFrom"


def agent_session_uri(session_id: str | None = None) -> str:
    """Return the URI of a session. Without `session_id`, return the URI of a new session."""
    return SESSION + (str(uuid4()) if session_id is None else session_id)


def agent_iteration_uri(session_id: str, iteration_num: int) -> str:
    """Return the URI of an iteration. Iterations are counted from 1."""
    return f"{SESSION}{session_id}/i{iteration_num}"


def agent_thought_uri(session_id: str, iteration_num: int) -> str:
    """Return the URI of the thought of an iteration. Iterations are counted from 1."""
    return f"{SESSION}{session_id}/i{iteration_num}/thought"


def agent_observation_uri(session_id: str, iteration_num: int) -> str:
    """Return the URI of the observation of an iteration. Iterations are counted from 1."""
    return f"{SESSION}{session_id}/i{iteration_num}/observation"


def agent_final_uri(session_id: str) -> str:
    """Return the URI of the final answer of a session."""
    return f"{SESSION}{session_id}/final"


def agent_decomposition_uri(session_id: str) -> str:
    """Return the URI of a session's decomposition: the goals into which its question was divided."""
    return f"{SESSION}{session_id}/decompose"


def agent_finding_uri(session_id: str, index: int) -> str:
    """Return the URI of a finding, the result of one goal of the decomposition. Findings are counted from 0."""
    return f"{SESSION}{session_id}/finding/{index}"


def agent_plan_uri(session_id: str) -> str:
    """Return the URI of a session's plan."""
    return f"{SESSION}{session_id}/plan"


def agent_step_result_uri(session_id: str, index: int) -> str:
    """Return the URI of the result of one step of the plan. Steps are counted from 0."""
    return f"{SESSION}{session_id}/step/{index}"


def agent_synthesis_uri(session_id: str) -> str:
    """Return the URI of a session's synthesis: the answer made from all findings or step results."""
    return f"{SESSION}{session_id}/synthesis"


def agent_session_triples(session_uri: str, query: str, timestamp: str | None = None) -> list[Triple]:
    """Return the triples about a question, the first entity of a session.

    Args:
        timestamp: ISO 8601; the current time by default.
    """
    at = timestamp or datetime.now(UTC).isoformat().replace("+00:00", "Z")
    said = [(PROV + "startedAtTime", at), (TG + "query", query)]
    return _entity(session_uri, ("Question", "AgentQuestion"), "Agent Question", None, said)


def agent_iteration_triples(
    iteration_uri: str,
    question_uri: str | None = None,
    previous_uri: str | None = None,
    action: str = "",
    arguments: Mapping[str, Any] | None = None,
    thought_uri: str | None = None,
    thought_document_id: str | None = None,
) -> list[Triple]:
    """Return the triples about an iteration: its action, and the thought before the action.

    Args:
        question_uri: only for the first iteration: the question that it answers.
        previous_uri: only for a later iteration: the observation before it.
        thought_uri: the thought before the action; without it, no triples about a thought are returned.
    """
    said = [(TG + "action", action), (TG + "arguments", json.dumps(arguments or {}))]
    source = question_uri or previous_uri
    made = _entity(iteration_uri, ("Analysis", "ToolUse"), f"Analysis: {action}", source, said)
    if thought_uri:
        made.append(_named(iteration_uri, TG + "thought", thought_uri))
        thought = _entity(thought_uri, ("Reflection", "Thought"), "Thought", iteration_uri)
        made += thought[1:]  # TrustGraph does not type a thought as prov:Entity
        made += _document(thought_uri, thought_document_id)
    return made


def agent_observation_triples(observation_uri: str, iteration_uri: str, document_id: str | None = None) -> list[Triple]:
    """Return the triples about the observation that an iteration led to."""
    made = _entity(observation_uri, ("Observation",), "Observation", iteration_uri)
    return made + _document(observation_uri, document_id)


def agent_final_triples(
    final_uri: str, question_uri: str | None = None, previous_uri: str | None = None, document_id: str | None = None
) -> list[Triple]:
    """Return the triples about the final answer.

    Args:
        question_uri: only without iterations: the question that it answers.
        previous_uri: only after an iteration: the observation before the answer.
    """
    made = _entity(final_uri, ("Conclusion", "Answer"), "Conclusion", question_uri or previous_uri)
    return made + _document(final_uri, document_id)


def agent_decomposition_triples(uri: str, session_uri: str, goals: Iterable[str]) -> list[Triple]:
    """Return the triples about the goals into which a question was divided."""
    said = [(TG + "subagentGoal", goal) for goal in goals]
    return _entity(uri, ("Decomposition",), f"Decomposed into {len(said)} research threads", session_uri, said)


def agent_finding_triples(uri: str, decomposition_uri: str, goal: str, document_id: str | None = None) -> list[Triple]:
    """Return the triples about a finding, the result of one goal of the decomposition."""
    said = [(TG + "subagentGoal", goal)]
    made = _entity(uri, ("Finding", "Answer"), f"Finding: {goal[:TITLE]}", decomposition_uri, said)
    return made + _document(uri, document_id)


def agent_plan_triples(uri: str, session_uri: str, steps: Iterable[str]) -> list[Triple]:
    """Return the triples about a plan and its steps."""
    said = [(TG + "planStep", step) for step in steps]
    return _entity(uri, ("Plan",), f"Plan with {len(said)} steps", session_uri, said)


def agent_step_result_triples(uri: str, plan_uri: str, goal: str, document_id: str | None = None) -> list[Triple]:
    """Return the triples about the result of one step of a plan. `goal` is the text of the step."""
    said = [(TG + "planStep", goal)]
    made = _entity(uri, ("StepResult", "Answer"), f"Step result: {goal[:TITLE]}", plan_uri, said)
    return made + _document(uri, document_id)


def agent_synthesis_triples(
    uri: str, previous_uri: str | Iterable[str], document_id: str | None = None
) -> list[Triple]:
    """Return the triples about the answer made from all findings or step results.

    Args:
        previous_uri: one or more entities from which the answer derives.
    """
    sources = [previous_uri] if isinstance(previous_uri, str) else list(previous_uri)
    made = _entity(uri, ("Synthesis", "Answer"), "Synthesis", None)
    made += [_named(uri, DERIVED, source) for source in sources]
    return made + _document(uri, document_id)


def set_graph(triples: Iterable[Triple], graph: str) -> list[Triple]:
    """Return copies of the triples with `graph` as the name of their graph."""
    return [dataclasses.replace(each, g=graph) for each in triples]


def _entity(
    uri: str, types: Iterable[str], label: str, source: str | None, said: Iterable[tuple[str, str]] = ()
) -> list[Triple]:
    """Return the triples that every entity has.

    Args:
        types: names of the entity's classes in TrustGraph's vocabulary.
        source: URI of the other entity from which this one derives.
        said: pairs of a predicate and a literal value.
    """
    made = [_named(uri, RDF_TYPE, each) for each in (ENTITY, *(TG + each for each in types))]
    made += [_said(uri, predicate, value) for predicate, value in ((LABEL, label), *said)]
    return made + ([_named(uri, DERIVED, source)] if source else [])


def _document(uri: str, document_id: str | None) -> list[Triple]:
    return [_named(uri, TG + "document", document_id)] if document_id else []


def _named(subject: str, predicate: str, iri: str) -> Triple:
    return Triple(s=Term(IRI, subject), p=Term(IRI, predicate), o=Term(IRI, iri))


def _said(subject: str, predicate: str, value: str) -> Triple:
    return Triple(s=Term(IRI, subject), p=Term(IRI, predicate), o=Term(LITERAL, value=str(value)))
