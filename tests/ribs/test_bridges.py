"""Out of a record and into another, and foreign conversations into one: nothing lost, nothing believed, nothing twice."""

import contextlib
import gzip
import json
import sqlite3
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.conftest import FULL

from gesta.address import bind, open_record
from gesta.bridges.jsonl import export_all, export_run, import_lines
from gesta.cli import application
from gesta.codec.chain import link
from gesta.codec.rows import blob_names
from gesta.entry import GENESIS, VERSION, Entry, Row
from gesta.errors import BrokenRecord, NewerRecord, NoRun, WriteFailed
from gesta.formatters.tool_calls import ToolCalls
from gesta.importers.file import TOGETHER, import_file
from gesta.importers.foreign import ODDITIES, Imported
from gesta.importers.known import find_format, formats
from gesta.importers.source import BadImport, Source
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    EndContent,
    KeyValueContent,
    RequestHeaderContent,
    SystemContent,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.message import Message
from gesta.record.record import Record
from gesta.store import Batch
from gesta.stores.memory import MemoryStore

pytestmark = pytest.mark.sample(2, over="parent")

T = TypeVar("T")
ODD = 'half \ud800 a pair, \x00, \u2028, "quotes"\n\\ud83d 😀'
LARGE = "large, " * 20_000


# ---------------------------------------------------------------------------------------------- Gesta's own lines
async def fill(record: Record, session: str, *, odd: bool = True) -> None:
    """Record a run with all that is hard to carry: large values, odd texts, annotations, causes in other runs."""
    async with record.span("work", session=session, where="here") as log:
        question = log.write(
            UserContent(value=ODD if odd else "plain"), annotations={"tries": float("nan"), "note": ODD}
        )
        log.write(AssistantContent(value=LARGE), (question.seq, ("elsewhere", 3)))
        log.write(KeyValueContent(key="again", value={"the same": LARGE, "bytes": b"\xff" * 100_000, "$secret": "no"}))
        with log.span("inner", state={"a": (1, 2)}) as inner:
            inner["k"] = {1, 2}


def put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


async def rows_of(record: Record) -> list[Row]:
    found = []
    for run in await record.store.runs():
        found += await record.store.read(run.run)
    return found


async def sealed(record: Record) -> list[tuple[Any, ...]]:
    """Every row without its place, which is the store's own."""
    return [
        tuple(getattr(row, name) for name in Row.__struct_fields__ if name != "pos") for row in await rows_of(record)
    ]


async def exported(record: Record, path: Path, run: str | None = None) -> Path:
    lines = export_all(record) if run is None else export_run(record, run)
    put(path, "".join([line async for line in lines]))
    return path


@asynccontextmanager
async def copy_of(path: Path) -> AsyncIterator[Record]:
    async with open_record() as record:
        await import_file(record, path)
        yield record


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


@pytest.mark.parametrize("kept", [":memory:", "there.gesta"])
async def test_a_record_comes_back_with_every_byte(tmp_path: Path, record: Record, kept: str) -> None:
    await fill(record, "s-1")
    await fill(record, "s-2", odd=False)
    path = await exported(record, tmp_path / "out.jsonl")
    async with open_record(kept if kept == ":memory:" else str(tmp_path / kept)) as there:
        done = await import_file(there, path)
        assert done == Imported(runs=2, entries=16, skipped=0, format="gesta")
        assert await sealed(there) == await sealed(record)
        assert await there.verify() == []
        runs = [row.run for row in await record.store.runs()]
        before, after = [await record.read(run) for run in runs], [await there.read(run) for run in runs]
        assert repr(after) == repr(before)  # as text, since nan is not equal to itself
        again = await exported(there, tmp_path / "again.jsonl")
        assert again.read_text("utf-8").split("\n")[1:] == path.read_text("utf-8").split("\n")[1:]


