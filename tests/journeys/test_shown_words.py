"""A person's word counts for what was shown, and no word is lost or goes to something else."""

import threading
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

import gesta
from gesta.decide.approval import SignedApprovals, asked, sign
from gesta.errors import NotWaiting, OtherMessage, SaidBefore
from gesta.kinds import ApprovalContent
from gesta.record.record import Record
from gesta.stores.pruning import Choice, Pruner, plan, prune

PAID: list[tuple[int, str]] = []


@gesta.tool(effect="once", approval=True)
def pay(cents: int, to: str) -> str:
    """Pay."""
    PAID.append((cents, to))
    return "paid"


@gesta.tool(effect="once")
def order(item: str) -> str:
    """Order."""
    raise gesta.InDoubt(f"the line went dead over {item}")


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


def desk(*said: Any, **more: Any) -> gesta.Agent:
    return gesta.Agent("desk", model=gesta.scripted(*said, "Done.", "Done."), tools=[pay, order], **more)


def clerk(cents: int, to: str) -> gesta.Agent:
    return desk(gesta.call("pay", cents=cents, to=to))


def asker(question: str, schema: dict[str, Any]) -> gesta.Agent:
    async def ask(verbs: gesta.Verbs, _text: str) -> str:
        return str(await verbs.ask("which", question, schema))

    return gesta.Agent("desk", program=ask)


async def begun_anew(record: Record, first: gesta.Agent, second: gesta.Agent) -> tuple[gesta.Waiting, gesta.Outcome]:
    """Return what a page showed of the first turn, and the outcome of the turn that has its run and seqs now."""
    page = msgspec.json.encode((await record.run(first, "Go on.", session="s")).waiting[0])
    await record.cancel("s", by="ann")
    await prune(record.store, await plan(record.store, Choice(session="s")), Pruner(by="ann", reason="old"))
    outcome = await record.run(second, "Go on.", session="s")
    shown = msgspec.json.decode(page, type=gesta.Waiting)
    assert (shown.run, shown.what, shown.of) == (outcome.run, outcome.waiting[0].what, outcome.waiting[0].of)
    return shown, outcome


async def test_a_page_that_showed_another_payment_approves_denies_answers_and_cancels_nothing() -> None:
    async with gesta.open() as record:
        shown, outcome = await begun_anew(record, clerk(5, "ann"), clerk(50000, "bob"))
        for verb in (record.approve, record.deny, record.cancel):
            with pytest.raises(NotWaiting, match=r"another approval of pay than was shown \(args_digest changed\)"):
                await verb(shown, by="cfo")
        with pytest.raises(NotWaiting, match="than was shown"):
            await record.answer(shown, "in cash", by="cfo")
        await record.approve(outcome.waiting[0], by="bob")
        with pytest.raises(NotWaiting, match="than was shown"):  # nor is it told that its word was given before
            await record.approve(shown, by="cfo")
        assert (await record.resume("s", clerk(50000, "bob"))).answer == "Done."
    assert PAID == [(50000, "bob")]


async def test_an_answer_to_another_question_and_a_word_about_another_attempt_are_refused() -> None:
    async with gesta.open() as record:
        small, large = {"enum": ["S", "L"]}, {"enum": ["S", "L"], "default": "L"}
        for first, second in ((("A cup?", small), ("A car?", small)), (("A cup?", small), ("A cup?", large))):
            shown, outcome = await begun_anew(record, asker(*first), asker(*second))
            with pytest.raises(NotWaiting, match="another question of which than was shown"):
                await record.answer(shown, "L", by="ann")
            await record.cancel(outcome.waiting[0], by="ann")
            await prune(record.store, await plan(record.store, Choice(session="s")), Pruner(by="ann", reason="old"))
        tries = desk(gesta.call("order", item="lamp"))
        shown, outcome = await begun_anew(record, tries, tries)  # the same arguments, but another attempt
        with pytest.raises(NotWaiting, match=r"another doubt of order than was shown \(since changed\)"):
            await record.resolve(shown, "retry", by="ann")
        bare = gesta.Waiting("doubt", of=shown.of, run=shown.run)  # what was not shown is not compared
        assert (await record.resolve(bare, "done", by="ann", result=7)).verdict == "done"
        assert outcome.waiting[0].what == "doubt"


async def test_a_wait_of_an_ended_turn_cancels_no_later_turn() -> None:
    async with gesta.open() as record:
        (old,) = (await record.run(clerk(5, "ann"), "Pay.", session="s")).waiting
        await record.cancel(old, by="ann")
        await record.run(desk("Hello.", gesta.call("pay", cents=7, to="eve")), "Pay.", session="s")
        later = await record.run(desk("Hello.", "Hello.", gesta.call("pay", cents=7, to="eve")), "Pay.", session="s")
        assert later.reason == "waiting", later
        with pytest.raises(NotWaiting, match="another turn than was shown"):
            await record.cancel(old, by="ann")
        assert (await record.cancel("s", by="ann")) is not None


