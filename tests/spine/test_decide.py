"""What comes next, from a folded state alone."""

from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.costs import LINEAR, growth

import gesta
from gesta import address
from gesta.agent import Agent
from gesta.decide.move import Ask, Close, Correct, Finish, Move, Pause, Use, Wait, decide, decide_step
from gesta.decide.waiting import Waiting
from gesta.entry import Entry, fold
from gesta.kinds import AnswerContent, ApprovalContent, Error, ResolutionContent, SignalContent, UserContent
from gesta.loop import step, taken
from gesta.perform.execution import LiveRun, TurnCaller
from gesta.perform.move import perform
from gesta.perform.stop import Stop
from gesta.policy import Compact
from gesta.record.record import Record
from gesta.state.calls import OpenCall, Try
from gesta.state.opening import Opening
from gesta.state.run import RunState, RunView
from gesta.state.turn import LastRequest, Turn
from gesta.stores.memory import MemoryStore
from gesta.tools.person import ask_person


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


class Sum(msgspec.Struct):
    """What an agent may have to answer."""

    cents: int


AGENT = address.bind(gesta.Agent("a", model=gesta.scripted("ok"), tools=[look, put, pay]))


def state(*calls: OpenCall, since: int = 0) -> RunState:
    return RunState(since=since, turn=Turn(begin=1, key=None, name="a"), calls={call.seq: call for call in calls})


def test_an_answer_that_was_given_is_not_given_again() -> None:
    known = state()
    assert known.turn is not None
    known.turn.assistant = 7
    assert decide(AGENT, known) == Finish("answered")


def test_a_call_that_is_being_tried_is_waited_for() -> None:
    call = OpenCall(5, "look", {}, good=True, attempts=1, last=Try(6, effect="pure"))
    assert decide(AGENT, state(call)) == Wait((Waiting("running", 5, "look", 6),))


def test_the_same_call_under_a_newer_lease_is_tried_again_until_the_attempts_are_used_up() -> None:
    call = OpenCall(5, "look", {}, good=True, attempts=1, last=Try(6, effect="pure"))
    move = decide(AGENT, state(call, since=6))
    assert [found.seq for found in move.run] == [5]  # type: ignore[union-attr]
    call.attempts = 3
    assert isinstance(decide(AGENT, state(call, since=6)), Close)


def test_a_call_of_a_tool_that_is_gone_is_looked_up_and_then_in_doubt_when_it_was_tried_and_closed_when_not() -> None:
    tried = OpenCall(5, "gone", {}, good=True, attempts=1, last=Try(6, effect="once"))
    assert decide(AGENT, state(tried, since=6)) == Use((), (tried,))
    assert tried.last is not None
    tried.last.over = True
    why = "the agent 'a' has no tool 'gone' any more (its tools: look, put, pay)"
    assert decide(AGENT, state(tried, since=6)) == Wait((Waiting("doubt", 5, "gone", 6, why=why),))
    said = decide(AGENT, state(OpenCall(5, "gone", {}, good=True)))
    assert isinstance(said, Close)
    assert [(each.call, each.outcome) for each in said.results] == [(5, "error")]


def test_an_idempotent_call_that_is_given_up_is_a_doubt_and_never_a_placeholder_that_a_model_may_repeat() -> None:
    call = OpenCall(5, "put", {}, good=True, attempts=1, last=Try(6, effect="idempotent"))
    assert decide(AGENT, state(call, since=6)) == Use((call,))
    assert call.last is not None
    call.attempts, call.last.over = 3, True
    assert decide(AGENT, state(call, since=6)) == Wait((Waiting("doubt", 5, "put", 6),))


def test_a_retry_of_a_once_call_waits_until_the_attempt_before_it_is_over() -> None:
    call = OpenCall(5, "pay", {}, good=True, attempts=1, last=Try(6, effect="once", process="p", verdict="retry"))
    assert call.last is not None
    assert decide(AGENT, state(call, since=6)) == Use((), (call,))
    call.last.looked = 8
    assert decide(AGENT, state(call, since=6)) == Wait((Waiting("running", 5, "pay", 6),))
    call.last.over = True
    assert decide(AGENT, state(call, since=6)) == Use((call,))


def test_a_person_is_believed_about_an_attempt_of_format_1_of_which_nobody_can_know_more() -> None:
    call = OpenCall(5, "pay", {}, good=True, attempts=1, last=Try(6, effect="once", verdict="retry"))
    assert decide(AGENT, state(call, since=6)) == Use((call,))


