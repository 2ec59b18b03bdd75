"""The tests about leases, which are part of `gesta.testing.StoreContract`. A lease is the right to write a run."""
# ruff: noqa: D102 - the name of a test is its sentence

import os
import unittest
from collections.abc import Callable

import anyio
import anyio.lowlevel

from gesta.entry import GENESIS
from gesta.errors import LeaseLost, RecordError, RunHeld, RunMirrored
from gesta.store import Store
from gesta.testing.rows import (
    collected,
    make_batch,
    refused,
)


@collected
class LeaseSentences:
    """The tests about leases (the right to write a run). `StoreContract` inherits them."""

    async def open_store(self) -> Store:
        """Return a new, empty store, which is open."""
        raise NotImplementedError

    async def open_again(self, store: Store) -> Store:
        """Open the same store once more, as another process would, and return the new store object.

        A store that only one process can open does not override this; the tests with two owners are then skipped.
        """
        raise unittest.SkipTest("a private store has one owner only")

    async def end_owner(self, store: Store) -> None:
        """Make it look to other processes as if the process of this store had ended, while the store stays open.

        Override it together with `open_again`.
        """
        raise NotImplementedError

    async def break_off(self, store: Store) -> Callable[[], None]:
        """Make every commit of the store fail, until the returned function is called.

        A store whose commits cannot fail does not override this; the tests that need it are then skipped.
        """
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
        await store.release(first)  # it is no longer held, so nothing happens
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
        await store.release(one)  # the commit of the release fails, but the lease is released all the same
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
