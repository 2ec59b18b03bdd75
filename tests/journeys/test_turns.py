"""Turns as a user drives them: approvals, doubts, limits, faults, cancelling, streams, several messages."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.threads import Held

import gesta
from gesta.address import Record, bind
from gesta.entry import Entry
from gesta.errors import RunHeld, TurnOpen
from gesta.kinds import (
    ApprovalContent,
    EndContent,
    FaultContent,
    RequestContent,
    ResolutionContent,
    SignalContent,
    ToolResultContent,
)
from gesta.model.request import Reply
from gesta.models.scripted import Keyless, spoken
from gesta.store import Lease, Letter
from gesta.stores.memory import MemoryStore

QUICK = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0))


def contents(entries: list[Entry], kind: type[Any]) -> list[Any]:
    return [entry.content for entry in entries if isinstance(entry.content, kind)]


@gesta.tool(effect="once", approval=True)
async def pay(cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents}"


@gesta.tool
async def wire(cents: int) -> str:
    """Send money; says nothing about its effect."""
    raise gesta.InDoubt


def paying(*more: Any) -> gesta.Agent:
    return gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", cents=5), *more), tools=[pay], policy=QUICK)


async def test_an_approved_call_runs_and_a_denied_one_is_told_to_the_model() -> None:
    async with gesta.open() as record:
        for verdict, shown in (("approved", "paid 5"), ("denied", "A person did not allow this call. They said: no")):
            waits = await record.run(paying("ok"), "pay", session=verdict, key="m")
            assert waits.reason == "waiting"
            assert [waiting.what for waiting in waits.waiting] == ["approval"]
            of = waits.waiting[0].of
            assert of is not None
            answer = ApprovalContent(of=of, verdict=verdict, by="eva", reason="no")  # type: ignore[arg-type]
            assert await record.send(waits.run, answer, key="a")
            assert not await record.send(waits.run, answer, key="a")
            done = await record.resume(waits.run, paying("ok"))
            assert done.answer == "ok"
            (result,) = contents(await record.read(waits.run), ToolResultContent)
            assert result.tool_result == shown


async def test_other_arguments_may_be_approved() -> None:
    async with gesta.open() as record:
        waits = await record.run(paying("ok"), "pay", session="s", key="m")
        of = waits.waiting[0].of
        assert of is not None
        await record.send(waits.run, ApprovalContent(of=of, verdict="approved", by="eva", args={"cents": 4}), key="a")
        await record.resume(waits.run, paying("ok"))
        (result,) = contents(await record.read(waits.run), ToolResultContent)
        assert result.tool_result == "paid 4"


@pytest.mark.parametrize(
    ("verdict", "result", "shown"),
    [("done", "sent", "sent"), ("failed", None, "The call did not happen."), ("retry", None, None)],
)
async def test_a_doubt_waits_until_somebody_settles_it(verdict: Any, result: Any, shown: str | None) -> None:
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("wire", cents=5), "ok"), tools=[wire], policy=QUICK)
    async with gesta.open() as record:
        waits = await record.run(agent, "wire", session="s")
        (doubt,) = waits.waiting
        assert (doubt.what, doubt.tool, doubt.declared) == ("doubt", "wire", False)
        assert doubt.of is not None
        settled = ResolutionContent(of=doubt.of, verdict=verdict, by="eva", result=result)
        await record.send(waits.run, settled, key="r")
        after = await record.resume(waits.run, agent)
        if shown is None:
            assert after.reason == "waiting", "it was tried again, and is in doubt again"
        else:
            assert after.answer == "ok"
            (found,) = contents(await record.read(waits.run), ToolResultContent)
            assert found.tool_result == shown


async def test_a_doubt_is_told_to_the_model_where_the_tool_says_so() -> None:
    told = gesta.tool(wire.function, name="wire", on_doubt="tell")
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("wire", cents=5), "ok"), tools=[told], policy=QUICK)
    async with gesta.open() as record:
        assert (await record.run(agent, "wire", session="s")).answer == "ok"
        (result,) = contents(await record.read((await record.find("last")).run), ToolResultContent)
        assert result.outcome == "unknown"


async def test_a_provider_that_is_busy_is_asked_again_and_each_try_is_on_record() -> None:
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.fault(503, times=2), "ok"), policy=QUICK)
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi", session="s")
        entries = await record.read(outcome.run)
    assert outcome.answer == "ok"
    assert [request.number for request in contents(entries, RequestContent)] == [1, 2, 3]
    assert [fault.error.http_status for fault in contents(entries, FaultContent)] == [503, 503]


async def test_a_model_that_awaits_what_somebody_else_cancelled_fails_the_turn_and_cancels_nobody() -> None:
    async def think(*_: Any) -> str:
        found = asyncio.get_running_loop().create_future()
        found.cancel()
        return str(await found)

    async with gesta.open() as record:
        outcome = await record.run(gesta.Agent("desk", model=gesta.function(think)), "Go.")
        assert (outcome.reason, outcome.error and outcome.error.type) == ("failed", "CancelledError")


async def test_a_turn_fails_when_the_tries_are_used_up_and_the_next_turn_goes_on() -> None:
    policy = gesta.Policy(retry=gesta.Retry(tries=2, first_wait_s=0.0))
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.fault(503, times=2), "ok"), policy=policy)
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi", session="s")
        assert outcome.reason == "failed"
        assert outcome.error is not None
        assert outcome.error.http_status == 503
        mended = gesta.Agent("desk", model=gesta.scripted("ok"), policy=policy)
        assert (await record.run(mended, "hi", session="s")).answer == "ok"


async def test_limits_end_the_turn_and_name_the_bound() -> None:
    policy = gesta.Policy(limits=gesta.Limits(requests=2))
    model = gesta.scripted(*[gesta.call("pay", cents=1)] * 5)
    free = gesta.tool(pay.function, name="pay", effect="pure")
    agent = gesta.Agent("desk", model=model, tools=[free], policy=policy)
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi", session="s")
    assert (outcome.reason, outcome.error and outcome.error.type) == ("limit", "requests")


@pytest.mark.parametrize(("script", "type_"), [([], "ScriptExhausted"), (["", ""], "EmptyReply")])
async def test_a_model_that_says_nothing_fails_the_turn(script: list[str], type_: str) -> None:
    async with gesta.open() as record:
        outcome = await record.run(gesta.Agent("desk", model=gesta.scripted(*script), policy=QUICK), "hi")
    assert outcome.reason == "failed"
    assert outcome.error is not None
    assert outcome.error.type == type_


async def test_who_gets_nothing_is_told_the_providers_reason() -> None:
    empty = Reply(finish_reason="max_output_tokens")
    async with gesta.open() as record:
        outcome = await record.run(gesta.Agent("desk", model=gesta.scripted(empty, empty), policy=QUICK), "hi")
    assert outcome.error is not None
    assert outcome.error.message == (
        "The model answered with nothing (no text, no tool call) 2 times in a row. "
        "The provider's reason was 'max_output_tokens'."
    )


async def test_an_empty_reply_is_asked_for_once_more() -> None:
    async with gesta.open() as record:
        outcome = await record.run(gesta.Agent("desk", model=gesta.scripted("", "ok"), policy=QUICK), "hi")
        digests = {request.body_digest for request in contents(await record.read(outcome.run), RequestContent)}
    assert outcome.answer == "ok"
    assert len(digests) == 1


async def test_a_cancelled_run_ends_so_and_the_session_goes_on() -> None:
    async with gesta.open() as record:
        waits = await record.run(paying("never"), "pay", session="s", key="m")
        refusing = gesta.Policy(when_busy="raise")
        with pytest.raises(TurnOpen, match="Resume or cancel it first"):
            await record.run(msgspec.structs.replace(paying("never"), policy=refusing), "other", session="s")
        await record.send(waits.run, SignalContent(name="cancel", by="eva"), key="c")
        assert (await record.resume(waits.run, paying("never"))).reason == "cancelled"
        assert (await record.run(paying("next"), "other", session="s")).answer == "next"
        outcomes = [result.outcome for result in contents(await record.read(waits.run), ToolResultContent)]
        assert outcomes == ["interrupted"]


async def test_a_cancelled_scope_leaves_the_turn_open_and_it_goes_on_when_it_is_resumed() -> None:
    calls = list[int]()

    @gesta.tool(effect="pure")
    async def hang() -> str:
        """Does not return the first time."""
        calls.append(1)
        if len(calls) == 1:
            scope.cancel()
            await anyio.sleep_forever()
        return "seen"

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("hang"), "ok"), tools=[hang])
    async with gesta.open() as record:
        with anyio.CancelScope() as scope:
            await record.run(agent, "hang", session="s", key="m")
        run = (await record.find("last")).run
        entries = await record.read(run)
        assert contents(entries, EndContent) == []
        assert [fault.error.type for fault in contents(entries, FaultContent)] == ["cancelled"]
        assert (await record.resume(run, agent)).answer == "ok"
    assert len(calls) == 2


async def test_a_timeout_leaves_a_once_tool_in_doubt_and_a_late_result_settles_it() -> None:
    held = Held()

    @gesta.tool(effect="once", timeout_s=0.05)
    def slow() -> str:
        """Work for long, in a thread that nobody can stop."""
        held.here()
        return "done after all"

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("slow"), "ok"), tools=[slow])
    async with gesta.open() as record:
        waits = await record.run(agent, "go", session="s")
        assert [waiting.what for waiting in waits.waiting] == ["doubt"]
        await held.let_go()
        assert (await record.resume(waits.run, agent)).answer == "ok"
        (result,) = contents(await record.read(waits.run), ToolResultContent)
        assert result.tool_result == "done after all"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: (_ for _ in ()).throw(SystemExit(3)), "SystemExit: 3"),
        (object, "<object object"),
        (lambda: float("nan"), "NaN"),
        (lambda: "\ud800", "\ud800"),
        (lambda: b"\x00\xff", "AP8="),
    ],
)
async def test_whatever_a_tool_does_is_the_models_to_read(body: Callable[[], Any], shown: str) -> None:
    @gesta.tool(effect="pure")
    def odd() -> Any:
        """Does something odd."""
        return body()

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("odd"), "ok"), tools=[odd])
    seen: list[str] = []
    async with gesta.open() as record:
        outcome = await record.run(
            agent, "go", listener=lambda event: seen.append(event.content) if event.type == "observation" else None
        )
    assert outcome.answer == "ok"
    assert shown in seen[0]


async def test_a_stream_gives_deltas_then_the_end_and_the_outcome() -> None:
    agent = gesta.Agent("desk", model=gesta.scripted("Good morning to you all."))
    async with gesta.open() as record:
        stream = record.stream(agent, "hi", session="s")
        events = [event async for event in stream]
    answers = [event for event in events if event.type == "answer"]
    assert "".join(event.content for event in answers) == "Good morning to you all."
    assert len(answers) > 2
    assert [event.end_of_dialog for event in events].count(True) == 1
    assert answers[-1].end_of_message
    assert stream.outcome is not None
    assert stream.outcome.answer == "Good morning to you all."


async def test_words_before_a_call_are_taken_back_and_shown_as_a_thought() -> None:
    model = gesta.scripted(gesta.reply("Let me look.", calls=[gesta.call("look")]), "Seen.")

    @gesta.tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "a cat"

    async with gesta.open() as record:
        stream = record.stream(gesta.Agent("desk", model=model, tools=[look]), "hi", session="s")
        events = [event async for event in stream]
    types = [event.type for event in events]
    first_explain = types.index("explain", 1)
    told = ["retract", "thought", "explain", "call", "explain", "result", "observation", "explain"]
    assert types[first_explain - 2 : first_explain + 6] == told
    nodes = [event.explain_graph.node for event in events if event.explain_graph is not None]
    assert nodes == ["Question", "Analysis", "ToolUse", "Observation", "Conclusion"]


async def test_an_error_in_ones_own_code_leaves_the_block_as_itself() -> None:
    with pytest.raises(ZeroDivisionError):
        async with gesta.open():
            _ = 1 / 0


async def test_a_second_writer_is_told_who_holds_the_run(tmp_path: Path) -> None:
    started, release = anyio.Event(), anyio.Event()

    @gesta.tool(effect="pure")
    async def hold() -> str:
        """Hold on."""
        started.set()
        await release.wait()
        return "let go"

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("hold"), "ok"), tools=[hold])
    path = str(tmp_path / "r.gesta")
    async with gesta.open(path) as one, gesta.open(path) as two, anyio.create_task_group() as group:
        group.start_soon(partial(one.run, agent, "go", session="s", key="m"))
        await started.wait()
        refusing = msgspec.structs.replace(agent, policy=gesta.Policy(when_busy="raise"))
        with pytest.raises(RunHeld, match="is being written by process"):
            await two.run(refusing, "go", session="s")
        release.set()


async def test_a_second_writer_waits_for_the_first_and_then_takes_its_own_turn(tmp_path: Path) -> None:
    release = anyio.Event()

    @gesta.tool(effect="pure")
    async def hold() -> str:
        """Hold on until somebody else has come, and been told that the run is held."""
        group.start_soon(other)
        await release.wait()
        return "let go"

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("hold"), "ok", "and ok"), tools=[hold])
    path, found = str(tmp_path / "r.gesta"), list[str | None]()

    async def other() -> None:
        waited = two.turns.leases.leased

        @asynccontextmanager
        async def told(run: str, above: str | None = None) -> AsyncIterator[Lease]:
            try:
                async with waited(run, above) as lease:
                    yield lease
            except RunHeld:
                release.set()
                raise

        two.turns.leases.leased = told  # type: ignore[method-assign]
        found.append((await two.run(agent, "me too", session="s")).answer)

    async with gesta.open(path) as one, gesta.open(path) as two, anyio.create_task_group() as group:
        assert (await one.run(agent, "go", session="s")).answer == "ok"
    assert found == ["and ok"]


async def test_large_and_hostile_values_are_kept_whole_and_found_again(tmp_path: Path) -> None:
    large = "é\u202e\x1b[31m" * 200_000
    nasty = {"$blob": "forged", "\ud800": [float("inf"), 10**5000], "deep": None}

    @gesta.tool(effect="pure")
    async def odd() -> Any:
        """Return something large."""
        return [large, nasty]

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("odd"), large), tools=[odd])
    async with gesta.open(str(tmp_path / "large.gesta")) as record:
        outcome = await record.run(agent, large, session="\ud800")
        entries = await record.read(outcome.run)
        assert await record.verify() == []
    (result,) = contents(entries, ToolResultContent)
    assert outcome.answer == large
    assert result.tool_result == [large, nasty]


async def test_a_signal_that_comes_after_the_turn_ended_does_not_cancel_the_next() -> None:
    agent = gesta.Agent("desk", model=gesta.scripted("one", "two"))
    async with gesta.open() as record:
        first = await record.run(agent, "a", session="s")
        await record.send(first.run, SignalContent(name="cancel", by="eva"), key="c")
        assert (await record.run(agent, "b", session="s")).answer == "two"


async def test_a_message_that_is_queued_behind_a_cancelled_turn_waits_for_its_own_agent() -> None:
    model = gesta.scripted(gesta.call("pay", cents=1), "Both are paid.")
    agent = gesta.Agent("clerk", model=model, tools=[pay])
    async with gesta.open() as record:
        first = await record.run(agent, "Pay one.", session="s", key="one")
        assert (await record.run(agent, "Pay two.", session="s", key="two")).queued
        ended = await record.cancel(first.waiting[0], by="eva")
        assert (ended and ended.reason, (await record.state("s")).began) == ("cancelled", [1])
        second = await record.resume("s", agent)
        assert (second.answer, second.turn) == ("Both are paid.", (await record.state("s")).began[1])
        assert (await record.run(agent, "Pay two.", session="s", key="two")).turn == second.turn


class Meanwhile(MemoryStore):
    """A store in which something happens when a cancellation has come, or just before it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], Awaitable[Any]] | None = None
        self.after: Callable[[], Awaitable[Any]] | None = None

    async def send(self, letter: Letter) -> bool:
        cancels = letter.key.startswith("cancel")
        if cancels and self.before is not None:
            await self.before()
        sent = await super().send(letter)
        if cancels and self.after is not None:
            await self.after()
        return sent


