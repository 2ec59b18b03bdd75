"""KodeAgent's loop: an agent plans, acts step by step, and is corrected by an observer, another model.

A run is a list of entries, the recorded work of an agent; a turn is its work on one message. Each iteration of the loop
is one turn of a child run, with one model request: the agent thinks and acts, then its plan is updated. A correction is
sent to the agent with the next iteration. An agent that repeats the same call is warned, then stopped. All state is
read from the record, so an interrupted task continues where it was. A task without an answer ends with a summary of the
findings.
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
"""How many characters of each message the observer and the author of the summary receive."""
NUDGES = (
    "You have made the same call {count} times in a row: {call}. Its result will not change. Try something else.",
    "STOP: {call} again, {count} times in a row. Answer with what you know, or act in another way.",
)
"""Warnings after `threshold` equal calls in a row, and after one more. Yet another equal call ends the task."""
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
"""The instructions of each role."""


def react_agent(
    name: str,
    model: Model | str,
    tools: Sequence[Tool] = (),
    *,
    max_iterations: int = 20,
    threshold: int | None = 3,
    prompts: Prompts | None = None,
) -> Agent:
    """Return an agent that plans, acts, is observed, and summarises its findings if it finds no answer.

    Args:
        max_iterations: largest number of requests for the task itself. Requests for plans, observations and the summary
            do not reduce this number.
        threshold: smallest number of iterations between two corrections, and the number of equal calls in a row after
            which the agent is warned; `None` turns both off.
        prompts: instructions that replace those in `PROMPTS`. An empty `plan` turns planning off.
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
                break  # the model failed, or has reached another limit
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
    """Asks the models that work on one task: worker, planner, observer, author of the summary. Stores no state.

    A parameter `n` is the number of the iteration; a parameter `history` contains the agent's messages so far. A
    parameter `seq` is the seq (entry number) of the agent's last reply, which is recorded as a cause of the request.
    """

    def __init__(self, verbs: Verbs, question: str, words: Prompts) -> None:
        self.verbs, self.question, self.words = verbs, question, words
        own = role(verbs, "work", words, verbs.agent.tools)
        limits = replace(own.policy.limits, requests=1)
        self.worker = replace(own, policy=replace(own.policy, limits=limits))
        self.thread = f"work-{verbs.question}"

    async def history(self, iterations: int) -> list[LLMMessage]:
        """Return the messages of the first `iterations` iterations, read from the record."""
        live = self.verbs.live
        entries = await read(live.log.journal.store, await live.host.child_run(self.thread, live))
        return ReActHistoryFormatter().history(first_turns(entries, iterations))

    async def plan(self) -> AgentPlan | None:
        """Ask for a plan, record it and return it; `None` if planning is off or the reply is not a readable plan."""
        if not self.words["plan"]:
            return None
        planner, given = role(self.verbs, "plan", self.words), {"task": self.question, "tools": offer(self.worker)}
        asked = await ask(self.verbs, planner, given, "plan", partial(take, type=AgentPlan))
        if asked.value is not None:
            steps = [Step(goal=step.description) for step in asked.value.steps]
            self.verbs.note("plan 0", PlanContent(role="plan", steps=steps), asked.causes)
        return asked.value

    async def update(self, n: int, plan: AgentPlan | None, history: Sequence[LLMMessage], seq: int) -> AgentPlan | None:
        """Ask for the updated plan, record it and return it. If the reply is unreadable, keep the old plan.

        Without a plan, nothing is asked, and `None` is returned.
        """
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
        """Ask the observer, record its decision, and return the correction for the agent; `None` if there is none.

        `plans` are the plans before and after the iteration.
        """
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
        """Ask a model to summarise the findings, and return the text of the summary."""
        given = {"task": self.question, "history": shown(history)}
        said = await self.verbs.call(role(self.verbs, "summary", self.words), given, "summary", role="synthesis")
        return f"No answer after {n} steps. {said.text}"


def first_turns(entries: Sequence[Entry], count: int) -> list[Entry]:
    """Return the entries of the first `count` turns of a run, and those before the first turn."""
    begun, found = 0, []
    for entry in entries:
        begun += isinstance(entry.content, BeginContent) and entry.content.role == "turn"
        if begun > count:
            break
        found.append(entry)
    return found


def repeats(history: Sequence[Mapping[str, Any]]) -> int:
    """Return how many times in a row the last call was made, with the same tool and arguments; 0 without calls."""
    calls = [call["function"] for message in history for call in message.get("tool_calls") or ()]
    count = 0
    while count < len(calls) and calls[-1 - count] == calls[-1]:
        count += 1
    return count


def shown(history: Sequence[Mapping[str, Any]]) -> str:
    """Return messages as text for another model: role, text and calls of each. Long texts are cut."""
    lines = []
    for message in history:
        text = text_of(message.get("content"))
        cut = f"{text[:SHOWN]}... [TRUNCATED]" if len(text) > SHOWN else text
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        made = "".join(f" {call['name']}({call['arguments']})" for call in calls)
        lines.append(f"[{message['role']}]: {cut}{made}")
    return "\n".join(lines)


def checklist(plan: AgentPlan) -> str:
    """Return a plan as a Markdown checklist in which the finished steps are ticked."""
    return "\n".join(f"- [{'x' if step.is_done else ' '}] {step.description}" for step in plan.steps)
