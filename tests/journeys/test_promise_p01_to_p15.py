"""What broke the promise at version 0.1.0, by the numbers under which it was found: each test failed there.

`benchmarks/faults/mends.py` lists the mend of each, with the tests here and elsewhere that hold it, and
`python -m benchmarks.faults --unmend all --tests` shows that they fail without it.
"""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from benchmarks.faults.mends import MENDS, Change, Mend
from benchmarks.faults.unmended import ROOT, changed, path_of
from tests import programs
from tests.threads import Held

import gesta
from gesta.kinds import AttemptContent, ToolCallContent, ToolResultContent
from gesta.perform.threads import THREADS
from gesta.stores.pruning import Choice, Pruner, plan, prune

pytestmark = pytest.mark.anyio
QUICK = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0))


def found(entries: list[gesta.Entry], kind: type) -> list[Any]:
    return [entry.content for entry in entries if isinstance(entry.content, kind)]


def waits(outcome: gesta.Outcome) -> list[str]:
    return [each.what for each in outcome.waiting]


class Provider:
    """Accepts payments by their keys; the first one is accepted, and its answer does not come."""

    def __init__(self) -> None:
        self.keys = list[str]()
        self.asked = anyio.Event()

    async def take(self, key: str) -> str:
        self.keys.append(key)
        if len(self.keys) == 1:
            self.asked.set()
            await anyio.sleep_forever()
        return "paid"


# ------------------------------------------------------------------------------------- P1: one payment, one key


def repeating(tool: str, **args: Any) -> gesta.Agent:
    """An agent whose model makes its call again until it reads a result that is none of a broken call."""

    def think(messages: list[dict[str, Any]], _header: Any) -> Any:
        said = [each["content"] for each in messages if each["role"] == "tool"]
        return "Done." if said and "paid" in said[-1] else gesta.call(tool, **args)

    return gesta.Agent("desk", model=gesta.function(think), policy=QUICK)


async def left(record: gesta.Record, agent: gesta.Agent, provider: Provider) -> None:
    """Begin a turn and stop waiting for it while its payment is made."""
    async with anyio.create_task_group() as group:
        group.start_soon(partial(record.run, agent, "pay", session="s", key="m1"))
        await provider.asked.wait()
        group.cancel_scope.cancel()


async def test_a_payment_whose_turn_was_left_is_made_again_under_its_own_key_before_another_message_is_heard() -> None:
    provider = Provider()

    @gesta.tool(effect="idempotent")
    async def pay(cents: int, context: gesta.Context) -> str:
        """Pay."""
        return f"{cents}: {await provider.take(context.key)}"

    agent = gesta.Agent("desk", model=repeating("pay", cents=5).model, tools=[pay], policy=QUICK)
    async with gesta.open(grace_s=0) as record:
        await left(record, agent, provider)
        outcome = await record.run(agent, "did it work?", session="s", key="m2")
        calls = found(await record.read(outcome.run), ToolCallContent)
    assert outcome.answer == "Done."
    assert (len(calls), len(provider.keys), len(set(provider.keys))) == (1, 2, 1)


async def test_a_sub_agent_whose_parent_was_left_goes_on_and_is_not_called_anew() -> None:
    provider, fired = Provider(), list[int]()

    @gesta.tool(effect="idempotent")
    async def pay(n: int, context: gesta.Context) -> str:
        """Pay."""
        fired.append(n)
        return f"{await provider.take(context.key) if n == 1 else 'paid'}"

    script = gesta.scripted(gesta.call("pay", n=0), gesta.call("pay", n=1), "All paid.")
    payer = gesta.Agent("payer", model=script, tools=[pay], policy=QUICK)
    model = repeating("payer", task="pay both").model
    agent = gesta.Agent("desk", model=model, tools=[payer.as_tool()], policy=QUICK)
    async with gesta.open(grace_s=0) as record:
        await left(record, agent, provider)
        outcome = await record.run(agent, "did it work?", session="s", key="m2")
        runs = await record.store.runs()
    assert outcome.answer == "Done."
    assert [row.name for row in runs] == ["desk", "payer#6"]
    assert (Counter(fired), len(set(provider.keys))) == ({0: 1, 1: 2}, 1)


