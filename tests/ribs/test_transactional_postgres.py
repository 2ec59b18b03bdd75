"""A transactional tool's tables in PostgreSQL: the same promise as in a file."""

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from tests.postgres import Server
from tests.ribs.desk import Desk, Tool

import gesta
from gesta.address import drive
from gesta.errors import GestaError, LeaseLost, ServerGone, WriteFailed
from gesta.store import Batch, Statements, TransactionalEffect
from gesta.stores.effects import Refused
from gesta.stores.postgres import InlinePostgresStore
from gesta.stores.postgres_effects import refusal
from gesta.stores.postgres_open import connect, located
from gesta.testing import make_batch, make_row

pytestmark = pytest.mark.sample(2, over="parent")

TABLES = """CREATE TABLE rooms(room INTEGER PRIMARY KEY);
CREATE TABLE guests(room INTEGER REFERENCES rooms DEFERRABLE INITIALLY DEFERRED);
CREATE VIEW shown AS SELECT * FROM entries;
CREATE TABLE public.entries(room INTEGER);"""


def desk_at(address: str, tool_role: str | None = None) -> Desk:
    return Desk(InlinePostgresStore.open(address, tool_role=tool_role))


@pytest.fixture
def address(postgres: Server) -> Iterator[str]:
    """A record beside which the tables of tools stand."""
    with postgres.emptied() as place, closing(connect(located(place), readonly=False)) as owner:
        owner.execute(TABLES)
        yield place
        owner.execute("DROP TABLE public.entries")


@pytest.fixture
def desk(address: str) -> Iterator[Desk]:
    made = desk_at(address)
    yield made
    drive(made.store.close())


def call(statement: str) -> Tool:
    """A tool that runs one statement."""
    return lambda tables: tables(statement)


# --------------------------------------------------------------------------------------------------- a turn of a run


@gesta.tool(effect="transactional")
def book(room: int, context: gesta.Context) -> str:
    """Book a room."""
    context.sql("INSERT INTO rooms VALUES($1)", (room,))
    return f"{context.sql('SELECT count(*) FROM rooms')[0][0]} booked"


@gesta.tool(effect="transactional", timeout_s=0.2)
def wait(context: gesta.Context) -> str:
    """Wait for long."""
    context.sql("SELECT pg_sleep(5)")
    return "waited"


@gesta.tool(effect="transactional")
def tamper(context: gesta.Context) -> str:
    """Do harm."""
    context.sql("DELETE FROM entries")
    return "gone"


async def test_effect_and_result_are_one_commit_and_what_failed_is_undone(address: str) -> None:
    calls = [gesta.call("book", room=1), gesta.call("book", room=1), gesta.call("wait"), gesta.call("tamper")]
    agent = gesta.Agent("desk", gesta.scripted(*calls, "Done."), tools=[book, wait, tamper])
    async with gesta.open(address) as record:
        outcome = await record.run(agent, "Go.", session="s")
        results = [e.content.tool_result for e in await record.read(outcome.run) if e.kind == "tool-result"]  # type: ignore[union-attr]
        assert outcome.answer == "Done."
        assert results[0] == "1 booked"
        assert results[1].startswith("UniqueViolation")
        assert "time was up" in results[2]
        assert (
            results[3]
            == "Refused: A transactional tool may not change 'entries', a table of Gesta's own: DELETE FROM entries"
        )
        assert not await record.verify()
        assert (await record.store.sql("SELECT count(*) FROM rooms")).rows == [(1,)]


# ------------------------------------------------------------------------------------------------ what it may not do


NOT_ROWS = [
    *("COMMIT", " rollback", "/* x */ BEGIN", "SET search_path = x", "SELECT 1; COMMIT", "DO $$ begin end $$"),
    *("CREATE TABLE more(x)", "DROP TABLE blobs", "TRUNCATE rooms", "LOCK TABLE rooms", "CALL f()", "VALUES(1)"),
    *("COPY rooms TO STDOUT", "SELECT * INTO more FROM rooms", "SELECT 1 INTO TEMP more", "EXPLAIN SELECT 1", ""),
    *("SELECT set_config('role', 'none', true)", "SELECT pg_terminate_backend (1)", "SELECT lo_unlink(1)"),
    *("SELECT pg_advisory_unlock_all()", 'SELECT "set_config"(1, 2, true)', "SELECT set_config /* */ (1, 2, 3)"),
    *("SELECT date'\\', set_config('role', 'none', true), '2'", "SELECT a$b$, set_config('a', 'b', true) AS a$b$"),
    *(
        'SELECT U&"s\\0065t_config"(1, 2, true)',
        "LISTEN x",
        "PREPARE TRANSACTION 'x'",
        "SELECT query_to_xml('', 1, 1, '')",
    ),
]
OF_GESTA = [
    *("DELETE FROM entries", "UPDATE leases SET epoch = 9", 'DELETE FROM "entries"', "DELETE FROM shown"),
    *('DELETE FROM U&"\\0065ntries"', "INSERT INTO inbox_keys VALUES('r', 'k')"),
    *("WITH x AS (DELETE FROM entries RETURNING 1) SELECT * FROM x", "WITH x AS (SELECT 1) DELETE FROM blobs"),
    "MERGE INTO record USING rooms ON true WHEN MATCHED THEN DELETE",
]
OF_THE_TOOL = [
    *("INSERT INTO rooms VALUES(length('COMMIT; entries'))", "SELECT count(*) FROM entries", "DELETE FROM rooms;"),
    *(
        "INSERT INTO public.entries VALUES(1)",
        "SELECT 'set_config(' || ';'",
        "  (SELECT 1)",
        "SELECT 1 -- ; COMMIT",
    ),
    *("WITH x AS (INSERT INTO rooms VALUES(1) RETURNING room) SELECT room FROM x", "SELECT $a$;$a$, E'\\';'"),
    "MERGE INTO rooms USING guests ON rooms.room = guests.room WHEN MATCHED THEN DELETE",
]


