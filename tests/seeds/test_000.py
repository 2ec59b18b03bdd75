"""Content kinds, name by name: every name of the document is where the table says, with its fields and its tag."""

import importlib
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import UnionType
from typing import Any, get_args
from uuid import UUID

import msgspec
import pytest

import gesta
from gesta import kinds
from gesta.address import drive, open_record
from gesta.codec.rows import PythonValue
from gesta.compat import agent_catalog as compat
from gesta.compat.agent_catalog.export import export_run
from gesta.formatters.tool_calls import ToolCalls
from gesta.kinds import (
    BeginContent,
    EdgeContent,
    EndContent,
    KeyValueContent,
    Kind,
    RequestHeaderContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)

NAMES = {
    "System": ("system", ("value",)),
    "ToolCall": ("tool-call", ("tool_name", "tool_args", "tool_call_id", "status", "meta")),
    "ToolResult": ("tool-result", ("tool_result", "tool_call_id", "status")),
    "ChatCompletion": ("chat-completion", ("output", "meta", "model", "finish_reason", "usage", "latency_ms")),
    "RequestHeader": ("request-header", ("tools", "output", "meta")),
    "User": ("user", ("value", "user_id")),
    "Assistant": ("assistant", ("value",)),
    "Begin": ("begin", ("state",)),
    "End": ("end", ("state", "status", "reason", "error")),
    "Edge": ("edge", ("source", "dest", "payload")),
    "KeyValue": ("key-value", ("key", "value")),
}


@pytest.mark.parametrize(("name", "tag", "fields"), [(name, *rest) for name, rest in NAMES.items()])
def test_a_kind_keeps_name_fields_and_tag(name: str, tag: str, fields: Sequence[str]) -> None:
    made = getattr(importlib.import_module("gesta.kinds"), f"{name}Content")
    assert getattr(Kind, name) == tag == made.kind == made.__struct_config__.tag
    assert made.__struct_config__.tag_field == "kind"
    assert {"extra", *fields} <= set(made.__struct_fields__)
    assert made.__struct_config__.frozen
    assert made in get_args(kinds.Content)


def test_kind_is_a_string_enum_with_words() -> None:
    assert issubclass(Kind, str)
    assert all(member.__doc__ and member.__doc__ != Kind.__doc__ for member in Kind)
    assert isinstance(kinds.Content, UnionType)
    assert {each.__struct_config__.tag for each in get_args(kinds.Content)} == {str(member) for member in Kind}


def test_what_is_optional_may_be_left_out() -> None:
    call = ToolCallContent(tool_name="t", tool_args={})
    assert (call.tool_call_id, call.status, call.meta, call.extra) == (None, "success", None, None)
    result = ToolResultContent(tool_result=None)
    assert (result.tool_call_id, result.status) == (None, "success")
    header = RequestHeaderContent(tools=[{"name": "t", "description": "d", "args_schema": {}}])
    assert (header.output, header.meta) == (None, None)
    assert UserContent(value="hi").user_id is None
    assert EdgeContent(source=["a"], dest=["a", "b"]).payload is None
    with pytest.raises(AttributeError):
        UserContent(value="hi").value = "ho"  # type: ignore[misc]


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


