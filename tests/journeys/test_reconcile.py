"""A `reconcile` that could not tell what became of a call is asked again by whoever takes the run next."""

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import programs
from tests.threads import Held

import gesta
from gesta.address import Record, bind
from gesta.cli.waits import why
from gesta.compare.forks import Fork, fork, go_on
from gesta.compare.replaying import replay_run
from gesta.errors import WriteFailed
from gesta.kinds import ApprovalContent, AttemptContent, FaultContent, ResolutionContent, ToolResultContent
from gesta.state.calls import UNSETTLED
from gesta.store import Batch
from gesta.stores.memory import MemoryStore
from gesta.worker import Worker

Answer = gesta.Done | gesta.NotDone | gesta.Unknown
GO: dict[str, Any] = {"session": "s", "key": "k"}


class Bank:
    """Counts what was paid and what `settled` was asked, which answers from a list, and last what `then` says."""

    def __init__(self, *answers: Answer | Exception, then: Answer | None = None) -> None:
        self.answers, self.then = list(answers), then
        self.paid, self.asked = 0, 0

    async def pay(self) -> str:
        """Pay."""
        self.paid += 1
        if self.paid == 1:
            raise gesta.InDoubt("no answer")
        return "paid again"

    def settled(self, _key: str) -> Answer:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else self.then or ConnectionError("the bank is closed")
        if isinstance(answer, Exception):
            raise answer
        return answer


def paying(bank: Bank, **options: Any) -> gesta.Agent:
    declared: dict[str, Any] = {"effect": "once", "reconcile": bank.settled} | options
    tool = gesta.tool(bank.pay, **declared)
    return gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "ok"), tools=[tool])


def stands(outcome: gesta.Outcome) -> str:
    """Return how a turn ended, or what it waits for."""
    return " ".join(each.what for each in outcome.waiting) or outcome.reason


def found(entries: list[gesta.Entry], kind: type) -> list[Any]:
    return [entry.content for entry in entries if isinstance(entry.content, kind)]


def unsettled(entries: list[gesta.Entry]) -> list[str]:
    return [each.error.message for each in found(entries, FaultContent) if each.error.type == UNSETTLED]


DYING = """
import os, signal, sys, gesta
folder, life = sys.argv[1], int(sys.argv[2])

def ask(key):
    open(folder + "/asked", "a").write(f"{life}\\n")
    if life == 2:
        raise ConnectionError("the bank is closed")
    return gesta.Done("paid") if key in open(folder + "/paid").read() else gesta.NotDone()

@gesta.tool(effect="once", reconcile=ask)
def pay(context: gesta.Context) -> str:
    "Pay an invoice."
    open(folder + "/paid", "a").write(context.key + chr(10))
    os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "It is paid."), tools=[pay])
outcome = gesta.run_sync(agent, "Pay.", session="s", key="k", record=folder + "/r.gesta")
print(outcome.answer or [each.what for each in outcome.waiting])
"""


def test_a_bank_that_was_closed_at_the_second_start_is_asked_at_the_third(tmp_path: Path) -> None:
    lives = [programs.run(["-c", DYING, str(tmp_path), str(life)]) for life in (1, 2, 3, 4)]
    assert [life.returncode for life in lives] == [-9, 0, 0, 0], lives[-1].stderr
    assert [life.stdout for life in lives] == ["", "['doubt']\n", "It is paid.\n", "It is paid.\n"]
    assert len((tmp_path / "paid").read_text().split()) == 1
    assert (tmp_path / "asked").read_text().split() == ["2", "3"]
    with gesta.open_sync(str(tmp_path / "r.gesta")) as record:
        entries = record.read("s")
    assert [each.tool_result for each in found(entries, ToolResultContent)] == ["paid"]
    assert [each.by for each in found(entries, ResolutionContent)] == ["reconcile of pay"]


