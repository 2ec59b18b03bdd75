"""A record that is pushed into another is there as it was: ids, seqs, digests, salts and the order of entries."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.postgres import Server

import gesta
from gesta import address
from gesta.bridges.pushing import push
from gesta.cli import application
from gesta.entry import Row
from gesta.errors import BrokenRecord, RecordError, WriteFailed
from gesta.record.record import Record
from gesta.store import Batch, Store
from gesta.stores.memory import MemoryStore
from gesta.testing import append_many, make_batch, make_row


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a record may be pushed to."""
    if request.param == "sqlite":
        return str(tmp_path / "target.gesta")
    pytest.importorskip("psycopg")
    server: Server = request.getfixturevalue("postgres")
    return server.address()


async def converse(record: Record, session: str, *texts: str) -> None:
    """Have an agent answer, with a value that is large enough to become a blob."""
    model = gesta.function(lambda messages, _: f"You said {len(messages[-1]['content'])} characters.")
    for text in texts:
        await record.run(gesta.Agent("echo", model=model), text * 20_000, session=session)


async def rows(store: Store) -> list[Row]:
    """Every row of a store, in its order, as it stands there."""
    found = [
        row for (run,) in (await store.sql("SELECT DISTINCT run FROM entries")).rows for row in await store.read(run)
    ]
    return sorted(found, key=lambda row: row.pos)


@pytest.mark.sample(2)
def test_what_is_pushed_is_the_same_and_verified(tmp_path: Path, place: str) -> None:
    async def main() -> None:
        async with gesta.open(str(tmp_path / "a.gesta")) as here, gesta.open(place) as there:
            for session in ("one", "two", "one"):
                await converse(here, session, "good morning ")
            pushed = await push(here.store, there.store)
            assert (pushed.runs, pushed.known, pushed.refused) == (2, 0, [])
            assert await rows(there.store) == await rows(here.store)
            assert await there.verify() == await here.verify() == []
            assert len((await here.store.sql("SELECT name FROM blobs")).rows) > 0
            again = await push(here.store, there.store)
            assert (again.runs, again.entries, again.known) == (0, 0, 2)

            await converse(here, "two", "once more ")
            third = await push(here.store, there.store)
            assert (third.runs, third.known) == (1, 1)
            assert await rows(there.store) == await rows(here.store)

            moved = await push(here.store, there.store, moved_by="ann")
            assert (moved.runs, moved.entries, moved.moved) == (2, 2, 2)
            await converse(there, "two", "and on there ")  # the run is found, and goes on
            assert len(await there.store.runs()) == 2
            assert (await push(here.store, there.store)).known == 2
            back = await push(there.store, here.store)
            assert (back.runs, back.known) == (1, 1)
            assert await rows(there.store) == await rows(here.store)

    anyio.run(main)


def test_a_run_that_is_being_written_is_refused_and_the_others_go(place: str) -> None:
    async def main() -> None:
        here, there, other = MemoryStore(), address.store(place), address.store(place)
        for run in ("free", "here", "there"):
            await append_many(here, run, 2)
        leases = [await here.lease("here"), await other.lease("there")]
        pushed = await push(here, there)
        assert (pushed.runs, pushed.entries) == (1, 2)
        assert [refusal.split("'")[1] for refusal in pushed.refused] == ["here", "there"]
        assert all(f"process {os.getpid()} on" in refusal for refusal in pushed.refused)
        await here.release(leases[0])
        await other.release(leases[1])
        assert (await push(here, there)).runs == 2
        for store in (there, other):
            await store.close()

    anyio.run(main)


def test_a_run_that_went_on_differently_is_refused() -> None:
    async def main() -> None:
        here, there = MemoryStore(), MemoryStore()
        await append_many(here, "r", 2)
        await push(here, there)
        for store in (here, there):
            lease = await store.lease("r", mirror=True)
            await store.append(make_batch(lease, 2))
            await store.release(lease)
        pushed = await push(here, there)
        assert (pushed.runs, pushed.known) == (0, 0)
        assert "entry 3 differs" in pushed.refused[0]
        assert (await there.head("r"))[0] == 3

    anyio.run(main)


def test_a_fork_keeps_its_seqs() -> None:
    async def main() -> None:
        here, there = MemoryStore(), MemoryStore()
        base = await here.lease("b")
        await here.append(make_batch(base, 0, 5))
        await here.release(base)
        lease = await here.lease("fork")
        opened = '{"session":"s","name":"n","record":"r","base":{"run":"b","seq":5}}'
        first = make_row("fork", 6, "begin", f'{{"kind":"begin","name":"n","opened":{opened}}}')
        await here.append(Batch(lease, 5, [first, make_row("fork", 7)]))
        await here.release(lease)
        await push(here, there)
        assert await rows(there) == await rows(here)

    anyio.run(main)


