"""Words are found in what was said, called and answered, through an index that costs an append nothing."""

import os
import stat
from pathlib import Path
from typing import Any

import apsw
import pytest

import gesta
from gesta.address import Record, bind, inline_store
from gesta.compare.forks import Change, Fork, fork
from gesta.errors import GestaError
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    KeyValueContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.store import Store
from gesta.stores.memory import MemoryStore
from gesta.stores.words import CLOSING, FORM, OPENING, Hit, Wanted, compiled, find

pytestmark = pytest.mark.anyio
TOLD = [
    UserContent(value="My lamp is broken. Crème brûlée, 50 % off; order #W2378156!"),
    ChatCompletionContent(output="Let me look at that order."),
    ToolCallContent(tool_name="look_up", tool_args={"number": "W2378156", "deep": {"list": ["blue\nlamp", 7]}}),
    ToolResultContent(tool_result='{"status": "delivered", "note": "left at the door"}'),
    AssistantContent(value="It was delivered."),
    KeyValueContent(key="lamp", value="not looked for"),
]


@pytest.fixture(params=["memory", "small", "kept", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "postgres":
        pytest.importorskip("psycopg")
    address = request.getfixturevalue("emptied") if request.param == "postgres" else str(tmp_path / "r.gesta")
    store = MemoryStore() if request.param == "memory" else inline_store(address)
    yield store, 0 if request.param == "kept" else 5000
    await store.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def told(store: Store, session: str, name: str, contents: list[Any] = TOLD) -> None:
    async with Record(store, bind).span(name, session=session) as span:
        for content in contents:
            span.log(content)


async def seqs(place: tuple[Store, int], words: str, **wanted: Any) -> list[tuple[str, int]]:
    return [(hit.session, hit.seq) for hit in await look(place, words, **wanted)]


async def look(place: tuple[Store, int], words: str, **wanted: Any) -> list[Hit]:
    store, keep_from = place
    return await find(store, Wanted(words=words, **wanted), keep_from=keep_from)


@pytest.mark.sample(2)
async def test_words_are_found_wherever_somebody_said_them(place: Any):
    await told(place[0], "s", "desk")
    assert await seqs(place, "lamp") == [("s", 4), ("s", 2)]
    assert await seqs(place, "LAMP broken") == [("s", 2)]
    assert await seqs(place, "w2378156") == [("s", 4), ("s", 2)]
    assert await seqs(place, "creme brulee") == [("s", 2)]
    assert await seqs(place, "delivered") == [("s", 6), ("s", 5)]
    assert await seqs(place, "look_up") == [("s", 4)]
    assert await seqs(place, "nowhere") == []


async def test_words_in_quotes_stand_together_and_a_star_stands_for_an_ending(place: Any):
    await told(place[0], "s", "desk")
    assert await seqs(place, '"at the door"') == [("s", 5)]
    assert await seqs(place, '"door the"') == []
    assert await seqs(place, "deliv*") == [("s", 6), ("s", 5)]
    assert await seqs(place, "broken OR door") == [("s", 5), ("s", 2)]
    assert await seqs(place, "broken AND(") == []


async def test_what_is_new_is_found_at_the_next_look(place: Any):
    await told(place[0], "s", "desk")
    assert len(await seqs(place, "lamp")) == 2
    await told(place[0], "s", "desk", [UserContent(value="another lamp")])
    assert await seqs(place, "lamp") == [("s", 10), ("s", 4), ("s", 2)]


@pytest.mark.sample(2)
async def test_runs_kinds_agents_and_days_narrow_it(place: Any):
    await told(place[0], "s", "desk")
    await told(place[0], "t", "desk")
    await told(place[0], "t", "clerk")
    assert await seqs(place, "lamp", session="s") == [("s", 4), ("s", 2)]
    assert await seqs(place, "lamp", agent="clerk") == [("t", 4), ("t", 2)]
    assert len(await seqs(place, "lamp", session="t")) == 4
    assert await seqs(place, "lamp", session="nobody") == []
    assert await seqs(place, "lamp", kinds=["tool-call"], session="s") == [("s", 4)]
    assert await seqs(place, "lamp", since="2999-01-01") == []
    assert len(await seqs(place, "lamp", until="2999-01-01", limit=5)) == 5
    (run,) = await place[0].runs("t", "clerk")
    hits = await look(place, "lamp", run=run.run)
    assert {hit.run for hit in hits} == {run.run}


async def test_the_best_may_come_first(place: Any):
    contents = [UserContent(value="lamp lamp lamp"), UserContent(value="a lamp in a long text " + "of words " * 50)]
    await told(place[0], "s", "desk", contents)
    assert await seqs(place, "lamp") == [("s", 3), ("s", 2)]
    assert await seqs(place, "lamp", best=True) == [("s", 2), ("s", 3)]


async def test_a_snippet_shows_the_words_around_the_first_match(place: Any):
    await told(
        place[0], "s", "desk", [UserContent(value="so many words " * 40 + "and then a lamp " + "and more " * 40)]
    )
    (hit,) = await look(place, "lamp")
    assert f"then a {OPENING}lamp{CLOSING} and" in hit.snippet
    assert hit.snippet.startswith("…")
    assert len(hit.snippet) < 150


async def test_large_values_and_odd_ones_are_found_too(place: Any):
    large = {"text": "filler " * 20_000 + "needle", "odd": "half \ud800 needle", "none": None, "number": 4711}
    await told(place[0], "s", "desk", [ToolResultContent(tool_result=large), UserContent(value="nul \0 thread")])
    assert await seqs(place, "needle") == [("s", 2)]
    assert await seqs(place, "4711") == [("s", 2)]
    assert await seqs(place, "thread") == [("s", 3)]


async def test_what_a_person_was_shown_is_not_told_twice(tmp_path: Path):
    agent = gesta.Agent("desk", gesta.scripted("Here is your lamp."))
    async with gesta.open(str(tmp_path / "r.gesta")) as record:
        await record.run(agent, "Well?", session="s")
        found = await find(record.store, Wanted(words="lamp"))
        assert [hit.kind for hit in found] == ["assistant"]
        assert len(await find(record.store, Wanted(words="lamp", kinds=["chat-completion"]))) == 1


@pytest.mark.parametrize("words", ["", "   ", "!!!", '"', "*", '""'])
async def test_nothing_to_look_for_is_an_error_that_says_so(words: str):
    with pytest.raises(GestaError, match="No word to look for"):
        await find(MemoryStore(), Wanted(words=words))


@pytest.mark.parametrize(
    "words", ["OR", "a OR", "OR b", "a OR OR b", "NEAR(a b)", "a AND NOT b", "col:a", "^a", "a-b c'd", "{a"]
)
async def test_nothing_that_is_typed_is_taken_for_more_than_words(words: str):
    store = MemoryStore()
    await told(store, "s", "desk")
    assert isinstance(await find(store, Wanted(words=words)), list)
    assert compiled(words)


async def test_a_small_record_is_not_changed_by_looking(tmp_path: Path):
    path = tmp_path / "r.gesta"
    store = inline_store(str(path))
    await told(store, "s", "desk")
    assert len(await find(store, Wanted(words="lamp"))) == 2
    assert (await store.sql("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'gesta%'")).rows == [(0,)]
    await store.close()


async def test_an_append_costs_nothing_for_it(tmp_path: Path):
    """No trigger, no table that an append would write: the index is filled by who looks."""
    store = inline_store(str(tmp_path / "r.gesta"))
    await told(store, "s", "desk")
    await find(store, Wanted(words="lamp"), keep_from=0)
    known = "SELECT pos FROM gesta_words_known"
    before = (await store.sql(known)).rows
    await told(store, "s", "desk")
    assert (await store.sql(known)).rows == before
    assert (await store.sql("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'")).rows == [(0,)]
    await store.close()


async def test_a_record_that_cannot_be_written_is_looked_through_all_the_same(tmp_path: Path):
    path = tmp_path / "r.gesta"
    store = inline_store(str(path))
    await told(store, "s", "desk")
    await store.close()
    path.chmod(stat.S_IRUSR)
    readonly = inline_store(str(path), readonly=True)
    if os.geteuid():  # who may write all is kept from nothing
        assert len(await find(readonly, Wanted(words="lamp"), keep_from=0)) == 2
    assert len(await find(readonly, Wanted(words="lamp"), keep_from=None)) == 2
    await readonly.close()
    assert names(tmp_path) == ["r.gesta"]


async def test_an_index_of_another_release_is_made_anew(tmp_path: Path):
    path = tmp_path / "r.gesta"
    store = inline_store(str(path))
    await told(store, "s", "desk")
    await find(store, Wanted(words="lamp"), keep_from=0)
    other = apsw.Connection(str(path))
    other.execute("DELETE FROM gesta_words; UPDATE gesta_words_known SET form = 0")
    other.close()
    assert len(await find(store, Wanted(words="lamp"), keep_from=0)) == 2
    assert (await store.sql("SELECT form FROM gesta_words_known")).rows == [(FORM,)]
    await store.close()


async def test_a_tool_cannot_change_the_index(tmp_path: Path):
    from gesta.stores.effects import Refused, Sql

    store = inline_store(str(tmp_path / "r.gesta"))
    await told(store, "s", "desk")
    await find(store, Wanted(words="lamp"), keep_from=0)
    connection = apsw.Connection(str(tmp_path / "r.gesta"))
    sql = Sql(connection)
    with sql.guarded(None), pytest.raises(Refused):
        sql("UPDATE gesta_words_known SET pos = 0")
    connection.close()
    await store.close()


async def test_what_a_fork_shares_is_found_once_in_its_base(place: Any) -> None:
    record = Record(place[0], bind)
    agent = gesta.Agent("desk", model=gesta.scripted("The lamp is blue.", stream=False))
    first = await record.run(agent, "Which lamp?", session="a")
    base = await record.find(first.run)
    head = len(await record.read(first.run))
    await fork(record, base, Fork(at=head, session="same"))
    other = await fork(record, base, Fork(changes=[Change(2, "value", "Which lamp, and which sofa?")], session="other"))
    assert await seqs(place, "blue", kinds=["assistant"]) == [("a", head - 1)]
    assert await seqs(place, "sofa") == [("other", 4)]
    assert await seqs(place, "lamp", run=other.run) == [("other", 4)], "of a fork, what it wrote itself"