async def test_a_reconcile_that_always_raises_is_asked_once_by_each_lease_and_the_record_does_not_grow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hostile = ConnectionError(f"\x1b[31mclosed to {gesta.secret('bank', 'sk-0123456789abcdef')}")
    bank = Bank(ValueError("closed"), hostile)
    async with gesta.open() as record:
        outcome = await record.run(paying(bank), "go", **GO)
        known = await record.read(outcome.run)
        assert (stands(outcome), bank.asked) == ("doubt", 1)
        for lease in (2, 3, 4):
            outcome = await record.resume(outcome.run, paying(bank))
            assert (stands(outcome), bank.asked) == ("doubt", lease)
            assert await record.read(outcome.run) == known
        queued = await record.run(paying(bank), "and?", session="s", key="k2")
        assert (stands(queued), queued.queued, bank.asked) == ("doubt", True, 5)
    assert unsettled(known) == ["reconcile of pay could not tell: it raised ValueError: closed"]
    assert bank.paid == 1
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    again = "reconcile of pay could not tell again: it raised ConnectionError: "
    assert told == [f"{again}<U+001B>[31mclosed to <secret bank>", *[f"{again}the bank is closed"] * 3]


@pytest.mark.parametrize("answer", [gesta.Done("paid"), gesta.NotDone(), gesta.NotDone(void=True)], ids=str)
async def test_the_answer_of_a_later_lease_settles_the_call(answer: Answer) -> None:
    bank = Bank(ValueError("closed"), gesta.Unknown(), answer)
    async with gesta.open() as record:
        outcome = await record.run(paying(bank), "go", **GO)
        for _ in range(2):
            outcome = await record.resume(outcome.run, paying(bank))
        entries = await record.read(outcome.run)
    assert (stands(outcome), bank.asked) == ("answered", 3)
    assert bank.paid == (1 if isinstance(answer, gesta.Done) else 2)
    keys = {each.key for each in found(entries, AttemptContent)}
    assert len(keys) == (2 if answer == gesta.NotDone(void=True) else 1)


async def test_a_call_that_a_person_settled_is_not_asked_about() -> None:
    bank = Bank()
    async with gesta.open() as record:
        outcome = await record.run(paying(bank), "go", **GO)
        of = outcome.waiting[0].of or 0
        await record.send(outcome.run, ResolutionContent(of=of, verdict="done", by="ann", result="paid"), key="r")
        assert stands(await record.resume(outcome.run, paying(bank))) == "answered"
    assert (bank.asked, bank.paid) == (1, 1)


async def test_the_second_attempt_of_a_call_is_asked_about_like_the_first() -> None:
    bank = Bank(ValueError("closed"), gesta.NotDone(), ValueError("closed"), gesta.Done("paid"))

    async def pay() -> str:
        """Pay."""
        bank.paid += 1
        raise TimeoutError

    tool = gesta.tool(pay, effect="once", reconcile=bank.settled)
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay"), "ok"), tools=[tool])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", **GO)
        assert stands(await record.resume(outcome.run, agent)) == "doubt"
        assert (bank.paid, bank.asked) == (2, 3)
        assert stands(await record.resume(outcome.run, agent)) == "answered"
        entries = await record.read(outcome.run)
    assert (bank.paid, bank.asked, len(unsettled(entries))) == (2, 4, 2)
    assert [each.tool_result for each in found(entries, ToolResultContent)] == ["paid"]


def outliving(bank: Bank, held: Held) -> gesta.Tool:
    """A tool whose thread outlives its timeout. A coroutine that awaits nothing answers before any timeout."""

    def pay() -> str:
        """Pay."""
        bank.paid += 1
        held.here()
        raise gesta.InDoubt("no answer")

    async def settled(key: str) -> Answer:
        return bank.settled(key)

    return gesta.tool(pay, effect="once", timeout_s=0.05, reconcile=settled)


async def test_while_an_attempt_may_be_at_work_each_lease_asks_and_believes_no_not_done() -> None:
    held, bank = Held(), Bank(then=gesta.NotDone())
    model, policy = gesta.scripted(gesta.call("pay"), "ok"), gesta.Policy(attempts=1)
    agent = gesta.Agent("desk", model=model, tools=[outliving(bank, held)], policy=policy)
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", **GO)
        for lease in (2, 3):
            outcome = await record.resume(outcome.run, agent)
            assert (stands(outcome), bank.asked) == ("doubt", lease)
        assert len(unsettled(await record.read(outcome.run))) == 1
        await held.let_go()
        assert (stands(await record.resume(outcome.run, agent)), bank.asked) == ("answered", 4)
        assert [each.outcome for each in found(await record.read(outcome.run), ToolResultContent)] == ["error"]


