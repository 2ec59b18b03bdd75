"""Laws 9 and 11 over agents drawn by lot: any changed byte is found at its entry, and plain SQL reads a closed record.

And over records that are written, pruned and pushed by lot: a kept head holds until its run is pruned there.
"""

import json
import random
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.conftest import tried
from tests.laws.random_agents import agent
from tests.laws.test_everything import TELLERS, told
from tests.laws.test_evidence import flaws

import gesta
from gesta.address import Record, bind, inline_store
from gesta.bridges.pushing import push
from gesta.codec.chain import link
from gesta.codec.rows import blob_names, decode_content
from gesta.compare.forks import Fork, fork
from gesta.entry import GENESIS, Entry, Row, utc_text
from gesta.errors import RunMirrored
from gesta.integrity.verify import Flaw, Head, audit, heads
from gesta.kinds import KeyValueContent
from gesta.store import Store
from gesta.stores.pruning import Choice, Pruner, plan, prune
from gesta.stores.tables import ROW
from gesta.stores.views import EACH

EXAMPLES = settings(max_examples=tried(1, 3, 200))
FLIPS = tried(6, 12, 12)
"""Bytes that are changed in each record, one at a time."""
LARGE = "é" * 40_000
"""Lies in a blob."""
ENTRY = ("run", "seq", "kind", "at", "span", "causes", "version", "content", "annotations", "salt", "digest")
BLOB = ("run", "name", "salt", "data")
"""Columns in which a byte is changed. Places and ids of rows lie outside of the digests."""

seeds = st.integers(0, 10_000)


@contextmanager
def lived(seed: int) -> Iterator[tuple[Path, list[Head], dict[str, list[Entry]]]]:
    """A closed record of an agent drawn by lot, with a fork; its heads, and the entries of its runs."""
    with tempfile.TemporaryDirectory() as name:
        path, outside, lot = Path(name) / "record" / "r.gesta", Path(name) / "outside", random.Random(seed)
        path.parent.mkdir()
        outside.mkdir()

        async def main() -> tuple[list[Head], dict[str, list[Entry]]]:
            async with gesta.open(str(path), durability="normal") as record:
                reason = "waiting"
                for _ in range(60):
                    reason = (await record.run(agent(seed, outside), f"Begin. {LARGE}", session="s", key="m")).reason
                    if reason != "waiting":
                        break
                    await told(record.store, lot, TELLERS)  # type: ignore[arg-type]
                    await anyio.sleep(0.002)
                assert reason != "waiting"
                base = await record.find("s")
                await fork(record, base, Fork(at=lot.randint(0, base.head)))
                runs = [row.run for row in await record.store.runs()]
                return await record.heads(), {run: await record.read(run) for run in runs}

        yield path, *anyio.run(main)


def check(path: Path, kept: Iterable[Head] = ()) -> list[Flaw]:
    """What `verify` finds."""

    async def main() -> list[Flaw]:
        async with gesta.open(str(path), readonly=True) as record:
            return await record.verify(kept)

    return anyio.run(main)


def other(value: Any, lot: random.Random) -> Any:
    """The same value with one bit or one character changed."""
    if isinstance(value, int):
        return value ^ (1 << lot.randrange(8))
    if isinstance(value, bytes):
        place = lot.randrange(len(value))
        return value[:place] + bytes([value[place] ^ (1 << lot.randrange(8))]) + value[place + 1 :]
    place = lot.randrange(len(value))
    return f"{value[:place]}{lot.choice([c for c in 'aZ09 {é' if c != value[place]])}{value[place + 1 :]}"


def rows_of(db: sqlite3.Connection, run: str) -> list[Row]:
    found = db.execute(f"SELECT {ROW} FROM entries WHERE run = ? ORDER BY seq", (run,))
    return [Row(*row) for row in found]


@EXAMPLES
@given(seeds, seeds)
def test_a_changed_byte_of_any_column_is_found_at_its_entry(seed: int, flips: int) -> None:
    lot = random.Random(flips)  # not Hypothesis's own: ids and times differ from one making of a record to the next
    with lived(seed) as (path, _, _), closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert check(path) == []
        (entries,) = db.execute("SELECT max(pos) FROM entries").fetchone()
        blobs = db.execute("SELECT run, name FROM blobs").fetchall()
        assert blobs
        for number in range(FLIPS):
            key: dict[str, Any] = {"pos": lot.randint(1, entries)}
            table, column = "entries", lot.choice(ENTRY)
            if number % 3 == 0:
                run, name = lot.choice(blobs)
                table, column, key = "blobs", lot.choice(BLOB), {"run": run, "name": name}
            changed_byte(db, path, table, key, column, lot)
        assert check(path) == []


