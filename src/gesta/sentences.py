"""What the sentences of a contract are made with: rows and batches, and what is awaited, refused or followed.

Those about leases stand here, for all of them would be too long for one file.
"""
# ruff: noqa: D102 - the name of a test is its sentence

import os
import unittest
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from gesta.entry import GENESIS, Row
from gesta.errors import LeaseLost, RecordError, RunHeld, RunMirrored
from gesta.store import Batch, Lease, Store

AT = "2026-01-02T03:04:05.000006Z"
Contract = TypeVar("Contract")


def make_row(run: str, seq: int, kind: str = "key-value", content: str | None = None, span: int = 1) -> Row:
    """Make a row as an entry would be stored; its digest is random, for a store does not check it."""
    stored = content or f'{{"kind":"{kind}","key":"n","value":{seq}}}'
    return Row(run, seq, kind, AT, span, "[]", 1, stored, None, os.urandom(16), os.urandom(32))


def make_opening(run: str, session: str, name: str, parent_run: str | None = None) -> Row:
    """Make the row that opens a run."""
    opened = {"session": session, "name": name, "record": "0" * 32, "parent_run": parent_run}
    content = {"kind": "begin", "name": name, "opened": {key: value for key, value in opened.items() if value}}
    return make_row(run, 1, "begin", msgspec.json.encode(content).decode())


def make_batch(lease: Lease, head: int, count: int = 1) -> Batch:
    """Make a batch of so many rows after `head`."""
    return Batch(lease, head, [make_row(lease.run, head + place) for place in range(1, count + 1)])


def collected(contract: type[Contract]) -> type[Contract]:
    """Make pytest's kind of test of every sentence in a contract: synchronous, and with no parameters."""
    for name, sentence in list(vars(contract).items()):
        if name.startswith("test_"):
            setattr(contract, name, on_a_loop(name, sentence))
    return contract


