"""How what nobody knows is settled: looking again, a person's word, a parent's cancellation, and a resume after deaths."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests import programs
from tests.threads import Held

import gesta
from gesta.events import Outcome
from gesta.kinds import ResolutionContent, SignalContent, ToolResultContent

QUICK = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0))


def waits(outcome: Outcome) -> list[str]:
    return [each.what for each in outcome.waiting]


class Slow:
    """A payment in a thread, which outlives its timeout and is made when it is let go."""

    def __init__(self) -> None:
        self.held = Held()
        self.paid = 0

    def pay(self) -> str:
        """Pay."""
        self.held.here()
        self.paid += 1
        return "paid"

    def agent(self, effect: Any) -> gesta.Agent:
        tool = gesta.tool(self.pay, effect=effect, timeout_s=0.02)
        rules = gesta.Policy(attempts=1)
        return gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[tool], policy=rules)


async def settle(record: gesta.Record, run: str, of: int | None, verdict: Any) -> None:
    assert of is not None
    await record.send(run, ResolutionContent(of=of, verdict=verdict, by="ann"), key=f"r-{verdict}")


async def results(record: gesta.Record, run: str) -> list[Any]:
    entries = await record.read(run)
    return [entry.content.tool_result for entry in entries if isinstance(entry.content, ToolResultContent)]


async def test_who_looks_again_and_learns_nothing_writes_nothing(tmp_path: Path) -> None:
    slow = Slow()
    agent = slow.agent("once")
    async with gesta.open(str(tmp_path / "r.gesta")) as record, gesta.open(str(tmp_path / "r.gesta")) as other:
        outcome = await record.run(agent, "pay", session="s")
        heads = set[int]()
        for each in (record, record, other, record, other):
            assert waits(await each.resume(outcome.run, agent)) == ["doubt"]
            heads.add((await record.read(outcome.run))[-1].seq)
        assert len(heads) == 1
        await slow.held.let_go()
        assert (await record.resume(outcome.run, agent)).answer == "Done."


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_that_a_payment_failed_is_believed_only_when_its_attempt_has_ended(effect: str) -> None:
    slow = Slow()
    agent = slow.agent(effect)
    async with gesta.open() as record:
        outcome = await record.run(agent, "pay", session="s")
        await settle(record, outcome.run, outcome.waiting[0].of, "failed")
        for _ in range(2):
            outcome = await record.resume(outcome.run, agent)
            assert waits(outcome) == ["running"]
        await slow.held.let_go()
        outcome = await record.resume(outcome.run, agent)
        assert (outcome.answer, await results(record, outcome.run)) == ("Done.", ["paid"])


@pytest.mark.parametrize("verdict", ["retry", "failed"])
async def test_a_word_about_an_attempt_that_ends_after_it_counts_no_more(verdict: str) -> None:
    slow = Slow()

    def pay() -> str:
        """Pay."""
        slow.pay()
        raise gesta.InDoubt("the line went dead")

    tool = gesta.tool(pay, effect="once", timeout_s=0.02)
    agent = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[tool])
    async with gesta.open() as record:
        outcome = await record.run(agent, "pay", session="s")
        await settle(record, outcome.run, outcome.waiting[0].of, verdict)
        assert waits(await record.resume(outcome.run, agent)) == ["running"]
        await slow.held.let_go()
        for _ in range(2):
            outcome = await record.resume(outcome.run, agent)
            assert (waits(outcome), slow.paid) == (["doubt"], 1), "nobody has looked since it was paid"
        said = ResolutionContent(of=outcome.waiting[0].of or 0, verdict="done", by="ann", result="paid")
        await record.send(outcome.run, said, key="looked")
        assert (await record.resume(outcome.run, agent)).answer == "Done."
        assert (await results(record, outcome.run), slow.paid) == (["paid"], 1)


async def test_that_a_payment_failed_is_believed_when_its_attempt_has_ended_without_a_result() -> None:
    @gesta.tool(effect="once")
    def pay() -> str:
        """Pay."""
        raise gesta.InDoubt("the line went dead")

    agent = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "pay", session="s")
        await settle(record, outcome.run, outcome.waiting[0].of, "failed")
        assert (await record.resume(outcome.run, agent)).answer == "Done."
        assert await results(record, outcome.run) == ["The call did not happen."]


async def test_a_payment_that_closed_its_connection_when_its_time_was_over_is_settled_by_one_word() -> None:
    """Clients of HTTP close a connection in a shield, after which anyio cancels from within the attempt."""

    async def pay() -> str:
        """Pay."""
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
        return "paid"

    tool = gesta.tool(pay, effect="once", timeout_s=0.02)
    agent = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[tool])
    async with gesta.open() as record:
        outcome = await record.run(agent, "pay", session="s")
        await record.resolve(outcome.waiting[0], "failed", by="ann")
        assert (await record.resume(outcome.run, agent)).answer == "Done."


async def test_a_person_sees_of_a_child_what_is_in_doubt_and_what_is_still_running() -> None:
    slow = Slow()
    below = slow.agent("once")
    model = gesta.scripted(gesta.call("payer", task="pay"), "All is paid.")
    agent = gesta.Agent("desk", model=model, tools=[below.as_tool()])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", session="s")
        (doubt,) = outcome.waiting
        assert doubt.what == "doubt"
        await settle(record, doubt.run, doubt.of or 0, "retry")
        outcome = await record.resume(outcome.run, agent)
        assert [each.what for each in outcome.waiting] == ["running"]
        await slow.held.let_go()
        assert (await record.resume(outcome.run, agent)).answer == "All is paid."
    assert slow.paid == 1


async def test_a_child_at_work_is_running_for_who_looks_at_it() -> None:
    go, begun = anyio.Event(), anyio.Event()

    @gesta.tool(effect="once")
    async def pay() -> str:
        """Pay."""
        begun.set()
        await go.wait()
        return "paid"

    agent = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
    async with gesta.open() as record, anyio.create_task_group() as group:
        group.start_soon(record.run, agent, "pay")
        await begun.wait()
        (row,) = await record.store.runs()
        assert [each.what for each in await record.waiting(row.run)] == ["running"]
        go.set()


def two_calls(pay: gesta.Tool, *, first: bool) -> gesta.Agent:
    """An agent above one that asks a person before it pays, and pays once unasked before where `first`."""
    ask = gesta.tool(lambda: "given", name="give", effect="once", approval=True)
    calls: list[Any] = [gesta.call("pay"), gesta.call("give")] if first else [gesta.call("give")]
    below = gesta.Agent("payer", model=gesta.scripted(*calls, "Paid."), tools=[pay, ask])
    script: list[Any] = [gesta.call("payer", task="pay"), gesta.call("payer", task="pay"), "Done."]
    return gesta.Agent("desk", model=gesta.scripted(*script), tools=[below.as_tool()], policy=QUICK)


@pytest.mark.parametrize("first", [False, True], ids=["only waited", "paid before"])
async def test_an_agent_that_only_waited_leaves_no_doubt_when_its_parent_is_cancelled(*, first: bool) -> None:
    @gesta.tool(effect="once")
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = two_calls(pay, first=first)
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", session="s")
        assert waits(outcome) == ["approval"]
        await record.send(outcome.run, SignalContent(name="cancel", by="ann"), key="c")
        outcome = await record.resume(outcome.run, agent)
        assert (outcome.reason, outcome.doubts) == ("cancelled", ("payer",) if first else ())
        told = await results(record, outcome.run)
        assert told == ([] if first else ["This call was not carried out."])
        again = await record.run(agent, "go on", session="s")
        assert waits(again) == ["approval"]
        assert (again.waiting[0].run == again.run) is first, "the payer is asked about, or the gift below it"


async def test_an_agent_that_waits_for_a_person_goes_on_when_they_answer_two_days_later() -> None:
    ask = gesta.tool(lambda: "given", name="give", effect="once", approval=True)
    below = gesta.Agent("payer", model=gesta.scripted(gesta.call("give"), "Paid."), tools=[ask])
    script: list[Any] = [gesta.call("payer", task="pay"), "Done."]
    agent = gesta.Agent("desk", model=gesta.scripted(*script), tools=[below.as_tool()])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go")
        record.turns.clock = lambda: datetime.now(UTC) + timedelta(days=2)
        await record.approve(outcome.waiting[0], by="ann")
        assert (await record.resume(outcome.run, agent)).answer == "Done."


DYING = """
import os, sys, gesta
policy = gesta.Policy(deaths=2)
def think(messages, header):
    if len(sys.argv) < 3:
        os._exit(9)
    return "Paid."
