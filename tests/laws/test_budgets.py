"""Law 2 for money: at no prefix is more spent and set aside than a budget allows, and no crash hides a request."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import COSTLY
from tests.laws.scenes import Tape, World, again, agent, play

import gesta
from gesta import address
from gesta.entry import Entry
from gesta.kinds import BeginContent, BudgetContent, EdgeContent, Kind, RequestContent
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore

LONGEST = 30
"""Tokens that a reply is bounded by; some are longer all the same."""


class Each:
    """A price for each token."""

    dated = "a list"

    def __init__(self, usd: float | None) -> None:
        self._usd = usd

    def usd(self, usage: dict[str, Any]) -> float | None:
        return None if self._usd is None else self._usd * (usage["prompt_tokens"] + usage["completion_tokens"])


usages = st.none() | st.builds(
    lambda into, out: {"prompt_tokens": into, "completion_tokens": out},
    st.integers(0, 300),
    st.integers(0, 2 * LONGEST),
)
calls = st.lists(
    st.builds(lambda name, x: gesta.call(name, x=x), st.sampled_from(["look", "put", "fail"]), st.integers(0, 3)),
    min_size=1,
    max_size=3,
)
steps = st.builds(lambda calls, usage: gesta.reply(calls=calls, usage=usage), calls, usages)
faults = st.sampled_from([gesta.fault("503"), gesta.fault("lost-stream", after=3)])
ends = st.builds(lambda usage: gesta.reply("done", usage=usage), usages)
scripts = st.builds(lambda middle, end: [*middle, end], st.lists(st.one_of(steps, faults), max_size=5), ends)
budgets = st.builds(
    lambda usd, tokens: gesta.Budget(usd=usd, tokens=tokens, request_usd=0.01, request_tokens=500),
    st.none() | st.floats(0, 1).map(lambda usd: round(usd, 3)),
    st.none() | st.integers(0, 2000),
)
prices = st.sampled_from([None, Each(None), Each(0.0001)])


def spender(world: World, script: Sequence[Any], budget: gesta.Budget, price: Any) -> gesta.Agent:
    policy = gesta.Policy(budget=budget, retry=gesta.Retry(first_wait_s=0.0, empty=0, tries=9))
    return agent(world, script, policy=policy, price=price, settings={"max_tokens": LONGEST})


def account(entries: Iterable[Entry], axis: str) -> tuple[list[float], float]:
    """What counts as spent after each entry, by the entries alone, and by how much the worst reply was over."""
    held: dict[int, float] = {}
    of_calls: dict[str, int] = {}
    worst, totals = 0.0, list[float]()
    for entry in entries:
        content = entry.content
        if isinstance(content, EdgeContent) and content.allowance is not None:
            held[entry.seq] = content.allowance.get(axis, 0)
            call = content.child
            if call in of_calls:  # the same child run, handed over again
                held[entry.seq] = held.pop(of_calls[call])
            if call is not None:
                of_calls[call] = entry.seq
        elif isinstance(content, BudgetContent) and content.reserved is not None:
            held[content.of] = content.reserved[axis]
        elif isinstance(content, BudgetContent) and content.spent is not None:
            spent = content.spent.get("counted", content.spent)[axis]
            worst = max(worst, spent - held[content.of])
            held[content.of] = spent
        totals.append(sum(held.values()))
    return totals, worst


def check(entries: Sequence[Entry], budget: gesta.Budget) -> None:
    for axis in ("usd", "tokens"):
        bound = getattr(budget, axis)
        totals, worst = account(entries, axis)
        for entry, total in zip(entries, totals, strict=True):
            if bound is not None:
                assert total <= bound + worst + 1e-6
                if isinstance(entry.content, BudgetContent) and entry.content.reserved is not None:
                    assert total <= bound + 1e-6, "nothing is asked that the budget does not hold"
    asked = [entry.seq for entry in entries if isinstance(entry.content, RequestContent)]
    kept = [
        entry.content.of for entry in entries if isinstance(entry.content, BudgetContent) and entry.content.reserved
    ]
    assert kept == asked


@given(scripts, budgets, prices)
def test_nothing_is_asked_beyond_the_budget_at_any_prefix_of_any_resumed_run(
    script: list[Any], budget: gesta.Budget, price: Any
) -> None:
    async def main() -> None:
        tape = Tape()
        (outcome,) = await play(tape, spender(World(), script, budget, price))
        entries = await Record(tape, lambda made: made).read(outcome.run)
        assert outcome.reason in {"answered", "budget"}
        check(entries, budget)
        for end in range(len(tape.tape) + 1):
            store = await again(tape.tape[:end])
            (resumed,) = await play(store, spender(World(), script, budget, price))
            whole = await Record(store, lambda made: made).read(resumed.run)
            assert resumed.reason in {"answered", "budget"}
            check(whole, budget)
            if resumed.spent is not None:
                for axis, counted in (("usd", resumed.spent.counted_usd), ("tokens", resumed.spent.tokens)):
                    assert abs(counted - account(whole, axis)[0][-1]) < 1e-6
                lost = account_open(whole)
                unpriced = price is None or price.usd({"prompt_tokens": 1, "completion_tokens": 0}) is None
                assert resumed.spent.usd is None or not (lost or (unpriced and resumed.requests))

    anyio.run(main)


def account_open(entries: Iterable[Entry]) -> list[int]:
    """Requests that nobody settled."""
    of = [entry.content for entry in entries if isinstance(entry.content, BudgetContent)]
    settled = {each.of for each in of if each.spent is not None}
    return [each.of for each in of if each.reserved is not None and each.of not in settled]


async def every_run(store: MemoryStore) -> list[list[Entry]]:
    record = Record(store, lambda made: made)
    return [await record.read(row.run) for row in await store.runs()]


@COSTLY
@given(st.lists(st.lists(usages, min_size=1, max_size=3), min_size=1, max_size=3), budgets, st.booleans())
def test_child_runs_never_spend_more_than_the_run_above_set_aside_for_them(
    children: list[list[Any]], budget: gesta.Budget, by_tools: bool
) -> None:
    def parent() -> gesta.Agent:
        helpers = [
            gesta.Agent(
                f"h{place}",
                model=gesta.scripted(
                    *[gesta.reply(calls=[gesta.call("look", x=1)], usage=usage) for usage in script], "done"
                ),
                tools=agent(World(), ["done"]).tools,
                settings={"max_tokens": LONGEST},
                price=Each(0.0001),
            )
            for place, script in enumerate(children)
        ]

        async def program(verbs: gesta.Verbs, _text: str) -> str:
            async with anyio.create_task_group() as group:
                for helper in helpers:
                    group.start_soon(verbs.call, helper, "help", helper.name)
            return "done"

        asked = gesta.reply(calls=[gesta.call(helper.name, task="help") for helper in helpers])
        made = gesta.Agent(
            "parent",
            model=gesta.scripted(asked, "done") if by_tools else "",
            program=None if by_tools else program,
            tools=[helper.as_tool() for helper in helpers] if by_tools else (),
            settings={"max_tokens": LONGEST},
            price=Each(0.0001),
            policy=gesta.Policy(budget=budget),
        )
        return address.bind(made)

    def hold(runs: list[list[Entry]]) -> None:
        (top,) = [entries for entries in runs if entries[0].content.opened.parent_run is None]  # type: ignore[union-attr]
        below = [entries for entries in runs if entries is not top]
        for axis in ("usd", "tokens"):
            bound = getattr(budget, axis)
            own, worst = account(top, axis)
            over = [account(entries, axis) for entries in below]
            slack = worst + sum(each for _, each in over)
            if bound is not None:
                assert own[-1] <= bound + slack + 1e-6
                done = sum(account(each, axis)[0][-1] for each in runs if each is not top)
                asked = sum(spent(entry, axis) for entry in top if entry.kind is Kind.Budget and of_request(top, entry))
                assert done + asked <= bound + slack + 1e-6
        for entries in below:
            assert isinstance(entries[0].content, BeginContent)
            assert entries[0].content.allowance is not None
            allowance = entries[0].content.allowance
            check(entries, gesta.Budget(usd=allowance.get("usd"), tokens=allowance.get("tokens")))

    async def main() -> None:
        tape = Tape()
        await play(tape, parent())
        hold(await every_run(tape))
        for end in range(1, len(tape.tape) + 1):
            store = await again(tape.tape[:end])
            (resumed,) = await play(store, parent())
            assert resumed.reason in {"answered", "budget"}
            hold(await every_run(store))

    anyio.run(main)


def of_request(entries: Sequence[Entry], entry: Entry) -> bool:
    return entries[entry.content.of - 1].kind is Kind.Request  # type: ignore[union-attr, operator]


def spent(entry: Entry, axis: str) -> float:
    """What one settled request counts as."""
    content = entry.content
    assert isinstance(content, BudgetContent)
    return 0.0 if content.spent is None else float(content.spent.get("counted", content.spent)[axis])


@given(st.lists(usages, min_size=1, max_size=6))
def test_sums_do_not_depend_on_where_a_fold_is_cut(found: list[Any]) -> None:
    async def main() -> None:
        store = MemoryStore()
        script = [gesta.reply(calls=[gesta.call("look", x=1)], usage=usage) for usage in found]
        (outcome,) = await play(store, spender(World(), [*script, "done"], gesta.Budget(), Each(0.001)))
        totals, _ = account(await Record(store, lambda made: made).read(outcome.run), "usd")
        assert outcome.spent is not None
        assert abs(outcome.spent.counted_usd - totals[-1]) < 1e-6
        assert list(accumulate(totals, max))[-1] >= totals[-1]

    anyio.run(main)
