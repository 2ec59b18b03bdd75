"""A record in PostgreSQL on whose tables others put something is not opened, and nothing of it runs."""

import psycopg
import pytest
from tests.commands import gesta_command
from tests.postgres import Server

import gesta
from gesta.address import drive
from gesta.errors import ForeignObjects
from gesta.stores.postgres import InlinePostgresStore

REFUSED = {
    "a trigger": """CREATE FUNCTION public.ran{0}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER t BEFORE INSERT ON {0}.inbox FOR EACH ROW EXECUTE FUNCTION public.ran{0}()""",
    "a rule": "CREATE RULE r AS ON INSERT TO {0}.inbox DO ALSO DELETE FROM {0}.leases",
    "a rule on a view": "CREATE RULE r AS ON INSERT TO {0}.runs DO INSTEAD NOTHING",
    "row level security": "ALTER TABLE {0}.inbox ENABLE ROW LEVEL SECURITY",
    "a view in place of a table": "ALTER TABLE {0}.inbox RENAME TO box; CREATE VIEW {0}.inbox AS SELECT * FROM {0}.box",
    "a child table": "CREATE TABLE {0}.more() INHERITS ({0}.entries)",
    "a default": "ALTER TABLE {0}.leases ALTER COLUMN owner SET DEFAULT 'me'",
    "a generated column": "ALTER TABLE {0}.inbox ADD COLUMN more TEXT GENERATED ALWAYS AS (upper(key)) STORED",
    "a check": "ALTER TABLE {0}.inbox ADD CONSTRAINT c CHECK (length(key) < 9)",
    "a foreign key to it": "CREATE TABLE {0}.child(pos BIGINT REFERENCES {0}.entries(pos) ON DELETE CASCADE)",
    "an index of an expression": "CREATE INDEX i ON {0}.entries(length(content))",
    "a function": "CREATE FUNCTION {0}.coalesced(TEXT) RETURNS TEXT LANGUAGE sql AS 'SELECT 1'",
    "a table in place of a view": "DROP VIEW {0}.costs; CREATE TABLE {0}.costs(x INT)",
}
NAMED = {
    "a trigger": "trigger 't' on 'inbox'",
    "a rule": "rule 'r' on 'inbox'",
    "row level security": "row level security on 'inbox'",
    "a view in place of a table": "view 'inbox'",
    "a check": "constraint 'c' on 'inbox'",
    "a function": "function 'coalesced'",
}


@pytest.fixture
def address(postgres: Server) -> str:
    """A record with a run, that was answered."""
    address = postgres.address()
    with gesta.open_sync(address) as record:
        record.run(gesta.Agent("desk", gesta.scripted("Hello.")), "hi", session="s")
    return address


def spoil(address: str, sql: str) -> None:
    base, _, schema = address.rpartition("&schema=")
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(sql.format(schema))


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", REFUSED)
def test_a_record_is_not_opened_while_it_stands_there(kind: str, address: str) -> None:
    spoil(address, REFUSED[kind])
    for readonly in (True, False):
        with (
            pytest.raises(ForeignObjects, match=r"It holds what no release of Gesta makes.*Look at it there") as raised,
            gesta.open_sync(address, readonly=readonly),
        ):
            pass
    assert NAMED.get(kind, "") in str(raised.value)


def test_what_stands_beside_is_named(address: str) -> None:
    spoil(address, "CREATE TABLE {0}.mine(a INT); CREATE VIEW {0}.yours AS SELECT 1; CREATE INDEX i ON {0}.entries(at)")
    store = InlinePostgresStore.open(address, readonly=True)
    assert drive(store.foreign()).beside == ("table 'mine'", "view 'yours'")
    drive(store.close())


def test_verify_names_what_stands_beside_and_finds_a_salt_that_was_moved(address: str) -> None:
    @gesta.tool(effect="pure")
    def look() -> str:
        """Look."""
        return "REJECTED. APPROVED." * 10_000

    with gesta.open_sync(address) as record:
        record.run(gesta.Agent("desk", gesta.scripted(gesta.call("look"), "Done."), tools=[look]), "go", session="t")
    spoil(address, "CREATE TABLE {0}.mine(a INT)")
    whole = gesta_command("verify", address)
    assert (whole.exit_code, whole.stderr) == (0, "Not of Gesta's making, and not looked into: table 'mine'.\n")
    spoil(address, "UPDATE {0}.blobs SET salt = salt || substr(data, 1, 9), data = substr(data, 10)")
    found = gesta_command("verify", address)
    assert found.exit_code == 1
    assert "is missing or was changed" in found.stdout