child = gesta.Agent("payer", model=gesta.function(think), policy=policy)
model = gesta.scripted(gesta.call("payer", task="pay"), "ok")
agent = gesta.Agent("desk", model=model, tools=[child.as_tool()], policy=policy)
with gesta.open_sync(sys.argv[1]) as record:
    outcome = record.run(agent, "go", session="s", key="k")
print(outcome.answer, [each.what for each in outcome.waiting], outcome.run)
"""


async def test_a_person_who_resumes_a_run_wakes_what_waits_below_it_for_that_two_days_later_too(tmp_path: Path) -> None:
    words = ["-c", DYING, str(tmp_path / "r.gesta")]
    lives = [programs.run(words) for _ in range(3)]
    assert [life.returncode for life in lives] == [9, 9, 0]
    well = programs.run([*words, "well"])
    assert well.stdout.startswith("None ['child']"), "a message is nobody's word about deaths"
    run = well.stdout.split()[-1]
    rules = gesta.Policy(deaths=2)
    child = gesta.Agent("payer", model=gesta.scripted("Paid."), policy=rules)
    model = gesta.scripted(gesta.call("payer", task="pay"), "ok")
    agent = gesta.Agent("desk", model=model, tools=[child.as_tool()], policy=rules)
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        record.turns.clock = lambda: datetime.now(UTC) + timedelta(days=2)
        assert waits(await record.resume(run, agent, by=None)) == ["child"]
        assert (await record.resume(run, agent, by="ann")).answer == "ok"
