"""KodeAgent's loop as a workflow: a plan is written as entries, an observer corrects the agent, loops are detected.

Each iteration is a turn of one child run, with one request: the agent thinks and acts, and then its plan is updated.
Corrections are sent to the agent with the next iteration. All state is read from entries, so a task that is interrupted
continues where it was. A task without an answer ends with a summary of the findings.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from gesta.agent import Agent, Unanswered
from gesta.compat.kodeagent.kutils import text_of
from gesta.compat.kodeagent.llm_message import LLMMessage
from gesta.compat.kodeagent.models import AgentPlan, ObserverResponse
from gesta.compat.kodeagent.react import ReActHistoryFormatter
from gesta.entry import Entry
from gesta.function_tool.tool import Tool
from gesta.kinds import BeginContent, KeyValueContent, PlanContent, Step, SystemContent
from gesta.log.journal import read
from gesta.model.request import Model
from gesta.patterns.roles import Prompts, ask, offer, role, take
from gesta.workflow.verbs import Verbs

SHOWN = 1000
"""How many characters of a message the observer and the author of the summary read."""
NUDGES = (
    "You have made the same call {count} times in a row: {call}. Its result will not change. Try something else.",
    "STOP: {call} again, {count} times in a row. Answer with what you know, or act in another way.",
)
"""Messages to an agent that repeats a call, for the first and the second time; the third time it is stopped."""
PROMPTS = {
    "work": "You solve a task step by step. Each time, think first, then call one tool, or give the final answer. You "
    "may be told how far the plan is, and what to do otherwise.",
    "plan": "You plan how a task is to be solved. You read one JSON object: the task and the tools. Answer with one "
    'JSON object and nothing else: {"steps": [{"description": "what is to be done", "is_done": false}]}. Take few '
    "steps, in order, each one thing, without names of tools.",
    "update": "You keep a plan up to date. You read one JSON object: the plan, the agent's last thought, and what it "
    "observed. Answer with the whole plan as one JSON object of the same form and nothing else. Set is_done to true "
    "only where the observation shows that the step is done; change or add steps where the way has changed.",
    "observe": "You watch an agent at work. You read one JSON object: its task, its tools, its plan before and after "
    "the last step, and its history. Answer with one JSON object and nothing else: "
    '{"is_progressing": true, "is_in_loop": false, "reasoning": "at most 20 words", "correction_message": null}. '
    "If it repeats itself or gets nowhere, say in correction_message what it shall do now, in the second person, with "
    "exact names of its tools.",
    "summary": "A task was not solved. You read one JSON object: the task and the agent's history. Write down what was "
    "done, what was found out, and what is left, in plain text, short, with names and numbers. No excuses.",
}
"""Prompts of the roles, by name."""


def react_agent(
    name: str,
    model: Model | str,
    tools: Sequence[Tool] = (),
    *,
    max_iterations: int = 20,
    threshold: int | None = 3,
    prompts: Prompts | None = None,
) -> Agent:
    """Make an agent that plans, acts, is observed, and summarises its findings if it has no answer.

    Args:
        max_iterations: requests that it may make, beside the requests for plans, observations and the summary.
        threshold: how many iterations lie between two corrections at least, and how many equal calls in a row count as
            a loop; `None` turns both off.
        prompts: texts that replace those in `PROMPTS`; an empty `plan` leaves the planner out.
    """

    async def program(verbs: Verbs, question: str) -> str:
        task = Task(verbs, question, {**PROMPTS, **(prompts or {})})
        plan, corrected = await task.plan(), 0
        n, history = 0, list[LLMMessage]()
        told: list[str] = [question]
        for n in range(1, max_iterations + 1):
            if plan is not None:
                told.append(f"Plan progress:\n{checklist(plan)}")
            content = SystemContent(value="\n\n".join(told) or "Go on.")
            said = await verbs.go_on(task.worker, content, f"iteration {n}", thread=task.thread, hear=verbs.aloud)
            if said.ok:
                return said.text
            history, told = await task.history(n), []
            if said.error is None or said.error.type != "requests":
                break  # the model failed, or may call no more
            before, plan = plan, await task.update(n, plan, history, said.seq)
            if threshold is None:
                continue
            count = repeats(history)
            if count >= threshold + len(NUDGES):
                break
            if count >= threshold:
                told.append(NUDGES[count - threshold].format(count=count, call=shown(history[-2:-1])))
            if 1 < n >= corrected + threshold:
                correction = await task.observe(n, (before, plan), history, said.seq)
                told, corrected = ([*told, f"Observation: {correction}"], n) if correction else (told, corrected)
        raise Unanswered(await task.summary(n, history))

    return Agent(name, model=model, tools=tuple(tools), program=program)


class Task:
    """Asks the roles of one task. It holds no state of the task."""

    def __init__(self, verbs: Verbs, question: str, words: Prompts) -> None:
        self.verbs, self.question, self.words = verbs, question, words
        own = role(verbs, "work", words, verbs.agent.tools)
        limits = replace(own.policy.limits, requests=1)
        self.worker = replace(own, policy=replace(own.policy, limits=limits))
        self.thread = f"work-{verbs.question}"

    async def history(self, iterations: int) -> list[LLMMessage]:
        """Return the messages of the first iterations, read from the record."""
        live = self.verbs.live
        entries = await read(live.log.journal.store, await live.host.child_run(self.thread, live))
        return ReActHistoryFormatter().history(first_turns(entries, iterations))

    async def plan(self) -> AgentPlan | None:
        """Ask for a plan, write it and return it; `None` if there is no planner, or no plan that can be read."""
        if not self.words["plan"]:
            return None
        planner, given = role(self.verbs, "plan", self.words), {"task": self.question, "tools": offer(self.worker)}
        asked = await ask(self.verbs, planner, given, "plan", partial(take, type=AgentPlan))
        if asked.value is not None:
            steps = [Step(goal=step.description) for step in asked.value.steps]
            self.verbs.note("plan 0", PlanContent(role="plan", steps=steps), asked.causes)
        return asked.value

    async def update(self, n: int, plan: AgentPlan | None, history: Sequence[LLMMessage], seq: int) -> AgentPlan | None:
        """Ask for the updated plan, write it and return it. If the answer cannot be read, the plan stays as it was."""
        if plan is None:
            return None
        told = max(place for place, message in enumerate(history) if message["role"] == "user")
        latest = history[told + 1 :]
        thought = "\n".join(filter(None, (message.get("_thought") for message in latest)))
        results = [message for message in latest if message["role"] == "tool"]
        given = {"plan": plan.model_dump(), "thought": thought, "observation": shown(results)}
        keeper = role(self.verbs, "update", self.words)
        asked = await ask(self.verbs, keeper, given, f"update {n}", partial(take, type=AgentPlan), [seq])
        made = asked.value or plan
        self.verbs.note(f"plan {n}", KeyValueContent(key="plan", value=made.model_dump()), asked.causes)
        return made

    async def observe(
        self, n: int, plans: Sequence[AgentPlan | None], history: Sequence[LLMMessage], seq: int
    ) -> str | None:
        """Ask the observer, write its decision, and return the correction for the agent; `None` if it needs none."""
        before, after = ("" if plan is None else checklist(plan) for plan in plans)
        tools, observer = offer(self.worker), role(self.verbs, "observe", self.words)
        given = {"task": self.question, "tools": tools, "plan_before": before, "plan_after": after}
        given["history"] = shown(history)
        asked = await ask(self.verbs, observer, given, f"observe {n}", partial(take, type=ObserverResponse), [seq])
        seen = asked.value
        if seen is None:
            return None
        good = seen.is_progressing and not seen.is_in_loop
        correction = seen.correction_message or seen.reasoning or "Act in another way."
        options, why = ["go on", "correct"], seen.reasoning if good else correction
        self.verbs.pick(f"course {n}", options, choice=options[not good], why=why, causes=asked.causes)
        names = "\n".join(sorted(tool["name"] for tool in tools))
        return None if good else f"{correction}\nYour tools: {names}" if names else correction

    async def summary(self, n: int, history: Sequence[LLMMessage]) -> str:
        """Ask a model to summarise the findings, and return its words."""
        given = {"task": self.question, "history": shown(history)}
        said = await self.verbs.call(role(self.verbs, "summary", self.words), given, "summary", role="synthesis")
        return f"No answer after {n} steps. {said.text}"


def first_turns(entries: Sequence[Entry], count: int) -> list[Entry]:
    """Return the entries of the first turns of a run."""
    begun, found = 0, []
    for entry in entries:
        begun += isinstance(entry.content, BeginContent) and entry.content.role == "turn"
        if begun > count:
            break
        found.append(entry)
    return found


def repeats(history: Sequence[Mapping[str, Any]]) -> int:
    """Return how often the last call was made in a row: the same tool with the same arguments."""
    calls = [call["function"] for message in history for call in message.get("tool_calls") or ()]
    count = 0
    while count < len(calls) and calls[-1 - count] == calls[-1]:
        count += 1
    return count


def shown(history: Sequence[Mapping[str, Any]]) -> str:
    """Return messages as text for another model: their roles, their texts (long texts are cut) and every call."""
    lines = []
    for message in history:
        text = text_of(message.get("content"))
        cut = f"{text[:SHOWN]}... [TRUNCATED]" if len(text) > SHOWN else text
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        made = "".join(f" {call['name']}({call['arguments']})" for call in calls)
        lines.append(f"[{message['role']}]: {cut}{made}")
    return "\n".join(lines)


def checklist(plan: AgentPlan) -> str:
    """Return a plan as a list in Markdown, in which the finished steps are ticked."""
    return "\n".join(f"- [{'x' if step.is_done else ' '}] {step.description}" for step in plan.steps)
