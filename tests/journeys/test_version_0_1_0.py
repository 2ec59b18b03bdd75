"""A record that version 0.1.0 left, with two calls in doubt and one that waits for approval, goes on as it was promised."""

import math
import shutil
from pathlib import Path

import apsw
import pytest

import gesta
from gesta.errors import RecordError
from gesta.kinds import ApprovalContent, AttemptContent, ResolutionContent, ToolResultContent

pytestmark = pytest.mark.anyio
FIXTURE = Path(__file__).parents[1] / "fixtures" / "0.1.0" / "in-doubt.gesta"
BOOKED = "fe94c36e86efd6d8cd169b5f26286304b9ebfe76853a0046ccb9ddc5ca7e3310"
"""The idempotency key under which the process of version 0.1.0 booked, before it died."""


@pytest.fixture
def old(tmp_path: Path) -> str:
    """Return the path of a copy of the record."""
    return str(shutil.copy(FIXTURE, tmp_path / "old.gesta"))


class World:
    """What the tools act on."""

    def __init__(self) -> None:
        self.fired = list[str]()

    def agent(self, name: str) -> gesta.Agent:
        """Return one of the agents that made the record."""

        def pay(cents: int) -> str:
            """Pay an invoice."""
            self.fired.append(f"pay {cents}")
            return "paid"

        def book(room: int, context: gesta.Context) -> str:
            """Book a room."""
            self.fired.append(context.key)
            return f"room {room} is booked"

        def gate() -> str:
            """Open the gate."""
            self.fired.append("gate")
            return "open"

        tools = {
            "payer": gesta.tool(pay, effect="once"),
            "booker": gesta.tool(book, effect="idempotent", key_s=math.inf),
            "keeper": gesta.tool(gate, effect="once", approval=True),
        }
        call = {
            "payer": gesta.call("pay", cents=500),
            "booker": gesta.call("book", room=7),
            "keeper": gesta.call("gate"),
        }
        return gesta.Agent(name, model=gesta.scripted(call[name], "Done."), tools=[tools[name]])


async def test_an_idempotent_call_goes_on_under_its_old_key(old: str) -> None:
    world = World()
    async with gesta.open(old) as record:
        outcome = await record.run(world.agent("booker"), "Please book.", session="book", key="m1")
        attempts = [each.content for each in await record.read(outcome.run) if isinstance(each.content, AttemptContent)]
    assert outcome.answer == "Done."
    assert world.fired == [BOOKED]
    assert [(each.number, each.key) for each in attempts] == [(1, None), (2, BOOKED)]


async def test_a_payment_waits_for_a_person_and_is_not_made_again(old: str) -> None:
    world = World()
    async with gesta.open(old) as record:
        outcome = await record.run(world.agent("payer"), "Please pay.", session="pay", key="m1")
        assert [(each.what, each.tool, each.of) for each in outcome.waiting] == [("doubt", "pay", 7)]
        query = "SELECT run, tool, attempt FROM doubts WHERE tool = 'pay'"
        assert (await record.store.sql(query)).rows == [(outcome.run, "pay", 7)]
        settled = ResolutionContent(of=7, verdict="done", by="ann", result="paid")
        await record.send(outcome.run, settled, key="r")
        outcome = await record.run(world.agent("payer"), "Please pay.", session="pay", key="m1")
        (result,) = [
            each.content for each in await record.read(outcome.run) if isinstance(each.content, ToolResultContent)
        ]
    assert (outcome.answer, result.tool_result, world.fired) == ("Done.", "paid", [])


async def test_a_call_that_waits_is_approved_and_made_once(old: str) -> None:
    world = World()
    async with gesta.open(old) as record:
        outcome = await record.run(world.agent("keeper"), "Please gate.", session="gate", key="m1")
        assert [(each.what, each.of) for each in outcome.waiting] == [("approval", 7)]
        await record.send(outcome.run, ApprovalContent(of=7, verdict="approved", by="ann"), key="a")
        for _ in range(2):
            outcome = await record.run(world.agent("keeper"), "Please gate.", session="gate", key="m1")
        assert await record.verify() == []
    assert (outcome.answer, world.fired) == ("Done.", ["gate"])


async def test_it_is_read_as_it_is_and_a_writer_of_version_0_1_0_is_refused_once_it_was_written(old: str) -> None:
    def format_of(path: str) -> int:
        """Read the number at which version 0.1.0 looks before all else; it knows 1, and refuses what is more."""
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return int(db.pragma("user_version"))
        finally:
            db.close()

    def bytes_of(path: str) -> bytes:
        return Path(path).read_bytes()

    before = bytes_of(old)
    async with gesta.open(old, readonly=True) as record:
        assert await record.verify() == []
        with pytest.raises(RecordError):
            await record.run(World().agent("keeper"), "Please gate.", session="gate", key="m1")
    assert (bytes_of(old) == before, format_of(old)) == (True, 1)
    async with gesta.open(old):
        pass
    assert format_of(old) == 2
