"""Each row of the table on the page about `verify` is a change that is made here, and found as the row says."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.commands import gesta_command
from tests.docs.test_commands import rows

import gesta
from gesta.codec.chain import link
from gesta.entry import GENESIS, Row
from gesta.kinds import UserContent
from gesta.stores.tables import ROW

PAGE = Path(__file__).parents[2] / "docs/verify.md"
SHOWN = {
    what: (plain, kept) for what, plain, kept in rows(PAGE.read_text(encoding="utf-8"), "test that makes the change.")
}
LARGE = "REJECTED. APPROVED: pay." * 5_000

Change = Callable[[sqlite3.Connection], None] | str


def read(db: sqlite3.Connection, run: str) -> list[Row]:
    return [Row(*row) for row in db.execute(f"SELECT {ROW} FROM entries WHERE run = ? ORDER BY seq", (run,))]


def runs(db: sqlite3.Connection) -> list[str]:
    """The runs by their order: the first one has a blob, the last one is at the end of the record."""
    return [run for (run,) in db.execute("SELECT run FROM entries WHERE seq = 1 ORDER BY pos")]


def add(db: sqlite3.Connection, run: str, at: str) -> None:
    """Add an entry behind the end of a run, with its place in the chain."""
    last = read(db, run)[-1]
    content = '{"kind":"approval","of":2,"verdict":"approved","by":"cfo","sent_at":"2026-01-01T00:00:00Z"}'
    put(db, [replace(last, seq=last.seq + 1, kind="approval", at=at, causes="[]", content=content)], last.digest)


def put(db: sqlite3.Connection, rows: list[Row], before: bytes) -> None:
    for row in rows:
        before = link(before, row)
        values = [getattr(row, name) for name in ROW.split(", ")[:-1]]
        db.execute(f"INSERT INTO entries({ROW}) VALUES({', '.join('?' * 11)})", (*values, before))


def move_text(db: sqlite3.Connection) -> None:
    """Have the annotations hold what was the end of the content, with the same bytes under the digest."""
    ((run,),) = db.execute("SELECT DISTINCT run FROM entries WHERE annotations IS NOT NULL").fetchall()
    noted = next(row for row in read(db, run) if row.annotations)
    text = f"{noted.content}\0{noted.annotations}"
    db.execute("UPDATE entries SET content = ?, annotations = NULL WHERE run = ? AND seq = ?", (text, run, noted.seq))


def forge(db: sqlite3.Connection) -> None:
    """Change the first entry of the last run, and work out the chain anew."""
    run = runs(db)[-1]
    made = read(db, run)
    db.execute("DELETE FROM entries WHERE run = ?", (run,))
    put(db, [replace(row, content=row.content.replace("Good", "Bad.")) for row in made], GENESIS)


def make_up(db: sqlite3.Connection) -> None:
    made = [replace(row, run="0123456789abcdef") for row in read(db, runs(db)[-1])]
    put(db, made, GENESIS)


def swap_places(db: sqlite3.Connection) -> None:
    """The second entries of two runs change places."""
    first, *_, last = runs(db)
    ((one,), (two,)) = (
        db.execute("SELECT pos FROM entries WHERE run = ? AND seq = 2", (run,)).fetchone() for run in (first, last)
    )
    for old, new in ((one, -1), (two, one), (-1, two)):
        db.execute("UPDATE entries SET pos = ? WHERE pos = ?", (new, old))


def swap_runs(db: sqlite3.Connection) -> None:
    """The last two runs, which are of one length, change places."""
    *_, one, two = runs(db)
    first = dict(db.execute("SELECT seq, pos FROM entries WHERE run = ?", (one,)))
    second = dict(db.execute("SELECT seq, pos FROM entries WHERE run = ?", (two,)))
    assert len(first) == len(second)
    db.execute("UPDATE entries SET pos = -pos WHERE run = ?", (one,))
    for seq, pos in first.items():
        db.execute("UPDATE entries SET pos = ? WHERE run = ? AND seq = ?", (pos, two, seq))
        db.execute("UPDATE entries SET pos = ? WHERE run = ? AND seq = ?", (second[seq], one, seq))


def move_salt(db: sqlite3.Connection) -> None:
    for id, salt, data in db.execute("SELECT id, salt, data FROM blobs").fetchall():
        at = data.index(b"APPROVED")
        db.execute("UPDATE blobs SET salt = ?, data = ? WHERE id = ?", (salt + data[:at], data[at:], id))


def last_of(db: sqlite3.Connection, place: int) -> None:
    """Remove the last entry of a run."""
    run = runs(db)[place]
    db.execute("DELETE FROM entries WHERE run = ?1 AND seq = (SELECT max(seq) FROM entries WHERE run = ?1)", (run,))


def without(db: sqlite3.Connection, place: int) -> None:
    db.execute("DELETE FROM entries WHERE run = ?", (runs(db)[place],))
    db.execute("DELETE FROM blobs WHERE run NOT IN (SELECT run FROM entries)")


def text(column: str, value: str, seq: int = 3) -> str:
    return f"UPDATE entries SET {column} = {value} WHERE seq = {seq}"


CHANGES: dict[str, list[Change]] = {
    "a byte of an entry: content, kind, time, span, causes, version, salt": [
        text("content", "content || ' '"),
        text("kind", "'answer'"),
        text("at", "'2020-01-01T00:00:00.000000Z'"),
        text("span", "span + 1"),
        text("causes", "'[1]'"),
        text("version", "1"),
        text("salt", "zeroblob(16)"),
    ],
    "the digest of an entry": [text("digest", "zeroblob(32)")],
    "annotations that were NULL become an empty text": [
        "UPDATE entries SET annotations = '' WHERE annotations IS NULL"
    ],
    "an end of the content is moved into the annotations": [move_text],
    "an entry in the middle of a run is removed": ["DELETE FROM entries WHERE seq = 3"],
    "entries of a run change places": ["UPDATE entries SET seq = 100 - seq WHERE seq IN (3, 4)"],
    "the last entry of a run is removed, and later runs stay": [lambda db: last_of(db, 0)],
    "the last entries of the record are removed": [lambda db: last_of(db, -1)],
    "a run is removed whole, and later runs stay": [lambda db: without(db, 0)],
    "the last run is removed whole": [lambda db: without(db, -1)],
    "entries are changed, and the chain is worked out anew": [forge],
    "a run is made up, with a chain of its own": [make_up],
    "an entry is added behind the end, with a time after the last": [
        lambda db: add(db, runs(db)[-1], "2999-01-01T00:00:00.000000Z")
    ],
    "an entry is added behind the end, with a time before the last": [
        lambda db: add(db, runs(db)[-1], "2020-01-01T00:00:00.000000Z")
    ],
    "an entry changes place with one of another run": [swap_places],
    "two whole runs change places": [swap_runs],
    "a byte of a blob": ["UPDATE blobs SET data = CAST(replace(data, 'REJ', 'rej') AS BLOB)"],
    "a piece of a blob is moved into its salt": [move_salt],
    "a blob is removed": ["DELETE FROM blobs"],
    "a blob is added that no entry names": [
        "INSERT INTO blobs(run, name, salt, data) SELECT run, 'more', salt, data FROM blobs",
        "INSERT INTO blobs(run, name, salt, data) VALUES('nobody', 'more', zeroblob(16), x'')",
    ],
    "the id of the record": ["UPDATE record SET id = hex(zeroblob(16))"],
    "a letter in an inbox is added or changed": [
        "INSERT INTO inbox(run, key, content, at) VALUES('r', 'k', '{}', '2026-01-01T00:00:00.000000Z')"
    ],
    "a letter in an inbox is removed": ["DELETE FROM inbox"],
    "the keys of letters that were taken in": ["INSERT INTO inbox_keys VALUES('r', 'k')"],
    "leases, and processes that are known": [
        "UPDATE leases SET epoch = 9",
        "INSERT INTO owners VALUES('o', 1, 'h', '', '')",
    ],
    "the mark of a copy, who adopted it, when the record was made": [
        "UPDATE record SET mark = 3",
        "UPDATE record SET adopted_by = 'ann'",
        "UPDATE record SET created_at = ''",
    ],
    "a trigger on a table of Gesta's": ["CREATE TRIGGER t AFTER INSERT ON inbox BEGIN SELECT 1; END"],
    "a view of Gesta's is made in other words": ["DROP VIEW costs; CREATE VIEW costs AS SELECT 1"],
    "a view of Gesta's is removed": ["DROP VIEW costs"],
    "an index, a check, a generated column or a foreign key on a table of Gesta's": [
        "CREATE INDEX i ON entries(kind)",
        "CREATE TABLE child(x REFERENCES entries(pos))",
        "ALTER TABLE inbox ADD COLUMN x INTEGER AS (1)",
        "ALTER TABLE inbox ADD COLUMN x INTEGER CHECK (x > 1)",
    ],
    "a table, a view or an index of others is added": [
        "CREATE TABLE mine(a)",
        "CREATE VIEW mine AS SELECT 1",
        "CREATE TABLE mine(a); CREATE INDEX yours ON mine(a)",
    ],
    "rows in a table of a transactional tool": ["INSERT INTO bookings VALUES(9)"],
    "a page of the file is damaged": [],
    "others may read the file, its `-wal`, or a saved copy": [],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """A record of four runs, and its heads."""
    path = tmp_path_factory.mktemp("made") / "r.gesta"

    @gesta.tool(effect="pure")
    def look() -> str:
        """Look."""
        return LARGE

    @gesta.tool(effect="transactional")
    def book(context: gesta.Context) -> str:
        """Book."""
        context.sql("CREATE TABLE bookings(room)")
        return "booked"

    with gesta.open_sync(str(path)) as record:
        calls = gesta.call("look"), gesta.call("book")
        record.run(gesta.Agent("desk", gesta.scripted(*calls, "Done."), tools=[look, book]), "hello", session="a")
        with record.span("app", session="b") as span:
            span.log(UserContent(value="q"), note="kept")
        for session in ("c", "d"):
            record.run(gesta.Agent("desk", gesta.scripted("Good.")), "hello", session=session)
    heads = path.with_name("heads.txt")
    kept = gesta_command("verify", str(path), "--keep", str(heads))
    assert kept.exit_code == 0
    assert kept.stderr == "Of transactional tools, and not looked into: table 'bookings'.\n"
    return path.read_bytes(), heads.read_text(encoding="utf-8")


def private(path: Path, data: bytes) -> None:
    """Write a file for its user alone, as Gesta does."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(data)


