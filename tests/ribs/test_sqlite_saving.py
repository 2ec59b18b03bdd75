"""A file or log that is taken away under a process: noticed before anything else is effected, and nothing is lost."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest
from tests import programs

import gesta
from gesta.address import drive
from gesta.errors import RecordError, WriteFailed
from gesta.store import Batch, Lease
from gesta.stores.sqlite import InlineSqliteStore
from gesta.testing import make_batch, make_row

OLD_FORMAT = Path(__file__).parents[1] / "fixtures" / "0.1.0" / "in-doubt.gesta"
ELSEWHERE = """
import sys
from gesta.stores.sqlite import InlineSqliteStore
from gesta.stores.sqlite_guard import Guard
if sys.argv[2] == "blind":
    Guard.beside = lambda self: True
from gesta.testing import make_batch
from gesta.sync import drive
store = InlineSqliteStore.open(sys.argv[1])
lease = drive(store.lease("theirs"))
drive(store.append(make_batch(lease, lease.head)))
drive(store.release(lease))
drive(store.close())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.gesta"


def written(path: Path) -> tuple[InlineSqliteStore, Lease]:
    """Open a record, and commit ten entries."""
    store = InlineSqliteStore.open(path)
    lease = drive(store.lease("r"))
    for head in range(10):
        drive(store.append(make_batch(lease, head)))
    return store, lease


def entries(path: Path) -> int:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        ((count,),) = db.execute("SELECT count(*) FROM entries").fetchall()
        assert isinstance(count, int)
        return count


def write_elsewhere(path: Path, *, blind: bool = False) -> str:
    """Write in another process; return what it says. A blind one does not look for the log, as other programs."""
    done = programs.run(["-c", ELSEWHERE, str(path), "blind" if blind else "seeing"])
    assert done.returncode == 0 or not blind, done.stderr
    return done.stderr


def delete_log(path: Path) -> None:
    path.with_name("a.gesta-wal").unlink()


def delete_index(path: Path) -> None:
    path.with_name("a.gesta-shm").unlink()


def delete_log_and_index(path: Path) -> None:
    delete_log(path)
    path.with_name("a.gesta-shm").unlink()


@pytest.mark.parametrize("delete", [delete_log, delete_log_and_index])
def test_what_was_in_a_log_that_was_deleted_is_moved_into_the_file(path: Path, delete: Callable[[Path], None]) -> None:
    store, lease = written(path)
    delete(path)
    with pytest.raises(
        WriteFailed, match="all entries that were committed are in the file; close the record and open it again"
    ):
        drive(store.append(make_batch(lease, 10)))
    assert len(drive(store.read("r"))) == 10, "it is read on"
    with pytest.raises(WriteFailed, match="all entries that were committed are in the file"):
        drive(store.append(make_batch(lease, 10)))
    drive(store.close())
    again = InlineSqliteStore.open(path)
    lease = drive(again.lease("r"))
    assert lease.head == 10
    drive(again.append(make_batch(lease, 10)))
    assert drive(again.damage()) == []
    drive(again.close())
    assert {file.name for file in path.parent.iterdir()} == {"a.gesta"}
    assert entries(path) == 11


def test_a_commit_during_which_the_log_was_deleted_is_in_the_file_or_an_error(path: Path) -> None:
    store, lease = written(path)

    def delete() -> bool:
        delete_log(path)
        return False

    store.writer._connection.set_commit_hook(delete)
    drive(store.append(make_batch(lease, 10)))
    store.writer._connection.set_commit_hook(None)
    with pytest.raises(WriteFailed):
        drive(store.append(make_batch(lease, 11)))
    drive(store.close())
    assert entries(path) == 11


