"""A person's word from Python: what it is about is found, what it does is told, and the first answer counts."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint

import gesta
from gesta.bridges.pushing import push
from gesta.decide.approval import SignedApprovals, asked, sign
from gesta.errors import AgentError, Expired, NoRun, NotWaiting, RunMirrored, SaidBefore, WriteFailed
from gesta.kinds import ApprovalContent, SignalContent
from gesta.record.answers import Receipt
from gesta.record.record import Record
from gesta.store import Letter
from gesta.stores.memory import MemoryStore
from gesta.stores.sqlite_backup import backup
from gesta.tools.person import ask_person

PAID: list[int] = []


@gesta.tool(effect="once", approval=True)
def pay(euros: int) -> str:
    """Pay."""
    PAID.append(euros)
    return f"{euros} paid"


WIRE = msgspec.structs.replace(pay, name="wire", expires_s=60)


@gesta.tool(effect="once")
def order() -> str:
    """Order."""
    raise gesta.InDoubt("the line went dead")


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a record is: in a file, and in PostgreSQL."""
    if request.param == "sqlite":
        return str(tmp_path / "a.gesta")
    return str(request.getfixturevalue("emptied"))


def clerk(*said: Any, name: str = "clerk", tools: Any = None) -> gesta.Agent:
    calls = said or (gesta.call("pay", euros=5),)
    return gesta.Agent(name, model=gesta.scripted(*calls, "Done."), tools=tools or [pay])


BOSS = clerk(gesta.call("clerk", task="Pay."), name="boss", tools=[clerk().as_tool()])


async def test_a_letter_goes_to_the_run_that_a_name_means_and_is_refused_where_there_is_none(address: str) -> None:
    async with gesta.open(address) as record:
        outcome = await record.run(clerk(), "Pay.", session="anna")
        assert await record.send("anna", SignalContent(name="cancel", by="ann"), key="stop")
        assert not await record.send(outcome.run[:9], SignalContent(name="cancel", by="ann"), key="stop"), (
            "its key is used"
        )
        assert (await record.resume("anna", clerk())).reason == "cancelled"
        with pytest.raises(NoRun):
            await record.send("bob", SignalContent(name="cancel", by="ann"), key="stop")
    assert PAID == []


@pytest.mark.sample(2)
async def test_a_run_below_is_answered_by_its_wait_or_by_the_session_of_the_run_above(address: str) -> None:
    by: list[Callable[[gesta.Outcome], Any]] = [
        lambda outcome: outcome.waiting[0],
        lambda outcome: outcome.session,
        lambda outcome: outcome.run,
        lambda outcome: outcome.run[:9],
        lambda outcome: outcome.waiting[0].run,
        lambda _outcome: "last",
    ]
    async with gesta.open(address) as record, gesta.open(address) as elsewhere:  # who has no agent
        for place, named in enumerate(by):
            outcome = await record.run(BOSS, "Pay.", session=f"s{place}")
            below = outcome.waiting[0]
            receipt = await elsewhere.approve(named(outcome), by="ann")
            assert receipt == Receipt(
                verdict="approved",
                run=below.run,
                root=outcome.run,
                session=f"s{place}",
                of=below.of or 0,
                call=below.call,
                tool="pay",
                by="ann",
            )
            assert below.run != outcome.run
            assert (await elsewhere.resume(receipt.root, BOSS)).answer == "Done."
    assert [5] * len(by) == PAID


async def test_the_same_word_again_does_nothing_and_another_one_is_refused_before_and_after_the_call(
    address: str,
) -> None:
    async with gesta.open(address) as record:
        outcome = await record.run(clerk(), "Pay.", session="s")
        (waiting,) = outcome.waiting
        assert not (await record.approve(waiting, by="ann", reason="a gift")).again
        for _ in range(2):
            for named in (waiting, "s"):
                if named is waiting or not PAID:
                    again = await record.approve(named, waiting.call, by="bob")
                    assert (again.again, again.by, again.verdict) == (True, "ann", "approved")
            for other in (
                lambda: record.deny(waiting, by="bob"),
                lambda: record.approve(waiting, by="bob", args={"euros": 500}),
                lambda: record.answer(waiting, "in cash", by="bob"),
                lambda: record.deny("s", waiting.call, by="bob"),
            ):
                with pytest.raises(SaidBefore, match=r"call=6 \(pay\): approved by 'ann', and the first answer counts"):
                    await other()
            assert (await record.resume(outcome.run, clerk())).answer == "Done."
        with pytest.raises(NotWaiting, match="has no call that waits for approval, nor has a run below it"):
            await record.approve("s", by="bob")
    assert PAID == [5]