def changed_byte(
    db: sqlite3.Connection, path: Path, table: str, key: dict[str, Any], column: str, lot: random.Random
) -> None:
    """Change a byte, look whether it is found, and put it back."""
    where = " AND ".join(f"{name} = ?" for name in key)
    run, id, value = db.execute(
        f"SELECT run, rowid, {column} FROM {table} WHERE {where}",
        list(key.values()),
    ).fetchone()
    if value is None:
        return
    if table == "entries":
        (seq,) = db.execute("SELECT seq FROM entries WHERE rowid = ?", (id,)).fetchone()
    else:
        seq = next(row.seq for row in rows_of(db, run) if key["name"] in blob_names(row))
    new = other(value, lot)
    try:
        db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, id))
    except sqlite3.Error:
        return  # SQLite itself refuses: two rows of one seq, or no JSON where an index reads it
    every = check(path)
    found = [(flaw.run, flaw.seq) for flaw in every]
    opens = f"entry 1 is missing; the next on record is {seq}"  # what a fork goes on from stands in its first entry
    found += [(run, seq) for flaw in every if (flaw.run, flaw.what) == (run, opens)]
    expected = {(run, seq)}
    if column == "seq":  # it is missed, or stands too early
        expected |= {(run, new), (run, 0)}
    elif (table, column) == ("entries", "run"):  # the last of a run is not missed there, but it fits nowhere else
        expected |= {(new, 1), (new, seq)}
    assert expected & set(found), f"{table}.{column} of {run}.{seq}: {value!r:.80} became {new!r:.80}, found {found}"
    db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, id))


@EXAMPLES
@given(seeds, seeds)
def test_a_cut_tail_a_removed_run_and_a_chain_made_anew_are_found_against_kept_heads(seed: int, spoils: int) -> None:
    lot = random.Random(spoils)
    with lived(seed) as (path, kept, _), closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert check(path, kept) == []
        head = lot.choice(kept)
        for spoil in (cut, removed, made_anew):
            db.execute("BEGIN")
            spoil(db, head, lot)
            db.execute("COMMIT")
            found = {(flaw.run, flaw.seq) for flaw in check(path, kept)}
            assert (head.run, head.seq) in found, spoil.__name__
            before = {(flaw.run, flaw.seq) for flaw in check(path)}
            assert spoil is not made_anew or (head.run, head.seq) not in before, "without heads it looks whole"
            restore(db, path)


def cut(db: sqlite3.Connection, head: Head, lot: random.Random) -> None:
    save(db)
    (first,) = db.execute("SELECT min(seq) FROM entries WHERE run = ?", (head.run,)).fetchone()
    after = lot.randint(first, max(first, head.seq - 1))
    db.execute("DELETE FROM entries WHERE run = ? AND seq > ?", (head.run, min(after, head.seq - 1)))


def removed(db: sqlite3.Connection, head: Head, lot: random.Random) -> None:
    del lot
    save(db)
    db.execute("DELETE FROM entries WHERE run = ?", (head.run,))


def made_anew(db: sqlite3.Connection, head: Head, lot: random.Random) -> None:
    """Change an entry up to the head, and work out the digests of it and of all after it."""
    save(db)
    rows = rows_of(db, head.run)
    changed = lot.randrange(sum(row.seq <= head.seq for row in rows))
    prev = rows[changed - 1].digest if changed else prev_of(rows[0], db)
    for place, row in enumerate(rows[changed:]):
        text = row.content[:-1] + " }" if place == 0 else row.content
        made = replace(row, content=text)
        prev = link(prev, made)
        db.execute(
            "UPDATE entries SET content = ?, digest = ? WHERE run = ? AND seq = ?", (text, prev, row.run, row.seq)
        )


def prev_of(first: Row, db: sqlite3.Connection) -> bytes:
    base = json.loads(first.content)["opened"].get("base")
    return bytes.fromhex(base["digest"]) if base else GENESIS


def save(db: sqlite3.Connection) -> None:
    db.execute("CREATE TEMP TABLE saved AS SELECT * FROM entries")


def restore(db: sqlite3.Connection, path: Path) -> None:
    db.execute("DELETE FROM entries")
    db.execute("INSERT INTO entries SELECT * FROM saved")
    db.execute("DROP TABLE saved")
    assert check(path) == []


class Kept:
    """Heads of a record as they were once, and the runs that were pruned there since."""

    def __init__(self, found: list[Head]) -> None:
        self.heads, self.since = found, set[str]()


async def written(store: Store, session: str, count: int) -> None:
    """Some entries more of a session's run."""
    async with Record(store, bind).span("program", session=session) as span:
        for number in range(count):
            span.log(KeyValueContent(key="number", value=number))