# One record is enough for all statements of a kind: each is a call of its own in it.


def test_what_is_no_reading_or_changing_of_rows_is_refused(desk: Desk) -> None:
    for statement in NOT_ROWS:
        assert refusal(statement) is not None, statement
        assert isinstance(desk.call(call(statement)), Refused), statement


def test_a_table_of_gestas_own_is_not_changed_by_whatever_name(desk: Desk) -> None:
    for statement in OF_GESTA:
        before = desk.head
        failure = desk.call(call(statement))
        assert isinstance(failure, Refused), statement
        assert desk.head == before + 2, statement
        assert len(drive(desk.store.read("r"))) == desk.head, statement


def test_all_that_is_not_gestas_is_the_tools_in_any_schema(desk: Desk) -> None:
    for statement in OF_THE_TOOL:
        assert desk.call(call(statement)) is None, statement


@pytest.mark.parametrize("role", ["postgres", "nobody_of_that_name"])
def test_a_role_that_keeps_nothing_from_a_tool_is_refused_at_once(address: str, role: str) -> None:
    with pytest.raises(WriteFailed, match=role):
        InlinePostgresStore.open(address, tool_role=role)


def test_under_a_role_of_its_own_a_tool_reaches_its_tables_and_nothing_of_gestas(address: str) -> None:
    with closing(connect(located(address), readonly=False)) as owner:
        owner.execute("CREATE ROLE shop; GRANT SELECT, INSERT ON public.entries TO shop")
        owner.execute(f"""CREATE FUNCTION public.harm() RETURNS int LANGUAGE sql AS
            'DELETE FROM {located(address).schema}.entries RETURNING 1'""")
        bare = desk_at(address)
        assert bare.call(call("SELECT public.harm()")) is None, "what a function does, no plan says"
        drive(bare.store.close())
        desk = desk_at(address, tool_role="shop")
        try:
            for statement in (
                "SELECT public.harm()",
                "SELECT * FROM rooms",
                f"SELECT * FROM {located(address).schema}.entries",
            ):
                assert isinstance(desk.call(call(statement)), psycopg.Error), statement
            assert desk.call(call("INSERT INTO entries VALUES(7)")) is None, (
                "where it has no rights, no name is looked up"
            )
            assert desk.rows("SELECT room FROM public.entries") == [(7,)]
            assert desk.rows("SELECT current_user") == [("shop",)]
            drive(desk.store.append(make_batch(desk.lease, desk.head)))
        finally:
            drive(desk.store.close())
            owner.execute("DROP FUNCTION public.harm; DROP OWNED BY shop; DROP ROLE shop")


# ----------------------------------------------------------------------------------------------- what goes wrong in it


def test_a_deferred_constraint_is_checked_before_the_result_and_is_the_tools_error(desk: Desk) -> None:
    def sleep_in(room: int) -> Tool:
        def tool(tables: Statements) -> None:
            tables("INSERT INTO guests VALUES($1)", (room,))
            if room == 9:
                tables("INSERT INTO rooms VALUES(9)")

        return tool

    assert isinstance(desk.call(sleep_in(8)), psycopg.errors.ForeignKeyViolation)
    assert desk.call(sleep_in(9)) is None
    assert isinstance(desk.call(sleep_in(8)), psycopg.errors.ForeignKeyViolation)
    assert desk.rows("SELECT room FROM guests") == [(9,)]


@pytest.mark.parametrize("failure", [SystemExit(3), KeyboardInterrupt(), MemoryError(), RecursionError(), GestaError()])
def test_whatever_a_tool_raises_is_its_own_error(desk: Desk, failure: BaseException) -> None:
    def tool(tables: Statements) -> None:
        tables("INSERT INTO rooms VALUES(1)")
        raise failure

    assert desk.call(tool) is failure
    assert desk.rows("SELECT * FROM rooms") == []


