"""A tool calls several agents. Each goes on in its own child run, in whatever order the next attempt calls them."""

from collections.abc import Callable
from typing import Any

import pytest
from anyio import create_task_group, sleep_forever
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

import gesta
from gesta.address import bind
from gesta.compare.replaying import replay_run
from gesta.errors import AgentError
from gesta.hooks import Hooks
from gesta.kinds import ToolResultContent
from gesta.perform import child
from gesta.record.record import Record
from gesta.store import Lease
from gesta.stores.memory import MemoryStore

Call = Callable[[str], Any]
Plan = Callable[[int, Call], Any]


class Desk:
    """An agent with a tool that calls a payer and a refunder, in the order that `plan` says for each attempt."""

    def __init__(self, plan: Plan, *asking: str) -> None:
        self.paid, self.tries = list[str](), 0
        both = {"payer": self.below("payer", "pay" in asking), "refunder": self.below("refunder", "refund" in asking)}

        @gesta.tool(effect="pure")
        async def settle(context: gesta.Context) -> str:
            """Have both agents work."""
            self.tries += 1

            async def call(name: str) -> str:
                agent, _, text = name.partition(":")
                return str((await context.call(both[agent], text or "order 7")).answer)

            return str(await plan(self.tries, call))

        self.agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("settle"), "Done."), tools=[settle])

    def below(self, name: str, approval: bool) -> gesta.Agent:
        word = {"payer": "pay", "refunder": "refund"}[name]

        def work(cents: int) -> str:
            self.paid.append(word)
            return "ok"

        def think(messages: list[dict[str, Any]], _header: Any) -> Any:
            return f"{name} says done" if messages[-1]["role"] == "tool" else gesta.call(word, cents=5)

        tools = [gesta.tool(work, name=word, effect="once", approval=approval)]
        return gesta.Agent(name, model=gesta.function(think), tools=tools)


async def finished(record: Record, desk: Desk) -> tuple[gesta.Outcome, str]:
    outcome = await record.run(desk.agent, "x", session="s")
    for _ in range(3):
        if outcome.reason == "waiting":
            await record.approve(outcome.waiting[0], by="ann")
            outcome = await record.resume(outcome.run, desk.agent)
    result = next(each.content for each in await record.read(outcome.run) if each.kind == "tool-result")
    entries = {row.run: await record.read(row.run) for row in await record.store.runs()}
    replay = await replay_run(entries, outcome.run, desk.agent)
    assert replay.divergence is None
    return outcome, str(getattr(result, "tool_result", None))


async def at_once(call: Call, *names: str) -> str:
    """Call agents at once: each after those before it have had time to begin."""
    said: dict[str, str] = {}

    async def one(place: int, name: str) -> None:
        for _ in range(100 * place):
            await checkpoint()
        said[name] = await call(name)

    async with create_task_group() as group:
        for place, name in enumerate(names):
            group.start_soon(one, place, name)
    return ", ".join(said[name] for name in sorted(said))


@pytest.mark.parametrize("asking", ["pay", "refund"])
@pytest.mark.parametrize("texts", [("payer", "refunder"), ("payer:p", "refunder:r")])
async def test_agents_that_are_called_in_another_order_go_on_in_their_own_runs(
    asking: str, texts: tuple[str, str]
) -> None:
    desk = Desk(lambda tries, call: at_once(call, *(texts if tries == 1 else reversed(texts))), asking)
    async with gesta.open() as record:
        outcome, result = await finished(record, desk)
    assert (outcome.reason, result) == ("answered", "payer says done, refunder says done")
    assert sorted(desk.paid) == ["pay", "refund"]


async def test_one_agent_that_is_asked_two_things_in_another_order_answers_each_once() -> None:
    texts = ["payer:a", "payer:b"]
    desk = Desk(lambda tries, call: at_once(call, *(texts if tries % 2 else reversed(texts))), "pay")
    async with gesta.open() as record:
        outcome, result = await finished(record, desk)
        rows = await record.store.runs()
        asked = {(await record.read(row.run))[1].content.value for row in rows if row.parent_run}  # type: ignore[union-attr]
    assert (outcome.reason, result) == ("answered", "payer says done, payer says done")
    assert (desk.paid, asked, len(rows)) == (["pay", "pay"], {"a", "b"}, 3)