def on_a_loop(name: str, sentence: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    """Run a sentence on an event loop of its own, with a fresh store, or one that is opened by two owners."""
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
    """Await what must raise one of these errors, and give the error."""
    try:
        found = await work
    except errors as error:
        return error
    raise AssertionError(f"expected {' or '.join(error.__name__ for error in errors)}, found {found!r}")


async def follow(store: Store, count: int, first: int = 0) -> list[Row]:
    """Follow a store until so many rows have come."""
    rows: list[Row] = []
    tail = store.tail(first)
    async for page in tail:
        rows += page
        if len(rows) >= count:
            break
    return rows


async def append_many(store: Store, run: str, count: int) -> None:
    """Take a run, append entries one by one, and give it back."""
    lease = await store.lease(run)
    for head in range(count):
        await store.append(make_batch(lease, head))
    await store.release(lease)


async def later(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Do something in a while."""
    await anyio.sleep(0.05)
    await work()


async def telling(work: Coroutine[Any, Any, Any], outcomes: list[Any]) -> None:
    """Do something, and note what came of it."""
    try:
        outcomes.append(await work)
    except LeaseLost as error:
        outcomes.append(error)


@collected
class LeaseSentences:
    """What a store must do about who may write: the first part of `gesta.testing.StoreContract`."""

    async def open_store(self) -> Store:
        """Open a store that nobody has used before."""
        raise NotImplementedError

    async def open_again(self, store: Store) -> Store:
        """Open the same place once more, as another owner; let it be for a store that is private."""
        raise unittest.SkipTest("a private store has one owner only")

    async def end_owner(self, store: Store) -> None:
        """Make the store's holders as good as dead, without closing the store; goes with `open_again`."""
        raise NotImplementedError

    async def break_off(self, store: Store) -> Callable[[], None]:
        """Make every commit of the store fail until the returned function is called."""
        raise unittest.SkipTest("nothing can fail in memory")

    async def test_a_run_has_one_writer(self, store: Store) -> None:
        lease = await store.lease("r")
        await store.append(make_batch(lease, 0, 2))
        error = await refused(store.lease("r"), RunHeld)
        assert isinstance(error, RunHeld)
        assert (error.run, error.head) == ("r", 2)
        assert str(os.getpid()) in error.owner
        assert error.since.endswith("Z")
        assert (await store.lease("other")).run == "other"

    async def test_a_lease_says_where_the_run_is_and_its_epoch_grows(self, store: Store) -> None:
        first = await store.lease("r")
        assert (first.run, first.head, first.digest) == ("r", 0, GENESIS)
        batch = make_batch(first, 0, 2)
        await store.append(batch)
        await store.release(first)
        second = await store.lease("r")
        assert (second.head, second.digest) == (2, batch.rows[-1].digest)
        assert second.epoch > first.epoch
        await refused(store.append(make_batch(first, 2)), LeaseLost)
        await store.release(first)  # no longer held: let be
        await store.append(make_batch(second, 2))
        await store.release(second)
        await refused(store.append(make_batch(second, 3)), LeaseLost)

    async def test_a_living_owner_keeps_its_run_and_a_dead_one_loses_it_at_once(
        self, store: Store, other: Store
    ) -> None:
        lease = await store.lease("r")
        await store.append(make_batch(lease, 0, 2))
        await refused(other.lease("r"), RunHeld)
        await self.end_owner(store)
        taken = await other.lease("r")
        assert (taken.head, taken.epoch > lease.epoch, taken.lost) == (2, True, True)
        await refused(store.append(make_batch(lease, 2)), LeaseLost)
        await other.append(make_batch(taken, 2))
        assert (await store.head("r"))[0] == 3

    async def test_closing_frees_leases(self, store: Store, other: Store) -> None:
        before = await store.lease("r")
        await store.close()
        taken = await other.lease("r")
        assert (taken.epoch > before.epoch, taken.lost) == (True, False)

    async def test_a_lease_that_was_given_back_is_not_lost(self, store: Store) -> None:
        first = await store.lease("r")
        await store.release(first)
        again = await store.lease("r")
        assert (first.lost, again.lost) == (False, False)

    async def test_a_run_is_free_whose_lease_could_not_be_given_back(self, store: Store, other: Store) -> None:
        one, two = await store.lease("one"), await store.lease("two")
        mend = await self.break_off(store)
        await refused(store.append(make_batch(one, 0)), RecordError)
        await store.release(one)  # its commit fails, and it is given back all the same
        await store.release(two)
        mend()
        taken = await store.lease("one")
        assert (taken.lost, taken.epoch > one.epoch) == (False, True)
        await store.append(make_batch(taken, 0))
        assert not (await other.lease("two")).lost, "it rode with the commit after it"

    async def test_a_run_is_free_whose_holder_was_cancelled_at_any_instant(self, store: Store) -> None:
        async def hold(run: str) -> None:
            lease = await store.lease(run)
            try:
                await store.append(make_batch(lease, lease.head))
                await anyio.sleep(60)
            finally:
                with anyio.CancelScope(shield=True):
                    await store.release(lease)

        for step in range(12):
            async with anyio.create_task_group() as tasks:
                for run in ("a", "b", "c"):
                    tasks.start_soon(hold, run)
                for _ in range(step):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            for run in ("a", "b", "c"):
                lease = await store.lease(run)
                assert not lease.lost
                await store.release(lease)

    async def test_a_mirror_takes_no_writer_but_the_one_that_mirrors(self, store: Store) -> None:
        lease = await store.lease("r")
        await store.append(make_batch(lease, 0))
        await store.mirror(lease, "0" * 32)
        await store.append(make_batch(lease, 1))
        await store.release(lease)
        error = await refused(store.lease("r"), RunMirrored)
        assert isinstance(error, RunMirrored)
        assert (error.run, error.record) == ("r", "0" * 32)
        again = await store.lease("r", mirror=True)
        await store.append(make_batch(again, 2))
        await refused(store.mirror(lease, None), LeaseLost)
        await store.mirror(again, None)
        await store.release(again)
        await store.append(make_batch(await store.lease("r"), 3))

    async def test_a_process_that_lives_is_not_gone_and_of_a_stranger_nothing_is_known(self, store: Store) -> None:
        lease = await store.lease("r")
        assert await store.gone(lease.owner) is False
        for stranger in ("", "nobody", "0123456789abcdef.1.1"):
            assert await store.gone(stranger) is None
        kept = store.keep()
        await store.release(lease)
        assert await store.gone(lease.owner) is False
        kept()
        kept()

    async def test_a_process_is_gone_once_a_person_says_so(self, store: Store) -> None:
        await store.declare_gone("0123456789abcdef.1.1", "ann")
        await store.declare_gone("0123456789abcdef.1.1", "bob")
        assert await store.gone("0123456789abcdef.1.1") is True
        assert await store.gone("1123456789abcdef.1.1") is None

    async def test_what_a_person_said_of_a_process_stays_on_record(self, store: Store, other: Store) -> None:
        await store.declare_gone("0123456789abcdef.1.1", "ann")
        await store.lease("r")
        await store.close()
        assert await other.gone("0123456789abcdef.1.1") is True

    async def test_the_descriptor_of_a_process_is_open_until_the_record_is_closed(self, store: Store) -> None:
        await store.lease("r")
        descriptor = store.descriptor()
        if descriptor is not None:
            os.fstat(descriptor)
        await store.close()
        assert store.descriptor() is None

    async def test_a_record_that_is_no_copy_has_no_mark_and_can_be_adopted(self, store: Store) -> None:
        assert store.info.mark is None
        await store.adopt("ann")
        assert store.info.mark is None
