"""What a listener hears, and how a turn ended."""

import typing
from datetime import UTC, datetime

import msgspec
import pytest

import gesta
from gesta.decide.waiting import Waiting
from gesta.events import AnyEvent, CallEvent, EndEvent, Event, Explain, ExplainEvent, ResultEvent, WaitingEvent
from gesta.kinds import ApprovalRequestContent


async def heard(*script: object) -> tuple[list[Event], str | None]:
    """Hear a turn: its events, and the type of the one before the last, which says how it ended."""
    async with gesta.open(":memory:") as record:
        agent = gesta.Agent("a", model=gesta.scripted(*script))  # type: ignore[arg-type]
        stream = record.stream(agent, "hello")
        events = [event async for event in stream]
        assert events[-1].type == "end"
        return events, events[-2].type


async def test_the_last_event_ends_the_message_and_the_dialogue() -> None:
    events, last = await heard("hi")
    assert last == "answer"
    assert [event.end_of_dialog for event in events].count(True) == 1
    assert events[-2].end_of_dialog
    assert events[-2].end_of_message
    assert events[-1].type == "end"
    assert events[-1].outcome.answer == "hi"


async def test_a_turn_that_fails_ends_with_an_error() -> None:
    _, last = await heard(gesta.fault(400))
    assert last == "error"


async def test_an_outcome_knows_no_price_where_no_account_was_kept() -> None:
    async with gesta.open(":memory:") as record:
        outcome = await record.run(gesta.Agent("a", model=gesta.scripted("hi")), "hello")
    assert outcome.usd is None
    assert (outcome.reason, outcome.answer, outcome.waiting) == ("answered", "hi", ())


HELD = ApprovalRequestContent(of=3, args_digest="d", expires=datetime(2026, 1, 2, tzinfo=UTC))
SENT: list[Event] = [
    CallEvent(tool="pay", arguments={"cents": 5}, run="r", seq=3, pos=7, part=1, end_of_message=True),
    ResultEvent(call=3, tool="pay", result={"paid": True}, outcome="ok"),
    WaitingEvent(waiting=Waiting("approval", call=3, tool="pay", of=4), end_of_dialog=True),
    ExplainEvent(explain_id="r.4", explain_graph=Explain("Analysis", ("r.3",), HELD), span=("desk",)),
    EndEvent(outcome=gesta.Outcome(run="r", session="s", turn=1, reason="answered", answer="5", given=5)),
]


@pytest.mark.parametrize("event", SENT, ids=lambda event: event.type)
def test_an_event_is_sent_as_json_and_read_again(event: Event) -> None:
    text = msgspec.json.encode(event)
    assert msgspec.json.decode(text)["type"] == event.type
    assert msgspec.json.decode(text, type=gesta.Event) == event


def test_every_type_of_event_is_in_the_union() -> None:
    assert set(typing.get_args(Event)) == set(AnyEvent.__subclasses__())
    assert {each.type for each in typing.get_args(Event)} == {
        each.__struct_config__.tag for each in AnyEvent.__subclasses__()
    }


def test_words_that_are_not_on_record_have_no_id() -> None:
    assert SENT[0].id == "7-1"
    assert SENT[1].id is None
