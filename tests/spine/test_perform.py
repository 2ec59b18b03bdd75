"""What leaves the process is on record before it leaves, and what came of it after."""

from typing import Any

import pytest

import gesta
from gesta import address
from gesta.decide.move import Ask, Finish, decide
from gesta.kinds import Error, Kind, ToolResultContent, UserContent
from gesta.model.request import ReplyCall
from gesta.perform.call_contents import checked_call, plain
from gesta.perform.execution import TurnCaller
from gesta.perform.move import perform
from gesta.perform.stop import Stop
from gesta.record.record import Record
from gesta.state.opening import Opening
from gesta.stores.memory import MemoryStore
from gesta.text.objects import MAX_DEPTH

RUN = "r" * 32


@gesta.tool(effect="once")
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


AGENT = address.bind(gesta.Agent("a", model=gesta.scripted(gesta.call("pay", cents=1), "done"), tools=[pay]))


async def test_a_request_and_an_attempt_stand_before_what_came_of_them() -> None:
    record = Record(MemoryStore(), address.bind)
    async with record.turns.held(RUN, AGENT, TurnCaller(None, Stop())) as desk:
        await record.turns.begin(AGENT, Opening(name="a", session="s", content=UserContent(value="hi")), desk)
        asked = await perform(AGENT, Ask(), desk)
        used = await perform(AGENT, decide(AGENT, desk.state), desk)
        assert [entry.kind for entry in asked] == [Kind.Request, Kind.ChatCompletion, Kind.ToolCall]
        assert [entry.kind for entry in used] == [Kind.Attempt, Kind.ToolResult]


async def test_a_turn_can_be_ended_at_any_point_and_says_why() -> None:
    record = Record(MemoryStore(), address.bind)
    async with record.turns.held(RUN, AGENT, TurnCaller(None, Stop())) as desk:
        await record.turns.begin(AGENT, Opening(name="a", session="s", content=UserContent(value="hi")), desk)
        await perform(AGENT, Finish("cancelled", Error(type="cancelled", message="by ann")), desk)
        assert desk.state.turn is not None
        assert desk.state.turn.reason == "cancelled"


def test_a_call_that_was_generated_badly_is_kept_with_what_is_wrong_with_it() -> None:
    good = checked_call(AGENT, ReplyCall("pay", '{"cents": 3}', "c1"))
    assert (good.status, good.tool_args) == ("success", {"cents": 3})
    for args in ("{", "[]", '{"cents": "many"}'):
        bad = checked_call(AGENT, ReplyCall("pay", args, "c2"))
        assert bad.status == "error"
        assert bad.meta is not None
        assert bad.meta["error"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_json_lacks_is_no_argument_for_a_tool_with_a_limit(number: str) -> None:
    @gesta.tool(effect="once")
    def refund(euros: float) -> str:
        """Pay back."""
        return "refused" if euros > 100 else f"paid {euros}"

    agent = address.bind(gesta.Agent("a", model=gesta.scripted("done"), tools=[refund]))
    bad = checked_call(agent, ReplyCall("refund", f'{{"euros": {number}}}', "c1"))
    assert (bad.status, bad.tool_args) == ("error", {})
    assert bad.meta is not None
    assert f"are not JSON ({number} is not JSON)" in bad.meta["error"]


def test_a_tool_gets_the_arguments_that_the_model_wrote_or_is_not_called() -> None:
    got = list[Any]()

    @gesta.tool(effect="once")
    def keep(tree: object) -> str:
        """Keep a tree."""
        got.append(tree)
        return "kept"

    def tree(levels: int) -> Any:
        return [tree(levels - 1)] if levels else 1

    model = gesta.scripted(gesta.call("keep", tree=tree(MAX_DEPTH)), gesta.call("keep", tree=tree(MAX_DEPTH - 1)), "ok")
    with gesta.open_sync() as record:
        outcome = record.run(gesta.Agent("a", model=model, tools=[keep]), "go")
        entries = [entry.content for entry in record.read(outcome.run)]
    told = [each.tool_result for each in entries if isinstance(each, ToolResultContent)]
    assert told == ["Arguments of 'keep': Nested too deeply, more than 64 levels - at `$`", "kept"]
    assert got == [tree(MAX_DEPTH - 1)]


def test_what_has_no_json_form_is_left_to_the_codec() -> None:
    odd = object()
    assert plain(odd) is odd
    assert plain({1, 2}) == [1, 2]
