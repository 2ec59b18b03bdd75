"""TrustGraph's tests of what its orchestrator pattern shows: the base, its statements and the filter of tools.

FOLDER is a checkout of TrustGraph at commit 153ae9ad30, which the document is. Its tests of models, queues and
services, and of what is stored from documents, stand beside that.
"""

from typing import Any

from theirs import Kind

from gesta.compat.trustgraph import filter_tools_by_group_and_state
from gesta.compat.trustgraph.provenance import GRAPH_RETRIEVAL
from gesta.views.prov_names import LABEL, PROV, RDF_TYPE, TG

TYPES = "Question Analysis Conclusion Decomposition Finding Synthesis Grounding Exploration Focus"
TYPES_WITH_ENDING = "Plan Answer Reflection Thought Observation"
OTHERS = "query thought action arguments observation document concept entity edge reasoning"
SPELLED = {
    **{f"TG_{name.upper()}": TG + name for name in (*TYPES.split(), *OTHERS.split())},
    **{f"TG_{name.upper()}_TYPE": TG + name for name in TYPES_WITH_ENDING.split()},
    "TG_TOOL_USE": TG + "ToolUse",
    "TG_STEP_RESULT": TG + "StepResult",
    "TG_AGENT_QUESTION": TG + "AgentQuestion",
    "TG_SUBAGENT_GOAL": TG + "subagentGoal",
    "TG_PLAN_STEP": TG + "planStep",
    "PROV_ENTITY": PROV + "Entity",
    "PROV_WAS_DERIVED_FROM": PROV + "wasDerivedFrom",
    "PROV_STARTED_AT_TIME": PROV + "startedAtTime",
    "PROV_WAS_GENERATED_BY": PROV + "wasGeneratedBy",
    "PROV_ACTIVITY": PROV + "Activity",
    "RDF_TYPE": RDF_TYPE,
    "RDFS_LABEL": LABEL,
    "TG": TG,
    "PROV": PROV,
    "GRAPH_RETRIEVAL": GRAPH_RETRIEVAL,
    "TG_THOUGHT": TG + "thought",
    "TG_OBSERVATION": TG + "observation",
}
"""Words of the vocabulary, which stand in a module of their own there."""


def available(tool: Any, groups: list[str], state: str) -> bool:
    """Return whether a tool is left by the filter."""
    return bool(filter_tools_by_group_and_state({"tool": tool}, groups, state))


OURS = "gesta.compat.trustgraph"
NAMES = {"trustgraph": OURS} | {f"trustgraph.provenance.{each}": f"{OURS}.provenance" for each in ("agent", "uris")}
GIVEN = {
    "trustgraph.provenance.namespaces": SPELLED,
    "trustgraph.agent.tool_filter": {"_is_tool_available": available},
}
AGENT, PROVENANCE = "tests/unit/test_agent", "tests/unit/test_provenance"
FILES = [
    f"{AGENT}/test_pattern_base_subagent.py",
    f"{AGENT}/test_provenance_triples.py",
    f"{AGENT}/test_tool_filter.py",
    f"{AGENT}/test_agent_step_arguments.py",
    f"{PROVENANCE}/test_agent_provenance.py",
    f"{PROVENANCE}/test_uris.py",
]
OF_DOCUMENTS = (
    "plain_string string_with_spaces string_with_slashes integer_input empty_string special_characters "
    "document_uri_passthrough page_uri_format page_uri_unique chunk_uri_format chunk_uri_unique "
    "activity_uri_with_id activity_uri_auto_generates_uuid activity_uri_unique_uuids "
    "activity_uri_encodes_special_chars subgraph_uri_with_id subgraph_uri_auto_generates_uuid "
    "subgraph_uri_unique_uuids agent_uri_format agent_uri_encodes_special_chars "
    "question_uri_with_session_id question_uri_auto_generates question_uri_unique exploration_uri_format "
    "focus_uri_format synthesis_uri_format edge_selection_uri_format edge_selection_uri_zero_index "
    "session_uris_share_session_id docrag_question_uri_with_id docrag_question_uri_auto_generates "
    "docrag_question_uri_unique docrag_exploration_uri_format docrag_synthesis_uri_format "
    "docrag_uris_share_session_id graphrag_vs_agent_namespace graphrag_vs_docrag_namespace "
    "agent_vs_docrag_namespace extraction_vs_query_namespace"
)
KINDS = [
    Kind(
        "left out",
        "Names of documents, pages, graphs and of queries on them, which the document does not show",
        tuple(f"test_uris.py::test_{each}" for each in OF_DOCUMENTS.split()),
    ),
]


def pytest_configure(config: Any) -> None:
    """Make its marks known."""
    config.addinivalue_line("markers", "asyncio: runs in an event loop")