def test_a_retry_under_a_new_key_need_not_wait_where_the_old_key_is_void() -> None:
    call = OpenCall(5, "pay", {}, good=True, attempts=1, last=Try(6, effect="once", verdict="retry", void=True))
    assert decide(AGENT, state(call, since=6)) == Use((call,))


def test_a_turn_in_which_too_many_processes_died_waits_for_a_person() -> None:
    known = state()
    assert known.turn is not None
    known.turn.deaths = AGENT.policy.deaths
    assert decide(AGENT, known) == Wait((Waiting("deaths"),))


def open_turn(known: RunState) -> Turn:
    assert known.turn is not None
    return known.turn


def test_a_request_that_a_crash_cut_off_is_closed_before_the_next_one() -> None:
    known = state()
    known.asked = LastRequest(7, "digest", 1, 1, "", 6)
    assert decide(AGENT, known) == Close((), lost=7)
    known.asked.open = False
    assert decide(AGENT, known) == Ask()


def test_the_wait_before_a_retry_is_a_move_with_the_time_of_the_failure_in_it() -> None:
    known, at = state(), datetime(2026, 1, 1, tzinfo=UTC)
    open_turn(known).retry_at = at, 2.0
    assert decide(AGENT, known) == Pause(at, 2.0)


def test_a_prompt_that_is_too_large_is_made_smaller_by_the_request_that_needs_it() -> None:
    known = state()
    known.weight.known = 101
    small = msgspec.structs.replace(AGENT, policy=gesta.Policy(compact=Compact(at_tokens=100)))
    assert (decide(AGENT, known), decide(small, known)) == (Ask(), Ask(compact=True))
    known.weight.known = 100
    assert decide(small, known) == Ask()


def test_an_answer_of_another_type_is_corrected_as_often_as_the_policy_says() -> None:
    known = state()
    turn = open_turn(known)
    turn.reply, turn.text = 9, "many"
    number = msgspec.structs.replace(AGENT, output=Sum)
    assert isinstance(decide(number, known), Correct)
    turn.corrections = number.policy.retry.corrections
    found = decide(number, known)
    assert isinstance(found, Finish)
    assert found.error is not None and found.error.type == "BadAnswer"
    turn.text = '{"cents": 3}'
    assert decide(number, known) == Finish("answered")


def test_nothing_is_asked_beyond_a_limit_and_the_end_names_it() -> None:
    known = state()
    open_turn(known).requests = 50
    found = decide(AGENT, known)
    said = "The turn reached its limit of 50 requests. Raise Policy(limits=Limits(requests=50)) if it needs more."
    assert found == Finish("limit", Error(type="requests", message=said))


def test_a_program_does_what_it_did_before_at_its_limit_and_nothing_new() -> None:
    known = state()
    few = msgspec.structs.replace(AGENT, policy=gesta.Policy(limits=gesta.Limits(calls=0)))
    stop = decide_step(few, known, "new")
    assert isinstance(stop, Finish)
    assert stop.error is not None and stop.error.type == "calls"
    assert decide_step(AGENT, known, "new") is None
    open_turn(known).pos, known.mark = 3, 3
    assert decide_step(AGENT, known, "new") == Wait((Waiting("copy", tool="new"),))
    open_turn(known).cancelled = "ann"
    assert decide_step(AGENT, known, "new") == Finish("cancelled", Error(type="cancelled", message="cancelled by ann"))


CALLS = st.one_of(
    st.sampled_from(["look", "put", "pay", "sign", "fail", "gone"]).map(gesta.call),
    st.just(gesta.call("ask", question="How many?")),
)
FAULT = gesta.fault(503)
REPLIES = st.one_of(
    CALLS, st.lists(CALLS, min_size=2, max_size=3), st.sampled_from(["", '{"cents": 7}', "words", FAULT])
)
VERDICTS: st.SearchStrategy[Any] = st.sampled_from(["approved", "denied"])
OUTCOMES: st.SearchStrategy[Any] = st.sampled_from(["done", "failed", "retry"])
RULES = st.fixed_dictionaries(
    {
        "limits": st.builds(gesta.Limits, requests=st.sampled_from([3, 50]), calls=st.sampled_from([2, 500])),
        "budget": st.sampled_from([None, gesta.Budget(tokens=40_000), gesta.Budget(tokens=40_000, when_spent="ask")]),
        "compact": st.sampled_from([None, Compact(at_tokens=30, keep_turns=0, keep_results=0, results_over=0)]),
        "parallel": st.sampled_from([1, 8]),
    }
)