class Breaking(MemoryStore):
    """A store that fails after so many commits of rows."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    async def append(self, batch: Batch) -> int:
        self.left -= 1
        if self.left < 0:
            raise WriteFailed(":memory:", "the line went dead")
        return await super().append(batch)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=8), st.integers(0, 8))
def test_a_push_that_broke_off_is_made_whole_by_another(parts: list[tuple[str, int]], left: int) -> None:
    async def main() -> None:
        here, there = MemoryStore(), Breaking(left)
        for run, count in parts:
            lease = await here.lease(run)
            await here.append(make_batch(lease, lease.head, count))
            await here.release(lease)
        try:
            await push(here, there)
        except WriteFailed:
            there.left = 1000
            await push(here, there)
        assert await rows(there) == await rows(here), "the order too"

    anyio.run(main)


def test_a_blob_that_is_missing_stops_the_push() -> None:
    async def main() -> None:
        here, there = MemoryStore(), MemoryStore()
        await converse(Record(here, address.bind), "s", "good morning ")
        here._blobs.clear()
        (run,) = await here.runs()
        with pytest.raises(BrokenRecord, match="no blob"):
            await push(here, there)
        assert await there.read(run.run) == []
        assert (await there.lease(run.run, mirror=True)).head == 0, "nothing is held any more"

    anyio.run(main)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`gesta push`, in a folder with a record."""
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    with gesta.open_sync("a.gesta") as record, record.span("app", session="s") as span:
        span["alpha"] = 1
    return lambda *words: CliRunner().invoke(application("push"), ["push", *words], prog_name="gesta")


@pytest.mark.sample(2)
def test_the_command_says_what_went_and_what_did_not(command: Any, place: str) -> None:
    done = command("a.gesta", place)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("1 run, 3 entries pushed to ")
    assert command("a.gesta", place, "--json").stdout == (
        '{"runs": 0, "entries": 0, "letters": 0, "known": 1, "moved": 0, "refused": 0}\n'
    )
    back = command(place, "b.gesta")
    assert back.stdout == "1 run, 3 entries pushed to b.gesta\n"
    with gesta.open_sync("a.gesta") as record, record.span("app", session="s"):
        held = command("a.gesta", "c.gesta")
    assert held.exit_code == 1
    assert "is being written by process" in held.stderr
    assert "0 runs, 0 entries pushed to c.gesta" in held.stdout
    moved = command("a.gesta", place, "--move", "--by", "ann")
    assert moved.stdout.startswith("1 run, 3 entries pushed to ")
    assert moved.stdout.endswith("; 1 run goes on there\n")
    again = command("a.gesta", place, "--move").stdout
    assert again.endswith(", 1 there before; 0 runs go on there\n")


def test_a_record_is_not_copied_into_itself(tmp_path: Path) -> None:
    async def main() -> None:
        path, link = tmp_path / "a.gesta", tmp_path / "link.gesta"
        async with gesta.open(str(path)) as here:
            await converse(here, "one", "good morning ")
            link.symlink_to(path)
            async with gesta.open(str(link)) as there:
                with pytest.raises(RecordError, match=r"a\.gesta' is named twice: a record is not copied into itself"):
                    await push(here.store, there.store)

    anyio.run(main)


def test_the_command_refuses_what_is_no_record(command: Any) -> None:
    for words, said in {
        ("none.gesta", "b.gesta"): "No record at 'none.gesta'",
        ("a.gesta", ":memory:"): "ends with the command",
        ("a.gesta", "mysql://h/d"): "No store for mysql:// addresses",
    }.items():
        done = command(*words)
        assert done.exit_code == 2
        assert said in done.stderr


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_an_approval_that_came_in_time_is_in_time_where_its_run_goes_on(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    paid = list[int]()

    @gesta.tool(effect="once", approval=True, expires_s=60)
    def pay(euros: int) -> str:
        """Pay."""
        paid.append(euros)
        return f"{euros} paid"

    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", euros=10), "Done."), tools=[pay])

    def yesterday() -> datetime:
        return datetime.now(UTC) - timedelta(days=1)

    async def main(target: str) -> None:
        here = Record(MemoryStore(clock=yesterday), address.bind, clock=yesterday)
        async with gesta.open(target) as there:
            waiting = await here.run(agent, "Pay.", session="s")
            await here.approve(waiting.run, by="ann")
            assert (await push(here.store, there.store, moved_by="ann")).letters == 1
            assert (await there.resume(waiting.run, agent)).answer == "Done."

    place = {"memory": ":memory:", "sqlite": str(tmp_path / "there.gesta")}.get(kind, "")
    anyio.run(main, place or request.getfixturevalue("emptied"))
    assert paid == [10]