async def shuffled(stores: Sequence[Store], lot: random.Random) -> list[list[Kept]]:
    """Write, prune and push two records by lot; what was kept of each meanwhile."""
    kept: list[list[Kept]] = [[], []]
    for _ in range(lot.randint(8, 20)):
        which, session = lot.randrange(2), lot.choice("ab")
        here, there = stores[which], stores[1 - which]
        match lot.choice(("write", "write", "prune", "push", "move", "keep")):
            case "write":
                with suppress(RunMirrored):  # a run that was pushed here goes on in the other record alone
                    await written(here, session, lot.randint(1, 5))
            case "prune":
                gone = await plan(here, Choice(session=session))
                assert (await prune(here, gone, Pruner(by="ann"))).runs == len(gone.runs)
                for each in kept[which]:
                    each.since |= {row.run for row in gone.runs}
            case "push":
                await push(here, there)
            case "move":
                await push(here, there, moved_by="ann")
            case _:
                kept[which].append(Kept(await heads(here)))
    return [[*every, Kept(await heads(store))] for every, store in zip(kept, stores, strict=True)]


@EXAMPLES
@given(seeds)
def test_a_kept_head_holds_or_a_later_prune_explains_it_and_none_that_was_forged_passes(seed: int) -> None:
    lot = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / "c.gesta", Path(name) / "d.gesta"]

        async def main() -> list[list[Kept]]:
            stores = [inline_store(str(path), durability="normal") for path in paths]
            kept = await shuffled(stores, lot)
            for store, every in zip(stores, kept, strict=True):
                assert await audit(store, *(each.heads for each in every)) == []
                await store.close()
            return kept

        for path, every in zip(paths, anyio.run(main), strict=True):
            for each in every:
                forged(path, each, lot)


def forged(path: Path, kept: Kept, lot: random.Random) -> None:
    """Spoil a run of which a head was kept and which was not pruned since; it is found, whatever else was pruned."""
    held = [head for head in kept.heads if head.run not in kept.since]
    if not held:
        return
    head = lot.choice(held)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for spoil in (cut, removed, made_anew):
            db.execute("BEGIN")
            spoil(db, head, lot)
            db.execute("COMMIT")
            assert head.run in {flaw.run for flaw in check(path, kept.heads)}, spoil.__name__
            restore(db, path)


@pytest.mark.slow
@EXAMPLES
@given(seeds)
def test_what_came_after_the_heads_were_kept_is_let_be(seed: int) -> None:
    with lived(seed) as (path, kept, runs):

        async def more() -> None:
            async with gesta.open(str(path), durability="normal") as record:
                plain = gesta.Agent("desk", model=gesta.scripted("Yes.", stream=False))
                await record.run(plain, "And?", session="t")

        anyio.run(more)
        assert check(path, kept) == []
        assert len(runs) == len(kept)
        assert anyio.run(flaws, path) == []


@EXAMPLES
@given(seeds)
def test_a_closed_record_is_one_file_that_plain_sql_reads(seed: int) -> None:
    with lived(seed) as (path, _, runs):
        assert [file.name for file in path.parent.iterdir()] == ["r.gesta"]
        with closing(sqlite3.connect(path)) as db:
            for run, entries in runs.items():
                own = [entry for entry in entries if entry.pos in places(db, run)]
                assert [read(db, row) for row in rows_of(db, run)] == [said(entry) for entry in own]
            assert [run for (run,) in db.execute("SELECT run FROM runs ORDER BY pos")] == list(runs)
            for view in ("runs", *EACH):
                names = [row[1] for row in db.execute(f"PRAGMA table_info({view})")]
                assert names
                for row in db.execute(f"SELECT * FROM {view}"):
                    assert len(row) == len(names)
        assert [file.name for file in path.parent.iterdir()] == ["r.gesta"], "reading leaves nothing behind"


def places(db: sqlite3.Connection, run: str) -> set[int]:
    return {pos for (pos,) in db.execute("SELECT pos FROM entries WHERE run = ?", (run,))}


def read(db: sqlite3.Connection, row: Row) -> Sequence[Any]:
    """What plain SQL and a JSON decoder read of an entry."""
    blobs = {
        name: db.execute("SELECT data FROM blobs WHERE run = ? AND name = ?", (row.run, name)).fetchone()[0]
        for name in blob_names(row)
    }
    return row.run, row.seq, row.kind, row.at, row.span, json.loads(row.causes), decode_content(row.content, blobs)


def said(entry: Entry) -> Sequence[Any]:
    causes = [cause if isinstance(cause, int) else list(cause) for cause in entry.causes]
    return entry.run, entry.seq, str(entry.kind), utc_text(entry.at), entry.span, causes, entry.content
