"""A record whose server was restored, or whose database was copied, is marked until a person says that it goes on."""
# ruff: noqa: E402 - without the library nothing else can be imported

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.postgres import Server, running
from tests.ribs.test_stores_postgres import InlineApart, closing_store

psycopg = pytest.importorskip("psycopg")

import gesta
from gesta.address import drive, inline_store
from gesta.errors import BadAddress, BrokenRecord, LeaseLost, WriteFailed
from gesta.store import Batch, Lease
from gesta.stores.postgres import InlinePostgresStore, PostgresStore
from gesta.stores.postgres_open import connect, located
from gesta.testing import append_many, make_row

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that can be stopped and restored."""
    with running() as started:
        yield started


def restore(server: Server) -> None:
    """Start a server as from a backup: what it writes from now on is another timeline."""
    server.stop()
    server.run("touch", str(server.folder / "data" / "recovery.signal"))
    server.settings["restore_command"] = "false"  # there is no more to read than what lies in its folder
    server.start()
    server.wait(writable=True)


def last(address: str) -> int:
    with closing_store(address, InlineApart) as store:
        ((pos,),) = drive(store.sql("SELECT max(pos) FROM entries")).rows
        return int(pos)


def more(address: str, run: str) -> None:
    with closing_store(address, InlineApart) as store:
        drive(append_many(store, run, 3))


def mark(address: str, **how: bool | str) -> int | None:
    store = InlinePostgresStore.open(address, **how)  # type: ignore[arg-type]
    found = store.info.mark
    drive(store.close())
    return found


@pytest.mark.slow
def test_a_record_on_a_restored_server_is_marked_at_its_last_entry_until_it_is_adopted(server: Server) -> None:
    address = server.address()
    more(address, "r")
    server.stop()
    server.start()
    assert mark(address) is None, "the same server, started again"
    restore(server)
    assert mark(address, readonly=True) == 3
    assert mark(address) == 3
    more(address, "q")
    assert (last(address), mark(address), mark(address, readonly=True)) == (6, 3, 3)
    restore(server)
    assert mark(address) == 6, "restored once more"
    with closing_store(address) as store, closing_store(address) as other:
        drive(store.adopt("ann"))
        assert (store.info.mark, other.info.mark) == (None, 6)
        drive(other.release(drive(other.lease("r"))))
        assert other.info.mark is None
        assert drive(store.sql("SELECT mark, adopted_by FROM record")).rows == [(None, "ann")]
    assert mark(address) is None
    assert mark(address, readonly=True) is None


def test_a_server_that_has_all_commits_may_take_the_place_of_another(server: Server) -> None:
    address = server.address()
    more(address, "r")
    restore(server)
    assert mark(address, failover="synchronous") is None
    assert mark(address) is None, "it is known from now on"


def test_a_record_that_is_open_while_its_server_is_restored_is_marked(server: Server) -> None:
    address = server.address()
    with closing_store(address) as store:
        lease = drive(store.lease("r"))
        drive(store.append(Batch(lease, 0, [make_row("r", 1, "end")])))
        restore(server)
        with pytest.raises(LeaseLost):  # the copy may lack what else is known here
            drive(store.append(Batch(lease, 1, [make_row("r", 2, "end")])))
        assert store.info.mark == 1
        drive(store.append(Batch(drive(store.lease("r")), 1, [make_row("r", 2, "end")])))


async def test_an_agent_is_not_called_again_on_a_restored_server_that_lacks_its_run(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, backup = str(server.folder / "data"), str(server.folder / "backup")
    take, runs, paid = PostgresStore.lease, list[str](), list[int]()

    async def lease(store: PostgresStore, run: str, *, mirror: bool = False) -> Lease:
        runs.append(run)
        if len(runs) == 2:  # the called agent begins
            server.stop()
            server.run("cp", "-a", data, backup)
            server.start()
        return await take(store, run, mirror=mirror)

    @gesta.tool(effect="once")
    async def pay() -> str:
        """Pay."""
        paid.append(1)
        if len(paid) == 1:
            server.stop()
            server.run("rm", "-r", data)
            server.run("mv", backup, data)
            restore(server)
        return "paid"

    monkeypatch.setattr(PostgresStore, "lease", lease)
    clerk = gesta.Agent("clerk", model=gesta.scripted(gesta.call("pay"), "Paid."), tools=[pay])
    boss = gesta.Agent("boss", model=gesta.scripted(gesta.call("clerk", task="Pay."), "Done."), tools=[clerk.as_tool()])
    async with gesta.open(server.address()) as record:
        for _ in range(4):
            with suppress(LeaseLost):
                outcome = await record.run(boss, "go", session="s", key="m")
        assert ([each.what for each in outcome.waiting], paid) == (["copy"], [1])
        assert not await record.verify()


def test_a_copy_of_the_database_is_marked_on_any_server(server: Server, tmp_path: Path) -> None:
    address = server.address()
    more(address, "r")
    with closing(psycopg.connect(host=str(server.folder), user="postgres", dbname="template1")) as owner:
        owner.autocommit = True
        owner.execute("CREATE DATABASE copy TEMPLATE postgres")
    copy = address.replace("/postgres?", "/copy?")
    assert mark(address) is None
    assert mark(copy, failover="synchronous") == 3, "no server takes the place of another here"
    empty = server.address()
    drive(InlinePostgresStore.open(empty).close())
    restore(server)
    assert mark(empty) is None, "of nothing there is no copy"
    assert mark(address) == 3


def test_another_record_in_the_place_of_an_open_one_is_refused(server: Server) -> None:
    address = server.address()
    with closing_store(address) as store:
        lease = drive(store.lease("r"))
        with closing(connect(located(address), readonly=False)) as owner:
            owner.execute(f"DROP SCHEMA {located(address).schema} CASCADE")
        drive(InlinePostgresStore.open(address).close())
        server.stop()
        server.start()
        with pytest.raises(BrokenRecord, match="in its place"):
            drive(store.append(Batch(lease, 0, [make_row("r", 1)])))


OLD = """ALTER TABLE record DROP COLUMN mark, DROP COLUMN adopted_by, DROP COLUMN server;
ALTER TABLE owners DROP COLUMN gone_by;
ALTER TABLE leases DROP COLUMN mirror_of;
UPDATE record SET format = 1;
INSERT INTO leases(run, owner, epoch, since) VALUES('left', '0123456789abcdef', 3, ''), ('died', 'fedcba9876543210', 4, '');
INSERT INTO owners(owner, process, host, since) VALUES('fedcba9876543210', 7, 'far', '');"""


def test_tables_of_format_1_are_read_as_they_are_and_migrated_by_the_first_writer(server: Server) -> None:
    address = server.address()
    more(address, "r")
    with closing(connect(located(address), readonly=False)) as owner:
        owner.execute(OLD)
        reading = InlinePostgresStore.open(address, readonly=True)
        assert [row.seq for row in drive(reading.read("r"))] == [1, 2, 3]
        assert (reading.info.mark, drive(reading.gone("fedcba9876543210"))) == (None, None)
        drive(reading.close())
        assert owner.execute("SELECT format FROM record").fetchall() == [(1,)]
        owner.execute("SELECT pg_advisory_lock(x'fedcba9876543210'::bigint)")
        with pytest.raises(WriteFailed, match="process 7 on far, of an older release, is writing it"):
            InlinePostgresStore.open(address)
        assert owner.execute("SELECT format FROM record").fetchall() == [(1,)]
        owner.execute("SELECT pg_advisory_unlock_all()")
        with closing_store(address) as store:
            assert owner.execute("SELECT format FROM record").fetchall() == [(2,)]
            left, died = drive(store.lease("left")), drive(store.lease("died"))
            assert (left.epoch, left.lost, died.epoch, died.lost) == (4, False, 5, True)
            drive(store.declare_gone("fedcba9876543210", "ann"))
            drive(store.adopt("ann"))
    assert mark(address) is None


@pytest.mark.parametrize("option", [{"failover": "synchronous"}, {"tool_role": "shop"}])
async def test_options_of_a_server_are_refused_for_a_file(tmp_path: Path, option: dict[str, str]) -> None:
    place = str(tmp_path / "a.gesta")
    with pytest.raises(BadAddress, match="are for records in PostgreSQL"):
        inline_store(place, **option)  # type: ignore[arg-type]
    with pytest.raises(BadAddress, match="are for records in PostgreSQL"):
        async with gesta.open(place, **option):  # type: ignore[arg-type]
            pass
