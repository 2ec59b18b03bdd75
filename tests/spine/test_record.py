"""A record runs agents, and finds their runs again by session and name."""

from typing import Any

import pytest

import gesta
from gesta import address
from gesta.errors import AgentError, LeaseLost
from gesta.kinds import UserContent
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


async def test_a_run_is_read_by_its_id_the_start_of_it_its_session_or_last_and_one_that_is_not_there_is_an_error() -> (
    None
):
    record = Record(MemoryStore(), address.bind)
    outcome = await record.run(agent("Yes."), "Ready?", session="s-1")
    whole = await record.read(outcome.run)
    for name in (outcome.run, outcome.run[:6], "s-1", "last"):
        assert await record.read(name) == whole
        assert (await record.state(name)).head == whole[-1].seq
    assert await record.read("s-1", whole[-2].seq) == whole[-1:]
    assert await record.read(outcome.run, whole[-1].seq) == []
    assert await record.read("0" * 16) == []
    for part in (record.read, record.state):
        with pytest.raises(gesta.errors.NoRun):
            await part("s-2")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"session": 7}, "session=7: expected a text, such as session='7'."),
        ({"key": 7}, "key=7: expected a text, such as key='7'."),
        ({"user": b"ann"}, "user=b'ann': expected a text, such as user=\"b'ann'\"."),
        ({"traceparent": 7}, "traceparent=7: expected a text, such as traceparent='7'."),
        ({"session": ""}, "session='' is empty, expected a name. Leave session out to have none."),
        ({"session": "s", "key": ""}, "key='' is empty, expected a name. Leave key out to have none."),
        ({"key": "m1"}, "key='m1' without a session: a message without a session begins a new one, where no key is"),
        ({"settings": 7}, "settings=7: expected a dict, such as settings={'temperature': 0}."),
        (
            {"settings": {"response_format": int}},
            "Agent 'a': its settings or meta hold what JSON cannot hold (Encoding objects of type type is unsupported).",
        ),
    ],
)
async def test_an_option_of_a_wrong_type_is_refused_before_anything_is_written(
    options: dict[str, Any], said: str
) -> None:
    async with gesta.open() as record:
        with pytest.raises(AgentError) as refused:
            await record.run(agent("Yes."), "Ready?", **options)
        assert str(refused.value).startswith(said)
        assert await record.sessions() == []


async def test_a_span_of_a_session_that_is_no_text_is_refused_before_anything_is_written() -> None:
    async with gesta.open() as record:
        with pytest.raises(AgentError, match="A span with session=7, run='import': expected two texts"):
            async with record.span("import", session=7):  # type: ignore[arg-type]
                pass
        assert await record.sessions() == []


async def test_a_log_that_was_kept_after_its_span_refuses_what_would_be_lost() -> None:
    async with gesta.open() as record:
        async with record.span("import", session="s") as log:
            log.log(UserContent(value="Hello."))
        with pytest.raises(LeaseLost, match="expected a span or turn that goes on, found one that has ended"):
            log.log(UserContent(value="Goodbye."))
        assert len(await record.read("s")) == 3
        async with record.span("import", session="s") as log:
            log.log(UserContent(value="Goodbye."))
        assert len(await record.read("s")) == 6


async def test_arguments_that_are_no_dict_approve_no_call() -> None:
    @gesta.tool(effect="once", approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    desk = gesta.Agent("desk", gesta.scripted(gesta.call("pay", euros=9), "Done."), tools=[pay])
    async with gesta.open() as record:
        outcome = await record.run(desk, "Pay.", session="s")
        with pytest.raises(AgentError, match=r"approve\(args=3\): expected a dict of arguments"):
            await record.approve(outcome.waiting[0], by="ann", args=3)  # type: ignore[arg-type]
        assert (await record.resume("s", desk)).reason == "waiting"


@pytest.mark.parametrize("limit", [-1, 1.5])
async def test_a_list_of_sessions_has_no_negative_or_broken_number_of_lines(limit: Any) -> None:
    async with gesta.open() as record:
        with pytest.raises(ValueError, match="expected a whole number from 0 on, or None"):
            await record.sessions(limit)


async def test_statistics_by_what_there_is_not_are_refused() -> None:
    async with gesta.open() as record:
        with pytest.raises(ValueError, match="expected one of 'day', 'agent', 'model', 'tool'"):
            await record.stats("week")  # type: ignore[arg-type]
