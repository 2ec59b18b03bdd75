"""What the options of tools, policies and records promise about effects; each option is given a value of its own."""

import functools
import math
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests import programs

import gesta
from gesta.address import Record, bind
from gesta.codec.rows import encode_content
from gesta.compare.replaying import replay_run
from gesta.errors import LeaseLost, OtherMessage, RunHeld, TurnOpen, WriteFailed
from gesta.function_tool.context import NeedsAnswer, ToolQuestion
from gesta.kinds import (
    AttemptContent,
    BeginContent,
    EndContent,
    Error,
    FaultContent,
    Kind,
    ResolutionContent,
    SignalContent,
    ToolResultContent,
)
from gesta.log.journal import Journal
from gesta.perform import threads as outlive
from gesta.state.calls import KEY_EXPIRED
from gesta.store import Batch, Letter
from gesta.stores.memory import MemoryStore


def found(entries: list[gesta.Entry], kind: type) -> list[Any]:
    return [entry.content for entry in entries if isinstance(entry.content, kind)]


def acting(*script: Any, tools: Any = (), **options: Any) -> gesta.Agent:
    return gesta.Agent("desk", model=gesta.scripted(*script), tools=list(tools), **options)


def waits(outcome: gesta.Outcome) -> list[str]:
    return [each.what for each in outcome.waiting]


class Declined(TimeoutError):
    """An author's own exception, of which its base says too little."""


async def test_an_author_may_say_which_exceptions_leave_no_doubt() -> None:
    @gesta.tool(effect="once", certain=Declined)
    def pay() -> str:
        """Pay."""
        raise Declined("the bank said no in time")

    @gesta.tool(effect="once")
    def give() -> str:
        """Return a present."""
        raise Declined("nobody knows")

    async with gesta.open() as record:
        outcome = await record.run(acting(gesta.call("pay"), "no", tools=[pay]), "go")
        assert outcome.answer == "no"
        assert waits(await record.run(acting(gesta.call("give"), "no", tools=[give]), "go")) == ["doubt"]


async def test_what_a_tool_raises_in_doubt_is_over() -> None:
    asked = []

    def settled(key: str) -> gesta.NotDone:
        asked.append(key)
        return gesta.NotDone()

    tries = []

    @gesta.tool(effect="once", reconcile=settled)
    async def pay() -> str:
        """Pay."""
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionResetError
        return "paid"

    async with gesta.open() as record:
        outcome = await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go")
        entries = await record.read(outcome.run)
    assert (outcome.answer, len(tries), len(asked)) == ("ok", 2, 1)
    assert [fault.over for fault in found(entries, FaultContent)] == [True]
    assert len({attempt.key for attempt in found(entries, AttemptContent)}) == 1


async def test_a_void_key_is_believed_at_once_and_the_next_attempt_draws_a_new_one() -> None:
    keys, go = [], threading.Event()

    @gesta.tool(effect="once", timeout_s=0.02, reconcile=lambda _key: gesta.NotDone(void=True))
    def order(context: gesta.Context) -> str:
        """Order."""
        keys.append(context.key)
        if len(keys) == 1:
            go.wait(10)  # still at work when the order was cancelled at the shop
            return "too late"
        return "ordered"

    async with gesta.open() as record:
        outcome = await record.run(acting(gesta.call("order"), "ok", tools=[order]), "go")
        go.set()
        entries = await record.read(outcome.run)
    assert outcome.answer == "ok"
    assert len(set(keys)) == len(keys) == 2
    assert [each.void for each in found(entries, ResolutionContent)] == [True]


async def test_an_idempotency_key_that_is_too_old_is_not_used_again() -> None:
    now, tries = [datetime(2026, 1, 1, tzinfo=UTC)], []

    @gesta.tool(effect="idempotent", key_s=60)
    async def pay() -> str:
        """Pay."""
        tries.append(1)
        now[0] += timedelta(seconds=61)
        raise gesta.InDoubt

    async with gesta.open() as record:
        record.turns.clock = lambda: now[0]
        outcome = await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go")
        assert (waits(outcome), len(tries)) == (["doubt"], 1)


async def test_an_idempotency_key_that_grew_too_old_while_its_call_waited_for_a_thread_is_not_used_again() -> None:
    now, tries = [datetime(2026, 1, 1, tzinfo=UTC)], []

    @gesta.tool(effect="idempotent", key_s=60)
    def pay() -> str:
        """Pay."""
        tries.append(1)
        raise gesta.InDoubt

    async with gesta.open() as record, anyio.create_task_group() as group:
        record.turns.clock = lambda: now[0]
        first = acting(gesta.call("pay"), "ok", tools=[pay], policy=gesta.Policy(attempts=1))
        assert waits(await record.run(first, "go", session="s")) == ["doubt"]
        slots = [outlive.ThreadSlot() for _ in range(outlive.THREADS)]
        assert all(slot.free() for slot in slots)
        group.start_soon(record.resume, "s", acting("ok", tools=[pay]))
        for _ in range(100):
            await checkpoint()
        now[0] += timedelta(seconds=61)
        for slot in slots:
            slot.leave()
    assert tries == [1]
    assert all(outlive.ThreadSlot().free() for _ in range(outlive.THREADS))  # the call left its own


