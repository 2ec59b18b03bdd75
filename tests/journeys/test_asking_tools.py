"""A tool may ask a person in the middle: its turn waits, and its call is made again with the answer."""

from pathlib import Path
from typing import Any

import pytest

import gesta
from gesta.function_tool.context import NeedsAnswer, ToolQuestion
from gesta.function_tool.tool import Effect
from gesta.kinds import AttemptContent, FaultContent, QuestionContent, ToolResultContent


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
