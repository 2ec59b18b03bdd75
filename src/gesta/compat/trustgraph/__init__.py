"""TrustGraph: its patterns (agents that work step by step), its messages, and RDF triples that explain each step.

The modules have TrustGraph's paths after `gesta.compat`, so a program only adds that prefix to its imports:
`trustgraph.schema`, `trustgraph.provenance`, `trustgraph.agent.orchestrator.pattern_base` and so on.
"""

from gesta.compat.trustgraph.agent.orchestrator.pattern_base import PatternBase
from gesta.compat.trustgraph.agent.react.types import Action, Argument, Final, Tool
from gesta.compat.trustgraph.agent.tool_filter import (
    filter_tools_by_group_and_state,
    get_next_state,
    validate_tool_config,
)
from gesta.compat.trustgraph.context import UserAwareContext
from gesta.compat.trustgraph.pattern import Pattern
from gesta.compat.trustgraph.provenance import (
    GRAPH_RETRIEVAL,
    agent_decomposition_triples,
    agent_decomposition_uri,
    agent_final_triples,
    agent_final_uri,
    agent_finding_triples,
    agent_finding_uri,
    agent_iteration_triples,
    agent_iteration_uri,
    agent_observation_triples,
    agent_observation_uri,
    agent_plan_triples,
    agent_plan_uri,
    agent_session_triples,
    agent_session_uri,
    agent_step_result_triples,
    agent_step_result_uri,
    agent_synthesis_triples,
    agent_synthesis_uri,
    agent_thought_uri,
    set_graph,
)
from gesta.compat.trustgraph.schema import (
    AgentRequest,
    AgentResponse,
    AgentStep,
    Error,
    Metadata,
    PlanStep,
    Triple,
    Triples,
)

ORDER = ("requests", "schema", "wire", "provenance", "context", "agent", "pattern")
"""The modules in reading order: each imports only modules before it."""

__all__ = [
    "GRAPH_RETRIEVAL",
    "Action",
    "AgentRequest",
    "AgentResponse",
    "AgentStep",
    "Argument",
    "Error",
    "Final",
    "Metadata",
    "Pattern",
    "PatternBase",
    "PlanStep",
    "Tool",
    "Triple",
    "Triples",
    "UserAwareContext",
    "agent_decomposition_triples",
    "agent_decomposition_uri",
    "agent_final_triples",
    "agent_final_uri",
    "agent_finding_triples",
    "agent_finding_uri",
    "agent_iteration_triples",
    "agent_iteration_uri",
    "agent_observation_triples",
    "agent_observation_uri",
    "agent_plan_triples",
    "agent_plan_uri",
    "agent_session_triples",
    "agent_session_uri",
    "agent_step_result_triples",
    "agent_step_result_uri",
    "agent_synthesis_triples",
    "agent_synthesis_uri",
    "agent_thought_uri",
    "filter_tools_by_group_and_state",
    "get_next_state",
    "set_graph",
    "validate_tool_config",
]