async def test_of_several_calls_one_is_named_and_those_that_were_answered_are_no_choice() -> None:
    calls = [gesta.call("pay", euros=1), gesta.call("pay", euros=2), gesta.call("pay", euros=3)]
    async with gesta.open() as record:
        outcome = await record.run(clerk(calls), "Pay.", session="s")
        first, second, third = outcome.waiting
        named = f"call={first.call} (pay), call={second.call} (pay), call={third.call} (pay)"
        with pytest.raises(NotWaiting) as several:
            await record.approve("s", by="ann")
        assert f"has 3 of them, expected one call that waits for approval: {named}." in str(several.value)
        with pytest.raises(NotWaiting, match=f"with seq 2; it has call={first.call}"):
            await record.approve("s", 2, by="ann")
        await record.approve("s", second.call, by="ann")
        await record.approve("s", third.of, by="ann")
        assert (await record.deny("s", by="ann")).call == first.call
        await record.resume(outcome.run, clerk(calls))
    assert sorted(PAID) == [2, 3]


async def test_where_runs_below_wait_at_once_each_is_named_with_its_run() -> None:
    two = [gesta.call("clerk", task="a"), gesta.call("clerk", task="b")]
    boss = clerk(two, name="boss", tools=[clerk().as_tool()])
    async with gesta.open() as record:
        outcome = await record.run(boss, "Pay.", session="s")
        first, second = outcome.waiting
        assert (first.call, first.of) == (second.call, second.of)
        for wanted in (None, first.call):
            with pytest.raises(NotWaiting) as several:
                await record.approve("s", wanted, by="ann")
            for each in (first, second):
                assert f"call={each.call} (pay) in run {each.run!r}" in str(several.value)
        await record.approve(first.run, first.call, by="ann")
        await record.deny(second, by="ann")
        assert (await record.resume(outcome.run, boss)).answer == "Done."
    assert PAID == [5]


async def test_an_answer_takes_the_place_of_a_tool_only_where_that_is_named() -> None:
    async with gesta.open() as record:
        outcome = await record.run(clerk(), "Pay.", session="s")
        with pytest.raises(
            NotWaiting, match="has no question that waits, nor has a run below it; what waits: approval of"
        ):
            await record.answer("s", "in cash", by="ann")
        assert (
            await record.answer("s", "in cash", outcome.waiting[0].of, by="ann", reason="no line")
        ).verdict == "answered"
        await record.resume(outcome.run, clerk())
        (result,) = [each.content for each in await record.read(outcome.run) if each.kind == "tool-result"]
        assert (result.tool_result, PAID) == ("in cash", [])  # type: ignore[union-attr]


async def test_a_question_is_answered_once_and_the_answer_has_to_fit() -> None:
    agent = clerk(
        gesta.call("ask_person", question="How many?"), tools=[ask_person(answer={"type": "integer", "minimum": 1})]
    )
    async with gesta.open() as record:
        (waiting,) = (await record.run(agent, "Go.", session="s")).waiting
        for value, problem in (("two", "expected JSON of type integer"), (0, "is 0, expected at least 1")):
            with pytest.raises(AgentError, match=problem):
                await record.answer(waiting, value, by="ann")
        with pytest.raises(AgentError, match="has no reason and no token"):
            await record.answer(waiting, 2, by="ann", reason="so it is")
        assert (await record.answer("s", 2, by="ann")).tool == "ask_person"
        assert (await record.answer(waiting, 2, by="bob")).again
        with pytest.raises(SaidBefore, match=r"of=7 \(How many\?\): answered by 'ann'"):
            await record.answer(waiting, 3, by="bob")
        with pytest.raises(NotWaiting, match="what waits: question of ask_person"):
            await record.approve(waiting, by="ann")


