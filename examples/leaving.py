"""A client disconnects while its agent is at work. A tool with effects may finish, and the turn is continued later.

A web server cancels the task that waits for the turn when its client disconnects; here that happens twice. First, a
tool is running that only reads: it is cancelled, and called again later. Then a payment is running: it gets up to
`grace_s` seconds to finish, so that its result is on record. Nothing is paid twice.

Prints:
    left while look was at work; the turn is open: True
    left while pay was at work; the turn is open: True
    answer: Paid.
    looked 2 times, paid 1 time
"""

import asyncio

import gesta

DONE: list[str] = []
at_work: asyncio.Queue[str] = asyncio.Queue()


@gesta.tool(effect="pure")
async def look() -> str:
    """Look the order up."""
    DONE.append("look")
    at_work.put_nowait("look")
    await asyncio.sleep(60 if DONE == ["look"] else 0)  # the first time the server hangs
    return "It costs 5 euros."


@gesta.tool(effect="once")
async def pay(euros: int) -> str:
    """Pay an amount."""
    DONE.append("pay")
    at_work.put_nowait("pay")
    await asyncio.sleep(0.05)
    return f"{euros} euros are paid"


model = gesta.scripted(gesta.call("look"), gesta.call("pay", euros=5), "Paid.")
agent = gesta.Agent("clerk", model=model, tools=[look, pay])


async def main() -> None:
    async with gesta.open("shop.gesta", grace_s=10) as record:
        for tool in ("look", "pay"):
            request = asyncio.create_task(record.run(agent, "Pay my order.", session="anna", key="m1"))
            while await at_work.get() != tool:
                pass
            request.cancel()  # the client disconnects
            await asyncio.wait([request])
            state = await record.state((await record.find("anna")).run)
            print(f"left while {tool} was at work; the turn is open: {state.open}")
        outcome = await record.run(agent, "Pay my order.", session="anna", key="m1")
        print("answer:", outcome.answer)
        print(f"looked {DONE.count('look')} times, paid {DONE.count('pay')} time")


if __name__ == "__main__":
    asyncio.run(main())
