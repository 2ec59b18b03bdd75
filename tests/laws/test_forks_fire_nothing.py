"""Whatever a fork shares, be it consent, a resolution, an answer or an attempt, nothing has an effect in it unasked.

Each base is cut after every one of its commits, so that its calls have a result in one cut and none in another, and is
forked at each of its entries. Then everything is done with the fork that nobody's consent is needed for.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from tests.laws.scenes import Tape, again

import gesta
from gesta import address
from gesta.address import Record
from gesta.compare.forks import Change, Fork, fork, go_on
from gesta.errors import AgentError, NoRun, TurnOpen
from gesta.kinds import (
    AnswerContent,
    ApprovalContent,
    ApprovalRequestContent,
    AttemptContent,
    QuestionContent,
    ResolutionContent,
)
from gesta.store import Batch, Statements, TransactionalEffect
from gesta.tools.person import ask_person

pytestmark = [pytest.mark.anyio, pytest.mark.sample(3, over="parent")]
QUICK = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0, empty=0), when_busy="raise")
Play = Callable[[Record, gesta.Agent], Awaitable[None]]


class Till:
    """Counts what was paid, whatever its keys."""

    def __init__(self) -> None:
        self.fired = 0
        self.lost = 0
        """Number of next payments of which the tool does not hear whether they were made."""

    async def pay(self, euros: int) -> str:
        self.fired += 1
        if self.lost:
            self.lost -= 1
            raise gesta.InDoubt("the line went dead")
        return f"paid {euros}"


def payer(till: Till, **options: Any) -> gesta.Agent:
    """An agent that pays, by a tool with these options."""
    asked: dict[str, Any] = {"effect": "once", "approval": True} | options
    tool = gesta.tool(till.pay, **asked)
    return gesta.Agent("payer", model=gesta.scripted(gesta.call("pay", euros=5), "Done."), tools=[tool], policy=QUICK)


async def waiting(record: Record, kind: type) -> tuple[str, int]:
    """Find the last entry of a kind: its run and seq."""
    entries = [each for row in await record.store.runs() for each in await record.read(row.run)]
    found = [each for each in entries if isinstance(each.content, kind)]
    return found[-1].run, found[-1].seq


async def approve(record: Record) -> None:
    run, of = await waiting(record, ApprovalRequestContent)
    await record.send(run, ApprovalContent(of=of, verdict="approved", by="ann"), key=f"approval-{of}")


async def settle(record: Record, verdict: Any) -> None:
    run, of = await waiting(record, AttemptContent)
    await record.send(run, ResolutionContent(of=of, verdict=verdict, by="ann"), key=f"resolution-{of}")


async def approved(record: Record, acting: gesta.Agent) -> None:
    """Have a call wait for consent, get it, and run."""
    first = await record.run(acting, "Pay.", session="s", key="m1")
    await approve(record)
    await record.resume(first.run, acting)


async def tried_again(record: Record, acting: gesta.Agent) -> None:
    """The same with a doubt, which a person resolves: it is to be tried again."""
    await approved(record, acting)
    await settle(record, "retry")
    await record.resume((await record.find("s")).run, acting)


class Commits(Tape):
    """A tape that remembers the commits of transactional tools too."""

    async def transact(self, effect: TransactionalEffect) -> None:
        def work(sql: Statements) -> tuple[Batch, bool]:
            batch, kept = effect.work(sql)
            self.tape.append(batch)
            return batch, kept

        await super().transact(msgspec.structs.replace(effect, work=work))


async def played(till: Till, acting: gesta.Agent, play: Play) -> Tape:
    """Play a base, and return what it committed."""
    tape = Commits()
    await play(Record(tape, address.bind), acting)
    assert till.fired, "the base does something"
    return tape


async def forked_everywhere(till: Till, acting: gesta.Agent, play: Play, **how: Any) -> int:
    """Fork a base at each entry after each of its commits; return how often its tool fired in a fork."""
    tape = await played(till, acting, play)
    fired, forks = till.fired, 0
    till.lost = 0
    for cut in range(1, len(tape.tape) + 1):
        store = await again(tape.tape[:cut])
        record = Record(store, address.bind)
        for row in await store.runs():
            if row.parent_run is None:
                for at in range(row.head + 1):
                    made = await fork(record, row, Fork(at=at, **how))
                    await driven(record, made.run, made.session, acting)
                    forks += 1
        assert await record.verify() == []
    assert forks > 10
    return till.fired - fired


async def driven(record: Record, run: str, session: str, acting: gesta.Agent) -> None:
    """Do everything with a fork that nobody has to consent to."""
    with suppress(NoRun):
        await go_on(record, await record.find(run), acting)
    with suppress(NoRun):
        await record.resume(run, acting)
    with suppress(TurnOpen):
        await record.run(acting, "And now?", session=session, key="m2")


async def test_a_call_that_was_approved_in_the_base_is_not_made_in_a_fork() -> None:
    till = Till()
    assert await forked_everywhere(till, payer(till), approved) == 0


async def test_a_call_that_the_base_was_told_to_try_again_is_not_made_in_a_fork() -> None:
    till = Till()
    till.lost = 1
    assert await forked_everywhere(till, payer(till), tried_again) == 0


async def test_a_call_that_reconcile_found_not_done_in_the_base_is_not_made_in_a_fork() -> None:
    till = Till()
    till.lost = 1

    async def asked(record: Record, acting: gesta.Agent) -> None:
        await record.run(acting, "Pay.", session="s", key="m1")

    acting = payer(till, approval=False, reconcile=lambda _key: gesta.NotDone())
    assert await forked_everywhere(till, acting, asked) == 0


@pytest.mark.parametrize("on_doubt", ["ask", "tell"])
async def test_a_call_in_doubt_in_the_base_is_not_made_in_a_fork(on_doubt: str) -> None:
    till = Till()
    till.lost = 1
    assert await forked_everywhere(till, payer(till, on_doubt=on_doubt), approved) == 0


async def test_an_idempotent_call_that_the_base_began_is_not_made_in_a_fork() -> None:
    till = Till()
    assert await forked_everywhere(till, payer(till, effect="idempotent"), approved) == 0


async def test_a_transactional_call_that_was_approved_in_the_base_is_not_made_in_a_fork() -> None:
    till = Till()

    def book(euros: int, context: gesta.Context) -> str:
        till.fired += 1
        return f"booked {euros} in {context.run}"

    tool = gesta.tool(book, effect="transactional", approval=True)
    acting = gesta.Agent("p", gesta.scripted(gesta.call("book", euros=5), "Done."), tools=[tool], policy=QUICK)
    assert await forked_everywhere(till, acting, approved) == 0


async def test_a_call_with_an_answer_of_a_person_in_the_base_lets_no_other_call_be_made_in_a_fork() -> None:
    till = Till()

    async def answered(record: Record, acting: gesta.Agent) -> None:
        first = await record.run(acting, "Pay.", session="s", key="m1")
        run, of = await waiting(record, QuestionContent)
        await record.send(run, AnswerContent(of=of, value="yes, pay", by="ann"), key=f"answer-{of}")
        await record.resume(first.run, acting)
        await approve(record)
        await record.resume(first.run, acting)

    script = gesta.scripted(gesta.call("ask_person", question="May I?"), gesta.call("pay", euros=5), "Done.")
    tools = [ask_person(), gesta.tool(till.pay, effect="once", approval=True)]
    acting = gesta.Agent("p", script, tools=tools, policy=QUICK)
    assert await forked_everywhere(till, acting, answered) == 0


async def test_a_tool_that_waited_for_a_child_run_in_the_base_does_nothing_in_a_fork() -> None:
    till, below = Till(), Till()
    child = payer(below)

    async def order(euros: int, context: gesta.Context) -> str:
        ended = await context.call(child, f"Pay {euros}.")
        await till.pay(euros)
        return f"ordered: {ended.answer}"

    tool = gesta.tool(order, effect="once")
    acting = gesta.Agent("p", gesta.scripted(gesta.call("order", euros=5), "Done."), tools=[tool], policy=QUICK)
    assert await forked_everywhere(till, acting, approved) == 0
    assert below.fired == 1


async def test_a_sub_agent_that_was_approved_below_the_base_does_nothing_below_a_fork() -> None:
    till = Till()
    acting = gesta.Agent(
        "p", gesta.scripted(gesta.call("payer", task="Pay."), "Done."), tools=[payer(till).as_tool()], policy=QUICK
    )
    assert await forked_everywhere(till, acting, approved) == 0


async def test_a_program_whose_child_was_approved_does_nothing_in_a_fork() -> None:
    till = Till()
    child = payer(till)

    async def program(verbs: Any, task: str) -> str:
        first = await verbs.call(child, task, "first")
        second = await verbs.call(gesta.Agent("other", gesta.scripted("Noted.")), first.text, "second")
        return f"{first.text} {second.text}"

    acting = gesta.Agent("p", program=program, policy=QUICK)
    assert await forked_everywhere(till, acting, approved) == 0


async def test_a_fork_of_a_fork_shares_no_consent_that_the_first_one_got() -> None:
    till = Till()
    acting = payer(till)

    async def in_a_fork(record: Record, acting: gesta.Agent) -> None:
        first = await record.run(acting, "Pay.", session="s", key="m1")
        made = await fork(record, await record.find(first.run), Fork(session="t"))
        await approve(record)
        await go_on(record, made, acting)
        await approve(record)
        await record.resume(made.run, acting)

    assert await forked_everywhere(till, acting, in_a_fork) == 0


async def test_consent_that_a_fork_gets_itself_lets_the_call_be_made_once() -> None:
    till = Till()
    acting = payer(till)
    tape = await played(till, acting, approved)
    record = Record(tape, address.bind)
    base = await record.find("s")
    request = next(each.seq for each in await record.read(base.run) if isinstance(each.content, ApprovalRequestContent))
    made = await fork(record, base, Fork(changes=[Change(request - 1, "tool_args.euros", 6)]))
    ended = await go_on(record, made, acting)
    assert [(each.what, each.tool) for each in ended.waiting] == [("approval", "pay")]
    await approve(record)
    assert (await record.resume(made.run, acting)).answer == "Done."
    assert till.fired == 2
    assert (await record.resume(made.run, acting)).answer == "Done."
    assert till.fired == 2


async def test_a_denial_that_is_put_in_place_of_consent_holds_and_consent_in_place_of_a_denial_is_refused() -> None:
    till = Till()
    acting = payer(till)
    tape = await played(till, acting, approved)
    record = Record(tape, address.bind)
    base = await record.find("s")
    seq = next(each.seq for each in await record.read(base.run) if isinstance(each.content, ApprovalContent))
    made = await fork(record, base, Fork(changes=[Change(seq, "verdict", "denied")]))
    assert (await go_on(record, made, acting)).answer == "Done."
    told = [each.content for each in await record.read(made.run) if isinstance(each.content, ApprovalContent)]
    assert [each.verdict for each in told] == ["denied"]
    with pytest.raises(AgentError, match=f"fork at entry {seq - 1} and approve the call there"):
        await fork(record, base, Fork(changes=[Change(seq, "args", {"euros": 7})]))
    live = await fork(record, base, Fork(changes=[Change(seq, "args", {"euros": 7})], live=["pay"]))
    assert till.fired == 1
    await go_on(record, live, acting)
    assert till.fired == 2


async def test_a_resolution_to_try_again_is_not_put_into_a_fork() -> None:
    till = Till()
    till.lost = 1
    acting = payer(till)

    async def resolved(record: Record, acting: gesta.Agent) -> None:
        await approved(record, acting)
        await settle(record, "failed")
        await record.resume((await record.find("s")).run, acting)

    tape = await played(till, acting, resolved)
    record = Record(tape, address.bind)
    base = await record.find("s")
    seq = next(each.seq for each in await record.read(base.run) if isinstance(each.content, ResolutionContent))
    with pytest.raises(AgentError, match=f"fork at entry {seq - 1} and resolve the call there"):
        await fork(record, base, Fork(changes=[Change(seq, "verdict", "retry")]))
    done = await fork(record, base, Fork(changes=[Change(seq, "verdict", "done")]))
    assert (await go_on(record, done, acting)).answer == "Done."
    assert till.fired == 1
