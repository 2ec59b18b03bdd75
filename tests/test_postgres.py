"""A record on the test server that is emptied for the next test holds nothing of the test before."""

import pytest
from tests.postgres import Server

import gesta


def test_a_record_is_used_again_empty_and_with_another_id_unless_a_test_changed_its_tables(postgres: Server) -> None:
    psycopg = pytest.importorskip("psycopg")
    with postgres.emptied() as first, gesta.open_sync(first) as record:
        record.run(gesta.Agent("desk", gesta.scripted("Good.")), "hello", session="s")
        before = record.info.id
    with postgres.emptied() as second, gesta.open_sync(second) as record:
        assert second == first
        assert record.info.id != before
        assert record.sessions() == []
        base, _, schema = second.partition("&schema=")
        with psycopg.connect(base) as connection:
            connection.execute(f"CREATE INDEX ON {schema}.entries(kind)")
    with postgres.emptied() as third:
        assert third != second
