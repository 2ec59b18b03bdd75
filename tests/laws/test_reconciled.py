"""Laws 2 and 10 where `reconcile` fails at random: no effect happens twice, no turn stays open, a replay follows it all.

Processes die at random, people approve and settle calls at random, and sub-agents have such calls too.
"""

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from anyio.lowlevel import checkpoint
from tests.conftest import FULL
from tests.laws.test_killed_patterns import Mortal

import gesta
from gesta import address
from gesta.address import Record
from gesta.compare.replaying import replay_run
from gesta.kinds import ApprovalContent, FaultContent, ResolutionContent
from gesta.state.calls import UNSETTLED

LIVES, HONEST = 60, 25
"""So many processes at most; from that one on, none dies and `reconcile` always knows."""


class Bank:
    """Makes payments by their keys, of which some answers are lost."""

    def __init__(self, seed: int) -> None:
        self.chance, self.paid, self.asked, self.honest = random.Random(seed), Counter[str](), 0, False

    async def pay(self, context: gesta.Context) -> str:
        """Pay."""
        if self.chance.random() < 0.2:
            raise gesta.InDoubt
        self.paid[context.key] += 1
        await checkpoint()
        if self.chance.random() < 0.5:
            raise gesta.InDoubt
        return "paid"

    async def settled(self, key: str) -> gesta.Done | gesta.NotDone | gesta.Unknown:
        self.asked += 1
        luck = 9 if self.honest else self.chance.randrange(6)
        if luck < 2:
            raise ConnectionError(f"closed {luck}")
        if luck == 2:
            return gesta.Unknown()
        await checkpoint()
        return gesta.Done("paid") if self.paid[key] else gesta.NotDone()

    def agent(self, seed: int) -> gesta.Agent:
        """An agent that pays in one to three replies; of each fourth seed, as a sub-agent."""
        plan, policy = random.Random(seed), gesta.Policy(attempts=9, deaths=100, parallel=(1, 4)[seed % 2])
        names = ("pay", "sign", "tell")
        options: dict[str, dict[str, Any]] = {"pay": {}, "sign": {"approval": True}, "tell": {"on_doubt": "tell"}}
        tools = [gesta.tool(self.pay, name=name, reconcile=self.settled, **options[name]) for name in names]
        script = [
            [gesta.call(plan.choice(names)) for _ in range(plan.randint(1, 3))] for _ in range(plan.randint(1, 3))
        ]
        agent = gesta.Agent("desk", model=gesta.scripted(*script, "done"), tools=tools, policy=policy)
        if seed % 4 != 1:
            return agent
        model = gesta.scripted(gesta.call("desk", task="pay"), "all done")
        return gesta.Agent("boss", model=model, tools=[agent.as_tool()], policy=policy)


async def tell(record: Record, outcome: gesta.Outcome, bank: Bank) -> None:
    """Approve and settle some of what waits, as a person would who looks into the bank's books."""
    for waits in outcome.waiting:
        of, said = waits.of or 0, bank.chance.random()
        with suppress(gesta.GestaError):
            if waits.what == "approval" and said < 0.7:
                await record.send(waits.run, ApprovalContent(of=of, verdict="approved", by="ann"), key=f"a{of}")
            elif waits.what == "doubt" and said < 0.1:
                done = bank.paid[getattr((await record.read(waits.run))[of - 1].content, "key", "")]
                settled = ResolutionContent(of=of, verdict="done" if done else "retry", by="ann")
                await record.send(waits.run, settled, key=f"r{of}")


async def lived(seed: int, bank: Bank) -> tuple[Record, gesta.Outcome]:
    """Live on until the turn has ended."""
    store = Mortal()
    for life in range(LIVES):
        bank.honest = life > HONEST
        dies = bank.chance.random() < 0.5 and not bank.honest
        store.begin((bank.chance.randint(1, 14), bank.chance.choice(["", "before", "after"])) if dies else None)
        try:
            outcome = await Record(store, address.bind).run(bank.agent(seed), "go", session="s", key="k")
        except BaseException:
            if not store.dead:
                raise
            continue
        if store.dead:
            continue
        store.begin(None)
        if outcome.end is not None:
            break
        await tell(Record(store, address.bind), outcome, bank)
    return Record(store, address.bind), outcome


@pytest.mark.parametrize("seed", range(400 if FULL else 12))
async def test_however_often_reconcile_fails_and_processes_die_no_effect_is_lost_or_repeated(seed: int) -> None:
    bank = Bank(seed)
    record, outcome = await lived(seed, bank)
    assert outcome.reason == "answered"
    assert max(bank.paid.values(), default=0) <= 1
    runs, asked = {row.run: await record.read(row.run) for row in await record.store.runs()}, bank.asked
    for entries in runs.values():
        faults = [each.content for each in entries if isinstance(each.content, FaultContent)]
        told = Counter(each.of for each in faults if each.error.type == UNSETTLED)
        assert max(told.values(), default=0) <= 2, "one while the attempt may be at work, and one after its end"
    seen = await replay_run(runs, outcome.run, address.bind(bank.agent(seed)))
    assert (seen.first, bank.asked) == (None, asked)
    entries = runs[outcome.run]
    for end in range(8, len(entries), 1 if FULL else 7):
        seen = await replay_run({**runs, outcome.run: entries[:end]}, outcome.run, address.bind(bank.agent(seed)))
        assert seen.first is None, end
