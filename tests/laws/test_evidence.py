"""Laws 1, 9 and 11: a changed byte is found at its entry, and any SQLite tool reads a closed record."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

import gesta
from gesta.bridges.jsonl import export_run
from gesta.bridges.pushing import push
from gesta.codec.chain import link
from gesta.entry import Row
from gesta.errors import BrokenRecord, GestaError
from gesta.importers.file import import_file
from gesta.integrity.verify import Flaw, Head, head_of
from gesta.stores.pruning import Choice, Pruner, plan, prune
from gesta.stores.tables import ROW

LARGE = "é" * 100_000


async def made(path: Path) -> str:
    @gesta.tool(effect="pure")
    async def look() -> str:
        """Look."""
        return LARGE

    agent = gesta.Agent("watch", model=gesta.scripted(gesta.call("look"), "seen"), tools=[look])
    async with gesta.open(str(path)) as record:
        return (await record.run(agent, "look", session="s")).run


async def flaws(path: Path, *kept: list[Head]) -> list[Flaw]:
    async with gesta.open(str(path), readonly=True) as record:
        return await record.verify(*kept)


async def said(path: Path, texts: int = 1) -> list[Head]:
    """A conversation goes on; gives all heads."""
    agent = gesta.Agent("desk", model=gesta.scripted(*["Yes."] * texts))
    async with gesta.open(str(path)) as record:
        for number in range(texts):
            await record.run(agent, f"Is it {number}?", session="s")
        return await record.heads()


async def went(path: Path) -> None:
    """The conversation is pruned."""
    async with gesta.open(str(path)) as record:
        assert (await prune(record.store, await plan(record.store, Choice(session="s")), Pruner(by="ann"))).runs == 1


def forge(path: Path, run: str, last: int = 2) -> None:
    """Change the last entries of a run, and work out their digests anew."""
    with closing(sqlite3.connect(path)) as db:
        rows = [Row(*row) for row in db.execute(f"SELECT {ROW} FROM entries WHERE run = ? ORDER BY seq", (run,))]
        before = rows[-last - 1].digest
        for row in rows[-last:]:
            text = row.content[:-1] + " }"
            before = link(before, replace(row, content=text))
            change = "UPDATE entries SET content = ?, digest = ? WHERE run = ? AND seq = ?"
            db.execute(change, (text, before, run, row.seq))
        db.commit()


def spoilt(path: Path, change: str, *values: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(change, values)
        db.commit()


@pytest.mark.sample(3)
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
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change)
    (flaw,) = await flaws(path)
    assert (flaw.run, flaw.seq) == (run, found)


def test_a_closed_record_is_one_file_that_plain_sql_reads(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    run = anyio.run(made, path)
    assert [file.name for file in tmp_path.iterdir()] == ["r.gesta"]
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("SELECT run, session, name, head FROM runs").fetchall() == [(run, "s", "watch", 12)]
        said = "SELECT json_extract(content, '$.value') FROM entries WHERE kind IN ('user', 'assistant') ORDER BY pos"
        assert db.execute(said).fetchall() == [("look",), ("seen",)]
        assert {row[0] for row in db.execute("SELECT typeof(content) FROM entries")} == {"text"}


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


async def test_what_was_pruned_in_another_record_explains_nothing_here(tmp_path: Path) -> None:
    here, there = tmp_path / "c.gesta", tmp_path / "d.gesta"
    (head,) = await said(here, 2)
    for _ in range(2):
        async with gesta.open(str(here)) as source, gesta.open(str(there)) as target:
            await push(source.store, target.store)
        if head in await heads_of(here):
            await went(here)
    kept = await heads_of(there)
    assert len(kept) == 2, "the run, and what the other record says of its own"
    assert await flaws(there, kept) == []
    forge(there, head.run)
    assert await flaws(there) == [], "without heads it looks whole"
    (flaw,) = await flaws(there, kept)
    assert (flaw.run, flaw.seq) == (head.run, head.seq)
    assert flaw.what.endswith("the chain was worked out anew")


async def heads_of(path: Path) -> list[Head]:
    async with gesta.open(str(path), readonly=True) as record:
        return await record.heads()


async def test_a_tombstone_that_stood_there_when_the_heads_were_kept_explains_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    before = await said(path, 4)
    await went(path)
    kept = await said(path)
    (run,) = {head.run for head in before}
    (head,) = [head for head in kept if head.run == run]
    assert await flaws(path, before) == [], "it came after these"
    spoilt(path, "DELETE FROM entries WHERE pos = (SELECT max(pos) FROM entries)")
    what = f"entry {head.seq} is not there any more: the run was cut off before it, or removed"
    assert await flaws(path, kept) == [Flaw(run, head.seq, what, "cut")]
    assert await flaws(path, before) == []
    assert await flaws(path, before, kept) == [Flaw(run, head.seq, what, "cut")], "each time's by themselves"


async def test_a_run_that_was_there_before_the_tombstone_was_not_what_went(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    kept = await said(path, 2)
    await went(path)
    await said(path)
    assert await flaws(path, kept) == []
    spoilt(path, "UPDATE entries SET pos = -pos")
    spoilt(path, "UPDATE entries SET pos = (SELECT 1 - min(pos) FROM entries) + pos")  # the tombstone comes last
    assert kept[0].run in {flaw.run for flaw in await flaws(path, kept)}


BAD_BYTE = "UPDATE entries SET content = CAST(x'7bff7d' AS TEXT) WHERE kind = 'key-value' AND run = ?"


async def test_a_changed_byte_in_what_says_what_was_pruned_is_a_flaw_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    (head,) = await said(path)
    await went(path)
    (own,) = await heads_of(path)
    assert await flaws(path, [head]) == []
    spoilt(path, BAD_BYTE, own.run)
    for kept in ([], [head], [head, own]):
        found = await flaws(path, kept)
        assert {flaw.run for flaw in found} == {"", own.run} | ({head.run} if head in kept else set())
        told = [flaw.what.partition(":")[0] for flaw in found if flaw.run == own.run]
        assert told in (
            [f"entry {own.seq} (key-value) does not match its digest"],
            ["entry 2 (key-value) does not match its digest"],
        )


async def test_a_changed_byte_in_what_describes_the_tables_is_refused_at_opening(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    await said(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = CAST(sql || x'202d2dff' AS TEXT) WHERE type = 'view'")
        db.commit()
    with pytest.raises(BrokenRecord, match=r"what describes its tables is not text\. Nothing was changed"):
        await flaws(path)


def test_a_head_has_a_seq_that_a_record_can_have() -> None:
    digest = "0" * 64
    assert head_of(f"r.12:{digest}") == Head("r", 12, digest)
    assert head_of(f"a.b.{10**18 - 1}:{digest}") == Head("a.b", 10**18 - 1, digest)
    for seq in ("0", "012", str(10**18), "99999999999999999999", "1٣", "-1", ""):
        assert head_of(f"r.{seq}:{digest}") is None


async def test_a_piece_of_a_blob_that_was_moved_into_its_salt_is_read_and_carried_by_nobody(tmp_path: Path) -> None:
    path, other = tmp_path / "r.gesta", tmp_path / "other.gesta"
    run = await made(path)
    with closing(sqlite3.connect(path)) as db, db:
        ((whole, salt),) = db.execute("SELECT data, salt FROM blobs").fetchall()
        db.execute("UPDATE blobs SET salt = ?, data = ?", (salt + whole[:9], whole[9:]))
    words = "was changed: its salt has 25 bytes, expected 16"
    async with gesta.open(str(path)) as record, gesta.open(str(other)) as target:
        with pytest.raises(BrokenRecord, match=words):
            await record.read(run)
        with pytest.raises(BrokenRecord, match=words):
            _ = [line async for line in export_run(record, run)]
        with pytest.raises(BrokenRecord, match=words):
            await push(record.store, target.store)


async def test_a_blob_in_a_file_of_lines_has_a_salt_of_16_bytes(tmp_path: Path) -> None:
    path, lines = tmp_path / "r.gesta", tmp_path / "r.jsonl"
    run = await made(path)
    async with gesta.open(str(path)) as record:
        text = "".join([line async for line in export_run(record, run)])
    (blob,) = (line for line in text.splitlines() if '"blob":' in line[:80])
    found = json.loads(blob)
    moved = found | {"salt": found["salt"] + found["text"][0].encode().hex(), "text": found["text"][1:]}
    lines.write_text(text.replace(blob, json.dumps(moved, ensure_ascii=False, separators=(",", ":"))), encoding="utf-8")
    async with gesta.open(str(tmp_path / "new.gesta")) as record:
        with pytest.raises(GestaError, match="does not match its name"):
            await import_file(record, str(lines), None, lambda _: None)
