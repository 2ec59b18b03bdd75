"""What SQLite and JSON allow in a row is read, or is an error of Gesta's own that names record, run, seq and column."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.commands import gesta_command
from tests.conftest import FULL

import gesta
from gesta.address import open_record
from gesta.compare.cases import read as read_case
from gesta.compat.langchain.lc import from_lc
from gesta.errors import BrokenRecord
from gesta.kinds import (
    BeginContent,
    ChatCompletionContent,
    Content,
    DecisionContent,
    FaultContent,
    KeyValueContent,
    ToolResultContent,
    UserContent,
)
from gesta.kinds import Error as Wrong
from gesta.log.shared import base_in
from gesta.model.usage import tokens

pytestmark = pytest.mark.sample(2, over="parent")

RUN = "SELECT run FROM entries ORDER BY pos LIMIT 1"
NO_TEXT = "CAST(x'7b22ff227d' AS TEXT)"  # {"<ff>"}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    agent = gesta.Agent("desk", model=gesta.scripted("Hello.", "Hello again."))
    for session in ("one", "two"):
        gesta.run_sync(agent, "A message.", record="runs.gesta", session=session)
    return tmp_path / "runs.gesta"


def put(path: Path, column: str, value: str, where: str, table: str = "entries") -> None:
    """Put a value into a cell, whatever its table and the index over it say; the schema stays as it was."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        schema = db.execute("SELECT sql, name FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "UPDATE sqlite_schema SET sql = replace(replace(sql, ' STRICT', ''), ' NOT NULL', '') WHERE type = 'table'"
        )
        db.execute("UPDATE sqlite_schema SET sql = replace(sql, '''begin''', '''never''') WHERE name = 'opened'")
        db.execute("PRAGMA writable_schema = RESET")
        db.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}")
        db.execute("PRAGMA writable_schema = ON")
        db.executemany("UPDATE sqlite_schema SET sql = ? WHERE name = ?", schema)