@pytest.mark.parametrize("chosen", [0, 1])
def test_what_can_no_longer_be_moved_into_the_file_is_saved_beside_it(path: Path, chosen: int) -> None:
    store, lease = written(path)
    delete_log_and_index(path)
    write_elsewhere(path, blind=True)  # into the file as it was without the log
    with pytest.raises(
        WriteFailed, match=r"saved into '.*a\.saved\.gesta'; close it, then `mv .*` takes it in"
    ) as caught:
        drive(store.append(make_batch(lease, 10)))
    assert "What was committed before stands in the saved file alone" in str(caught.value)
    drive(store.close())
    with pytest.raises(WriteFailed, match=r"it lacks 10 entries that were saved into .* and has 1 that are not there"):
        InlineSqliteStore.open(path)
    assert (entries(path), entries(path.with_name("a.saved.gesta"))) == (1, 10), "nothing was changed"
    saved = InlineSqliteStore.open(path.with_name("a.saved.gesta"))
    assert saved.info.id == store.info.id
    assert len(drive(saved.read("r"))) == 10
    drive(saved.append(make_batch(drive(saved.lease("r")), 10)))
    drive(saved.close())
    with pytest.raises(WriteFailed, match="it lacks 11 entries") as refused:
        InlineSqliteStore.open(path)
    commands = re.findall("`(mv .*?)`", str(refused.value))
    assert len(commands) == 2
    subprocess.run(shlex.split(commands[chosen]), check=True)
    after = InlineSqliteStore.open(path)
    assert [len(drive(after.read(run))) for run in ("r", "theirs")] == ([0, 1] if chosen else [11, 0])
    assert drive(after.damage()) == []
    drive(after.close())


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_what_was_committed_to_a_file_that_is_no_longer_there_is_saved_beside_it(path: Path, how: str) -> None:
    store, lease = written(path)
    if how == "moved":
        path.rename(path.with_name("moved"))
    else:
        path.unlink()
    if how == "replaced":
        other = InlineSqliteStore.open(path.with_name("other"))
        drive(other.close())
        path.with_name("other").rename(path)
    path.with_name("a.saved.gesta").write_text("of an earlier time")
    with pytest.raises(WriteFailed, match=r"a\.saved1\.gesta"):
        drive(store.append(make_batch(lease, 10)))
    drive(store.close())
    assert entries(path.with_name("a.saved1.gesta")) == 10
    if how != "replaced":
        with pytest.raises(
            WriteFailed, match=r"taken away .* saved into '.*a\.saved1\.gesta'; `mv .*` takes it in"
        ) as told:
            InlineSqliteStore.open(path)
        subprocess.run(shlex.split(str(told.value).split("`")[1]), check=True)
        again = InlineSqliteStore.open(path)
        assert (len(drive(again.read("r"))), drive(again.damage())) == (10, [])
        drive(again.close())


def test_what_another_process_moved_into_the_file_is_not_saved_twice(path: Path) -> None:
    store, lease = written(path)
    path.read_bytes()  # drops our locks, so that an older SQLite takes the log away when it closes
    closing_it = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('SELECT 1 FROM runs'); db.close()"
    subprocess.run([sys.executable, "-c", closing_it, str(path)], check=True)
    if path.with_name("a.gesta-wal").exists():
        pytest.skip("this SQLite leaves the log where it is")
    with pytest.raises(WriteFailed, match="all entries that were committed are in the file"):
        drive(store.append(make_batch(lease, 10)))
    drive(store.close())
    assert entries(path) == 10
    assert not list(path.parent.glob("*saved*"))


def test_what_cannot_be_saved_is_said_to_be_here_alone_and_saved_when_that_is_possible(path: Path) -> None:
    store, lease = written(path)
    path.unlink()
    store.writer._connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)  # SQLite copies into a file that it attaches
    with pytest.raises(WriteFailed, match=r"could not be saved .* It is in this process alone and ends with it"):
        drive(store.append(make_batch(lease, 10)))
    assert not list(path.parent.glob("*saved*"))
    store.writer._connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 10)
    with pytest.raises(WriteFailed, match=r"was saved into .*a\.saved\.gesta"):
        drive(store.append(make_batch(lease, 10)))
    drive(store.close())
    assert entries(path.with_name("a.saved.gesta")) == 10


def test_closing_saves_what_nobody_has_noticed_to_be_lost(path: Path) -> None:
    store, _ = written(path)
    delete_log(path)
    drive(store.close())
    assert entries(path) == 10
    store = InlineSqliteStore.open(path)
    drive(store.append(make_batch(drive(store.lease("q")), 0)))
    path.unlink()
    with pytest.raises(WriteFailed, match=r"was saved into .*a\.saved\.gesta"):
        drive(store.close())
    drive(store.close())
    assert entries(path.with_name("a.saved.gesta")) == 11