class Plain:
    def __repr__(self) -> str:
        return "Plain()"


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
SAFE: list[tuple[Any, Any, Any]] = [
    (None, None, None),
    ([1, (2, "a")], [1, {"$tuple": [2, "a"]}], [1, [2, "a"]]),
    ({3, 1}, {"$set": [1, 3]}, [1, 3]),
    ({"a": {1: 2}}, {"a": {"$items": [[1, 2]]}}, {"a": {"1": 2}}),
    ({"$bytes": "no"}, {"$dict": {"$bytes": "no"}}, {"$bytes": "no"}),
    (b"\xff", {"$bytes": "/w=="}, "b'\\xff'"),
    (float("nan"), {"$float": "nan"}, "nan"),
    (float("-inf"), {"$float": "-inf"}, "-inf"),
    (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00", "2026-01-02T00:00:00+00:00"),
    ("\ud800", {"$text": "7aCA"}, "\\ud800"),
    (CYCLE, [{"$cycle": True}], ["…"]),
    (Plain(), {"$py": ["Plain", "Plain()"]}, "Plain()"),
    (Broken(), {"$py": ["Broken", "Broken"]}, "Broken"),
]
"""A value, how it stands on record, and how agent-catalog reads it."""


@pytest.mark.parametrize(("value", "stored", "shown"), SAFE, ids=[type(value).__name__ for value, *_ in SAFE])
async def test_safe_serialize(value: Any, stored: Any, shown: Any) -> None:
    async with open_record(":memory:") as record:
        async with record.span("s", session="s") as span:
            span.log(KeyValueContent(key="k", value=value, extra={"v": value}), note=value)
        run = (await record.store.runs())[0].run
        row = (await record.store.read(run))[1]
        content = json.loads(row.content)
        assert content.get("value") == content["extra"]["v"] == json.loads(row.annotations or "{}")["note"] == stored
        line = json.loads([line async for line in export_run(record, run)][1])
    assert line["content"]["value"] == line["content"]["extra"]["v"] == line["annotations"]["note"] == shown


def test_on_every_field_of_every_kind(tmp_path: Path) -> None:
    odd = Plain()
    contents: list[kinds.Content] = [
        ToolCallContent(tool_name="t", tool_args={"a": odd}, meta={"a": odd}),
        ToolResultContent(tool_result=odd),
        EdgeContent(source=["a"], dest=["b"], payload=odd),
        EndContent(state=odd),
        RequestHeaderContent(meta={"a": odd}, output={"a": odd}),
    ]
    with gesta.open_sync(str(tmp_path / "a.gesta")) as record:
        with record.span("s", session="s") as span:
            for content in contents:
                span.log(content)
        entries = record.read(record.find("s").run)
    assert all("Plain()" in str(entry.content) for entry in entries[1:6])
    assert PythonValue("Plain", "Plain()") == getattr(entries[2].content, "tool_result", None)


def test_keys_are_entries_annotations_belong_to_entries_and_state_is_read_again(tmp_path: Path) -> None:
    state = {"n": 1}
    path = tmp_path / "a.gesta"
    with gesta.open_sync(str(path)) as record:
        with record.span("app", session="s", state=state, version="2") as span:
            span["alpha"] = 1
            span["alpha"] = 2
            span.log(UserContent(value="hi"), channel="chat")
            state["n"] = 2
        with pytest.raises(RuntimeError), record.span("app", session="s"):
            raise RuntimeError("no")
        entries = record.read(record.find("s").run)
    first, *keys, user, end, _, failed = (entry.content for entry in entries)
    assert isinstance(first, BeginContent)
    assert isinstance(end, EndContent)
    assert isinstance(failed, EndContent)
    assert (first.state, end.state) == ({"n": 1}, {"n": 2})
    assert keys == [KeyValueContent(key="alpha", value=1), KeyValueContent(key="alpha", value=2)]
    assert user == UserContent(value="hi")
    assert (entries[3].annotations, first.annotations) == ({"channel": "chat"}, {"version": "2"})
    assert failed.error is not None
    assert (failed.status, failed.error.message) == ("error", "no")


async def test_a_call_without_an_id_gets_a_stable_one_when_it_is_formatted() -> None:
    async with open_record(":memory:") as record:
        async with record.span("s", session="s") as span:
            span.write(ToolCallContent(tool_name="t", tool_args={}))
            span.write(ToolResultContent(tool_result="r"))
        entries = await record.read((await record.store.runs())[0].run)
    shown = [ToolCalls().format(entries, ToolCalls().start()) for _ in range(2)]
    assert shown[0] == shown[1]
    assert str(next(message.call_id for message in shown[0] if message.role == "tool")).startswith("call_")
    assert getattr(entries[1].content, "tool_call_id", "") is None


def test_a_content_is_written_as_the_document_writes_it() -> None:
    line = {"kind": "user", "value": "hi", "user_id": "u"}
    assert msgspec.to_builtins(msgspec.convert(line, kinds.Content)) == line


# ------------------------------------------------------------------------------- as programs of agent-catalog use them


def test_a_content_takes_its_kind_and_is_dumped_and_read_back_as_pydantic_does_it() -> None:
    made = USER(kind=Kind.User, value="hi")
    shown = {"extra": None, "kind": "user", "value": "hi", "user_id": None}
    assert made.model_dump() == shown == dict(made)
    assert made.model_dump_json() == '{"extra":null,"kind":"user","value":"hi","user_id":null}'
    assert compat.UserContent.model_validate({**shown, "more": 1}) == made
    assert compat.UserContent.model_validate_json(made.model_dump_json()) == made
    assert compat.UserContent.model_validate(made) is made
    assert repr(made) == "UserContent(extra=None, kind=<Kind.User: 'user'>, value='hi', user_id=None)"
    assert made.model_dump(exclude_none=True, exclude={"kind"}) == {"value": "hi"}
    assert made.model_dump(include={"user_id"}) == {"user_id": None}
    assert made.model_dump(exclude_defaults=True) == made.model_dump(exclude_unset=True) == {"value": "hi"}
    assert made.model_dump_json(indent=1, include={"value"}) == '{\n "value": "hi"\n}'
    assert made.model_copy(update={"value": "ho"}).value == "ho"
    assert compat.UserContent.model_fields["value"].is_required()
    assert isinstance(made, compat.BaseContent)
    assert isinstance(made, UserContent)


USER: Any = compat.UserContent
RESULT: Any = compat.ToolResultContent


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: USER(value=3), "UserContent: field 'value': Expected `str`, got `int`."),
        (USER, "UserContent: field 'value' is missing."),
        (lambda: USER(value="", kind="system"), "UserContent: found kind='system', expected 'user'."),
        (lambda: RESULT(tool_result=1, status="bad"), "'status': Invalid enum value 'bad'."),
        (lambda: compat.UserContent.model_validate(3), "UserContent: found 3, expected a dict."),
        (lambda: compat.UserContent.model_validate_json("{"), "UserContent: Expecting property name"),
        (lambda: compat.UserContent.model_validate_json("[" * 99999), "UserContent: maximum recursion depth"),
        (lambda: compat.content_of({"kind": "no"}), "Content: found kind 'no', expected one of system, tool-call,"),
        (lambda: compat.content_of([]), "Content: found kind None"),
    ],
)
def test_what_is_no_content_is_a_value_error_that_names_the_field(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        make()
    assert isinstance(caught.value, compat.BadContent)


def test_a_misspelt_field_is_named_and_not_left_out() -> None:
    with pytest.raises(TypeError, match="SystemContent takes keywords only: extra, kind, value"):
        compat.SystemContent("x")  # type: ignore[arg-type, call-arg]
    with pytest.raises(TypeError, match=r"UserContent has no field 'user'\. Did you mean 'user_id'\?"):
        USER(value="hi", user="u")


def test_a_call_needs_no_tool_call_id() -> None:
    made = compat.ToolCallContent(tool_name="t", tool_args={})
    assert made.model_dump()["tool_call_id"] is None


def test_the_tools_of_a_request_header_are_models_in_the_program_and_objects_on_record() -> None:
    tool = {"name": "t", "description": "d", "args_schema": {}}
    made = compat.RequestHeaderContent(tools=[compat.RequestHeaderContent.Tool(**tool)])  # type: ignore[arg-type]
    assert made == compat.RequestHeaderContent.model_validate({"kind": "request-header", "tools": [tool]})
    assert made.tools is not None
    assert made.tools[0].name == "t"
    assert made.model_dump()["tools"] == made.model_dump(mode="json")["tools"] == [tool]
    with gesta.open_sync() as record, record.span("s", session="s") as span:
        entry = span.log(made)
        assert entry is not None
        assert entry.content == RequestHeaderContent(tools=[tool])
    assert compat.RequestHeaderContent().tools is None


DUMPED: list[tuple[Any, Any]] = [
    *((value, shown) for value, _, shown in SAFE if value is not Plain),
    (b"text", "text"),
    (Decimal("1.50"), "1.50"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (PurePosixPath("/a"), "/a"),
    ([Plain(), (Plain(),)], ["Plain()", ["Plain()"]]),
    ({(1, 2): 3, None: 4}, {"(1, 2)": 3, "None": 4}),
    (2**70, 2**70),
    ("x" * 1_000_000, "x" * 1_000_000),
    (Kind.User, "user"),
]


@pytest.mark.parametrize(("value", "shown"), DUMPED, ids=[type(value).__name__ for value, _ in DUMPED])
def test_json_of_a_content_is_what_its_record_exports(value: Any, shown: Any) -> None:
    made = compat.KeyValueContent(key="k", value=value, extra={"v": value})
    dumped = json.loads(made.model_dump_json())
    assert dumped["value"] == dumped["extra"]["v"] == shown == compat.BaseContent._safe_serialize(value)
    assert json.loads(compat.BeginContent(state=value).model_dump_json())["state"] == shown
    assert made.value is value
    with gesta.open_sync() as record:
        with record.span("s", session="s") as span:
            span.log(made)
        lines = drive(_lines(record.record, record.find("s").run))
    assert json.loads(lines[1])["content"] == {
        name: each for name, each in dumped.items() if each is not None or name == "value"
    }


async def _lines(record: gesta.Record, run: str) -> list[str]:
    return [line async for line in export_run(record, run)]


def test_a_model_of_pydantic_has_contents_as_fields() -> None:
    pydantic = pytest.importorskip("pydantic")
    log = pydantic.create_model("Log", content=(compat.Content, ...))
    made = log.model_validate({"content": {"kind": "key-value", "key": "k", "value": 1}})
    assert made.content == compat.KeyValueContent(key="k", value=1)
    shown = {"extra": None, "kind": "key-value", "key": "k", "value": 1}
    assert json.loads(made.model_dump_json()) == {"content": shown}
    with pytest.raises(pydantic.ValidationError, match="expected 'user'"):
        log.model_validate({"content": {"kind": "key-value", "key": 1}})