async def test_equal_calls_of_an_agent_are_told_apart_by_their_order() -> None:
    async def twice(_tries: int, call: Call) -> str:
        return f"{await call('payer')}, {await call('payer')}"

    desk = Desk(twice, "pay")
    async with gesta.open() as record:
        outcome, result = await finished(record, desk)
        assert len(await record.store.runs()) == 3
    assert (outcome.reason, result, desk.paid) == ("answered", "payer says done, payer says done", ["pay", "pay"])


@pytest.mark.parametrize(
    ("first", "second"), [("payer", "refunder"), ("payer:at 12:00", "payer:at 12:01"), ("payer", "payer:order 8")]
)
async def test_a_tool_that_asks_something_else_in_its_next_attempt_begins_no_other_run(first: str, second: str) -> None:
    desk = Desk(lambda tries, call: call(first if tries == 1 else second), "pay")
    async with gesta.open() as record:
        outcome, result = await finished(record, desk)
        assert len(await record.store.runs()) == 2
    (agent, _, text), (other, _, changed) = first.partition(":"), second.partition(":")
    assert (outcome.reason, desk.paid) == ("answered", [])
    assert f"an attempt before this one asked the agent '{agent}' '{text or 'order 7'}'" in result
    assert f"expected the same, got the agent '{other}' and '{changed or 'order 7'}'" in result


@pytest.mark.parametrize("again", ["in one attempt", "in the next attempt"])
async def test_a_tool_that_gives_a_name_to_two_messages_is_told_so_and_waits_for_nothing(again: str) -> None:
    paid, tries = list[str](), list[str]()

    @gesta.tool(effect="once", approval=again == "in the next attempt")
    def pay() -> str:
        """Pay."""
        paid.append("pay")
        return "paid"

    payer = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "done"), tools=[pay])

    @gesta.tool(effect="once")
    async def desk(context: gesta.Context) -> str:
        """Have it paid."""
        tries.append("again" if tries else "first")
        for text in ("first", "again") if again == "in one attempt" else (tries[-1],):
            await context.call_as("payment", payer, text)
        return "all paid"

    agent = gesta.Agent("a", model=gesta.scripted(gesta.call("desk"), "ok"), tools=[desk])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", session="s")
        for waiting in outcome.waiting:
            await record.approve(waiting, by="ann")
            outcome = await record.resume("s", agent)
        (entry,) = [each for each in await record.read(outcome.run) if each.kind == "tool-result"]
        entries = {row.run: await record.read(row.run) for row in await record.store.runs()}
    assert outcome.answer == "ok"
    assert (await replay_run(entries, outcome.run, agent)).divergence is None
    assert isinstance(entry.content, ToolResultContent)
    assert "it was asked 'first' before; expected the same, got 'again'" in entry.content.tool_result
    assert paid == (["pay"] if again == "in one attempt" else [])


async def test_a_call_beside_others_is_refused_once_no_other_task_takes_the_run_that_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child, "HELD_S", 0.0)
    desk = Desk(lambda tries, call: at_once(call, "payer" if tries == 1 else "payer:order 8"), "pay")
    async with gesta.open() as record:
        outcome, result = await finished(record, desk)
        assert len(await record.store.runs()) == 2
    assert (outcome.reason, desk.paid) == ("answered", [])
    assert "an attempt before this one asked the agent 'payer' 'order 7'" in result


