"""Whatever else in our own process opens a record's file: nothing that was told to be on record is lost, nothing dies."""

import gc
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests import programs

import gesta
from gesta.errors import RecordError, WriteFailed
from gesta.kinds import UserContent
from gesta.stores.sqlite_guard import refuse_second

ELSEWHERE = """
import sqlite3, sys
from contextlib import closing
with closing(sqlite3.connect(sys.argv[1])) as db:
    print(db.execute("SELECT count(*) FROM entries").fetchone()[0])
"""


@pytest.fixture(scope="module", autouse=True)
def _small_heap() -> None:
    """Leave what other tests made to no garbage collector: each check here may collect, for want of which it refuses."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.gesta"


def entries_elsewhere(path: Path) -> int:
    """Entries that another process finds; it is the last to close the file, as far as it can see."""
    return int(programs.run(["-c", ELSEWHERE, str(path)]).stdout)


def entries(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT count(*) FROM entries").fetchone()[0])


def test_another_process_may_open_and_close_a_record_that_is_written(path: Path) -> None:
    with gesta.open_sync(str(path)) as record, record.span("app", session="s") as span:
        for count in range(1, 4):
            span.log(UserContent(value="hi"))
            assert entries_elsewhere(path) == count + 1
    assert entries(path) == 5


def test_a_copy_made_here_while_nothing_is_written_does_no_harm(path: Path) -> None:
    with gesta.open_sync(str(path)) as record, record.span("app", session="s") as span:
        span.log(UserContent(value="one"))
        path.read_bytes()
        span.log(UserContent(value="two"))
        assert entries_elsewhere(path) == 3, "the lock was taken again, so the log is still there"
        span.log(UserContent(value="three"))
    assert entries(path) == 5


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")  # from Python 3.13 on, and it is the point
def test_a_connection_of_another_sqlite_that_nobody_has_any_more_does_not_refuse_the_record(path: Path) -> None:
    with gesta.open_sync(path):
        pass
    assert sqlite3.connect(path).execute("SELECT count(*) FROM entries").fetchone() == (0,)  # in a cycle
    with gesta.open_sync(path) as record:
        assert record.verify() == []


def test_what_would_go_to_a_log_that_was_taken_away_is_refused_and_all_before_it_stands(path: Path) -> None:
    def write() -> None:
        with gesta.open_sync(str(path)) as record, record.span("app", session="s") as span:
            span.log(UserContent(value="one"))
            path.read_bytes()
            assert entries_elsewhere(path) == 2
            assert not path.with_name("a.gesta-wal").exists(), "the other process was the last, for all it could see"
            span.log(UserContent(value="lost"))

    with pytest.raises(WriteFailed, match="close the record and open it again"):
        write()
    assert entries(path) == 2
    with gesta.open_sync(str(path)) as record, record.span("app", session="s") as span:
        span.log(UserContent(value="two"))
    with closing(sqlite3.connect(path)) as db:
        users = db.execute("SELECT json_extract(content, '$.value') FROM entries WHERE kind = 'user'").fetchall()
    assert users == [("one",), ("two",)]


@pytest.mark.parametrize("form", ["path", "text", "relative", "uri", "link"])
def test_a_second_copy_of_sqlite_may_not_open_what_is_written_here(
    path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    path.with_name("link").symlink_to(path)
    names: dict[str, str | Path] = {
        "path": path,
        "text": str(path),
        "relative": "a.gesta",
        "uri": f"file:{path}?mode=ro",
        "link": "link",
    }
    with gesta.open_sync(str(path)) as record, record.span("app", session="s") as span:
        span.log(UserContent(value="hi"))
        with pytest.raises(RecordError, match=r"apsw\.Connection"):
            sqlite3.connect(names[form], uri=form == "uri")
        with closing(apsw.Connection(str(path))) as db:
            assert db.execute("SELECT count(*) FROM entries").fetchone() == (2,)
        assert entries_elsewhere(path) == 2
    assert entries(path) == 3


def test_a_thread_of_a_closed_record_is_waited_for_when_it_is_just_ending(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gesta.open_sync(str(path)) as record, record.span("app", session="s"):
        leave = record.record.store.keep()
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    with pytest.raises(RecordError, match="close the record first"):
        entries(path)
    assert len(waits) == 3
    monkeypatch.setattr("time.sleep", lambda _: leave())
    assert entries(path) == 2


def test_other_files_and_forked_children_may_use_any_copy(path: Path) -> None:
    with gesta.open_sync(str(path)) as record, record.span("app", session="s"):
        for name in (":memory:", "", f"{path}.db"):
            sqlite3.connect(name).close()
        refuse_second("sqlite3.connect", (object(),))
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if entries(path) == 1 else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    assert entries(path) == 2


def test_two_stores_of_one_process_keep_each_other_s_locks(path: Path) -> None:
    with gesta.open_sync(str(path)) as record, record.span("app", session="s") as span:
        with gesta.open_sync(str(path)) as other, other.span("b", session="t"):
            pass
        assert entries_elsewhere(path) == 3
        span.log(UserContent(value="hi"))
        with pytest.raises(RecordError):
            entries(path)
    assert entries(path) == 5


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux tells what a process has open")
def test_a_record_that_another_copy_has_open_is_not_opened(path: Path) -> None:
    with gesta.open_sync(str(path)) as record, record.span("app", session="s"):
        pass
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM entries").fetchone() == (2,)
        with pytest.raises(RecordError, match="Close that connection first"), gesta.open_sync(str(path)):
            pass
    with gesta.open_sync(str(path)):
        pass


@pytest.mark.slow
def test_who_reads_on_after_the_record_was_closed_keeps_the_log_beside_the_file(path: Path) -> None:
    with gesta.open_sync(str(path)) as record, record.span("app", session="s"):
        reader = apsw.Connection(str(path))
        assert reader.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    with closing(reader):
        assert entries_elsewhere(path) == 2
        assert path.with_name("a.gesta-wal").exists(), "the other process was not the last"
        with pytest.raises(RecordError):
            entries(path)
    assert entries(path) == 2, "nobody has it open any more"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux tells what a process has open")
def test_nor_is_one_that_another_copy_has_open_and_never_asked(path: Path) -> None:
    with gesta.open_sync(str(path)):
        pass
    with (
        closing(sqlite3.connect(path)),
        pytest.raises(RecordError, match="Close that connection first"),
        gesta.open_sync(str(path)),
    ):
        pass
    with path.open("rb"), gesta.open_sync(str(path)):  # a file that is merely read is none
        pass


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_record_that_is_no_longer_there_takes_nothing_more(path: Path, how: str) -> None:
    def write() -> None:
        with gesta.open_sync(str(path)) as record, record.span("app", session="s") as span:
            span.log(UserContent(value="one"))
            if how == "moved":
                path.rename(path.with_name("moved"))
            else:
                path.unlink()
            if how == "replaced":
                path.touch()
            span.log(UserContent(value="lost"))

    with pytest.raises(WriteFailed, match="moved or deleted"):
        write()


def test_a_record_can_be_opened_while_a_thread_asks_another_one(path: Path) -> None:
    busy = apsw.Connection(":memory:")
    began, end = threading.Event(), threading.Event()

    def wait(*_given: object) -> int:
        began.set()
        end.wait(10)
        return 1

    busy.create_scalar_function("wait", wait)
    thread = threading.Thread(target=lambda: busy.execute("SELECT wait()").fetchall())
    thread.start()
    try:
        assert began.wait(10)
        with gesta.open_sync(str(path)):
            pass
    finally:
        end.set()
        thread.join()
        busy.close()