def runs_of(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [run for (run,) in db.execute("SELECT run FROM runs ORDER BY pos")]


CELLS = [
    ("content", NO_TEXT, "column content is not UTF-8 text: byte 0xff at place 2"),
    ("content", "'{'", "column content: Input data was truncated"),
    ("content", "x'00'", r"column content holds b'\x00', expected str"),
    ("content", "NULL", "column content holds None, expected str"),
    ("content", 'CAST(\'{"kind":"user","value":\' || zeroblob(0) || \'[\' AS TEXT)', "column content: "),
    ("annotations", "CAST(x'22ed' AS TEXT)", "column annotations is not UTF-8 text: byte 0xed at place 1"),
    ("annotations", "'{'", "column annotations: Input data was truncated"),
    ("annotations", "'5'", "column annotations: found '5', expected an object"),
    ("causes", "'[1'", "column causes: Input data was truncated"),
    ("causes", "x'00'", r"column causes holds b'\x00', expected str"),
    ("kind", NO_TEXT, "column kind is not UTF-8 text"),
    ("kind", "'approval'", "column kind says 'approval', its content 'user'"),
    ("at", "'tomorrow'", "column at: Invalid isoformat string"),
    ("at", "'0001-01-01T00:00:00+14:00'", "column at: found the time '0001-01-01T00:00:00+14:00', expected one in UTC"),
    ("at", "'2026-01-01T00:00:00'", "column at: found the time '2026-01-01T00:00:00', expected one in UTC"),
    ("span", "'x'", "column span holds 'x', expected int"),
    ("version", "'x'", "column version holds 'x', expected int"),
    ("version", "9e999", "column version holds inf, expected int"),
    ("digest", "'x'", "column digest holds 'x', expected bytes"),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("column", "value", "found"), CELLS)
def test_an_odd_cell_is_named_and_takes_nothing_else_away(path: Path, column: str, value: str, found: str) -> None:
    run, other = runs_of(path)
    put(path, column, value, f"run = '{run}' AND seq = 2")

    async def read() -> int:
        async with open_record(str(path), readonly=True) as record:
            assert {flaw.run for flaw in await record.verify()} >= {run}
            assert not any(flaw.run == other for flaw in await record.verify())
            with pytest.raises(BrokenRecord) as caught:
                await record.read(run)
            assert str(path) in str(caught.value)
            assert f"entry {run}.2: {found}" in str(caught.value)
            return len(await record.read(other))

    assert anyio.run(read) > 4


@pytest.mark.sample(4)
@pytest.mark.parametrize(("column", "value", "found"), CELLS)
def test_the_list_of_runs_shows_all_others(path: Path, column: str, value: str, found: str) -> None:
    run, other = runs_of(path)
    put(path, column, value, f"run = '{run}' AND seq = 2")
    done = gesta_command("runs", "--json")
    listed = {each["run"]: each["stands"] for each in map(json.loads, done.stdout.splitlines())}
    assert listed[other] == "answered"
    assert listed[run].startswith("cannot be read: ") and f"entry {run}.2" in listed[run]
    assert done.exit_code == 0


@pytest.mark.parametrize("words", [("log",), ("log", "--all"), ("log", "--json")])
def test_a_log_goes_on_behind_an_entry_that_cannot_be_read(path: Path, words: tuple[str, ...]) -> None:
    run, _ = runs_of(path)
    put(path, "content", NO_TEXT, f"run = '{run}' AND seq = 2")
    done = gesta_command(words[0], run, *words[1:])
    assert "Hello." in done.stdout
    assert done.exit_code == 1
    assert f"entry {run}.2: column content is not UTF-8 text" in done.stderr
    assert "Traceback" not in done.stderr


def test_text_that_is_no_utf_8_is_shown_by_sql(path: Path) -> None:
    put(path, "content", NO_TEXT, "seq = 2")
    done = gesta_command("sql", "SELECT seq, content FROM entries WHERE seq < 4 ORDER BY pos", "--json")
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [1, 2, 3] * 2
    assert json.loads(done.stdout.splitlines()[1])["content"] == '{"\udcff"}'
    done = gesta_command("sql", f"SELECT {NO_TEXT} AS odd;")
    assert done.exit_code == 1
    assert "a text is not UTF-8" in done.stderr


def test_a_begin_whose_members_do_not_fit_names_no_run(path: Path) -> None:
    run, other = runs_of(path)
    put(path, "content", """'{"kind":"begin","name":"x","opened":{"session":1}}'""", f"run = '{run}' AND seq = 1")
    for words in (("approve", run), ("cancel", run), ("log", run), ("why", run)):
        done = gesta_command(*words)
        assert (done.exit_code in (0, 1), "not foreseen" in done.stderr) == (True, False), (words, done.stderr)
    assert gesta_command("log", other).exit_code == 0


BESIDE = {
    "inbox": ("content", "key", "at"),
    "record": ("id",),
    "owners": ("owner", "process", "host", "gone_by"),
    "leases": ("epoch", "owner", "since"),
}
"""Columns of the tables beside the entries."""
ODD = (NO_TEXT, "x'00ff'", "9e999", "NULL")
ODD_CELLS = [
    (table, column, value)
    for table, columns in BESIDE.items()
    for column in columns
    for value in (ODD if FULL else ODD[:2] if column == columns[0] else ())
]


@pytest.mark.parametrize(("table", "column", "value"), [*ODD_CELLS, ("inbox", "key", ODD[1])])
def test_a_cell_beside_the_entries_is_named_or_read(path: Path, table: str, column: str, value: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO inbox(run, key, content, at) VALUES((SELECT run FROM entries), 'k', '{}', 'now')")
        db.execute("INSERT INTO owners VALUES('somebody', 1, 'here', 'now', NULL)")
    put(path, column, value, "true", table)
    for words in (("runs",), ("log", "one"), ("verify",), ("backup", "copy.gesta"), ("cancel", "one")):
        done = gesta_command(*words)
        assert "not foreseen" not in done.stderr, done.stderr


HUGE = 10**5000
NUMBERS: list[Content] = [
    ChatCompletionContent(output="x", latency_ms=10**400, usage={"prompt_tokens": HUGE, "completion_tokens": 1}),
    FaultContent(of=1, error=Wrong(type="t", message="m"), wait_s=10**400),
    KeyValueContent(key="k", value={"n": HUGE}),
    ToolResultContent(tool_result=[HUGE]),
    UserContent(value=HUGE),  # type: ignore[arg-type]
]
FORMS: list[tuple[str, ...]] = [
    *[("log", "s"), ("log", "s", "--all"), ("log", "s", "--json"), ("log", "s", "--raw"), ("runs",), ("stats",)],
    *[
        ("log", "s", "--as", form, *more)
        for form in ("activity", "steps", "task", "react")
        for more in ((), ("--json",))
    ],
    *[("export", "s", "--format", form) for form in ("gesta", "agent-catalog", "trig")],
    *[("why", "s"), ("find", "x"), ("verify",), ("show", "s"), ("diff", "s", "s")],
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("content", NUMBERS, ids=lambda content: str(content.kind))
def test_a_number_of_any_size_is_shown_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Content
) -> None:
    monkeypatch.chdir(tmp_path)

    async def write() -> None:
        async with open_record("runs.gesta") as record, record.span("app", session="s") as span:
            span.write(content)

    anyio.run(write)
    for words in FORMS:
        done = gesta_command(*words)
        assert "not foreseen" not in done.stderr, (words, done.stderr)
        assert done.exit_code in (0, 2), (words, done.stderr)


def test_half_a_character_is_looked_for_and_not_found(path: Path) -> None:
    for words in (("\ud800",), ("a\ud800",), ('"a\udfff b"',), ("a", "--session", "\ud800"), ("a", "--run", "\ud800")):
        done = gesta_command("find", *words)
        assert "not foreseen" not in done.stderr
        assert done.exit_code in (0, 1, 2)


DEEP: dict[str, Callable[[], Any]] = {
    "lists": lambda: from_lc("[" * 100_000),
    "objects": lambda: from_lc('{"a":' * 100_000),
    "ended": lambda: from_lc("[" * 100_000 + "]" * 100_000),
    "bytes": lambda: from_lc(b"[" * 100_000),
}


@pytest.mark.parametrize("read", DEEP.values(), ids=DEEP)
def test_lc_json_that_is_nested_too_deeply_is_an_error_of_its_own(read: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read()


def test_a_stub_of_lc_json_may_have_any_path() -> None:
    assert from_lc('{"lc":1,"type":"not_implemented","id":[1,null],"repr":7}').type == "1.None"


def test_nothing_is_pruned_while_what_refers_to_what_is_not_known(path: Path) -> None:
    run, other = runs_of(path)
    put(path, "causes", """'["x'""", f"run = '{other}' AND seq = 3")
    done = gesta_command("prune", "--session", "one", "--yes")
    assert done.exit_code == 1
    assert f"what run {other!r} refers to cannot be read" in done.stderr
    assert runs_of(path) == [run, other]


def test_a_run_whose_turn_begins_at_no_number_is_not_pruned(path: Path) -> None:
    run, other = runs_of(path)
    put(path, "seq", "''", f"run = '{run}' AND seq = 1")
    done = gesta_command("prune", "--session", "one", "--yes")
    assert "This was not foreseen" not in done.stderr
    assert runs_of(path) == [run, other]


def test_a_run_whose_first_number_is_broken_is_not_pushed(path: Path) -> None:
    run, _ = runs_of(path)
    put(path, "seq", "1.5", f"run = '{run}' AND seq = 1")
    done = gesta_command("push", str(path), "pushed.gesta")
    assert done.exit_code == 1
    assert f"the entries of run {run!r} have gaps: expected entry {run}." in done.stderr


def test_a_first_entry_whose_content_is_no_text_names_no_base() -> None:
    assert base_in(b'{"opened":{"base":{"run":"r","seq":1}}}') is None  # type: ignore[arg-type]


def test_a_run_whose_name_is_no_utf_8_is_not_pushed_and_says_so(path: Path) -> None:
    run, _ = runs_of(path)
    put(path, "run", NO_TEXT, f"run = '{run}'")
    done = gesta_command("push", str(path), "pushed.gesta")
    assert done.exit_code == 1
    assert "is listed, and no entry can be read under that name" in done.stderr


def test_actions_that_do_not_fit_are_read_from_what_was_said(path: Path) -> None:
    run, _ = runs_of(path)
    said = """json_set(content, '$.actions', json('{"actions": [{}], "log": 1}'))"""
    put(path, "content", said, f"run = '{run}' AND kind = 'chat-completion'")
    done = gesta_command("log", run, "--as", "steps", "--json")
    assert done.exit_code == 0, done.stderr
    assert "Hello." in done.stdout


def test_a_case_whose_causes_are_none_says_in_which_line(tmp_path: Path) -> None:
    entry = '{"run":"r","seq":1,"at":"2026-01-01T00:00:00Z","span":1,"content":{"kind":"user","value":"x"},"causes":'
    for causes in ("[[]]", "[{}]", "[" * 100_000, '[["a"]]'):
        (tmp_path / "case.jsonl").write_text('{"gesta_case":1,"agent":"a","run":"r"}\n' + entry + causes + "}\n")
        with pytest.raises(BrokenRecord, match="line 2: "):
            read_case(tmp_path / "case.jsonl")


@pytest.mark.parametrize(
    "usage", ["x", [1], 7, {"prompt_tokens": 10**400, "completion_tokens": 1}, {"prompt_tokens": -1}]
)
def test_a_count_of_tokens_that_is_none_counts_nothing(usage: Any) -> None:
    assert tokens(usage) is None


def test_an_agent_file_of_too_long_a_name_is_not_there(path: Path) -> None:
    assert path.exists()
    for name in ("x" * 5000, "a\0b"):
        done = gesta_command("run", f"{name}.py:agent", "hello")
        assert done.exit_code == 2
        assert "No file" in done.stderr


MISFITS = [  # column, value, of which kind, the command, and what is said or shown
    ("causes", "x'5b5d'", "user", ("export",), "holds a text that is not JSON"),
    ("content", "json_set(content, '$.header', 99)", "request", ("show", "--wire"), "is no request-header"),
]


def test_what_does_not_fit_is_named_by_exports_and_views(path: Path) -> None:
    run, _ = runs_of(path)
    for column, value, kind, (verb, *more), found in MISFITS:
        copy = path.with_name(f"{kind}.gesta")
        copy.write_bytes(path.read_bytes())
        put(copy, column, value, f"run = '{run}' AND kind = '{kind}'")
        done = gesta_command(verb, run, *more, "--record", str(copy))
        assert done.exit_code == 1, done.stdout
        assert found in done.stderr


@pytest.mark.parametrize("form", ["agent-catalog", "trig"])
def test_a_member_of_another_type_is_named_by_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong: list[Content] = [
        BeginContent(name="x", annotations=7),  # type: ignore[arg-type]
        DecisionContent(choice="a", candidates=[{1}, "b"]),  # type: ignore[list-item]
        ChatCompletionContent(output="x", latency_ms="soon"),  # type: ignore[arg-type]
    ]

    async def write() -> None:
        async with open_record("runs.gesta") as record, record.span("app", session="s") as span:
            for content in wrong:
                span.write(content)

    anyio.run(write)
    done = gesta_command("export", "s", "--format", form)
    assert done.exit_code == 1
    assert ".2: annotations of its begin is not of its type (Expected `object | null`, got `int`)" in done.stderr


def test_a_file_name_that_no_file_can_have_is_no_record(path: Path) -> None:
    assert path.exists()
    for words in (("backup", "a\0b"), ("runs", "--record", "a\0.gesta"), ("verify", "a\0.gesta")):
        done = gesta_command(*words)
        assert "not foreseen" not in done.stderr
        assert done.exit_code in (1, 2)


def test_words_are_found_beside_a_run_whose_name_is_no_utf_8(path: Path) -> None:
    run, other = runs_of(path)
    put(path, "run", NO_TEXT, f"run = '{run}'")
    found = [json.loads(line)["run"] for line in gesta_command("find", "hello", "--json").stdout.splitlines()]
    assert other in found


def test_a_seq_beyond_all_numbers_is_a_flaw(path: Path) -> None:
    run, _ = runs_of(path)
    put(path, "seq", "9e999", f"run = '{run}' AND seq = 3")
    done = gesta_command("verify", str(path))
    assert done.exit_code == 1
    assert "not foreseen" not in done.stderr
