"""A transactional effect is kept whole with what it says of itself, or not at all, whatever its statements do."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ribs.desk import Desk, Tool

from gesta.address import drive
from gesta.errors import GestaError, LeaseLost, WriteFailed
from gesta.store import Batch, Statements, Store, TransactionalEffect
from gesta.stores.effects import NAMES
from gesta.stores.memory import MemoryStore
from gesta.stores.sqlite import InlineSqliteStore
from gesta.testing import make_batch


@pytest.fixture(params=["memory", "sqlite"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    store: Store = MemoryStore() if request.param == "memory" else InlineSqliteStore.open(tmp_path / "a.gesta")
    made = Desk(store)
    tables = """CREATE TABLE rooms(room INTEGER PRIMARY KEY)
CREATE TABLE halls(hall INTEGER PRIMARY KEY ON CONFLICT ROLLBACK)
CREATE TABLE fees(room)
CREATE TABLE guests(room REFERENCES rooms DEFERRABLE INITIALLY DEFERRED)
CREATE TRIGGER full BEFORE INSERT ON rooms WHEN NEW.room = 13 BEGIN SELECT RAISE(ROLLBACK, 'no'); END
INSERT INTO rooms VALUES(7)
INSERT INTO halls VALUES(7)"""
    for statement in tables.splitlines():
        assert made.call(lambda sql, statement=statement: sql(statement)) is None  # type: ignore[misc]
    yield made
    drive(store.close())


ENDING = [
    "INSERT OR ROLLBACK INTO rooms VALUES(7)",
    "UPDATE OR ROLLBACK rooms SET room = 7 WHERE room = 8",
    "INSERT INTO halls VALUES(7)",
    "INSERT INTO rooms VALUES(13)",
]


@pytest.mark.parametrize("statement", ENDING)
def test_a_tool_whose_statement_ends_the_transaction_does_nothing_more_and_keeps_nothing(
    desk: Desk, statement: str
) -> None:
    after: list[str] = []

    def book(sql: Statements) -> str:
        sql("INSERT INTO fees VALUES('before')")
        sql("INSERT INTO rooms VALUES(8)")
        try:
            sql(statement)
        except Exception:  # noqa: BLE001 - as a tool that goes on would
            for each in ("INSERT INTO fees VALUES('after')", "SELECT 1"):
                with pytest.raises(GestaError, match="has ended the whole transaction"):
                    sql(each)
                after.append(each)
        return "taken; noted"

    for _ in range(2):
        assert "has ended the whole transaction" in str(desk.call(book))
    assert len(after) == 4
    assert desk.rows("SELECT * FROM fees") == []
    assert desk.rows("SELECT count(*) FROM rooms") == [(1,)]


def test_a_deferred_foreign_key_is_checked_before_the_result(desk: Desk) -> None:
    def sleep_in(room: int) -> Tool:
        def tool(sql: Statements) -> None:
            sql("INSERT INTO guests VALUES(?)", (room,))
            if room == 9:
                sql("INSERT INTO rooms VALUES(9)")

        return tool

    assert "foreign key" in str(desk.call(sleep_in(8)))
    assert desk.call(sleep_in(7)) is None
    assert desk.call(sleep_in(9)) is None
    assert desk.rows("SELECT room FROM guests") == [(7,), (9,)]


@pytest.mark.parametrize("failure", [SystemExit(3), KeyboardInterrupt(), MemoryError(), RecursionError(), GestaError()])
def test_whatever_a_tool_raises_is_its_own_error(desk: Desk, failure: BaseException) -> None:
    def tool(sql: Statements) -> None:
        sql("INSERT INTO fees VALUES(1)")
        raise failure

    assert desk.call(tool) is failure
    assert desk.rows("SELECT * FROM fees") == []


@pytest.mark.parametrize("failure", [SystemExit(3), ZeroDivisionError(), LeaseLost("r", "this", "that")])
def test_what_the_work_itself_raises_leaves_nothing_and_the_store_goes_on(desk: Desk, failure: BaseException) -> None:
    def work(sql: Statements) -> tuple[Batch, bool]:
        sql("INSERT INTO fees VALUES(1)")
        raise failure

    with pytest.raises(type(failure)):
        drive(desk.store.transact(TransactionalEffect("r", work)))
    assert desk.rows("SELECT * FROM fees") == []
    assert drive(desk.store.append(make_batch(desk.lease, desk.head)))


def test_what_a_work_keeps_without_having_checked_it_is_not_committed(desk: Desk) -> None:
    def work(sql: Statements) -> tuple[Batch, bool]:
        sql("INSERT INTO guests VALUES(99)")
        return make_batch(desk.lease, desk.head), True

    with pytest.raises(GestaError, match="foreign key"):
        drive(desk.store.transact(TransactionalEffect("r", work)))
    assert drive(desk.store.head("r"))[0] == desk.head
    assert desk.rows("SELECT * FROM guests") == []


REACHING = [
    "CREATE TEMP TABLE entries(run, seq, kind, at, span, causes, version, content, annotations, salt, digest)",
    "CREATE TABLE temp.entries(x)",
    "CREATE TEMP TABLE other(x)",
    "CREATE TEMP VIEW runs AS SELECT 1",
    "CREATE TEMP TRIGGER t AFTER INSERT ON rooms BEGIN SELECT 1; END",
    "DROP VIEW runs",
    "DROP VIEW main.runs",
    "DROP INDEX main.opened",
    "DROP INDEX inbox_run",
    "CREATE TABLE gesta_words(x)",
    "CREATE VIEW gesta_anything AS SELECT 1",
    "CREATE TRIGGER gesta_t AFTER INSERT ON rooms BEGIN SELECT 1; END",
    'DELETE FROM main."ENTRIES"',
    "UPDATE main.leases SET owner = 'me'",
    "CREATE TRIGGER t AFTER INSERT ON inbox BEGIN SELECT 1; END",
    "CREATE TRIGGER t INSTEAD OF INSERT ON runs BEGIN SELECT 1; END",
    "PRAGMA main.user_version = 1",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA defer_foreign_keys = ON",
    "INSERT INTO fees VALUES(1); COMMIT",
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("statement", REACHING)
def test_what_bears_a_name_of_gestas_is_not_changed_and_nothing_stands_before_it(
    tmp_path: Path, statement: str
) -> None:
    store = InlineSqliteStore.open(tmp_path / "a.gesta")
    desk = Desk(store)
    for table in ("rooms", "fees"):
        assert desk.call(lambda sql, table=table: sql(f"CREATE TABLE {table}(room)")) is None  # type: ignore[misc]
    assert str(desk.call(lambda sql: sql(statement))).startswith("A transactional tool may not ")
    assert desk.rows("SELECT * FROM fees") == []
    assert drive(store.damage()) == []
    assert len(drive(store.runs())) == 0
    drive(store.close())


def test_a_tool_does_with_its_own_tables_what_it_likes(desk: Desk) -> None:
    own = """CREATE TABLE stock(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE)
