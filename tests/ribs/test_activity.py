"""The tables of activity, and agent-catalog's lines in and out: exclusive, complete, and the same lines again."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest

import gesta
from gesta.address import open_record
from gesta.codec.blobs import Blobs
from gesta.codec.runs import Whole, run_rows
from gesta.compare.forks import Fork, fork
from gesta.compat.agent_catalog.export import export_run
from gesta.importers.file import import_file
from gesta.importers.known import find_format
from gesta.importers.source import BadImport, Source
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    Content,
    EndContent,
    KeyValueContent,
    Opened,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.store import Batch, first_lease


def call(id: str | None = None) -> ToolCallContent:
    return ToolCallContent(tool_name="t", tool_args={}, tool_call_id=id)


def result(id: str | None = None, of: int | None = None) -> ToolResultContent:
    return ToolResultContent(tool_result="r", tool_call_id=id, call=of)


def recorded(path: Path, *contents: Content, session: str = "s") -> Path:
    with gesta.open_sync(str(path)) as record, record.span("app", session=session) as span:
        for content in contents:
            span.log(content)
    return path


def asked(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(query).fetchall()


@pytest.mark.parametrize(
    ("contents", "pairs"),
    [
        ([call("a"), call("b"), result("b"), result("a")], [(2, 5, "id"), (3, 4, "id")]),
        ([call("a"), result("a"), call("a"), result("a")], [(2, 3, "id"), (4, 5, "id")]),
        ([call(), call(), result(), result()], [(2, 4, "order"), (3, 5, "order")]),
        ([result(), call(), result()], [(3, 4, "order")]),
        ([result("a"), call("a")], [(3, None, None)]),
        ([call("a"), call(), result(), result("a")], [(2, 5, "id"), (3, 4, "order")]),
        ([call("a"), call("a"), result("a", of=3)], [(2, None, None), (3, 4, "call")]),
        ([call("a"), result("a", of=2), result("a", of=2)], [(2, 3, "call")]),
    ],
)
def test_each_call_has_one_row_and_each_result_one_call(tmp_path: Path, contents: Any, pairs: Any) -> None:
    path = recorded(tmp_path / "a.gesta", *contents)
    assert asked(path, "SELECT call, result, paired FROM tool_invocations") == pairs


def test_sessions_are_never_mixed(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.gesta", call("x"), session="one")
    recorded(path, result("x"), call("x"), session="two")
    assert asked(path, "SELECT sid, call, result FROM tool_invocations") == [("one", 2, None), ("two", 3, None)]
    assert asked(path, "SELECT sid FROM last_session") == [("two",)]
    assert asked(path, "SELECT sid, root, runs, entries FROM sessions") == [("one", "app", 1, 3), ("two", "app", 1, 4)]


def test_exchanges_show_what_was_not_answered(tmp_path: Path) -> None:
    user, assistant = UserContent(value="q"), AssistantContent(value="a")
    path = recorded(tmp_path / "a.gesta", assistant, user, user, assistant, assistant, user)
    rows = asked(path, "SELECT inputs, outputs, input IS NULL, output IS NULL FROM exchanges")
    assert rows == [("[]", "[2]", 1, 0), ("[3,4]", "[5,6]", 0, 0), ("[7]", "[]", 0, 1)]
    (content,) = asked(path, "SELECT content FROM exchanges WHERE seq = 3")[0]
    assert [one["content"]["kind"] for one in json.loads(content)] == ["user", "user", "assistant", "assistant"]


def test_annotations_are_merged_member_by_member(tmp_path: Path) -> None:
    path = tmp_path / "a.gesta"
    with (
        gesta.open_sync(str(path)) as record,
        record.span("app", session="s", a={"x": 1}, b=None, c=True) as span,
        span.span("in", a={"y": 2.5}) as inner,
    ):
        inner.log(UserContent(value="q"), d="d")
    (text,) = asked(path, "SELECT input FROM exchanges")[0]
    assert json.loads(text)["annotations"] == {"a": {"y": 2.5}, "b": None, "c": True, "d": "d"}
    assert json.loads(text)["span"] == {"session": "s", "name": ["app", "in"]}


async def test_a_record_made_without_the_views_answers_all_the_same(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.gesta", UserContent(value="q"))
    with closing(sqlite3.connect(path)) as db, db:
        for view in ("spans", "sessions", "last_session", "exchanges", "tool_invocations"):
            db.execute(f"DROP VIEW {view}")
    async with open_record(str(path)) as record:
        assert (await record.store.sql("SELECT sid, inputs FROM exchanges")).rows == [("s", "[2]")]
    assert asked(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'exchanges'") == [(0,)]
    async with open_record(":memory:") as record:
        assert (await record.store.sql("SELECT * FROM tool_invocations")).rows == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("view", ["sessions", "exchanges", "tool_invocations"])
def test_cost_grows_with_the_record_and_not_with_its_square(tmp_path: Path, view: str) -> None:
    turn: list[Content] = [
        UserContent(value="q"),
        call(),
        call("a"),
        result("a"),
        result(),
        AssistantContent(value="a"),
    ]

    def steps(times: int) -> int:
        path = recorded(tmp_path / f"{times}.gesta", *turn * times)
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        with closing(sqlite3.connect(path)) as db, db:
            db.set_progress_handler(step, 1000)
            db.execute(f"SELECT * FROM {view}").fetchall()
        return count

    assert steps(240) < 6 * steps(60) + 20


# ------------------------------------------------------------------------------------------------- agent-catalog
class LogSpan(pydantic.BaseModel):
    session: str
    name: list[str]


class LogContent(pydantic.BaseModel, extra="forbid"):
    """Any content of the document, with no field that it does not name."""

    kind: Literal["system", "user", "assistant", "chat-completion", "tool-call", "tool-result", "request-header",
                  "begin", "end", "edge", "key-value"]  # fmt: skip
    extra: dict[str, Any] | None = None
    value: Any = None
    user_id: str | None = None
    output: Any = None
    meta: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_name: str | None = None
    tool_args: dict[str, Any] | None = None
    tool_call_id: str | None = None
    tool_result: Any = None
    status: Literal["success", "error"] | None = None
    state: Any = None
    source: list[str] | None = None
    dest: list[str] | None = None
    payload: Any = None
    key: str | None = None

    @pydantic.model_validator(mode="after")
    def _complete(self) -> "LogContent":
        given = self.model_fields_set
        needed = {
            "tool-call": {"tool_name", "tool_args", "tool_call_id"},
            "tool-result": {"tool_result"},
            "chat-completion": {"output"},
            "key-value": {"key", "value"},
            "edge": {"source", "dest"},
        }
        needed |= {kind: {"value"} for kind in ("system", "user", "assistant")}
        assert needed.get(self.kind, set()) <= given
        return self


class LogRecord(pydantic.BaseModel, extra="forbid"):
    identifier: str
    span: LogSpan
    timestamp: pydantic.AwareDatetime
    content: LogContent
    annotations: dict[str, Any] | None = None
    catalog_version: dict[str, Any]


VERSION = {"timestamp": "2026-11-21T04:28:23.804052Z", "identifier": "abc", "is_dirty": False, "version_system": "git"}


def log(number: int, content: dict[str, Any], *path: str, **more: Any) -> dict[str, Any]:
    line = {
        "identifier": f"id{number}",
        "span": {"session": more.pop("session", "s1"), "name": list(path)},
        "timestamp": f"2026-11-21T04:28:23.{number:06}+02:00",
        "content": content,
    }
    return {**line, **more, "catalog_version": more.pop("catalog_version", VERSION)}


LINES = [
    log(1, {"kind": "begin", "state": {"a": 1}}, "app"),
    log(2, {"kind": "user", "value": "hi", "user_id": "u"}, "app", annotations={"x": 1.0, "inferred": "mine"}),
    log(3, {"kind": "assistant", "value": "other"}, "other", session="s2"),
    log(4, {"kind": "tool-call", "tool_name": "t", "tool_args": {}, "tool_call_id": "1", "status": "success"},
        "app", "agent"),
    log(5, {"kind": "tool-result", "tool_result": {"$text": "?"}, "status": "success"}, "app", "agent"),
    log(6, {"kind": "key-value", "key": "null"}, "app", "agent", catalog_version={**VERSION, "identifier": "def"}),
    log(7, {"kind": "begin"}, "app"),
    log(8, {"kind": "end"}, "app"),
    log(9, {"kind": "unheard-of", "value": 1}, "app"),
    log(10, {"kind": "assistant", "value": "bye", "later": [1]}, "app", unknown=None),
    log(11, {"kind": "end", "state": {"a": 2}}, "app"),
]  # fmt: skip


@pytest.fixture
def activity(tmp_path: Path) -> Path:
    path = tmp_path / "activity.log"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


@pytest.fixture
def torn(activity: Path) -> Path:
    activity.write_bytes(activity.read_bytes() + b'{"identifier": "id12", "sp')
    return activity


async def exported(record: Any, run: str) -> list[Any]:
    return [json.loads(line) async for line in export_run(record, run)]


async def test_a_session_that_an_earlier_release_imported_comes_out_the_same() -> None:
    """What is said of the whole session stood in a key-value after the first begin."""
    line = log(1, {"kind": "user", "value": "hi"}, "app")
    at = datetime.fromisoformat(line["timestamp"])
    about = {"session": "s1", "catalog_version": VERSION}
    only = json.dumps({"agent-catalog": {"identifier": line["identifier"], "timestamp": line["timestamp"]}})
    implied = '{"inferred":["entry"]}'
    async with open_record(":memory:") as record:
        opened = Opened(session="s1", name="app", record=record.info.id)
        entries: list[Whole] = [
            (BeginContent(name="import", role="import", opened=opened), 1, (), implied, at),
            (KeyValueContent(key="agent-catalog", value=about), 1, (), implied, at),
            (EndContent(), 1, (), implied, at),
            (BeginContent(name="app"), 4, (), implied, at),
            (UserContent(value="hi"), 4, (), only, at),
            (EndContent(), 4, (), implied, at),
        ]
        rows = run_rows("earlier", entries, Blobs().keep, plain=True)
        await record.store.append(Batch(first_lease("earlier"), 0, rows))
        assert await exported(record, "earlier") == [line]


async def test_lines_go_in_once_and_come_out_the_same(activity: Path) -> None:
    assert find_format(Source(activity)).name == "agent-catalog"
    async with open_record(":memory:") as record:
        done = await import_file(record, activity)
        assert (done.runs, done.format) == (2, "agent-catalog")
        assert done.oddities == {"missing-result-id": 1, "unknown-member": 2, "unreadable-message": 1}
        assert (await import_file(record, activity)).skipped == 2
        rows = {row.session: row for row in await record.store.runs()}
        assert {session: row.name for session, row in rows.items()} == {"s1": "app", "s2": "other"}
        for session, row in rows.items():
            assert await exported(record, row.run) == [one for one in LINES if one["span"]["session"] == session]
        assert await record.verify() == []
        entries = await record.read(rows["s1"].run)
        made = next(entry for entry in entries if isinstance(entry.content, ToolResultContent))
        assert isinstance(made.content, ToolResultContent)
        assert (made.content.tool_call_id, made.causes) == (None, (made.content.call,))
        assert (made.annotations or {})["inferred"] == ["call", "causes"]
        assert entries[3].at == datetime(2026, 11, 21, 2, 28, 23, 2, UTC)
        paths = await record.store.sql(
            "SELECT path, status FROM spans WHERE session = 's1' AND role IS NULL ORDER BY path, span"
        )
        assert paths.rows == [('["app","agent"]', "error"), ('["app"]', "success"), ('["app"]', "success")]


async def test_a_torn_line_is_kept(torn: Path) -> None:
    async with open_record(":memory:") as record:
        assert (await import_file(record, torn)).oddities["unreadable-message"] == 2
        lines = [line async for line in export_run(record, (await record.find("s1")).run)]
        assert lines[-1] == '{"identifier": "id12", "sp\n'


async def test_a_span_without_a_name_may_end(tmp_path: Path) -> None:
    span = {"session": "s", "name": []}
    stamp = {"timestamp": "2026-01-01T00:00:00+00:00", "catalog_version": {"identifier": "v"}}
    contents = [{"kind": "user", "value": "hi"}, {"kind": "end"}]
    lines = [{"identifier": str(n), "span": span, "content": each} | stamp for n, each in enumerate(contents)]
    path = tmp_path / "activity.log"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with gesta.open() as record:
        await import_file(record, path)
        kinds = [entry.kind.value for entry in await record.read((await record.find("s")).run)]
    assert kinds.count("begin") == kinds.count("end") > 0


async def test_a_file_that_names_no_session_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text('{"identifier": "1", "catalog_version": {}}\n')
    async with open_record(":memory:") as record:
        with pytest.raises(BadImport, match=r"line 1 is not a log record: it has no span\.session"):
            await import_file(record, path)


async def test_a_fork_goes_out_as_a_session_of_its_own(torn: Path) -> None:
    agent = gesta.Agent("desk", gesta.function(lambda messages, _: f"So {messages[-1]['content']}."))
    async with gesta.open() as record:
        await record.run(agent, "one", session="driven")
        await import_file(record, torn)
        for base in await record.store.runs():
            await fork(record, base, Fork())
        forks = [row for row in await record.store.runs() if "~" in row.session]
        for row in forks:
            lines = await exported(record, row.run)
            assert {line["span"]["session"] for line in lines} == {row.session}
            assert len({line["identifier"] for line in lines}) == len(lines)
            for line in lines:
                LogRecord.model_validate(line)
        assert {row.session for row in forks} == {"driven~1", "s1~1", "s2~1"}


async def test_any_run_goes_out_as_lines_that_agent_catalog_reads() -> None:
    model = gesta.scripted(gesta.call("t", x={"deep": [1]}), "done")

    @gesta.tool(effect="pure")
    def t(x: dict[str, Any]) -> Any:
        """Do."""
        return x

    async with open_record(":memory:") as record:
        await record.run(gesta.Agent("desk", model=model, tools=[t]), "go", session="s")
        async with record.span("app", session="own", at=("a", 1)) as span:
            span.write(ThoughtContent(value="hm"))
            span["odd"] = {"set": {1}, "nan": float("nan"), "bytes": b"x", "object": object, 1: "\ud800"}
            made = span.write(ToolCallContent(tool_name="t", tool_args={}))
            span.write(ToolResultContent(tool_result=None, call=made.seq), (made.seq,))
            span.write(ChatCompletionContent(output="o", model="m", usage={"n": 1}, extra={"model": "own"}))
        rows = await record.store.runs()
        for row in rows:
            lines = await exported(record, row.run)
            assert len(lines) == row.head
            for line in lines:
                LogRecord.model_validate(line)
        lines = await exported(record, rows[-1].run)
    contents = [line["content"] for line in lines]
    assert contents[1] == {"kind": "key-value", "key": "thought", "value": {"value": "hm"}}
    value = contents[2]["value"]
    assert (value["set"], value["nan"], value["bytes"], value["1"]) == ([1], "nan", "x", "\\ud800")
    assert value["object"] == "<class 'object'>"
    assert contents[3]["tool_call_id"] == contents[4]["tool_call_id"] != ""
    assert contents[4]["tool_result"] is None
    assert contents[5]["extra"] == {"model": "own", "usage": {"n": 1}, "gesta": {"model": "m"}}
    assert lines[1]["annotations"] == {"at": ["a", 1]}
