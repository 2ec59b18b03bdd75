"""What a pattern sends to sub-agents: each request is a child run, and what these found comes back as one request.

TrustGraph counts what comes in by a queue, in memory. Here each sub-agent is a step of the turn, by its place: a crash,
a failing sub-agent and two equal goals lose nothing.
"""

from collections.abc import Mapping, Sequence

import anyio
import msgspec

from gesta.agent import Agent
from gesta.compat.trustgraph.requests import AgentRequest, HistoryStep, agent_for, by_goal, entitled
from gesta.entry import Cause
from gesta.workflow.verbs import Result, Verbs

Found = Sequence[tuple[str, Result]]
"""Goals, each with the result of its sub-agent."""


async def fan_out(
    verbs: Verbs, sent: Sequence[AgentRequest], workers: Mapping[str, Agent], first: int, cause: Cause
) -> Found:
    """Run a sub-agent for each request, all at once, and return the findings in the order of the requests.

    Args:
        first: place of the first request among the findings of the turn.
        cause: what the requests were made from.
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
    """Return the agent for a request: a copy of the pattern's agent, which may use no further groups of tools."""
    named = workers.get(request.pattern)
    program = named.program if named is not None else None
    like = msgspec.structs.replace(own, name=request.pattern or "react", instructions="", program=program, hint=None)
    made = agent_for(request, {}, like)
    return made if own.groups is None else entitled(made, "", {"": own.groups})


def synthesis_request(request: AgentRequest, found: Found) -> AgentRequest:
    """Return the request that asks a pattern to make an answer from the findings."""
    results = by_goal((goal, result.text) for goal, result in found)
    step = HistoryStep(
        thought="All sub-agents have ended.",
        action="aggregate",
        observation=msgspec.json.encode(results).decode(),
        step_type="synthesise",
        subagent_results=results,
    )
    return msgspec.structs.replace(request, state="", history=[*request.history, step])
