"""Two pages follow one conversation. One of them loses its connection, comes back, and continues where it was.

Prints:
    first: call, result, answer, end
    second: call
    second, back again: result, answer, end
"""

import asyncio

import gesta

AT_WORK, LET_GO = asyncio.Event(), asyncio.Event()


@gesta.tool(effect="once")
async def book(room: int) -> str:
    """Book a room."""
    AT_WORK.set()
    await LET_GO.wait()
    return f"room {room} is booked"


agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("book", room=7), "Room 7 is yours."), tools=[book])
SHOWN = ("call", "result", "answer", "end")


async def page(record: gesta.Record, after: str | int, last: str) -> tuple[list[str], str | None]:
    """Collect the types of the conversation's events after a place, up to the first event of type `last`.

    Return them and the id of the last event, which is the place to continue from.
    """
    seen: list[str] = []
    async for event in record.follow("ann", after=after):
        if event.id is not None and event.type in SHOWN:
            seen.append(event.type)
        if event.type == last:
            return seen, event.id
    raise AssertionError


async def main() -> None:
    """Run one turn while two pages follow it."""
    async with gesta.open() as record, asyncio.TaskGroup() as tasks:
        tasks.create_task(record.run(agent, "A room, please.", session="ann"))
        await AT_WORK.wait()
        first = tasks.create_task(page(record, 0, "end"))
        second, place = await page(record, 0, "call")  # its connection is lost here
        LET_GO.set()
        print("first:", ", ".join((await first)[0]))
        print("second:", ", ".join(second))
        back, _ = await page(record, place or 0, "end")
        print("second, back again:", ", ".join(back))


if __name__ == "__main__":
    asyncio.run(main())