CREATE INDEX by_name ON stock(name)
CREATE VIEW plenty AS SELECT * FROM stock
CREATE TRIGGER twice AFTER INSERT ON stock WHEN NEW.name = 'a' BEGIN INSERT INTO stock(name) VALUES('b'); END
INSERT INTO stock(name) VALUES('a')
ALTER TABLE stock RENAME TO goods
ALTER TABLE goods ADD COLUMN price
CREATE VIRTUAL TABLE words USING fts5(text)
INSERT INTO words VALUES('hello')
REINDEX by_name
DROP VIEW plenty
DROP INDEX by_name"""
    for statement in own.splitlines():
        assert desk.call(lambda sql, statement=statement: sql(statement)) is None, statement  # type: ignore[misc]
    assert desk.rows("SELECT name FROM goods") == [("a",), ("b",)]
    assert desk.rows("SELECT count(*) FROM words WHERE words MATCH 'hello'") == [(1,)]


def test_a_tool_reads_what_is_on_record(tmp_path: Path) -> None:
    store = InlineSqliteStore.open(tmp_path / "a.gesta")
    desk = Desk(store)
    assert desk.rows("SELECT count(*) FROM entries") == [(0,)]
    assert desk.rows("SELECT count(*) FROM main.entries, (SELECT count(*) FROM runs)") == [(2,)]
    drive(store.close())


def test_all_that_gesta_makes_bears_a_guarded_name(tmp_path: Path) -> None:
    store = InlineSqliteStore.open(tmp_path / "a.gesta")
    made = {name for (name,) in drive(store.sql("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")).rows}
    assert made <= NAMES
    drive(store.close())


def test_statements_are_refused_after_the_tool_has_returned_and_in_other_threads(desk: Desk) -> None:
    kept: list[Statements] = []
    found: list[str] = []

    def tool(sql: Statements) -> None:
        def elsewhere() -> None:
            try:
                sql("INSERT INTO fees VALUES(1)")
            except GestaError as error:
                found.append(str(error))

        kept.append(sql)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    assert desk.call(tool) is None
    assert "another thread" in found[0]
    with pytest.raises(GestaError, match="has returned"):
        kept[0]("INSERT INTO fees VALUES(1)")
    assert desk.rows("SELECT * FROM fees") == []


def test_a_write_that_is_broken_off_for_its_time_keeps_nothing(desk: Desk) -> None:
    endless = "INSERT INTO fees WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"

    def work(sql: Statements) -> tuple[Batch, bool]:
        sql("INSERT INTO fees VALUES(1)")
        with pytest.raises(GestaError, match="time was up"):
            sql(endless)
        with pytest.raises(GestaError, match="has ended the whole transaction"):
            sql.check()
        return make_batch(desk.lease, desk.head), False

    drive(desk.store.transact(TransactionalEffect("r", work, 0.05)))
    desk.head += 1
    assert desk.rows("SELECT * FROM fees") == []


def test_an_effect_of_who_lost_the_lease_happens_not(tmp_path: Path) -> None:
    store = InlineSqliteStore.open(tmp_path / "a.gesta")
    desk = Desk(store)
    assert desk.call(lambda sql: sql("CREATE TABLE fees(x)")) is None
    drive(store.release(desk.lease))
    with pytest.raises(LeaseLost):
        desk.call(lambda sql: sql("INSERT INTO fees VALUES(1)"))
    desk.lease = drive(store.lease("r"))
    assert desk.rows("SELECT * FROM fees") == []
    drive(store.close())
    with pytest.raises(WriteFailed, match="was closed"):
        desk.call(lambda sql: sql("SELECT 1"))