async def test_a_cancellation_that_a_worker_carries_out_first_does_not_touch_the_next_turn() -> None:
    store = Meanwhile()
    record = Record(store, bind)
    model = gesta.scripted(gesta.call("pay", cents=1), gesta.call("pay", cents=2), "Two is paid.")
    agent = gesta.Agent("clerk", model=model, tools=[pay])
    first = await record.run(agent, "Pay one.", session="s", key="one")
    assert (await record.run(agent, "Pay two.", session="s", key="two")).queued
    store.after = partial(record.resume, "s", agent)
    assert await record.cancel(first.waiting[0], by="eva") is None
    (waiting,) = await record.waiting("s")
    assert (waiting.what, waiting.args) == ("approval", {"cents": 2})
    await record.approve(waiting, by="eva")
    assert (await record.resume("s", agent)).answer == "Two is paid."


async def test_a_cancellation_that_comes_when_the_turn_has_ended_does_not_touch_the_next_one() -> None:
    store = Meanwhile()
    record = Record(store, bind)
    model = gesta.scripted(gesta.call("pay", cents=1), "One is paid.", gesta.call("pay", cents=2), "Two is paid.")
    agent = gesta.Agent("clerk", model=model, tools=[pay])
    first = await record.run(agent, "Pay one.", session="s", key="one")
    assert (await record.run(agent, "Pay two.", session="s", key="two")).queued

    async def go_on() -> None:
        await record.approve(first.waiting[0], by="ann")
        assert (await record.resume("s", agent)).answer == "One is paid."
        assert [each.args for each in await record.waiting("s")] == [{"cents": 2}]

    store.before = go_on
    assert await record.cancel(first.waiting[0], by="eva") is None
    store.before = None
    (waiting,) = await record.waiting("s")
    await record.approve(waiting, by="ann")
    assert (await record.resume("s", agent)).answer == "Two is paid."


async def test_a_listener_that_leaves_early_does_not_break_the_turn_off() -> None:
    agent = gesta.Agent("desk", model=gesta.scripted("a long answer in many words"))
    async with gesta.open() as record:
        stream = record.stream(agent, "hi", session="s")
        async for event in stream:
            if event.type == "answer":
                break
        await stream.ended.wait()
        assert stream.outcome is not None
        assert stream.outcome.answer == "a long answer in many words"


async def test_a_reply_that_cannot_be_read_is_kept_as_it_came() -> None:
    cut = b'data: {"choices":[{"delta":{"content":"all"}}]}\n\n'
    model = Keyless("m", lambda request: cut if request.number == 1 else "all of it", spoken("m", stream=True))
    agent = gesta.Agent("desk", model=model, policy=QUICK)
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi")
        (fault,) = contents(await record.read(outcome.run), FaultContent)
    assert outcome.answer == "all of it"
    assert b"all" in zlib.decompress(fault.meta["raw_zlib"])
