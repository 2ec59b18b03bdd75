"""What the runs below a turn cost counts in the turn once: however they end, and however often they are called."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest
from msgspec import structs
from tests.laws.scenes import Tape, again, play

import gesta
from gesta import address
from gesta.address import Record
from gesta.compare.forks import Fork, fork, go_on
from gesta.compare.replaying import replay_run
from gesta.entry import fold
from gesta.errors import ModelFault
from gesta.hooks import Hooks
from gesta.kinds import BudgetContent, EdgeContent
from gesta.policy import Compact, Retry
from gesta.views.overview import OverviewView, totals

USAGE = {"prompt_tokens": 80, "completion_tokens": 20}
Play = Callable[[Record, gesta.Agent], Awaitable[gesta.Outcome]]


class Cents:
    """A cent for each token out."""

    dated = "cents of 2026"

    def usd(self, usage: dict[str, Any]) -> float | None:
        return 0.01 * int(usage["completion_tokens"])


@gesta.tool(effect="once", approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def priced(name: str, *tools: Any, first: Any = "Done.", **more: Any) -> gesta.Agent:
    """An agent that makes one call and then answers, for 20 cents a reply."""

    def think(messages: list[Any], _header: Any) -> Any:
        called = messages[-1]["role"] == "tool" or isinstance(first, str)
        return gesta.reply("Done.", usage=USAGE) if called else gesta.reply(calls=[first], usage=USAGE)

    more = {"model": gesta.function(think), "price": Cents(), "settings": {"max_tokens": 50}, **more}
    return gesta.Agent(name, tools=list(tools), **more)


def bounded(agent: gesta.Agent, budget: gesta.Budget | None, **policy: Any) -> gesta.Agent:
    return structs.replace(agent, policy=gesta.Policy(budget=budget, **policy))


WAITER = priced("waiter", pay, first=gesta.call("pay"))
"""An agent that has cost 20 cents when it waits for a person."""


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with gesta.open() as opened:
        yield opened


async def agrees(record: Record, outcome: gesta.Outcome, agent: gesta.Agent, usd: float) -> None:
    """The outcome, the overview and a replay say what the turn cost."""
    runs = {row.run: await record.read(row.run) for row in await record.store.runs()}
    assert outcome.usd == pytest.approx(usd)
    assert totals(fold(OverviewView(), runs[outcome.run]))["usd"] == pytest.approx(usd)
    assert (await replay_run(runs, outcome.run, agent)).first is None
    assert await record.verify() == []


async def cancelled(record: Record, agent: gesta.Agent) -> gesta.Outcome:
    run = (await record.run(agent, "Go.", session="s")).run
    await record.cancel("s", by="ann")
    return await record.resume(run, agent)


async def called(record: Record, agent: gesta.Agent) -> gesta.Outcome:
    return await record.run(agent, "Go.", session="s")


def by_tool() -> gesta.Agent:
    return priced("boss", WAITER.as_tool(), first=gesta.call("waiter", task="Pay."))


def by_programs() -> gesta.Agent:
    async def below(verbs: gesta.Verbs, text: str) -> str:
        return (await verbs.call(WAITER, text, "pay")).text

    async def above(verbs: gesta.Verbs, text: str) -> str:
        await verbs.call(priced("other"), text, "other")
        return (await verbs.call(gesta.Agent("below", program=below), text, "below")).text

    return gesta.Agent("above", program=above)


def by_hook() -> gesta.Agent:
    async def leave(_answer: str, context: gesta.Context) -> None:
        judge = asyncio.ensure_future(context.call(WAITER, "Is it paid?"))
        await asyncio.wait([judge])
        judge.exception()

    return priced("judged", hooks=Hooks(answer=leave))


@pytest.mark.parametrize("budget", [gesta.Budget(usd=10.0), gesta.Budget()], ids=["bounded", "unbounded"])
@pytest.mark.parametrize(
    ("made", "play", "usd"), [(by_tool, cancelled, 0.4), (by_programs, cancelled, 0.4), (by_hook, called, 0.4)]
)
async def test_what_a_run_spent_that_is_called_off_counts_above_and_its_rest_comes_back(
    record: Record, made: Callable[[], gesta.Agent], play: Play, usd: float, budget: gesta.Budget
) -> None:
    agent = bounded(made(), budget)
    await agrees(record, await play(record, agent), agent, usd)


def judged() -> gesta.Agent:
    async def asks(_answer: str, context: gesta.Context) -> None:
        await context.call(priced("judge"), "Is it paid?")

    return priced("judged", hooks=Hooks(answer=asks))


def at_once() -> gesta.Agent:
    async def program(verbs: gesta.Verbs, text: str) -> str:
        async with anyio.create_task_group() as group:
            for name in ("one", "two", "three"):
                group.start_soon(verbs.call, priced(name), text, name)
        return "Done."

    return gesta.Agent("team", program=program)


def for_requests(entries: list[gesta.Entry]) -> float:
    """What the requests of a run count as: what was set aside, or what they did take."""
    sums = [each.content for each in entries if isinstance(each.content, BudgetContent)]
    asked = {each.of: each.reserved for each in sums if each.reserved is not None}
    took = {each.of: each.spent for each in sums if each.spent is not None and each.of in asked}
    return sum(float(each["usd"]) for each in (asked | took).values())


@pytest.mark.parametrize("made", [by_tool, by_programs, judged, at_once])
async def test_a_turn_that_is_cancelled_after_any_commit_has_cost_what_its_runs_have_spent(
    made: Callable[[], gesta.Agent],
) -> None:
    tape, agent = Tape(), address.bind(bounded(made(), gesta.Budget(usd=10.0)))
    await play(tape, agent)
    for commits in range(1, len(tape.tape)):
        store = await again(tape.tape[:commits])
        record = Record(store, address.bind)
        await record.cancel("s", by="ann")
        outcome = await record.resume("s", agent)
        runs = {row.run: await record.read(row.run) for row in await store.runs()}
        counted = 0.0 if outcome.spent is None else outcome.spent.counted_usd
        assert counted == pytest.approx(sum(map(for_requests, runs.values())))
        assert (await replay_run(runs, outcome.run, agent)).first is None


@pytest.mark.parametrize("made", [by_tool, by_programs, at_once])
async def test_a_fork_at_any_entry_has_cost_what_it_shares_and_what_the_runs_below_it_have_spent(
    record: Record, made: Callable[[], gesta.Agent]
) -> None:
    async def ended(outcome: gesta.Outcome) -> gesta.Outcome:
        while outcome.waiting:
            await record.approve(outcome.waiting[0], by="ann")
            outcome = await record.resume(outcome.run, agent)
        return outcome

    agent = bounded(made(), gesta.Budget(usd=10.0))
    base = await record.find((await ended(await record.run(agent, "Go.", session="s"))).run)
    entries = await record.read(base.run)
    for at in range(2, len(entries)):
        row = await fork(record, base, Fork(at=at))
        outcome = await ended(await go_on(record, row, agent))
        own = [await record.read(each.run) for each in await record.store.runs(row.session)]
        shared = [each.content for each in own[0] if each.shared_from and isinstance(each.content, BudgetContent)]
        below = sum(each.spent["usd"] for each in shared if each.spent and entries[each.of - 1].kind == "edge")
        assert outcome.spent is not None
        assert outcome.spent.counted_usd == pytest.approx(below + sum(map(for_requests, own))), entries[at - 1]


async def test_a_summary_that_waits_for_a_person_takes_no_more_of_the_budget_than_it_cost(record: Record) -> None:
    compact = Compact(at_tokens=60, keep_turns=1, by=WAITER)
    agent = bounded(priced("talker"), gesta.Budget(usd=1.5), compact=compact)
    for _ in range(2):
        await record.run(agent, "Good morning. " * 20, session="s")
    outcome = await record.run(agent, "Good night. " * 20, session="s")
    assert outcome.answer == "Done."
    assert outcome.usd == pytest.approx(0.4)


@pytest.mark.parametrize("budget", [gesta.Budget(usd=10.0), None], ids=["bounded", "none"])
async def test_an_agent_that_ended_and_is_called_again_after_a_wait_costs_once(
    record: Record, budget: gesta.Budget | None
) -> None:
    kept = bounded(priced("one"), gesta.Budget()), bounded(WAITER, gesta.Budget())

    @gesta.tool(effect="pure")
    async def both(context: gesta.Context) -> str:
        """Call two agents."""
        return "".join([(await context.call(agent, "Go.")).answer or "" for agent in kept])

    agent = bounded(priced("boss", both, first=gesta.call("both")), budget)
    run = (await record.run(agent, "Go.", session="s")).run
    await record.approve("s", by="ann")
    outcome = await record.resume(run, agent)
    below, own = 0.2 + 0.4, 0.4 if budget is not None else 0.0
    assert outcome.spent is not None
    assert outcome.spent.counted_usd == pytest.approx(below + own)
    assert totals(fold(OverviewView(), await record.read(run)))["usd"] == pytest.approx(below + own)


@pytest.mark.parametrize("waited", [True, False])
async def test_the_runs_below_a_fork_are_allotted_and_counted_and_those_below_its_base_are_not(
    record: Record, waited: bool
) -> None:
    agents = (priced("one"), WAITER) if waited else (priced("one"), priced("two"))

    @gesta.tool(effect="pure" if waited else "once")
    async def both(context: gesta.Context) -> str:
        """Call two agents."""
        return "".join([(await context.call(agent, "Go.")).answer or "" for agent in agents])

    agent = bounded(priced("boss", both, first=gesta.call("both")), gesta.Budget(usd=10.0))
    run = (await record.run(agent, "Go.", session="s")).run
    entries = await record.read(run)
    last = next(each.seq for each in reversed(entries) if each.kind == ("fault" if waited else "edge"))
    made = await fork(record, await record.find(run), Fork(at=last))
    outcome = await go_on(record, made, agent)
    while outcome.waiting:
        await record.approve(outcome.waiting[0], by="ann")
        outcome = await record.resume(made.run, agent)
    shared, below = 0.2 + 0.2, 0.2 + 0.4 if waited else 0.0
    assert outcome.usd == pytest.approx(shared + below + 0.2)


async def test_an_agent_that_a_version_without_a_budget_called_is_bound_by_the_budget_of_the_next() -> None:
    tape, plain = Tape(), address.bind(by_tool())
    await play(tape, plain)
    edge = next(place for place, batch in enumerate(tape.tape) if any(row.kind == "edge" for row in batch.rows))
    store = await again(tape.tape[: edge + 1])
    assert len(await store.runs()) == 1, "the run below has not begun"
    await play(store, address.bind(bounded(by_tool(), gesta.Budget(usd=3.0))))
    (below,) = [row.run for row in await store.runs() if row.parent_run]
    turn = (await Record(store, address.bind).state(below)).turn
    assert turn is not None
    assert turn.spending.allowed is not None
    assert turn.spending.allowed["usd"] == pytest.approx(1.5)


async def test_a_fallback_is_asked_only_where_its_own_price_fits_the_budget(record: Record) -> None:
    def busy(_messages: list[Any], _header: Any) -> Any:
        raise ModelFault("overloaded", "no capacity", http_status=529)

    look = gesta.tool(lambda: "seen", name="look", effect="pure")
    calls = [gesta.reply(calls=[gesta.call("look")], usage=USAGE) for _ in range(9)]
    made = gesta.Agent("desk", model=gesta.function(busy, name="busy"), fallbacks=[gesta.scripted(*calls)])
    made = structs.replace(made, tools=[look], price=Cents(), settings={"max_tokens": 1})
    agent = bounded(made, gesta.Budget(usd=0.25, request_usd=0.1), retry=Retry(tries=1))
    outcome = await record.run(agent, "Look.", session="s")
    assert outcome.spent is not None
    assert outcome.reason == "budget"
    assert outcome.spent.counted_usd == pytest.approx(0.2)
    entries = await record.read(outcome.run)
    assert (await replay_run({outcome.run: entries}, outcome.run, agent)).first is None


async def test_a_run_with_a_budget_is_replayed_past_a_request_that_was_refused(record: Record) -> None:
    model = gesta.scripted(gesta.fault("503"), gesta.reply("Hi.", usage=USAGE))
    agent = bounded(
        gesta.Agent("desk", model=model, price=Cents(), settings={"max_tokens": 50}),
        gesta.Budget(usd=5),
        retry=Retry(first_wait_s=0),
    )
    await agrees(record, await record.run(agent, "Hello.", session="s"), agent, 0.2)


async def test_an_agent_that_asks_the_model_of_the_agent_above_has_its_price_too(record: Record) -> None:
    def think(messages: list[Any], header: Any) -> Any:
        calls = [gesta.call("helper", task="Help.")] if header.tools and messages[-1]["role"] != "tool" else []
        return gesta.reply("" if calls else "Done.", calls=calls, usage=USAGE)

    helper = gesta.Agent("helper", settings={"max_tokens": 50})
    agent = bounded(priced("boss", helper.as_tool(), model=gesta.function(think)), gesta.Budget(usd=10.0))
    assert (await record.run(agent, "Go.")).usd == pytest.approx(3 * 0.2)


async def test_calls_that_call_no_agent_get_a_part_of_the_budget_as_long_as_they_are_open(record: Record) -> None:
    @gesta.tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    def think(messages: list[Any], _header: Any) -> Any:
        calls = [gesta.call("look"), gesta.call("look"), gesta.call("one", task="Go.")]
        done = messages[-1]["role"] == "tool"
        return gesta.reply("Done.", usage=USAGE) if done else gesta.reply(calls=calls, usage=USAGE)

    agent = bounded(priced("boss", look, priced("one").as_tool(), model=gesta.function(think)), gesta.Budget(usd=4.2))
    entries = await record.read((await record.run(agent, "Go.")).run)
    (edge,) = [each.content for each in entries if isinstance(each.content, EdgeContent)]
    assert edge.allowance is not None
    assert edge.allowance["usd"] == pytest.approx(1.0)