def variants() -> Iterator[tuple[str, Change]]:
    for what, changes in CHANGES.items():
        for change in changes:
            yield what, change


def found(*words: str) -> str:
    """What `verify` finds, in the words of the page; the table that the record was made with is not counted."""
    said = gesta_command("verify", "r.gesta", *words)
    if "was not opened" in said.stderr:
        return "not opened"
    notes = said.stderr.replace("Of transactional tools, and not looked into: table 'bookings'.\n", "")
    if said.exit_code:
        return "flaw"
    return "note" if notes else "not at all"


def test_nothing_is_found_where_nothing_was_changed(
    made: tuple[bytes, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    private(Path("r.gesta"), made[0])
    Path("heads.txt").write_text(made[1], encoding="utf-8")
    assert (found(), found("--head", "heads.txt")) == ("not at all", "not at all")


def test_the_page_has_a_row_for_each_change_that_is_tried() -> None:
    assert list(SHOWN) == list(CHANGES)


@pytest.mark.sample(5)
@pytest.mark.filterwarnings("ignore::gesta.errors.SetAside")
@pytest.mark.parametrize(("what", "change"), list(variants()))
def test_a_change_is_found_as_the_page_says(
    what: str, change: Change, made: tuple[bytes, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    private(Path("r.gesta"), made[0])
    Path("heads.txt").write_text(made[1], encoding="utf-8")
    with closing(sqlite3.connect("r.gesta")) as db, db:
        db.executescript(change) if isinstance(change, str) else change(db)
    assert (found(), found("--head", "heads.txt")) == SHOWN[what]


def test_a_damaged_page_is_found_as_the_page_says(
    made: tuple[bytes, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("heads.txt").write_text(made[1], encoding="utf-8")
    Path("whole.gesta").write_bytes(made[0])
    with closing(sqlite3.connect("whole.gesta")) as db:
        ((page,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_entries_1'")
        ((size,),) = db.execute("PRAGMA page_size")
    private(Path("r.gesta"), made[0][: (page - 1) * size] + b"\xff" * size + made[0][page * size :])
    assert (found(), found("--head", "heads.txt")) == SHOWN["a page of the file is damaged"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["r.gesta", "r.gesta-wal", "r.saved.gesta", "r.saved2.gesta", "r.saved.gesta-wal"])
def test_a_file_that_others_may_read_is_named_as_the_page_says(
    name: str, made: tuple[bytes, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    private(Path("r.gesta"), made[0])
    Path("heads.txt").write_text(made[1], encoding="utf-8")
    for other in sorted({name, name.removesuffix("-wal")} - {"r.gesta"}):
        private(Path(other), b"")
    assert found() == "not at all"
    Path(name).chmod(0o640)
    assert (found(), found("--head", "heads.txt")) == SHOWN["others may read the file, its `-wal`, or a saved copy"]
    said = gesta_command("verify", "r.gesta").stderr
    assert f"Other users of this machine may read or write: {name} (mode 0640). Write: chmod 600.\n" in said
