"""What comes next, from a folded state alone."""

import gesta
from gesta import address
from gesta.decide import Finish, Wait, Waiting, decide
from gesta.pending import Pending, Try
from gesta.standing import RunState
from gesta.turn import Turn


@gesta.tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


AGENT = address.bind(gesta.Agent("a", model=gesta.scripted("ok"), tools=[look]))


def state(*calls: Pending, since: int = 0) -> RunState:
    return RunState(since=since, turn=Turn(begin=1, key=None, name="a"), calls={call.seq: call for call in calls})


def test_an_answer_that_was_given_is_not_given_again() -> None:
    known = state()
    assert known.turn is not None
    known.turn.assistant = 7
    assert decide(AGENT, known) == Finish("answered")


def test_a_call_that_is_being_tried_is_waited_for() -> None:
    call = Pending(5, "look", {}, good=True, attempts=1, last=Try(6, once=False))
    assert decide(AGENT, state(call)) == Wait((Waiting("running", 5, "look", 6),))


def test_the_same_call_under_a_newer_lease_is_tried_again_until_the_attempts_are_used_up() -> None:
    call = Pending(5, "look", {}, good=True, attempts=1, last=Try(6, once=False))
    move = decide(AGENT, state(call, since=6))
    assert [found.seq for found in move.run] == [5]  # type: ignore[union-attr]
    call.attempts = 3
    assert type(decide(AGENT, state(call, since=6))).__name__ == "Ask"


def test_a_call_of_a_tool_that_is_gone_is_in_doubt_when_it_was_tried_and_closed_when_not() -> None:
    tried = Pending(5, "gone", {}, good=True, attempts=1, last=Try(6, once=True))
    assert decide(AGENT, state(tried, since=6)) == Wait((Waiting("doubt", 5, "gone", 6),))
    assert type(decide(AGENT, state(Pending(5, "gone", {}, good=True)))).__name__ == "Ask"