async def test_lines_are_json_that_a_person_reads(tmp_path: Path, record: Record) -> None:
    await fill(record, "s-1", odd=False)
    path = await exported(record, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert lines[0] == {"gesta": 1, "record": record.info.id}
    assert lines[1] == {"run": lines[2]["run"], "head": 8, "digest": lines[-1]["digest"]}
    assert lines[3]["content"] == {"kind": "user", "value": "plain"}
    assert lines[3]["annotations"]["note"]
    assert [line["text"][:7] for line in lines if "text" in line] == ["large, "]
    assert [len(line["base64"]) for line in lines if "base64" in line] == [133_336]
    needed = {name for row in await rows_of(record) for name in blob_names(row)}
    assert {line["blob"] for line in lines if "blob" in line} == needed


async def test_one_run_is_exported_by_its_id(tmp_path: Path, record: Record) -> None:
    await fill(record, "s-1")
    await fill(record, "s-2")
    run = (await record.store.runs())[1].run
    async with copy_of(await exported(record, tmp_path / "one.jsonl", run)) as there:
        assert [row.run for row in await there.store.runs()] == [run]
    with pytest.raises(NoRun, match="Did you mean"):
        await exported(record, tmp_path / "none.jsonl", run[:-1])


async def test_a_second_import_skips_and_a_longer_one_extends(tmp_path: Path, record: Record) -> None:
    await fill(record, "s-1")
    short = await exported(record, tmp_path / "short.jsonl")
    await fill(record, "s-1")
    long = await exported(record, tmp_path / "long.jsonl")
    async with copy_of(short) as there:
        told: list[int] = []
        assert await import_file(there, short, progress=told.append) == Imported(
            runs=0, entries=0, skipped=1, format="gesta"
        )
        assert told == [8]
        assert await import_file(there, long) == Imported(runs=1, entries=8, skipped=0, format="gesta")
        assert await sealed(there) == await sealed(record)
        assert (await import_file(there, short)).skipped == 1  # the older copy has nothing new
        assert await there.verify() == []


async def test_a_run_that_went_another_way_is_refused_with_both_digests(tmp_path: Path, record: Record) -> None:
    await fill(record, "s-1", odd=False)
    common = await exported(record, tmp_path / "common.jsonl")
    async with copy_of(common) as there:
        await fill(record, "s-0")
        for one in (record, there):
            await fill(one, "s-1", odd=False)
        mine = (await rows_of(record))[8].digest.hex()
        theirs = (await rows_of(there))[8].digest.hex()
        with pytest.raises(BadImport) as refused:
            await import_file(there, await exported(record, tmp_path / "other.jsonl"))
        assert mine in str(refused.value)
        assert theirs in str(refused.value)
        assert "line 13: the run went another way: entry" in str(refused.value)
        assert len(await there.store.runs()) == 1, "nothing of the file was imported, not even its other run"


def changed(value: Any) -> Any:
    """The same member with one byte changed."""
    if isinstance(value, str):
        middle = len(value) // 2
        return value[:middle] + ("b" if value[middle] != "b" else "c") + value[middle + 1 :]
    return value + 1 if isinstance(value, int) else None


def tampered(line: str) -> list[tuple[str, str]]:
    """The line with one byte of each member changed; the rest stays as it is, byte for byte."""
    made = []
    for key, value in json.loads(line).items():
        start = line.index(f'"{key}":') + len(key) + 3
        if isinstance(value, dict | list):
            inside = next(place for place in range(start, len(line)) if line[place].isalnum())
            made.append((key, line[:inside] + chr(ord(line[inside]) + 1) + line[inside + 1 :]))
        elif value is not None:
            old = json.dumps(value, ensure_ascii=False)
            new = json.dumps(changed(value), ensure_ascii=False)
            assert line[start:].startswith(old), key
            made.append((key, line[:start] + new + line[start + len(old) :]))
    return made


async def test_one_changed_byte_of_any_member_is_found_where_it_is(tmp_path: Path, record: Record) -> None:
    await fill(record, "s-1", odd=False)
    lines = (await exported(record, tmp_path / "out.jsonl")).read_text("utf-8").split("\n")[:-1]
    met: Counter[str] = Counter()
    for place, line in enumerate(lines):
        for key, other in tampered(line):
            if (place, key) == (0, "record"):
                continue  # says where the file was made; nothing depends on it
            path = tmp_path / "tampered.jsonl"
            put(path, "\n".join([*lines[:place], other, *lines[place + 1 :], ""]))
            async with open_record() as there:
                with pytest.raises((BadImport, NewerRecord)) as refused:
                    await import_file(there, path)
                assert await there.store.runs() == []
            found = str(refused.value)
            if place > 1:  # what the line of a run says is only found at its entries
                assert f"line {place + 1}: " in found, (key, found)
            assert place == 0 or json.loads(lines[2])["run"] in found
            met[key] += 1
    assert set(met) == {
        *("gesta", "run", "head", "digest", "blob", "salt", "text", "base64"),
        *("seq", "kind", "at", "span", "causes", "version", "content", "annotations"),
    }


@given(data=st.data())
async def test_no_changed_byte_changes_an_entry(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    async with open_record() as record:
        async with record.span("work", session="s", where="here") as log:
            log.write(UserContent(value=ODD), annotations={"note": 1.5})
        raw = bytearray((await exported(record, folder / "out.jsonl")).read_bytes())
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] ^= data.draw(st.integers(1, 255))
        path = folder / "changed.jsonl"
        path.write_bytes(raw)
        async with open_record() as there:
            try:
                await import_file(there, path, "gesta")
            except (BadImport, NewerRecord):
                assert await there.store.runs() == []
            else:
                assert await sealed(there) == await sealed(record)


async def test_a_file_that_was_cut_off_anywhere_is_refused(tmp_path: Path, record: Record) -> None:
    await fill(record, "s-1", odd=False)
    whole = (await exported(record, tmp_path / "out.jsonl")).read_text("utf-8")
    lines = whole.split("\n")[:-1]
    for count in range(2, len(lines)):
        path = tmp_path / "cut.jsonl"
        put(path, "\n".join(lines[:count]) + "\n")
        async with open_record() as there:
            with pytest.raises(BadImport, match=rf"line {count + 1}: .* the run goes on to 8|needed by no entry"):
                await import_file(there, path)
            assert await there.store.runs() == []
    for gone in range(1, len(lines)):
        put(path, "\n".join([*lines[:gone], *lines[gone + 1 :]]))
        async with open_record() as there:
            with pytest.raises(BadImport):
                await import_file(there, path)


@pytest.mark.parametrize(
    ("place", "members", "why"),
    [
        (0, {"gesta": 0}, "the first line is not"),
        (0, {"more": 1}, "unknown field `more`"),
        (0, {"gesta": 2}, "has format 2; this release reads up to 1"),
        (1, {"head": 0}, "has no entries"),
        (1, {"head": 9}, r"line 13: entry \w+\.9 is missing; the run goes on to 9"),
        (1, {"head": 7}, "where the next run was due|should end with"),
        (4, {"run": "other"}, "a blob of run 'other'"),
        (4, {"base64": ""}, "has not one of text and base64"),
        (4, {"text": None}, "has not one of text and base64"),
        (4, {"salt": "zz"}, r"entry \w+\.3 cannot be read"),
        (5, {"digest": "AB" * 32}, "not in lower-case hex"),
        (5, {"seq": "3"}, r"entry \w+\.3 cannot be read: Expected `int`, got `str`"),
        (5, {"more": 1}, "unknown field `more`"),
    ],
)
async def test_a_line_that_is_not_as_it_must_be_says_what_was_due(
    tmp_path: Path, record: Record, place: int, members: dict[str, Any], why: str
) -> None:
    await fill(record, "s-1", odd=False)
    path = await exported(record, tmp_path / "out.jsonl")
    lines = path.read_text("utf-8").split("\n")
    lines[place] = json.dumps(json.loads(lines[place]) | members)
    put(path, "\n".join(lines))
    async with open_record() as there:
        with pytest.raises((BadImport, NewerRecord), match=why):
            await import_file(there, path)
        assert await there.store.runs() == []


async def test_a_blob_that_no_entry_needs_is_refused(tmp_path: Path, record: Record) -> None:
    await fill(record, "s-1", odd=False)
    path = await exported(record, tmp_path / "out.jsonl")
    lines = path.read_text("utf-8").split("\n")
    for place in (2, len(lines) - 1):
        put(path, "\n".join([*lines[:place], lines[4], *lines[place:]]))
        async with open_record() as there:
            with pytest.raises(BadImport, match=r"does not need blob|needed by no entry"):
                await import_file(there, path)


async def test_two_exports_in_one_file_are_read(tmp_path: Path, record: Record) -> None:
    await fill(record, "s-1")
    one = await exported(record, tmp_path / "one.jsonl")
    async with open_record() as other:
        await fill(other, "s-1")
        two = await exported(other, tmp_path / "two.jsonl")
    both = tmp_path / "both.jsonl.gz"
    both.write_bytes(gzip.compress(one.read_bytes() + b"\n" + two.read_bytes()))
    async with copy_of(both) as there:
        assert len(await there.store.runs()) == 2
    both.write_bytes(gzip.compress(one.read_bytes() * 2))
    async with open_record() as there:
        with pytest.raises(BadImport, match="comes a second time"):
            await import_file(there, both)


async def test_long_runs_go_page_by_page(tmp_path: Path, record: Record) -> None:
    async with record.span("long", session="s") as log:
        for number in range(1800):
            log["n"] = number
    path = await exported(record, tmp_path / "long.jsonl")
    async with open_record() as there:
        told: list[int] = []
        await import_file(there, path, progress=told.append)
        assert told == [500, 1000, 1500, 1802]
        assert await sealed(there) == await sealed(record)


def forged(row: Row, **members: Any) -> list[str]:
    """The lines of a run of one entry, changed, with digests that hold."""
    row = replace(row, **members)
    row = replace(row, digest=link(GENESIS, row))
    head = {"run": row.run, "head": row.seq, "digest": row.digest.hex()}
    line = (
        f'{{"run":{json.dumps(row.run)},"seq":{row.seq},"kind":{json.dumps(row.kind)},"at":{json.dumps(row.at)},'
        f'"span":{row.span},"causes":{row.causes},"version":{row.version},"content":{row.content},"annotations":null,'
        f'"salt":"{row.salt.hex()}","digest":"{row.digest.hex()}"}}'
    )
    return ['{"gesta":1,"record":"r"}', json.dumps(head), line]


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"content": '{"kind":"key-value","key":"k","value":1}', "kind": "key-value"}, "does not open its run"),
        ({"content": "[1]"}, "cannot be read"),
        ({"content": '{"kind":"begin","name":{"$blob":{"name":"x","as":"text","size":1}}}'}, "misses blob 'x'"),
        ({"at": "2026-01-01"}, "expected one in UTC"),
        ({"at": "2026-01-01T00:00:00.0Z"}, "not written as in a record"),
        ({"span": 7}, "span that is not there"),
        ({"causes": "[9]"}, "cause that is not before it"),
        ({"kind": "end"}, "cannot be read|of another kind"),
        ({"seq": 2}, r"entry \w+\.2, where entry \w+\.1 was due"),
        ({"version": 9}, f"reads up to {VERSION}"),
    ],
)
async def test_a_chain_that_holds_is_no_licence(
    tmp_path: Path, record: Record, members: dict[str, Any], why: str
) -> None:
    """Somebody who computes digests can still not bring in what would break a record."""
    await fill(record, "s")
    first = (await rows_of(record))[0]
    path = tmp_path / "forged.jsonl"
    put(path, "\n".join(forged(replace(first, annotations=None))))
    async with copy_of(path) as there:
        assert len(await rows_of(there)) == 1
    put(path, "\n".join(forged(replace(first, annotations=None), **members)))
    async with open_record() as there:
        with pytest.raises((BadImport, NewerRecord), match=why):
            await import_file(there, path)
        assert await there.store.runs() == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE entries SET content = replace(content, 'plain', 'plane')", r"entry \w+\.2 does not match its digest"),
        ("DELETE FROM entries WHERE seq = 4", r"entry \w+\.4 does not match its digest"),
        ("UPDATE blobs SET data = 'x' || data", r"blob '\w+' of run '\w+' does not match its name"),
    ],
)
async def test_a_record_that_was_changed_is_not_exported(tmp_path: Path, change: str, found: str) -> None:
    address = str(tmp_path / "here.gesta")
    async with open_record(address) as record:
        await fill(record, "s", odd=False)
    there = sqlite3.connect(address)
    with there:
        there.execute(change.replace("'x' || data", "CAST('x' || data AS BLOB)"))
    there.close()
    async with open_record(address) as record:
        with pytest.raises(BrokenRecord, match=found):
            await exported(record, tmp_path / "out.jsonl")