async def test_an_attempt_that_ends_within_a_lease_is_asked_about_once_more_in_it() -> None:
    held, bank = Held(), Bank(then=gesta.NotDone())

    @gesta.tool(effect="pure")
    async def wait() -> str:
        """Wait until the payment has ended."""
        assert bank.asked == 1
        await held.let_go()
        return "waited"

    script = gesta.scripted([gesta.call("pay"), gesta.call("wait")], "ok")
    policy = gesta.Policy(attempts=1, parallel=1)
    agent = gesta.Agent("desk", model=script, tools=[outliving(bank, held), wait], policy=policy)
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", **GO)
        entries = await record.read(outcome.run)
    assert (stands(outcome), bank.paid, bank.asked) == ("answered", 1, 2)
    assert [each.verdict for each in found(entries, ResolutionContent)] == ["failed"]


class Broken:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def silent(_key: str) -> gesta.NotDone:
    raise TimeoutError


EXPECTED = ", expected gesta.Done(result), gesta.NotDone() or gesta.Unknown()"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda _: True, f"it returned True{EXPECTED}"),
        (lambda _: None, f"it returned None{EXPECTED}"),
        (lambda _: "the order is paid", f"it returned 'the order is paid'{EXPECTED}"),
        (lambda _: gesta.NotDone, f"it returned <class 'gesta.function_tool.context.NotDone'>{EXPECTED}"),
        (lambda _: Broken(), f"it returned an object of the type 'Broken'{EXPECTED}"),
        (lambda _: "x" * 90 + gesta.secret("till", "sk-11223344556677"), f"it returned '{'x' * 90}<secret …{EXPECTED}"),
        (lambda _: gesta.Unknown(), "it returned gesta.Unknown()"),
        (lambda _: int("five"), "it raised ValueError: invalid literal for int() with base 10: 'five'"),
        (silent, "it raised TimeoutError"),
    ],
)
async def test_what_a_reconcile_returned_in_place_of_an_answer_is_told_to_who_settles_the_doubt(
    answer: Any, said: str
) -> None:
    agent = paying(Bank(), reconcile=answer)
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", **GO)
        told = f"reconcile of pay could not tell: {said}"
        assert [each.why for each in outcome.waiting] == [told]
        assert f"\nThe reason: {told}" in why(outcome.waiting[0])
        entries = await record.read(outcome.run)
    seen = await replay_run({outcome.run: entries}, outcome.run, agent)
    assert (seen.first, seen.entries) == (None, len(entries))


async def test_a_reconcile_that_hangs_in_a_thread_is_not_called_a_second_time_beside_itself() -> None:
    held, bank = Held(), Bank(gesta.Unknown(), then=gesta.Done("paid"))

    def settled(key: str) -> Answer:
        answer = bank.settled(key)
        if bank.asked == 1:
            held.here()
        return answer

    agent = paying(bank, reconcile=settled, timeout_s=0.05)
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", **GO)
        await held.all_here()
        for _ in range(3):
            assert (stands(await record.resume(outcome.run, agent)), bank.asked) == ("doubt", 1)
        agent = paying(bank, reconcile=settled)
        async with anyio.create_task_group() as group:
            group.start_soon(held.let_go)
            outcome = await record.resume(outcome.run, agent)
        assert (stands(outcome), bank.asked) == ("answered", 2)
        entries = await record.read(outcome.run)
    assert unsettled(entries) == ["reconcile of pay could not tell: no answer in time"]


async def test_a_turn_that_is_left_while_reconcile_runs_is_settled_by_the_next_lease() -> None:
    begun, bank = anyio.Event(), Bank(then=gesta.Done("paid"))

    async def settled(key: str) -> Answer:
        if bank.asked == 1:
            bank.asked += 1
            begun.set()
            await anyio.sleep_forever()
        return bank.settled(key)

    bank.answers = [ValueError("closed")]
    agent = paying(bank, reconcile=settled)
    async with gesta.open() as record:
        outcome = await record.run(agent, "go", **GO)
        async with anyio.create_task_group() as group:
            group.start_soon(record.resume, outcome.run, agent)
            await begun.wait()
            group.cancel_scope.cancel()
        assert stands(await record.resume(outcome.run, agent)) == "answered"
    assert (bank.asked, bank.paid) == (3, 1)


