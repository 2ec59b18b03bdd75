"""What comes next, from a folded state alone."""

import gesta
from gesta import address
from gesta.decide import Finish, Use, Wait, Waiting, decide
from gesta.pending import Pending, Try
from gesta.standing import RunState
from gesta.turn import Turn


@gesta.tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


@gesta.tool(effect="idempotent")
async def put() -> str:
    """Put."""
    return "put"


@gesta.tool(effect="once")
async def pay() -> str:
    """Pay."""
    return "paid"


AGENT = address.bind(gesta.Agent("a", model=gesta.scripted("ok"), tools=[look, put, pay]))


def state(*calls: Pending, since: int = 0) -> RunState:
    return RunState(since=since, turn=Turn(begin=1, key=None, name="a"), calls={call.seq: call for call in calls})


def test_an_answer_that_was_given_is_not_given_again() -> None:
    known = state()
    assert known.turn is not None
    known.turn.assistant = 7
    assert decide(AGENT, known) == Finish("answered")


def test_a_call_that_is_being_tried_is_waited_for() -> None:
    call = Pending(5, "look", {}, good=True, attempts=1, last=Try(6, effect="pure"))
    assert decide(AGENT, state(call)) == Wait((Waiting("running", 5, "look", 6),))


def test_the_same_call_under_a_newer_lease_is_tried_again_until_the_attempts_are_used_up() -> None:
    call = Pending(5, "look", {}, good=True, attempts=1, last=Try(6, effect="pure"))
    move = decide(AGENT, state(call, since=6))
    assert [found.seq for found in move.run] == [5]  # type: ignore[union-attr]
    call.attempts = 3
    assert type(decide(AGENT, state(call, since=6))).__name__ == "Ask"


def test_a_call_of_a_tool_that_is_gone_is_looked_up_and_then_in_doubt_when_it_was_tried_and_closed_when_not() -> None:
    tried = Pending(5, "gone", {}, good=True, attempts=1, last=Try(6, effect="once"))
    assert decide(AGENT, state(tried, since=6)) == Use((), (tried,))
    assert tried.last is not None
    tried.last.over = True
    assert decide(AGENT, state(tried, since=6)) == Wait((Waiting("doubt", 5, "gone", 6),))
    assert type(decide(AGENT, state(Pending(5, "gone", {}, good=True)))).__name__ == "Ask"


def test_an_idempotent_call_that_is_given_up_is_a_doubt_and_never_a_placeholder_that_a_model_may_repeat() -> None:
    call = Pending(5, "put", {}, good=True, attempts=1, last=Try(6, effect="idempotent"))
    assert decide(AGENT, state(call, since=6)) == Use((call,))
    assert call.last is not None
    call.attempts, call.last.over = 3, True
    assert decide(AGENT, state(call, since=6)) == Wait((Waiting("doubt", 5, "put", 6),))


def test_a_retry_of_a_once_call_waits_until_the_attempt_before_it_is_over() -> None:
    call = Pending(5, "pay", {}, good=True, attempts=1, last=Try(6, effect="once", process="p", verdict="retry"))
    assert call.last is not None
    assert decide(AGENT, state(call, since=6)) == Use((), (call,))
    call.last.looked = 8
    assert decide(AGENT, state(call, since=6)) == Wait((Waiting("running", 5, "pay", 6),))
    call.last.over = True
    assert decide(AGENT, state(call, since=6)) == Use((call,))


def test_a_person_is_believed_about_an_attempt_of_format_1_of_which_nobody_can_know_more() -> None:
    call = Pending(5, "pay", {}, good=True, attempts=1, last=Try(6, effect="once", verdict="retry"))
    assert decide(AGENT, state(call, since=6)) == Use((call,))


def test_a_retry_under_a_new_key_need_not_wait_where_the_old_key_is_void() -> None:
    call = Pending(5, "pay", {}, good=True, attempts=1, last=Try(6, effect="once", verdict="retry", void=True))
    assert decide(AGENT, state(call, since=6)) == Use((call,))


def test_a_turn_in_which_too_many_processes_died_waits_for_a_person() -> None:
    known = state()
    assert known.turn is not None
    known.turn.deaths = AGENT.policy.deaths
    assert decide(AGENT, known) == Wait((Waiting("deaths", 0, ""),))
