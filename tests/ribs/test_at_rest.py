"""What is on record is read by nobody else on the machine, and what was pruned by nobody at all."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.commands import gesta_command

import gesta
from gesta.errors import WriteFailed
from gesta.stores.pruning import Choice, Pruner, plan, prune
from gesta.stores.sqlite import InlineSqliteStore
from gesta.stores.sqlite_backup import backup
from gesta.stores.words import Wanted, find

TEXT = "SSN-123-45-zebra"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    return {each.name: mode(each) for each in folder.iterdir()}


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


READ = """import sqlite3, sys
rows = sqlite3.connect(sys.argv[1]).execute("SELECT * FROM entries")
rows.fetchone()
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def read_elsewhere(path: Path) -> Iterator[None]:
    """Have another program be in the middle of reading a record, and close it in the end."""
    with subprocess.Popen([sys.executable, "-c", READ, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None and reader.stdin is not None
        reader.stdout.readline()
        yield
        reader.stdin.close()


async def filled(path: Path) -> None:
    agent = gesta.Agent("desk", model=gesta.scripted(f"I noted {TEXT}."))
    async with gesta.open(str(path)) as record:
        await record.run(agent, f"Mine is {TEXT}.", session=f"s-{TEXT}")
        await record.run(gesta.Agent("other", model=gesta.scripted("Fine.")), "Hello", session="other")
        await find(record.store, Wanted(words="zebra"), keep_from=0)


def there(path: Path) -> bool:
    return any(TEXT.encode() in each.read_bytes() or b"zebra" in each.read_bytes() for each in path.parent.iterdir())


async def pruned(path: Path) -> None:
    async with gesta.open(str(path)) as record:
        what = await plan(record.store, Choice(session=f"s-{TEXT}"))
        assert (await prune(record.store, what, Pruner(by="ann"))).runs == 1


async def test_a_record_and_what_lies_beside_it_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    async with gesta.open(str(path)) as record:
        await record.run(gesta.Agent("a", model=gesta.scripted("Hi")), "Hi")
        assert modes(tmp_path) == {
            "r.gesta": 0o600,
            "r.gesta-wal": 0o600,
            "r.gesta-shm": 0o600,
        }


async def test_a_record_that_others_may_read_keeps_its_mode_and_so_does_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    await filled(path)
    for wanted in (0o640, 0o600):
        path.chmod(wanted)
        async with gesta.open(str(path)):
            assert modes(tmp_path)["r.gesta-wal"] == wanted
        backup(str(path), str(tmp_path / f"b{wanted}.gesta"))
        assert mode(tmp_path / f"b{wanted}.gesta") == wanted


async def test_what_is_saved_of_a_record_that_was_taken_away_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    await filled(path)
    store = InlineSqliteStore.open(path)
    path.unlink()
    with pytest.raises(WriteFailed, match="what was committed was saved into"):
        store.close_now()
    assert mode(tmp_path / "r.saved.gesta") == 0o600


def test_heads_and_cases_are_for_their_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gesta.run_sync(gesta.Agent("a", model=gesta.scripted("Hi")), "Hi", record="r.gesta")
    assert gesta_command("verify", "r.gesta", "--keep", "heads").exit_code == 0
    assert mode(tmp_path / "heads") == 0o600
    (tmp_path / "heads").chmod(0o644)
    assert gesta_command("verify", "r.gesta", "--keep", "heads").exit_code == 0
    assert mode(tmp_path / "heads") == 0o644


async def test_what_was_pruned_stands_in_no_page_log_or_index_of_the_closed_record(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    await filled(path)
    assert there(path)
    await pruned(path)
    assert not there(path)
    async with gesta.open(str(path)) as record:
        assert await record.verify() == []
        assert await find(record.store, Wanted(words="zebra")) == []
        assert [hit.session for hit in await find(record.store, Wanted(words="hello"))] == ["other"]


async def test_what_was_pruned_while_another_program_had_the_record_open_is_gone_when_that_closes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.gesta"
    await filled(path)
    with read_elsewhere(path):
        await pruned(path)
        assert there(path)
    assert not there(path)


async def test_shrinking_says_that_a_reader_keeps_what_was_pruned(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    await filled(path)
    store = InlineSqliteStore.open(path, busy_s=0.1)
    with read_elsewhere(path), pytest.raises(WriteFailed):
        await store.shrink()
    assert await store.shrink() >= 0
    await store.close()


@pytest.mark.slow
def test_prune_says_what_a_reader_keeps_and_erases_it_when_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gesta.run_sync(gesta.Agent("a", model=gesta.scripted("Hi")), TEXT, session="s", record="r.gesta")
    words = ("prune", "--session", "s", "--yes", "--record", "r.gesta")
    with read_elsewhere(tmp_path / "r.gesta"):
        done = gesta_command(*words)
        assert done.exit_code == 1
        assert "1 run, 7 entries pruned" in done.stdout
        assert "Another program is reading the record just now." in done.stderr
        assert "So what was pruned may still stand in the file or its log. End what has it open" in done.stderr
        assert there(tmp_path / "r.gesta")
    again = gesta_command(*words)
    assert (again.exit_code, again.stdout) == (0, "")
    assert not there(tmp_path / "r.gesta")


async def test_a_tombstone_names_neither_session_nor_agent(tmp_path: Path) -> None:
    path = tmp_path / "r.gesta"
    await filled(path)
    await pruned(path)
    async with gesta.open(str(path)) as record:
        text = str((await record.store.sql("SELECT content FROM entries WHERE kind = 'key-value'")).rows)
    assert "gesta.pruned" in text
    assert TEXT not in text and "desk" not in text
