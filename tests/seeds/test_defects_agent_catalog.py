"""What agent-catalog's logs and views get wrong, done right: each test is named in docs/coming-from/parity.md."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

import gesta
from gesta.address import bind, open_record
from gesta.compat.agent_catalog.export import export_run
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    Content,
    EndContent,
    Kind,
    RequestHeaderContent,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore

NOW = datetime(2026, 11, 21, 4, 28, 23, 1000, UTC)
USER, ASSISTANT = UserContent(value="q"), AssistantContent(value="a")


def call(id: str | None = None, name: str = "t") -> ToolCallContent:
    return ToolCallContent(tool_name=name, tool_args={}, tool_call_id=id)


def result(id: str | None = None, **more: Any) -> ToolResultContent:
    return ToolResultContent(tool_result="r", tool_call_id=id, **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.gesta"


def recorded(path: Path, *contents: Content, session: str = "s", root: str = "app") -> None:
    with gesta.open_sync(str(path)) as record, record.span(root, session=session) as span:
        for content in contents:
            span.log(content)


def asked(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


# ---------------------------------------------------------------------------------------------------- the views
def test_calls_of_all_sessions_stay_rows_of_their_own_with_the_root_of_each(path: Path) -> None:
    recorded(path, call("x"), call(), result(), result("x"), call("lost"), session="one", root="app")
    recorded(path, call("x"), result("x"), session="two", root="desk")
    rows = asked(path, "SELECT sid, root, call, result, paired FROM tool_invocations")
    assert rows == [
        ("one", "app", 2, 5, "id"),
        ("one", "app", 3, 4, "order"),
        ("one", "app", 6, None, None),
        ("two", "desk", 2, 3, "id"),
    ]


async def test_order_does_not_rest_on_the_clock() -> None:
    store = MemoryStore()
    record = Record(store, bind, clock=lambda: NOW)
    async with record.span("app", session="s") as span:
        for content in (USER, call("a"), call("b"), result("b"), result("a"), ASSISTANT):
            span.write(content)
    entries = await record.read((await record.find("s")).run)
    assert {entry.at for entry in entries} == {NOW}
    assert [entry.seq for entry in entries] == list(range(1, 9))
    calls = await store.sql("SELECT call, result FROM tool_invocations")
    talk = await store.sql("SELECT inputs, outputs FROM exchanges")
    assert (calls.rows, talk.rows) == ([(3, 6), (4, 5)], [("[2]", "[7]")])


async def test_order_holds_while_the_clock_goes_back() -> None:
    ticks: Iterator[int] = iter(range(59, 0, -1))
    store = MemoryStore()
    record = Record(store, bind, clock=lambda: NOW.replace(second=next(ticks)))
    async with record.span("app", session="s") as span:
        for content in (USER, call(), result(), ASSISTANT):
            span.write(content)
    assert (await store.sql("SELECT call, result FROM tool_invocations")).rows == [(3, 4)]
    (content,) = (await store.sql("SELECT content FROM sessions")).rows[0]
    assert [one["event"]["kind"] for one in json.loads(content)] == [
        *("begin", "user", "tool-call", "tool-result", "assistant", "end")
    ]


def test_durations_errors_tokens_edges_and_sums_for_each_tool_are_plain_sql(path: Path) -> None:
    with gesta.open_sync(str(path)) as record, record.span("app", session="s") as span:
        span.log(call("a", "good"))
        span.log(result("a"))
        span.log(call("b", "bad"))
        span.log(result("b", status="error"))
        span["score"] = 3
        span.log(gesta.kinds.EdgeContent(source=["app"], dest=["other"]))
        span.log(gesta.kinds.ChatCompletionContent(output="o", usage={"input_tokens": 2, "output_tokens": 3}))
        with pytest.raises(ValueError, match="no"), span.span("worse"):
            raise ValueError("no")
    sums = "SELECT tool_name, count(*), sum(status = 'error') FROM tool_invocations GROUP BY tool_name ORDER BY 1"
    assert asked(path, sums) == [("bad", 1, 1), ("good", 1, 0)]
    assert asked(path, "SELECT count(*) FROM tool_invocations WHERE end_t >= start_t") == [(2,)]
    assert asked(path, "SELECT name FROM spans WHERE status = 'error' AND end_t >= start_t") == [("worse",)]
    of = "SELECT json_extract(content, '$.{}') FROM entries WHERE kind = '{}'"
    assert asked(path, of.format("usage.input_tokens", "chat-completion")) == [(2,)]
    assert asked(path, of.format("dest", "edge")) == [('["other"]',)]
    assert asked(path, of.format("value", "key-value")) == [(3,)]


async def test_a_session_stays_one_row_when_its_agent_changes() -> None:
    async with open_record(":memory:") as record:
        for instructions in ("be brief", "be thorough"):
            agent = gesta.Agent("desk", model=gesta.scripted("one", "two"), instructions=instructions)
            await record.run(agent, "go", session="s")
        [(sid, cid, root)] = (await record.store.sql("SELECT sid, cid, root FROM sessions")).rows
        first, second = (
            entry.content.agent.digest
            for entry in await record.read((await record.find("s")).run)
            if isinstance(entry.content, BeginContent) and entry.content.agent is not None
        )
    assert (sid, root) == ("s", "desk")
    assert json.loads(cid)["identifier"] == first != second


def test_the_last_session_is_the_one_that_was_active_last(path: Path) -> None:
    for session in ("one", "two", "one"):
        recorded(path, USER, session=session)
    assert asked(path, "SELECT sid FROM last_session") == [("one",)]
    assert asked(path, "SELECT sid FROM sessions") == [("one",), ("two",)]


def test_every_user_and_every_assistant_stands_in_one_exchange(path: Path) -> None:
    recorded(path, USER, ASSISTANT, USER, USER, ASSISTANT, ASSISTANT, USER)
    recorded(path, ASSISTANT, USER, session="s", root="other")
    rows = asked(path, "SELECT inputs, outputs FROM exchanges")
    stand = [seq for inputs, outputs in rows for seq in (*json.loads(inputs), *json.loads(outputs))]
    assert stand == [2, 3, 4, 5, 6, 7, 8, 2, 3]


async def test_a_turn_is_an_exchange_and_without_a_session_it_gets_one_of_its_own() -> None:
    async with open_record(":memory:") as record:
        for _ in range(2):
            await record.run(gesta.Agent("desk", model=gesta.scripted("hello")), "hi")
        rows = (await record.store.sql("SELECT sid, input, output FROM exchanges")).rows
    assert len({sid for sid, _, _ in rows}) == len(rows) == 2
    for _, input, output in rows:
        contents = [json.loads(text)["content"] for text in (input, output)]
        assert [(one["kind"], one["value"]) for one in contents] == [("user", "hi"), ("assistant", "hello")]


# ------------------------------------------------------------------------------------------------- spans and logs
def test_two_spans_of_one_name_are_told_apart(path: Path) -> None:
    with gesta.open_sync(str(path)) as record:
        with record.span("app", session="s") as span, span.span("step") as one, span.span("step") as two:
            one.log(SystemContent(value="in one"))
            two.log(SystemContent(value="in two"))
        entries = record.read(record.find("s").run)
    begins = {e.seq for e in entries if isinstance(e.content, BeginContent) and e.content.name == "step"}
    ends = [e.span for e in entries if isinstance(e.content, EndContent)]
    assert [e.span for e in entries if e.kind is Kind.System] == sorted(begins)
    assert ends == [*sorted(begins, reverse=True), 1]


def test_spans_that_are_open_at_once_do_not_take_each_others_entries(tmp_path: Path) -> None:
    with (
        gesta.open_sync(str(tmp_path / "a.gesta")) as first,
        gesta.open_sync(str(tmp_path / "b.gesta")) as second,
        first.span("app", session="s") as one,
        second.span("app", session="s") as two,
        first.span("other", session="s") as three,
    ):
        one.log(UserContent(value="1"))
        two.log(UserContent(value="2"))
        three.log(UserContent(value="3"))
        one.log(UserContent(value="4"))
    said = [
        asked(tmp_path / name, "SELECT json_extract(content, '$.value') FROM entries WHERE kind = 'user' ORDER BY pos")
        for name in ("a.gesta", "b.gesta")
    ]
    assert said == [[("1",), ("3",), ("4",)], [("2",)]]


def test_any_keyword_is_an_annotation(path: Path) -> None:
    with gesta.open_sync(str(path)) as record:
        with record.span("app", session="s", kind="k") as span:
            entry = span.log(USER, log_id="mine", timestamp="then", identifier="x")
        first = record.read(record.find("s").run)[0]
    assert entry is not None
    assert entry.annotations == {"log_id": "mine", "timestamp": "then", "identifier": "x"}
    assert getattr(first.content, "annotations", None) == {"kind": "k"}


def test_an_annotation_of_the_entry_wins_over_the_spans_and_the_inner_over_the_outer(path: Path) -> None:
    with (
        gesta.open_sync(str(path)) as record,
        record.span("app", session="s", a=1, b=1, c=1) as span,
        span.span("in", b=2, c=2) as inner,
    ):
        inner.log(USER, c=3)
    (text,) = asked(path, "SELECT input FROM exchanges")[0]
    assert json.loads(text)["annotations"] == {"a": 1, "b": 2, "c": 3}


def test_kinds_that_a_span_skips_are_skipped_inside_it_too(path: Path) -> None:
    with gesta.open_sync(str(path)) as record:
        with (
            record.span("app", session="s", skip={Kind.System}) as span,
            span.span("in", skip={Kind.KeyValue}) as inner,
        ):
            assert span.log(SystemContent(value="not kept")) is None
            assert inner.log(SystemContent(value="nor this")) is None
            inner["nor"] = "this"
            span["kept"] = True
            inner.log(USER)
        kinds = [str(entry.kind) for entry in record.read(record.find("s").run)]
    assert kinds == ["begin", "begin", "key-value", "user", "end", "end"]


def test_a_request_header_may_be_empty(path: Path) -> None:
    recorded(path, RequestHeaderContent())
    assert asked(path, "SELECT count(*) FROM entries WHERE kind = 'request-header'") == [(1,)]


async def test_nothing_is_lost_where_a_payload_is_none() -> None:
    async with open_record(":memory:") as record:
        async with record.span("app", session="s") as span:
            span["x"] = None
            span.write(call("a"))
            span.write(ToolResultContent(tool_result=None, tool_call_id="a"))
        run = (await record.find("s")).run
        values = [entry.content for entry in await record.read(run)]
        lines = [json.loads(line)["content"] async for line in export_run(record, run)]
    assert getattr(values[1], "value", "gone") is None
    assert getattr(values[3], "tool_result", "gone") is None
    assert "value" in lines[1]
    assert "tool_result" in lines[3]


def test_a_program_that_dies_leaves_its_last_committed_entry_whole(path: Path) -> None:
    with gesta.open_sync(str(path)) as record, record.span("app", session="s") as span:
        span.log(USER)
        other = path.with_name("copy.gesta")
        with (
            closing(apsw.Connection(str(path))) as db,
            closing(apsw.Connection(str(other))) as copy,
            copy.backup("main", db, "main") as backup,
        ):
            backup.step()
    assert asked(other, "SELECT kind FROM entries ORDER BY pos") == [("begin",), ("user",)]


@pytest.mark.parametrize("wrong", [{"kind": "user", "value": "hi"}, "hi", None])
def test_what_is_no_content_is_refused_in_words(path: Path, wrong: Any) -> None:
    with (
        gesta.open_sync(str(path)) as record,
        pytest.raises(TypeError, match="UserContent"),
        record.span("app", session="s") as span,
    ):
        span.log(wrong)