async def test_an_idempotency_key_that_is_remembered_for_ever_is_used_again() -> None:
    now, keys = [datetime(2026, 1, 1, tzinfo=UTC)], []

    @gesta.tool(effect="idempotent", key_s=math.inf)
    async def pay(context: gesta.Context) -> str:
        """Pay."""
        keys.append(context.key)
        now[0] += timedelta(days=10_000)
        if len(keys) == 1:
            raise gesta.InDoubt
        return "paid"

    async with gesta.open() as record:
        record.turns.clock = lambda: now[0]
        assert (await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go")).answer == "ok"
    assert len(keys) == 2
    assert len(set(keys)) == 1


@pytest.mark.parametrize("loops", [0, 5])
async def test_a_call_whose_key_is_too_old_is_made_under_a_new_one_if_a_person_says_retry(loops: int) -> None:
    now, keys = [datetime(2026, 1, 2, tzinfo=UTC)], []  # a Friday

    @gesta.tool(effect="idempotent")
    async def pay(context: gesta.Context) -> str:
        """Pay."""
        keys.append(context.key)
        if len(keys) < 3:
            raise gesta.InDoubt
        return "paid"

    agent = acting(gesta.call("pay"), "ok", tools=[pay], policy=gesta.Policy(attempts=2))
    async with gesta.open() as record:
        record.turns.clock = lambda: now[0]
        outcome = await record.run(agent, "go")
        (doubt,) = outcome.waiting
        now[0] += timedelta(days=3)
        if loops:  # versions before this one wrote such faults without end
            journal = Journal(record.store, await record.store.lease(doubt.run), record.turns.clock)
            journal.write(ResolutionContent(of=doubt.of or 0, verdict="retry", by="ann"), outcome.turn)
            fault = FaultContent(of=doubt.of or 0, error=Error(type=KEY_EXPIRED, message="too old"))
            for _ in range(loops):
                journal.write(fault, outcome.turn)
            await journal.durable()
            await record.store.release(journal.lease)
        else:
            await record.resolve(doubt, "retry", by="ann")
        outcome = await record.resume(doubt.run, agent)
        entries = await record.read(outcome.run)
        expired = [each for each in found(entries, FaultContent) if each.error.type == KEY_EXPIRED]
        replayed = await replay_run({outcome.run: entries}, outcome.run, bind(agent))
    assert (outcome.answer, len(expired), replayed.first) == ("ok", loops or 1, None)
    assert (len(keys), len(set(keys))) == (3, 2)
    assert keys[0] == keys[1] != keys[2]


async def test_a_call_that_reconcile_finds_not_done_is_made_under_a_new_key_if_the_old_one_is_too_old() -> None:
    now, keys, asked = [datetime(2026, 1, 1, tzinfo=UTC)], list[str](), list[str]()

    def settled(key: str) -> gesta.NotDone:
        asked.append(key)
        return gesta.NotDone()

    @gesta.tool(effect="idempotent", key_s=60, reconcile=settled)
    async def pay(context: gesta.Context) -> str:
        """Pay."""
        keys.append(context.key)
        now[0] += timedelta(seconds=61)
        if len(keys) == 1:
            raise gesta.InDoubt
        raise ConnectionRefusedError

    async with gesta.open() as record:
        record.turns.clock = lambda: now[0]
        outcome = await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go")
        (result,) = found(await record.read(outcome.run), ToolResultContent)
    assert (outcome.answer, result.outcome) == ("ok", "error")  # the first attempt is settled, so nothing is in doubt
    assert (asked, len(keys), len(set(keys))) == ([keys[0]], 2, 2)


async def test_a_call_whose_key_is_too_old_is_not_made_again_while_its_attempt_may_be_at_work() -> None:
    now, keys, go_on = [datetime(2026, 1, 1, tzinfo=UTC)], list[str](), threading.Event()

    @gesta.tool(effect="idempotent", timeout_s=0.05)
    def pay(context: gesta.Context) -> str:
        """Pay."""
        keys.append(context.key)
        if len(keys) == 1:
            go_on.wait()
            raise gesta.InDoubt
        return "paid"

    agent = acting(gesta.call("pay"), "ok", tools=[pay], policy=gesta.Policy(attempts=1))
    async with gesta.open() as record:
        record.turns.clock = lambda: now[0]
        (doubt,) = (await record.run(agent, "go")).waiting
        now[0] += timedelta(days=3)
        await record.resolve(doubt, "retry", by="ann")
        try:
            assert waits(await record.resume(doubt.run, agent)) == ["running"]
        finally:
            go_on.set()
        while outlive.works(f"{doubt.process} {doubt.run}.{doubt.of}"):
            await checkpoint()
        again = await record.resume(doubt.run, agent)
        assert waits(again) == ["doubt"]  # it may have happened after the person looked
        await record.resolve(again.waiting[0], "retry", by="ann")
        assert (await record.resume(doubt.run, agent)).answer == "ok"
    assert len(set(keys)) == 2


async def test_an_attempt_that_may_have_had_its_effect_counts_though_a_later_one_only_reads() -> None:
    tries = []

    async def pay() -> str:
        """Pay."""
        tries.append(1)
        raise gesta.InDoubt

    first, second = gesta.tool(pay, effect="idempotent"), gesta.tool(pay, effect="pure")
    async with gesta.open() as record:
        outcome = await record.run(acting(gesta.call("pay"), tools=[first], policy=gesta.Policy(attempts=1)), "go")
        outcome = await record.resume(outcome.run, acting(gesta.call("pay"), "ok", tools=[second]))
        assert (waits(outcome), outcome.waiting[0].effect, len(tries)) == (["doubt"], "idempotent", 3)
        ended = await record.cancel(outcome.run, by="ann")
        assert ended is not None
        assert ended.doubts == ("pay",)


async def test_a_call_that_asked_before_it_acted_goes_on_when_the_answer_comes_two_days_later() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]

    @gesta.tool(effect="idempotent")
    async def order(context: gesta.Context) -> str:
        """Order."""
        if "size" not in context.answers:
            raise NeedsAnswer({"size": ToolQuestion("Which size?")})
        return f"size {context.answers['size']}"

    agent = acting(gesta.call("order"), "ok", tools=[order])
    async with gesta.open() as record:
        record.turns.clock = lambda: now[0]
        outcome = await record.run(agent, "go")
        now[0] += timedelta(days=2)
        await record.answer(outcome.waiting[0], "L", by="ann")
        assert (await record.resume(outcome.run, agent)).answer == "ok"


async def test_an_idempotent_call_that_is_given_up_is_a_doubt_and_no_model_is_told_to_repeat_it() -> None:
    keys = []

    @gesta.tool(effect="idempotent")
    async def pay(context: gesta.Context) -> str:
        """Pay."""
        keys.append(context.key)
        raise TimeoutError

    agent = acting(gesta.call("pay"), "ok", tools=[pay], policy=gesta.Policy(attempts=2))
    async with gesta.open() as record:
        assert waits(await record.run(agent, "go")) == ["doubt"]
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_connection_that_was_refused_says_nothing_of_the_attempts_before_it() -> None:
    failures: list[Exception | None] = [ConnectionResetError("the answer was lost"), ConnectionRefusedError("down")]
    keys = []

    @gesta.tool(effect="idempotent")
    def store(context: gesta.Context) -> str:
        """Store."""
        keys.append(context.key)
        if failures:
            raise failures.pop(0) or AssertionError
        return "stored"

    async with gesta.open(":memory:") as record:
        outcome = await record.run(acting(gesta.call("store"), "Done.", tools=[store]), "store it", session="s")
        told = found(await record.read(outcome.run), ToolResultContent)
    assert outcome.answer == "Done."
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert [each.tool_result for each in told] == ["stored"]


