"""A tool with effects that calls an agent or asks a person: what is known of its effect when it has to wait or is left."""

import asyncio
from typing import Any, Literal

import anyio
import pytest

import gesta
from gesta.function_tool.context import NeedsAnswer, ToolQuestion
from gesta.function_tool.tool import Tool


@gesta.tool(effect="pure", approval=True)
def look(text: str) -> str:
    """Look at a text."""
    return text


def waiting_writer() -> gesta.Agent:
    return gesta.Agent("writer", model=gesta.scripted(gesta.call("look", text="x"), "A receipt."), tools=[look])


def desk(tool: Tool) -> gesta.Agent:
    return gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", cents=5), "Done."), tools=[tool])


async def test_a_payment_that_asks_an_agent_first_goes_on_after_that_agent_has_waited() -> None:
    paid = list[str]()

    @gesta.tool(effect="once")
    async def pay(cents: int, context: gesta.Context) -> str:
        """Pay."""
        said = (await context.call(waiting_writer(), "Write a receipt.")).answer
        paid.append(f"{cents} with {said}")
        return "paid"

    async with gesta.open() as record:
        outcome = await record.run(desk(pay), "Pay.", session="s")
        await record.approve(outcome.waiting[0], by="ann")
        assert (await record.resume(outcome.run, desk(pay))).answer == "Done."
        assert paid == ["5 with A receipt."]


async def ends_in_finally(context: gesta.Context) -> None:
    try:
        raise TimeoutError("no answer of the bank")
    finally:
        await context.call(waiting_writer(), "Write down what happened.")


async def ends_after_other_code(context: gesta.Context) -> None:
    try:
        raise gesta.InDoubt("the line is dead")
    except gesta.InDoubt:
        try:
            raise ValueError("a note failed")
        except ValueError:
            await context.call(waiting_writer(), "Write down what happened.")


async def ends_beside(context: gesta.Context) -> None:
    waited = anyio.Event()

    async def bank() -> None:
        with anyio.CancelScope(shield=True):
            await waited.wait()
        raise TimeoutError("no answer of the bank")

    async def write() -> None:
        try:
            await context.call(waiting_writer(), "Write a receipt.")
        finally:
            waited.set()

    async with anyio.create_task_group() as group:
        group.start_soon(bank)
        group.start_soon(write)


async def asks_in_finally(_: gesta.Context) -> None:
    try:
        raise TimeoutError("no answer of the bank")
    finally:
        raise NeedsAnswer({"size": ToolQuestion("Which size?")})


async def asks_because_of_it(_: gesta.Context) -> None:
    lost: TimeoutError | None = None
    try:
        raise TimeoutError("no answer of the bank")
    except TimeoutError as error:
        lost = error
    raise NeedsAnswer({"size": ToolQuestion("Which size?")}) from lost


ENDS = [ends_in_finally, ends_after_other_code, ends_beside, asks_in_finally, asks_because_of_it]


@pytest.mark.parametrize("end", ENDS)
async def test_a_doubt_is_not_hidden_by_a_wait_that_follows_it(end: Any) -> None:
    paid = list[int]()

    @gesta.tool(effect="once")
    async def pay(cents: int, context: gesta.Context) -> str:
        """Pay."""
        paid.append(cents)
        await end(context)
        return "paid"

    async with gesta.open() as record:
        outcome = await record.run(desk(pay), "Pay.", session="s")
        assert [(each.what, each.tool) for each in outcome.waiting] == [("doubt", "pay")]
        outcome = await record.resume(outcome.run, desk(pay))
        assert ([each.what for each in outcome.waiting], paid) == (["doubt"], [5])


class Left:
    """A turn whose tool pays and then calls an agent, and that is left while that agent thinks."""

    def __init__(self, effect: Literal["idempotent", "once"], *, below: bool = False) -> None:
        self.paid = list[str]()
        self.thinks, self.goes_on = anyio.Event(), anyio.Event()

        async def think(*_: Any) -> str:
            self.thinks.set()
            await self.goes_on.wait()
            return "A receipt."

        @gesta.tool(effect="once")
        async def send(cents: int) -> str:
            """Send money."""
            self.paid.append(f"sent {cents}")
            return await think()

        sends = gesta.scripted(gesta.call("send", cents=5), "A receipt.")
        self.writer = gesta.Agent("writer", model=sends if below else gesta.function(think), tools=[send])

        @gesta.tool(effect=effect)
        async def pay(cents: int, context: gesta.Context) -> str:
            """Pay."""
            self.paid.append(f"paid {cents}")
            return str((await context.call(self.writer, "Write a receipt.")).answer)

        self.agent = desk(pay)

    async def leave(self, record: gesta.Record, cancellations: int = 1, *, answers: bool = False) -> str:
        """Run the turn, stop waiting for it, and return its run. The agent answers in the grace, or not."""
        task = asyncio.create_task(record.run(self.agent, "Pay.", session="s"))
        await self.thinks.wait()
        for _ in range(cancellations):
            task.cancel()
            await asyncio.sleep(0)
        if answers:
            self.goes_on.set()
        await asyncio.wait([task])
        return (await record.find("s")).run


@pytest.mark.parametrize("below", [False, True])
async def test_an_agent_that_a_payment_called_goes_on_for_the_grace_when_the_turn_is_left(below: bool) -> None:
    left = Left("once", below=below)
    async with gesta.open(grace_s=60) as record:
        run = await left.leave(record, answers=True)
        assert [str(each.kind) for each in await record.read(run)][-1] == "tool-result"
        assert (await record.resume(run, left.agent)).answer == "Done."
        assert left.paid == ["paid 5", "sent 5"][: 1 + below]


@pytest.mark.parametrize("cancellations", [1, 2])
@pytest.mark.parametrize("below", [False, True])
async def test_after_the_grace_a_payment_that_called_an_agent_is_in_doubt(below: bool, cancellations: int) -> None:
    left = Left("once", below=below)
    async with gesta.open(grace_s=60 if cancellations == 2 else 0) as record:
        run = await left.leave(record, cancellations)
        left.goes_on.set()
        outcome = await record.resume(run, left.agent)
        assert ([each.tool for each in outcome.waiting], outcome.waiting[0].what) == (["pay"], "doubt")
        assert left.paid == ["paid 5", "sent 5"][: 1 + below]


async def test_after_the_grace_an_idempotent_tool_that_called_an_agent_is_tried_again() -> None:
    left = Left("idempotent")
    async with gesta.open(grace_s=0) as record:
        run = await left.leave(record)
        left.goes_on.set()
        assert (await record.resume(run, left.agent)).answer == "Done."
        assert left.paid == ["paid 5", "paid 5"]