# ------------------------------------------------------------------------------------------- which format is this?
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "it is an empty file"),
        (b"  \n", "it is an empty file"),
        (b"Dear reader", "text that begins 'Dear reader'"),
        (b"\x89PNG\r\n\x1a\n\x00", r"text that begins '\\udc89PNG"),
        (b"[]", "a JSON list, not of objects"),
        (b"[1, 2]", "a JSON list, not of objects"),
        (b"{}", "a JSON object with no members"),
        (b'[{"a": 1, "b": 2}]', "a JSON list of objects with the members 'a', 'b'"),
        (b'{"a": 1}\n{"b": 1}', "a JSON object with the members 'a'"),
        (b'{"a": {"b": [1, 2', "begins like JSON, but .*a is not JSON"),
        (b'{"a" 1}', "where a member was due"),
        (b'{"a": 1 "b": 2}', "where ',' or '}' was due"),
        (b"[" * 200_000, "JSON list, not of objects"),
        (b'{"a": ' + b"[" * 200_000, "nested too deeply"),
    ],
)
async def test_an_unknown_format_is_described(tmp_path: Path, record: Record, content: bytes, found: str) -> None:
    path = tmp_path / "what.json"
    for data in (content, gzip.compress(content)):
        path.write_bytes(data)
        with pytest.raises(BadImport, match=found) as refused:
            await import_file(record, path)
        assert "Known formats: gesta, tau-bench, tau2-bench, " in str(refused.value)


