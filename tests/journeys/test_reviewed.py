"""Defects that a review found, each shown right: doubts that outlive a turn, listeners, cancellation, damage."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import apsw
import msgspec
import pytest
from tests.laws.scenes import Tape, again

import gesta
from gesta import address
from gesta.entry import Entry
from gesta.errors import BadAddress, BadTool, SeveralRuns
from gesta.kinds import (
    ApprovalContent,
    BeginContent,
    EndContent,
    Kind,
    RetrievalContent,
    SignalContent,
    ToolResultContent,
)
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore

QUICK = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0))


def acting(*script: Any, tools: list[gesta.Tool], policy: gesta.Policy = QUICK) -> gesta.Agent:
    return gesta.Agent("a", model=gesta.scripted(*script), tools=tools, policy=policy)


def results(entries: list[Entry]) -> list[ToolResultContent]:
    return [entry.content for entry in entries if isinstance(entry.content, ToolResultContent)]


async def test_a_doubt_of_a_cancelled_turn_is_settled_before_the_next_goes_on() -> None:
    paid: list[str] = []

    async def pay(x: int, context: gesta.Context) -> str:
        paid.append(context.key)
        scope.cancel()
        await anyio.sleep_forever()
        return "paid"

    def asked(key: str) -> gesta.Done | gesta.NotDone:
        return gesta.Done("paid") if key in paid else gesta.NotDone()

    agent = acting(gesta.call("pay", x=1), "It was paid.", tools=[gesta.tool(pay, effect="once", reconcile=asked)])
    async with gesta.open(grace_s=0) as record:
        with anyio.CancelScope() as scope:
            await record.run(agent, "pay it", session="s")
        (row,) = await record.store.runs("s")
        await record.send(row.run, SignalContent(name="cancel", by="eva"), key="c")
        outcome = await record.run(agent, "did it work?", session="s")
        entries = await record.read(outcome.run)
    (result,) = results(entries)
    reasons = [entry.content.reason for entry in entries if isinstance(entry.content, EndContent)]
    assert (reasons, outcome.answer) == (["cancelled", "answered"], "It was paid.")
    assert (len(paid), result.tool_result) == (1, "paid")


async def test_a_doubt_of_a_cancelled_turn_asks_a_person_in_the_next() -> None:
    @gesta.tool(effect="once")
    async def pay(x: int) -> str:
        """Pay."""
        scope.cancel()
        await anyio.sleep_forever()
        return "paid"

    agent = acting(gesta.call("pay", x=1), "ok", tools=[pay])
    async with gesta.open(grace_s=0) as record:
        with anyio.CancelScope() as scope:
            await record.run(agent, "pay it", session="s")
        outcome = await record.run(agent, "did it work?", session="s")
    assert [waiting.what for waiting in outcome.waiting] == ["doubt"]


async def test_after_an_unknown_outcome_an_equal_call_needs_a_person() -> None:
    calls = []

    @gesta.tool(on_doubt="tell")
    async def pay(x: int) -> str:
        """Pay."""
        calls.append(x)
        raise gesta.InDoubt

    script = [gesta.call("pay", x=1), gesta.call("pay", x=1.0), gesta.call("pay", x=2), "ok"]
    agent = acting(*script, tools=[pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "pay it", session="s")
    assert [waiting.what for waiting in outcome.waiting] == ["approval"]
    assert calls == [1]


async def test_a_reconcile_that_always_says_not_done_is_bounded() -> None:
    tries = []

    def never(key: str) -> gesta.NotDone:
        return gesta.NotDone()

    @gesta.tool(effect="once", reconcile=never)
    async def pay(x: int) -> str:
        """Pay."""
        tries.append(x)
        raise gesta.InDoubt

    async with gesta.open() as record:
        outcome = await record.run(acting(gesta.call("pay", x=1), "ok", tools=[pay]), "pay it")
        (result,) = results(await record.read(outcome.run))
    assert (len(tries), outcome.answer, result.tool_result) == (3, "ok", "The call did not happen.")


async def test_leaving_a_stream_early_harms_neither_tool_nor_turn() -> None:
    left = anyio.Event()

    async def pay(x: int, context: gesta.Context) -> str:
        await left.wait()
        context.respond("on its way")
        return "paid"

    agent = acting(gesta.call("pay", x=1), "done", tools=[gesta.tool(pay, effect="once")])
    async with gesta.open() as record:
        stream = record.stream(agent, "hi", session="s")
        events = aiter(stream)
        await anext(events)
        await events.aclose()  # type: ignore[attr-defined]
        left.set()
        await stream.ended.wait()
        assert stream.outcome is not None
        (result,) = results(await record.read(stream.outcome.run))
    assert (stream.outcome.answer, result.tool_result) == ("done", "paid")


async def test_a_tool_in_a_thread_is_heard_at_once() -> None:
    heard = threading.Event()

    def slow(x: int, context: gesta.Context) -> str:
        context.respond("step 1")
        return "heard" if heard.wait(10) else "not heard"

    agent = acting(gesta.call("slow", x=1), "done", tools=[gesta.tool(slow, effect="pure")])
    async with gesta.open() as record:
        events = []
        async for event in record.stream(agent, "hi", session="s"):
            events.append(event)
            if event.content == "step 1":
                heard.set()
    assert "heard" in [event.content for event in events if event.type == "observation"]


@pytest.mark.parametrize("run", [asyncio.run, lambda main: anyio.run(lambda: main)], ids=["asyncio", "anyio"])
def test_callbacks_threads_and_loops_that_a_tool_begins_tell_words_and_passages_in_the_loop_of_the_run(
    run: Callable[[Coroutine[Any, Any, list[Entry]]], list[Entry]],
) -> None:
    """`anyio.run` leaves the name of the library in the context variables, which `asyncio.to_thread` carries along."""
    written_in = set[int]()

    def clock() -> datetime:
        written_in.add(threading.get_ident())
        return datetime.now(UTC)

    def tell(context: gesta.Context, words: str) -> None:
        context.respond(words)
        context.found(words, [])

    async def elsewhere(context: gesta.Context) -> None:
        tell(context, "loop")

    async def pay(context: gesta.Context) -> str:
        tell(context, "task")
        asyncio.get_running_loop().call_soon(tell, context, "callback")
        await asyncio.sleep(0)
        await asyncio.to_thread(tell, context, "thread")
        await asyncio.to_thread(asyncio.run, elsewhere(context))
        return "paid"

    async def main() -> list[Entry]:
        agent = acting(gesta.call("pay"), "done", tools=[gesta.tool(pay, effect="once")])
        record = Record(MemoryStore(), address.bind, clock=clock)
        outcome = await record.run(agent, "hi")
        return await record.read(outcome.run)

    entries = [entry.content for entry in run(main())]
    assert [each.tool_result for each in entries if isinstance(each, ToolResultContent)] == ["paid"]
    assert [each.query for each in entries if isinstance(each, RetrievalContent)] == [
        "task",
        "callback",
        "thread",
        "loop",
    ]
    assert written_in == {threading.get_ident()}


async def test_a_cancellation_at_the_last_commit_leaves_one_end() -> None:
    store = MemoryStore()
    record = Record(store, address.bind)
    agent = acting("fine", tools=[])
    real = store.append
    with anyio.CancelScope() as scope:

        async def append(batch: Any) -> int:
            if any(row.kind == "end" for row in batch.rows):
                scope.cancel()
            return await real(batch)

        store.append = append  # type: ignore[method-assign]
        await record.run(agent, "hi", session="s", key="k")
    entries = await record.read((await record.find("last")).run)
    assert [entry.content.reason for entry in entries if isinstance(entry.content, EndContent)] == ["answered"]
    assert (await record.run(agent, "hi", session="s", key="k")).answer == "fine"


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


async def test_an_exception_that_cannot_be_written_is_named() -> None:
    @gesta.tool(effect="pure")
    async def odd() -> str:
        """Raise something odd."""
        raise Mute

    async with gesta.open() as record:
        outcome = await record.run(acting(gesta.call("odd"), "ok", tools=[odd]), "hi")
        (result,) = results(await record.read(outcome.run))
    assert (outcome.answer, result.tool_result) == ("ok", "Mute")


async def test_a_model_that_raises_fails_the_turn_and_says_why() -> None:
    def broken(messages: Any, header: Any) -> str:
        raise ValueError("no such luck")

    async with gesta.open() as record:
        outcome = await record.run(gesta.Agent("desk", model=gesta.function(broken)), "hi")
    assert outcome.reason == "failed"
    assert outcome.error is not None
    assert (outcome.error.type, outcome.error.message) == ("ValueError", "no such luck")


async def test_a_listener_that_raises_hears_no_more_and_the_turn_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    heard = list[gesta.Event]()

    def deaf(event: gesta.Event) -> None:
        heard.append(event)
        raise OSError("pipe is gone")

    agent = gesta.Agent("desk", model=gesta.scripted("ok"))
    async with gesta.open() as record:
        assert (await record.run(agent, "hi", session="s", key="m", listener=deaf)).answer == "ok"
        assert await record.verify() == []
    assert len(heard) == 1
    (told,) = [each for each in caplog.records if each.name == "gesta"]
    assert (told.levelname, "raised, and hears no more of it" in told.message) == ("WARNING", True)
    assert told.exc_info is not None
    assert "pipe is gone" in str(told.exc_info[1])


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET content = replace(content, '\"opened\"', '\"openee\"') WHERE seq = 1",
        "UPDATE entries SET kind = 'user' WHERE seq = 1",
        "DELETE FROM entries WHERE seq = 1",
        "UPDATE entries SET content = CAST(x'ff' AS TEXT) WHERE seq = 5",
    ],
)
async def test_verify_sees_runs_whose_beginning_was_changed(change: str, tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    async with gesta.open(str(path)) as record:
        await record.run(acting("yo", tools=[]), "hi", session="s")
    connection = apsw.Connection(str(path))
    connection.execute(change)
    connection.close()
    async with gesta.open(str(path), readonly=True) as record:
        assert len(await record.verify()) == 1


async def test_recording_beside_an_open_turn_does_not_end_it() -> None:
    @gesta.tool(approval=True)
    async def pay(x: int) -> str:
        """Pay."""
        return "paid"

    agent = acting(gesta.call("pay", x=1), "ok", tools=[pay])
    async with gesta.open() as record:
        waits = await record.run(agent, "hi", session="s")
        async with record.span("feedback", session="s", run="a") as log:
            log["stars"] = 5
        assert (await record.resume(waits.run, agent)).reason == "waiting"


async def test_an_attempt_that_another_lease_made_is_never_taken_for_running() -> None:
    @gesta.tool(effect="pure")
    async def look(x: int) -> str:
        """Look."""
        return "seen"

    agent = acting(gesta.call("look", x=1), "ok", tools=[look])
    tape = Tape()
    await Record(tape, address.bind).run(agent, "hi", session="s", key="m")
    cut = next(place for place, batch in enumerate(tape.tape) if any(row.kind == "attempt" for row in batch.rows)) + 1
    record = Record(await again(tape.tape[:1]), address.bind)
    lease = await record.store.lease(tape.tape[0].lease.run)
    for batch in tape.tape[1:cut]:
        await record.store.append(msgspec.structs.replace(batch, lease=lease))
    await record.store.release(lease)
    assert (await record.run(agent, "hi", session="s", key="m")).answer == "ok"


async def test_a_letter_to_a_run_that_is_not_there_yet_does_no_harm() -> None:
    agent = acting("x", tools=[])
    async with gesta.open() as record:
        run = await record.turns.run_of("s", "a")
        await record.send(run, SignalContent(name="wake", by="p"), key="1")
        outcome = await record.run(agent, "hi", session="s")
        begin = (await record.read(run))[0].content
    assert outcome.answer == "x"
    assert isinstance(begin, BeginContent)
    assert begin.opened is not None


async def test_reasoning_of_a_model_that_does_not_stream_is_told_whole() -> None:
    agent = gesta.Agent("a", model=gesta.scripted(gesta.reply("ok", thought="hm"), stream=False))
    async with gesta.open() as record:
        events = [event async for event in record.stream(agent, "hi", session="s")]
    assert [event.content for event in events if event.type == "thought"] == ["hm"]


async def test_a_stream_is_begun_once() -> None:
    async with gesta.open() as record:
        stream = record.stream(acting("ok", tools=[]), "hi", session="s")
        assert [event async for event in stream]
        with pytest.raises(gesta.GestaError, match="begun before"):
            _ = [event async for event in stream]


async def test_what_a_person_said_is_a_cause_of_the_result() -> None:
    @gesta.tool(approval=True)
    async def pay(x: int) -> str:
        """Pay."""
        return "paid"

    agent = acting(gesta.call("pay", x=1), "ok", tools=[pay])
    async with gesta.open() as record:
        waits = await record.run(agent, "hi", session="s", key="m")
        of = waits.waiting[0].of
        assert of is not None
        await record.send(waits.run, ApprovalContent(of=of, verdict="denied", by="eva"), key="a")
        await record.resume(waits.run, agent)
        entries = await record.read(waits.run)
    said = next(entry.seq for entry in entries if entry.kind is Kind.Approval)
    assert said in next(entry.causes for entry in entries if entry.kind is Kind.ToolResult)


async def test_more_calls_in_one_reply_than_the_limit_are_not_begun() -> None:
    done = []

    @gesta.tool(effect="pure")
    async def look(x: int) -> str:
        """Look."""
        done.append(x)
        return "seen"

    script = [[gesta.call("look", x=n) for n in range(20)], "ok"]
    policy = gesta.Policy(limits=gesta.Limits(calls=2))
    async with gesta.open() as record:
        outcome = await record.run(acting(*script, tools=[look], policy=policy), "hi")
    assert (outcome.reason, done) == ("limit", [])


async def test_a_tool_that_was_once_stays_so_when_the_code_says_otherwise_later() -> None:
    async def pay(x: int) -> str:
        raise gesta.InDoubt

    once = acting(gesta.call("pay", x=1), "ok", tools=[gesta.tool(pay, effect="once")])
    relaxed = acting(gesta.call("pay", x=1), "ok", tools=[gesta.tool(pay, effect="pure")])
    async with gesta.open() as record:
        waits = await record.run(once, "hi", session="s", key="m")
        outcome = await record.resume(waits.run, relaxed)
        entries = await record.read(waits.run)
    assert [waiting.what for waiting in outcome.waiting] == ["doubt"]
    assert [entry.kind for entry in entries].count(Kind.Attempt) == 1
    assert Kind.KeyValue in [entry.kind for entry in entries], "the changed description is on record"


def test_two_tools_of_one_name_are_refused() -> None:
    @gesta.tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    with pytest.raises(BadTool, match="two tools named 'look'"):
        acting(tools=[look, look])


async def test_names_with_bars_do_not_share_a_run() -> None:
    async with gesta.open() as record:
        one = await record.run(gesta.Agent("c", model=gesta.scripted("1")), "hi", session="a|b")
        two = await record.run(gesta.Agent("b|c", model=gesta.scripted("2")), "hi", session="a")
    assert one.run != two.run


def test_misspelt_fields_and_functions_that_are_no_tools_are_named() -> None:
    def look() -> str:
        return "seen"

    with pytest.raises(TypeError, match=r"Agent has no field 'polcy'\. Did you mean 'policy'"):
        gesta.Agent("a", model="m", polcy=QUICK)  # type: ignore[call-arg]
    with pytest.raises(BadTool, match=r"Write @gesta\.tool above `def look`"):
        gesta.Agent("a", model=gesta.scripted("ok"), tools=[look])  # type: ignore[list-item]


async def test_a_beginning_of_several_ids_and_a_store_that_is_not_there_are_said_so() -> None:
    async with gesta.open() as record:
        for number in range(40):
            await record.run(acting("ok", tools=[]), "hi", session=f"s{number}")
        first = [row.run[0] for row in await record.store.runs()]
        with pytest.raises(SeveralRuns, match="Write a start of only one id"):
            await record.find(max(first, key=first.count))
    with pytest.raises(BadAddress, match="No store for mysql:// addresses"):
        async with gesta.open("mysql://here/there"):
            pass


@pytest.mark.parametrize("together", [False, True])
async def test_a_cancellation_that_a_reading_tool_lets_out_is_its_error_and_does_not_end_the_run(
    together: bool,
) -> None:
    @gesta.tool(effect="pure")
    async def odd() -> str:
        """Await something that was cancelled."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    calls = [gesta.call("odd")] * (2 if together else 1)
    async with gesta.open() as record:
        outcome = await record.run(acting(calls, "ok", tools=[odd]), "hi")
        found = results(await record.read(outcome.run))
    assert outcome.answer == "ok"
    assert {(result.outcome, str(result.tool_result)) for result in found} == {("error", "CancelledError")}


