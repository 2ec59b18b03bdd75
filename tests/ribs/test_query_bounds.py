"""A query of a user ends at its bound: seconds, rows, bytes; and its error says which, and how it is raised."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands import gesta_command

import gesta
from gesta.address import inline_store
from gesta.errors import RecordError
from gesta.store import QueryBounds, Store

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"


@pytest.fixture(params=["memory", "sqlite", "inline", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    address = str(tmp_path / "r.gesta")
    if request.param == "inline":
        opened = inline_store(address)
        yield opened
        await opened.close()
        return
    if request.param == "postgres":
        address = request.getfixturevalue("emptied")
    async with gesta.open(":memory:" if request.param == "memory" else address) as record:
        yield record.store


@pytest.mark.sample(4)
@pytest.mark.parametrize("what", ["count(*)", "i"])
async def test_a_query_that_never_ends_ends_after_its_seconds(store: Store, what: str) -> None:
    store.queries = QueryBounds(seconds=0.2, rows=None)
    with pytest.raises(
        RecordError, match=r"it took longer than 0.2\. Ask for less, or raise it: gesta sql --seconds N"
    ):
        await store.sql(ENDLESS.format(what) if what != "i" else ENDLESS.format("i") + " WHERE i < 0")
    assert (await store.sql("SELECT 1")).rows == [(1,)]


async def test_an_answer_of_too_many_rows_or_bytes_is_refused_before_it_is_in_memory(store: Store) -> None:
    store.queries = QueryBounds(rows=1000)
    with pytest.raises(RecordError, match=r"it has more rows than 1,000\. .* gesta sql --rows N"):
        await store.sql(ENDLESS.format("i"))
    store.queries = QueryBounds(size_bytes=100_000)
    text = "'" + "x" * 1000 + "'"
    with pytest.raises(RecordError, match=r"it holds more bytes than 100,000\. .* gesta sql --size N"):
        await store.sql(ENDLESS.format(text))
    rows = (await store.sql(ENDLESS.format(text) + " LIMIT 100")).rows
    assert (len(rows), len(rows[0][0])) == (100, 1000)


async def test_what_a_bounded_query_answers_is_what_it_answers_without_bounds(store: Store) -> None:
    queries = ("SELECT 1 AS a, 'x' AS b", "SELECT run, seq FROM entries", "SELECT count(*) AS n FROM entries")
    free = [await store.sql(query) for query in queries]
    store.queries = QueryBounds(seconds=5, rows=10, size_bytes=10_000)
    assert [await store.sql(query) for query in queries] == free
    assert free[1].columns == ("run", "seq")


async def test_a_value_that_grows_beyond_the_bound_inside_a_query_is_refused_in_a_file(tmp_path: Path) -> None:
    async with gesta.open(str(tmp_path / "r.gesta"), queries=QueryBounds(size_bytes=1_000_000)) as record:
        with pytest.raises(RecordError, match="it holds more bytes than 1,000,000"):
            await record.store.sql("SELECT length(hex(zeroblob(900000)))")


async def test_a_comment_behind_the_last_semicolon_is_no_statement() -> None:
    async with gesta.open(":memory:") as record:
        for query in ("SELECT 1 AS a; -- one", "/* none */; SELECT 1 AS a; /* two\n */", "SELECT 1 AS a"):
            found = await record.store.sql(query)
            assert (found.columns, found.rows) == (("a",), [(1,)])


async def test_two_statements_are_refused_and_no_number_is_too_large_for_a_reading(tmp_path: Path) -> None:
    async with gesta.open(tmp_path / "r.gesta") as record:
        run = (await record.run(gesta.Agent("a", model=gesta.scripted("Hi")), "Hi")).run
        with pytest.raises(RecordError, match="it has more than one statement"):
            await record.store.sql("SELECT 1; SELECT 2")
        assert await record.store.read(run, 2**70) == []
        assert len(await record.store.read(run, -(2**70), 2**70, 2**70)) == 7


def test_the_command_has_bounds_that_are_raised_by_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gesta.run_sync(gesta.Agent("a", model=gesta.scripted("Hi")), "Hi", record="r.gesta")
    done = gesta_command("sql", ENDLESS.format("count(*)"), "--seconds", "0.1", "--record", "r.gesta")
    assert done.exit_code == 1
    assert "it took longer than 0.1. Ask for less, or raise it: gesta sql --seconds N" in done.stderr
    done = gesta_command("sql", ENDLESS.format("i"), "--rows", "10", "--record", "r.gesta")
    assert "it has more rows than 10." in done.stderr
    done = gesta_command("sql", "SELECT content FROM entries", "--size", "10", "--record", "r.gesta")
    assert "it holds more bytes than 10." in done.stderr
    free = ("--rows", "0", "--seconds", "0", "--size", "0")
    assert gesta_command("sql", "SELECT 1", *free, "--record", "r.gesta").exit_code == 0
