"""What would have happened if a tool had returned something else? A fork answers that without paying again by itself.

Prints:
    answer: paid 20
    forked with 30 euros: waits for approval of pay
    named live: paid 30
    fired: [20, 30]
    flaws: []
"""

import asyncio
import json
from typing import Any

import gesta
from gesta.compare.forks import Change, Fork, fork, go_on

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


def mind(messages: list[dict[str, Any]], _header: Any) -> Any:
    """Act as a model: look the order up, pay what it says, and answer with the result."""
    seen = [message["content"] for message in messages if message["role"] == "tool"]
    if len(seen) == 2:
        return seen[1]
    return gesta.call("pay", euros=json.loads(seen[0])["euros"]) if seen else gesta.call("order", number=1)


agent = gesta.Agent("desk", model=gesta.function(mind), tools=[order, pay])


async def main() -> None:
    async with gesta.open("desk.gesta") as record:
        print("answer:", (await record.run(agent, "Pay my order.", session="ann")).answer)
        base = await record.find("ann")
        changes = [Change(8, "tool_result.euros", 30)]
        ended = await go_on(record, await fork(record, base, Fork(changes=changes)), agent)
        print("forked with 30 euros: waits for", ended.waiting[0].what, "of", ended.waiting[0].tool)
        ended = await go_on(record, await fork(record, base, Fork(changes=changes, live=["pay"])), agent)
        print("named live:", ended.answer)
        print("fired:", FIRED)
        print("flaws:", await record.verify())


if __name__ == "__main__":
    asyncio.run(main())