def actor(replies: list[Any], rules: dict[str, Any], output: type | None) -> Agent:
    def fail() -> str:
        raise ValueError("no")

    more = [
        gesta.tool(fail, effect="once"),
        gesta.tool(lambda: "signed", name="sign", effect="once", approval=True),
        ask_person("ask"),
    ]
    policy = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0, tries=3), **rules)
    model = gesta.scripted(*replies, *['{"cents": 8}'] * 60)
    return address.bind(gesta.Agent("a", model=model, tools=[look, put, pay, *more], policy=policy, output=output))


def answer(waiting: Waiting, lot: st.DataObject, desk: LiveRun) -> None:
    """Answer what a turn waits for, or cancel it."""
    if lot.draw(st.booleans(), label="cancel"):
        desk.write(SignalContent(name="cancel", by="ann"))
    elif waiting.what == "approval":
        assert waiting.of is not None
        verdict = lot.draw(VERDICTS)
        desk.write(ApprovalContent(of=waiting.of, verdict=verdict, by="ann"), waiting.of)
    elif waiting.what in ("budget", "question"):
        assert waiting.of is not None
        desk.write(AnswerContent(of=waiting.of, value=lot.draw(st.sampled_from([0, 9_000])), by="ann"), waiting.of)
    else:
        assert waiting.what == "doubt"
        assert waiting.of is not None
        desk.write(ResolutionContent(of=waiting.of, verdict=lot.draw(OUTCOMES), by="ann"), waiting.of)
    desk.absorb()


async def played(agent: Agent, lot: st.DataObject) -> tuple[list[Entry], dict[int, bytes]]:
    """Play two turns of a run; give its entries, and the first move that was made at each head."""
    record, moves = Record(MemoryStore(), address.bind), dict[int, bytes]()

    def noted(agent: Agent, state: RunState) -> Move:
        move = decide(agent, state)
        moves.setdefault(state.head, picture(move))
        return move

    async with record.turns.held("r" * 32, agent, TurnCaller(None, Stop())) as desk:
        for text in ("one " * 40, "two"):
            await record.turns.begin(agent, Opening(name="a", session="s", content=UserContent(value=text)), desk)
            while desk.state.open:
                move, _ = await step(agent, desk, noted)
                if isinstance(move, Finish):
                    await perform(agent, move, desk)
                elif isinstance(move, Wait):
                    answer(move.what[0], lot, desk)
        await desk.log.durable()
    return await record.read("r" * 32), moves


def picture(value: Any) -> bytes:
    return msgspec.json.encode(msgspec.to_builtins(value, enc_hook=repr, str_keys=True), order="deterministic")


@given(st.lists(REPLIES, max_size=5), RULES, st.sampled_from([None, Sum]), st.data())
def test_at_every_prefix_of_every_turn_the_same_move_comes_next_and_nothing_is_changed_by_deciding(
    replies: list[Any], rules: dict[str, Any], output: type | None, lot: st.DataObject
) -> None:
    agent = actor(replies, rules, output)
    entries, moves = anyio.run(played, agent, lot)
    assert moves
    for end in range(2, len(entries) + 1):
        for since in (0, end):
            known = fold(RunView(), entries[:end])
            if not known.open:
                continue
            taken(known, since, None)
            before, move = picture(known), picture(decide(agent, known))
            assert picture(decide(agent, known)) == move, "decided twice"
            assert picture(known) == before, "the state is as it was"
            running = any(call.last is not None for call in known.calls.values())
            if end in moves and (since == 0 or not running):
                assert move == moves[end], f"after {entries[end - 1].kind}"


def test_a_reply_of_many_calls_costs_with_their_number_and_not_with_its_square() -> None:
    async def turn(number: int) -> None:
        calls = gesta.reply(calls=[gesta.call("pay") for _ in range(number)])
        unlimited = gesta.Policy(limits=gesta.Limits(calls=None))
        agent = gesta.Agent("clerk", model=gesta.scripted(calls, "Paid.", stream=False), tools=[pay], policy=unlimited)
        async with gesta.open(":memory:") as record:
            assert (await record.run(agent, "Pay.")).reason == "answered"

    assert growth(lambda number: anyio.run(turn, number), 200) < LINEAR
