"""A payment waits for a person; the answer may come from another program, another day.

Prints:
    waiting for approval of pay
    paid and thanked
"""

import asyncio

import gesta
from gesta.kinds import ApprovalContent


@gesta.tool(effect="once", approval=True)
def pay(cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents}"


agent = gesta.Agent("clerk", model=gesta.scripted(gesta.call("pay", cents=500), "paid and thanked"), tools=[pay])


async def ask() -> None:
    """Begin; the turn waits, and nothing has to stay in memory."""
    async with gesta.open("pay.gesta") as record:
        outcome = await record.run(agent, "Pay the baker.", session="s", key="m0")
        print(outcome.reason, "for", *(f"{waiting.what} of {waiting.tool}" for waiting in outcome.waiting))


async def answer() -> None:
    """Approve; this is what `gesta approve last` does. It needs no agent."""
    async with gesta.open("pay.gesta") as record:
        run = (await record.find("s")).run
        calls = (await record.state(run)).calls.values()
        for call in calls:
            if call.asked is not None:
                await record.send(run, ApprovalContent(of=call.asked, verdict="approved", by="eva"), key="eva-1")


async def go_on() -> None:
    """Send the same message under the same key: the turn goes on."""
    async with gesta.open("pay.gesta") as record:
        print((await record.run(agent, "Pay the baker.", session="s", key="m0")).answer)


if __name__ == "__main__":
    for part in (ask, answer, go_on):
        asyncio.run(part())
