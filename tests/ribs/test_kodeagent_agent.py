"""KodeAgent's loop over the record: plan, observer, loops, and the summary of a task without an answer."""

import json
from contextlib import suppress
from typing import Any

import pytest

import gesta
from gesta.address import open_record
from gesta.compat.kodeagent.models import AgentPlan, PlanStep
from gesta.compat.kodeagent.react_agent import checklist, first_turns, react_agent, repeats, shown
from gesta.entry import Entry
from gesta.kinds import DecisionContent, KeyValueContent, PlanContent
from gesta.record.record import Record


@gesta.tool(effect="pure")
def look(place: str) -> str:
    """Look at the weather of a place."""
    return f"{place}: dry"


def plan(*done: bool) -> str:
    return json.dumps({"steps": [{"description": f"step {n}", "is_done": each} for n, each in enumerate(done)]})


def observed(progressing: bool, correction: str | None = None) -> str:
    return json.dumps(
        {
            "is_progressing": progressing,
            "is_in_loop": not progressing,
            "reasoning": "as seen",
            "correction_message": correction,
        }
    )


class Roles:
    """A model that answers each role out of its own list; the last answer goes on for ever."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, list[Any]]] = []

    def __call__(self, messages: Any, header: Any) -> Any:
        name = header.meta["prompt"]["name"]
        self.asked.append((name, list(messages)))
        answers = self.answers[name]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def count(self, name: str) -> int:
        return sum(each == name for each, _ in self.asked)


async def run(roles: Roles, record: Record, **options: Any) -> tuple[Any, list[Entry]]:
    agent = react_agent("guide", gesta.function(roles), [look], **options)
    outcome = await record.run(agent, "Is it dry?", session="s")
    return outcome, await record.read((await record.find("s")).run)


async def test_who_listens_hears_of_results_and_of_the_answer_once_and_of_no_error_where_there_is_none() -> None:
    looks = ["I look.", gesta.call("look", place="Rome")], gesta.call("look", place="Oslo")
    roles = Roles(plan=[plan(False)], update=[plan(True)], work=[*looks, "Both are dry."])
    events: list[gesta.Event] = []
    async with open_record(":memory:") as record:
        agent = react_agent("guide", gesta.function(roles), [look])
        outcome = await record.run(agent, "Is it dry?", listener=events.append)
    assert (outcome.answer, [each.content for each in events if each.type == "error"]) == ("Both are dry.", [])
    assert [each.content for each in events if each.type == "observation"] == ["Rome: dry", "Oslo: dry"]
    own = [each for each in events if each.run == outcome.run]
    last = max(place for place, each in enumerate(own) if each.type == "retract")  # its first words were a thought
    assert "".join(each.content for each in own[last:] if each.type == "answer") == "Both are dry."
    assert events[-2].end_of_dialog
    assert events[-1].type == "end"


async def test_who_listens_hears_once_why_there_is_no_answer() -> None:
    roles = Roles(plan=[plan(False)], update=[plan(False)], work=[gesta.call("look", place="Rome")], summary=["Dry?"])
    events: list[gesta.Event] = []
    async with open_record(":memory:") as record:
        agent = react_agent("guide", gesta.function(roles), [look], max_iterations=2, threshold=None)
        await record.run(agent, "Is it dry?", listener=events.append)
    assert [each.content for each in events if each.type == "error"] == ["No answer after 2 steps. Dry?"]


async def test_a_plan_is_kept_as_entries_and_told_to_the_agent() -> None:
    roles = Roles(
        plan=[plan(False, False)],
        update=[plan(True, False), plan(True, True)],
        work=[["I look.", gesta.call("look", place="Rome")], gesta.call("look", place="Oslo"), "Both are dry."],
    )
    async with open_record(":memory:") as record:
        outcome, entries = await run(roles, record)
    assert (outcome.reason, outcome.answer) == ("answered", "Both are dry.")
    [made] = [entry.content for entry in entries if isinstance(entry.content, PlanContent)]
    assert [step.goal for step in made.steps] == ["step 0", "step 1"]
    kept = [entry.content.value for entry in entries if isinstance(entry.content, KeyValueContent)]
    assert [[step["is_done"] for step in each["steps"]] for each in kept] == [[True, False], [True, True]]
    told = [messages[-1]["content"] for name, messages in roles.asked if name == "work"]
    assert told == [
        "Is it dry?\n\nPlan progress:\n- [ ] step 0\n- [ ] step 1",
        "Plan progress:\n- [x] step 0\n- [ ] step 1",
        "Plan progress:\n- [x] step 0\n- [x] step 1",
    ]
    given = json.loads(next(messages for name, messages in roles.asked if name == "update")[-1]["content"])
    assert given["thought"] == "I look."
    assert given["observation"] == "[tool]: Rome: dry"


async def test_the_observer_corrects_and_its_decisions_are_on_record() -> None:
    roles = Roles(
        plan=["no plan"],
        observe=[observed(progressing=False, correction="Look at Oslo."), observed(progressing=True)],
        work=[*[gesta.call("look", place=f"Rome {n}") for n in range(6)], "dry"],
    )
    async with open_record(":memory:") as record:
        outcome, entries = await run(roles, record)
    assert outcome.answer == "dry"
    decisions = [entry.content for entry in entries if isinstance(entry.content, DecisionContent)]
    assert [(each.choice, each.rationale) for each in decisions] == [("correct", "Look at Oslo."), ("go on", "as seen")]
    told = [messages[-1]["content"] for name, messages in roles.asked if name == "work"]
    assert told[3] == "Observation: Look at Oslo.\nYour tools: look"
    assert told[4] == "Go on."
    history = json.loads(next(messages for name, messages in roles.asked if name == "observe")[-1]["content"])[
        "history"
    ]
    assert '[assistant]:  look({"place": "Rome 0"})\n[tool]: Rome 0: dry' in history


async def test_equal_calls_in_a_row_are_named_twice_and_then_end_the_task_with_a_summary() -> None:
    roles = Roles(plan=["-"], work=[gesta.call("look", place="Rome")], observe=["-"], summary=["Rome is dry."])
    async with open_record(":memory:") as record:
        outcome, _ = await run(roles, record, prompts={"plan": ""})
    assert outcome.reason == "failed"
    assert outcome.error.message == "No answer after 5 steps. Rome is dry."
    told = [messages[-1]["content"] for name, messages in roles.asked if name == "work"]
    assert [("3 times" in each, "STOP" in each) for each in told] == [(False, False)] * 3 + [
        (True, False),
        (False, True),
    ]
    assert 'look({"place": "Rome"})' in told[3]


async def test_a_task_without_an_answer_ends_with_what_was_found_out() -> None:
    roles = Roles(
        work=[gesta.call("look", place=f"Rome {n}") for n in range(4)],
        summary=["Four places are dry."],
    )
    async with open_record(":memory:") as record:
        outcome, _ = await run(roles, record, max_iterations=2, threshold=None, prompts={"plan": ""})
    assert (outcome.reason, outcome.error.message) == ("failed", "No answer after 2 steps. Four places are dry.")
    [given] = [json.loads(messages[-1]["content"]) for name, messages in roles.asked if name == "summary"]
    assert given["task"] == "Is it dry?"
    assert "Rome 1: dry" in given["history"]


async def test_a_task_that_is_broken_off_goes_on_where_it_was() -> None:
    roles = Roles(
        plan=[plan(False)],
        update=[plan(False), plan(True)],
        work=[gesta.call("look", place="Rome"), gesta.call("look", place="Oslo"), "Both are dry."],
    )
    stop: list[type[BaseException]] = [KeyboardInterrupt]

    def model(messages: Any, header: Any) -> Any:
        said = roles(messages, header)
        if roles.count("work") == 2 and stop:
            raise stop.pop()
        return said

    async with open_record(":memory:") as record:
        agent = react_agent("guide", gesta.function(model), [look])
        with suppress(KeyboardInterrupt):
            await record.run(agent, "Is it dry?", session="s")
        roles.answers["work"].insert(0, gesta.call("look", place="Oslo"))
        outcome = await record.resume((await record.find("s")).run, agent)
    assert outcome.answer == "Both are dry."
    assert (roles.count("plan"), roles.count("update"), roles.count("work")) == (1, 2, 4)


async def test_all_results_of_an_iteration_are_what_the_planner_is_told() -> None:
    both = ["I look at both.", gesta.call("look", place="Rome"), gesta.call("look", place="Oslo")]
    roles = Roles(plan=[plan(False)], update=["no plan", "nor this", plan(True)], work=[both, "Both are dry."])
    async with open_record(":memory:") as record:
        outcome, _ = await run(roles, record)
    given = json.loads(next(messages for name, messages in roles.asked if name == "update")[-1]["content"])
    assert (given["thought"], given["observation"]) == ("I look at both.", "[tool]: Rome: dry\n[tool]: Oslo: dry")
    assert (outcome.answer, roles.count("update")) == ("Both are dry.", 3)


async def test_a_task_that_may_take_no_step_ends_with_a_summary() -> None:
    roles = Roles(summary=["Nothing yet."])
    async with open_record(":memory:") as record:
        outcome, _ = await run(roles, record, max_iterations=0, prompts={"plan": ""})
    assert (outcome.reason, outcome.error.message) == ("failed", "No answer after 0 steps. Nothing yet.")


async def test_the_next_message_of_a_session_is_a_task_of_its_own() -> None:
    roles = Roles(work=[gesta.call("look", place="Rome"), "first", gesta.call("look", place="Oslo"), "second"])
    agent = react_agent("guide", gesta.function(roles), [look], prompts={"plan": ""})
    async with open_record(":memory:") as record:
        answers = [(await record.run(agent, text, session="s")).answer for text in ("one", "two")]
    assert answers == ["first", "second"]
    assert [messages[-1]["content"] for _, messages in roles.asked] == ["one", "Go on.", "two", "Go on."]


@pytest.mark.parametrize("place", range(6))
async def test_wherever_a_task_is_broken_off_it_ends_as_it_would_have(place: int) -> None:
    looked: list[str] = []

    @gesta.tool(effect="once")
    def visit(place: str) -> str:
        """Visit a place."""
        looked.append(place)
        return f"{place}: dry"

    def model(messages: Any, header: Any) -> Any:
        asked.append(header.meta["prompt"]["name"])
        if len(asked) == place + 1:
            raise KeyboardInterrupt
        done = sum(message["role"] == "tool" for message in messages)
        work = [gesta.call("visit", place="Rome"), gesta.call("visit", place="Oslo"), "Both are dry."]
        return {"plan": plan(False, False), "update": plan(True, False), "work": work[min(done, 2)]}[asked[-1]]

    asked: list[str] = []
    agent = react_agent("guide", gesta.function(model), [visit])
    async with open_record(":memory:") as record:
        with suppress(KeyboardInterrupt):
            await record.run(agent, "Are they dry?", session="s")
        outcome = await record.resume((await record.find("s")).run, agent)
    assert (outcome.answer, looked) == ("Both are dry.", ["Rome", "Oslo"])
    again = asked.pop(place)
    assert asked == ["plan", "work", "update", "work", "update", "work"]
    assert again == asked[place]


def test_histories_are_counted_cut_and_listed() -> None:
    call = {"function": {"name": "look", "arguments": "{}"}}
    other = {"function": {"name": "look", "arguments": '{"x": 1}'}}
    assert repeats([]) == 0
    assert (
        repeats([{"role": "assistant", "tool_calls": [other, call]}, {"role": "assistant", "tool_calls": [call]}]) == 2
    )
    assert shown([{"role": "tool", "content": "x" * 1001}]) == f"[tool]: {'x' * 1000}... [TRUNCATED]"
    assert checklist(AgentPlan(steps=[PlanStep(description="a", is_done=True)])) == "- [x] a"
    assert first_turns([], 1) == []
