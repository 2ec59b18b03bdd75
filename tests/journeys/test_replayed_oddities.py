"""What a replay and a case make of forks, summaries that wait, and choices by lot: the same entries, and no other case."""

from typing import Any

import gesta
from gesta.address import Record
from gesta.compare.cases import Case, Head, accepted, check, taken, written
from gesta.compare.forks import Fork, fork, go_on
from gesta.policy import Compact, Policy

USAGE = {"prompt_tokens": 80, "completion_tokens": 20}


@gesta.tool(effect="once", approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def think(messages: list[Any], _header: Any) -> Any:
    return "Paid." if messages[-1]["role"] == "tool" else gesta.reply(calls=[gesta.call("pay")], usage=USAGE)


def talk(_messages: list[Any], _header: Any) -> Any:
    return gesta.reply("Good morning. " * 20, usage=USAGE)


PAYER = gesta.Agent("payer", gesta.function(think), tools=[pay])


async def holds(record: Record, run: str, agent: gesta.Agent) -> None:
    """A case of a run is not a drift, and what the unchanged code does today is the case."""
    case = Case(Head(run=run, agent="desk.py:agent"), await taken(record, run))
    assert await check(case, agent) == []
    assert written(await accepted(case, agent)) == written(case)


async def test_a_summary_that_waited_for_a_person_is_replayed() -> None:
    policy = Policy(budget=gesta.Budget(usd=9), compact=Compact(at_tokens=60, keep_turns=1, by=PAYER))
    agent = gesta.Agent("talker", gesta.function(talk), policy=policy)
    async with gesta.open() as record:
        for _ in range(4):
            outcome = await record.run(agent, "Good morning. " * 20, session="s")
        await holds(record, outcome.run, agent)


async def test_a_fork_from_the_start_whose_sub_agent_asks_in_it_is_a_case() -> None:
    boss = gesta.Agent("boss", gesta.scripted(gesta.call("payer", task="Pay."), "Done."), tools=[PAYER.as_tool()])
    async with gesta.open() as record:
        base = await record.run(boss, "Pay.", session="s")
        made = await fork(record, await record.find(base.run), Fork(at=0))
        outcome = await go_on(record, made, boss)
        while outcome.waiting:
            await record.approve(outcome.waiting[0], by="ann")
            outcome = await record.resume(made.run, boss)
        assert outcome.answer == "Done."
        await holds(record, made.run, boss)


async def test_a_choice_by_lot_stays_in_a_case_that_is_accepted() -> None:
    async def program(verbs: gesta.Verbs, _text: str) -> str:
        return verbs.pick("way", [f"{number}" for number in range(99)])

    boss = gesta.Agent("boss", program=program)
    async with gesta.open() as record:
        await holds(record, (await record.run(boss, "Go.", session="s")).run, boss)