async def test_a_doubt_is_settled_once_also_after_the_end_of_its_turn(address: str) -> None:
    agent = clerk(gesta.call("order"), tools=[order])
    async with gesta.open(address) as record:
        outcome = await record.run(agent, "Order.", session="s")
        (waiting,) = outcome.waiting
        assert (await record.resolve(waiting, "done", by="ann", result="order 7")).verdict == "done"
        assert (await record.resolve("s", "done", by="bob", result="order 7")).by == "ann"
        with pytest.raises(SaidBefore, match=r"call=6 \(order\): done by 'ann'"):
            await record.resolve(waiting, "retry", by="bob")
        assert (await record.resume(outcome.run, agent)).answer == "Done."
        with pytest.raises(SaidBefore, match="done by 'ann'"):
            await record.resolve(waiting, "failed", by="bob")


async def test_a_turn_is_cancelled_by_what_it_waits_for(address: str) -> None:
    async with gesta.open(address) as record:
        outcome = await record.run(clerk(), "Pay.", session="s")
        (waiting,) = outcome.waiting
        ended = await record.cancel(waiting, by="ann", reason="shut")
        assert ended is not None
        assert ended.reason == "cancelled"
        for late in (lambda: record.cancel("s", by="ann"), lambda: record.approve(waiting, by="ann")):
            with pytest.raises(NotWaiting):
                await late()
    assert PAID == []


async def test_a_request_that_has_expired_takes_no_word() -> None:
    agent = clerk([gesta.call("pay", euros=1), gesta.call("wire", euros=2)], tools=[pay, WIRE])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Pay.", session="s")
        _, brief = outcome.waiting
        assert brief.expires is not None
        past = brief.expires
        record.turns.clock = lambda: past
        for late in (lambda: record.approve(brief, by="ann"), lambda: record.deny("s", brief.call, by="ann")):
            with pytest.raises(Expired, match="no more for approval of call 7: the request expired at"):
                await late()
        assert (await record.approve("s", by="ann")).tool == "pay", "the only one that can be approved"
        await record.resume(outcome.run, agent)
    assert PAID == [1]


async def test_a_session_whose_name_looks_like_an_id_is_found() -> None:
    session = "0123456789abcdef"
    async with gesta.open() as record:
        await record.run(clerk(), "Pay.", session=session)
        assert [each.tool for each in await record.waiting(session)] == ["pay"]
        assert (await record.approve(session, by="ann")).session == session
        assert (await record.resume(session, clerk())).answer == "Done."
    assert PAID == [5]


async def test_what_is_not_there_is_said() -> None:
    async with gesta.open() as record, gesta.open() as other:
        outcome = await record.run(clerk(), "Pay.", session="s")
        with pytest.raises(NoRun, match="Did you mean 's'"):
            await record.approve("ss", by="ann")
        with pytest.raises(NoRun):
            await other.approve(outcome.waiting[0], by="ann")


async def test_a_mirror_takes_no_word_and_neither_does_a_run_that_was_moved_away() -> None:
    here, there = Record(MemoryStore(), gesta.address.bind), Record(MemoryStore(), gesta.address.bind)
    outcome = await here.run(clerk(), "Pay.", session="s")
    (waiting,) = outcome.waiting
    await push(here.store, there.store)
    for word in (lambda: there.approve(waiting, by="ann"), lambda: there.cancel("s", by="ann")):
        with pytest.raises(RunMirrored, match="is a mirror"):
            await word()
    await push(here.store, there.store, moved_by="ann")
    for word in (lambda: here.approve(waiting, by="ann"), lambda: here.cancel("s", by="ann")):
        with pytest.raises(RunMirrored, match="was moved to"):
            await word()
    await there.approve(waiting, by="ann")
    assert (await there.resume(outcome.run, clerk())).answer == "Done."
    assert PAID == [5]


async def test_in_a_backup_a_call_that_was_approved_waits_until_somebody_adopts_the_copy(tmp_path: Path) -> None:
    here, there = str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta")
    async with gesta.open(here) as record:
        outcome = await record.run(clerk(), "Pay.", session="s")
    backup(here, there)
    async with gesta.open(there) as copy:
        await copy.approve("s", by="eve")
        assert [each.what for each in (await copy.resume("s", clerk())).waiting] == ["copy"]
        assert [each.what for each in await copy.waiting("s")] == ["copy"]
        assert (await copy.sessions())[0].stands == "waiting"
    async with gesta.open(here) as record:
        assert [each.what for each in await record.waiting("s")] == ["approval"], "nobody answered here"
        await record.deny(outcome.waiting[0], by="ann")
        assert (await record.resume("s", clerk())).answer == "Done."
    assert PAID == []


