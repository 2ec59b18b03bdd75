"""Forks, replay, diff and heads on a record in PostgreSQL: the same as in a file."""
# ruff: noqa: E402 - without the library nothing else can be imported

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Gesta, folder, gesta  # noqa: F401 - fixtures
from tests.cli.test_comparing import SHOP
from tests.laws.test_forks import desk
from tests.postgres import Server

psycopg = pytest.importorskip("psycopg")

import gesta as library
from gesta.bridges.pushing import push
from gesta.compare.differences import compare
from gesta.compare.forks import Change, Fork, fork, go_on
from gesta.compare.replaying import replay_run
from gesta.kinds import AttemptContent, ToolResultContent


@pytest.fixture
def address(postgres: Server) -> str:
    """Where no record stands yet."""
    return postgres.address()


@pytest.mark.slow
async def test_a_fork_of_every_prefix_ends_as_its_base_and_fires_nothing(address: str) -> None:
    async with library.open(address) as record:
        first = await record.run(desk, "Pay my order.", session="s")
        base, entries = await record.find(first.run), await record.read(first.run)
        kept = await record.heads()
        for at in range(len(entries) + 1):
            made = await fork(record, base, Fork(at=at))
            ended = await go_on(record, made, desk)
            assert ended.answer == first.answer
            own = await record.store.read(made.run)
            read = await record.read(made.run)
            assert [entry.seq for entry in read] == list(range(1, len(read) + 1))
            assert [row.seq for row in own] == list(range(own[0].seq, len(read) + 1)), "what is shared takes no space"
            assert not any(isinstance(entry.content, AttemptContent) for entry in read[own[0].seq - 1 :] if at > 14)
            found = await replay_run({made.run: read}, made.run, desk)
            assert (found.first, found.entries) == (None, len(read))
        assert await record.verify(kept) == []


@pytest.mark.slow
async def test_a_changed_result_is_shown_and_a_call_that_is_not_on_record_waits(address: str) -> None:
    async with library.open(address) as record:
        first = await record.run(desk, "Pay my order.", session="s")
        entries = await record.read(first.run)
        result = next(entry for entry in entries if isinstance(entry.content, ToolResultContent))
        base = await record.find(first.run)
        how = Fork(changes=[Change(result.seq, "tool_result.euros", 30)])
        ended = await go_on(record, await fork(record, base, how), desk)
        assert [(waiting.what, waiting.tool) for waiting in ended.waiting] == [("approval", "pay")]
        live = await fork(record, base, Fork(changes=how.changes, live=["pay"]))
        assert (await go_on(record, live, desk)).answer == "Done: paid 30"
        told = compare(entries, await record.read(live.run))
        assert [(each.path, each.after) for each in told.steps[0].differences] == [("$.tool_result.euros", 30)]
        again = await fork(record, live, Fork(at=result.seq + 3))
        assert (await go_on(record, again, desk)).answer == "Done: paid 30", "a fork of a fork"
        assert await record.verify() == []
        async with library.open() as copy:
            await push(record.store, copy.store)
            assert await copy.verify(await record.heads()) == []


@pytest.mark.slow
def test_the_command_line_forks_compares_and_replays(gesta: Gesta, folder: Path, address: str) -> None:  # noqa: F811
    (folder / "shop.py").write_text(SHOP)
    on = ("--record", address)
    assert gesta("run", "shop.py:desk", "Pay my order.", "--session", "ann", *on).exit_code == 0
    assert "all the same. Nothing was done." in gesta("replay", "ann", "shop.py:desk", *on).stdout
    done = gesta("fork", "ann", "shop.py:desk", "--set", "8.tool_result.euros=30", *on)
    assert done.exit_code == 3
    assert "It stops here: pay" in done.stderr
    assert gesta("fork", "ann", "shop.py:desk", "--at", "8", "--model", "recorded", *on).exit_code == 0
    assert json.loads(gesta("diff", "ann", "ann~2", "--json", *on).stdout)["steps"] == []
    assert "    $.tool_result.euros\n    - 20\n    + 30\n" in gesta("diff", "ann", "ann~1", *on).stdout
    assert (folder / "paid.txt").read_text() == "20\n"
    for name, seq in (("ann", 8), ("ann~1", 2), ("ann~1", 10), ("ann~2", 17)):
        shown = json.loads(gesta("show", name, str(seq), "--json", *on).stdout)
        assert shown["id"].endswith(f".{seq}")
    assert gesta("verify", "--keep", "heads.txt", *on).exit_code == 0
    assert gesta("verify", "--head", "heads.txt", *on).exit_code == 0
    done = gesta("prune", "ann", "--yes", *on)
    assert done.exit_code == 1
    assert "Nothing was pruned." in done.stderr