DYING = """
import os, sys, gesta
folder, life = sys.argv[1], int(sys.argv[2])

def lines():
    return open(folder + "/paid").read().split() if os.path.exists(folder + "/paid") else []

@gesta.tool(effect="once", reconcile=lambda key: gesta.Done("paid") if key in lines() else gesta.NotDone())
def pay(n: int, context: gesta.Context) -> str:
    "Pay an invoice."
    open(folder + "/paid", "a").write(context.key + chr(10))
    if life < 4:
        os._exit(9)
    return "paid"

def boss(messages, header):
    said = [each["content"] for each in messages if each["role"] == "tool"]
    return "Done." if said and "All paid" in said[-1] else gesta.call("payer", task="pay the invoices")

script = gesta.scripted(*[gesta.call("pay", n=number) for number in range(6)], "All paid.")
payer = gesta.Agent("payer", model=script, tools=[pay])
agent = gesta.Agent("boss", model=gesta.function(boss), tools=[payer.as_tool()])
print(gesta.run_sync(agent, "go", session="s", key="k", record=folder + "/r.gesta").answer)
"""


def test_a_sub_agent_whose_process_dies_four_times_while_it_goes_on_is_not_given_up(tmp_path: Path) -> None:
    lives = [programs.run(["-c", DYING, str(tmp_path), str(life)]) for life in range(5)]
    assert [life.returncode for life in lives] == [9, 9, 9, 9, 0], lives[-1].stderr
    assert lives[-1].stdout == "Done.\n"
    paid = (tmp_path / "paid").read_text().split()
    assert (len(paid), len(set(paid))) == (6, 6)


# ------------------------------------------------------------------------------- P2: no key stands for two effects


async def test_after_a_prune_no_payment_has_the_key_of_an_older_one() -> None:
    keys = list[str]()

    @gesta.tool(effect="idempotent")
    async def pay(cents: int, context: gesta.Context) -> str:
        """Pay."""
        keys.append(context.key)
        return f"paid {cents}"

    async with gesta.open() as record:
        for cents in (500, 9900):
            model = gesta.scripted(gesta.call("pay", cents=cents), "Done.")
            agent = gesta.Agent("desk", model=model, tools=[pay])
            outcome = await record.run(agent, f"pay {cents}", session="s", key=f"m{cents}")
            gone = await plan(record.store, Choice(session="s"))
            assert (await prune(record.store, gone, Pruner(by="ann"))).runs == 1
    assert outcome.answer == "Done."
    assert (len(keys), len(set(keys))) == (2, 2)


# ------------------------------------------------------- P4: what may still be at work is not believed to be not done


class Slow:
    """A payment in a thread that is made when it is let go; `settled` looks it up by its key."""

    def __init__(self) -> None:
        self.held, self.paid = Held(), list[str]()
        self.begun = 0

    def pay(self, context: gesta.Context) -> str:
        """Pay."""
        self.begun += 1
        self.held.here()
        self.paid.append(context.key)
        return "paid"

    def settled(self, key: str) -> gesta.Done | gesta.NotDone:
        return gesta.Done("paid") if key in self.paid else gesta.NotDone()


async def test_a_payment_that_outlives_its_timeout_is_not_made_again_while_it_may_be_at_work() -> None:
    slow = Slow()
    pay = gesta.tool(slow.pay, effect="once", timeout_s=0.05, reconcile=slow.settled)
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "pay", session="s", key="m")
        assert waits(outcome) == ["doubt"]
        await slow.held.let_go()
        assert (await record.resume(outcome.run, agent)).answer == "Done."
    assert (slow.begun, len(slow.paid)) == (1, 1)


async def test_a_payment_whose_program_stopped_waiting_is_not_made_again_while_it_may_be_at_work() -> None:
    slow = Slow()
    pay = gesta.tool(slow.pay, effect="once", reconcile=slow.settled)
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
    async with gesta.open(grace_s=0) as record:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(record.run, agent, "pay", session="s", key="m"))
            await slow.held.all_here()
            group.cancel_scope.cancel()
        outcome = await record.run(agent, "pay", session="s", key="m")
        assert waits(outcome) == ["doubt"]
        await slow.held.let_go()
        assert (await record.run(agent, "pay", session="s", key="m")).answer == "Done."
    assert (slow.begun, len(slow.paid)) == (1, 1)


# ------------------------------------------------------------------ P8: waiting for a thread is not a time of the tool