class FailsAt(MemoryStore):
    """The write of that number fails once, counted from `begin`."""

    left = 0

    async def append(self, batch: Batch) -> int:
        self.left -= 1
        if self.left == 0:
            raise WriteFailed("memory", "the disk is full")
        return await super().append(batch)


@pytest.mark.parametrize("lost", range(1, 11))
async def test_whichever_write_fails_once_the_call_is_settled_and_its_effect_happens_once(lost: int) -> None:
    bank = Bank(ValueError("closed"), ValueError("closed"), then=gesta.Done("paid"))
    store = FailsAt()
    record, agent, run = Record(store, bind), paying(bank), ""
    store.left, failures = lost, 0
    for _ in range(6):
        try:
            outcome = await record.run(agent, "go", **GO)
        except WriteFailed:
            failures += 1
            continue
        run = outcome.run
        if stands(outcome) == "answered":
            break
    entries = await record.read(run)
    assert (stands(outcome), bank.paid) == ("answered", 1)
    assert failures == (store.left <= 0)
    assert [each.tool_result for each in found(entries, ToolResultContent)] == ["paid"]
    assert len(unsettled(entries)) <= 2


async def test_two_workers_do_not_wake_each_other_by_what_reconcile_could_not_tell() -> None:
    number = iter(range(1000))

    class Odd(Bank):
        def settled(self, key: str) -> Answer:
            self.answers = [ValueError(f"request {next(number)} failed")]
            return super().settled(key)

    store, bank = MemoryStore(), Odd()
    agent = paying(bank)
    await Record(store, bind).run(agent, "go", **GO)
    now = datetime(2026, 1, 1, tzinfo=UTC)  # it stands still, so nobody asks by the clock
    workers = [Worker(Record(store, bind, clock=lambda: now), [agent]) for _ in range(2)]
    went = [await worker.look(lambda _: None) for _ in range(6) for worker in workers]
    assert went == [1, 1, *[0] * 10]
    assert bank.asked == 3, "each worker asks when it starts"


async def test_a_worker_asks_again_by_the_clock_until_the_bank_is_open() -> None:
    bank, told, now = Bank(), list[str](), datetime(2026, 1, 1, tzinfo=UTC)
    agent = paying(bank)
    async with gesta.open() as record:
        record.turns.clock = lambda: now
        outcome = await record.run(agent, "go", **GO)
        worker = Worker(record, [agent])
        look = partial(worker.look, lambda outcome: told.append(stands(outcome)))
        assert (await look(), bank.asked) == (1, 2), "it asks when it starts"
        known, pauses = await record.read(outcome.run), list[float]()
        for asked in range(2, 12):
            before = now
            while bank.asked == asked and (now - before).total_seconds() < 400:
                now += timedelta(seconds=1)
                await look()
            pauses.append((now - before).total_seconds())
        assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
        now -= timedelta(days=1)
        assert await look() == 1, "the clock was set back"
        assert await record.read(outcome.run) == known
        assert told == ["doubt"], "what is not new is told once"
        bank.then = gesta.Done("paid")
        now += timedelta(seconds=300)
        assert await look() == 1
    assert told == ["doubt", "answered"]


async def test_a_worker_asks_about_one_run_at_a_time_and_heeds_a_persons_word_at_once() -> None:
    class Lost(Bank):
        async def pay(self) -> str:
            """Pay."""
            raise gesta.InDoubt("no answer")

    now = datetime(2026, 1, 1, tzinfo=UTC)
    agent = paying(Lost())
    async with gesta.open() as record:
        record.turns.clock = lambda: now
        waits = [(await record.run(agent, "go", session=session)).waiting[0] for session in "abc"]
        worker = Worker(record, [agent])
        assert await worker.look(lambda _: None) == 3
        now += timedelta(seconds=1)
        assert [await worker.look(lambda _: None) for _ in range(4)] == [1, 1, 1, 0]
        await record.resolve(waits[1], "done", by="ann", result="paid")
        assert await worker.look(lambda _: None) == 1
        assert not (await record.state(waits[1].run)).open