async def test_a_server_that_stays_down_after_an_answer_was_lost_leaves_a_doubt() -> None:
    failures = [ConnectionResetError("the answer was lost")]

    @gesta.tool(effect="idempotent")
    def store() -> str:
        """Store."""
        raise failures.pop() if failures else ConnectionRefusedError("down")

    async with gesta.open(":memory:") as record:
        outcome = await record.run(acting(gesta.call("store"), "Done.", tools=[store]), "store it", session="s")
        tries = found(await record.read(outcome.run), AttemptContent)
    assert waits(outcome) == ["doubt"]
    assert len(tries) == gesta.Policy().attempts


async def test_a_tool_that_answers_no_under_the_key_of_a_lost_answer_is_believed() -> None:
    failures = [ConnectionResetError("the answer was lost"), ValueError("the card was declined")]

    @gesta.tool(effect="idempotent")
    def store() -> str:
        """Store."""
        raise failures.pop(0)

    async with gesta.open(":memory:") as record:
        outcome = await record.run(acting(gesta.call("store"), "No.", tools=[store]), "store it", session="s")
        (told,) = found(await record.read(outcome.run), ToolResultContent)
    assert (outcome.answer, told.tool_result) == ("No.", "ValueError: the card was declined")


async def test_a_late_error_of_an_attempt_is_not_the_result_of_a_call_that_was_tried_again() -> None:
    first, second, calls = threading.Event(), threading.Event(), []

    @gesta.tool(effect="idempotent", timeout_s=0.02)
    def store() -> str:
        """Store."""
        calls.append(1)
        if len(calls) == 1:
            assert first.wait(20)
            raise ValueError("the connection was closed")
        assert second.wait(20)
        return "stored"

    agent = acting(gesta.call("store"), "Done.", tools=[store], policy=gesta.Policy(attempts=2))
    async with gesta.open(":memory:") as record:
        outcome = await record.run(agent, "store it", session="s")
        assert waits(outcome) == ["doubt"]
        first.set()
        await letters(record, outcome.run)
        assert waits(await record.resume(outcome.run, agent)) == ["doubt"]
        second.set()
        await letters(record, outcome.run)
        outcome = await record.resume(outcome.run, agent)
        told = found(await record.read(outcome.run), ToolResultContent)
    assert outcome.answer == "Done."
    assert [each.tool_result for each in told] == ["stored"]


async def letters(record: gesta.Record, run: str) -> None:
    """Wait until a thread has put something into the inbox."""
    with anyio.fail_after(20):
        while not await record.store.inbox(run):
            await anyio.lowlevel.checkpoint()


