"""A record of another's making runs nothing of its own, in any command and through any door of the library."""

import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest
from tests.commands import anew
from tests.conftest import sampled
from tests.otlp_receiver import receiving

import gesta
from gesta.address import drive
from gesta.cli import application
from gesta.cli.app import VERBS
from gesta.entry import Entry
from gesta.errors import BrokenRecord, ForeignObjects, SetAside
from gesta.kinds import ToolResultContent
from gesta.stores import sqlite_door
from gesta.stores.sqlite import InlineSqliteStore
from gesta.stores.sqlite_backup import backup
from gesta.stores.sqlite_door import Object, examined, heading
from gesta.stores.sqlite_open import connect_reading
from gesta.stores.tables import MIGRATIONS, TABLES, WORDS
from gesta.stores.words import Wanted, find

pytestmark = pytest.mark.sample(2, over="parent")

AGENT = """
import gesta

@gesta.tool(effect="once", approval=True)
def pay(amount: int) -> str:
    \"\"\"Pay.\"\"\"
    open("paid", "a").write("x")
    return "paid"

agent = gesta.Agent("desk", model=gesta.scripted("done"), tools=[pay])
"""
OVERFLOW = "abs(-9223372036854775808)"  # an error, whenever it is worked out
ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x"
BECOMES_TABLE = """PRAGMA writable_schema = ON;
UPDATE sqlite_master SET sql = {} WHERE name = {!r};
PRAGMA writable_schema = RESET"""


def changed(name: str, old: str, new: str) -> str:
    """SQL that changes the text of something in the schema."""
    return BECOMES_TABLE.format(f"replace(sql, '{old}', '{new}')", name)