async def test_whoever_resumes_a_run_asks_about_the_calls_of_the_runs_below_it() -> None:
    bank = Bank(ValueError("closed"), then=gesta.Done("paid"))
    model = gesta.scripted(gesta.call("desk", task="pay"), "ok")
    boss = gesta.Agent("boss", model=model, tools=[paying(bank).as_tool()])
    async with gesta.open() as record:
        outcome = await record.run(boss, "go", **GO)
        assert (stands(outcome), bank.asked) == ("doubt", 1)
        assert stands(await record.resume(outcome.run, boss)) == "answered"
    assert (bank.asked, bank.paid) == (2, 1)


async def test_a_fork_asks_about_no_call_of_its_base() -> None:
    bank = Bank()
    async with gesta.open() as record:
        await record.run(paying(bank), "go", **GO)
        made = await fork(record, await record.find("s"), Fork())
        for _ in range(2):
            assert stands(await go_on(record, made, paying(bank))) == "doubt"
    assert (bank.asked, bank.paid) == (1, 1)


@pytest.mark.parametrize("again", [True, False], ids=["asked again", "asked once, as before"])
async def test_a_replay_follows_a_record_however_often_reconcile_was_asked(*, again: bool) -> None:
    """Where nobody asked a second time, the second process found the tool without its `reconcile`."""
    bank = Bank(ValueError("closed"), ValueError("closed"), then=gesta.Done("paid"))

    @gesta.tool(approval=True)
    async def book(room: int) -> str:
        """Book a room."""
        return f"booked {room}"

    def agent(**options: Any) -> gesta.Agent:
        first = paying(bank, **options).tools[0]
        script = gesta.scripted([gesta.call("pay"), gesta.call("book", room=7)], "ok")
        return gesta.Agent("desk", model=script, tools=[first, book])

    async with gesta.open() as record:
        outcome = await record.run(agent(), "go", **GO)
        of = next(each.of for each in outcome.waiting if each.what == "approval") or 0
        await record.send(outcome.run, ApprovalContent(of=of, verdict="approved", by="ann"), key="a")
        outcome = await record.resume(outcome.run, agent(**({} if again else {"reconcile": None})))
        assert (stands(outcome), bank.asked) == ("doubt", 1 + again)
        bank.answers = []
        outcome = await record.resume(outcome.run, agent())
        assert stands(outcome) == "answered"
        entries, asked = await record.read(outcome.run), bank.asked
        seen = await replay_run({outcome.run: entries}, outcome.run, agent())
    assert (seen.first, seen.entries) == (None, len(entries))
    assert (bank.asked, len(unsettled(entries))) == (asked, 1)


async def test_a_replay_ends_where_a_turn_was_left_while_reconcile_ran() -> None:
    """What was written just before, in the same commit, is no difference."""
    asking, first, bank = anyio.Event(), Bank(then=gesta.Done("booked")), Bank()

    @gesta.tool(effect="once", reconcile=first.settled)
    async def book() -> str:
        """Book."""
        raise gesta.InDoubt("no answer")

    async def settled(_key: str) -> Answer:
        asking.set()
        await anyio.sleep_forever()
        return gesta.Unknown()

    pay = paying(bank, reconcile=settled).tools[0]
    script = gesta.scripted([gesta.call("book"), gesta.call("pay")], "ok")
    agent = gesta.Agent("desk", model=script, tools=[book, pay], policy=gesta.Policy(parallel=1))
    async with gesta.open() as record:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(record.run, agent, "go", **GO))
            await asking.wait()
            group.cancel_scope.cancel()
        run = (await record.find("s")).run
        entries = await record.read(run)
        seen = await replay_run({run: entries}, run, bind(agent))
    assert entries[-1].kind == "tool-result"
    assert (seen.first, seen.entries) == (None, len(entries))