async def test_lines_that_a_program_put_a_byte_order_mark_before_are_read(tmp_path: Path, record: Record) -> None:
    await fill(record, "s-1")
    path = await exported(record, tmp_path / "out.jsonl")
    path.write_bytes(BOM_UTF8 + path.read_bytes())
    async with copy_of(path) as copy:
        assert await sealed(copy) == await sealed(record)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n" + BOM_UTF8, 1))
    with pytest.raises(BadImport, match="line 2: the next run cannot be read"):
        await import_file(record, path)


async def test_files_that_cannot_be_read_say_why(tmp_path: Path, record: Record) -> None:
    whole = gzip.compress(b'[{"traj": []}]' * 100)
    damaged = whole[:-20] + bytes([whole[-20] ^ 255]) + whole[-19:]
    for name, data, why in (
        ("cut.gz", whole[:-9], "cut off"),
        ("damaged.gz", damaged, "damaged"),
        ("packed.zst", b"\x28\xb5\x2f\xfd" + b"\xff" * 20, "damaged"),
        ("two.json", b'[{"traj": []}] [1]', "'\\[' follows the end"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadImport, match=why):
            await import_file(record, tmp_path / name)
    with pytest.raises(BadImport, match="No such file"):
        await import_file(record, tmp_path / "nowhere.json")
    with pytest.raises(BadImport, match=r"(?i)directory"):
        await import_file(record, tmp_path)
    with pytest.raises(BadImport, match=r"no format is named 'tau-bensh'\. Did you mean 'tau-bench'"):
        await import_file(record, tmp_path / "two.json", "tau-bensh")
    with pytest.raises(BadImport, match="the first line is not"):
        await import_file(record, tmp_path / "two.json", "gesta")
    assert await record.store.runs() == []


@pytest.mark.parametrize(
    ("format", "content", "why"),
    [
        ("tau-bench", {"simulations": []}, r"expected a JSON list of trials, found \$.simulations"),
        ("tau-bench", 5, r"expected a JSON list of trials, found \$"),
        ("tau-bench", [{"traj": []}, 7], r"found something else at \$\[1\]"),
        ("tau-bench", [{"traj": []}, {"traj": {"a": 1}}], r"found something else at \$\[1\].traj"),
        ("tau2-bench", {"simulations": {"a": 1}}, r"expected a list at \$.simulations, found dict"),
        ("tau2-bench", {"simulations": [{"messages": []}, {}]}, r"found none at \$.simulations\[1\]"),
        ("tau2-bench", [{"simulations": []}], "expected a JSON object with 'simulations', found a list"),
    ],
)
async def test_a_format_that_does_not_hold_names_the_path_and_writes_nothing(
    tmp_path: Path, record: Record, format: str, content: Any, why: str
) -> None:
    path = tmp_path / "bad.json"
    put(path, json.dumps(content))
    with pytest.raises(BadImport, match=why) as refused:
        await import_file(record, path, format)
    assert "Nothing of it was imported." in str(refused.value)
    assert await record.store.runs() == []


# --------------------------------------------------------------------------------------------------- conversations
def agent_side(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What an agent read and said, straight from the source: (role, text) or (role, text, calls)."""
    seen: list[tuple[Any, ...]] = []
    for message in messages:
        role, text, calls = message["role"], message["content"] or "", message.get("tool_calls") or []
        if role == "system" or (role == "user" and calls) or message.get("requestor") == "user":
            continue
        made = [(call.get("function") or call) for call in calls]
        read = [json.loads(one["arguments"]) if isinstance(one["arguments"], str) else one["arguments"] for one in made]
        seen.append((role, text, [(one["name"], args) for one, args in zip(made, read, strict=True)]))
    return [one for one in seen if one != ("assistant", "", [])]


def formatted(entries: Sequence[Entry]) -> list[Message]:
    formatter = ToolCalls()
    return formatter.format(entries, formatter.start())


def valid(messages: Sequence[Message]) -> None:
    """Each call has exactly one result, right after it and in order; ids are unique; arguments are objects."""
    due: list[str] = []
    used: set[str] = set()
    for message in messages:
        if message.role == "tool":
            assert due, "a result without a call"
            assert message.call_id == due.pop(0)
            assert not message.calls
            continue
        assert not due, "a message where a result was due"
        assert message.call_id is None
        for call in message.calls:
            assert message.role == "assistant"
            assert call.id
            assert call.id not in used
            assert isinstance(call.args, dict)
            used.add(call.id)
        due = [call.id for call in message.calls]
    assert not due, "a call without a result"


def sound(entries: Sequence[Entry]) -> None:
    """Spans nest, every turn has a reason, causes point back and are of the right kind."""
    content = {entry.seq: entry.content for entry in entries}
    open_spans: list[int] = []
    for entry in entries:
        assert all(isinstance(cause, int) and cause < entry.seq for cause in entry.causes)
        causes = [content[cause] for cause in entry.causes if isinstance(cause, int)]
        match entry.content:
            case BeginContent():
                assert not open_spans
                open_spans.append(entry.seq)
            case EndContent() as end:
                begin = content[open_spans.pop()]
                assert isinstance(begin, BeginContent)
                assert (end.reason is not None) == (begin.role == "turn")
            case ChatCompletionContent():
                assert all(
                    isinstance(one, UserContent | ToolResultContent | ChatCompletionContent | AssistantContent)
                    for one in causes
                )
                assert not causes or "causes" in (entry.annotations or {})["inferred"]
            case ToolCallContent() | ThoughtContent():
                assert [type(one) for one in causes] == [ChatCompletionContent]
            case ToolResultContent() as result:
                assert [entry.causes[0]] == [result.call] if entry.causes else result.call is None
                assert all(isinstance(one, ToolCallContent) for one in causes)
            case AssistantContent():
                assert all(isinstance(one, ChatCompletionContent) for one in causes)
        if not isinstance(entry.content, BeginContent | EndContent):
            assert entry.span == open_spans[-1]
    assert not open_spans


def contents(entries: Sequence[Entry], kind: type[T]) -> list[T]:
    return [entry.content for entry in entries if isinstance(entry.content, kind)]


def reasons(entries: Sequence[Entry]) -> list[str]:
    return [end.reason for end in contents(entries, EndContent) if end.reason is not None]


async def conversations(record: Record) -> list[list[Entry]]:
    return [await record.read(row.run) for row in await record.store.runs()]


def count(runs: list[list[Entry]]) -> tuple[int, int, int]:
    """Runs, messages and tool calls, on both sides, as the corpus counts them."""
    every = [entry for entries in runs for entry in entries]
    messages = sum("message" in (entry.annotations or {}) for entry in every)
    calls = sum(isinstance(entry.content, ToolCallContent) for entry in every)
    by_user = sum(
        isinstance(entry.content, KeyValueContent) and entry.content.key == "user-tool-call" for entry in every
    )
    return len(runs), messages, calls + by_user


TAU2 = "tau2-bench/results/"
FILES = [  # as SOURCES.md of the corpus counts them
    ("tau-bench/trajectories/retail-grok-3-with-injected-503.json.gz", (115, 3804, 932), {}),
    (TAU2 + "retail-gpt-4.1.json.gz", (40, 1105, 299), {"message-errors": 1}),
    (TAU2 + "retail-toolorchestra-gpt-5.json.gz", (114, 2534, 873), {}),
    (TAU2 + "telecom-gpt-4.1-dual-control.json.gz", (40, 2238, 689), {"message-errors": 17}),
    (TAU2 + "telecom-gpt-4.1-no-user.json.gz", (20, 404, 192), {}),
    (
        TAU2 + "telecom-gpt-4.1-tool-prompt-missing-ids.json.gz",
        (1, 23, 11),
        {"missing-call-id": 11, "missing-result-id": 11},
    ),
    (TAU2 + "telecom-qwen2.5-1.5b-zero-simulations.json.gz", (0, 0, 0), {"no-conversations": 1}),
    (TAU2 + "mock-gpt-4.1-mini.json.gz", (1, 8, 1), {}),
    (TAU2 + "retail-gpt-4.1-mini.json.gz", (1, 24, 5), {}),
    (TAU2 + "telecom-gpt-4.1-mini.json.gz", (1, 56, 17), {}),
]
TAKEN = FILES if FULL else [FILES[0], FILES[1], *FILES[4:]]
"""Files that are imported: in short runs without two large ones that others are like."""


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "counts", "oddities"), TAKEN, ids=[name.rpartition("/")[2] for name, *_ in TAKEN])
async def test_every_conversation_of_the_corpus_comes_in_whole_and_once(
    corpus: Path, record: Record, name: str, counts: tuple[int, int, int], oddities: dict[str, int]
) -> None:
    told: list[int] = []
    done = await import_file(record, corpus / name, progress=told.append)
    assert (done.runs, done.skipped, done.oddities) == (counts[0], 0, oddities)
    runs = await conversations(record)
    assert count(runs) == counts
    assert done.entries == sum(map(len, runs)) == (told[-1] if told else 0)
    assert await record.verify() == []
    source = json.loads(gzip.decompress((corpus / name).read_bytes()))
    given = (
        [one["traj"] for one in source]
        if isinstance(source, list)
        else [one["messages"] for one in source["simulations"]]
    )
    for entries, messages in zip(runs, given, strict=True):
        sound(entries)
        history = formatted(entries)
        valid(history)
        assert [(one.role, one.text, [(call.name, call.args) for call in one.calls]) for one in history] == agent_side(
            messages
        )
    again = await import_file(record, corpus / name)
    assert (again.runs, again.entries, again.skipped, again.oddities) == (0, 0, counts[0], oddities)


async def test_prefixes_of_a_foreign_run_format_too(corpus: Path, record: Record) -> None:
    await import_file(record, corpus / TAU2 / "telecom-gpt-4.1-mini.json.gz")
    (entries,) = await conversations(record)
    for end in range(len(entries)):
        valid(formatted(entries[:end]))


async def test_imported_conversations_are_exported_like_any_run(corpus: Path, tmp_path: Path, record: Record) -> None:
    await import_file(record, corpus / TAU2 / "retail-gpt-4.1.json.gz")
    path = await exported(record, tmp_path / "out.jsonl")
    async with copy_of(path) as there:
        assert await sealed(there) == await sealed(record)
        again = await import_file(there, corpus / TAU2 / "retail-gpt-4.1.json.gz")
        assert (again.runs, again.skipped) == (0, 40), "a copied run is known again"


async def test_how_a_simulation_ended_is_how_its_last_turn_ends(corpus: Path, record: Record) -> None:
    ended: Counter[str] = Counter()
    for path in sorted((corpus / "activegraph-tau2").glob("*/results.json.gz")):
        await import_file(record, path)
    for entries in await conversations(record):
        sound(entries)
        valid(formatted(entries))
        ended[reasons(entries)[-1]] += 1
    assert ended == {"answered": 14, "limit": 4}
    assert len(await record.store.runs()) == 18


# ----------------------------------------------------------------------------------------- one thing of each at a time
def call(name: Any, args: Any = None, id: Any = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "arguments": {} if args is None else args, "id": id, **more}


def said(role: Any, content: Any = None, *calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}


def simulations(path: Path, *conversations: Any, **members: Any) -> Path:
    every = [{"id": f"c{place}", "messages": messages, **members} for place, messages in enumerate(conversations)]
    put(path, json.dumps({"simulations": every}))
    return path


async def story(record: Record, path: Path, *messages: Any, **members: Any) -> tuple[list[str], Imported]:
    """The entries that messages become, one line each, without the span that says where they come from."""
    done = await import_file(record, simulations(path, list(messages), **members))
    (entries,) = await conversations(record)
    sound(entries)
    valid(formatted(entries))
    assert await record.verify() == []
    first = next(entry.seq for entry in entries if isinstance(entry.content, EndContent))
    return [told(entry) for entry in entries if entry.seq > first], done


def told(entry: Entry) -> str:
    match entry.content:
        case BeginContent(role=role):
            text = f" {role}"
        case EndContent(reason=reason):
            text = f" {reason}" if reason else ""
        case KeyValueContent(key=key, value=value):
            text = f" {key} {value}"
        case ToolCallContent(tool_name=name, tool_args=args, status=status):
            text = f" {name}({args}) {status}"
        case ToolResultContent(tool_result=result, outcome=outcome):
            text = f" {result} {outcome}"
        case ChatCompletionContent(output=output):
            text = f" {output!r}"
        case (
            UserContent(value=words)
            | AssistantContent(value=words)
            | SystemContent(value=words)
            | ThoughtContent(value=words)
        ):
            text = f" {words!r}"
        case other:
            text = f" {other}"
    back = "".join(f" <{entry.seq - cause}" for cause in entry.causes if isinstance(cause, int))
    return f"{entry.kind}{text}{back}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.json"


async def test_a_conversation_becomes_turns(record: Record, path: Path) -> None:
    lines, done = await story(
        record,
        path,
        said("assistant", "Hi!"),
        said("user", "Rome?"),
        said("assistant", "Let me look.", call("weather", {"city": "Rome"}, "a"), call("time", id="b")),
        said("tool", "noon", id="b", error=False),
        said("tool", "no such city", id="a", error=True),
        said("assistant", "Sorry.", reasoning="It failed.", usage={"completion_tokens": 1}, cost=0.5),
        said("user", "Bye. ###STOP###"),
        termination_reason="user_stop",
    )
    assert lines == [
        "begin turn",
        "assistant 'Hi!'",
        "end answered",
        "begin turn",
        "user 'Rome?'",
        "chat-completion 'Let me look.' <4 <1",
        "tool-call weather({'city': 'Rome'}) success <1",
        "tool-call time({}) success <2",
        "tool-result noon ok <1",
        "tool-result no such city error <3",
        "chat-completion 'Sorry.' <2 <1",
        "thought 'It failed.' <1",
        "assistant 'Sorry.' <2",
        "end answered",
        "begin closing",
        "user 'Bye. ###STOP###'",
        "end",
    ]
    assert done.oddities == {}


async def test_what_the_person_does_with_tools_stays_out_of_the_prompt(record: Record, path: Path) -> None:
    lines, _ = await story(
        record,
        path,
        said("assistant", "Restart it."),
        said("user", None, call("restart", {"now": True}, "u1", requestor="user"), cost=0.1),
        said("tool", "restarted", id="u1", requestor="user", error=False),
        said("user", "Done."),
        said("assistant", "Good."),
    )
    assert lines[3:] == [
        "begin user-tools",
        "key-value user-step {'content': ''}",
        "key-value user-tool-call {'id': 'u1', 'name': 'restart', 'arguments': {'now': True}} <1",
        "key-value user-tool-result {'id': 'u1', 'content': 'restarted', 'error': False} <1",
        "end",
        "begin turn",
        "user 'Done.'",
        "chat-completion 'Good.' <9 <1",
        "assistant 'Good.' <1",
        "end answered",
    ]
    (entries,) = await conversations(record)
    assert [(one.role, one.text) for one in formatted(entries)] == [
        ("assistant", "Restart it."),
        ("user", "Done."),
        ("assistant", "Good."),
    ]
    step = next(note for note in contents(entries, KeyValueContent) if note.key == "user-step")
    assert step.extra == {"cost": 0.1}


@pytest.mark.parametrize(
    ("reason", "last", "ended"),
    [
        ("user_stop", said("user", "bye"), ["answered"]),
        ("agent_stop", said("assistant", "###STOP###"), ["answered"]),
        ("max_steps", said("user", "more?"), ["answered", "limit"]),
        ("max_steps", said("tool", "x"), ["limit"]),
        ("max_steps", said("assistant", "and"), ["limit"]),
        ("too_many_errors", said("user", "more?"), ["answered", "failed"]),
        ("meteorite", said("user", "more?"), ["answered", "failed"]),
        (None, said("user", "bye"), ["answered"]),
        (7, said("user", "more?"), ["answered", "failed"]),
    ],
)
async def test_the_last_turn_ends_as_the_source_says(
    record: Record, path: Path, reason: Any, last: dict[str, Any], ended: list[str]
) -> None:
    _, done = await story(record, path, said("user", "hi"), said("assistant", "hi"), last, termination_reason=reason)
    (entries,) = await conversations(record)
    assert reasons(entries) == ended
    assert done.oddities.get("unknown-ending", 0) == (reason in ("meteorite", 7))
    if ended[-1] in ("limit", "failed"):
        end = entries[-1].content
        assert isinstance(end, EndContent)
        assert end.status == "error"
        assert end.error is not None


async def test_odd_messages_are_kept_and_counted(record: Record, path: Path) -> None:
    lines, done = await story(
        record,
        path,
        said("user", 5),
        7,
        said("narrator", "then"),
        said("assistant", "a", call("x", '{"a": 1}', "i"), call(None, "{", "i"), call("y", [1]), "no call"),
        said("tool", {"any": "value"}, id="nobody"),
        said("tool", "first"),
        said("user", "again"),
        said("assistant", "b"),
        said("tool", "late", id="i"),
        said("assistant", ""),
        said("assistant", "c", timestamp="yesterday"),
    )
    assert lines == [
        "begin turn",
        "user ''",
        "key-value unreadable-message 7",
        "key-value unreadable-message {'role': 'narrator', 'content': 'then'}",
        "chat-completion 'a' <3",
        "tool-call x({'a': 1}) success <1",
        "tool-call ?({}) error <2",
        "tool-call y({}) error <3",
        "tool-call ?({}) success <4",
        "tool-result {'any': 'value'} ok",
        "tool-result first ok <5",
        "end cancelled",
        "begin turn",
        "user 'again'",
        "chat-completion 'b' <5 <4 <1",
        "assistant 'b' <1",
        "tool-result late late <10",
        "chat-completion '' <1",
        "assistant '' <1",
        "chat-completion 'c' <2",
        "assistant 'c' <1",
        "end answered",
    ]
    assert done.oddities == {
        "bad-arguments": 2,
        "bad-time": 1,
        "call-without-name": 2,
        "missing-call-id": 2,
        "missing-result-id": 1,
        "orphan-result": 1,
        "repeated-call-id": 1,
        "unanswered-call": 3,
        "unanswered-turn": 1,
        "unreadable-message": 2,
        "wrong-type": 2,
    }
    assert set(done.oddities) <= set(ODDITIES)
    (entries,) = await conversations(record)
    kept = json.dumps([str(entry.content.extra) for entry in entries])
    assert all(one in kept for one in ("{'content': 5}", "{'call': 'no call'}", "{'timestamp': 'yesterday'}"))
    wrong = [call.meta["raw_args"] for call in contents(entries, ToolCallContent) if call.meta]
    assert wrong == ["{", [1]]


async def test_times_are_utc_and_marked_where_their_zone_is_not_known(record: Record, path: Path) -> None:
    await story(
        record,
        path,
        said("user", "a", timestamp="2026-03-14T10:00:00+02:00"),
        said("assistant", "b", timestamp="2026-03-14T08:00:01"),
        said("user", "c"),
        said("assistant", "d", timestamp="0001-01-01T00:00:00+23:00"),
    )
    (entries,) = await conversations(record)
    shown = [
        (entry.at.strftime("%H:%M:%S"), "at" in (entry.annotations or {}).get("inferred", []))
        for entry in entries
        if isinstance(entry.content, UserContent | AssistantContent)
    ]
    assert shown == [("08:00:00", False), ("08:00:01", True), ("08:00:01", True), ("08:00:01", True)]
    assert {entry.at.utcoffset() for entry in entries} == {entries[0].at.utcoffset()}


async def test_what_holds_for_the_whole_conversation_comes_first(record: Record, path: Path) -> None:
    info = {
        "agent_info": {"llm": "m-1"},
        "environment_info": {"domain_name": "shop", "policy": "Be kind."},
        "seed": 3,
    }
    simulation = {"id": "x", "task_id": 4, "reward": None, "odd": [1], "messages": []}
    tasks = [{"id": 4, "goal": "g"}, {"id": 5}]
    put(path, json.dumps({"simulations": [simulation], "tasks": tasks, "info": info}))
    done = await import_file(record, path)
    assert (done.runs, done.format) == (1, "tau2-bench")
    ((run,), (entries,)) = (await record.store.runs(), await conversations(record))
    assert (run.session, run.name, run.head) == ("results/x", "shop", 3)
    values = contents(entries, BeginContent)[0].state
    rest = {"agent_info": {"llm": "m-1"}, "environment_info": {"domain_name": "shop"}, "seed": 3}
    assert values == {"results": {"info": rest}, "task": tasks[0], "id": "x", "task_id": 4, "odd": [1]}
    (header,) = contents(entries, RequestHeaderContent)
    assert header.meta == {"model": "m-1", "instructions": "Be kind."}
    assert (entries[1].content, (entries[1].annotations or {})["inferred"]) == (header, ["instructions"])


async def test_a_system_message_is_the_instructions(record: Record, path: Path) -> None:
    messages = [said("system", "Be kind."), said("system", "Really."), said("user", "hi")]
    old = {"role": "assistant", "content": "x", "tool_calls": None, "function_call": {"name": "f", "arguments": "{}"}}
    trial = {"traj": [*messages, old, {"role": "tool", "content": "Error: 503", "name": "f"}], "task_id": 3, "trial": 0}
    put(path, json.dumps([trial]))
    done = await import_file(record, path)
    ((run,), (entries,)) = (await record.store.runs(), await conversations(record))
    assert run.session == "results/3.0"
    assert done.format == "tau-bench"
    assert [told(entry) for entry in entries if entry.content.kind not in ("key-value", "request-header")] == [
        "begin import",
        "system 'Really.'",
        "end",
        "begin turn",
        "user 'hi'",
        "chat-completion 'x' <1",
        "tool-call f({}) success <1",
        "tool-result Error: 503 error <1",
        "end limit",
    ]
    (header,) = contents(entries, RequestHeaderContent)
    assert header.meta == {"instructions": "Be kind."}


# ------------------------------------------------------------------------------------------------- once, and whole
async def test_another_conversation_of_the_same_name_is_not_lost(record: Record, tmp_path: Path) -> None:
    one, two = tmp_path / "a", tmp_path / "b"
    for folder in (one, two):
        folder.mkdir()
        simulations(folder / "results.json", [said("user", folder.name)])
    assert (await import_file(record, one / "results.json")).oddities == {}
    second = await import_file(record, two / "results.json")
    assert (second.runs, second.oddities) == (1, {"other-conversation": 1})
    for folder in (one, two):
        assert (await import_file(record, folder / "results.json")).skipped == 1
    sessions = [row.session for row in await record.store.runs()]
    assert sessions[0] == "results/c0"
    assert sessions[1].startswith("results/c0~")


class Filling(MemoryStore):
    """A store on a disk that is full after some commits."""

    room = 1

    async def append(self, batch: Batch) -> int:
        if not self.room:
            raise WriteFailed(self.info.address, "the disk is full")
        self.room -= 1
        return await super().append(batch)


async def test_a_failed_commit_leaves_no_half_conversation(path: Path) -> None:
    simulations(path, *[[said("user", f"hi {number}"), said("assistant", "hello")] for number in range(TOGETHER + 2)])
    store = Filling()
    record = Record(store, bind)
    with pytest.raises(WriteFailed):
        await import_file(record, path)
    assert [reasons(entries) for entries in await conversations(record)] == [["answered"]] * TOGETHER
    store.room = 9
    done = await import_file(record, path)
    assert (done.runs, done.skipped) == (2, TOGETHER)
    assert await record.verify() == []


async def test_a_file_that_changes_while_it_is_read_says_what_is_done(
    tmp_path: Path, record: Record, path: Path
) -> None:
    async with open_record() as other:
        await fill(other, "s-1", odd=False)
        await fill(other, "s-2", odd=False)
        lines = (await exported(other, tmp_path / "out.jsonl")).read_bytes().splitlines(keepends=True)

    class Changing(Source):
        passes = 0

        def lines(self) -> Any:
            self.passes += 1
            return iter(lines if self.passes == 1 else lines[:-1])

    with pytest.raises(
        BadImport, match="The file changed while it was read; what stands before that place is imported"
    ):
        await import_lines(record, Changing(tmp_path / "out.jsonl"), lambda _: None)
    assert [row.head for row in await record.store.runs()] == [8]
    assert await record.verify() == []


# ------------------------------------------------------------------------------------------------------ nobody's data
BIG, DEEP = "a number of 5000 digits", "a list in a list in a list"
WORDS = st.sampled_from(["user", "assistant", "tool", "system", "a", "b", "", "f", "{}", '{"x": 1}', "###STOP###", ODD])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.sampled_from([BIG, DEEP]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
KEYS = ("id", "name", "arguments", "function", "requestor", "type")
CALLS = st.lists(st.dictionaries(st.sampled_from(KEYS), WORDS | VALUES, max_size=5) | VALUES, max_size=3) | VALUES
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system"]) | VALUES, "content": WORDS | VALUES},
        optional={
            **dict.fromkeys(("id", "tool_call_id", "requestor", "error", "name", "turn_idx"), WORDS | VALUES),
            **dict.fromkeys(("usage", "raw_data", "cost", "reasoning", "errors", "function_call", "more"), VALUES),
            "tool_calls": CALLS,
            "timestamp": st.sampled_from(["2026-01-01T00:00:00", "9999-12-31T23:59:59-10:00", "x"]) | VALUES,
        },
    )
    | VALUES,
    max_size=8,
)


@given(
    messages=MESSAGES, members=st.dictionaries(WORDS | st.sampled_from(["id", "task_id", "trial"]), VALUES, max_size=3)
)
async def test_no_content_of_a_file_breaks_an_import(
    tmp_path_factory: pytest.TempPathFactory, messages: Any, members: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.json"
    other = {"info": members, "tasks": [members], "simulations": [{**members, "messages": messages}]}
    for content in ([{**members, "traj": messages}], other):
        text = json.dumps(content).replace(json.dumps(BIG), "9" * 5000)
        put(path, text.replace(json.dumps(DEEP), "[" * 700 + "]" * 700))
        async with open_record() as record:
            done = await import_file(record, path)
            (entries,) = await conversations(record)
            sound(entries)
            for end in range(len(entries) + 1):
                valid(formatted(entries[:end]))
            assert count([entries])[1] == len(messages)
            assert set(done.oddities) <= set(ODDITIES)
            assert await record.verify() == []
            assert (await import_file(record, path)).skipped == 1


@given(data=st.binary(max_size=200) | st.text(alphabet='[]{}",:0123 "traj"simulations\\', max_size=60).map(str.encode))
async def test_no_bytes_break_an_import(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "any.json"
    path.write_bytes(data)
    async with open_record() as record:
        for format in (None, *(known.name for known in formats().formats)):
            with contextlib.suppress(BadImport):
                await import_file(record, path, format)


@pytest.mark.parametrize("size", [1, 7, 65_536, 200_000])
async def test_a_document_is_read_in_pieces_as_whole(path: Path, size: int) -> None:
    document = {
        "info": {"a": [1, 2.5, -3, "x" * size, 12345678901234567890]},
        "simulations": [[], "é😀" * size, 17, None],
    }
    for indent in (None, 2):
        put(path, "\ufeff" + json.dumps(document, indent=indent, ensure_ascii=bool(indent)))
        pieces = list(Source(path).pieces("simulations"))
        assert [piece.path for piece in pieces] == ["$.info", *[f"$.simulations[{place}]" for place in range(4)]]
        assert [piece.value for piece in pieces] == [document["info"], *document["simulations"]]
    assert find_format(Source(path)).name == "tau2-bench"


def test_every_format_is_named_in_the_help_and_on_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "import-export.md").read_text(encoding="utf-8")
    (told,) = [each.help or "" for each in application("import").registered_commands if each.name == "import"]
    for known in formats().formats:
        assert f"| `{known.name}` |" in page
        assert known.name in told
