"""A workflow asks a person and then waits for a time. A worker continues it after each wait; nothing runs meanwhile.

Prints:
    waits for question
    waits for timer
    A blue lamp, reminded after the rest.
"""

import asyncio

import gesta
from gesta.worker import Worker


async def order(verbs: gesta.Verbs, _text: str) -> str:
    """Ask for the missing colour, then wait 1.2 seconds before the reminder."""
    colour = await verbs.ask("colour", "Which colour?")
    await verbs.sleep("rest", 1.2)
    return f"A {colour} lamp, reminded after the rest."


agent = gesta.Agent("desk", program=order)


async def main() -> None:
    async with gesta.open("orders.gesta") as record:
        outcome = await record.run(agent, "A lamp, please.", session="ann")
        print("waits for", outcome.waiting[0].what)
        await record.answer(outcome.waiting[0], "blue", by="ann")
    async with gesta.open("orders.gesta") as record:  # another process, another day
        worker, heard = Worker(record, [agent]), list[gesta.Outcome]()
        await worker.look(heard.append)
        print("waits for", heard[-1].waiting[0].what)
        while heard[-1].answer is None:
            await asyncio.sleep(0.2)
            await worker.look(heard.append)
        print(heard[-1].answer)


if __name__ == "__main__":
    asyncio.run(main())
