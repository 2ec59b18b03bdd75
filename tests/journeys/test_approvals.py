"""An approval that came too late, or that the program's Approver does not accept, sets nothing going."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

import gesta
from gesta.codec.rows import encode_content
from gesta.decide.approval import SignedApprovals, asked, sign
from gesta.entry import utc_text
from gesta.errors import AgentError
from gesta.kinds import AnswerContent, ApprovalContent, ApprovalRequestContent, Content, ResolutionContent
from gesta.record.record import Record
from gesta.store import Letter
from gesta.worker import Worker

PAID: list[int] = []
KEY = b"k" * 32
YESTERDAY = timedelta(days=-1)


@gesta.tool(effect="once", approval=True, expires_s=60)
def pay(euros: int) -> str:
    """Pay."""
    PAID.append(euros)
    return f"{euros} paid"


lasting = gesta.tool(pay.function, effect="once", approval=True, expires_s=math.inf)


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


def desk() -> gesta.Agent:
    return gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", euros=10), "Done."), tools=[pay])


def shifted(by: timedelta) -> Callable[[], datetime]:
    """Return a clock that is wrong."""
    return lambda: datetime.now(UTC) + by


async def send(record: Record, run: str, approval: ApprovalContent, key: str) -> None:
    """Send a letter that the store takes now."""
    await record.store.send(Letter(run, key, encode_content(approval), utc_text(datetime.now(UTC))))


async def judgements(record: Record, run: str) -> list[tuple[str, str | None]]:
    found = [entry.content for entry in await record.read(run)]
    return [(each.by, each.refused) for each in found if isinstance(each, ApprovalContent)]


async def test_a_request_that_would_expire_after_the_year_9999_never_expires() -> None:
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", euros=10), "Done."), tools=[lasting])
    async with gesta.open() as record:
        outcome = await record.run(agent, "go")
        asked = [each.content for each in await record.read(outcome.run)]
        assert [each.expires for each in asked if isinstance(each, ApprovalRequestContent)] == [None]
        await record.approve(outcome.run, by="ann")
        assert (await record.resume(outcome.run, agent)).answer == "Done."
    assert PAID == [10]


@pytest.mark.parametrize("place", [":memory:", "late.gesta"])
@pytest.mark.parametrize("taken_in_by", ["resume", "worker"])
async def test_an_approval_that_comes_late_is_refused_whoever_takes_it_in(
    tmp_path: Path, place: str, taken_in_by: str
) -> None:
    agent = desk()
    async with gesta.open(place if place == ":memory:" else str(tmp_path / place)) as record:
        record.turns.clock = shifted(YESTERDAY)  # the request has expired for the store, and not for this process
        outcome = await record.run(agent, "Pay.", session="s")
        assert outcome.waiting[0].of is not None
        yes = ApprovalContent(of=outcome.waiting[0].of, verdict="approved", by="ann")
        await send(record, outcome.run, yes, "ann")
        told: list[gesta.Outcome] = []
        if taken_in_by == "worker":
            assert await Worker(record, [agent]).look(told.append) == 1
        else:
            told.append(await record.resume(outcome.run, agent))
        assert [each.what for each in told[0].waiting] == ["approval"]
        ((by, refused),) = await judgements(record, outcome.run)
        assert by == "ann"
        assert refused is not None
        assert refused.startswith("It came at ")
        record.turns.clock = shifted(timedelta())
        assert (await record.resume(outcome.run, agent)).answer == "Done."
        assert [by for by, _ in await judgements(record, outcome.run)] == ["ann", "expiry"]
        results = [entry.content for entry in await record.read(outcome.run) if entry.kind == "tool-result"]
    assert [each.outcome for each in results] == ["denied"]  # type: ignore[union-attr]
    assert PAID == []


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_nobody_can_send_an_approval_with_an_earlier_time(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = {"memory": ":memory:", "sqlite": str(tmp_path / "late.gesta")}.get(kind, "")
    place = place or request.getfixturevalue("emptied")
    async with gesta.open(place) as record:
        record.turns.clock = shifted(YESTERDAY)
        outcome = await record.run(desk(), "Pay.", session="s")
        assert outcome.waiting[0].of is not None
        yes = ApprovalContent(of=outcome.waiting[0].of, verdict="approved", by="ann")
        letter = Letter(outcome.run, "ann", encode_content(yes), utc_text(record.turns.clock()))
        await record.store.send(letter)
        assert (await record.resume(outcome.run, desk())).reason == "waiting"
        ((_, refused),) = await judgements(record, outcome.run)
    assert refused is not None
    assert refused.startswith("It came at ")
    assert PAID == []


async def test_a_late_approval_and_the_expiry_are_seen_at_once() -> None:
    agent = desk()
    async with gesta.open() as record:
        record.turns.clock = shifted(YESTERDAY)
        outcome = await record.run(agent, "Pay.", session="s")
        record.turns.clock = shifted(timedelta())
        assert outcome.waiting[0].of is not None
        await send(record, outcome.run, ApprovalContent(of=outcome.waiting[0].of, verdict="approved", by="ann"), "ann")
        assert (await record.resume(outcome.run, agent)).answer == "Done."
        assert [by for by, _ in await judgements(record, outcome.run)] == ["ann", "expiry"]
    assert PAID == []


async def test_an_approval_in_time_keeps_the_time_of_its_letter() -> None:
    async with gesta.open() as record:
        outcome = await record.run(desk(), "Pay.", session="s")
        assert outcome.waiting[0].of is not None
        yes = ApprovalContent(of=outcome.waiting[0].of, verdict="approved", by="ann")
        await record.send(outcome.run, yes, key="ann")
        (letter,) = await record.store.inbox(outcome.run)
        assert (await record.resume(outcome.run, desk())).answer == "Done."
        (content,) = [entry.content for entry in await record.read(outcome.run) if entry.kind == "approval"]
    assert isinstance(content, ApprovalContent)
    assert content.sent_at is not None
    assert utc_text(content.sent_at) == letter.at
    assert PAID == [10]


async def test_a_program_that_changes_the_arguments_that_it_shows_changes_no_call() -> None:
    async with gesta.open() as record:
        outcome = await record.run(desk(), "Pay.")
        shown = outcome.waiting[0].args
        assert shown is not None
        shown["euros"] = 999  # as a page does that rounds or hides a number
        await record.approve(outcome.run, by="ann")
        assert (await record.resume(outcome.run, desk())).reason == "answered"
    assert PAID == [10]


async def test_where_the_program_has_an_approver_only_a_signed_approval_counts(tmp_path: Path) -> None:
    place, agent = str(tmp_path / "signed.gesta"), desk()
    async with gesta.open(place, approver=SignedApprovals({"cfo": KEY})) as record:
        outcome = await record.run(agent, "Pay.", session="s")
        (request,) = await asked(record.store, outcome.run)
        claim = ApprovalContent(of=request.request, verdict="approved", by="cfo")
        await record.send(outcome.run, claim, key="1")
        assert (await record.resume(outcome.run, agent)).reason == "waiting"
        await record.send(outcome.run, sign(claim, request, b"x" * 32), key="2")
        assert (await record.resume(outcome.run, agent)).reason == "waiting"
        assert PAID == []
    async with gesta.open(place) as record:  # who approves needs the key, and no Approver
        await record.send(outcome.run, sign(claim, request, KEY), key="3")
    async with gesta.open(place, approver=SignedApprovals({"cfo": KEY})) as record:
        assert (await record.resume(outcome.run, agent)).answer == "Done."
        assert [refused is None for _, refused in await judgements(record, outcome.run)] == [False, False, True]
    assert PAID == [10]


async def test_a_call_that_a_later_version_made_without_an_approval_is_not_asked_about_any_more() -> None:
    def unsure(euros: int) -> str:
        raise gesta.InDoubt(f"{euros} may be paid")

    later = msgspec.structs.replace(desk(), tools=[gesta.tool(unsure, name="pay", effect="once")])
    async with gesta.open() as record:
        outcome = await record.run(desk(), "Pay.", session="s")
        assert len(await asked(record.store, outcome.run)) == 1
        assert [each.what for each in (await record.resume(outcome.run, later)).waiting] == ["doubt"]
        assert await asked(record.store, outcome.run) == []


def test_the_synchronous_door_has_an_approver_too() -> None:
    agent = desk()
    with gesta.open_sync(approver=SignedApprovals({"cfo": KEY})) as opened:
        outcome = opened.run(agent, "Pay.", session="s", key="m")
        claim = ApprovalContent(of=outcome.waiting[0].of or 0, verdict="approved", by="cfo")
        anyio.run(partial(opened.record.send, outcome.run, claim, key="1"))
        assert opened.run(agent, "Pay.", session="s", key="m").reason == "waiting"
        (request,) = anyio.run(asked, opened.record.store, outcome.run)
        anyio.run(partial(opened.record.send, outcome.run, sign(claim, request, KEY), key="2"))
        assert opened.run(agent, "Pay.", session="s", key="m").answer == "Done."
    assert PAID == [10]


async def test_a_denial_too_counts_only_if_it_is_signed(tmp_path: Path) -> None:
    agent = desk()
    async with gesta.open(str(tmp_path / "signed.gesta"), approver=SignedApprovals({"cfo": KEY})) as record:
        outcome = await record.run(agent, "Pay.", session="s")
        (request,) = await asked(record.store, outcome.run)
        no = ApprovalContent(of=request.request, verdict="denied", by="cfo", reason="not this one")
        await record.send(outcome.run, no, key="1")
        assert (await record.resume(outcome.run, agent)).reason == "waiting"
        await record.send(outcome.run, sign(no, request, KEY), key="2")
        assert (await record.resume(outcome.run, agent)).answer == "Done."
    assert PAID == []


async def test_a_token_for_one_call_sets_no_other_going() -> None:
    model = gesta.scripted([gesta.call("pay", euros=10), gesta.call("pay", euros=10)], "Done.")
    agent = gesta.Agent("desk", model=model, tools=[pay])
    async with gesta.open(approver=SignedApprovals({"cfo": KEY})) as record:
        outcome = await record.run(agent, "Pay.", session="s")
        one, other = await asked(record.store, outcome.run)
        yes = sign(ApprovalContent(of=one.request, verdict="approved", by="cfo"), one, KEY)
        again = ApprovalContent(of=other.request, verdict="approved", by="cfo", token=yes.token)
        await record.send(outcome.run, again, key="1")
        await record.send(outcome.run, yes, key="2")
        waits = (await record.resume(outcome.run, agent)).waiting
    assert [each.call for each in waits] == [other.call]
    assert PAID == [10]


DEEP: list[Any] = []
for _ in range(70):
    DEEP = [DEEP]
ODD: list[tuple[Any, str]] = [
    (Decimal("64.90"), r"found Decimal\('64.90'\) \(of type Decimal\) at `\$.euros`"),
    (b"5", "found b'5'"),
    (math.nan, "found nan at"),
    (-math.inf, "found -inf at"),
    (10**5000, "found an integer of 16,610 bits at"),
    ([1, {"a": {2}}], r"found \{2\} \(of type set\) at `\$.euros\[1\].a`"),
    ({"a": {2: 3}}, r"found the key 2 \(of type int\) at `\$.euros.a`, expected a text"),
    (DEEP, "found more than 64 levels"),
]


@pytest.mark.parametrize(("value", "found"), ODD, ids=[found for _, found in ODD])
async def test_an_answer_with_what_json_cannot_hold_is_refused_before_it_is_sent(value: Any, found: str) -> None:
    async with gesta.open() as record:
        run = (await record.run(desk(), "pay 5", session="s")).run
        odd = {"euros": value}
        with pytest.raises(AgentError, match=f"^args=...: {found}.*Expected JSON"):
            await record.approve("s", by="ann", args=odd)
        with pytest.raises(AgentError, match=f"^value=...: {found}"):
            await record.answer("s", odd, of=1, by="ann")
        with pytest.raises(AgentError, match=f"^result=...: {found}"):
            await record.resolve("s", "done", by="ann", result=odd)
        said: list[Content] = [
            ApprovalContent(of=1, verdict="approved", by="ann", args=odd),
            ApprovalContent(of=1, verdict="answered", by="ann", result=odd),
            AnswerContent(of=1, value=odd, by="ann"),
            ResolutionContent(of=1, verdict="done", by="ann", result=odd),
        ]
        for content in said:
            with pytest.raises(AgentError, match=found):
                await record.send(run, content, key="k")
        assert await record.store.inbox(run) == []
        assert (await record.approve("s", by="ann", args={"euros": 2**70})).verdict == "approved"  # any tool gets it
        assert ((await record.resume("s", desk())).reason, PAID) == ("answered", [2**70])


@pytest.mark.parametrize("verdict", ["approved", "denied"])
async def test_one_call_at_a_time_keeps_the_order_of_the_calls_also_while_the_first_waits_for_a_person(
    verdict: str,
) -> None:
    done: list[str] = []

    @gesta.tool(effect="once", approval=True)
    def move(euros: int) -> str:
        """Move what is on the account."""
        done.append(f"moved {euros}")
        return "moved"

    @gesta.tool(effect="once")
    def close() -> str:
        """Close the account, which has to be empty."""
        done.append("closed")
        return "closed"

    model = gesta.scripted(gesta.reply(calls=[gesta.call("move", euros=10), gesta.call("close")]), "Done.")
    agent = gesta.Agent("desk", model=model, tools=[move, close], policy=gesta.Policy(parallel=1))
    async with gesta.open() as record:
        outcome = await record.run(agent, "Close it.")
        assert [(each.what, each.tool) for each in outcome.waiting] == [("approval", "move")]
        assert done == []
        await (record.approve if verdict == "approved" else record.deny)(outcome.waiting[0], by="Ada")
        assert (await record.resume(outcome.run, agent)).answer == "Done."
    assert done == (["moved 10", "closed"] if verdict == "approved" else ["closed"])
