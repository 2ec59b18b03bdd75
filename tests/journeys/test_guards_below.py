"""The `call` hook of an agent also holds for the agents that it calls, and for those below them."""

from typing import Any

import pytest

import gesta
from gesta.compare.replaying import replay_run
from gesta.hooks import AskPerson, Calling, Change, Hooks, Refuse
from gesta.kinds import CheckContent


def no_pay(call: Calling, _context: gesta.Context[Any]) -> Refuse | None:
    return Refuse("no") if call.tool == "pay" and call.args["cents"] > 3 else None


def less(call: Calling, _context: gesta.Context[Any]) -> Change | None:
    return Change({"cents": call.args["cents"] - 2}) if call.tool == "pay" else None


def asking(call: Calling, _context: gesta.Context[Any]) -> AskPerson | None:
    return AskPerson("money") if call.tool == "pay" else None


class Firm:
    """A desk that calls a payer: directly, or through a program."""

    def __init__(self, guard: Any, own: Any = None, through: str = "tool") -> None:
        self.paid: list[int] = []

        @gesta.tool(effect="once")
        def pay(cents: int) -> str:
            """Pay."""
            self.paid.append(cents)
            return "ok"

        hooks = Hooks(call=own) if own is not None else None
        payer = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay", cents=5), "paid"), tools=[pay], hooks=hooks)

        async def plan(verbs: Any, task: str) -> str:
            return str((await verbs.call(payer, task, "pay")).text)

        below = payer if through == "tool" else gesta.Agent("planner", program=plan)
        script: list[Any] = [gesta.call(below.name, task="5"), "Done."]
        guarding = Hooks(call=guard) if guard is not None else None
        self.agent = gesta.Agent("desk", model=gesta.scripted(*script), tools=[below.as_tool()], hooks=guarding)

    async def run(self) -> list[tuple[str, str]]:
        async with gesta.open() as record:
            outcome = await record.run(self.agent, "x", session="s")
            if outcome.reason == "waiting":
                await record.approve(outcome.waiting[0], by="ann")
                outcome = await record.resume(outcome.run, self.agent)
            assert outcome.reason == "answered"
            entries = {row.run: await record.read(row.run) for row in await record.store.runs()}
            replay = await replay_run(entries, outcome.run, self.agent)
            assert (replay.first, len(replay.every()) > 1) == (None, True)
            every = [each.content for run in entries.values() for each in run]
            return [(each.hook, each.verdict) for each in every if isinstance(each, CheckContent)]


@pytest.mark.parametrize("through", ["tool", "program"])
async def test_a_call_that_the_agent_above_refuses_is_not_made_below(through: str) -> None:
    firm = Firm(no_pay, through=through)
    assert await firm.run() == [("no_pay", "refused")]
    assert firm.paid == []


@pytest.mark.parametrize(
    ("guard", "own", "checks", "paid"),
    [
        (less, no_pay, [("less", "changed")], [3]),
        (no_pay, less, [("no_pay", "refused")], []),
        (asking, less, [("asking", "asked"), ("less", "changed")], [3]),
        (less, asking, [("less", "changed"), ("asking", "asked")], [3]),
        (less, less, [("less", "changed")], [3]),
        (None, no_pay, [("no_pay", "refused")], []),
    ],
)
async def test_the_hook_above_is_asked_before_the_agents_own(
    guard: Any, own: Any, checks: list[tuple[str, str]], paid: list[int]
) -> None:
    firm = Firm(guard, own)
    assert await firm.run() == checks
    assert firm.paid == paid


async def test_a_hooks_own_judge_is_not_guarded_by_that_hook() -> None:
    judge = Firm(None).agent
    asked = list[str]()

    async def judged(call: Calling, context: gesta.Context[Any]) -> Refuse | None:
        asked.append(call.tool)
        return Refuse("no") if (await context.call(judge, "pay?")).answer != "Done." else None

    firm = Firm(judged)
    assert await firm.run() == [("judged", "allowed")] * 2
    assert (asked, firm.paid) == (["payer", "pay"], [5])