def test_closing_a_record_whose_folder_is_gone_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    store, _ = written(tmp_path / "folder" / "a.gesta")
    shutil.rmtree(tmp_path / "folder")
    drive(store.close())


def test_ten_turns_outlive_the_log_that_held_them(path: Path) -> None:
    agent = gesta.Agent("a", model=gesta.scripted("hi"))
    with gesta.open_sync(str(path)) as record:
        for number in range(10):
            record.run(agent, "x", session=f"s{number}")
        delete_log(path)
        with pytest.raises(WriteFailed):
            record.run(agent, "x", session="s10")
    with gesta.open_sync(str(path)) as record:
        assert len(drive(record.record.store.runs())) == 10
        assert drive(record.record.verify()) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("delete", [delete_log, delete_log_and_index, delete_index])
def test_nobody_opens_a_record_whose_log_was_deleted_before_who_writes_it_has_closed_it(
    path: Path, delete: Callable[[Path], None], reads: bool
) -> None:
    store, _ = written(path)
    delete(path)
    if reads:  # SQLite makes an empty log for it
        with suppress(RecordError):
            drive(store.sql("SELECT 1 FROM entries"))
    said = write_elsewhere(path)
    assert (
        f"its log '{path}-wal', or the index of that, was taken away from a process that writes it. Close the" in said
    )
    assert f"`fuser -v {path}` names the process. What was committed last stands in that process alone" in said
    if delete is not delete_index:
        with pytest.raises(WriteFailed, match="was taken away from a process that writes it"):
            InlineSqliteStore.open(path)
    drive(store.close())
    assert write_elsewhere(path) == ""
    assert {file.name for file in path.parent.iterdir()} == {"a.gesta"}
    assert entries(path) == 11


DYING = """
import os, sys
from gesta.stores.sqlite import InlineSqliteStore
from gesta.testing import make_batch
from gesta.sync import drive
store = InlineSqliteStore.open(sys.argv[1])
lease = drive(store.lease("r"))
for head in range(10):
    drive(store.append(make_batch(lease, head)))
os.kill(os.getpid(), 9)
"""


def die_elsewhere(path: Path) -> None:
    assert programs.run(["-c", DYING, str(path)]).returncode < 0


@pytest.mark.parametrize("back", [False, True])
def test_a_record_whose_writer_died_is_not_written_without_its_log_until_a_person_says_so(
    path: Path, back: bool
) -> None:
    die_elsewhere(path)
    log = path.with_name("a.gesta-wal")
    log.rename(path.with_name("taken"))
    with pytest.raises(
        WriteFailed, match=r"a\.gesta-wal' is missing, and the process that wrote it ended .* Put the log back"
    ) as told:
        InlineSqliteStore.open(path)
    assert "What was committed last stands in that log alone" in str(told.value)
    if back:
        path.with_name("taken").rename(log)
    else:
        commands = str(told.value).split("`")
        assert commands[1] == f"gesta runs --record {path}"
        subprocess.run(shlex.split(commands[3]), check=True)
    store = InlineSqliteStore.open(path)
    assert (len(drive(store.read("r"))), drive(store.damage())) == (10 if back else 0, [])
    drive(store.close())


def test_an_empty_log_is_believed_where_its_index_is_older(path: Path) -> None:
    """A loss of power leaves the index as it was at some time before."""
    store, _ = written(path)
    index = path.with_name("a.gesta-shm")
    older = index.read_bytes()
    drive(store.close())
    index.write_bytes(older)
    path.with_name("a.gesta-wal").touch()
    store = InlineSqliteStore.open(path)
    assert len(drive(store.read("r"))) == 10
    drive(store.close())


def test_a_process_that_closes_the_record_takes_no_log_away_from_one_that_has_lost_its_locks(path: Path) -> None:
    store, lease = written(path)
    path.read_bytes()  # drops the locks by which SQLite knows of us
    assert write_elsewhere(path) == ""
    drive(store.append(make_batch(lease, 10)))
    drive(store.close())
    assert {file.name for file in path.parent.iterdir()} == {"a.gesta"}
    assert entries(path) == 12


