"""The inbox is looked into where it costs least, and what lies there is seen at once, whoever put it there."""

from pathlib import Path

import pytest

from gesta.codec.rows import encode_content
from gesta.entry import utc_text
from gesta.kinds import SignalContent
from gesta.log.journal import utc_now
from gesta.store import Letter
from gesta.stores.sqlite import InlineSqliteStore


def letter(key: str) -> Letter:
    return Letter("run", key, encode_content(SignalContent(name="cancel", by="Ada")), utc_text(utc_now()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.gesta"


async def test_what_another_store_sends_is_seen_at_the_next_look(path: Path) -> None:
    ours, other = InlineSqliteStore.open(path), InlineSqliteStore.open(path)
    assert await ours.inbox("run") == []
    assert await other.send(letter("a"))
    assert [each.key for each in await ours.inbox("run")] == ["a"]
    await ours.send(letter("b"))
    assert (
        [each.key for each in await ours.inbox("run")] == ["a", "b"] == [each.key for each in await other.inbox("run")]
    )
    await other.close()
    await ours.close()


async def test_while_a_thread_writes_the_reader_looks(path: Path) -> None:
    store = InlineSqliteStore.open(path)
    await store.send(letter("a"))
    with store.writer._turn:
        assert store.writer.inbox("run") is None
        assert [each.key for each in await store.inbox("run")] == ["a"]
    assert store.writer.inbox("run") == await store.inbox("run")
    await store.close()


async def test_a_record_that_is_only_read_has_an_inbox_too(path: Path) -> None:
    store = InlineSqliteStore.open(path)
    await store.send(letter("a"))
    await store.close()
    reading = InlineSqliteStore.open(path, readonly=True)
    assert [each.key for each in await reading.inbox("run")] == ["a"]
    assert await reading.inbox("\ud800") == []
    await reading.close()


async def test_an_inbox_that_was_empty_is_read_again_once_anybody_wrote(path: Path) -> None:
    ours, other = InlineSqliteStore.open(path), InlineSqliteStore.open(path)
    seen: list[str] = []
    ours.writer._connection.exec_trace = lambda _cursor, text, _values: seen.append(text) or True  # type: ignore[func-returns-value]
    for _ in range(3):
        assert await ours.inbox("run") == []
    assert len([text for text in seen if "FROM main.inbox" in text]) == 1, "nobody wrote: it stayed empty"
    await ours.send(letter("mine"))
    assert [each.key for each in await ours.inbox("run")] == ["mine"]
    assert await ours.inbox("else") == []
    await other.send(Letter("else", "theirs", letter("").content, utc_text(utc_now())))
    assert [each.key for each in await ours.inbox("else")] == ["theirs"]
    await other.close()
    await ours.close()