@pytest.mark.parametrize("how", ["tool", "sub-agent", "program"])
async def test_a_turn_that_waited_and_was_replaced_is_replayed(how: str) -> None:
    @gesta.tool(effect="once", approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        raise AssertionError(cents)

    def think(messages: list[dict[str, Any]], _header: Any) -> Any:
        if messages[-1]["content"] != "pay":
            return "hi"
        return gesta.call("payer", task="pay") if how == "sub-agent" else gesta.call("pay", cents=1)

    payer = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay", cents=1)), tools=[pay])

    async def program(verbs: Any, text: str) -> str:
        return "hi" if text == "hi" else str((await verbs.call(payer, text, "pay")).text)

    policy = gesta.Policy(when_busy="replace")
    agent = gesta.Agent("desk", program=program, policy=policy)
    if how != "program":
        tools = [payer.as_tool()] if how == "sub-agent" else [pay]
        agent = gesta.Agent("desk", model=gesta.function(think), tools=tools, policy=policy)
    async with gesta.open() as record:
        assert (await record.run(agent, "pay", session="s")).reason == "waiting"
        outcome = await record.run(agent, "hi", session="s")
        assert outcome.answer == "hi"
        entries = {row.run: await record.read(row.run) for row in await record.store.runs()}
    replay = await replay_run(entries, outcome.run, agent)
    assert (replay.divergence, replay.entries) == (None, len(entries[outcome.run]))


class Dying(MemoryStore):
    """A store in which each process that held a lease has died, once `deadly` is set."""

    deadly = False

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        return replace(await super().lease(run, mirror=mirror), lost=self.deadly)


async def test_deaths_count_in_a_turn_whose_agent_was_called_twice_and_has_answered() -> None:
    pay = gesta.tool(lambda: "paid", name="pay", effect="once", approval=True)
    sign = gesta.tool(lambda: "signed", name="sign", effect="once", approval=True)
    payer = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "Paid."), tools=[pay])
    model, policy = gesta.scripted(gesta.call("payer", task="Pay."), gesta.call("sign")), gesta.Policy(deaths=2)
    desk = gesta.Agent("desk", model=model, tools=[payer.as_tool(), sign], policy=policy)
    record = Record(store := Dying(), bind)
    outcome = await record.run(desk, "Pay, and sign.", session="s")
    await record.approve(outcome.waiting[0], by="ann")
    outcome = await record.resume(outcome.run, desk)
    assert [each.tool for each in outcome.waiting] == ["sign"]
    store.deadly = True
    for waits in ("approval", "deaths"):
        outcome = await record.resume(outcome.run, desk, by=None)
        assert [each.what for each in outcome.waiting] == [waits]


async def test_deaths_count_in_a_turn_that_waits_no_more_for_an_agent_that_hung() -> None:
    async def hangs(_messages: Any, _header: Any) -> str:
        await sleep_forever()
        return ""

    hung = gesta.Agent("hung", model=gesta.function(hangs))

    @gesta.tool(effect="pure", timeout_s=0.01)
    async def look(context: gesta.Context) -> str:
        """Look something up."""
        return str((await context.call(hung, "Look.")).answer)

    sign = gesta.tool(lambda: "signed", name="sign", effect="once", approval=True)
    model, policy = gesta.scripted(gesta.call("look"), gesta.call("sign")), gesta.Policy(attempts=1, deaths=2)
    desk = gesta.Agent("desk", model=model, tools=[look, sign], policy=policy)
    record = Record(store := Dying(), bind)
    outcome = await record.run(desk, "Look, and sign.", session="s")
    assert [each.tool for each in outcome.waiting] == ["sign"]
    store.deadly = True
    for waits in ("approval", "deaths"):
        outcome = await record.resume(outcome.run, desk, by=None)
        assert [each.what for each in outcome.waiting] == [waits]


@pytest.mark.parametrize(("swapped", "said"), [(True, "'painter' is not an agent. Write"), (False, "expected a text")])
@pytest.mark.parametrize("where", ["tool", "hook"])
async def test_what_is_called_in_place_of_an_agent_or_handed_in_place_of_a_text_is_named(
    where: str, swapped: bool, said: str
) -> None:
    painter = gesta.Agent("painter", model=gesta.scripted("Painted."))
    given: Any = ("painter", painter) if swapped else (painter, painter)

    @gesta.tool(effect="pure")
    async def paint(context: gesta.Context) -> str:
        """Paint."""
        return str((await context.call(*given)).answer)

    async def judge(_text: str, context: gesta.Context) -> None:
        await context.call(*given)

    hooks = Hooks(message=judge) if where == "hook" else None
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("paint"), "Done."), tools=[paint], hooks=hooks)
    async with gesta.open() as record:
        outcome = await record.run(agent, "Go.")
        entries = await record.read(outcome.run)
    told = [str(each.content.tool_result) for each in entries if isinstance(each.content, ToolResultContent)]
    assert said in (outcome.error.message if outcome.error is not None else told[0])


async def test_a_program_that_calls_what_is_not_an_agent_is_told_so() -> None:
    painter = gesta.Agent("painter", model=gesta.scripted("Painted."))
    order: list[Any] = ["painter", painter]

    async def program(verbs: gesta.Verbs, _text: str) -> str:
        return (await verbs.call(order[0], order[1], "paint")).text

    agent = gesta.Agent("desk", program=program)
    async with gesta.open() as record:
        with pytest.raises(AgentError, match="'painter' is not an agent"):
            await record.run(agent, "Go.", session="s")
        order[:] = [painter, "a door"]
        assert (await record.run(agent, "Go.", session="s")).answer == "Painted."
