"""Sub-agents of a pattern: each one works on one request, and their findings go into one further request.

A request is a message that asks an agent to do a step, and a finding is the answer of a sub-agent. In TrustGraph, a
queue in memory counts the findings that arrive. Here each sub-agent is a child run, with entries of its own. A workflow
step starts the run; the step's name contains the number of the request. So a finding is not lost when the process
crashes, when another sub-agent fails, or when two sub-agents have the same goal.
"""

from collections.abc import Mapping, Sequence

import anyio
import msgspec

from gesta.agent import Agent
from gesta.compat.trustgraph.requests import AgentRequest, HistoryStep, agent_for, by_goal, entitled
from gesta.entry import Cause
from gesta.workflow.verbs import Result, Verbs

Found = Sequence[tuple[str, Result]]
"""Pairs of a goal and the result of the sub-agent that worked on the goal."""


async def fan_out(
    verbs: Verbs, sent: Sequence[AgentRequest], workers: Mapping[str, Agent], first: int, cause: Cause
) -> Found:
    """Run one sub-agent for each request, all at the same time. Return the findings in the order of the requests.

    Args:
        verbs: starts the workflow steps of the calling turn.
        workers: agents by the name of the pattern in a request; see `worker`.
        first: number of the turn's earlier requests to sub-agents; it makes the names of the workflow steps unique.
        cause: the entry from which the requests were made.
    """
    found: dict[int, Result] = {}

    async def pursue(place: int, request: AgentRequest) -> None:
        agent, name = worker(verbs.agent, request, workers), f"finding {first + place}"
        found[place] = await verbs.call(agent, request.question, name, role="finding", causes=[cause])

    async with anyio.create_task_group() as group:
        for place, request in enumerate(sent):
            group.start_soon(pursue, place, request)
    return [(each.subagent_goal or each.question, found[place]) for place, each in enumerate(sent)]


def worker(own: Agent, request: AgentRequest, workers: Mapping[str, Agent]) -> Agent:
    """Return the agent that works on a request to a sub-agent.

    It is a copy of `own`, the calling agent, but runs the pattern that the request names. The copy may not use more
    groups of tools than `own`.

    Args:
        workers: for each pattern, by its name, an agent that runs it.
    """
    named = workers.get(request.pattern)
    program = named.program if named is not None else None
    like = msgspec.structs.replace(own, name=request.pattern or "react", instructions="", program=program, hint=None)
    made = agent_for(request, {}, like)
    return made if own.groups is None else entitled(made, "", {"": own.groups})


def synthesis_request(request: AgentRequest, found: Found) -> AgentRequest:
    """Return a request for an answer that sums up all findings."""
    results = by_goal((goal, result.text) for goal, result in found)
    step = HistoryStep(
        thought="All sub-agents have ended.",
        action="aggregate",
        observation=msgspec.json.encode(results).decode(),
        step_type="synthesise",
        subagent_results=results,
    )
    return msgspec.structs.replace(request, state="", history=[*request.history, step])
