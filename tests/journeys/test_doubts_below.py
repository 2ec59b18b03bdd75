"""A payment in a run below is in doubt, and nobody waits for that run any more: the next payment needs a person."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

import gesta
from gesta.compare.replaying import replay_run
from gesta.hooks import Hooks
from gesta.kinds import (
    BeginContent,
    CheckContent,
    CompactionContent,
    EndContent,
    ResolutionContent,
    SystemContent,
    ToolResultContent,
)
from gesta.patterns.plan import plan_then_execute
from gesta.policy import Compact

Paid = list[int]


def purse(on_doubt: Any = "ask") -> tuple[gesta.Tool, Paid]:
    """Return a tool that pays, and the list of its payments. Of the first payment nobody knows whether it happened."""
    paid: Paid = []

    @gesta.tool(effect="once", on_doubt=on_doubt)
    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        if len(paid) == 1:
            raise gesta.InDoubt("the bank gave no answer")
        return "paid"

    return pay, paid


def slow_purse() -> tuple[gesta.Tool, Paid, anyio.Event]:
    """Return a tool that pays, the list of its payments, and an event: the first payment has begun, and never ends."""
    paid, paying = list[int](), anyio.Event()

    @gesta.tool(effect="once")
    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        if len(paid) == 1:
            paying.set()
            await anyio.sleep_forever()
        return "paid"

    return pay, paid, paying


def payer(pay: gesta.Tool, name: str = "payer") -> gesta.Agent:
    def think(messages: Any, _header: Any) -> Any:
        return gesta.call("pay", cents=5) if messages[-1]["role"] != "tool" else "That is what I know."

    return gesta.Agent(name, model=gesta.function(think), tools=[pay])


def planned(pay: gesta.Tool) -> gesta.Agent:
    def think(messages: Any, header: Any) -> Any:
        name = header.meta["prompt"]["name"]
        if name == "plan":
            return json.dumps({"steps": [{"goal": "pay 5", "dependencies": []}]})
        if name == "execute" and messages[-1]["role"] != "tool":
            return gesta.call("pay", cents=5)
        return "All paid."

    return plan_then_execute("desk", gesta.function(think), tools=[pay])


def programmed(pay: gesta.Tool) -> gesta.Agent:
    async def program(verbs: gesta.Verbs, task: str) -> str:
        return (await verbs.call(payer(pay), task, "pay")).text

    return gesta.Agent("desk", program=program)


def two_deep(pay: gesta.Tool) -> gesta.Agent:
    async def program(verbs: gesta.Verbs, task: str) -> str:
        return (await verbs.call(programmed(pay), task, "desk")).text

    return gesta.Agent("house", program=program)


def delegating(pay: gesta.Tool) -> gesta.Agent:
    """Return an agent whose agent pays in the first turn, and that pays itself in the second."""
    model = gesta.scripted(gesta.call("payer", task="pay"), gesta.call("pay", cents=5), "Done.")
    return gesta.Agent("desk", model=model, tools=[payer(pay).as_tool(), pay])


def stands(outcome: gesta.Outcome) -> list[tuple[str, str | None]]:
    return [(each.what, each.tool) for each in outcome.waiting]


@pytest.mark.parametrize("made", [planned, programmed, two_deep, delegating])
@pytest.mark.parametrize("how", ["cancel", "replace"])
async def test_a_turn_that_is_ended_above_a_doubt_keeps_it_and_the_next_payment_needs_a_person(
    made: Callable[[gesta.Tool], gesta.Agent], how: str
) -> None:
    pay, paid = purse()
    agent = replace(made(pay), policy=gesta.Policy(when_busy="replace"))
    async with gesta.open() as record:
        assert stands(await record.run(agent, "pay", session="s")) == [("doubt", "pay")]
        if how == "cancel":
            await record.cancel("s", by="ann")
        again = await record.run(agent, "pay again", session="s")
        ended = [each.content for each in await record.read(again.run) if isinstance(each.content, EndContent)]
        first = next(each for each in ended if each.reason == "cancelled")
        assert "pay" in (first.doubts or ())
        assert first.below == ["pay"]
        assert (stands(again), paid) == ([("approval", "pay")], [5])
        await record.approve(again.waiting[0], by="ann")
        assert (await record.resume(again.run, agent)).reason == "answered"
        assert await record.verify() == []
        if how == "cancel" and made is not planned:
            runs = {row.run: await record.read(row.run) for row in await record.store.runs("s")}
            assert (await replay_run(runs, again.run, agent)).divergence is None
    assert paid == [5, 5]


async def test_a_program_that_fails_beside_a_payment_at_work_leaves_it_in_doubt() -> None:
    paid: Paid = []
    begun, turns = anyio.Event(), []

    @gesta.tool(effect="once")
    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        begun.set()
        if len(paid) == 1:
            await anyio.sleep_forever()
        return "paid"

    async def program(verbs: gesta.Verbs, task: str) -> str:
        turns.append(task)
        left = asyncio.ensure_future(verbs.call(payer(pay), task, "pay"))
        if len(turns) == 1:
            await begun.wait()
            raise ValueError("a bug")
        return (await left).text

    agent = gesta.Agent("desk", program=program)
    async with gesta.open() as record:
        first = await record.run(agent, "pay", session="s")
        assert (first.reason, first.doubts) == ("failed", ("pay",))
        assert stands(await record.run(agent, "pay again", session="s")) == [("approval", "pay")]
    assert paid == [5]


async def test_a_doubt_below_outlives_the_settling_of_one_of_the_same_tool_above() -> None:
    pay, paid = purse()
    both = [gesta.call("payer", task="pay"), gesta.call("pay", cents=1)]  # the agent begins before the doubt
    model = gesta.scripted(both, gesta.call("pay", cents=7), "Done.")

    @gesta.tool(effect="once", name="pay")
    async def doubtful(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        raise gesta.InDoubt("no answer")

    agent = gesta.Agent("desk", model=model, tools=[pay, payer(doubtful).as_tool()])
    async with gesta.open() as record:
        first = await record.run(agent, "pay", session="s")
        own = next(each for each in first.waiting if each.run == first.run and each.what == "doubt")
        await record.cancel("s", by="ann")
        await record.resolve(own, "failed", by="ann")
        again = await record.run(agent, "pay again", session="s")
    assert (stands(again), sorted(paid)) == ([("approval", "pay")], [1, 5])


@pytest.mark.parametrize("now_calls", ["accountant", None], ids=["another agent", "no agent"])
async def test_a_tool_that_was_changed_not_to_call_its_agent_again_knows_what_that_agent_left_in_doubt(
    now_calls: str | None,
) -> None:
    pay, paid = purse()

    def versioned_desk(calls: str | None, *script: Any) -> gesta.Agent:
        @gesta.tool(effect="once")
        async def settle(context: gesta.Context) -> str:
            """Have a bill paid."""
            return "by hand" if calls is None else str((await context.call(payer(pay, calls), "pay")).answer)

        return gesta.Agent("desk", model=gesta.scripted(gesta.call("settle"), *script), tools=[settle, pay])

    async with gesta.open() as record:
        assert stands(await record.run(versioned_desk("clerk"), "pay", session="s")) == [("doubt", "pay")]
        later = versioned_desk(now_calls, gesta.call("pay", cents=6), "Done.")
        outcome = await record.resume("s", later)
        assert (stands(outcome), paid) == ([("approval", "pay")], [5])
        await record.approve(outcome.waiting[0], by="ann")
        assert (await record.resume("s", later)).doubts == ("pay",)
        runs = {row.run: await record.read(row.run) for row in await record.store.runs("s")}
        assert (await replay_run(runs, outcome.run, later)).divergence is None


async def test_a_tool_that_gives_up_above_a_doubt_says_so_with_its_result() -> None:
    pay, paid = purse("tell")
    told = anyio.Event()

    async def think(messages: Any, _header: Any) -> Any:
        if messages[-1]["role"] != "tool":
            return gesta.call("pay", cents=5)
        told.set()
        return await anyio.sleep_forever()

    below = gesta.Agent("payer", model=gesta.function(think), tools=[pay])

    @gesta.tool(effect="once", timeout_s=0.2, on_doubt="tell")
    async def slow(context: gesta.Context) -> str:
        """Pay, and take too long for it."""
        return (await context.call(below, "pay")).answer or ""

    @gesta.tool(effect="once")
    async def hasty(context: gesta.Context) -> str:
        """Pay, and return before that is done."""
        paying = asyncio.ensure_future(context.call(below, "pay"))
        await told.wait()
        paying.cancel()
        await asyncio.wait([paying])
        return "I did not wait."

    for tool, outcome in ((slow, "unknown"), (hasty, "ok")):
        paid.clear()
        model = gesta.scripted(gesta.call(tool.name), gesta.call("pay", cents=6), "Done.")
        async with gesta.open() as record:
            ended = await record.run(gesta.Agent("desk", model=model, tools=[tool, pay]), "pay")
            result = next(e.content for e in await record.read(ended.run) if isinstance(e.content, ToolResultContent))
            assert (result.outcome, result.doubts) == (outcome, ["pay"])
        assert (stands(ended), paid) == ([("approval", "pay")], [5])


async def test_a_person_who_settles_a_tool_does_not_settle_what_its_agent_left_in_doubt() -> None:
    pay, paid = purse()

    @gesta.tool(effect="once")
    async def desk(context: gesta.Context) -> str:
        """Pay by an agent, and do not even let it wait."""
        try:
            await context.call(payer(pay), "pay")
        except BaseException as wait:
            raise gesta.InDoubt("who knows") from wait
        return "paid"

    model = gesta.scripted(gesta.call("desk"), gesta.call("pay", cents=6), "Done.")
    agent = gesta.Agent("boss", model=model, tools=[desk, pay])
    async with gesta.open() as record:
        first = await record.run(agent, "pay", session="s")
        own = next(each for each in first.waiting if each.tool == "desk")
        await record.resolve(own, "failed", by="ann")
        again = await record.resume(first.run, agent)
    assert (stands(again), paid) == ([("approval", "pay")], [5])


async def test_what_the_agent_of_a_hook_left_in_doubt_is_known_to_the_agent() -> None:
    pay, paid = purse("tell")

    async def judge(_text: str, context: gesta.Context) -> None:
        await context.call(payer(pay, "judge"), "pay")

    model = gesta.scripted(gesta.call("pay", cents=6), "Done.")
    agent = gesta.Agent("desk", model=model, tools=[pay], hooks=Hooks(message=judge))
    async with gesta.open() as record:
        outcome = await record.run(agent, "pay")
        check = next(e.content for e in await record.read(outcome.run) if isinstance(e.content, CheckContent))
        assert check.doubts == ["pay"]
    assert (stands(outcome), paid) == ([("approval", "pay")], [5])


@pytest.mark.parametrize("on_doubt", ["tell", "ask"])
async def test_what_the_agent_that_summarises_left_in_doubt_is_known_to_the_agent(on_doubt: str) -> None:
    pay, paid = purse(on_doubt)
    compact = Compact(at_tokens=10, keep_turns=1, results_over=None, by=payer(pay, "clerk"))
    model = gesta.scripted("One.", "Two.", gesta.call("pay", cents=6), "Done.")
    agent = gesta.Agent("desk", model=model, tools=[pay], policy=gesta.Policy(compact=compact))
    async with gesta.open() as record:
        for text in ("one " * 50, "two " * 50):
            await record.run(agent, text, session="s")
        outcome = await record.run(agent, "pay", session="s")
        left = next(e.content for e in await record.read(outcome.run) if isinstance(e.content, CompactionContent))
        assert left.doubts == ["pay"]
    assert (stands(outcome), paid) == ([("approval", "pay")], [5])


async def test_a_run_that_takes_several_turns_learns_of_a_doubt_that_came_beside_it() -> None:
    pay, paid = purse("tell")

    def think(messages: Any, _header: Any) -> Any:
        return gesta.call("pay", cents=6) if messages[-1]["content"] == "pay" else "Good morning."

    clerk = gesta.Agent("clerk", model=gesta.function(think), tools=[pay])

    async def program(verbs: gesta.Verbs, _task: str) -> str:
        await verbs.go_on(clerk, SystemContent(value="hello"), "one", thread="T")
        await verbs.call(payer(pay), "pay", "two")
        return (await verbs.go_on(clerk, SystemContent(value="pay"), "three", thread="T")).text

    agent = gesta.Agent("desk", program=program)
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", session="s")
        runs = {row.run: await record.read(row.run) for row in await record.store.runs("s")}
        below = next(entries for run, entries in runs.items() if run == outcome.waiting[0].run)
        begun = [each.content for each in below if isinstance(each.content, BeginContent)]
        assert [each.doubts for each in begun] == [None, ["pay"]]
        for run, by in ((outcome.run, agent), (outcome.waiting[0].run, clerk)):
            assert (await replay_run(runs, run, by)).divergence is None
    assert (stands(outcome), paid) == ([("approval", "pay")], [5])


async def test_a_doubt_that_a_person_settled_is_not_brought_back_by_a_run_that_it_was_told_to() -> None:
    pay, paid = purse("tell")
    idle = gesta.Agent("idle", model=gesta.function(lambda *_: "Good morning."), tools=[pay])
    script: list[Any] = [
        gesta.call("pay", cents=5),
        gesta.call("idle", task="hello"),
        "One.",
        gesta.call("pay", cents=6),
        "Two.",
    ]
    agent = gesta.Agent("desk", model=gesta.scripted(*script), tools=[pay, idle.as_tool()])
    async with gesta.open() as record:
        first = await record.run(agent, "pay", session="s")
        assert first.doubts == ("pay",)
        attempt = next(each.seq for each in await record.read(first.run) if each.kind == "attempt")
        await record.send(first.run, ResolutionContent(of=attempt, verdict="failed", by="ann"), key="settled")
        assert (await record.run(agent, "pay again", session="s")).answer == "Two."
    assert paid == [5, 6]


def versioned(pay: gesta.Tool, *steps: str, beside: bool = False) -> gesta.Agent:
    """Return a program that has these steps paid by agents, one after the other or beside each other."""

    async def program(verbs: gesta.Verbs, task: str) -> str:
        calls = [partial(verbs.call, payer(pay), task, name) for name in steps]
        if beside:
            return " ".join(each.text for each in await asyncio.gather(*(call() for call in calls)))
        return " ".join([(await call()).text for call in calls])

    return gesta.Agent("desk", program=program)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("steps", [["payment"], ["payment", "more"]])
async def test_a_step_under_another_name_does_not_pay_while_the_first_payment_is_in_doubt(
    steps: list[str], deep: bool
) -> None:
    pay, paid = purse()
    first = replace(two_deep(pay) if deep else programmed(pay), name="desk")
    later = versioned(pay, *steps, beside=True)
    asked = [("approval", "pay")] * len(steps)
    async with gesta.open() as record:
        doubt = await record.run(first, "pay", session="s")
        assert stands(doubt) == [("doubt", "pay")]
        for _ in range(2):
            again = await record.resume(doubt.run, later)
            assert (stands(again), paid) == (asked, [5])
        assert sorted(each.what for each in await record.waiting(doubt.run)) == ["approval"] * len(steps) + ["doubt"]
        for each in again.waiting:
            await record.approve(each, by="ann")
        ended = await record.resume(doubt.run, later)
        assert (ended.reason, ended.doubts, paid) == ("answered", ("pay",), [5, *[5] * len(steps)])
        assert await record.verify() == []
        runs = {row.run: await record.read(row.run) for row in await record.store.runs("s")}
        assert (await replay_run(runs, again.waiting[0].run, payer(pay))).divergence is None


@pytest.mark.parametrize("verdict", ["failed", "done", "retry"])
async def test_a_step_under_another_name_needs_a_person_also_after_the_first_payment_is_settled(verdict: Any) -> None:
    pay, paid = purse()
    async with gesta.open() as record:
        doubt = await record.run(versioned(pay, "pay"), "pay", session="s")
        await record.resolve(doubt.waiting[0], verdict, by="ann")
        later = await record.resume(doubt.run, versioned(pay, "payment"))
        assert (stands(later), paid) == ([("approval", "pay")], [5])
        await record.deny(later.waiting[0], by="ann")
        assert (await record.resume(doubt.run, versioned(pay, "payment"))).reason == "answered"
    assert paid == [5]


async def test_a_step_does_not_pay_while_a_payment_is_in_doubt_that_the_program_broke_off() -> None:
    pay, paid, paying = slow_purse()

    async def program(verbs: gesta.Verbs, task: str) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(verbs.call, payer(pay), task, "slow bank")
            await paying.wait()
            group.cancel_scope.cancel()
        return (await verbs.call(payer(pay), task, "quick bank")).text

    agent = gesta.Agent("desk", program=program)
    async with gesta.open(grace_s=0) as record:
        outcome = await record.run(agent, "pay", session="s")
        assert (stands(outcome), paid) == ([("approval", "pay")], [5])
        await record.approve(outcome.waiting[0], by="ann")
        assert (await record.resume("s", agent)).doubts == ("pay",)
    assert paid == [5, 5]


async def pays_twice(context: gesta.Context, pay: gesta.Tool) -> None:
    for name in ("slow bank", "quick bank"):
        await context.call(payer(pay, name), "pay")


@pytest.mark.parametrize("called_by", ["a tool", "a hook"])
async def test_of_two_agents_that_one_tool_or_hook_calls_the_second_knows_what_the_first_left_in_doubt(
    called_by: str,
) -> None:
    pay, paid = purse("tell")

    @gesta.tool(effect="once")
    async def settle(context: gesta.Context) -> str:
        """Have both bills paid."""
        await pays_twice(context, pay)
        return "settled"

    async def judge(_message: str, context: gesta.Context) -> None:
        await pays_twice(context, pay)

    if called_by == "a tool":
        agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("settle"), "Done."), tools=[settle])
    else:
        agent = gesta.Agent("desk", model=gesta.scripted("Done."), hooks=Hooks(message=judge))
    async with gesta.open() as record:
        outcome = await record.run(agent, "settle", session="s")
        assert (stands(outcome), paid) == ([("approval", "pay")], [5])
        await record.approve(outcome.waiting[0], by="ann")
        assert (await record.resume("s", agent)).answer == "Done."
    assert paid == [5, 5]


async def test_a_payment_that_a_tool_broke_off_is_a_doubt_for_the_agent_that_it_calls_next() -> None:
    pay, paid, paying = slow_purse()

    @gesta.tool(effect="once")
    async def settle(context: gesta.Context) -> str:
        """Have a bill paid by the bank that is quick."""

        async def slow() -> None:
            await context.call(payer(pay, "slow bank"), "pay")

        async with anyio.create_task_group() as group:
            group.start_soon(slow)
            await paying.wait()
            group.cancel_scope.cancel()
        return str((await context.call(payer(pay, "quick bank"), "pay")).answer)

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("settle"), "Done."), tools=[settle])
    async with gesta.open(grace_s=0) as record:
        outcome = await record.run(agent, "settle", session="s")
        assert (stands(outcome), paid) == ([("approval", "pay")], [5])


async def test_a_step_that_the_program_reaches_is_no_doubt_for_the_steps_beside_it() -> None:
    pay, paid = purse()
    async with gesta.open() as record:
        doubt = await record.run(versioned(pay, "pay"), "pay", session="s")
        later = await record.resume(doubt.run, versioned(pay, "other", "pay", beside=True))
        assert (stands(later), paid) == ([("doubt", "pay")], [5, 5])


async def test_a_step_that_was_taken_out_of_a_program_leaves_its_doubt_to_the_next_turn() -> None:
    pay, paid = purse()
    async with gesta.open() as record:
        doubt = await record.run(versioned(pay, "pay"), "pay", session="s")
        ended = await record.resume(doubt.run, versioned(pay))
        assert (ended.reason, ended.doubts) == ("answered", ("pay",))
        assert stands(await record.run(versioned(pay, "pay"), "pay", session="s")) == [("approval", "pay")]
    assert paid == [5]


async def test_a_step_under_another_name_goes_on_if_its_first_run_only_waited() -> None:
    paid: Paid = []

    @gesta.tool(effect="once", approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    async with gesta.open() as record:
        first = await record.run(versioned(pay, "pay"), "pay", session="s")
        later = versioned(replace(pay, approval=False), "payment")
        assert (await record.resume(first.run, later)).reason == "answered"
    assert paid == [5]


@pytest.mark.parametrize("on_doubt", ["ask", "tell"])
@pytest.mark.parametrize("calls", [("pay", "pay"), ("pay", "payer"), ("payer", "pay"), ("payer", "payer")])
async def test_a_call_that_comes_after_a_doubt_in_the_same_reply_needs_a_person_or_waits_its_turn(
    calls: tuple[str, str], on_doubt: str
) -> None:
    pay, paid = purse(on_doubt)
    made = [gesta.call(each, cents=5) if each == "pay" else gesta.call(each, task="pay") for each in calls]
    model, policy = gesta.scripted(gesta.reply(calls=made), "Done."), gesta.Policy(parallel=1)
    agent = gesta.Agent("desk", model=model, tools=[pay, payer(pay).as_tool()], policy=policy)
    async with gesta.open() as record:
        ended = await record.run(agent, "go")
    waits = stands(ended)
    assert ("approval", "pay") in waits or waits == [("doubt", "pay")]
    assert waits == [("approval", "pay")] or on_doubt == "ask", (
        "what became of the first call was told, so the second goes on"
    )
    assert paid == [5]
