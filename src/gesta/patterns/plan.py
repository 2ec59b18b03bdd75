"""Plans, then executes: a planner writes steps, a child run carries out each one, and an answer is made of the results.

A child run is the recorded work of another agent that the planning agent calls. A step begins as soon as the steps that
it depends on have ended, so independent steps run at the same time. If a step fails, later steps read its error as its
result. A bad plan goes back to the planner with the problem. If the last try is bad too, the plan is made usable: it is
cut, or run step after step, or replaced by one step: the question itself.
"""

from collections.abc import Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

import anyio
from msgspec import Struct

from gesta.agent import Agent
from gesta.function_tool.tool import Tool
from gesta.kinds import PlanContent, Step
from gesta.model.request import Model
from gesta.patterns.roles import BadAnswer, Prompts, ask, heir, offer, role, synthesise, take
from gesta.workflow.verbs import Result, Verbs


class Planned(Struct, frozen=True):
    """A plan as the model writes it in JSON: a list of steps."""

    steps: list[Step]


def plan_then_execute(
    name: str,
    model: Model | str,
    tools: Sequence[Tool] = (),
    *,
    max_steps: int = 10,
    executor: Agent[Any] | None = None,
    prompts: Prompts | None = None,
) -> Agent:
    """Return an agent that writes a plan first, then carries out its steps, and answers from the results.

    Args:
        name: name of the agent.
        model: the model of the agent and of its helper agents.
        tools: the tools of the executor.
        max_steps: greatest number of steps; a longer plan goes back to the planner, and is cut after the last try.
        executor: the agent that carries out a step; by default an agent with `tools` and the prompt `execute`.
        prompts: texts that replace the prompts `plan`, `execute` and `synthesise`.
    """

    async def program(verbs: Verbs, question: str) -> str:
        own = verbs.agent
        worker = heir(executor, own) if executor is not None else role(verbs, "execute", prompts, own.tools)
        shown = {"question": question, "tools": offer(worker), "max_steps": max_steps}
        asked = await ask(verbs, role(verbs, "plan", prompts), shown, "plan", partial(read_plan, most=max_steps))
        content = PlanContent(role="plan", steps=asked.value or [Step(goal=question)])
        plan, entry = verbs.note("steps", content, asked.causes)
        results = await carry_out(verbs, worker, plan.steps, entry.seq)
        found = [(step.goal, result) for step, result in zip(plan.steps, results, strict=True)]
        return await synthesise(verbs, question, found, prompts)

    return Agent(name, model=model, tools=tuple(tools), program=program)


async def carry_out(verbs: Verbs, worker: Agent[Any], steps: Sequence[Step], plan: int) -> list[Result]:
    """Run each step as soon as the steps that it depends on have ended. Return the results in the order of the steps.

    Args:
        verbs: the methods of the running workflow.
        worker: the agent that carries out a step.
        steps: the steps of the plan. Their dependencies must not form a circle.
        plan: seq (number in the run) of the entry that contains the plan.
    """
    results: dict[int, Result] = {}
    done = [anyio.Event() for _ in steps]

    async def take_step(place: int, step: Step) -> None:
        needed = step.depends_on or []
        for other in needed:
            await done[other].wait()
        used = [results[other] for other in needed]
        causes = [plan, *(each.seq for each in used)]
        task = _task(step, [(steps[other].goal, results[other]) for other in needed])
        results[place] = await verbs.call(worker, task, f"step {place}", role="step", causes=causes)
        done[place].set()

    async with anyio.create_task_group() as group:
        for place, step in enumerate(steps):
            group.start_soon(take_step, place, step)
    return [results[place] for place in range(len(steps))]


def _task(step: Step, used: Sequence[tuple[str, Result]]) -> dict[str, Any]:
    """Return the input for the agent of a step: goal, tool hint, and the results that the step depends on."""
    task: dict[str, Any] = {"goal": step.goal}
    if step.tool_hint:
        task["tool_hint"] = step.tool_hint
    if used:
        task["results"] = [{"goal": goal, "result": each.text, "ok": each.ok} for goal, each in used]
    return task


def read_plan(text: str, *, most: int) -> list[Step]:
    """Return the steps in a model's answer. Empty steps are skipped.

    Raises:
        BadAnswer: there are no steps, more than `most` steps, or dependencies that cannot be followed.
    """
    try:
        given: Planned | list[Step] = take(text, Planned | list[Step])  # type: ignore[arg-type]
    except BadAnswer as wrong:
        raise BadAnswer(f'{wrong} Write one object {{"steps": [{{"goal": "..."}}, ...]}}.') from wrong
    written = given.steps if isinstance(given, Planned) else given
    steps = _kept(written, [place for place, step in enumerate(written) if step.goal.strip()])
    if not steps:
        raise BadAnswer("The plan has no step. Write at least one.")
    problem = _wrong(written)
    if problem is not None:
        raise BadAnswer(problem, in_order(steps[:most]))
    if len(steps) > most:
        raise BadAnswer(f"The plan has {len(steps)} steps; it may have {most} at most.", _kept(steps, range(most)))
    return steps


def _wrong(steps: Sequence[Step]) -> str | None:
    """Return why the dependencies of a plan cannot be followed, such as a circle; `None` if they can."""
    for place, step in enumerate(steps):
        for other in step.depends_on or ():
            if not 0 <= other < len(steps):
                return f"Step {place} depends on {other}; there are steps 0 to {len(steps) - 1}."
    try:
        TopologicalSorter({place: step.depends_on or () for place, step in enumerate(steps)}).prepare()
    except CycleError as wrong:
        return f"Steps depend on each other in a circle: {' on '.join(map(str, reversed(wrong.args[1])))}."
    return None


def in_order(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with new dependencies, so that each step depends on the step before it."""
    return [
        Step(goal=step.goal, tool_hint=step.tool_hint, depends_on=[n - 1] if n else None)
        for n, step in enumerate(steps)
    ]


def _kept(steps: Sequence[Step], places: Sequence[int]) -> list[Step]:
    """Return the steps at some places, numbered anew. They depend on none of the steps that are left out."""
    numbers = {old: new for new, old in enumerate(places)}
    kept = [steps[place] for place in places]
    needs = [[numbers[n] for n in step.depends_on or () if n in numbers] or None for step in kept]
    return [
        Step(goal=step.goal, tool_hint=step.tool_hint, depends_on=need) for step, need in zip(kept, needs, strict=True)
    ]