def test_a_record_that_is_missing_is_not_made_anew_while_its_log_is_there(path: Path) -> None:
    die_elsewhere(path)
    path.rename(path.with_name("taken"))
    with pytest.raises(WriteFailed, match=r"a\.gesta-wal' is there, and the file is missing. Put it back") as told:
        InlineSqliteStore.open(path)
    assert not path.exists()
    subprocess.run(shlex.split(str(told.value).split("`")[1]), check=True)
    drive(InlineSqliteStore.open(path).close())
    assert entries(path) == 0


def test_what_was_saved_of_another_record_or_is_on_record_again_keeps_nobody_out(path: Path) -> None:
    store, lease = written(path)
    drive(store.close())
    shutil.copy(path, path.with_name("a.saved.gesta"))
    other = InlineSqliteStore.open(path.with_name("a.saved1.gesta"))
    drive(other.append(make_batch(drive(other.lease("r")), 0)))
    drive(other.close())
    path.with_name("a.saved2.gesta").write_text("no record")
    store = InlineSqliteStore.open(path)
    lease = drive(store.lease("r"))
    drive(store.append(make_batch(lease, 10)))
    drive(store.close())
    assert entries(path) == 11


# ---------------------------------------------------------------------------------------------------------- format 1


@pytest.mark.parametrize("dead", [False, True])
def test_a_record_of_format_1_is_read_as_it_is_and_brought_up_to_date_by_who_writes(path: Path, dead: bool) -> None:
    path.write_bytes(OLD_FORMAT.read_bytes())
    if dead:  # in the middle of its turn: its name stands there still
        with closing(apsw.Connection(str(path))) as db:
            db.execute("INSERT INTO owners SELECT owner, 7, 'here', since FROM leases WHERE owner IS NOT NULL")
    old = path.read_bytes()
    reading = InlineSqliteStore.open(path, readonly=True)
    before = [(row.run, row.session, row.head) for row in drive(reading.runs())]
    run, _, head = before[0]
    assert head > 0
    assert drive(reading.gone("0123456789abcdef")) is None
    drive(reading.close())
    assert path.read_bytes() == old
    writing = InlineSqliteStore.open(path)
    assert [(row.run, row.session, row.head) for row in drive(writing.runs())] == before
    lease = drive(writing.lease(run))
    assert (lease.head, lease.lost) == (head, False), "who held it is gone: nobody else has the file open"
    drive(writing.append(make_batch(lease, head)))
    assert drive(writing.sql("SELECT format, mark FROM record")).rows == [(2, None)]
    drive(writing.close())
    again = InlineSqliteStore.open(path)
    assert drive(again.damage()) == []
    drive(again.close())
    with closing(apsw.Connection(str(path))) as db:
        assert db.pragma("user_version") == 2, "0.1.0 reads up to 1"


def test_a_record_of_format_1_is_not_brought_up_to_date_while_somebody_has_it_open(path: Path) -> None:
    path.write_bytes(OLD_FORMAT.read_bytes())
    with closing(apsw.Connection(str(path))) as other:
        other.pragma("journal_mode", "wal")
        other.execute("SELECT * FROM record").fetchall()
        with pytest.raises(WriteFailed, match="brought to format 2 when nobody else has it open; close it there"):
            InlineSqliteStore.open(path, busy_s=0.02)
        assert other.pragma("user_version") == 1
    drive(InlineSqliteStore.open(path).close())


# ------------------------------------------------------------------------------------------------------------ synced


@pytest.mark.parametrize("durability", ["synced", "normal"])
def test_a_batch_that_must_not_be_forgotten_waits_for_the_disk_under_every_durability(
    path: Path, durability: str
) -> None:
    store = InlineSqliteStore.open(path, durability=durability)  # type: ignore[arg-type]
    lease = drive(store.lease("r"))
    waits = []
    for head, synced in enumerate((False, True, False)):
        drive(store.append(Batch(lease, head, [make_row("r", head + 1)], synced=synced)))
        waits.append(store.writer._connection.pragma("synchronous"))
    assert waits == [1, 2, 1]
    drive(store.close())
