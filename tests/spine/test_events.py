"""What a listener hears, and how a turn ended."""

import gesta
from gesta.events import Event


async def heard(*script: object) -> tuple[list[Event], str | None]:
    async with gesta.open(":memory:") as record:
        agent = gesta.Agent("a", model=gesta.scripted(*script))  # type: ignore[arg-type]
        stream = record.stream(agent, "hello")
        events = [event async for event in stream]
        return events, events[-1].type


async def test_the_last_event_ends_the_message_and_the_dialogue() -> None:
    events, last = await heard("hi")
    assert last == "answer"
    assert [event.end_of_dialog for event in events].count(True) == 1
    assert events[-1].end_of_dialog


async def test_a_turn_that_fails_ends_with_an_error() -> None:
    _, last = await heard(gesta.fault(400))
    assert last == "error"


async def test_an_outcome_knows_no_price_where_no_account_was_kept() -> None:
    async with gesta.open(":memory:") as record:
        outcome = await record.run(gesta.Agent("a", model=gesta.scripted("hi")), "hello")
    assert outcome.usd is None
    assert (outcome.reason, outcome.answer, outcome.waiting) == ("answered", "hi", ())
