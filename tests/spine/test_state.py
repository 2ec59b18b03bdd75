"""Where a run stands is a fold: the same entries give the same state, whoever folds them."""

import msgspec

import gesta
from gesta.entry import Entry, fold
from gesta.kinds import Kind
from gesta.state.account import UNWEIGHED, weigh
from gesta.state.run import RunState, RunView


@gesta.tool(effect="pure")
def look() -> str:
    """Look."""
    return "seen"


async def run() -> list[Entry]:
    async with gesta.open(":memory:") as record:
        agent = gesta.Agent("a", model=gesta.scripted(gesta.call("look"), "done"), tools=[look])
        return await record.read((await record.run(agent, "hello")).run)


def picture(state: RunState) -> object:
    return msgspec.to_builtins(state, str_keys=True)


async def test_a_state_is_the_same_whether_it_is_folded_at_once_or_in_two_parts() -> None:
    entries = await run()
    whole = picture(fold(RunView(), entries))
    for end in range(len(entries)):
        state = fold(RunView(), entries[:end])
        for entry in entries[end:]:
            state = RunView().apply(state, entry)
        assert picture(state) == whole


async def test_a_call_is_open_from_its_entry_to_its_result() -> None:
    entries = await run()
    open_calls = [bool(fold(RunView(), entries[:end]).calls) for end in range(1, len(entries) + 1)]
    kinds = [entry.kind for entry in entries]
    begun, done = kinds.index(Kind.ToolCall), kinds.index(Kind.ToolResult)
    assert [place for place, is_open in enumerate(open_calls) if is_open] == list(range(begun, done))


async def test_a_turn_is_open_until_its_end_is_on_record() -> None:
    entries = await run()
    assert fold(RunView(), entries[:-1]).open
    ended = fold(RunView(), entries)
    assert not ended.open
    assert ended.turn is not None
    assert (ended.turn.reason, ended.turn.text, ended.turn.requests, ended.turn.calls) == ("answered", "done", 2, 1)


async def test_the_state_of_a_program_holds_no_message_of_its_many_turns_and_counts_each() -> None:
    async def echo(_verbs: object, text: str) -> str:
        return text

    async with gesta.open() as record:
        for number in range(2 * UNWEIGHED):
            outcome = await record.run(gesta.Agent("a", program=echo), f"Message {number:012}", session="s")
        state, entries = await record.state(outcome.run), await record.read(outcome.run)
    assert len(state.weight.since) <= UNWEIGHED
    assert state.weight.tokens == sum(weigh(each.content) for each in entries if each.kind is Kind.User)
