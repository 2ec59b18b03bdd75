"""A transactional tool's effect, attempt and result are one commit: at no crash is one of them there without the others."""

import functools
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests import programs

import gesta


@gesta.tool(effect="transactional")
def book(room: int, context: gesta.Context) -> str:
    """Book a room."""
    context.sql("CREATE TABLE IF NOT EXISTS bookings(room INTEGER PRIMARY KEY)")
    context.sql("INSERT INTO bookings VALUES(?)", (room,))
    (count,) = context.sql("SELECT count(*) FROM bookings")[0]
    return f"room {room} is yours; {count} booked"


def desk(*script: Any, tools: tuple[gesta.Tool, ...] = (book,)) -> gesta.Agent:
    return gesta.Agent("desk", model=gesta.scripted(*script), tools=tools)


async def results(record: gesta.Record, run: str) -> list[object]:
    return [entry.content.tool_result for entry in await record.read(run) if entry.kind == "tool-result"]  # type: ignore[union-attr]


@pytest.mark.parametrize("address", [":memory:", "r.gesta"])
async def test_effect_and_result_are_one_commit(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls = gesta.reply(calls=[gesta.call("book", room=1), gesta.call("book", room=2)])
    async with gesta.open(address) as record:
        outcome = await record.run(desk(calls, "Booked."), "Two rooms.", session="s")
        assert outcome.answer == "Booked."
        assert await results(record, outcome.run) == ["room 1 is yours; 1 booked", "room 2 is yours; 2 booked"]
        assert not await record.verify()
    if address != ":memory:":
        with closing(sqlite3.connect(address)) as file:
            assert file.execute("SELECT room FROM bookings").fetchall() == [(1,), (2,)]


async def test_what_a_tool_did_before_it_raised_is_undone_and_the_model_is_told(tmp_path: Path) -> None:
    script = (gesta.call("book", room=1), gesta.call("book", room=1), "Only one.")
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        outcome = await record.run(desk(*script), "Two rooms.", session="s")
        first, second = await results(record, outcome.run)
        assert first == "room 1 is yours; 1 booked"
        assert "ConstraintError" in str(second)
    with closing(sqlite3.connect(tmp_path / "r.gesta")) as file:
        assert file.execute("SELECT count(*) FROM bookings").fetchall() == [(1,)]


STATEMENTS = [
    "COMMIT",
    "ROLLBACK",
    "BEGIN",
    "SAVEPOINT x",
    "RELEASE effect",
    "PRAGMA journal_mode = DELETE",
    "ATTACH 'other.db' AS other",
    "DELETE FROM entries",
    "UPDATE leases SET owner = 'me'",
    "INSERT INTO inbox(run, key, content, at) VALUES('r', 'k', '{}', '')",
    "DROP TABLE blobs",
    "ALTER TABLE entries ADD COLUMN x",
    "CREATE TRIGGER t AFTER INSERT ON entries BEGIN SELECT RAISE(ABORT, 'no'); END",
    "CREATE UNIQUE INDEX i ON entries(kind)",
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("statement", STATEMENTS)
async def test_a_statement_that_would_break_the_commits_of_others_is_refused(statement: str, tmp_path: Path) -> None:
    @gesta.tool(effect="transactional")
    def tamper(context: gesta.Context) -> str:
        """Do harm."""
        context.sql("CREATE TABLE IF NOT EXISTS own(x)")
        context.sql(statement)
        return "done"

    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        agent = desk(gesta.call("tamper"), gesta.call("book", room=1), "Fine.", tools=(tamper, book))
        outcome = await record.run(agent, "Go.", session="s")
        refused, booked = await results(record, outcome.run)
        assert str(refused).startswith("Refused: A transactional tool may not ")
        assert booked == "room 1 is yours; 1 booked"
        assert not await record.verify()


async def test_a_statement_that_takes_too_long_is_broken_off(tmp_path: Path) -> None:
    @gesta.tool(effect="transactional", timeout_s=0.1)
    def count(context: gesta.Context) -> str:
        """Count for ever."""
        context.sql("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n")
        return "done"

    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        outcome = await record.run(desk(gesta.call("count"), "Fine.", tools=(count,)), "Go.", session="s")
        (told,) = await results(record, outcome.run)
        assert "time was up" in str(told)


async def test_sql_is_for_transactional_tools_alone() -> None:
    @gesta.tool(effect="pure")
    def peek(context: gesta.Context) -> str:
        """Look."""
        return str(context.sql("SELECT 1"))

    async with gesta.open() as record:
        outcome = await record.run(desk(gesta.call("peek"), "Fine.", tools=(peek,)), "Go.", session="s")
        (told,) = await results(record, outcome.run)
        assert "effect='transactional'" in str(told)


async def test_a_transactional_tool_that_a_decorator_hides_to_be_async_does_nothing_and_says_so() -> None:
    def plain(function: Any) -> Any:
        @functools.wraps(function)
        def call(context: gesta.Context) -> Any:
            context.sql("CREATE TABLE kept(n)")
            return function(context)

        return call

    @gesta.tool(effect="transactional")
    @plain
    async def later(context: gesta.Context) -> str:
        """Wait."""
        return "done"

    async with gesta.open() as record:
        agent = desk(gesta.call("later"), gesta.call("later"), "Fine.", tools=(later,))
        outcome = await record.run(agent, "Go.", session="s")
        said = "TypeError: later is transactional, and what it returned would have to be awaited"
        assert await results(record, outcome.run) == [said, said]  # the table was not kept


def test_a_transactional_tool_is_a_plain_function() -> None:
    with pytest.raises(gesta.GestaError, match="plain function"):

        @gesta.tool(effect="transactional")
        async def later() -> None:
            """Wait."""


PROGRAM = """
import os, signal, sys
import anyio, gesta

@gesta.tool(effect="transactional")
def book(room: int, context: gesta.Context) -> str:
    "Book a room."
    context.sql("CREATE TABLE IF NOT EXISTS bookings(room INTEGER, at TEXT)")
    context.sql("INSERT INTO bookings VALUES(?, ?)", (room, sys.argv[1]))
    if sys.argv[1] == "inside":
        os.kill(os.getpid(), signal.SIGKILL)
    return "yours"

async def main():
    async with gesta.open("r.gesta") as record:
        if sys.argv[1] == "after":
            whole = record.store.transact
            async def transact(effect):
                await whole(effect)
                os.kill(os.getpid(), signal.SIGKILL)
            record.store.transact = transact
        agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("book", room=1), "Booked."), tools=[book])
        print((await record.run(agent, "A room.", session="s", key="m")).answer)

anyio.run(main)
"""


@pytest.mark.parametrize("when", ["inside", "after"])
def test_killed_inside_or_right_after_its_commit_it_happened_once(when: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    def play(how: str) -> subprocess.CompletedProcess[str]:
        return programs.run(["program.py", how], cwd=tmp_path)

    assert play(when).returncode == -signal.SIGKILL
    again = play("again")
    assert again.stdout == "Booked.\n", again.stderr
    with closing(sqlite3.connect(tmp_path / "r.gesta")) as file:
        assert file.execute("SELECT at FROM bookings").fetchall() == [("after" if when == "after" else "again",)]
        assert file.execute("SELECT count(*) FROM entries WHERE kind = 'tool-result'").fetchall() == [(1,)]
