"""A transactional tool's tables in PostgreSQL: the same promise as in a file."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.postgres import Server, running

import gesta
from gesta.stores.postgres_effects import refusal


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as started:
        yield started


@gesta.tool(effect="transactional")
def book(room: int, context: gesta.Context) -> str:
    """Book a room."""
    context.sql("CREATE TABLE IF NOT EXISTS bookings(room INTEGER PRIMARY KEY)")
    context.sql("INSERT INTO bookings VALUES($1)", (room,))
    return f"{context.sql('SELECT count(*) FROM bookings')[0][0]} booked"


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


async def test_effect_and_result_are_one_commit_and_what_failed_is_undone(server: Server) -> None:
    calls = [gesta.call("book", room=1), gesta.call("book", room=1), gesta.call("wait"), gesta.call("tamper")]
    agent = gesta.Agent("desk", gesta.scripted(*calls, "Done."), tools=[book, wait, tamper])
    place = server.address()
    async with gesta.open(place) as record:
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
        assert (await record.store.sql("SELECT count(*) FROM bookings")).rows == [(1,)]


@pytest.mark.parametrize(
    "statement",
    [
        *("COMMIT", " rollback", "/* x */ BEGIN", "SET search_path = x", "SELECT 1; COMMIT", "DO $$ begin end $$"),
        *("UPDATE leases SET epoch = 9", "DROP TABLE blobs", "CREATE TRIGGER t AFTER INSERT ON entries EXECUTE f()"),
        *("WITH x AS (DELETE FROM entries RETURNING 1) SELECT * FROM x", "LOCK TABLE own"),
    ],
)
def test_what_would_break_the_commits_of_others_is_refused(statement: str) -> None:
    assert refusal(statement) is not None


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO own VALUES('COMMIT; entries')", "SELECT * FROM entries", "CREATE TABLE own(x)", "DELETE FROM own;"],
)
def test_what_concerns_its_own_tables_is_not(statement: str) -> None:
    assert refusal(statement) is None


async def test_a_lost_connection_inside_an_effect_leaves_nothing(server: Server) -> None:
    place = server.address()

    @gesta.tool(effect="transactional")
    def cut(context: gesta.Context) -> str:
        """Lose the server."""
        context.sql("CREATE TABLE lost(x INTEGER)")
        ((pid,),) = context.sql("SELECT pg_backend_pid()")
        with psycopg.connect(place.partition("&schema=")[0], autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        context.sql("INSERT INTO lost VALUES(1)")
        return "never"

    agent = gesta.Agent("desk", gesta.scripted(gesta.call("cut"), "Done."), tools=[cut])
    async with gesta.open(place) as record:
        with pytest.raises(gesta.GestaError):
            await record.run(agent, "Go.", session="s", key="m")
    async with gesta.open(place) as record:
        tables = (await record.store.sql("SELECT tablename FROM pg_tables WHERE tablename = 'lost'")).rows
        assert tables == []