async def test_after_an_unknown_outcome_every_call_of_that_tool_needs_a_person_until_it_is_settled() -> None:
    @gesta.tool(effect="once", on_doubt="tell")
    async def pay(cents: int) -> str:
        """Pay."""
        if cents == 5:
            raise TimeoutError
        return "paid"

    agent = acting(*(gesta.call("pay", cents=cents) for cents in (5, 6, 7)), "ok", tools=[pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", session="s")
        assert [(each.what, each.tool) for each in outcome.waiting] == [("approval", "pay")]
        entries = await record.read(outcome.run)
        attempt = next(entry.seq for entry in entries if isinstance(entry.content, AttemptContent))
        settled = ResolutionContent(of=attempt, verdict="done", by="ann", result="paid")
        await record.send(outcome.run, settled, key="r")
        outcome = await record.resume(outcome.run, agent)
        assert waits(outcome) == ["approval"], "the model did not know when it made that call"
        of = outcome.waiting[0].of
        assert of is not None
        await record.send(outcome.run, gesta.kinds.ApprovalContent(of=of, verdict="denied", by="ann"), key="no")
        assert (await record.resume(outcome.run, agent)).answer == "ok", "the last call needed nobody"


async def test_an_unknown_outcome_in_a_child_run_asks_for_approval_in_its_parent() -> None:
    @gesta.tool(effect="once", on_doubt="tell")
    async def pay(cents: int) -> str:
        """Pay."""
        if cents == 5:
            raise TimeoutError
        return "paid"

    child = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay", cents=5), "who knows"), tools=[pay])
    agent = acting(gesta.call("payer", task="pay"), gesta.call("pay", cents=6), "ok", tools=[child.as_tool(), pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go")
        assert [(each.what, each.tool) for each in outcome.waiting] == [("approval", "pay")]
        child_run = next(row.run for row in await record.store.runs() if row.parent_run == outcome.run)
        assert found(await record.read(child_run), EndContent)[-1].doubts == ["pay"]
        assert found(await record.read(outcome.run), ToolResultContent)[-1].doubts == ["pay"]


async def test_an_unknown_outcome_in_one_child_of_a_program_asks_for_approval_in_the_next() -> None:
    started = []

    @gesta.tool(effect="once", on_doubt="tell")
    async def pay(cents: int) -> str:
        """Pay."""
        started.append(cents)
        raise TimeoutError

    def payer(cents: int) -> gesta.Agent:
        return gesta.Agent("payer", model=gesta.scripted(gesta.call("pay", cents=cents), "who knows"), tools=[pay])

    async def program(verbs: gesta.Verbs, _task: str) -> str:
        await verbs.call(payer(5), "pay 5", "one")
        await verbs.call(payer(6), "pay 6", "two")
        return "done"

    async with gesta.open() as record:
        outcome = await record.run(gesta.Agent("boss", program=program), "go")
    assert (waits(outcome), started) == (["approval"], [5])


async def test_an_unknown_outcome_in_a_parent_asks_for_approval_in_its_child_runs() -> None:
    @gesta.tool(effect="once", on_doubt="tell")
    async def pay(cents: int) -> str:
        """Pay."""
        raise TimeoutError

    child = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay", cents=5), "paid"), tools=[pay])
    agent = acting(gesta.call("pay", cents=6), gesta.call("payer", task="pay"), "ok", tools=[child.as_tool(), pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go")
        assert waits(outcome) == ["approval"]
        below = next(row.run for row in await record.store.runs() if row.parent_run == outcome.run)
        state = await record.state(below)
        assert [call.asked is not None for call in state.calls.values()] == [True]
        opened = found(await record.read(below), BeginContent)[0].opened
        assert (opened.doubts, opened.depth) == (["pay"], 1)


async def test_agents_call_agents_no_deeper_than_the_policy_allows() -> None:
    def again(messages: Any, _header: Any) -> Any:
        last = messages[-1]
        return str(last["content"])[:200] if last["role"] == "tool" else gesta.call("deep", task="go deeper")

    @gesta.tool(effect="pure")
    async def deep(task: str, context: gesta.Context) -> Any:
        """Ask the same agent again."""
        return (await context.call(agent, task)).value

    policy = gesta.Policy(limits=gesta.Limits(depth=3))
    agent = gesta.Agent("digger", model=gesta.function(again), tools=[deep], policy=policy)
    async with gesta.open() as record:
        outcome = await record.run(agent, "dig")
        rows = await record.store.runs()
    assert len(rows) == 4
    assert "agents may call agents 3 deep" in str(outcome.answer)


async def test_a_model_that_calls_too_deep_again_after_it_was_told_ends_every_turn_above() -> None:
    @gesta.tool(effect="pure")
    async def deep(task: str, context: gesta.Context) -> Any:
        """Ask the same agent again."""
        return (await context.call(agent, task)).value

    def again(*_: Any) -> Any:
        return gesta.call("deep", task="go deeper")

    agent = gesta.Agent("digger", model=gesta.function(again), tools=[deep])
    async with gesta.open() as record:
        outcome = await record.run(agent, "dig")
        rows = await record.store.runs()
        states = [await record.state(row.run) for row in rows]
    assert len(rows) == 9
    assert {state.turn.reason for state in states if state.turn is not None} == {"limit"}
    assert outcome.reason == "limit" and outcome.error is not None and outcome.error.type == "depth"
    found = "This run has 8 runs above it; agents may call agents 8 deep"
    assert outcome.error.message == f"{found}. Raise Policy(limits=Limits(depth=8)) if that is meant."
    assert sum(state.turn.requests for state in states if state.turn is not None) == 10


async def test_a_program_that_calls_itself_ends_at_the_bound_of_depth_with_every_turn_above() -> None:
    async def program(verbs: Any, task: str) -> str:
        for number in range(100):
            with suppress(Exception):
                await verbs.call(agent, task, f"again {number}")
        return "never"

    agent = gesta.Agent("digger", program=program)
    async with gesta.open() as record:
        outcome = await record.run(agent, "dig")
        rows = await record.store.runs()
        again = await record.resume(outcome.run, agent)
    assert len(rows) == 9
    assert outcome.reason == "limit" and outcome.error is not None and outcome.error.type == "depth"
    assert again == outcome


@gesta.tool(effect="once", approval=True)
async def wire() -> str:
    """Wire."""
    return "wired"


async def test_a_message_waits_behind_a_turn_that_waits_for_somebody() -> None:
    agent = acting(gesta.call("wire"), "done", "and that too", tools=[wire])
    async with gesta.open() as record:
        first = await record.run(agent, "wire it", session="s", key="a")
        behind = await record.run(agent, "and this", session="s", key="b")
        again = await record.run(agent, "and this", session="s", key="b")
        assert (behind.queued, behind.turn, waits(behind)) == (True, first.turn, ["approval"])
        assert again.queued
        of = first.waiting[0].of
        assert of is not None
        approved = gesta.kinds.ApprovalContent(of=of, verdict="approved", by="ann")
        await record.send(first.run, approved, key="ap")
        assert (await record.resume(first.run, agent)).answer == "done"
        last = await record.run(agent, "and this", session="s", key="b")
        turns = found(await record.read(first.run), BeginContent)
    assert (last.answer, last.queued) == ("and that too", False)
    assert [turn.key for turn in turns] == ["a", "b"]


async def test_a_message_may_take_the_place_of_an_open_turn() -> None:
    agent = acting(gesta.call("wire"), "other", tools=[wire], policy=gesta.Policy(when_busy="replace"))
    async with gesta.open() as record:
        first = await record.run(agent, "wire it", session="s")
        assert (await record.run(agent, "no, this", session="s")).answer == "other"
        ends = found(await record.read(first.run), EndContent)
    assert [end.reason for end in ends] == ["cancelled", "answered"]


async def test_a_message_to_an_open_turn_may_be_an_error() -> None:
    agent = acting(gesta.call("wire"), "other", tools=[wire], policy=gesta.Policy(when_busy="raise"))
    async with gesta.open() as record:
        await record.run(agent, "wire it", session="s")
        with pytest.raises(TurnOpen):
            await record.run(agent, "and this", session="s")


async def test_a_key_stands_for_one_message() -> None:
    agent = acting("paid", "other")
    async with gesta.open() as record:
        await record.run(agent, "pay 5", session="s", key="k")
        with pytest.raises(OtherMessage, match=r"stands for the message 'pay 5', and now comes with 'pay 6'"):
            await record.run(agent, "pay 6", session="s", key="k")
        assert (await record.run(agent, "pay 5", session="s", key="k")).answer == "paid"


async def test_a_turn_in_which_processes_die_without_progress_waits_for_a_person(tmp_path: Path) -> None:
    path = str(tmp_path / "r.gesta")
    program = """
import os, sys, gesta
agent = gesta.Agent("desk", model=gesta.function(lambda messages, header: os._exit(9)), policy=gesta.Policy(deaths=2))
print(gesta.run_sync(agent, "go", record=sys.argv[1], session="s", key="k").waiting[0].what)
"""
    codes = [programs.run(["-c", program, path]) for _ in range(4)]
    assert [each.returncode for each in codes] == [9, 9, 0, 0]
    assert codes[-1].stdout == "deaths\n"
    well = acting("alive", policy=gesta.Policy(deaths=2))
    async with gesta.open(path) as record:
        run = (await record.find("s")).run
        assert waits(await record.resume(run, well, by=None)) == ["deaths"]
        assert (await record.resume(run, well)).answer == "alive"
        assert [each.by for each in found(await record.read(run), SignalContent)] == ["resume"]


async def test_a_program_in_which_processes_die_waits_for_a_person(tmp_path: Path) -> None:
    path = str(tmp_path / "r.gesta")
    program = """
import os, sys, gesta
async def work(verbs, text):
    await verbs.ask("go on", "Go on?")
    os._exit(9)
agent = gesta.Agent("desk", program=work, policy=gesta.Policy(deaths=2))
print(gesta.run_sync(agent, "go", record=sys.argv[1], session="s", key="k").waiting[0].what)
"""
    command = ["-c", program, path]
    assert programs.run(command).stdout.split() == ["question"]
    async with gesta.open(path) as record:
        await record.answer((await record.find("s")).run, "yes", by="ann")
    codes = [programs.run(command) for _ in range(4)]
    assert [each.returncode for each in codes] == [9, 9, 0, 0]
    assert codes[-1].stdout.split() == ["deaths"]

    async def well(verbs: Any, text: str) -> str:
        await verbs.ask("go on", "Go on?")
        return text

    async with gesta.open(path) as record:
        agent = gesta.Agent("desk", program=well, policy=gesta.Policy(deaths=2))
        assert (await record.resume((await record.find("s")).run, agent)).answer == "go"


async def test_a_subprocess_of_an_attempt_counts_until_it_has_ended(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []
    keys = []

    @gesta.tool(effect="once", reconcile=lambda _key: gesta.NotDone())
    def pay(context: gesta.Context) -> str:
        """Pay."""
        keys.append(context.key)
        if len(keys) == 1:
            started.append(context.popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
            raise TimeoutError
        return "paid"

    agent = acting(gesta.call("pay"), "ok", tools=[pay])
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        first = await record.run(agent, "go", session="s", key="k")
        assert (waits(first), len(keys)) == (["doubt"], 1)
        started[0].communicate(b"\n")
        assert (await record.run(agent, "go", session="s", key="k")).answer == "ok"
    assert len(keys) == 2


async def test_an_attempt_that_cannot_be_prepared_gives_its_thread_back() -> None:
    class Full(MemoryStore):
        def keep(self) -> Any:
            raise OSError(24, "Too many open files")

    pay = gesta.tool(lambda: "paid", name="pay", effect="idempotent")
    record = Record(Full(), bind)
    with pytest.raises(OSError, match="Too many open files"):
        await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go")
    slots = [outlive.ThreadSlot() for _ in range(outlive.THREADS)]
    assert all(slot.free() for slot in slots)
    for slot in slots:
        slot.leave()


async def test_a_subprocess_that_has_ended_does_not_stay_a_zombie_when_a_tool_starts_another() -> None:
    started: list[tuple[int, Any]] = []

    @gesta.tool(effect="pure")
    def begin(context: gesta.Context) -> str:
        """Begin something in the background."""
        child = context.popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        started.append((child.pid, child.stdin))
        return "begun"

    def ended(pid: int) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    async with gesta.open() as record:
        for _ in range(2):
            await record.run(acting(gesta.call("begin"), "ok", tools=[begin]), "go")
            pid, given = started[-1]
            given.write(b"\n")
            given.close()
            ended(pid)
    with pytest.raises(ChildProcessError):
        ended(started[0][0])


async def test_a_subprocess_keeps_its_attempt_from_being_over_after_its_process_died(tmp_path: Path) -> None:
    path = str(tmp_path / "r.gesta")
    program = """
import os, subprocess, sys, gesta
@gesta.tool(effect="once")
def pay(context: gesta.Context) -> str:
    "Pay."
    child = context.popen([sys.executable, "-c", "input()"], stdin=0, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    os._exit(9)
agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "ok"), tools=[pay])
gesta.run_sync(agent, "go", record=sys.argv[1], session="s", key="k")
"""
    async with await anyio.open_process([sys.executable, "-c", program, path]) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        await process.stdout.receive()
        await process.wait()
        async with gesta.open(path) as record:
            row = await record.find("s")
            attempt = found(await record.read(row.run), AttemptContent)[0]
            assert await record.store.gone(attempt.process) is False
            await process.stdin.aclose()
            with anyio.fail_after(10):
                while await record.store.gone(attempt.process) is not True:
                    await anyio.lowlevel.checkpoint()


async def test_a_result_that_comes_while_the_turn_is_left_is_on_record_when_it_goes_on() -> None:
    started, go = anyio.Event(), anyio.Event()

    @gesta.tool(effect="once")
    async def pay() -> str:
        """Pay."""
        started.set()
        await go.wait()
        return "paid"

    async with gesta.open(grace_s=20) as record:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(partial(_cancel_when, started, scope, go))
                await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go", session="s", key="k")
        outcome = await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go", session="s", key="k")
        entries = await record.read(outcome.run)
    assert outcome.answer == "ok"
    assert len(found(entries, AttemptContent)) == 1
    assert not found(entries, FaultContent)


class Leaving(MemoryStore):
    """A store that has the caller of a turn stop waiting while the first attempt is committed."""

    scope: anyio.CancelScope | None = None

    async def append(self, batch: Batch) -> int:
        head = await super().append(batch)
        if self.scope is not None and any(row.kind == Kind.Attempt for row in batch.rows):
            self.scope.cancel()
            self.scope = None
            for _ in range(5):  # until the turn is asked to stop
                await anyio.lowlevel.checkpoint()
        return head


@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_no_effect_begins_whose_caller_left_while_its_attempt_was_committed(effect: Any) -> None:
    paid: list[int] = []

    @gesta.tool(effect=effect)
    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    agent = acting([gesta.call("pay", cents=cents) for cents in (1, 2)], "ok", tools=[pay])
    record = Record(store := Leaving(), bind)
    with anyio.CancelScope() as scope:
        store.scope = scope
        await record.run(agent, "go", session="s", key="k")
    assert scope.cancelled_caught
    assert paid == []
    outcome = await record.run(agent, "go", session="s", key="k")
    assert (outcome.answer, sorted(paid)) == ("ok", [1, 2])


async def _cancel_when(started: anyio.Event, scope: anyio.CancelScope, go: anyio.Event) -> None:
    await started.wait()
    scope.cancel()
    await anyio.lowlevel.checkpoint()
    go.set()


async def test_a_reader_of_a_stream_that_leaves_may_stop_its_turn() -> None:
    policy = gesta.Policy(when_left="stop")

    @gesta.tool(effect="pure")
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    agent = acting(gesta.call("hang"), "ok", tools=[hang], policy=policy)
    async with gesta.open(grace_s=0) as record:
        stream = record.stream(agent, "go", session="s", key="k")
        async for _ in stream:
            break
        with anyio.fail_after(10):
            await stream.ended.wait()
        state = await record.state((await record.find("s")).run)
    assert state.open


async def test_a_cancellation_that_came_before_an_attempt_was_on_record_keeps_it_from_beginning() -> None:
    tried = []

    @gesta.tool(effect="once")
    async def pay() -> str:
        """Pay."""
        tried.append(1)
        return "paid"

    class Telling(MemoryStore):
        """Somebody cancels in the instant before the attempt is committed."""

        async def append(self, batch: Batch) -> int:
            if any(row.kind == "attempt" for row in batch.rows):
                await self.send(Letter(batch.lease.run, "c", encode_content(SignalContent(name="cancel", by="ann"))))
            return await super().append(batch)

    record = Record(Telling(), bind)
    outcome = await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go")
    entries = await record.read(outcome.run)
    assert (outcome.reason, tried) == ("cancelled", [])
    assert [fault.error.type for fault in found(entries, FaultContent)] == ["unstarted"]


def test_a_result_that_comes_after_the_program_stopped_waiting_is_kept_though_the_record_is_closed(
    tmp_path: Path,
) -> None:
    path, go, before = str(tmp_path / "r.gesta"), threading.Event(), threading.enumerate()

    @gesta.tool(effect="once", timeout_s=0.02)
    def pay() -> str:
        """Pay."""
        go.wait(10)
        return "paid"

    agent = acting(gesta.call("pay"), "ok", tools=[pay])
    assert waits(gesta.run_sync(agent, "go", record=path, session="s", key="k")) == ["doubt"]
    working = [each for each in threading.enumerate() if each.name == "gesta tool" and each not in before]
    go.set()
    for thread in working:
        thread.join(10)
    assert gesta.run_sync(agent, "go", record=path, session="s", key="k").answer == "ok"
    with gesta.open_sync(path) as record:
        entries = record.read(record.find("s").run)
    assert [result.tool_result for result in found(entries, ToolResultContent)] == ["paid"]


def logged(function: Any) -> Any:
    """Return a decorated function: it is not async, although what it calls may be."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize(("effect", "tries"), [("once", 1), ("idempotent", 2), ("pure", 2)])
async def test_an_async_tool_under_a_plain_decorator_that_is_broken_off_has_no_result(effect: Any, tries: int) -> None:
    begun = list[int]()

    @gesta.tool(effect=effect, timeout_s=0.05)
    @logged
    async def pay() -> str:
        """Pay."""
        begun.append(1)
        if len(begun) == 1:
            await anyio.sleep_forever()
        return "paid"

    async with gesta.open() as record:
        outcome = await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go")
        entries = await record.read(outcome.run)
    assert len(begun) == tries
    assert (waits(outcome), outcome.answer) == ((["doubt"], None) if tries == 1 else ([], "ok"))
    assert [result.tool_result for result in found(entries, ToolResultContent)] == ["paid"] * (tries - 1)


async def test_an_async_tool_that_its_decorator_began_too_late_is_in_doubt() -> None:
    gate, begun = threading.Event(), list[int]()

    def slowed(function: Any) -> Any:
        @functools.wraps(function)
        def call() -> Any:
            gate.wait(10)
            return function()

        return call

    @gesta.tool(effect="once", timeout_s=0.05)
    @slowed
    async def pay() -> str:
        """Pay."""
        begun.append(1)
        return "paid"

    agent = acting(gesta.call("pay"), "ok", tools=[pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", session="s")
        assert waits(outcome) == ["doubt"]
        gate.set()
        while not await record.store.inbox(outcome.run):
            await checkpoint()
        outcome = await record.resume("s", agent)
        assert (waits(outcome), begun) == (["doubt"], [])
        await record.resolve(outcome.waiting[0], "retry", by="Ada")
        assert (await record.resume("s", agent)).answer == "ok"
    assert begun == [1]


async def test_a_message_may_take_the_place_of_a_turn_that_is_at_work() -> None:
    started, go = anyio.Event(), anyio.Event()

    @gesta.tool(effect="pure")
    async def look() -> str:
        """Look."""
        started.set()
        await go.wait()
        return "seen"

    agent = acting(gesta.call("look"), "other", tools=[look], policy=gesta.Policy(when_busy="replace"))
    outcomes: list[gesta.Outcome] = []

    async def first() -> None:
        outcomes.append(await record.run(agent, "look", session="s"))

    async with gesta.open() as record, anyio.create_task_group() as group:
        group.start_soon(first)
        await started.wait()
        run = (await record.find("s")).run

        async def let_go() -> None:
            while not await record.store.inbox(run):
                await anyio.lowlevel.checkpoint()
            go.set()

        group.start_soon(let_go)
        assert (await record.run(agent, "no, this", session="s")).answer == "other"
    assert [outcome.reason for outcome in outcomes] == ["cancelled"]


class Odd(BaseException):
    """As libraries raise it that must not be caught by accident."""


@pytest.mark.parametrize("raised", [Odd, GeneratorExit, SystemExit, RuntimeError])
@pytest.mark.parametrize("waits_too", [False, True])
async def test_whatever_reconcile_raises_is_one_way_of_not_knowing(
    raised: type[BaseException], *, waits_too: bool
) -> None:
    def at_once(_key: str) -> gesta.Done:
        raise raised

    async def later(_key: str) -> gesta.Done:
        raise raised

    @gesta.tool(effect="once", reconcile=later if waits_too else at_once)
    async def pay() -> str:
        """Pay."""
        raise gesta.InDoubt

    async with gesta.open() as record:
        assert waits(await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go")) == ["doubt"]


@pytest.mark.parametrize("raised", [Odd, GeneratorExit, SystemExit, StopIteration])
@pytest.mark.parametrize("effect", ["pure", "idempotent", "once"])
async def test_a_tool_may_raise_anything(raised: type[BaseException], effect: Any) -> None:
    @gesta.tool(effect=effect)
    def odd() -> str:
        """Raise."""
        raise raised

    async with gesta.open() as record:
        outcome = await record.run(acting(gesta.call("odd"), "ok", tools=[odd]), "go")
    known = effect == "pure" or issubclass(raised, Exception)
    assert (outcome.answer, waits(outcome)) == (("ok", []) if known else (None, ["doubt"]))


@pytest.mark.parametrize(
    "content",
    [
        EndContent(),
        ToolResultContent(tool_result="forged", call=6),
        AttemptContent(of=6, number=1, epoch=1),
        gesta.kinds.AssistantContent(value="forged"),
    ],
)
async def test_what_a_run_writes_itself_cannot_be_sent_to_it(content: Any) -> None:
    agent = acting(gesta.call("wire"), "done", tools=[wire])
    async with gesta.open() as record:
        first = await record.run(agent, "wire it", session="s")
        with pytest.raises(gesta.GestaError, match="is written by the run itself"):
            await record.send(first.run, content, key="x")
        moved = SignalContent(name="moved", by="nobody", to="elsewhere")
        for number, each in enumerate((content, moved)):  # past the door
            await record.store.send(Letter(first.run, f"late-{number}", encode_content(each)))
        assert waits(await record.resume(first.run, agent)) == ["approval"]


async def test_who_started_the_processes_may_be_asked_whether_one_has_ended(tmp_path: Path) -> None:
    here, there, paid = str(tmp_path / "here.gesta"), str(tmp_path / "there.gesta"), list[str]()
    program = """
import os, sys, gesta
@gesta.tool(effect="once")
def pay() -> str:
    "Pay."
    os._exit(9)
agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "ok"), tools=[pay])
gesta.run_sync(agent, "go", record=sys.argv[1], session="s", key="k")
"""
    programs.run(["-c", program, here])
    for part in ("", "-wal"):  # another file: the kernel cannot tell there whether that process lives
        shutil.copy(here + part, there + part)

    @gesta.tool(effect="once", reconcile=lambda _key: gesta.NotDone())
    async def pay() -> str:
        """Pay."""
        paid.append("once")
        return "paid"

    agent, asked = acting(gesta.call("pay"), "ok", tools=[pay]), list[str]()

    def gone(process: str) -> bool:
        asked.append(process)
        return len(asked) > 1

    async with gesta.open(there) as record:
        with pytest.raises(RunHeld, match="gesta gone"):  # nobody is there to be waited for
            await record.run(agent, "go", session="s", key="k")
    async with gesta.open(there, gone=gone) as record:
        run = (await record.find("s")).run
        with pytest.raises(RunHeld, match="cannot be looked up from here"):
            await record.resume(run, agent)
        assert (await record.resume(run, agent)).answer == "ok"
        assert await record.store.gone(asked[0]) is True
    assert (paid, len(asked)) == (["once"], 2)


async def test_an_attempt_that_was_never_begun_leaves_the_key_of_the_call_as_it_was() -> None:
    keys, told = list[str](), list[bool]()

    @gesta.tool(effect="idempotent")
    async def pay(context: gesta.Context) -> str:
        """Pay."""
        keys.append(context.key)
        if len(keys) == 1:
            raise TimeoutError
        return "paid"

    class Telling(MemoryStore):
        """Somebody says something in the instant before the second attempt is committed."""

        async def append(self, batch: Batch) -> int:
            if keys and not told and any(row.kind == "attempt" for row in batch.rows):
                told.append(True)
                await self.send(Letter(batch.lease.run, "w", encode_content(SignalContent(name="wake", by="ann"))))
            return await super().append(batch)

    record = Record(Telling(), bind)
    outcome = await record.run(acting(gesta.call("pay"), "ok", tools=[pay]), "go")
    entries = await record.read(outcome.run)
    assert (outcome.answer, told) == ("ok", [True])
    assert [fault.error.type for fault in found(entries, FaultContent)] == ["TimeoutError", "unstarted"]
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_process_that_lost_its_run_while_it_stood_still_begins_nothing() -> None:
    tried = []

    @gesta.tool(effect="once")
    async def pay() -> str:
        """Pay."""
        tried.append(1)
        return "paid"

    class Stopped(MemoryStore):
        """The process stands still after an attempt is on record, and another one takes the run."""

        async def append(self, batch: Batch) -> int:
            pos = await super().append(batch)
            if any(row.kind == "attempt" for row in batch.rows) and not tried:
                await self.release(batch.lease)
                tried.append(0)
            return pos

    store = Stopped()
    record, agent = Record(store, bind), acting(gesta.call("pay"), "ok", tools=[pay])
    with pytest.raises(LeaseLost):
        await record.run(agent, "go", session="s", key="k")
    assert tried == [0]
    assert (await record.run(agent, "go", session="s", key="k")).answer == "ok"
    entries = await record.read((await record.find("s")).run)
    assert (tried, [fault.error.type for fault in found(entries, FaultContent)]) == ([0, 1], ["unstarted"])


class FailingOnce(MemoryStore):
    """The commit of the first attempt of a tool fails, though it was done or not, and so may the next write."""

    def __init__(self, *, done: bool, longer: bool) -> None:
        super().__init__()
        self.done, self.longer, self.left = done, longer, 1

    async def append(self, batch: Batch) -> int:
        if self.left and any(row.kind == "attempt" for row in batch.rows):
            self.left -= 1
            if self.done:
                await super().append(batch)
            raise WriteFailed(":memory:", "the connection is gone")
        return await super().append(batch)

    async def send(self, letter: Letter) -> bool:
        if self.longer and letter.key.startswith("late-"):
            self.longer = False
            raise WriteFailed(":memory:", "the connection is still gone")
        return await super().send(letter)


@pytest.mark.parametrize("effect", ["pure", "idempotent", "once", "agent"])
@pytest.mark.parametrize("longer", [False, True])
@pytest.mark.parametrize("done", [False, True])
async def test_an_attempt_whose_commit_failed_and_was_done_is_known_to_be_unstarted(
    effect: Any, *, done: bool, longer: bool
) -> None:
    tried = []

    async def pay() -> str:
        """Pay."""
        tried.append(1)
        return "paid"

    store = FailingOnce(done=done, longer=longer)
    record = Record(store, bind)
    if effect == "agent":
        payer = acting(gesta.call("pay"), "paid", tools=[gesta.tool(pay, effect="once")]).as_tool("pay")
        agent = acting(gesta.call("pay", task="pay"), "ok", tools=[payer])
    else:
        agent = acting(gesta.call("pay"), "ok", tools=[gesta.tool(pay, effect=effect)])
    with pytest.raises(WriteFailed):
        await record.run(agent, "go", session="s", key="k")
    if longer:
        await record.run(acting("hello"), "hi", session="another")
    if done:
        assert len(await store.inbox((await record.find("s")).run)) == 1, "whoever goes on is told"
    outcome = await record.run(agent, "go", session="s", key="k")
    entries = await record.read(outcome.run)
    assert (outcome.answer, tried) == ("ok", [1])
    assert [fault.error.type for fault in found(entries, FaultContent)].count("unstarted") == done
    assert not [entry for entry in entries if getattr(entry.content, "key", None) == "gesta.stray"]


@pytest.mark.parametrize("lost", [False, True], ids=["", "whose run was taken meanwhile"])
@pytest.mark.parametrize("blocks", [False, True])
async def test_a_process_that_stood_still_before_it_called_a_function_looks_again(
    monkeypatch: pytest.MonkeyPatch, *, blocks: bool, lost: bool
) -> None:
    tried = []

    async def later() -> str:
        """Pay."""
        tried.append(1)
        return "paid"

    def at_once() -> str:
        """Pay."""
        tried.append(1)
        return "paid"

    attempts: list[Any] = []

    class Slow(MemoryStore):
        """The process stands still after its first attempt is on record, and not after its second."""

        async def append(self, batch: Batch) -> int:
            if lost and len(attempts) == 1 and any(row.kind == "fault" for row in batch.rows):
                attempts.append(None)
                raise LeaseLost(batch.lease.run, "the lease", "that another process has taken it")
            attempts.extend(row for row in batch.rows if row.kind == "attempt")
            monkeypatch.setattr(outlive, "STALE_S", -1.0 if len(attempts) < 2 else 60.0)
            return await super().append(batch)

    tool = gesta.tool(at_once if blocks else later, name="pay", effect="once")
    record, agent = Record(Slow(), bind), acting(gesta.call("pay"), "ok", tools=[tool])
    if lost:
        with pytest.raises(LeaseLost):
            await record.run(agent, "go", session="s", key="k")
    outcome = await record.run(agent, "go", session="s", key="k")
    entries = await record.read(outcome.run)
    assert (outcome.answer, tried) == ("ok", [1])
    assert [fault.error.type for fault in found(entries, FaultContent) if fault.error.type != "lost"] == ["unstarted"]


@pytest.mark.parametrize("settled", ["late", "by a person"])
async def test_a_doubt_that_was_settled_after_its_turn_ended_asks_for_no_approval_any_more(settled: str) -> None:
    gate, paid = threading.Event(), list[int]()

    @gesta.tool(effect="once", timeout_s=0.05, on_doubt="tell")
    def pay(number: int) -> str:
        """Pay."""
        if number == 1:
            gate.wait(10)
        paid.append(number)
        return f"paid {number}"

    script = (gesta.call("pay", number=1), "One?", "Yes.", gesta.call("pay", number=2), "Two.")
    agent = gesta.Agent("desk", model=gesta.scripted(*script), tools=[pay])
    async with gesta.open() as record:
        first = await record.run(agent, "Pay one.", session="s")
        assert (first.answer, (await record.state("s")).doubts()) == ("One?", {"pay"})
        if settled == "late":
            gate.set()
            while not await record.store.inbox(first.run):
                await checkpoint()
        else:
            attempt = next(each.seq for each in await record.read("s") if each.kind == "attempt")
            verdict = ResolutionContent(of=attempt, verdict="done", by="Ada", result="paid 1")
            assert await record.send(first.run, verdict, key="told")
        await record.run(agent, "And?", session="s")
        assert (await record.state("s")).doubts() == set()
        last = await record.run(agent, "Pay two.", session="s")
        assert (last.reason, last.answer) == ("answered", "Two.")
        gate.set()


@pytest.mark.parametrize(
    ("errors", "read"),
    [
        ([ValueError("no shop 17")], "ValueError: no shop 17"),
        ([gesta.ToolError("Ask for the city.")], "Ask for the city."),
        ([ValueError("no shop 17"), KeyError("city")], "ExceptionGroup: ValueError: no shop 17; KeyError: 'city'"),
        ([ExceptionGroup("", [OSError()]), ValueError("no")], "ExceptionGroup: OSError; ValueError: no"),
    ],
)
async def test_the_model_reads_what_the_tasks_of_a_tool_raised(errors: list[Exception], read: str) -> None:
    def look() -> str:
        """Look."""
        raise ExceptionGroup("unhandled errors in a TaskGroup", errors)

    agent = acting(gesta.call("look"), "ok", tools=[gesta.tool(look, effect="pure")])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go")
        (result,) = found(await record.read(outcome.run), ToolResultContent)
    assert result.tool_result == read


async def test_a_doubt_in_a_task_of_a_tool_says_why() -> None:
    def pay() -> str:
        """Pay."""
        raise ExceptionGroup("unhandled errors in a TaskGroup", [gesta.InDoubt("the bank did not answer")])

    async with gesta.open() as record:
        outcome = await record.run(acting(gesta.call("pay"), "ok", tools=[gesta.tool(pay, effect="once")]), "go")
    assert [(each.what, each.why) for each in outcome.waiting] == [("doubt", "the bank did not answer")]
