"""A tool may ask a person in the middle: its turn waits, and its call is made again with the answer."""

from pathlib import Path
from typing import Any

import pytest

import gesta
from gesta.compare.forks import Fork, fork
from gesta.errors import BadTool
from gesta.function_tool.context import NeedsAnswer, ToolQuestion
from gesta.function_tool.tool import Effect
from gesta.kinds import AttemptContent, FaultContent, QuestionContent, ToolResultContent

NO_QUESTIONS: Any = [{"size": ToolQuestion(7)}, {"size": ToolQuestion("Which size?", int)}]  # type: ignore[arg-type]


def waiter(effect: Effect, seen: list[Any]) -> gesta.Tool:
    @gesta.tool(effect=effect)
    async def order(dish: str, context: gesta.Context) -> str:
        """Order a dish."""
        seen.append((context.key, dict(context.answers), context.state))
        if "size" not in context.answers:
            raise NeedsAnswer({"size": ToolQuestion(f"Which size of {dish}?", {"type": "string"})}, {"round": 1})
        return f"{dish}, {context.answers['size']}"

    return order


def agent_of(tool: gesta.Tool) -> gesta.Agent:
    return gesta.Agent("waiter", model=gesta.scripted(gesta.call("order", dish="soup"), "Done."), tools=[tool])


@pytest.mark.parametrize("effect", ["pure", "idempotent", "once"])
async def test_a_call_that_asks_waits_and_goes_on_with_the_answer(effect: Effect, tmp_path: Path) -> None:
    seen = list[Any]()
    agent = agent_of(waiter(effect, seen))
    async with gesta.open(tmp_path / "r.gesta") as record:
        outcome = await record.run(agent, "A soup.", session="s")
        assert outcome.reason == "waiting"
        (waiting,) = outcome.waiting
        assert (waiting.what, waiting.tool, waiting.question) == ("question", "order", "Which size of soup?")
        assert [each.what for each in await record.waiting(outcome.run)] == ["question"]
    async with gesta.open(tmp_path / "r.gesta") as record:  # another process
        again = await record.resume("s", agent)
        assert again.reason == "waiting"
        await record.answer(again.waiting[0], "large", by="Ada")
        ended = await record.resume("s", agent)
        entries = await record.read(ended.run)
    assert ended.answer == "Done."
    assert [(answers, state) for _, answers, state in seen] == [({}, None), ({"size": "large"}, {"round": 1})]
    assert len({key for key, _, _ in seen}) == 1
    results = [each.content.tool_result for each in entries if isinstance(each.content, ToolResultContent)]
    assert results == ["soup, large"]
    first, second = [each for each in entries if isinstance(each.content, AttemptContent)]
    asked = [each.content for each in entries if isinstance(each.content, QuestionContent)]
    assert [(each.attempt, each.part) for each in asked] == [(first.seq, "size")]
    answer = next(each for each in entries if each.kind == "answer")
    assert answer.seq in second.causes
    assert [each.content.state for each in entries if isinstance(each.content, FaultContent)] == [{"round": 1}]


async def test_a_turn_that_is_cancelled_while_its_tool_asks_ends() -> None:
    seen = list[Any]()
    async with gesta.open() as record:
        outcome = await record.run(agent_of(waiter("once", seen)), "A soup.", session="s")
        ended = await record.cancel(outcome.run, by="Ada")
        assert ended is not None
        assert ended.reason == "cancelled"
        assert await record.waiting(outcome.run) == []
    assert len(seen) == 1


def shop(effect: Effect, seen: list[Any], lost: list[BaseException]) -> gesta.Agent:
    """A shop that charges, asks, and ships; the line goes dead as often as `lost` says."""

    def settled(_key: str) -> gesta.NotDone:
        return gesta.NotDone()

    @gesta.tool(effect=effect, reconcile=settled if effect == "once" else None)
    async def order(dish: str, context: gesta.Context) -> str:
        """Order a dish."""
        seen.append((context.state, sorted(context.answers), context.resumed))
        if "size" not in context.answers or "sauce" not in context.answers:
            questions = {"size": ToolQuestion("Which size?"), "sauce": ToolQuestion("Which sauce?")}
            raise NeedsAnswer(questions, {"charged": 1})
        if lost:
            raise lost.pop()
        return dish

    return agent_of(order)


async def answered(record: Any, agent: gesta.Agent, run: str) -> gesta.Outcome:
    for each in await record.waiting(run):
        await record.answer(each, "large", by="Ada")
    return await record.resume(run, agent)


@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_an_attempt_after_a_lost_one_still_gets_the_state_that_says_what_has_happened(effect: Effect) -> None:
    seen = list[Any]()
    agent = shop(effect, seen, [gesta.InDoubt("the line went dead"), gesta.InDoubt("again")])
    async with gesta.open() as record:
        outcome = await record.run(agent, "A soup.")
        assert (await answered(record, agent, outcome.run)).answer == "Done."
    state = ({"charged": 1}, ["sauce", "size"])
    assert seen == [(None, [], False), (*state, True), (*state, False), (*state, False)][: len(seen)]
    assert len(seen) == 4 - (effect == "once")


async def test_a_call_that_asked_begins_anew_in_a_fork_without_half_of_its_answers() -> None:
    seen = list[Any]()
    agent = shop("once", seen, [])
    async with gesta.open() as record:
        outcome = await record.run(agent, "A soup.")
        await record.answer(outcome.waiting[0], "large", by="Ada")
        await record.resume(outcome.run, agent)
        made = await fork(record, await record.find(outcome.run), Fork(at=(await record.state(outcome.run)).head))
        (doubt,) = (await record.resume(made.run, agent)).waiting
        await record.resolve(doubt, "retry", by="Ada")
        again = await record.resume(made.run, agent)
        if again.waiting[0].what == "approval":
            await record.approve(again.waiting[0], by="Ada")
            again = await record.resume(made.run, agent)
        assert [each.what for each in again.waiting] == ["question", "question"]
        assert (await answered(record, agent, made.run)).answer == "Done."
    assert [(state, answers) for state, answers, _ in seen] == [
        (None, []),
        (None, []),
        ({"charged": 1}, ["sauce", "size"]),
    ]


@pytest.mark.parametrize(
    "questions", [{}, {"size": "Which size?"}, None, {1: ToolQuestion("Which size?")}, *NO_QUESTIONS]
)
@pytest.mark.parametrize("state", [None, {"charged": 1}])
async def test_questions_that_cannot_be_asked_are_refused_and_what_may_have_happened_is_a_doubt(
    questions: Any, state: Any
) -> None:
    tries = []

    @gesta.tool(effect="once")
    async def order(dish: str) -> str:
        """Order a dish."""
        tries.append(dish)
        raise NeedsAnswer(questions, state)

    async with gesta.open() as record:
        outcome = await record.run(agent_of(order), "A soup.")
        entries = await record.read(outcome.run)
    assert tries == ["soup"]
    if state is None:
        (result,) = [each.content for each in entries if isinstance(each.content, ToolResultContent)]
        assert (result.outcome, outcome.reason) == ("error", "answered")
        assert result.tool_result.startswith(f"{BadTool.__name__}: NeedsAnswer needs a dict with at least one name")
    else:
        assert [each.what for each in outcome.waiting] == ["doubt"]
