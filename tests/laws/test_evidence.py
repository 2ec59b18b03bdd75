"""Laws 1, 9 and 11: a changed byte is found at its entry, and any SQLite tool reads a closed record."""

import sqlite3
from pathlib import Path

import anyio
import pytest

import gesta
from gesta.audit import Flaw

LARGE = "é" * 100_000


async def made(path: Path) -> str:
    @gesta.tool(effect="pure")
    async def look() -> str:
        """Look."""
        return LARGE

    agent = gesta.Agent("watch", model=gesta.scripted(gesta.call("look"), "seen"), tools=[look])
    async with gesta.open(str(path)) as record:
        return (await record.run(agent, "look", session="s")).run


async def flaws(path: Path) -> list[Flaw]:
    async with gesta.open(str(path), readonly=True) as record:
        return await record.verify()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE entries SET content = replace(content, 'look', 'loot') WHERE seq = 2", 2),
        ("UPDATE entries SET at = '2020-01-01T00:00:00.000000Z' WHERE seq = 3", 3),
        ("UPDATE entries SET causes = '[1]' WHERE seq = 6", 6),
        ("UPDATE entries SET span = 2 WHERE seq = 4", 4),
        ("UPDATE entries SET kind = 'system' WHERE seq = 2", 2),
        ("UPDATE entries SET annotations = '{}' WHERE seq = 2", 2),
        ("UPDATE entries SET salt = zeroblob(16) WHERE seq = 5", 5),
        ("UPDATE entries SET digest = zeroblob(32) WHERE seq = 7", 7),
        ("DELETE FROM entries WHERE seq = 5", 5),
        ("UPDATE entries SET seq = 100 - seq WHERE seq IN (5, 6)", 5),
        ("UPDATE blobs SET data = zeroblob(3)", 8),
        ("DELETE FROM blobs", 8),
    ],
)
async def test_a_change_is_found_at_its_entry(change: str, found: int, tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    run = await made(path)
    assert await flaws(path) == []
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()
    (flaw,) = await flaws(path)
    assert (flaw.run, flaw.seq) == (run, found)


def test_a_closed_record_is_one_file_that_plain_sql_reads(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    run = anyio.run(made, path)
    assert [file.name for file in tmp_path.iterdir()] == ["r.gesta"]
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT run, session, name, head FROM runs").fetchall() == [(run, "s", "watch", 12)]
        said = "SELECT json_extract(content, '$.value') FROM entries WHERE kind IN ('user', 'assistant') ORDER BY pos"
        assert db.execute(said).fetchall() == [("look",), ("seen",)]
        assert {row[0] for row in db.execute("SELECT typeof(content) FROM entries")} == {"text"}
    db.close()


async def test_entries_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    run = await made(path)
    async with gesta.open(str(path)) as record:
        first, second = await record.read(run), await record.read(run)
        assert first == second
        assert [entry.seq for entry in first] == list(range(1, 13))
        async for page in record.store.tail():
            assert [row.seq for row in page] == [entry.seq for entry in first]
            break
