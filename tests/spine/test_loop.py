"""A turn is steps: what comes from outside is taken in, a move is decided, and it is carried out."""

from datetime import UTC, datetime
from typing import Any

import gesta
from gesta import address
from gesta.codec.rows import encode_content
from gesta.decide.move import Finish, Pause, decide, decide_calls, decide_request
from gesta.kinds import FaultContent, Kind, SignalContent, UserContent
from gesta.loop import outcome_of, step, take_in, turn
from gesta.perform.execution import LiveRun, TurnCaller
from gesta.perform.stop import Stop
from gesta.record.record import Record
from gesta.state.opening import Opening
from gesta.store import Letter
from gesta.stores.memory import MemoryStore

RUN = "r" * 32
BUSY = gesta.Policy(retry=gesta.Retry(first_wait_s=0.001))


class Cancelling(Stop):
    """Has somebody cancel the turn while it waits."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self._store = store
        self.waited: list[float] = []

    async def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        signal = SignalContent(name="cancel", by="ann")
        await self._store.send(Letter(RUN, "cancel", encode_content(signal)))


def agent(*script: Any, policy: gesta.Policy = BUSY) -> gesta.Agent:
    return address.bind(gesta.Agent("a", model=gesta.scripted(*script), policy=policy))


async def begun(record: Record, acting: gesta.Agent, desk: LiveRun) -> None:
    opening = Opening(name="a", session="s", content=UserContent(value="hello"))
    await record.turns.begin(acting, opening, desk)


async def test_a_cancellation_during_the_wait_before_a_retry_counts_before_the_model_is_asked_again() -> None:
    store = MemoryStore()
    record = Record(store, address.bind, clock=lambda: datetime(2026, 11, 24, tzinfo=UTC))
    acting, stop = agent(gesta.fault(503), "late"), Cancelling(store)
    async with record.turns.held(RUN, acting, TurnCaller(None, stop)) as desk:
        await begun(record, acting, desk)
        ended = await turn(acting, desk)
    assert ended.reason == "cancelled"
    assert stop.waited == [0.001]
    kinds = [entry.kind for entry in await record.read(RUN)]
    assert kinds.count(Kind.Request) == 1


async def test_a_step_is_one_move_and_leaves_the_end_of_the_turn_to_its_caller() -> None:
    record, acting = Record(MemoryStore(), address.bind), agent(gesta.fault(503), "hi")
    async with record.turns.held(RUN, acting, TurnCaller(None, Stop())) as desk:
        await begun(record, acting, desk)
        made = []
        while desk.state.open and "Finish" not in made:
            move, entries = await step(acting, desk)
            made.append(type(move).__name__)
            if made[-1] == "Ask":
                last = entries[-1].content
        assert made == ["Ask", "Pause", "Ask", "Finish"]
        assert not isinstance(last, FaultContent)
        assert outcome_of(desk.log.run, desk.state).reason == "waiting"
        assert decide(acting, desk.state) == Finish("answered")


async def test_a_program_may_have_its_requests_or_its_calls_decided_alone() -> None:
    record, acting = Record(MemoryStore(), address.bind), agent(gesta.fault(503), "hi")
    async with record.turns.held(RUN, acting, TurnCaller(None, Stop())) as desk:
        await begun(record, acting, desk)
        assert await step(acting, desk, decide_calls) == (None, [])
        await step(acting, desk, decide_request)
        assert isinstance(decide_request(acting, desk.state), Pause)


async def test_what_waits_in_the_inbox_is_taken_in_once() -> None:
    store = MemoryStore()
    record, acting = Record(store, address.bind), agent("hi")
    async with record.turns.held(RUN, acting, TurnCaller(None, Stop())) as desk:
        await begun(record, acting, desk)
        signal = SignalContent(name="pause", by="ann")
        await store.send(Letter(RUN, "one", encode_content(signal)))
        assert await take_in(desk)
        assert not await take_in(desk)