async def test_numbers_that_a_page_read_as_floats_are_the_same_schema() -> None:
    async with gesta.open() as record:
        agent = asker("How many?", {"type": "integer", "maximum": 2**63 - 1})
        (waiting,) = (await record.run(agent, "Go on.", session="s")).waiting
        page = msgspec.structs.replace(waiting, schema={"type": "integer", "maximum": float(2**63 - 1)})
        await record.answer(page, 7, by="ann")
        assert (await record.resume("s", agent)).answer == "7"


async def test_another_message_under_the_key_of_a_queued_one_is_an_error_that_shows_both() -> None:
    agent = clerk(5, "ann")
    async with gesta.open() as record:
        waits = await record.run(agent, "Pay.", session="s", key="m0")
        assert (await record.run(agent, "Send 5 to Ann.", session="s", key="m1")).queued
        with pytest.raises(OtherMessage, match=r"'Send 5 to Ann.', and now comes with 'Send 500 to Bob.'"):
            await record.run(agent, "Send 500 to Bob.", session="s", key="m1")
        assert (await record.run(agent, "Send 5 to Ann.", session="s", key="m1")).queued, "the same message again"
        await record.approve("s", by="cfo")
        await record.resume(waits.run, agent)
        assert [each.text for each in await record.history("s") if each.role == "user"] == ["Pay.", "Send 5 to Ann."]


async def test_a_second_signed_word_is_refused_or_told_that_it_may_not_count(tmp_path: Path) -> None:
    keys = {"ann": b"a" * 32, "bob": b"b" * 32}
    place = str(tmp_path / "a.gesta")
    async with gesta.open(place, approver=SignedApprovals(keys)) as record, gesta.open(place) as keyless:
        outcome = await record.run(clerk(5, "ann"), "Pay.", session="s")
        (about,) = await asked(record.store, outcome.run)

        def token(verdict: Any, by: str) -> str:
            return str(sign(ApprovalContent(of=about.request, verdict=verdict, by=by), about, keys[by]).token)

        assert not (await keyless.approve("s", by="ann", token="forged")).contested
        assert (await keyless.deny("s", by="eve", token="made up")).contested, "the other one may be valid"
        valid = await record.approve("s", by="ann", token=token("approved", "ann"))
        assert not (valid.contested or valid.again), "what is forged stands in nobody's way"
        assert (await keyless.deny("s", by="bob", token=token("denied", "bob"))).contested
        with pytest.raises(SaidBefore, match="approved by 'ann', and the first answer counts"):
            await record.deny("s", by="bob", token=token("denied", "bob"))
        assert (await record.approve("s", by="bob", token=token("approved", "bob"))).again
        assert (await record.resume(outcome.run, clerk(5, "ann"))).answer == "Done."
    assert PAID == [(5, "ann")]


async def test_a_doubt_that_the_model_was_told_of_is_settled_by_resolve_once_the_attempt_is_over() -> None:
    begun, go, done = list[int](), threading.Event(), threading.Event()

    @gesta.tool(effect="once", on_doubt="tell", timeout_s=0.05)
    def send(cents: int) -> str:
        """Send money."""
        begun.append(cents)
        if len(begun) == 1:
            go.wait(20)
            done.set()
        return "sent"

    again = gesta.call("send", cents=5)
    agent = gesta.Agent("shop", model=gesta.scripted(again, "Unknown.", again, "Sent."), tools=[send])
    async with gesta.open(grace_s=0) as record:
        told = await record.run(agent, "Send it.", session="s")
        assert (told.answer, told.doubts) == ("Unknown.", ("send",))
        receipt = await record.resolve("s", "failed", by="ann")
        assert (receipt.verdict, receipt.tool) == ("failed", "send")
        assert (await record.resolve("s", "failed", call=receipt.call, by="ann")).again
        waits = await record.run(agent, "Send it, please.", session="s")
        assert [each.what for each in waits.waiting] == ["approval"], "the first attempt is still at work"
        assert len(begun) == 1
        go.set()
        await anyio.to_thread.run_sync(done.wait)
        await record.deny("s", by="ann")
        assert (await record.resume("s", agent)).answer == "Sent."
    assert begun == [5]


@pytest.mark.parametrize("verdict", ["done", "failed", "retry"])
async def test_a_told_doubt_that_is_over_is_settled_at_once(verdict: Any) -> None:
    @gesta.tool(effect="once", on_doubt="tell")
    def wire(item: str) -> str:
        """Wire."""
        if item == "lamp":
            raise gesta.InDoubt("the line went dead")
        return "wired"

    calls: list[Any] = [gesta.call("wire", item="lamp"), "Unknown.", gesta.call("wire", item="cup"), "Wired."]
    agent = gesta.Agent("shop", model=gesta.scripted(*calls), tools=[wire])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Wire it.", session="s")
        assert (await record.resolve("s", verdict, by="ann")).tool == "wire"
        with pytest.raises(SaidBefore):
            await record.resolve("s", "failed" if verdict == "done" else "done", call=6, by="bob")
        assert (await record.run(agent, "And the cup.", session="s")).answer == "Wired."
        assert not (await record.state(outcome.run)).unknown
