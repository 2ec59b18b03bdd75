"""A backup is the record as it was at one moment, also while other processes write it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

import gesta
from gesta.address import drive, inline_store
from gesta.errors import BrokenRecord, NoRecord, WriteFailed
from gesta.stores.sqlite_backup import backup
from gesta.testing import make_batch

SOURCE = str(Path(next(iter(gesta.__path__))).parent)
WRITING = """
import sys
from gesta.address import drive, inline_store
from gesta.store import Batch
from gesta.testing import make_batch, make_opening
store = inline_store(sys.argv[1], durability="normal")
lease = drive(store.lease("r"))
drive(store.append(Batch(lease, 0, [make_opening("r", "s", "n")])))
for head in range(1, 10**6, 3):
    drive(store.append(make_batch(lease, head, 3)))
    print(head + 3, flush=True)
"""


def filled(path: Path, count: int = 9) -> None:
    store = inline_store(str(path))
    lease = drive(store.lease("r"))
    drive(store.append(make_batch(lease, 0, count)))
    drive(store.close())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_copy_made_while_another_process_writes_is_whole_and_nobody_waits(tmp_path: Path):
    path = tmp_path / "a.gesta"
    command = [sys.executable, "-c", WRITING, str(path)]
    environment = os.environ | {"PYTHONPATH": SOURCE}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        for number in range(3):
            for _ in range(300):
                before = int(writer.stdout.readline())
            backup(str(path), str(tmp_path / f"copy{number}.gesta"))
            store = inline_store(str(tmp_path / f"copy{number}.gesta"), readonly=True)
            rows = drive(store.read("r"))
            assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
            assert len(rows) >= before
            assert len(rows) % 3 == 1, "no commit is half in it"
            assert drive(store.damage()) == []
            drive(store.close())
        writer.kill()
    assert [name for name in names(tmp_path) if name.startswith("copy")] == [f"copy{n}.gesta" for n in range(3)]


def test_the_copy_of_a_record_that_is_open_here_can_be_gone_on_with(tmp_path: Path):
    store = inline_store(str(tmp_path / "a.gesta"))
    lease = drive(store.lease("r"))
    drive(store.append(make_batch(lease, 0, 3)))
    size = backup(str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta"))
    assert size == (tmp_path / "b.gesta").stat().st_size
    drive(store.append(make_batch(lease, 3)))
    copy = inline_store(str(tmp_path / "b.gesta"))
    assert copy.info.id == store.info.id
    again = drive(copy.lease("r"))
    assert again.head == 3, "whoever holds the run in the record does not hold it in the copy"
    drive(copy.append(make_batch(again, 3)))
    drive(copy.close())
    drive(store.close())
    assert names(tmp_path) == ["a.gesta", "b.gesta"]


def test_a_copy_of_a_record_that_nobody_writes_leaves_nothing_beside_it(tmp_path: Path):
    filled(tmp_path / "a.gesta")
    seen: list[tuple[int, int]] = []
    backup(str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta"), lambda done, of: seen.append((done, of)))
    assert names(tmp_path) == ["a.gesta", "b.gesta"]
    assert seen[-1][0] == seen[-1][1] > 0
    assert apsw.Connection(str(tmp_path / "b.gesta")).pragma("integrity_check") == "ok"


def test_nothing_is_ever_overwritten(tmp_path: Path):
    filled(tmp_path / "a.gesta")
    (tmp_path / "b.gesta").write_text("mine")
    with pytest.raises(WriteFailed, match="something lies there already; name a new file"):
        backup(str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta"))
    assert (tmp_path / "b.gesta").read_text() == "mine"
    with pytest.raises(WriteFailed, match="something lies there already"):
        backup(str(tmp_path / "a.gesta"), str(tmp_path / "a.gesta"))
    assert names(tmp_path) == ["a.gesta", "b.gesta"]


def test_what_is_no_record_is_not_copied(tmp_path: Path):
    (tmp_path / "x.gesta").write_text("no record" * 1000)
    for name, error in (("x.gesta", BrokenRecord), ("none.gesta", NoRecord)):
        with pytest.raises(error):
            backup(str(tmp_path / name), str(tmp_path / "b.gesta"))
    with pytest.raises(WriteFailed, match="there is no folder"):
        backup(str(tmp_path / "x.gesta"), str(tmp_path / "no" / "b.gesta"))
    assert names(tmp_path) == ["x.gesta"]


def test_a_backup_that_is_broken_off_leaves_no_file_that_looks_like_a_record(tmp_path: Path):
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    filled(tmp_path / "a.gesta")
    with pytest.raises(KeyboardInterrupt):
        backup(str(tmp_path / "a.gesta"), str(tmp_path / "b.gesta"), stop)
    assert names(tmp_path) == ["a.gesta"]
