"""Arguments that are nearly JSON are read as what they were meant to be, marked, and never trusted with an effect."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gesta
from gesta.address import open_record
from gesta.formatters.repair import LONGEST, repair
from gesta.kinds import ToolCallContent, ToolResultContent


@gesta.tool(effect="pure")
def look(x: int) -> str:
    """Look."""
    return f"saw {x}"


@gesta.tool(effect="once")
def pay(x: int) -> str:
    """Pay."""
    return f"paid {x}"


@gesta.tool(effect="once", approval=True)
def refund(x: int) -> str:
    """Refund."""
    return f"refunded {x}"


async def played(tool: str, args: str, **more: Any) -> tuple[gesta.Outcome, ToolCallContent, list[ToolResultContent]]:
    script = gesta.reply(calls=[gesta.call(tool).__class__(tool, args)]), "done"
    agent = gesta.Agent("a", model=gesta.scripted(*script), tools=[look, pay, refund], **more)
    async with open_record(":memory:") as record:
        outcome = await record.run(agent, "go")
        contents = [entry.content for entry in await record.read(outcome.run)]
    (call,) = [each for each in contents if isinstance(each, ToolCallContent)]
    return outcome, call, [each for each in contents if isinstance(each, ToolResultContent)]


@pytest.mark.parametrize("args", ["{'x': 1}", '{"x": 1,}', "{x: 1}", '```json\n{"x": 1,}\n```', '{"x": 1} // it'])
async def test_what_is_nearly_json_is_read_and_marked(args: str) -> None:
    _, call, results = await played("look", args, repair=True)
    if "//" in args:
        assert call.status == "error", "something follows: nobody knows what was meant"
        return
    assert (call.tool_args, call.status) == ({"x": 1}, "success")
    assert call.meta == {"raw_args": args, "repaired": True}
    assert [each.tool_result for each in results] == ["saw 1"]


async def test_nothing_is_repaired_unless_the_agent_says_so() -> None:
    _, call, _ = await played("look", "{'x': 1}")
    assert (call.tool_args, call.status, (call.meta or {})["raw_args"]) == ({}, "error", "{'x': 1}")


async def test_a_tool_with_an_effect_is_not_run_on_a_guess() -> None:
    _, call, (result,) = await played("pay", "{'x': 1}", repair=True)
    assert call.status == "error"
    assert result.outcome == "error"
    outcome, call, results = await played("refund", "{'x': 1}", repair=True)
    assert (outcome.reason, call.tool_args, results) == ("waiting", {"x": 1}, []), "a person sees what would be done"


@pytest.mark.parametrize("args", ['{"x": 10', '{"x": "1', "{", "nope", "[1]", "{}" * LONGEST])
def test_what_was_cut_off_or_is_no_object_is_not_repaired(args: str) -> None:
    assert repair(args) is None


async def test_repaired_arguments_are_checked_as_all_are() -> None:
    _, call, _ = await played("look", "{'x': 'many'}", repair=True)
    assert call.status == "error"
    assert (call.meta or {})["repaired"] is True


@given(st.text(alphabet="{}[]\"':,\\ax1 \n`\ud800", max_size=60))
def test_no_text_raises(text: str) -> None:
    repair(text)


async def test_a_function_of_the_program_repairs_in_place_of_the_built_in_repair() -> None:
    agent = gesta.Agent(
        "a",
        model=gesta.scripted(gesta.reply(calls=[gesta.call("look").__class__("look", "x is 7")]), "done"),
        tools=[look],
        repair=lambda text: {"x": int(text.rpartition(" ")[2])},
    )
    async with open_record(":memory:") as record:
        outcome = await record.run(agent, "go")
        contents = [entry.content for entry in await record.read(outcome.run)]
    (call,) = [each for each in contents if isinstance(each, ToolCallContent)]
    assert (call.tool_args, call.status) == ({"x": 7}, "success")
    assert call.meta == {"raw_args": "x is 7", "repaired": True}