ASIDE = {
    "a trigger on letters": "CREATE TRIGGER t AFTER INSERT ON inbox BEGIN INSERT INTO ran VALUES('t'); END",
    "a trigger on entries": "CREATE TRIGGER t AFTER INSERT ON entries BEGIN INSERT INTO ran VALUES('t'); END",
    "triggers on leases": """CREATE TRIGGER t AFTER UPDATE ON leases BEGIN INSERT INTO ran VALUES('t'); END;
        CREATE TRIGGER u BEFORE INSERT ON leases BEGIN INSERT INTO ran VALUES('t'); END""",
    "a trigger on the record": "CREATE TRIGGER t AFTER UPDATE ON record BEGIN INSERT INTO ran VALUES('t'); END",
    "triggers on what is pruned": """CREATE TRIGGER t AFTER DELETE ON entries BEGIN INSERT INTO ran VALUES('t'); END;
        CREATE TRIGGER u AFTER DELETE ON inbox_keys BEGIN INSERT INTO ran VALUES('t'); END""",
    "an endless view of runs": f"DROP VIEW runs; CREATE VIEW runs AS {ENDLESS} AS run FROM r WHERE x < 0",
    "an endless view of spans": f"DROP VIEW spans; CREATE VIEW spans AS {ENDLESS} AS run FROM r WHERE x < 0",
    "a view in other words": "DROP VIEW doubts; CREATE VIEW Doubts AS SELECT 1 AS run",
}
REFUSED = {
    "an index on entries": f"CREATE INDEX i ON entries(coalesce(length(content), {OVERFLOW}))",
    "an index that is hidden": f"CREATE INDEX i /* ON ran(x) */ ON 'blobs'(coalesce(salt, {OVERFLOW}))",
    "a foreign key": "CREATE TABLE child(pos INTEGER REFERENCES entries(pos) ON DELETE CASCADE)",
    "a foreign key of a column": 'CREATE TABLE child(a, FOREIGN KEY (a) REFERENCES "Inbox"(id) ON DELETE SET NULL)',
    "a check": changed("inbox", "key TEXT NOT NULL", f"key TEXT NOT NULL CHECK (length(key) < {OVERFLOW})"),
    "a default": changed("leases", "mirror_of TEXT", f"mirror_of TEXT DEFAULT ({OVERFLOW})"),
    "a generated column": changed("entries", "annotations TEXT", f"annotations TEXT AS ({OVERFLOW})"),
    "a view for a table": f"ALTER TABLE inbox RENAME TO box; CREATE VIEW inbox AS {ENDLESS} AS run FROM r",
    "an index in other words": f"DROP INDEX inbox_run; CREATE INDEX inbox_run ON inbox(run, coalesce(key, {OVERFLOW}))",
    "no index": "DROP INDEX opened",
    "an index of words": f"CREATE VIEW gesta_words AS {ENDLESS} AS text FROM r",
    "shadow tables": f"CREATE VIEW gesta_words_config AS {ENDLESS} AS k FROM r",
    "the name of a function": "CREATE TABLE json_each(key, type, value)",
}
BESIDE = {
    "a table": "CREATE TABLE mine(a)",
    "a table that is checked": f"CREATE TABLE mine(a CHECK (a < 1 OR {OVERFLOW})); PRAGMA ignore_check_constraints = ON;"
    "INSERT INTO mine VALUES(7)",
    "a generated column": f"CREATE TABLE mine(a); INSERT INTO mine VALUES(7); ALTER TABLE mine ADD COLUMN b AS ({OVERFLOW})",
    "a trigger on a table": "CREATE TABLE mine(a); CREATE TRIGGER t AFTER INSERT ON mine BEGIN INSERT INTO ran VALUES(1); END",
    "an endless view": f"CREATE VIEW mine AS {ENDLESS} AS a FROM r",
    "an index of a backup tool": "CREATE TABLE _litestream_seq(id INTEGER PRIMARY KEY, seq INTEGER)",
    "a full-text index": "CREATE VIRTUAL TABLE mine USING fts5(text); INSERT INTO mine VALUES('word')",
    "statistics": "ANALYZE",
}
COMMANDS = {
    "demo": "demo --yes --record sent.gesta",
    "run": "run agent.py:agent hello --record sent.gesta",
    "resume": "resume last agent.py:agent --record sent.gesta",
    "work": "work agent.py:agent --once --record sent.gesta",
    "serve": "serve agent.py:agent --host 192.0.2.1 --record sent.gesta",  # nobody has that address, so it ends
    "approve": "approve last --deny --record sent.gesta",
    "answer": "answer last yes --record sent.gesta",
    "resolve": "resolve last done --record sent.gesta",
    "cancel": "cancel last --record sent.gesta",
    "sessions": "sessions hello --record sent.gesta",
    "runs": "runs --size --record sent.gesta",
    "log": "log last --record sent.gesta",
    "show": "show last 1 --record sent.gesta",
    "why": "why last --record sent.gesta",
    "find": "find hello --record sent.gesta",
    "stats": "stats --record sent.gesta",
    "sql": "sql 'SELECT * FROM tool_invocations, runs' --record sent.gesta",
    "replay": "replay last agent.py:agent --record sent.gesta",
    "fork": "fork last agent.py:agent --at 2 --record sent.gesta",
    "diff": "diff last last --record sent.gesta",
    "case": "case add last agent.py:agent --record sent.gesta",
    "import": "import runs.jsonl --record sent.gesta",
    "export": "export --all -o out.jsonl --record sent.gesta",
    "push": "push sent.gesta other.gesta",
    "push into": "push whole.gesta sent.gesta",
    "push --move": "push --move sent.gesta other.gesta",
    "backup": "backup copy.gesta --record sent.gesta",
    "adopt": "adopt --yes --by ann --record sent.gesta",
    "gone": "gone --record sent.gesta",
    "prune": "prune --before 0m --yes --record sent.gesta",
    "hold": "hold last --record sent.gesta",
    "verify": "verify sent.gesta",
    "repair": "repair sent.gesta",
    "view": "view sent.gesta --host 192.0.2.1 --no-open",  # the same
    "trace": "trace sent.gesta --once --place place",
    "models": "models",
    "catalog": "catalog .",
}


