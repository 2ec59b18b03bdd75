"""A run goes on in one record at a time: a mirror takes no turn, and a move that broke off anywhere is completed."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import FULL

import gesta
from gesta import address
from gesta.bridges.pushing import adopt, push
from gesta.compare.forks import Fork, fork
from gesta.compare.replaying import replay_run
from gesta.errors import RecordError, RunMirrored, TurnOpen, WriteFailed
from gesta.kinds import ApprovalContent, SignalContent
from gesta.log.journal import read
from gesta.record.record import Record
from gesta.store import Batch, Letter, Store
from gesta.stores.memory import MemoryStore
from gesta.testing import append_many, make_batch

pytestmark = pytest.mark.anyio
FIXTURE = Path(__file__).parents[1] / "fixtures" / "0.1.0" / "in-doubt.gesta"


class Till:
    """Counts what was paid, whatever its keys."""

    def __init__(self) -> None:
        self.fired = 0

    async def pay(self) -> str:
        self.fired += 1
        return "paid"


def payer(till: Till) -> gesta.Agent:
    tool = gesta.tool(till.pay, effect="once", approval=True)
    return gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "Done.", "Again."), tools=[tool])


async def approve(record: Record, run: str) -> None:
    """Answer the call that waits, also where no turn is taken."""
    state = await record.state(run)
    (call,) = state.calls.values()
    assert call.asked is not None
    await record.send(run, ApprovalContent(of=call.asked, verdict="approved", by="ann"), key=f"approval-{call.asked}")


async def goes_on(store: Store, run: str) -> bool:
    """Return whether a run takes turns in a record, for all that stands there."""
    entries = await read(store, run)
    moves = [each.content.to for each in entries if isinstance(each.content, SignalContent)]
    try:
        await store.release(await store.lease(run))
    except RunMirrored:
        return False
    return bool(entries) and moves[-1:] in ([], [store.info.id])


async def begun(here: Store, there: Store, run: str, count: int) -> None:
    """Copy the beginning of a run as releases did that made no mirrors."""
    lease = await there.lease(run)
    await there.append(Batch(lease, 0, await here.read(run, 0, count)))
    await there.release(lease)


@pytest.fixture(params=["memory", "sqlite", "to-postgres", "from-postgres"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """Two records, one of them on each kind of store."""
    places = [str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta")]
    if "postgres" in request.param:
        pytest.importorskip("psycopg")
        places[request.param == "to-postgres"] = request.getfixturevalue("emptied")
    stores = [MemoryStore() if request.param == "memory" else address.store(place) for place in places]
    yield stores[0], stores[1]
    for store in stores:
        await store.close()


async def test_a_run_that_was_pushed_is_approved_in_both_and_its_call_is_made_in_one(pair: tuple[Store, Store]) -> None:
    till = Till()
    acting = payer(till)
    here, there = (Record(store, address.bind) for store in pair)
    first = await here.run(acting, "Pay.", session="s", key="m1")
    await push(here.store, there.store)
    for record in (here, there):
        await approve(record, first.run)
    with pytest.raises(RunMirrored, match=f"is a mirror of the same run in the record with id '{here.info.id}'"):
        await there.resume(first.run, acting)
    with pytest.raises(RunMirrored):
        await there.run(acting, "Pay.", session="s", key="m1")
    assert (await here.resume(first.run, acting)).answer == "Done."
    assert till.fired == 1

    again = await push(here.store, there.store)
    assert (again.runs, again.known, again.moved) == (1, 0, 0)
    assert not await goes_on(there.store, first.run)


async def test_a_run_that_was_moved_goes_on_there_alone_with_the_letters_that_waited(pair: tuple[Store, Store]) -> None:
    till = Till()
    acting = payer(till)
    here, there = (Record(store, address.bind) for store in pair)
    first = await here.run(acting, "Pay.", session="s", key="m1")
    await approve(here, first.run)
    pushed = await push(here.store, there.store, moved_by="ann")
    assert (pushed.runs, pushed.moved, pushed.letters, pushed.refused) == (1, 1, 1, [])
    assert await here.store.inbox(first.run) == []
    assert [letter.key[:8] for letter in await there.store.inbox(first.run)] == ["approval"]
    told = (await here.read(first.run))[-1]
    assert isinstance(told.content, SignalContent)
    assert (told.content.name, told.content.by, told.content.to, told.span) == ("moved", "ann", there.info.id, 1)
    assert [row.digest for row in await here.store.read(first.run)] == [
        row.digest for row in await there.store.read(first.run)
    ]
    with pytest.raises(RunMirrored, match=f"was moved to the record with id '{there.info.id}'"):
        await here.resume(first.run, acting)
    with pytest.raises(RunMirrored, match="was moved to"):
        await here.run(acting, "And?", session="s", key="m2")
    assert (await there.resume(first.run, acting)).answer == "Done."
    assert till.fired == 1
    assert await here.verify() == await there.verify() == []


@pytest.mark.sample(2)
async def test_a_run_is_moved_back_and_forth_and_goes_on_where_it_was_moved_last(pair: tuple[Store, Store]) -> None:
    acting = gesta.Agent("echo", model=gesta.function(lambda messages, _: str(len(messages))))
    here, there = (Record(store, address.bind) for store in pair)
    run = (await here.run(acting, "0", session="s")).run
    for number in range(1, 4):
        assert (await push(here.store, there.store, moved_by="ann")).moved == 1
        assert (await push(here.store, there.store, moved_by="ann")).moved == 0, "once is enough"
        assert not await goes_on(here.store, run)
        assert (await there.run(acting, str(number), session="s")).run == run
        here, there = there, here
    assert (await push(there.store, here.store)).known == 1
    assert (await push(here.store, there.store)).runs == 1
    assert not await goes_on(there.store, run), "what is behind does not go on"
    assert await here.verify() == await there.verify() == []


async def test_letters_that_come_after_a_move_go_along_when_it_is_repeated() -> None:
    here, there = MemoryStore(), MemoryStore()
    await append_many(here, "r", 2)
    await push(here, there, moved_by="ann")
    for key in ("b", "a"):
        await here.send(Letter("r", key, f'"{key}"'))
    pushed = await push(here, there, moved_by="ann")
    assert (pushed.letters, pushed.runs, pushed.moved) == (2, 0, 0)
    assert await here.inbox("r") == []
    assert [letter.key for letter in await there.inbox("r")] == ["b", "a"]


async def test_letters_stay_where_the_run_goes_on() -> None:
    here, there = MemoryStore(), MemoryStore()
    await append_many(here, "r", 2)
    await here.send(Letter("r", "a", '"a"'))
    assert (await push(here, there)).letters == 0
    assert len(await here.inbox("r")) == 1
    assert await there.inbox("r") == []


async def test_runs_move_with_all_above_and_below_them_or_stay() -> None:
    till = Till()
    acting = gesta.Agent("p", gesta.scripted(gesta.call("payer", task="Pay."), "Done."), tools=[payer(till).as_tool()])
    alone = gesta.Agent("alone", gesta.scripted("Hello."))
    async with gesta.open() as here, gesta.open() as there:
        first = await here.run(acting, "Go.", session="s")
        other = await here.run(alone, "Hi.", session="t")
        child = next(row.run for row in await here.store.runs() if row.parent_run == first.run)
        lease = await here.store.lease(child)
        pushed = await push(here.store, there.store, moved_by="ann")
        await here.store.release(lease)
        assert pushed.moved == 1
        assert pushed.refused[1] == (
            f"Run {first.run!r} belongs to run {child!r}, which cannot be moved now. It was not moved either."
        )
        assert await goes_on(there.store, other.run)
        assert await goes_on(here.store, first.run)
        assert await there.store.read(first.run) == []
        assert (await push(here.store, there.store, moved_by="ann")).moved == 2
        await approve(there, child)
        assert (await there.resume(first.run, acting)).answer == "Done."
        assert till.fired == 1


async def test_what_goes_on_elsewhere_is_not_moved_from_here() -> None:
    here, there, third = MemoryStore(), MemoryStore(), MemoryStore()
    await append_many(here, "r", 2)
    await push(here, there)
    (refused,) = (await push(there, third, moved_by="ann")).refused
    assert refused.startswith(f"Run 'r' is a mirror of the same run in the record with id {here.info.id!r}")
    await push(here, third, moved_by="ann")
    (refused,) = (await push(here, there, moved_by="ann")).refused
    assert refused.startswith(f"Run 'r' was moved to the record with id {third.info.id!r}")
    assert (await push(third, there)).runs == 1, "a mirror is brought up to date by whoever has more"
    with pytest.raises(RunMirrored, match=third.info.id):
        await there.lease("r")
    assert await third.read("r")


async def test_a_run_that_went_on_in_the_other_record_is_not_moved_over_it() -> None:
    here, there = MemoryStore(), MemoryStore()
    await append_many(here, "r", 2)
    await begun(here, there, "r", 2)
    lease = await there.lease("r")
    await there.append(make_batch(lease, 2))
    await there.release(lease)
    (refused,) = (await push(here, there, moved_by="ann")).refused
    assert "has 3 entries in ':memory:' and 2 here: it went on there, and is not moved" in refused
    assert await goes_on(there, "r")


async def test_copies_of_one_record_and_copies_that_nobody_adopted_move_nothing(tmp_path: Path) -> None:
    from gesta.stores.sqlite_backup import backup

    places = [str(tmp_path / f"{name}.gesta") for name in "abc"]
    here = address.store(places[0])
    await append_many(here, "r", 2)
    backup(places[0], places[1])
    copy, third = address.store(places[1]), address.store(places[2])
    with pytest.raises(RecordError, match="are copies of one record"):
        await push(here, copy, moved_by="ann")
    with pytest.raises(RecordError, match="gesta adopt"):
        await push(copy, third, moved_by="ann")
    await copy.adopt("ann")
    assert (await push(copy, third, moved_by="ann")).moved == 1
    for store in (here, copy, third):
        await store.close()


async def test_a_run_that_was_cancelled_with_many_words_is_moved() -> None:
    here, there = MemoryStore(), MemoryStore()
    record, till = Record(here, address.bind), Till()
    run = (await record.run(payer(till), "Pay.", session="s")).run
    await record.cancel(run, by="ann", reason="no " * 100_000)
    await push(here, there, moved_by="ann")
    assert (await goes_on(here, run), await goes_on(there, run)) == (False, True)


async def test_a_mirror_whose_record_is_lost_goes_on_once_somebody_says_so() -> None:
    here, there = MemoryStore(), MemoryStore()
    await append_many(here, "r", 2)
    await push(here, there)
    assert await adopt(there, ["r"], "ann") == ["r"]
    assert await goes_on(there, "r")
    assert await adopt(there, ["r"], "ann") == []
    told = (await read(there, "r"))[-1].content
    assert isinstance(told, SignalContent)
    assert (told.name, told.by, told.to) == ("moved", "ann", there.info.id)
    assert (await push(here, there)).known == 1, "the other record is behind, where it is found again"
    await push(there, here, moved_by="ann")
    assert not await goes_on(there, "r")
    assert await adopt(there, ["r"], "bob") == ["r"]
    assert await goes_on(there, "r")


class Dying:
    """A store whose process dies at its so-manieth change: before it, or after it was committed."""

    def __init__(self, store: Store, left: int, *, after: bool) -> None:
        self._store, self.left, self._after = store, left, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("append", "mirror", "send", "lease"):
            return found

        async def change(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self._after:
                raise WriteFailed(self._store.info.address, "the process died")
            made = await found(*args, **options)
            if self.left == 0:
                if name == "lease":  # which a dead process does not have
                    await self._store.release(made)
                raise WriteFailed(self._store.info.address, "the process died")
            return made

        return change


@asynccontextmanager
async def two(folder: Path, kind: str) -> AsyncIterator[tuple[Store, Store]]:
    places = [str(folder / "a.gesta"), str(folder / "b.gesta")]
    stores = [MemoryStore() if kind == "memory" else address.store(place, durability="normal") for place in places]
    yield stores[0], stores[1]
    for store in stores:
        await store.close()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("side", "after", "kind"),
    [
        *(("source", False, "memory"), ("source", True, "memory"), ("target", False, "memory")),
        *(("target", True, "memory"), ("source", True, "sqlite"), ("target", False, "sqlite")),
        *([("source", False, "sqlite"), ("target", True, "sqlite")] if FULL else []),
    ],
)
async def test_a_move_that_died_at_any_change_leaves_one_record_at_most_and_is_completed(
    tmp_path: Path, kind: str, side: str, *, after: bool
) -> None:
    deaths, left = 0, 0
    while True:
        left += 1
        folder = tmp_path / str(left)
        folder.mkdir()
        async with two(folder, kind) as (here, there):
            for run in ("r", "q"):
                await append_many(here, run, 3)
            await begun(here, there, "q", 2)
            for key in ("b", "a"):
                await here.send(Letter("r", key, f'"{key}"'))
            dying = Dying(here if side == "source" else there, left, after=after)
            stores: tuple[Any, Any] = (dying, there) if side == "source" else (here, dying)
            try:
                await push(*stores, moved_by="ann")
                died = False
            except WriteFailed:
                died, deaths = True, deaths + 1
            assert await goes_on(here, "r") + await goes_on(there, "r") <= 1
            await push(here, there, moved_by="ann")
            for run in ("r", "q"):
                assert not await goes_on(here, run)
                assert await goes_on(there, run)
                assert [each.digest for each in await here.read(run)] == [each.digest for each in await there.read(run)]
            assert await here.inbox("r") == []
            assert sorted(letter.key for letter in await there.inbox("r")) == ["a", "b"]
        if not died:
            break
    assert deaths >= 4


async def test_a_letter_that_was_moved_and_taken_in_is_not_taken_in_again() -> None:
    here, there = MemoryStore(), MemoryStore()
    await append_many(here, "r", 2)
    await here.send(Letter("r", "a", '"a"'))
    dying: Any = Dying(here, 3, after=False)  # the lease, the move, and then the letters leave
    with pytest.raises(WriteFailed):
        await push(dying, there, moved_by="ann")
    (letter,) = await there.inbox("r")
    lease = await there.lease("r", mirror=True)
    await there.append(Batch(lease, lease.head, (), letters=[letter.id]))
    await there.release(lease)
    assert (await push(here, there, moved_by="ann")).letters == 1
    assert await there.inbox("r") == []


@pytest.mark.sample(2)
async def test_runs_of_version_0_1_0_in_doubt_are_pushed_and_moved(tmp_path: Path, pair: tuple[Store, Store]) -> None:
    """One call `once` and one idempotent call in doubt, and one that waits for approval, all made by 0.1.0."""
    old = tmp_path / "old.gesta"
    shutil.copy(FIXTURE, old)
    source, (middle, last) = address.store(str(old)), pair
    assert (await push(source, middle)).runs == 3
    assert (await push(source, middle, moved_by="ann")).moved == 3
    assert (await push(middle, last, moved_by="ann")).moved == 3
    record = Record(last, address.bind)
    for session in ("pay", "book", "gate"):
        row = await record.find(session)
        assert [await goes_on(store, row.run) for store in (source, middle, last)] == [False, False, True]
        state = await record.state(row.run)
        assert state.open
        (call,) = state.calls.values()
        assert (call.asked if session == "gate" else call.attempts) is not None
    assert await record.verify() == []
    await source.close()


@pytest.mark.parametrize("when_busy", ["queue", "replace", "raise"])
async def test_nothing_is_written_into_a_run_that_was_moved_away(tmp_path: Path, when_busy: Any) -> None:
    till = Till()
    acting = msgspec.structs.replace(payer(till), policy=gesta.Policy(when_busy=when_busy))
    async with two(tmp_path, "sqlite") as stores:
        here, there = (Record(store, address.bind) for store in stores)
        open_ = await here.run(acting, "Pay.", session="s", key="m1")
        ended = await here.run(gesta.Agent("echo", gesta.scripted("Yes.", "No.")), "Here?", session="t")
        await push(here.store, there.store, moved_by="ann")
        heads = [await here.store.head(run) for run in (open_.run, ended.run)]
        await approve(here, open_.run)
        await here.send(ended.run, SignalContent(name="cancel", by="ann"), key="c1")
        for session, name in (("s", "payer"), ("t", "echo")):
            with pytest.raises((RunMirrored, TurnOpen)):
                await here.run(msgspec.structs.replace(acting, name=name), "And now?", session=session)
        with pytest.raises(RunMirrored):
            await here.resume(open_.run, acting)
        with pytest.raises(RunMirrored):
            async with here.span("app", session="s", run="payer"):
                pass
        assert [await here.store.head(run) for run in (open_.run, ended.run)] == heads
        assert [len(await here.store.inbox(run)) for run in (open_.run, ended.run)] == [1, 1]
        assert (await push(here.store, there.store, moved_by="ann")).letters == 2
        assert (await there.resume(open_.run, acting)).answer == "Done."
        assert till.fired == 1


async def test_a_fork_of_a_run_that_was_moved_away_goes_on_where_it_was_made() -> None:
    acting = gesta.Agent("echo", gesta.scripted("Yes.", "No."))
    async with gesta.open() as here, gesta.open() as there:
        first = await here.run(acting, "Here?", session="s")
        await push(here.store, there.store, moved_by="ann")
        made = await fork(here, await here.find(first.run), Fork())
        assert (await here.run(acting, "And now?", session=made.session)).answer == "No."
        moved = await fork(there, await there.find(first.run), Fork())
        assert (await there.run(acting, "And now?", session=moved.session)).answer == "No."


async def test_a_run_that_was_moved_while_it_waited_is_replayed_where_it_went_on() -> None:
    acting = payer(Till())
    here, there = (Record(MemoryStore(), address.bind) for _ in range(2))
    first = await here.run(acting, "Pay.", session="s")
    await push(here.store, there.store, moved_by="ann")
    await approve(there, first.run)
    assert (await there.resume(first.run, acting)).answer == "Done."
    entries = await there.read(first.run)
    replay = await replay_run({first.run: entries}, first.run, acting)
    assert (replay.divergence, replay.entries) == (None, len(entries))