async def test_of_many_who_answer_at_once_one_counts_and_each_other_is_told_who(address: str) -> None:
    async with gesta.open(address) as record:
        (waiting,) = (await record.run(BOSS, "Pay.", session="s")).waiting
        told: list[tuple[str, str, bool]] = []

        async def answer(number: int) -> None:
            async with gesta.open(address) as mine:
                say = mine.approve if number % 2 else mine.deny
                try:
                    receipt = await say(waiting, by=f"p{number}")
                    told.append((receipt.verdict, receipt.by, receipt.again))
                except SaidBefore as refused:
                    told.append((refused.verdict, refused.by, True))

        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(answer, number)
        ((verdict, by, _),) = [each for each in told if not each[2]]
        assert {each[:2] for each in told} == {(verdict, by)}
        assert (await record.resume("s", BOSS)).answer == "Done."
    assert ([5] if verdict == "approved" else []) == PAID


async def test_an_answer_whose_write_failed_or_was_cancelled_is_given_again(address: str) -> None:
    async with gesta.open(address) as record:
        (waiting,) = (await record.run(clerk(), "Pay.", session="s")).waiting
        send, failures = record.store.send, [False, True]

        async def failing(letter: Letter) -> bool:
            if failures:
                if failures.pop(0):  # it is there, and who sent it does not know
                    await send(letter)
                raise WriteFailed(address, "the disk is full")
            return await send(letter)

        record.store.send = failing  # type: ignore[method-assign]
        for _ in range(2):
            with pytest.raises(WriteFailed):
                await record.approve(waiting, by="ann")
        assert (await record.approve(waiting, by="ann")).again
        assert (await record.resume("s", clerk())).answer == "Done."
    assert PAID == [5]


async def test_an_answer_that_is_cancelled_at_any_instant_is_there_or_not_and_can_be_given_again(address: str) -> None:
    lot = random.Random(5)
    async with gesta.open(address) as record:
        for number in range(6):
            (waiting,) = (await record.run(clerk(), "Pay.", session=f"s{number}")).waiting
            task = asyncio.create_task(record.approve(f"s{number}" if lot.random() < 0.5 else waiting, by="ann"))
            for _ in range(lot.randrange(40)):
                await checkpoint()
            task.cancel()
            await asyncio.wait([task])
            receipt = await record.approve(waiting, by="bob")
            assert receipt.by == ("ann" if receipt.again else "bob")
            assert (await record.resume(f"s{number}", clerk())).answer == "Done."
    assert PAID == [5] * 6


async def test_what_waits_goes_to_a_page_and_back_and_nothing_that_the_page_changed_is_believed() -> None:
    async with gesta.open() as record:
        (waiting,) = (await record.run(clerk(), "Pay.", session="s")).waiting
        text = msgspec.json.encode(msgspec.structs.replace(waiting, args={"euros": 500}, session="t", effect="pure"))
        receipt = await record.approve(msgspec.json.decode(text, type=gesta.Waiting), by="ann")
        assert (receipt.tool, receipt.session) == ("pay", "s")
        assert (await record.resume("s", clerk())).answer == "Done."
    assert PAID == [5]


async def test_who_answers_in_the_place_of_a_tool_is_proven_as_who_approves_it() -> None:
    key = b"k" * 32
    async with gesta.open(approver=SignedApprovals({"cfo": key})) as record:
        outcome = await record.run(clerk(), "Pay.", session="s")
        (about,) = await asked(record.store, outcome.run)
        await record.answer(outcome.waiting[0], "in cash", by="cfo")
        (refused,) = (await record.resume("s", clerk())).waiting
        assert refused.refused.startswith("It has no token")
        word = ApprovalContent(of=about.request, verdict="answered", by="cfo", result="in cash", reason="no line")
        token = sign(word, about, key).token
        await record.answer(refused, "in cash", by="cfo", reason="no line", token=token)
        assert (await record.resume("s", clerk())).answer == "Done."
        results = [each.content for each in await record.read(outcome.run) if each.kind == "tool-result"]
        assert [each.tool_result for each in results] == ["in cash"]  # type: ignore[union-attr]
    assert PAID == []