@pytest.fixture(autouse=True)
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bytes, receiver: str, request: pytest.FixtureRequest
) -> Path:
    """A folder with a record that is to be spoilt, one that is not, an agent and a file to import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GESTA_TOKEN", "a-token-of-a-server-2718281828")
    if "[serve]" not in request.node.name:  # it ends at once, and would wait for the receiver
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver)
    for name in ("sent.gesta", "whole.gesta"):
        Path(name).write_bytes(whole)
    Path("agent.py").write_text(AGENT, encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    """Return the address of a receiver of traces."""
    with receiving() as opened:
        yield opened.address


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A record with a run that is done, one that waits, a letter, and a table beside."""
    path = tmp_path_factory.mktemp("whole") / "whole.gesta"

    @gesta.tool(effect="once", approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError

    with gesta.open_sync(str(path)) as record:
        record.run(gesta.Agent("desk", model=gesta.scripted("Hello.")), "hello", session="a")
        asked = record.run(gesta.Agent("desk", model=gesta.scripted(gesta.call("pay", amount=5)), tools=[pay]), "pay")
        assert asked.waiting
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE ran(x)")
    return path.read_bytes()


def spoil(sql: str, path: str = "sent.gesta") -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(sql)


def beside(sql: str) -> None:
    """Change a record that is open in this process."""
    with closing(apsw.Connection("sent.gesta")) as db:
        db.execute(sql)


def nothing_ran() -> bool:
    """Whether no trigger wrote down that it ran, and nobody paid."""
    with closing(sqlite3.connect("sent.gesta")) as db:
        return db.execute("SELECT count(*) FROM main.ran").fetchall() == [(0,)] and not Path("paid").exists()


NO_READERS = ("models", "catalog", "repair")
"""They read no record, or read it by themselves."""


def words_of(command: str) -> list[str]:
    return shlex.split(COMMANDS[command])


def test_every_command_is_tried() -> None:
    application()
    assert {verb for verbs in VERBS.values() for verb in verbs} == {command.split()[0] for command in COMMANDS}


@pytest.mark.sample(5)
@pytest.mark.filterwarnings("ignore::gesta.errors.SetAside")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_no_trigger_and_reads_no_view_of_the_file(command: str) -> None:
    if command == "import":
        assert anew("export", "--all", "-o", "runs.jsonl", "--record", "whole.gesta").exit_code == 0
    plain = anew(*words_of(command))
    for kind, sql in sampled(ASIDE.items(), 6, [*COMMANDS].index(command)):
        for made in ("other.gesta", "copy.gesta", "out.jsonl", "paid", "place"):
            Path(made).unlink(missing_ok=True)
        Path("sent.gesta").write_bytes(whole_of())
        spoil(sql)
        found = anew(*words_of(command))
        if command == "repair":
            assert found.exit_code == 2
        elif command == "verify":
            assert found.exit_code == 1
            assert "is not of Gesta's making; nothing uses it" in found.output
        else:
            assert found.exit_code == plain.exit_code, (kind, found.output)
        assert command in NO_READERS or "Set aside in" in found.stderr, kind
        assert nothing_ran(), kind


def whole_of() -> bytes:
    return Path("whole.gesta").read_bytes()


@pytest.mark.sample(4)
@pytest.mark.parametrize("command", [each for each in COMMANDS if each not in NO_READERS])
def test_a_command_does_not_open_what_would_run_by_itself(command: str) -> None:
    if command == "import":
        assert anew("export", "--all", "-o", "runs.jsonl", "--record", "whole.gesta").exit_code == 0
    for kind, sql in sampled(REFUSED.items(), 5, [*COMMANDS].index(command)):
        Path("sent.gesta").write_bytes(whole_of())
        spoil(sql)
        before = Path("sent.gesta").read_bytes()
        found = anew(*words_of(command))
        assert found.exit_code == 1, (kind, found.output)
        assert "was not opened. It holds what no release of Gesta makes" in found.stderr, (kind, found.output)
        assert "Nothing of it ran. `gesta repair" in found.stderr
        assert Path("sent.gesta").read_bytes() == before, kind


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", BESIDE)
def test_what_stands_beside_is_named_and_not_looked_into(kind: str) -> None:
    spoil(BESIDE[kind])
    found = anew("verify", "sent.gesta")
    assert found.exit_code == 0, found.output
    assert "nothing was changed" in found.stdout
    named = "Not of Gesta's making, and not looked into: table 'ran'"
    assert named in found.stderr
    assert ("mine" in found.stderr or "_litestream_seq" in found.stderr) is (kind != "statistics")
    for command in sampled(COMMANDS, 4, [*BESIDE].index(kind)):
        if command not in ("import", "verify", "demo", "adopt"):
            anew(*words_of(command))
    assert nothing_ran()
    assert anew("verify", "sent.gesta").exit_code == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", [*ASIDE, *REFUSED])
def test_repair_shows_what_it_takes_out_and_mends_all_but_tables(kind: str) -> None:
    spoil((ASIDE | REFUSED)[kind])
    before = Path("sent.gesta").read_bytes()
    shown = anew("repair", "sent.gesta")
    assert Path("sent.gesta").read_bytes() == before, "looking changes nothing"
    done = anew("repair", "sent.gesta", "--yes")
    assert nothing_ran()
    if done.exit_code == 0:
        assert shown.exit_code == 2
        assert "Nothing was changed: add --yes." in shown.stderr
        found = anew("verify", "sent.gesta")
        assert (found.exit_code, "Set aside" in found.output) == (0, False), found.output
        assert anew("repair", "sent.gesta").stdout == "Nothing is to be repaired.\n"
        assert len(anew("runs", "--json", "--record", "sent.gesta").stdout.splitlines()) == 2
    else:
        assert (done.exit_code, "Left as it is:" in done.stderr) == (1, True), done.output
        assert kind in REFUSED


MENDED = {"an index on entries", "an index that is hidden", "an index in other words", "no index", "an index of words"}


@pytest.mark.parametrize("kind", sorted(MENDED))
def test_repair_mends_indexes(kind: str) -> None:
    spoil(REFUSED[kind])
    assert anew("repair", "sent.gesta", "--yes").exit_code == 0


def test_repair_tells_in_json_what_it_took_out() -> None:
    spoil(ASIDE["a trigger on letters"])
    assert (
        '"name": "t", "on": "inbox", "sql": "CREATE TRIGGER t' in anew("repair", "sent.gesta", "--yes", "--json").stdout
    )
    assert anew("repair", "--record", "sent.gesta", "--json").stdout == '{"removed": [], "made": [], "left": []}\n'


def test_repair_of_what_is_no_record_changes_nothing() -> None:
    Path("mine.db").touch()
    for name in ("mine.db", "agent.py"):
        assert anew("repair", name).exit_code == 1
    assert anew("repair", "nothing.gesta").exit_code == 2
    assert "is repaired there" in anew("repair", "postgresql://ann@localhost/shop").stderr


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", REFUSED)
def test_every_door_of_the_library_refuses_it(kind: str) -> None:
    spoil(REFUSED[kind])
    before = Path("sent.gesta").read_bytes()
    for readonly in (False, True):
        with pytest.raises(ForeignObjects):
            InlineSqliteStore.open("sent.gesta", readonly=readonly)
        with pytest.raises(ForeignObjects), gesta.open_sync("sent.gesta", readonly=readonly):
            pass
    with pytest.raises(ForeignObjects):
        backup("sent.gesta", "copy.gesta")
    with pytest.raises(ForeignObjects):
        connect_reading(Path("sent.gesta").resolve(), still=True)
    assert Path("sent.gesta").read_bytes() == before


def test_a_trigger_that_comes_while_a_record_is_open_does_not_run() -> None:
    with gesta.open_sync("sent.gesta") as record:
        beside(ASIDE["a trigger on entries"])
        beside(ASIDE["an endless view of runs"])
        record.run(gesta.Agent("desk", model=gesta.scripted("Yes.")), "again", session="b")
    assert nothing_ran()


async def test_the_index_of_words_goes_through_the_same_door() -> None:
    async with gesta.open("sent.gesta") as record:
        beside("CREATE INDEX i ON entries(kind)")
        with pytest.raises(ForeignObjects):
            await find(record.store, Wanted(words="hello"), keep_from=0)


def test_text_in_another_encoding_is_refused() -> None:
    with closing(sqlite3.connect("wide.gesta")) as wide, closing(sqlite3.connect("sent.gesta")) as db:
        wide.execute("PRAGMA encoding = 'UTF-16le'")
        wide.executescript("\n".join(line for line in db.iterdump() if "sqlite_sequence" not in line))
        wide.executescript(f"PRAGMA application_id = {0x67657374}; PRAGMA user_version = 2")
    with pytest.raises(BrokenRecord, match="its text is UTF-16, and every release of Gesta writes UTF-8"):
        InlineSqliteStore.open("wide.gesta", readonly=True)


@pytest.mark.parametrize("sql", ["PRAGMA user_version = 0", "PRAGMA user_version = 1", "UPDATE record SET format = 1"])
def test_a_header_that_says_another_format_than_the_tables_is_refused(sql: str) -> None:
    spoil(sql)
    before = Path("sent.gesta").read_bytes()
    for readonly in (True, False):
        with pytest.raises(
            BrokenRecord, match=r"its header says format \d, and its tables say \d\. Nothing was changed"
        ):
            InlineSqliteStore.open("sent.gesta", readonly=readonly)
    assert Path("sent.gesta").read_bytes() == before


@pytest.mark.parametrize("sql", ["PRAGMA default_cache_size = 2000000000", "PRAGMA auto_vacuum = 2; VACUUM"])
def test_other_settings_of_a_file_change_nothing(sql: str) -> None:
    spoil(sql)
    assert anew("verify", "sent.gesta").exit_code == 0


def test_a_row_of_the_schema_that_says_another_thing_than_its_text_is_refused() -> None:
    trigger = "CREATE TRIGGER t AFTER INSERT ON inbox BEGIN SELECT 1; END"
    for odd in (
        Object("view", "mine", "mine", "CREATE VIEW runs AS SELECT 1"),
        Object("trigger", "t", "ran", trigger),
        Object("view", "t", "t", trigger),
        Object("table", "sqlite_stat1", "sqlite_stat1", "CREATE VIEW sqlite_stat1 AS SELECT 1"),
        Object("index", "i", "entries", ""),
    ):
        assert examined([odd]).refused == (odd,)


def test_a_dump_that_was_read_in_again_is_the_same_record() -> None:
    with closing(sqlite3.connect("again.gesta")) as again, closing(sqlite3.connect("sent.gesta")) as db:
        again.executescript("\n".join(db.iterdump()))
        again.executescript(f"PRAGMA application_id = {0x67657374}; PRAGMA user_version = 2")
    assert anew("verify", "again.gesta").exit_code == 0


def test_tables_of_every_release_are_known() -> None:
    first = TABLES
    for statement in MIGRATIONS:
        first = first.replace(f",\n    {statement.partition(' COLUMN ')[2]}", "")
    for made in (TABLES + WORDS, first, first + ";".join(MIGRATIONS)):
        with closing(sqlite3.connect(":memory:")) as db:
            with suppress(sqlite3.OperationalError):  # this SQLite may be too old for the index of words
                db.executescript(made)
            rows = [Object(*(each or "" for each in row)) for row in db.execute(sqlite_door.SCHEMA)]
        found = examined(rows)
        assert (found.refused, found.missing, found.aside, found.beside) == ((), (), (), ())


def test_a_record_of_version_0_1_0_is_whole() -> None:
    fixture = Path(__file__).parents[1] / "fixtures/0.1.0/in-doubt.gesta"
    Path("old.gesta").write_bytes(fixture.read_bytes())
    for readonly in (True, False, True):
        store = InlineSqliteStore.open("old.gesta", readonly=readonly)
        found = drive(store.foreign())
        assert (found.aside, found.beside) == ((), ())
        drive(store.close())


def test_opening_asks_as_much_of_a_long_record_as_of_a_short_one() -> None:
    def asked(path: str) -> list[str]:
        found: list[str] = []

        def listen(connection: apsw.Connection) -> None:
            connection.exec_trace = lambda _, statement, __: not found.append(statement)  # type: ignore[func-returns-value]

        apsw.connection_hooks.append(listen)
        try:
            drive(InlineSqliteStore.open(path, readonly=True).close())
        finally:
            apsw.connection_hooks.remove(listen)
        return found

    with gesta.open_sync("sent.gesta") as record, record.span("app", session="s") as span:
        for number in range(1_000):
            span[str(number)] = number
    assert asked("sent.gesta") == asked("whole.gesta")
    assert asked("sent.gesta").count(sqlite_door.SCHEMA) == 1, "one for the one connection"


HEADINGS = {
    "CREATE TABLE a(x)": ("table", "a", "a"),
    'CREATE TABLE "a ""b"(x)': ("table", 'a "b', 'a "b'),
    "CREATE VIRTUAL TABLE [a b] USING fts5(x)": ("table", "a b", "a b"),
    "CREATE UNIQUE INDEX `i` ON 'entries'(x)": ("index", "i", "entries"),
    "CREATE INDEX i--ON a(x)\nON/**/entries(x)": ("index", "i", "entries"),
    'CREATE TRIGGER t UPDATE OF "ON", x ON main.inbox BEGIN SELECT 1; END': ("trigger", "t", "inbox"),
    "CREATE TRIGGER 'on' AFTER INSERT ON näh BEGIN SELECT 1; END": ("trigger", "on", "näh"),
    "CREATE VIEW v AS SELECT 1": ("view", "v", "v"),
    "CREATE VIEW v\0AS": ("view", "v", "v"),
    "": ("", "", ""),
    "CREATE TRIGGER t": ("trigger", "t", ""),
}


@pytest.mark.parametrize("sql", HEADINGS)
def test_a_text_of_the_schema_is_read_as_sqlite_reads_it(sql: str) -> None:
    found = heading(sql)
    assert (found.type, found.name, found.table) == HEADINGS[sql]


def results_of(entries: Sequence[Entry]) -> list[str]:
    return [str(each.content.tool_result) for each in entries if isinstance(each.content, ToolResultContent)]


def test_a_tool_may_not_make_what_reaches_into_gestas_tables() -> None:
    @gesta.tool(effect="transactional")
    def sql(context: gesta.Context, query: str) -> str:
        """Run SQL."""
        return str(context.sql(query))

    queries = ["CREATE TABLE child(pos REFERENCES entries(pos) ON DELETE CASCADE)", "CREATE TABLE JSON_each(x)"]
    calls = [gesta.call("sql", query=query) for query in queries]
    with gesta.open_sync("sent.gesta") as record:
        outcome = record.run(gesta.Agent("desk", model=gesta.scripted(*calls, "done"), tools=[sql]), "go", session="t")
        results = results_of(record.read(outcome.run))
    assert all("A transactional tool may not make table" in result for result in results), results
    assert len(results) == 2
    with gesta.open_sync("sent.gesta"):
        pass


def test_what_tools_made_is_listed_in_the_record_and_named_apart() -> None:
    @gesta.tool(effect="transactional")
    def sql(context: gesta.Context, query: str) -> str:
        """Run SQL."""
        return str(context.sql(query))

    def done(*queries: str) -> None:
        calls = [gesta.call("sql", query=query) for query in queries]
        with gesta.open_sync("sent.gesta") as record:
            agent = gesta.Agent("desk", model=gesta.scripted(*calls, "done"), tools=[sql])
            record.run(agent, "go", session=queries[0])

    done("CREATE TABLE stock(name)", "CREATE INDEX names ON stock(name)", "CREATE TABLE old(x)", "DROP TABLE old")
    done("ALTER TABLE stock RENAME TO goods", "CREATE TABLE sold(name)", "SELECT no")
    said = anew("verify", "sent.gesta").stderr
    assert (
        "Of transactional tools, and not looked into: table 'goods', index 'names' on 'goods', table 'sold'.\n" in said
    )
    assert "Not of Gesta's making, and not looked into: table 'ran'.\n" in said
    assert anew(
        "sql", "SELECT name FROM gesta_tables ORDER BY name", "--csv", "--record", "sent.gesta"
    ).stdout.split() == [
        "name",
        "goods",
        "sold",
    ]
    done("DROP TABLE gesta_tables", "INSERT INTO gesta_tables VALUES('entries')", "CREATE TABLE more(x)")
    assert "table 'sold', table 'more'.\n" in anew("verify", "sent.gesta").stderr
    backup("sent.gesta", "copy.gesta")
    assert "table 'sold', table 'more'.\n" in anew("verify", "copy.gesta").stderr


def test_a_trigger_that_somebody_put_on_a_tools_table_reaches_nothing_of_gestas() -> None:
    @gesta.tool(effect="transactional")
    def sell(context: gesta.Context) -> str:
        """Sell."""
        return str(context.sql("INSERT INTO stock VALUES(1)"))

    spoil("CREATE TABLE stock(x); CREATE TRIGGER t AFTER INSERT ON stock BEGIN UPDATE inbox SET content = 'x'; END")
    with gesta.open_sync("sent.gesta") as record:
        agent = gesta.Agent("desk", model=gesta.scripted(gesta.call("sell"), "done"), tools=[sell])
        outcome = record.run(agent, "go", session="t")
        (result,) = results_of(record.read(outcome.run))
    assert "A transactional tool may not change 'inbox', which is Gesta's own" in result


def test_triggers_of_a_tool_run_for_its_own_statements() -> None:
    @gesta.tool(effect="transactional")
    def sql(context: gesta.Context, query: str) -> str:
        """Run SQL."""
        return str(context.sql(query))

    queries = [
        "CREATE TABLE stock(name)",
        "CREATE TRIGGER twice AFTER INSERT ON stock BEGIN INSERT INTO ran VALUES(NEW.name); END",
        "INSERT INTO stock VALUES('lamp')",
        "SELECT x FROM ran",
    ]
    calls = [gesta.call("sql", query=query) for query in queries]
    with gesta.open_sync("sent.gesta") as record:
        outcome = record.run(gesta.Agent("desk", model=gesta.scripted(*calls, "done"), tools=[sql]), "go", session="t")
        results = results_of(record.read(outcome.run))
    assert results[-1] == "[('lamp',)]"


def test_opening_warns_of_what_is_set_aside() -> None:
    spoil(ASIDE["a trigger on letters"])
    with pytest.warns(SetAside, match=r"Set aside in '.*sent.gesta': trigger 't' on 'inbox'\. .* `gesta repair"):
        drive(InlineSqliteStore.open("sent.gesta", readonly=True).close())
