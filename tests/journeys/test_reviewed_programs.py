"""Defects that a review of programs and child runs found, each shown right: what is paid once, held, left, called off."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint
from tests.laws.scenes import Tape, again
from tests.threads import Held

import gesta
from gesta import address
from gesta.codec.fitting import unfit
from gesta.entry import Entry, fold, run_id
from gesta.errors import OtherProgram, RunHeld, WriteFailed
from gesta.kinds import (
    ApprovalContent,
    ApprovalRequestContent,
    BeginContent,
    CompactionContent,
    EndContent,
    FaultContent,
    Hit,
    RequestContent,
    SignalContent,
    SystemContent,
    ToolResultContent,
    UserContent,
)
from gesta.perform.execution import LiveRun
from gesta.prompt import Prompt
from gesta.record.record import Record
from gesta.state.run import RunView
from gesta.state.steps import WorkflowStep
from gesta.store import Batch
from gesta.stores.memory import MemoryStore

QUICK = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0))


def playing(program: Callable[..., Any], **fields: Any) -> gesta.Agent:
    return gesta.Agent("p", program=program, **fields)


def saying(text: str, name: str = "a") -> gesta.Agent:
    return gesta.Agent(name, model=gesta.scripted(text), policy=QUICK)


@gesta.tool(approval=True, effect="idempotent")
async def pay(x: int) -> str:
    """Pay."""
    return f"paid {x}"


@gesta.tool(effect="idempotent")
async def slow() -> str:
    """Work for a while."""
    await anyio.sleep(0.05)
    return "x"


def payer(times: int = 1, name: str = "payer") -> gesta.Agent:
    script = [gesta.call("pay", x=n) for n in range(times)]
    return gesta.Agent(name, model=gesta.scripted(*script, "all paid"), tools=[pay], policy=QUICK)


def slowly(name: str, tool: gesta.Tool = slow) -> gesta.Agent:
    return gesta.Agent(name, model=gesta.scripted(gesta.call(tool.name), f"{name} done"), tools=[tool], policy=QUICK)


async def leave() -> None:
    """Wait until the other tasks of this loop have done what they can do now."""
    for _ in range(100):
        await checkpoint()


def boss(*agents: gesta.Agent) -> gesta.Agent:
    """An agent that calls others at once, and answers with what they said."""

    def think(messages: list[dict[str, Any]], _header: Any) -> Any:
        said = [each["content"] for each in messages if each["role"] == "tool"]
        return " ".join(said) if said else [gesta.call(each.name, task="t") for each in agents]

    tools = [each.as_tool() for each in agents]
    return gesta.Agent("p", model=gesta.function(think), tools=tools, policy=QUICK)


def fanning(*agents: gesta.Agent) -> gesta.Agent:
    """A program that calls others at once, and answers with what they said."""

    async def program(verbs: Any, _task: str) -> str:
        said: dict[str, str] = {}

        async def one(each: gesta.Agent) -> None:
            said[each.name] = (await verbs.call(each, "t", each.name)).text

        async with anyio.create_task_group() as tasks:
            for each in agents:
                tasks.start_soon(one, each)
        return " ".join(said[each.name] for each in agents)

    return playing(program)


async def approve(record: Record, run: str) -> None:
    asked = [entry.seq for entry in await record.read(run) if isinstance(entry.content, ApprovalRequestContent)][-1]
    await record.send(run, ApprovalContent(of=asked, verdict="approved", by="me"), key=f"ok-{asked}")


async def children(record: Record) -> list[str]:
    return [row.run for row in await record.store.runs() if row.parent_run is not None]


async def results(record: Record, run: str) -> list[Any]:
    contents = [entry.content for entry in await record.read(run)]
    return [content.tool_result for content in contents if isinstance(content, ToolResultContent)]


async def open_spans(record: Record, run: str) -> set[int]:
    entries = await record.read(run)
    begun = {entry.seq for entry in entries if isinstance(entry.content, BeginContent)}
    return begun - {entry.span for entry in entries if isinstance(entry.content, EndContent)}


# cancelled, left, called off


@pytest.mark.parametrize("make", [fanning, boss])
async def test_after_ctrl_c_child_runs_go_on_where_they_were(make: Callable[..., gesta.Agent]) -> None:
    begun, both, go = list[str](), anyio.Event(), anyio.Event()

    @gesta.tool(effect="idempotent")
    async def stay() -> str:
        """Stay until the program was told to end."""
        begun.append("stay")
        if len(begun) == 2:
            both.set()
        await go.wait()
        return "x"

    agent = make(slowly("a", stay), slowly("b", stay))
    async with gesta.open() as record:
        work = asyncio.ensure_future(record.run(agent, "hi", session="s"))
        with anyio.fail_after(10):
            await both.wait()
        work.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        run = (await record.find("s")).run
        outcome = await record.resume(run, agent)
        assert outcome.answer == "a done b done"


async def test_a_cancelled_scope_leaves_a_turn_and_all_below_it_open_and_they_go_on() -> None:
    inside = list[str]()

    @gesta.tool(effect="idempotent")
    async def stay() -> str:
        """Stay until the turn is cancelled, which it is once there are two; the next ones go on."""
        inside.append("stay")
        if len(inside) == 2:
            scope.cancel()
        if len(inside) <= 2:
            await anyio.sleep_forever()
        return "x"

    async def outer(verbs: Any, _task: str) -> str:
        text: str = (await verbs.call(fanning(slowly("a", stay), slowly("b", stay)), "t", "inner")).text
        return text

    async def reasons(record: gesta.Record) -> list[Any]:
        states = [await record.state(row.run) for row in await record.store.runs()]
        return [state.turn.reason for state in states if state.turn is not None]

    async with gesta.open(grace_s=0) as record:
        with anyio.CancelScope() as scope:
            await record.run(playing(outer), "hi", session="s", key="k")
        assert await reasons(record) == [None] * 4
        assert (await record.run(playing(outer), "hi", session="s", key="k")).answer == "a done b done"
        assert await reasons(record) == ["answered"] * 4
        assert [await open_spans(record, row.run) for row in await record.store.runs()] == [set()] * 4
        assert await record.verify() == []


async def test_a_persons_cancel_ends_a_turn_and_all_below_it() -> None:
    started = list[str]()

    async def outer(verbs: Any, _task: str) -> str:
        started.append("outer")
        text: str = (await verbs.call(fanning(payer(), slowly("b")), "t", "inner")).text
        return text

    async with gesta.open() as record:
        waits = await record.run(playing(outer), "hi", session="s")
        await record.send(waits.run, SignalContent(name="cancel", by="eva"), key="c")
        assert (await record.resume(waits.run, playing(outer))).reason == "cancelled"
        states = [await record.state(row.run) for row in await record.store.runs()]
        reasons = [state.turn.reason for state in states if state.turn is not None]
        assert reasons == ["cancelled", "cancelled", "cancelled", "answered"]
        assert [await open_spans(record, row.run) for row in await record.store.runs()] == [set()] * 4
        assert await record.verify() == []


@pytest.mark.parametrize("make", [fanning, boss])
async def test_nobodys_consent_sets_a_child_going_whose_parent_was_cancelled(
    make: Callable[..., gesta.Agent],
) -> None:
    agent = make(payer())
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi", session="s")
        await record.send(outcome.run, SignalContent(name="cancel", by="me"), key="c")
        assert (await record.resume(outcome.run, agent)).reason == "cancelled"
        (child,) = await children(record)
        await approve(record, child)
        assert (await record.resume(child, payer())).reason == "cancelled"
        assert await results(record, child) == []


async def test_a_turn_that_fails_calls_off_a_child_that_waits() -> None:
    async def program(verbs: Any, _task: str) -> None:
        async def fail(_desk: LiveRun, _step: WorkflowStep) -> Any:
            await leave()
            assert await children(record)
            raise ValueError("no")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(verbs.call, payer(), "t", "pay")
            tasks.start_soon(verbs.step, "fail", fail)

    async with gesta.open() as record:
        outcome = await record.run(playing(program), "hi", session="s")
        (child,) = await children(record)
        assert outcome.reason == "failed"
        assert not (await record.state(child)).open
        assert await open_spans(record, outcome.run) == set()


async def test_a_thread_whose_turn_was_called_off_takes_the_next_one() -> None:
    def think(messages: list[dict[str, Any]], _header: Any) -> Any:
        return gesta.call("pay", x=1) if len(messages) == 1 else "hello again"

    talker = gesta.Agent("t", model=gesta.function(think), tools=[pay], policy=QUICK)

    async def program(verbs: Any, task: str) -> str:
        text: str = (await verbs.go_on(talker, SystemContent(value=task), "say", thread="th")).text
        return text

    async with gesta.open() as record:
        outcome = await record.run(playing(program), "one", session="s")
        await record.send(outcome.run, SignalContent(name="cancel", by="me"), key="c")
        await record.resume(outcome.run, playing(program))
        assert (await record.run(playing(program), "two", session="s")).answer == "hello again"


async def test_a_cancellation_that_a_program_lets_out_is_its_failure() -> None:
    async def program(_verbs: Any, _task: str) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with gesta.open() as record:
        outcome = await record.run(playing(program), "hi")
    assert (outcome.reason, outcome.error and outcome.error.type) == ("failed", "CancelledError")


async def test_what_goes_on_after_its_turn_ended_writes_no_more() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def program(verbs: Any, task: str) -> str:
        if task == "one":
            await asyncio.gather(verbs.call(slowly("b"), "t", "b"), fail())
        return task

    async with gesta.open() as record:
        before = asyncio.all_tasks()
        assert (await record.run(playing(program), "one", session="s")).reason == "failed"
        await asyncio.wait(asyncio.all_tasks() - before)
        outcome = await record.run(playing(program), "two", session="s")
        entries = await record.read(outcome.run)
        assert outcome.answer == "two"
        assert fold(RunView(), entries).head == len(entries) == entries[-1].seq
        assert await record.verify() == []


async def test_a_thread_that_outlives_its_turn_is_heard_no_more_and_its_result_is_kept() -> None:
    held, raised, heard = Held(), [], list[gesta.Event]()

    def look(context: gesta.Context) -> str:
        held.here()
        try:
            context.found("q", [Hit(document="d")])
            context.respond("late words")
        except BaseException as failure:  # noqa: BLE001 - none is expected
            raised.append(failure)
        return "x"

    tool = gesta.tool(look, effect="once", timeout_s=0.05, on_doubt="tell")
    agent = gesta.Agent("a", model=gesta.scripted(gesta.call("look"), "one", "two"), tools=[tool], policy=QUICK)
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi", session="s", listener=heard.append)
        count = len(heard)
        await held.let_go()
        assert (len(heard), raised) == (count, [])
        await record.run(agent, "and now?", session="s")
        assert (await results(record, outcome.run))[-1] == "x"
        assert await record.verify() == []


@pytest.mark.parametrize("found", [("q", ["the fees"]), ("q", [{"chunk": "2"}]), (5, []), ("q", [Hit(document=5)])])  # type: ignore[arg-type]
async def test_passages_that_nobody_could_read_are_refused(found: Any) -> None:
    def look(context: gesta.Context) -> str:
        context.found(*found)
        return "x"

    agent = gesta.Agent("a", model=gesta.scripted(gesta.call("look"), "one"), tools=[gesta.tool(look, effect="pure")])
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi")
        (said,) = await results(record, outcome.run)
        entries = await record.read(outcome.run)
    assert said.startswith("AgentError: context.found(...): ")
    assert [unfit(entry.content) for entry in entries if unfit(entry.content)] == []


# what runs beside


async def test_a_child_that_somebody_else_holds_breaks_off_nothing_beside_it() -> None:
    agent = fanning(saying("a done", "a"), slowly("b"))
    async with gesta.open() as record:
        parent = run_id(record.info.id, "s", "p")
        lease = await record.store.lease(run_id(record.info.id, parent, "a"))
        with pytest.raises(RunHeld):
            await record.run(agent, "hi", session="s")
        await record.store.release(lease)
        assert (await record.resume(parent, agent)).answer == "a done b done"


async def test_a_commit_that_fails_in_one_child_breaks_off_nothing_beside_it() -> None:
    class Full(MemoryStore):
        target = ""

        async def append(self, batch: Batch) -> int:
            if batch.lease.run == self.target and any(row.kind == "end" for row in batch.rows):
                self.target = ""
                raise WriteFailed("here", "no space")
            return await super().append(batch)

    store = Full()
    store.target = run_id(store.info.id, run_id(store.info.id, "s", "p"), "a")
    record, agent = Record(store, address.bind), fanning(saying("a done", "a"), slowly("b"))
    with pytest.raises(WriteFailed):
        await record.run(agent, "hi", session="s", key="k")
    assert (await record.run(agent, "hi", session="s", key="k")).answer == "a done b done"


async def test_what_runs_beside_an_act_that_waits_goes_on_from_act_to_act() -> None:
    async def program(verbs: Any, _task: str) -> None:
        async def chain() -> None:
            for number in range(4):
                await verbs.call(saying("x", f"c{number}"), "t", f"c{number}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(verbs.call, payer(), "t", "pay")
            tasks.start_soon(chain)

    async with gesta.open() as record:
        outcome = await record.run(playing(program), "hi", session="s")
        assert outcome.reason == "waiting"
        assert len(await children(record)) == 5


async def test_a_program_that_waits_does_nothing_on_its_way_out() -> None:
    done: list[str] = []

    async def program(verbs: Any, _task: str) -> str:
        try:
            text: str = (await verbs.call(payer(), "t", "pay")).text
            done.append("paid")
        finally:
            await verbs.call(saying("x"), "t", "release")
            done.append("released")
        return text

    async with gesta.open() as record:
        outcome = await record.run(playing(program), "hi", session="s")
        (child,) = await children(record)
        await approve(record, child)
        assert (await record.resume(outcome.run, playing(program))).answer == "all paid"
    assert done == ["paid", "released"]


async def test_an_act_inside_an_act_is_refused() -> None:
    async def program(verbs: Any, _task: str) -> None:
        async def work(_desk: LiveRun, _step: WorkflowStep) -> Any:
            await verbs.call(payer(), "t", "inner")

        await verbs.step("outer", work)

    async with gesta.open() as record:
        with pytest.raises(OtherProgram, match="inside another step"):
            await record.run(playing(program), "hi")


# resumed


async def test_an_act_that_goes_on_does_not_count_twice_against_the_limit() -> None:
    agent = msgspec.structs.replace(fanning(payer()), policy=gesta.Policy(limits=gesta.Limits(calls=1)))
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi", session="s")
        await approve(record, outcome.waiting[0].run or "")
        assert (await record.resume(outcome.run, agent)).answer == "all paid"


async def test_a_finished_act_is_checked_by_its_input_too() -> None:
    def program(task: str) -> gesta.Agent:
        async def play(verbs: Any, _task: str) -> str:
            await verbs.call(saying("x"), task, "one")
            text: str = (await verbs.call(payer(), "t", "pay")).text
            return text

        return playing(play)

    async with gesta.open() as record:
        outcome = await record.run(program("send 10"), "hi", session="s")
        with pytest.raises(OtherProgram, match="send 10"):
            await record.resume(outcome.run, program("send 20"))
        assert (await record.resume(outcome.run, program("send 10"))).reason == "waiting"


async def test_a_name_with_a_number_is_no_later_turn_of_another() -> None:
    seen: list[int] = []

    def think(messages: list[dict[str, Any]], _header: Any) -> str:
        seen.append(len(messages))
        return "x"

    agent = gesta.Agent("m", model=gesta.function(think), policy=QUICK)

    async def program(verbs: Any, task: str) -> str:
        for name in task.split():
            await verbs.call(agent, "t", name)
        return "done"

    async with gesta.open() as record:
        await record.run(playing(program), "a a#2 a#2#1", session="s")
        await record.run(playing(program), "a a#2", session="s")
        assert len(await children(record)) == 5
    assert seen == [1] * 5


# agents as tools


async def test_waiting_for_people_costs_an_agent_as_tool_no_attempts() -> None:
    tape = Tape()
    record, agent = Record(tape, address.bind), boss(payer(4))
    outcome = await record.run(agent, "hi", session="s")
    for _ in range(4):
        await approve(record, outcome.waiting[0].run or "")
        before, outcome = len(tape.tape), await record.resume(outcome.run, agent)
    assert outcome.answer == "all paid"
    for cut in range(before + 1, len(tape.tape)):
        other = Record(await again(tape.tape[:cut]), address.bind)
        ended = await other.resume(outcome.run, agent)
        if ended.reason == "waiting":  # the letter is not a part of the tape
            await approve(other, ended.waiting[0].run or "")
            ended = await other.resume(outcome.run, agent)
        assert ended.answer == "all paid", cut


async def test_a_child_that_somebody_else_holds_is_no_result_for_the_model() -> None:
    agent = boss(saying("a done", "a"), slowly("b"))
    async with gesta.open() as record:
        work = run_id(record.info.id, run_id(record.info.id, "s", "p"), "a#6")
        lease = await record.store.lease(work)
        outcome = await record.run(agent, "hi", session="s")
        assert ([each.what for each in outcome.waiting], outcome.waiting[0].run) == (["child"], work)
        contents = [entry.content for entry in await record.read(outcome.run)]
        assert ["is being written" in each.error.message for each in contents if isinstance(each, FaultContent)] == [
            True
        ]
        await record.store.release(lease)
        assert (await record.resume(outcome.run, agent)).answer == "a done b done"


async def test_a_tool_that_is_gone_while_its_child_waits_is_waited_for() -> None:
    agent = boss(payer())
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi", session="s")
        gone = await record.resume(outcome.run, msgspec.structs.replace(agent, tools=[]))
        assert [each.what for each in gone.waiting] == ["approval"]
        await approve(record, gone.waiting[0].run)
        assert (await record.resume(outcome.run, agent)).answer == "all paid"


async def test_an_agent_as_tool_is_bounded_by_its_own_limits_alone() -> None:
    quick = msgspec.structs.replace(QUICK, tool_timeout_s=0.01)
    async with gesta.open() as record:
        outcome = await record.run(msgspec.structs.replace(boss(slowly("c")), policy=quick), "hi")
    assert outcome.answer == "c done"


async def test_a_tool_calls_several_agents_each_with_a_run_of_its_own() -> None:
    async def both(context: gesta.Context) -> str:
        one = await context.call(saying("first", "one"), "q1")
        two = await context.call(saying("second", "two"), "q2")
        return f"{one.value} {two.value}"

    tool = gesta.tool(both, effect="idempotent")
    agent = gesta.Agent("x", model=gesta.scripted(gesta.call("both"), "ok"), tools=[tool], policy=QUICK)
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi")
        assert await results(record, outcome.run) == ["first second"]


async def test_a_tool_whose_agents_wait_at_once_is_left_until_all_have_their_answer() -> None:
    async def both(context: gesta.Context) -> str:
        said: dict[str, str] = {}

        async def one(name: str) -> None:
            try:
                said[name] = (await context.call(payer(name=name), name)).value
            except Exception as failure:  # noqa: BLE001 - waiting is none
                said[name] = repr(failure)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "a")
            tasks.start_soon(one, "b")
        return f"{said['a']}, {said['b']}"

    tool = gesta.tool(both, effect="idempotent")
    agent = gesta.Agent("x", model=gesta.scripted(gesta.call("both"), "ok"), tools=[tool], policy=QUICK)
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi", session="s")
        while outcome.reason == "waiting":
            for run in await children(record):
                if any(call.asked and not call.approval for call in (await record.state(run)).calls.values()):
                    await approve(record, run)
            outcome = await record.resume(outcome.run, agent)
        assert await results(record, outcome.run) == ["all paid, all paid"]


async def test_what_waits_below_a_program_that_a_tool_calls_is_found() -> None:
    agent = boss(fanning(payer()))
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi", session="s")
        assert [each.what for each in outcome.waiting] == ["approval"]


# tools and their states


async def test_a_result_that_comes_late_leaves_the_state_of_its_tool() -> None:
    held = Held()

    @gesta.tool(effect="once", timeout_s=0.05, state="two")
    def enter() -> str:
        """Enter."""
        held.here()
        return "in"

    @gesta.tool(effect="pure", applicable_states=["two"])
    async def act() -> str:
        """Act."""
        return "acted"

    script = gesta.call("enter"), gesta.call("act"), "ok"
    agent = gesta.Agent("a", model=gesta.scripted(*script), tools=[enter, act], policy=QUICK)
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi", session="s")
        await held.let_go()
        await record.resume(outcome.run, agent)
        assert await results(record, outcome.run) == ["in", "acted"]


async def test_a_lost_call_is_judged_by_its_tool_also_where_that_is_not_offered_any_more() -> None:
    @gesta.tool(effect="pure", timeout_s=0.01, applicable_states=["undefined"])
    async def look() -> str:
        """Look."""
        await anyio.sleep(5)
        return "x"

    @gesta.tool(effect="pure", state="two")
    async def enter() -> str:
        """Enter."""
        return "in"

    script = [gesta.call("look"), gesta.call("enter")], "ok"
    agent = gesta.Agent("a", model=gesta.scripted(*script), tools=[look, enter], policy=QUICK)
    async with gesta.open() as record:
        outcome = await record.run(agent, "hi")
        contents = [entry.content for entry in await record.read(outcome.run)]
    assert [each.outcome for each in contents if isinstance(each, ToolResultContent)] == ["ok", "interrupted"]


# compaction


def shown(*contents: tuple[Any, tuple[int, ...]]) -> list[str]:
    """What a model is shown of a run."""
    agent = address.bind(saying("x"))
    prompt, at = Prompt(agent.formats(), agent.asked()), datetime(2026, 1, 1, tzinfo=UTC)
    for seq, (content, causes) in enumerate(contents, 1):
        prompt.add(Entry(run="r", seq=seq, at=at, span=1, causes=causes, content=content))
    prompt.close()
    return [json.loads(block)["content"] for block in prompt.blocks]


def said(text: str, *causes: int) -> tuple[Any, tuple[int, ...]]:
    return UserContent(value=text), causes


def hidden(from_seq: int, to_seq: int, summary: str | None = None) -> tuple[Any, tuple[int, ...]]:
    return CompactionContent(from_seq=from_seq, to_seq=to_seq, summary=summary), ()


def test_what_stands_in_place_of_a_hidden_range_keeps_its_order() -> None:
    assert shown(said("a"), said("z"), hidden(1, 1), said("b", 3), said("c", 3)) == ["b", "c", "z"]
    assert shown(said("a"), said("z"), hidden(1, 1, "sum"), said("b", 3)) == ["sum", "b", "z"]


def test_what_stands_in_one_place_moves_the_places_after_it() -> None:
    found = shown(said("a"), said("b"), said("c"), hidden(3, 3), hidden(1, 1), said("A", 5), said("C", 4))
    assert found == ["A", "b", "C"]


def test_what_was_sent_stays_as_it_is_when_an_old_compaction_is_named_later() -> None:
    asked = RequestContent(header=0, blocks=[], body_digest="")
    assert shown(said("a"), said("b"), hidden(1, 1), (asked, ()), said("late", 3)) == ["b", "late"]
