"""The three roles of the page about PostgreSQL: what each may do, tried by what each does, against a server."""

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.postgres import Server

import gesta
from gesta.errors import RecordError, WriteFailed
from gesta.kinds import ApprovalContent, SignalContent, ToolResultContent
from gesta.stores.pruning import Choice, Pruner, plan, prune

pytestmark = pytest.mark.sample(2, over="parent")

PAGE = (Path(__file__).parents[2] / "docs" / "postgres.md").read_text().split("## Three roles\n")[1]
FIRST, SECOND = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)[:2]


class Roles:
    """A record that was made as the page says, by names of its own."""

    def __init__(self, server: Server) -> None:
        self.server, self.name = server, "g" + uuid4().hex[:12]

    def sql(self, text: str) -> str:
        return (
            text.replace("gesta_", f"{self.name}_")
            .replace("SCHEMA gesta", f"SCHEMA {self.name}")
            .replace("gesta.", f"{self.name}.")
        )

    def address(self, role: str) -> str:
        user = role if role == "postgres" else f"{self.name}_{role}"
        return f"postgresql://{user}@/postgres?host={self.server.folder}&schema={self.name}"

    def carry_out(self, role: str, text: str) -> list[Any]:
        with psycopg.connect(self.address(role).partition("&schema")[0], autocommit=True) as connection:
            cursor = connection.execute(self.sql(text))
            return cursor.fetchall() if cursor.description is not None else []


@pytest.fixture
async def roles(postgres: Server) -> Roles:
    found = Roles(postgres)
    found.carry_out("postgres", FIRST)
    async with gesta.open(found.address("owner")):
        pass
    found.carry_out("owner", SECOND)
    return found


@gesta.tool(effect="once", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@gesta.tool(effect="transactional")
def book(context: gesta.Context, room: int) -> str:
    """Book a room."""
    context.sql("INSERT INTO rooms VALUES($1)", [room])
    return "booked"


@gesta.tool(effect="transactional")
def erase(context: gesta.Context) -> str:
    """Erase the record."""
    context.sql("DELETE FROM entries")
    return "erased"


async def paid(record: gesta.Record, session: str) -> str:
    """A run that waits for an approval, is approved and resumed, and says how it ended."""
    agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", amount=5), "Paid."), tools=[pay])
    first = await record.run(agent, "Pay. " + "x" * 100_000, session=session)
    of = first.waiting[0].of
    assert of is not None
    await record.send(first.run, ApprovalContent(of=of, verdict="approved", by="ann"), key="one")
    return str((await record.resume(first.run, agent)).answer)


async def test_a_writer_runs_approves_resumes_cancels_and_books(roles: Roles) -> None:
    roles.carry_out("owner", "CREATE TABLE gesta.rooms(room INTEGER PRIMARY KEY)")
    roles.carry_out("owner", "GRANT SELECT, INSERT ON gesta.rooms TO gesta_writer")
    said: list[Any] = [gesta.call("book", room=7), gesta.call("erase"), "Booked."]
    agent = gesta.Agent("hotel", model=gesta.scripted(*said), tools=[book, erase])
    async with gesta.open(roles.address("writer")) as record:
        assert await paid(record, "a") == "Paid."
        outcome = await record.run(agent, "Book room 7.", session="b")
        desk = gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", amount=1), "No."), tools=[pay])
        waiting = await record.run(desk, "Pay", session="c")
        await record.send(waiting.run, SignalContent(name="cancel", by="ann"), key="c")
        assert (await record.resume(waiting.run, desk)).reason == "cancelled"
        results = [
            each.content for each in await record.read(outcome.run) if isinstance(each.content, ToolResultContent)
        ]
        assert [each.tool_result for each in results][:1] == ["booked"]
        assert "a table of Gesta's own" in str(results[1].tool_result) or "permission" in str(results[1].tool_result)
        assert (outcome.answer, waiting.reason) == ("Booked.", "waiting")
        assert await record.verify() == []
    assert roles.carry_out("owner", "SELECT room FROM gesta.rooms") == [(7,)]


@pytest.mark.parametrize("role", ["writer", "reader"])
async def test_nobody_but_the_owner_changes_or_deletes_what_is_on_record(roles: Roles, role: str) -> None:
    async with gesta.open(roles.address("owner")) as record:
        assert await paid(record, "a") == "Paid."
    before = roles.carry_out("owner", "SELECT count(*) FROM gesta.entries")
    for table in ("entries", "blobs", "record", "inbox_keys"):
        for text in (f"DELETE FROM gesta.{table}", f"TRUNCATE gesta.{table}", f"DROP TABLE gesta.{table}"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                roles.carry_out(role, text)
    for text in (
        "UPDATE gesta.entries SET content = '{}'",
        "UPDATE gesta.blobs SET data = ''",
        "UPDATE gesta.record SET id = 'x'",
        "ALTER TABLE gesta.entries DROP COLUMN digest",
        "CREATE TRIGGER t AFTER INSERT ON gesta.entries EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE TABLE gesta.mine(x int)",
        "DROP VIEW gesta.runs",
        "CREATE RULE r AS ON INSERT TO gesta.entries DO INSTEAD NOTHING",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.carry_out(role, text)
    assert roles.carry_out("owner", "SELECT count(*) FROM gesta.entries") == before


async def test_a_reader_reads_and_writes_nothing(roles: Roles) -> None:
    async with gesta.open(roles.address("owner")) as record:
        assert await paid(record, "a") == "Paid."
    async with gesta.open(roles.address("reader"), readonly=True) as record:
        (run,) = await record.store.runs("a")
        assert len(await record.read(run.run)) > 5
        assert await record.verify() == []
        assert (await record.store.sql("SELECT count(*) FROM runs")).rows == [(1,)]
    with pytest.raises(WriteFailed, match="this user has no right to it"):
        async with gesta.open(roles.address("reader")) as record:
            await record.run(gesta.Agent("a", model=gesta.scripted("Hi")), "Hi")
    for table in ("entries", "blobs", "inbox", "inbox_keys", "owners", "leases", "record"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.carry_out("reader", f"INSERT INTO gesta.{table} DEFAULT VALUES")


async def test_the_owner_alone_prunes_and_migrates(roles: Roles) -> None:
    async with gesta.open(roles.address("writer")) as record:
        assert await paid(record, "a") == "Paid."
        with pytest.raises(WriteFailed, match="this user has no right to it"):
            await prune(record.store, await plan(record.store, Choice(session="a")), Pruner(by="app"))
        assert len(await record.store.runs("a")) == 1
        assert await record.verify() == []
    roles.carry_out("owner", "UPDATE gesta.record SET format = 1")
    with pytest.raises(RecordError, match="this user has no right to it"):
        async with gesta.open(roles.address("writer")):
            pass
    async with gesta.open(roles.address("owner")) as record:
        gone = await prune(record.store, await plan(record.store, Choice(session="a")), Pruner(by="ann"))
        await record.store.shrink()
    assert gone.runs == 1
    async with gesta.open(roles.address("writer")) as record:
        assert await paid(record, "b") == "Paid."


async def test_a_record_whose_views_were_put_anew_is_still_read_by_readers(roles: Roles) -> None:
    roles.carry_out("owner", "UPDATE gesta.record SET views = 'old'")
    async with gesta.open(roles.address("writer")) as record:  # may not put them, and goes on with the old ones
        assert await paid(record, "a") == "Paid."
    async with gesta.open(roles.address("owner")):
        pass
    async with gesta.open(roles.address("reader"), readonly=True) as record:
        assert (await record.store.sql("SELECT count(*) FROM runs")).rows == [(1,)]
