"""Functions for the tests of stores: they make rows and batches, expect errors, and follow a store.

A row is an entry of a run as a store keeps it. Its seq is its number in the run, and its pos its number in the store. A
batch is the rows of one run that are written in one commit. A lease is the right to write a run.
"""

import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from gesta.entry import Row
from gesta.errors import LeaseLost
from gesta.store import Batch, Lease, Store

AT = "2026-01-02T03:04:05.000006Z"
Contract = TypeVar("Contract")


def make_row(run: str, seq: int, kind: str = "key-value", content: str | None = None, span: int = 1) -> Row:
    """Return a row for an entry of a run. The row's digest is random: a store does not check digests.

    Args:
        content: the content as JSON; by default a key and a value.
        span: seq of the entry with which its span (a part of the run) begins.
    """
    stored = content or f'{{"kind":"{kind}","key":"n","value":{seq}}}'
    return Row(run, seq, kind, AT, span, "[]", 1, stored, None, os.urandom(16), os.urandom(32))


def make_opening(run: str, session: str, name: str, parent_run: str | None = None) -> Row:
    """Return the row with which a run begins. It holds the run's session, its name and the run that called it."""
    opened = {"session": session, "name": name, "record": "0" * 32, "parent_run": parent_run}
    content = {"kind": "begin", "name": name, "opened": {key: value for key, value in opened.items() if value}}
    return make_row(run, 1, "begin", msgspec.json.encode(content).decode())


def make_batch(lease: Lease, head: int, count: int = 1) -> Batch:
    """Return a batch of new rows for the run of a lease.

    Args:
        head: seq of the last row that the run has already.
        count: number of new rows.
    """
    return Batch(lease, head, [make_row(lease.run, head + place) for place in range(1, count + 1)])


def collected(contract: type[Contract]) -> type[Contract]:
    """Wrap the async tests of a class as plain functions without parameters, which pytest can run. Return the class."""
    for name, sentence in list(vars(contract).items()):
        if name.startswith("test_"):
            setattr(contract, name, on_a_loop(name, sentence))
    return contract


def on_a_loop(name: str, sentence: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    """Return a method called `name` that runs the async test `sentence` on an event loop of its own.

    Its only parameter is the instance of the contract (the class of tests). The test gets a new store from the method
    `open_store` of that instance. If the test has a parameter `other`, it gets the same store from `open_again` too.
    """
    twice = "other" in sentence.__code__.co_varnames[: sentence.__code__.co_argcount]

    async def main(self: Any) -> None:
        stores = [await self.open_store()]
        try:
            if twice:
                stores.append(await self.open_again(stores[0]))
            await sentence(self, *stores)
        finally:
            with anyio.CancelScope(shield=True):
                for store in stores:
                    await store.close()

    def test(self: Any) -> None:
        anyio.run(main, self)

    test.__name__ = name
    return test


async def refused(work: Coroutine[Any, Any, Any], *errors: type[Exception]) -> Exception:
    """Await a call that must raise one of these errors, and return the error.

    If the call returns instead, raise AssertionError.
    """
    try:
        found = await work
    except errors as error:
        return error
    raise AssertionError(f"expected {' or '.join(error.__name__ for error in errors)}, found {found!r}")


async def follow(store: Store, count: int, first: int = 0) -> list[Row]:
    """Return the rows that a store's `tail` yields, as soon as there are at least `count`.

    Args:
        first: pos (number in the whole store) after which the rows begin.
    """
    rows: list[Row] = []
    tail = store.tail(first)
    async for page in tail:
        rows += page
        if len(rows) >= count:
            break
    return rows


async def append_many(store: Store, run: str, count: int) -> None:
    """Acquire the lease of a run, and write `count` entries into the run, each in a commit of its own."""
    lease = await store.lease(run)
    for head in range(count):
        await store.append(make_batch(lease, head))
    await store.release(lease)


async def later(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Wait 0.05 seconds, and then call a function and await its result."""
    await anyio.sleep(0.05)
    await work()


async def telling(work: Coroutine[Any, Any, Any], outcomes: list[Any]) -> None:
    """Await a call, and append its result to `outcomes`. If the call raises LeaseLost, append that error."""
    try:
        outcomes.append(await work)
    except LeaseLost as error:
        outcomes.append(error)