async def test_a_call_that_waits_for_a_thread_has_not_begun() -> None:
    held, asked = Held(THREADS), anyio.Event()

    @gesta.tool(effect="pure")
    def hold(n: int) -> str:
        """Hold a thread."""
        held.here()
        return "held"

    @gesta.tool(effect="once", timeout_s=5)
    def pay() -> str:
        """Pay."""
        return "paid"

    def acting(tool: gesta.Tool, **args: Any) -> gesta.Agent:
        return gesta.Agent(tool.name, model=gesta.scripted(gesta.call(tool.name, **args), "Done."), tools=[tool])

    def choose(messages: list[Any], _header: Any) -> Any:
        asked.set()
        return gesta.call("pay") if len(messages) == 1 else "Done."

    payer = gesta.Agent("pay", model=gesta.function(choose), tools=[pay])
    async with gesta.open() as record, anyio.create_task_group() as group:
        for number in range(THREADS):
            group.start_soon(partial(record.run, acting(hold, n=number), "hold", session=f"h{number}"))
        await held.all_here()
        group.start_soon(partial(record.run, payer, "pay", session="s", key="m"))
        await asked.wait()
        for _ in range(100):
            await checkpoint()
        entries = await record.read((await record.find("s")).run)
        assert (len(found(entries, ToolCallContent)), found(entries, AttemptContent)) == (1, [])
        await held.let_go()
        outcome = await record.run(payer, "pay", session="s", key="m")
    assert outcome.answer == "Done."


# --------------------------------------------------------------- P13: what a tool raises is its own affair


class Panic(BaseException):
    """What libraries in other languages raise when they fail."""


async def test_what_a_streamed_tool_raises_ends_no_other_stream_and_not_its_own_without_a_word() -> None:
    go = anyio.Event()

    @gesta.tool(effect="pure")
    async def panic() -> str:
        """Fail."""
        go.set()
        raise Panic("at once")

    @gesta.tool(effect="pure")
    async def calm() -> str:
        """Work while the other one fails."""
        await go.wait()
        return "fine"

    def acting(tool: gesta.Tool) -> gesta.Agent:
        return gesta.Agent(tool.name, model=gesta.scripted(gesta.call(tool.name), "Done."), tools=[tool])

    async with gesta.open() as record:
        streams = [record.stream(acting(tool), "go", session=tool.name) for tool in (calm, panic)]
        results = list[Any]()

        async def hear(stream: Any) -> None:
            async for _ in stream:
                pass
            results.extend(found(await record.read(stream.outcome.run), ToolResultContent))
            assert stream.outcome.answer == "Done."

        async with anyio.create_task_group() as group:
            for stream in streams:
                group.start_soon(hear, stream)
    assert {(each.outcome, str(each.tool_result)) for each in results} == {("ok", "fine"), ("error", "Panic: at once")}


DRIVEN = """
import os, sys, gesta

@gesta.tool(effect="pure")
def crash() -> str:
    "End this process."
    os._exit(9)

rules = gesta.Policy(attempts=100, deaths=3)
model = gesta.scripted("Hello.", gesta.call("crash"), "Done.")
agent = gesta.Agent("desk", model=model, tools=[crash], policy=rules)
with gesta.open_sync(sys.argv[1]) as record:
    for place, text in enumerate(("hi", "crash")):
        outcome = record.run(agent, text, session="s", key=f"m{place}")
print([each.what for each in outcome.waiting])
"""


def test_a_death_counts_also_where_the_next_process_asks_for_an_earlier_answer_first(tmp_path: Path) -> None:
    words = ["-c", DRIVEN, str(tmp_path / "r.gesta")]
    lives = [programs.run(words) for _ in range(4)]
    assert [life.returncode for life in lives] == [9, 9, 9, 0]
    assert lives[-1].stdout == "['deaths']\n"


# ---------------------------------------------------------------------------------------------------- the list itself


@pytest.mark.parametrize("mend", MENDS.values(), ids=MENDS.keys())
def test_each_mend_can_be_taken_out_and_its_tests_are_there(mend: Mend) -> None:
    for change in mend.changes:
        text = (ROOT / "src" / path_of(change)).read_text()
        assert changed(text, change) != text
    for test in mend.tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text()


def test_a_line_that_is_no_longer_there_is_named() -> None:
    change = Change("gesta.loop:turn", "while 1:", "while 0:")
    with pytest.raises(SystemExit, match=r"gesta.loop:turn has no 'while 1:' any more"):
        changed((ROOT / "src" / path_of(change)).read_text(), change)
    gone = Change("gesta.loop:returned", "while True:", "while 0:")
    with pytest.raises(SystemExit, match=r"gesta.loop:returned is not there any more"):
        changed((ROOT / "src" / path_of(gone)).read_text(), gone)
