"""Replay a recorded run with today's code. No tool runs, and the first entry that differs is named.

Prints:
    answer: It is paid.
    replayed: 17 entries, all the same
    with other instructions: entry 3 differs at $.meta.instructions
    fired: [20]
"""

import asyncio

import gesta
from gesta.compare.replaying import replay_run

FIRED: list[int] = []


@gesta.tool(effect="pure")
async def order(number: int) -> dict[str, int]:
    """Read an order."""
    return {"number": number, "euros": 20}


@gesta.tool(effect="once")
async def pay(euros: int) -> str:
    """Pay an amount."""
    FIRED.append(euros)
    return f"paid {euros}"


model = gesta.scripted(gesta.call("order", number=1), gesta.call("pay", euros=20), "It is paid.")
agent = gesta.Agent("desk", model=model, tools=[order, pay])
brief = gesta.Agent("desk", model=model, tools=[order, pay], instructions="Be brief.")


async def main() -> None:
    async with gesta.open("desk.gesta") as record:
        first = await record.run(agent, "Pay my order.", session="ann")
        print("answer:", first.answer)
        runs = {first.run: await record.read(first.run)}
        print("replayed:", (await replay_run(runs, first.run, agent)).entries, "entries, all the same")
        found = (await replay_run(runs, first.run, brief)).divergence
        assert found is not None
        print(f"with other instructions: entry {found.seq} differs at {found.difference.path}")
        print("fired:", FIRED)


if __name__ == "__main__":
    asyncio.run(main())