@pytest.mark.parametrize("failure", [SystemExit(3), ZeroDivisionError(), ValueError(), LeaseLost("r", "this", "that")])
def test_what_the_work_itself_raises_leaves_nothing_and_the_store_goes_on(desk: Desk, failure: BaseException) -> None:
    def work(tables: Statements) -> tuple[Batch, bool]:
        tables("INSERT INTO rooms VALUES(1)")
        raise failure

    with pytest.raises(type(failure)):
        drive(desk.store.transact(TransactionalEffect("r", work)))
    assert desk.rows("SELECT * FROM rooms") == []
    assert drive(desk.store.append(make_batch(desk.lease, desk.head)))


def test_what_a_work_keeps_without_having_checked_it_is_not_committed(desk: Desk) -> None:
    def work(tables: Statements) -> tuple[Batch, bool]:
        tables("INSERT INTO guests VALUES(99)")
        return make_batch(desk.lease, desk.head), True

    with pytest.raises(GestaError, match="foreign key"):
        drive(desk.store.transact(TransactionalEffect("r", work)))
    assert drive(desk.store.head("r"))[0] == desk.head
    assert desk.rows("SELECT * FROM guests") == []


def test_statements_outside_of_the_call_and_in_other_threads_are_refused(desk: Desk) -> None:
    kept: list[Statements] = []
    failures: list[str] = []

    def elsewhere() -> None:
        try:
            kept[0]("INSERT INTO rooms VALUES(1)")
        except Refused as failure:
            failures.append(str(failure))

    def tool(tables: Statements) -> None:
        kept.append(tables)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    assert desk.call(tool) is None
    elsewhere()
    assert ["another thread" in failures[0], "has returned" in failures[1]] == [True, True]
    assert desk.rows("SELECT * FROM rooms") == []


def test_a_tool_that_thinks_for_long_between_its_statements_keeps_its_transaction(desk: Desk) -> None:
    def think(tables: Statements) -> None:
        tables("INSERT INTO rooms VALUES(1)")
        with closing(connect(located(desk.store.info.address), readonly=True)) as other:
            other.execute("SELECT pg_sleep(0.1)")  # longer than the server lets others stand still here
        tables("INSERT INTO rooms VALUES(2)")

    assert isinstance(desk.store, InlinePostgresStore)
    desk.store.writer._connection.execute("SET idle_in_transaction_session_timeout = 50")
    assert desk.call(think) is None
    assert desk.rows("SELECT room FROM rooms ORDER BY room") == [(1,), (2,)]


@pytest.mark.parametrize("caught", [True, False])
async def test_a_lost_connection_inside_an_effect_leaves_nothing_and_the_record_goes_on(
    address: str, caught: bool
) -> None:
    lives: list[int] = []

    @gesta.tool(effect="transactional")
    def cut(context: gesta.Context) -> str:
        """Lose the server."""
        context.sql("INSERT INTO rooms VALUES($1)", (len(lives),))
        lives.append(1)
        if len(lives) == 1:
            ((pid,),) = context.sql("SELECT pg_backend_pid()")
            with closing(connect(located(address), readonly=False)) as other:
                other.execute("SELECT pg_terminate_backend($1, 2000)", (pid,))
            try:
                context.sql("INSERT INTO rooms VALUES(7)")
            except psycopg.Error:
                if not caught:
                    raise
        return "booked"

    agent = gesta.Agent("desk", gesta.scripted(gesta.call("cut"), "Done."), tools=[cut])
    async with gesta.open(address) as record:
        with pytest.raises(ServerGone):
            await record.run(agent, "Go.", session="s", key="m")
        assert (await record.store.sql("SELECT * FROM rooms")).rows == []
        assert (await record.run(agent, "Go.", session="s", key="m")).answer == "Done."
        assert (await record.store.sql("SELECT * FROM rooms")).rows == [(1,)]
        assert await record.verify() == []


def test_what_a_tool_did_is_undone_where_its_run_was_lost_meanwhile(address: str) -> None:
    store = InlinePostgresStore.open(address)
    lease = drive(store.lease("lost"))
    drive(store.release(lease))  # as if somebody had taken it while this process stood still

    def work(sql: Statements) -> tuple[Batch, bool]:
        sql("INSERT INTO rooms VALUES($1)", (4711,))
        return Batch(lease, 0, [make_row("lost", 1)]), True

    with pytest.raises(LeaseLost):
        drive(store.transact(TransactionalEffect("lost", work)))
    assert drive(store.sql("SELECT count(*) FROM rooms WHERE room = 4711")).rows == [(0,)]
    drive(store.close())
