"""A stream that ends badly, or that nobody reads on, is no other's trouble."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import msgspec
import pytest

import gesta
from gesta.events import AnswerEvent, Event, Listener, ThoughtEvent
from gesta.record.followers import Follower, Target
from gesta.record.stream import Stream


class PanicError(BaseException):
    """What a library that is not Python may raise."""


ENDED = gesta.Outcome(run="r", session="s", turn=1, reason="answered", answer="fine")


def streamed(
    record: gesta.Record, work: Callable[[Listener], Awaitable[gesta.Outcome]], *, stops: bool = False, run: str = "r"
) -> Stream:
    """Make a stream of work that is not a turn, but tells words as one does."""
    words = record.turns.broadcast(run)

    async def follow() -> Follower:
        return record.followers.follower(Target(runs=(run,), root=run, session="s"))

    def hear(event: Event) -> None:
        words.tell(msgspec.structs.replace(event, run=run), 0)

    return Stream(record._tasks, lambda: work(hear), follow, stops=stops)


async def done(hear: Listener) -> gesta.Outcome:
    hear(AnswerEvent(content="fine"))
    return ENDED


async def read(stream: Stream) -> str:
    """Read to the end, and give what came, or what was raised."""
    try:
        events = [event.content async for event in stream]
    except BaseException as failure:  # noqa: BLE001
        return f"{type(failure).__name__}: {failure}"
    return ", ".join(events)


@pytest.mark.parametrize(
    "failure", [PanicError("rust"), SystemExit(3), ValueError("no"), BaseExceptionGroup("two", [PanicError("rust")])]
)
async def test_what_ends_one_turn_is_raised_where_its_events_are_read_and_nowhere_else(failure: BaseException) -> None:
    fallen = anyio.Event()

    async def bad(hear: Listener) -> gesta.Outcome:
        hear(ThoughtEvent(content="hm"))
        raise failure

    async def good(hear: Listener) -> gesta.Outcome:
        await fallen.wait()
        hear(AnswerEvent(content="fine"))
        return ENDED

    heard = list[str]()
    async with gesta.open() as record, anyio.create_task_group() as tasks:
        streams = [streamed(record, good), streamed(record, bad, run="b"), streamed(record, good, run="c")]

        async def one(stream: Stream) -> None:
            heard.append(await read(stream))

        for stream in (streams[0], streams[2]):
            tasks.start_soon(one, stream)
        heard.append(await read(streams[1]))
        assert streams[1].outcome is None
        fallen.set()
    assert heard == [f"{type(failure).__name__}: {failure}", "fine", "fine"]
    assert streams[0].outcome is ENDED


async def test_the_program_of_one_stream_ends_no_other_stream_of_a_record() -> None:
    at_work, fallen = anyio.Event(), anyio.Event()

    @gesta.tool(effect="once")
    async def pay() -> str:
        """Pay."""
        at_work.set()
        await fallen.wait()
        return "paid"

    async def program(_verbs: gesta.Verbs, _text: str) -> str:
        await at_work.wait()
        raise PanicError("rust")

    good = gesta.Agent("good", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
    async with gesta.open() as record, anyio.create_task_group() as group:
        stream = record.stream(good, "go", session="g")

        async def hear() -> None:
            _ = [event async for event in stream]

        group.start_soon(hear)
        assert await read(record.stream(gesta.Agent("bad", program=program), "go", session="b")) == "PanicError: rust"
        fallen.set()
    assert stream.outcome is not None
    assert stream.outcome.answer == "Done."


async def test_a_reader_that_raises_ends_nothing() -> None:
    agent = gesta.Agent("desk", model=gesta.scripted("a long answer in many words"))

    async def hear(stream: Stream) -> None:
        async for _ in stream:
            raise ConnectionError("the browser is gone")

    async with gesta.open() as record:
        stream = record.stream(agent, "hi", session="s")
        with pytest.raises(ConnectionError):
            await hear(stream)
        await stream.ended.wait()
    assert stream.outcome is not None
    assert stream.outcome.answer == "a long answer in many words"


async def test_where_the_policy_says_so_a_reader_that_leaves_stops_the_turn() -> None:
    stopped = list[str]()

    async def work(hear: Listener) -> gesta.Outcome:
        hear(ThoughtEvent(content="hm"))
        try:
            await anyio.sleep_forever()
        except BaseException as left:
            stopped.append(type(left).__name__)
            raise
        return ENDED

    async with gesta.open() as record:
        stream = streamed(record, work, stops=True)
        events = aiter(stream)
        assert (await anext(events)).content == "hm"
        await events.aclose()  # type: ignore[attr-defined]
        await stream.ended.wait()
        assert await read(streamed(record, done, run="other")) == "fine"
    assert stopped == ["CancelledError"]
    assert stream.outcome is None


async def test_a_reader_that_stays_stops_nothing() -> None:
    async def work(hear: Listener) -> gesta.Outcome:
        hear(AnswerEvent(content="fine"))
        return ENDED

    async with gesta.open() as record:
        stream = streamed(record, work, stops=True)
        assert await read(stream) == "fine"
    assert stream.outcome is ENDED


async def test_a_reader_is_told_when_the_record_was_closed_before_the_turn_ended() -> None:
    begun, heard = anyio.Event(), list[str]()

    async def program(_verbs: gesta.Verbs, _text: str) -> str:
        begun.set()
        await anyio.sleep_forever()
        return ""

    async with anyio.create_task_group() as group:

        async def hear(record: gesta.Record) -> None:
            heard.append(await read(record.stream(gesta.Agent("long", program=program), "go", session="s")))

        async with gesta.open() as record:
            group.start_soon(hear, record)
            await begun.wait()
    (said,) = heard
    assert said == (
        "GestaError: The turn was broken off, for its record was closed. It is still open: send the message again "
        "under its key, or resume the run."
    )


async def test_a_cancellation_that_nobody_asked_for_is_an_error_of_its_stream() -> None:
    async def work(_hear: Listener) -> gesta.Outcome:
        raise asyncio.CancelledError

    async with gesta.open() as record:
        said = await read(streamed(record, work))
    assert said.startswith("GestaError: The turn was broken off by a cancellation that nobody asked for: ")
