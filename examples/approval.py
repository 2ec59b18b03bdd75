"""A payment waits for a person, who approves it from another program on another day.

Prints:
    waiting for approval of pay
    clerk asks: pay {'cents': 500}, effect once, open for an hour: True
    approved by eva; a second click changes nothing: True
    bob cannot deny it any more
    paid and thanked
"""

import asyncio
from datetime import timedelta

import gesta
from gesta.errors import SaidBefore


@gesta.tool(effect="once", approval=True, expires_s=3600)
def pay(cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents}"


agent = gesta.Agent("clerk", model=gesta.scripted(gesta.call("pay", cents=500), "paid and thanked"), tools=[pay])


async def ask() -> None:
    """Start the turn. It ends up waiting, and no process has to stay alive meanwhile."""
    async with gesta.open("pay.gesta") as record:
        outcome = await record.run(agent, "Pay the baker.", session="s", key="m0")
        print(outcome.reason, "for", *(waiting.text for waiting in outcome.waiting))


async def answer() -> None:
    """Approve whatever waits in any session, as `gesta approve` does. The agent is not needed for that."""
    async with gesta.open("pay.gesta") as record:
        for session in await record.sessions():
            for waiting in session.waiting:
                hour = waiting.expires is not None and waiting.expires - record.now() > timedelta(minutes=59)
                asks = f"{waiting.tool} {waiting.args}, effect {waiting.effect}, open for an hour: {hour}"
                print(*session.agents, f"asks: {asks}")
                receipt = await record.approve(waiting, by="eva")
                again = await record.approve(waiting, by="bob")
                print(f"{receipt.verdict} by {receipt.by}; a second click changes nothing: {again.again}")
                try:
                    await record.deny(waiting, by="bob")
                except SaidBefore:
                    print("bob cannot deny it any more")


async def go_on() -> None:
    """Continue the turn, found by the name of its session."""
    async with gesta.open("pay.gesta") as record:
        print((await record.resume("s", agent)).answer)


if __name__ == "__main__":
    for part in (ask, answer, go_on):
        asyncio.run(part())
