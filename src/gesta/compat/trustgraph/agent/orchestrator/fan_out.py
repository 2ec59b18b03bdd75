"""Sub-agents of a pattern: each request to a sub-agent is a child run, and one request holds all their findings.

TrustGraph counts the findings that arrive with a queue in memory. Here each sub-agent is a workflow step of the turn,
named by its place. So no finding is lost by a crash, by a sub-agent that fails, or by two equal goals.
"""

from collections.abc import Mapping, Sequence

import anyio
import msgspec

from gesta.agent import Agent
from gesta.compat.trustgraph.requests import AgentRequest, HistoryStep, agent_for, by_goal, entitled
from gesta.entry import Cause
from gesta.workflow.verbs import Result, Verbs

Found = Sequence[tuple[str, Result]]
"""Pairs of a goal and the result of the sub-agent that worked on it."""


async def fan_out(
    verbs: Verbs, sent: Sequence[AgentRequest], workers: Mapping[str, Agent], first: int, cause: Cause
) -> Found:
    """Run one sub-agent for each request, all at the same time, and return the findings in the order of the requests.

    Args:
        workers: agents by the name of the pattern in a request; see `worker`.
        first: place of the first request among all findings of the turn, from 0.
        cause: the entry that the requests were made from.
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
    """Return the agent for a request: a copy of the pattern's agent that runs the program of the named pattern.

    The copy may not use groups of tools that the pattern's agent may not use.
    """
    named = workers.get(request.pattern)
    program = named.program if named is not None else None
    like = msgspec.structs.replace(own, name=request.pattern or "react", instructions="", program=program, hint=None)
    made = agent_for(request, {}, like)
    return made if own.groups is None else entitled(made, "", {"": own.groups})


def synthesis_request(request: AgentRequest, found: Found) -> AgentRequest:
    """Return a request that asks a pattern for an answer made from all findings."""
    results = by_goal((goal, result.text) for goal, result in found)
    step = HistoryStep(
        thought="All sub-agents have ended.",
        action="aggregate",
        observation=msgspec.json.encode(results).decode(),
        step_type="synthesise",
        subagent_results=results,
    )
    return msgspec.structs.replace(request, state="", history=[*request.history, step])