async def test_a_cancellation_that_a_tool_with_effects_lets_out_is_a_doubt_and_does_not_end_the_run() -> None:
    @gesta.tool(effect="once")
    async def odd() -> str:
        """Await something that was cancelled."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    async with gesta.open() as record:
        outcome = await record.run(acting(gesta.call("odd"), "ok", tools=[odd]), "hi")
        assert results(await record.read(outcome.run)) == []
    assert [waiting.what for waiting in outcome.waiting] == ["doubt"]


async def test_a_cancelled_asyncio_task_leaves_the_turn_open_and_the_call_in_doubt() -> None:
    started = asyncio.Event()

    @gesta.tool(effect="once")
    async def pay() -> str:
        """Pay."""
        started.set()
        await anyio.sleep_forever()
        return "paid"

    agent = acting(gesta.call("pay"), "ok", tools=[pay])
    async with gesta.open(grace_s=0) as record:
        task = asyncio.create_task(record.run(agent, "hi", session="s", key="m"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        outcome = await record.run(agent, "hi", session="s", key="m")
    assert [waiting.what for waiting in outcome.waiting] == ["doubt"]


async def test_a_record_is_replayed_by_its_path_also_inside_a_running_loop(tmp_path: Path) -> None:
    path = str(tmp_path / "r.gesta")
    async with gesta.open(path) as record:
        await record.run(acting("as it was", tools=[]), "hi", session="s")
    async with gesta.open() as record:
        again_ = gesta.Agent("b", model=gesta.replay(path))
        assert (await record.run(again_, "hi")).answer == "as it was"
