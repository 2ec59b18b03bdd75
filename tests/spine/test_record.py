"""A record runs agents, and finds their runs again by session and name."""

import gesta
from gesta import address
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore


def agent(*script: str) -> gesta.Agent:
    return gesta.Agent("a", model=gesta.scripted(*script))


async def test_a_session_goes_on_in_its_run_and_no_session_is_a_new_one() -> None:
    record = Record(MemoryStore(), address.bind)
    first = await record.run(agent("one", "two"), "a", session="s")
    second = await record.run(agent("one", "two"), "b", session="s")
    other = await record.run(agent("one", "two"), "c")
    assert (first.run, first.answer, second.answer) == (second.run, "one", "two")
    assert other.run != first.run


async def test_a_message_with_the_same_key_is_answered_once() -> None:
    record = Record(MemoryStore(), address.bind)
    first = await record.run(agent("one", "two"), "a", session="s", key="k")
    again = await record.run(agent("one", "two"), "a", session="s", key="k")
    assert (again.turn, again.answer) == (first.turn, "one")


async def test_resuming_a_turn_that_has_ended_gives_its_outcome_and_writes_nothing() -> None:
    record = Record(MemoryStore(), address.bind)
    first = await record.run(agent("one"), "a", session="s")
    before = await record.read(first.run)
    assert (await record.resume(first.run, agent("one"))).answer == "one"
    assert await record.read(first.run) == before
