"""Search a record of three conversations, count its calls, copy it, and remove what is no longer needed.

Prints:
    found: anna user My [lamp] is broken.
    answers of the model: 6, calls of `order`: 3
    held: anna stays
    pruned: 2 runs
    flaws: 0; in the copy: 3 runs
"""

import asyncio

import gesta
from gesta.integrity.tombstones import Hold, pruned
from gesta.stores.pruning import Choice, Pruner, hold, plan, prune
from gesta.stores.sqlite_backup import backup
from gesta.stores.words import CLOSING, OPENING, Wanted, find
from gesta.views.stats import stats


@gesta.tool(effect="pure")
def order(number: int) -> str:
    """Read an order."""
    return f"Order {number}: on its way"


agent = gesta.Agent("desk", gesta.scripted(gesta.call("order", number=42), "It is on its way."), tools=[order])
ASKED = {"anna": "My lamp is broken.", "bob": "Where is my chair?", "cleo": "Where is my table?"}


async def main() -> None:
    """Fill a record, and use the functions that look after it."""
    async with gesta.open("shop.gesta") as record:
        for session, text in ASKED.items():
            await record.run(agent, text, session=session)
        for hit in await find(record.store, Wanted(words="lamp")):
            print("found:", hit.session, hit.kind, hit.snippet.replace(OPENING, "[").replace(CLOSING, "]"))
        by_agent, by_tool = await stats(record.store, "agent"), await stats(record.store, "tool")
        print(f"answers of the model: {by_agent['desk'].answers}, calls of `order`: {by_tool['order'].calls}")
        backup("shop.gesta", "copy.gesta")

        await hold(record.store, Hold(run=(await record.find("anna")).run, by="ann", reason="a complaint"))
        what = await plan(record.store, Choice(before="2999-01-01"))
        print("held:", ", ".join(f"{each.run.session} stays" for each in what.staying))
        await prune(record.store, what, Pruner(by="ann", reason="no longer needed"))
        await record.store.shrink()
        print("pruned:", sum(len(each.runs) for each in await pruned(record.store)), "runs")
        flaws = await record.verify()
    async with gesta.open("copy.gesta", readonly=True) as copy:
        print(f"flaws: {len(flaws)}; in the copy: {len(await copy.store.runs())} runs")


asyncio.run(main())
