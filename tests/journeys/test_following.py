"""A run is followed from any process: what is on record, then what comes; each event once and in order."""

import random
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import COSTLY

import gesta
from gesta.address import Record, bind, open_record
from gesta.bridges.pushing import push
from gesta.compare.forks import Change, Fork, fork, go_on
from gesta.errors import AgentError, NoRun, OtherMessage, RecordError
from gesta.events import Event
from gesta.kinds import CompactionContent
from gesta.record.followers import FollowerTooSlow
from gesta.stores.memory import MemoryStore
from gesta.stores.pruning import Choice, Pruner, plan, prune

QUICK = gesta.Policy(retry=gesta.Retry(first_wait_s=0))
WORDS = "Rome is dry, and so is Oslo."


@gesta.tool(effect="pure")
async def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"{city}: dry"


@gesta.tool(effect="once", approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def guide(*script: Any, **changes: Any) -> gesta.Agent:
    said = script or (gesta.reply("I look.", calls=[gesta.call("weather", city="Rome")]), WORDS)
    return gesta.Agent("guide", model=gesta.scripted(*said), tools=[weather, pay], **changes)


def boss() -> gesta.Agent:
    """An agent that calls two others."""
    other = guide().as_tool()
    calls = [gesta.call("guide", task="Rome?"), gesta.call("guide", task="Oslo?")]
    return gesta.Agent("boss", model=gesta.scripted(gesta.reply("", calls=calls), WORDS), tools=[other])


@pytest.fixture(params=["memory", "file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("emptied"))
    return {"memory": ":memory:", "file": f"{tmp_path}/r.gesta"}[request.param]


async def on_record(record: gesta.Record, name: str, after: int | str = 0) -> list[Event]:
    """Return the events that are on record."""
    return [event async for event in record.follow(name, after=after, until_end=True)]


def lasting(events: list[Event]) -> list[Event]:
    """Leave out words, and put back what they took from the events after them."""
    whole: list[Event] = []
    said: dict[str, str] = {}
    for event in events:
        if event.seq is None and event.type == "answer":
            said[event.run] = said.get(event.run, "") + event.content
        elif event.type in {"retract", "answer"}:
            words = said.pop(event.run, "")
            if event.seq is not None:
                whole.append(msgspec.structs.replace(event, content=words * (event.type == "answer") + event.content))
        elif event.seq is not None:
            whole.append(event)
    return whole


async def hear(events: Any, until: Callable[[list[Event]], bool]) -> list[Event]:
    """Read until enough has come."""
    heard: list[Event] = []
    async with aclosing(events) as coming:
        async for event in coming:
            heard.append(event)
            if until(heard):
                break
    return heard


def ended(count: int) -> Callable[[list[Event]], bool]:
    return lambda heard: [event.type for event in heard if not below(event, heard)].count("end") == count


def below(event: Event, heard: list[Event]) -> bool:
    return event.run != heard[0].run


async def test_who_listens_follows_or_reads_afterwards_hears_the_same(place: str) -> None:
    async with gesta.open(place) as record:
        stream = record.stream(boss(), "Where?", session="s", key="k")
        live = [event async for event in stream]
        assert stream.outcome is not None
        afterwards = await on_record(record, stream.outcome.run)
    assert lasting(live) == afterwards
    assert "".join(e.content for e in live if e.type == "answer" and e.run == stream.outcome.run) == WORDS
    assert [event.pos for event in afterwards] == sorted(event.pos for event in afterwards)
    assert len({event.id for event in afterwards}) == len(afterwards)
    assert len({event.run for event in afterwards}) == 3
    assert [event.run for event in afterwards if event.end_of_dialog] == [stream.outcome.run]


async def test_a_call_is_told_before_the_tool_runs_and_then_what_came_of_it() -> None:
    told: list[str] = []

    @gesta.tool(effect="pure")
    async def look(place: str) -> str:
        told.append("at work")
        return f"{place}: dry"

    agent = gesta.Agent("eye", model=gesta.scripted(gesta.call("look", place="Rome"), "Dry."), tools=[look])
    async with gesta.open() as record:
        events: list[Event] = []

        def listen(event: Event) -> None:
            told.append(event.type)
            events.append(event)

        outcome = await record.run(agent, "Rome?", listener=listen)
    assert [each for each in told if each not in ("explain", "answer", "at work")] == [
        *("call", "result", "observation", "end"),
    ]
    assert told.index("at work") < told.index("result")
    call, result, end = (next(event for event in events if event.type == type_) for type_ in ("call", "result", "end"))
    assert call.type == "call"
    assert (call.tool, call.arguments, call.error) == ("look", {"place": "Rome"}, None)
    assert result.type == "result"
    assert (result.call, result.tool, result.result, result.outcome) == (call.seq, "look", "Rome: dry", "ok")
    assert end.type == "end"
    assert end.outcome == outcome


async def test_waiting_names_what_an_approver_needs_and_after_the_answer_it_goes_on() -> None:
    agent = guide(gesta.call("pay", cents=5), "Paid.")
    async with gesta.open() as record:
        stream = record.stream(agent, "Pay.", session="s")
        first = [event async for event in stream]
        waiting = first[-1]
        assert waiting.type == "waiting"
        assert (waiting.end_of_message, waiting.end_of_dialog) == (True, True)
        assert stream.outcome is not None
        assert waiting.waiting == stream.outcome.waiting[0]
        assert (waiting.waiting.what, waiting.waiting.tool, waiting.waiting.args) == ("approval", "pay", {"cents": 5})
        await record.approve(stream.outcome.waiting[0], by="ann")
        rest: list[Event] = []
        await record.resume(stream.outcome.run, agent, listener=rest.append)
        assert await on_record(record, "s") == first + lasting(rest)
    assert [event.type for event in lasting(rest) if event.type != "explain"] == [
        *("result", "observation", "answer", "end"),
    ]
    assert [event.type for event in first].count("waiting") == 1


async def test_a_try_that_is_made_again_and_words_that_were_lost_are_told() -> None:
    lost = gesta.fault("lost-stream", after=12)
    agent = guide(msgspec.structs.replace(lost, of=WORDS), WORDS, policy=QUICK)
    async with gesta.open() as record:
        events = [event async for event in record.stream(agent, "Go.", session="s")]
        afterwards = await on_record(record, "s")
    kinds = [event.type for event in events]
    assert kinds.count("retract") == 1
    retry = next(event for event in events if event.type == "retry")
    assert retry.type == "retry"
    assert (retry.wait_s, retry.error.message) == (0, retry.content)
    place = kinds.index("retract")
    assert "".join(event.content for event in events[:place] if event.type == "answer") == WORDS[:12]
    assert "".join(event.content for event in events[place:] if event.type == "answer") == WORDS
    assert [event.type for event in afterwards if event.type != "explain"] == ["retract", "retry", "answer", "end"]


@COSTLY
@given(st.integers(0, 10_000))
async def test_whoever_follows_again_after_any_event_hears_the_rest_and_nothing_twice(seed: int) -> None:
    lot = random.Random(seed)
    async with gesta.open() as record:
        for number in range(lot.randint(1, 2)):
            script = [lot.choice(SCRIPT) for _ in range(lot.randint(0, 3))]
            agent = lot.choice([boss(), guide(*script, "Fine.", policy=QUICK)])
            await record.run(agent, f"m{number}", session="s")
        events = await on_record_of_session(record)
        for place, event in enumerate(events):
            assert event.id is not None
            assert await on_record_of_session(record, event.id) == events[place + 1 :]
        for pos in {event.pos for event in events}:
            assert await on_record_of_session(record, pos) == [event for event in events if event.pos > pos]


SCRIPT: list[Any] = [
    gesta.call("weather", city="Oslo"),
    gesta.reply("I look.", calls=[gesta.call("weather", city="Rome"), gesta.call("weather", city="Oslo")]),
    gesta.call("weather", town="Rome"),
    gesta.call("pay", cents=3),
    gesta.fault(503),
    gesta.reply("Fine.", thought="Hm."),
]


async def on_record_of_session(record: gesta.Record, after: int | str = 0) -> list[Event]:
    """Return the events of a session that are on record; a turn may wait."""
    follower = record.followers.follower(await record.followers.target("s", record.find), after)
    follower.finish()
    async with anyio.create_task_group() as tasks:
        return [event async for event in follower.events(tasks)]
    raise AssertionError


async def test_a_session_is_followed_with_the_runs_that_are_begun_later_and_from_another_process(place: str) -> None:
    async with gesta.open(place) as record:
        first = await record.run(guide(), "Rome?", session="s")
        await record.run(guide(), "Elsewhere?", session="other")
        async with anyio.create_task_group() as tasks:
            heard: list[list[Event]] = []

            async def listen(of: gesta.Record) -> None:
                heard.append(await hear(of.follow("s"), lambda all_: sum(e.type == "end" for e in all_) == 5))

            tasks.start_soon(listen, record)
            async with again(place, record) as other:
                tasks.start_soon(listen, other)
                await record.run(boss(), "Both?", session="s")
                second = await record.run(guide(), "And now?", session="s")
                assert second.run == first.run
                while len(heard) < 2:
                    await anyio.lowlevel.checkpoint()
        live, elsewhere = sorted(heard, key=len, reverse=True)
        assert lasting(live) == lasting(elsewhere) == await on_record(record, "s")


def again(place: str, record: gesta.Record) -> Any:
    """Open a record once more, as another process would; in memory there is only one."""
    if place != ":memory:":
        return open_record(place)

    class Same:
        async def __aenter__(self) -> gesta.Record:
            return record

        async def __aexit__(self, *_: object) -> None:
            pass

    return Same()


class Gate:
    """A tool that is at work until it is let go."""

    def __init__(self) -> None:
        self.begun, self.open = anyio.Event(), anyio.Event()

        @gesta.tool(effect="once")
        async def wait() -> str:
            """Wait."""
            self.begun.set()
            await self.open.wait()
            return "waited"

        self.agent = gesta.Agent("waiter", model=gesta.scripted(gesta.call("wait"), WORDS), tools=[wait])


@pytest.mark.sample(3)
@pytest.mark.parametrize("when_busy", ["queue", "raise", "replace"])
async def test_the_same_key_joins_the_turn_at_work_here_and_elsewhere_and_after_it_ended(
    place: str, when_busy: str
) -> None:
    gate = Gate()
    agent = msgspec.structs.replace(gate.agent, policy=gesta.Policy(when_busy=when_busy))  # type: ignore[arg-type]
    async with gesta.open(place) as record, again(place, record) as other:
        async for _ in record.stream(agent, "hi", session="s", key="k"):
            break  # the browser is gone
        await gate.begun.wait()
        heard: list[list[Event]] = []
        outcomes: list[gesta.Outcome | None] = []

        async def join(of: gesta.Record) -> None:
            stream = of.stream(agent, "hi", session="s", key="k")
            heard.append([event async for event in stream])
            outcomes.append(stream.outcome)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join, record)
            tasks.start_soon(join, other)
            await anyio.wait_all_tasks_blocked() if place == ":memory:" else await anyio.lowlevel.checkpoint()
            gate.open.set()
        whole = await on_record(record, "s")
        for _ in range(2):
            await join(record)
        await join(other)
        with pytest.raises(OtherMessage):
            await join_with(record, agent, "bye")
        assert len(await record.store.runs("s")) == 1
    assert [lasting(each) for each in heard] == [whole] * 5
    assert {outcome.answer for outcome in outcomes if outcome is not None} == {WORDS}
    assert len(outcomes) == 5
    assert [event.type for event in whole].count("call") == 1


async def join_with(record: gesta.Record, agent: gesta.Agent, text: str) -> None:
    async for _ in record.stream(agent, text, session="s", key="k"):
        pass


async def test_who_joins_while_words_come_hears_them_from_the_first() -> None:
    halfway, go_on = anyio.Event(), anyio.Event()
    async with gesta.open() as record:
        agent = gesta.Agent("slow", model=Halting(halfway, go_on))
        whole: list[list[str]] = []

        async def listen() -> None:
            events = [event async for event in record.stream(agent, "hi", session="s", key="k")]
            whole.append([event.content for event in events if event.type == "answer"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await halfway.wait()
            tasks.start_soon(listen)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
    assert ["".join(words) for words in whole] == [WORDS] * 2
    assert all(len(words) > 2 for words in whole)


class Halting:
    """A scripted model that halts in the middle of its words."""

    def __init__(self, halfway: anyio.Event, go_on: anyio.Event) -> None:
        self._model, self._halfway, self._go_on = gesta.scripted(WORDS), halfway, go_on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def send(self, request: Any) -> Any:
        place = 0
        async for piece in self._model.send(request):
            yield piece
            place += 1
            if place == 2:
                self._halfway.set()
                await self._go_on.wait()


async def test_listeners_that_are_cancelled_at_any_instant_leave_nothing_and_the_others_hear_all() -> None:
    lot = random.Random(5)
    async with gesta.open() as record:
        await record.run(guide(), "m", session="s")
        heard: list[list[Event]] = []
        async with anyio.create_task_group() as tasks:

            async def stay() -> None:
                heard.append(await hear(record.follow("s"), ended(21)))

            async def leave(after: int) -> None:
                with anyio.CancelScope() as scope:
                    async for _ in record.follow("s"):
                        after -= 1
                        if after == 0:
                            scope.cancel()

            async def cancelled(scope: anyio.CancelScope) -> None:
                with scope:
                    await leave(10_000)

            tasks.start_soon(stay)
            for number in range(20):
                scope = anyio.CancelScope()
                tasks.start_soon(leave, lot.randint(1, 40))
                tasks.start_soon(cancelled, scope)
                for _ in range(lot.randint(0, 30)):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
                await record.run(guide(), f"m{number}", session="s")
        assert lasting(heard[0]) == await on_record(record, "s")
        await anyio.wait_all_tasks_blocked()
        assert not record.followers.watching, "nobody follows, so nobody watches"


async def collect(events: Any, heard: list[Event]) -> None:
    async for event in events:
        heard += [event]


@pytest.mark.parametrize("most", [float("nan"), 0, -1, "5"])
async def test_a_bound_that_nothing_fits_is_refused(most: Any) -> None:
    async with gesta.open() as record:
        await record.run(guide(), "m", session="s")
        with pytest.raises(AgentError, match=r"most= of record.follow: found .*, expected a number of at least 1"):
            await anext(record.follow("s", most=most))


async def test_one_who_is_too_slow_goes_on_after_the_last_event_and_misses_nothing() -> None:
    async with gesta.open() as record:
        await record.run(guide(), "m", session="s")
        events, heard = record.follow("s", most=5), list[Event]()
        heard.append(await anext(events))
        for number in range(3):
            await record.run(guide(), f"m{number}", session="s")
        with pytest.raises(FollowerTooSlow) as slow:
            await collect(events, heard)
        after = str(slow.value).partition("after='")[2].partition("'")[0]
        assert after == next(event.id for event in reversed(heard) if event.id)
        assert lasting(heard) + await on_record(record, "s", after) == await on_record(record, "s")


class Unreadable(MemoryStore):
    """A store that nobody can follow."""

    async def last(self) -> int:
        raise RecordError("the disk is gone")


async def test_a_record_that_cannot_be_read_ends_who_listens_and_not_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []
    outcome = await Record(Unreadable(), bind).run(guide(), "m", session="s", listener=heard.append)
    assert outcome.answer == WORDS
    assert "A listener hears no more: the record cannot be read." in caplog.text


async def test_what_breaks_while_a_record_is_watched_is_raised_where_somebody_follows_and_nowhere_else() -> None:
    class Broken(MemoryStore):
        async def tail(self, after: int = 0) -> Any:
            raise ZeroDivisionError
            yield after

    async with anyio.create_task_group() as tasks:
        record = Record(Broken(), bind, tasks)
        outcome = await record.run(guide(), "m", session="s")
        with pytest.raises(ZeroDivisionError):
            await collect(record.follow("s"), [])
        assert (await record.run(guide(), "n", session="t")).reason == outcome.reason


async def test_a_turn_with_a_listener_that_is_cancelled_at_any_instant_stays_open_and_is_heard_when_it_goes_on() -> (
    None
):
    for steps in range(2, 60, 7):
        async with gesta.open(grace_s=0) as record:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(cancel_after, scope, steps)
                    await record.run(boss(), "m", session="s", key="k", listener=lambda _: None)
                    tasks.cancel_scope.cancel()
            rest: list[Event] = []
            outcome = await record.run(boss(), "m", session="s", key="k", listener=rest.append)
            assert outcome.answer == WORDS
            assert lasting(rest) == await on_record(record, "s")


async def cancel_after(scope: anyio.CancelScope, steps: int) -> None:
    for _ in range(steps):
        await anyio.lowlevel.checkpoint()
    scope.cancel()


async def test_a_follower_is_told_that_its_record_was_closed() -> None:
    raised: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def listen(record: gesta.Record) -> None:
            try:
                async for _ in record.follow("s"):
                    pass
            except RecordError as error:
                raised.append(str(error))

        async with gesta.open() as record:
            outcome = await record.run(guide(), "m", session="s")
            last = (await on_record(record, outcome.run))[-1].id
            tasks.start_soon(listen, record)
            await anyio.wait_all_tasks_blocked()
    assert raised == [
        f"The record was closed while it was followed. Open it again, and follow(…, after={last!r}) to go on."
    ]


async def test_what_cannot_be_followed_says_so() -> None:
    async with gesta.open() as record:
        with pytest.raises(NoRun):
            await anext(record.follow("nobody"))
        await record.run(guide(), "m", session="s")
        with pytest.raises(gesta.GestaError, match=r"follow\(after='x'\): expected the id of an event, such as '12-0'"):
            await anext(record.follow("s", after="x"))


def test_the_synchronous_door_follows_as_the_other_does(tmp_path: Path) -> None:
    with gesta.open_sync(tmp_path / "r.gesta") as record:
        stream = record.stream(boss(), "Where?", session="s", key="k")
        live = list(stream)
        followed = list(record.follow("s", until_end=True))
        assert lasting(live) == followed
        assert list(record.follow("s", after=followed[4].id or 0, until_end=True)) == followed[5:]
        again_ = record.stream(boss(), "Where?", session="s", key="k")
        assert lasting(list(again_)) == followed
        assert again_.outcome == stream.outcome
        events = record.follow("s")
        assert [next(events) for _ in range(3)] == followed[:3]
        events.close()  # type: ignore[attr-defined]
        with pytest.raises(NoRun):
            next(record.follow("nobody"))


async def test_a_fork_is_told_with_what_it_shares_and_in_its_session_from_its_own_first_entry() -> None:
    async with gesta.open() as record:
        base = await record.run(guide(), "Rome?", session="s")
        await record.run(gesta.Agent("other", model=gesta.scripted("Hi.")), "Hi", session="t")
        whole, row = await on_record(record, base.run), await record.find(base.run)
        reply = next(entry.seq for entry in await record.read(base.run) if entry.kind == "chat-completion")
        events = record.follow("t")
        for _ in await on_record(record, "t"):
            await anext(events)
        made = await fork(record, row, Fork(changes=[Change(reply, "output", "I look twice.")], session="t"))
        await go_on(record, made, guide())
        forked = await on_record(record, made.run)
        opened = next(entry.pos for entry in await record.read(made.run) if entry.shared_from is None)
        news = [event for event in forked if event.pos >= opened]
        assert lasting(await hear(events, lambda heard: heard[-1].type == "end")) == news
    shared = [event for event in forked if event.pos < opened]
    assert [(each.type, each.seq) for each in shared] == [(each.type, each.seq) for each in whole[: len(shared)]]
    assert {event.run for event in forked} == {made.run}
    assert [event.type for event in news if event.type != "explain"][-2:] == ["answer", "end"]


async def test_a_pruned_run_is_told_no_more_and_the_others_go_on(tmp_path: Path) -> None:
    async with gesta.open(tmp_path / "r.gesta") as record:
        first = await record.run(guide(), "Rome?", session="s")
        other = await record.run(gesta.Agent("other", model=gesta.scripted("Hi.")), "Hi", session="s")
        events, heard = record.follow("s"), list[Event]()
        while [event.type for event in heard].count("end") < 2:
            heard.append(await anext(events))
        store = record.store
        await prune(store, await plan(store, Choice(runs=[first.run])), Pruner(by="ann"))
        await record.run(gesta.Agent("other", model=gesta.scripted("Hi.", "Still here.")), "And?", session="s")
        while [event.type for event in heard].count("end") < 3:
            heard.append(await anext(events))
        await events.aclose()
        assert await on_record(record, "s") == [event for event in lasting(heard) if event.run == other.run]
        with pytest.raises(NoRun):
            await anext(record.follow(first.run))


async def test_a_pushed_record_is_followed_as_it_comes(tmp_path: Path) -> None:
    async with gesta.open(tmp_path / "a.gesta") as record, gesta.open(tmp_path / "b.gesta") as mirror:
        await record.run(boss(), "Where?", session="s")
        await push(record.store, mirror.store)
        events, heard = mirror.follow("s"), list[Event]()
        whole = await on_record(record, "s")
        while len(heard) < len(whole):
            heard.append(await anext(events))
        await record.run(boss(), "And now?", session="s")
        await push(record.store, mirror.store)
        whole = await on_record(record, "s")
        while len(heard) < len(whole):
            heard.append(await anext(events))
        await events.aclose()
    assert {(each.run, each.seq, each.type, each.content) for each in heard} == {
        (each.run, each.seq, each.type, each.content) for each in whole
    }
    assert [event.pos for event in heard] == sorted(event.pos for event in heard)


async def test_a_doubt_is_told_where_the_turn_is_left_and_a_wait_below_ends_the_dialogue_above() -> None:
    @gesta.tool(effect="once")
    async def wire(cents: int) -> str:
        raise TimeoutError(f"no answer about {cents}")

    doubting = gesta.Agent("desk", model=gesta.scripted(gesta.call("wire", cents=3), "Done."), tools=[wire])
    below_ = guide(gesta.call("pay", cents=5), "Paid.").as_tool()
    above = gesta.Agent("above", model=gesta.scripted(gesta.call("guide", task="Pay."), "Done."), tools=[below_])
    async with gesta.open() as record:
        events = [event async for event in record.stream(doubting, "go", session="s")]
        last = events[-1]
        assert last.type == "waiting"
        assert (last.waiting.what, last.waiting.args, last.end_of_dialog) == ("doubt", {"cents": 3}, True)
        stream = record.stream(above, "go", session="t")
        waits = [event async for event in stream if event.type == "waiting"]
        assert stream.outcome is not None
        assert [(each.run == stream.outcome.run, each.end_of_dialog) for each in waits] == [
            (False, False),
            (True, True),
        ]
        assert [each.waiting for each in waits] == [stream.outcome.waiting[0]] * 2


async def test_a_summary_in_place_of_entries_is_told() -> None:
    async with gesta.open() as record:
        await record.run(guide(), "m", session="s")
        (row,) = await record.store.runs("s")
        await record.send(row.run, CompactionContent(from_seq=2, to_seq=4, summary="They spoke of Rome."), key="c")
        await record.run(guide("Hi.", "Hi.", "Hi."), "n", session="s")
        (event,) = [event async for event in record.follow("s", until_end=True) if event.type == "compaction"]
    assert (event.content, event.from_seq, event.to_seq) == ("They spoke of Rome.", 2, 4)


async def test_a_stream_of_a_turn_that_waits_ends_although_the_turn_goes_on_and_calls_another_agent_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    helper = gesta.Agent("helper", model=gesta.scripted("Dry.", "Wet."), policy=QUICK)
    calls = [gesta.call("helper", task="Rome"), gesta.call("pay", cents=5), gesta.call("helper", task="Oslo")]
    agent = gesta.Agent("guide", model=gesta.scripted(*calls, "It is wet."), tools=[helper.as_tool(), pay])
    later: list[str | None] = []
    async with gesta.open() as record:
        read, stream = record.store.read, record.stream(agent, "Is Rome dry?", session="s")

        async def read_while_it_grows(run: str, *range_: Any, **options: Any) -> Any:
            """Read a run. When the turn waits, a person approves its call, and all of the rest is done meanwhile."""
            if stream.ended.is_set() and not later:
                later.append(None)
                await record.approve("s", by="ann")
                later.append((await record.resume(run, agent)).answer)
                await anyio.wait_all_tasks_blocked()
            return await read(run, *range_, **options)

        monkeypatch.setattr(record.store, "read", read_while_it_grows)
        told = [event async for event in stream]
    assert stream.outcome is not None
    assert ([each.what for each in stream.outcome.waiting], later) == (["approval"], [None, "It is wet."])
    assert "waiting" in [each.type for each in told]
