"""A supervisor divides a question into goals, runs a worker agent for each goal, and answers from their findings.

A child run is the recorded work of another agent that the supervisor calls. Each goal has its own child run, which is
found by the index of the goal in the list. So no goal is pursued twice after a restart, and two equal goals are kept
apart. If a worker fails, its finding is the error. If the question cannot be divided, the whole question is the only
goal.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
from msgspec import Struct

from gesta.agent import Agent
from gesta.function_tool.tool import Tool
from gesta.kinds import PlanContent, Step
from gesta.model.request import Model
from gesta.patterns.roles import BadAnswer, Prompts, ask, heir, offer, role, synthesise, take
from gesta.workflow.verbs import Result, Verbs


class Goals(Struct, frozen=True):
    """Goals as the model writes them in JSON."""

    goals: list[Any]


def supervisor(
    name: str,
    model: Model | str,
    tools: Sequence[Tool] = (),
    *,
    max_subagents: int = 5,
    worker: Agent[Any] | None = None,
    prompts: Prompts | None = None,
) -> Agent:
    """Return an agent that divides a question among worker agents and answers from their findings.

    Args:
        name: name of the agent.
        model: the model of the agent and of its helper agents.
        tools: the tools of the workers.
        max_subagents: greatest number of goals; further goals are dropped.
        worker: the agent that pursues a goal; by default an agent with `tools` and the prompt `research`.
        prompts: texts that replace the prompts `decompose`, `research` and `synthesise`.
    """

    async def program(verbs: Verbs, question: str) -> str:
        own = verbs.agent
        finder = heir(worker, own) if worker is not None else role(verbs, "research", prompts, own.tools)
        shown = {"question": question, "tools": offer(finder), "max_subagents": max_subagents}
        asked = await ask(
            verbs, role(verbs, "decompose", prompts), shown, "decompose", partial(read_goals, most=max_subagents)
        )
        content = PlanContent(role="decomposition", steps=[Step(goal=goal) for goal in asked.value or [question]])
        plan, entry = verbs.note("goals", content, asked.causes)
        found = await fan_out(verbs, finder, [step.goal for step in plan.steps], entry.seq)
        return await synthesise(verbs, question, found, prompts)

    return Agent(name, model=model, tools=tuple(tools), program=program)


async def fan_out(verbs: Verbs, worker: Agent[Any], goals: Sequence[str], plan: int) -> list[tuple[str, Result]]:
    """Run a worker for each goal, all at the same time. Return each goal with its result, in the order of the goals.

    Args:
        verbs: the methods of the running workflow.
        worker: the agent that pursues a goal.
        plan: seq (number in the run) of the entry that contains the goals.
    """
    found: dict[int, Result] = {}

    async def pursue(place: int, goal: str) -> None:
        found[place] = await verbs.call(worker, goal, f"finding {place}", role="finding", causes=[plan])

    async with anyio.create_task_group() as group:
        for place, goal in enumerate(goals):
            group.start_soon(pursue, place, goal)
    return [(goal, found[place]) for place, goal in enumerate(goals)]


def read_goals(text: str, *, most: int) -> list[str]:
    """Return the first `most` goals in a model's answer. Values that are not text are skipped.

    Raises:
        BadAnswer: the answer contains no list of goals, or no goal in it is a text.
    """
    try:
        value: Goals | list[Any] = take(text, Goals | list[Any])  # type: ignore[arg-type]
    except BadAnswer as wrong:
        raise BadAnswer(f'{wrong} Write one object {{"goals": ["...", ...]}}.') from wrong
    given = value.goals if isinstance(value, Goals) else value
    goals = [goal for goal in given if isinstance(goal, str) and goal.strip()]
    if given and not goals:
        raise BadAnswer("None of the goals is a text.")
    return goals[:most]
