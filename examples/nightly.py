"""A nightly batch whose machine dies half-way. A worker on another machine, which shares the record, continues it.

Prints:
    02:00 the batch is killed after 2 of 4 letters
    02:05 a worker goes on with an open turn: answered
    02:10 the batch is started again: 4 letters to 4 people
"""

import asyncio
import os
from typing import Any

import anyio

import gesta
from gesta.worker import Worker

RECORD = os.environ.get("NIGHTLY_RECORD", "nightly.gesta")  # or postgresql://user@host/database
LETTERS, ALIVE = list[str](), [True, True, False]


@gesta.tool(effect="idempotent")
async def letter(account: str) -> str:
    """Send the monthly letter."""
    if ALIVE and not ALIVE.pop(0):
        await anyio.sleep_forever()  # the machine dies here
    LETTERS.append(account)
    return "sent"


def choose(messages: list[Any], _header: Any) -> Any:
    return "Done." if messages[-1]["role"] == "tool" else gesta.call("letter", account=messages[-1]["content"])


clerk = gesta.Agent("clerk", model=gesta.function(choose), tools=[letter])


async def batch() -> None:
    async with gesta.open(RECORD, grace_s=0) as record:
        for account in ("anna", "bert", "cleo", "dora"):
            await record.run(clerk, account, session=f"letters-{account}", key="2026-11")


async def worker() -> None:
    async with gesta.open(RECORD) as record:
        await Worker(record, [clerk]).look(
            lambda ended: print(f"02:05 a worker goes on with an open turn: {ended.reason}")
        )


async def main() -> None:
    with anyio.move_on_after(1):
        await batch()
    print(f"02:00 the batch is killed after {len(LETTERS)} of 4 letters")
    await worker()
    await batch()
    print(f"02:10 the batch is started again: {len(LETTERS)} letters to {len(set(LETTERS))} people")


asyncio.run(main())
