"""An import takes in no more than its bounds, whatever the file is packed as, and in time that grows with its size."""

import gc
import gzip
import json
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.commands import gesta_command
from tests.costs import LINEAR, growth

import gesta
from gesta.importers import openai_chat
from gesta.importers.file import import_file
from gesta.importers.source import BadImport, ImportBounds, Source

zstandard: Any = pytest.importorskip("zstandard")

SMALL = ImportBounds(value=200_000, file=400_000)
LINE = json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}) + "\n"
LONG = json.dumps({"messages": [{"role": "user", "content": "x" * 10_000_000}]})
OWN = '{"gesta": 1, "record": "' + "x" * 10_000_000 + '"}'
Pack = Callable[[Path, bytes], None]


def plain(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def gz(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data))


def zst(path: Path, data: bytes) -> None:
    path.write_bytes(zstandard.ZstdCompressor().compress(data))


@pytest.fixture
async def record() -> AsyncIterator[gesta.Record]:
    async with gesta.open() as opened:
        yield opened


@pytest.mark.sample(4)
@pytest.mark.parametrize("pack", [plain, gz, zst])
@pytest.mark.parametrize("text", [LONG, LONG * 2, "[" + LONG, OWN, "[" * 300_000, "1" * 300_000])
async def test_one_value_has_a_bound(record: gesta.Record, tmp_path: Path, pack: Pack, text: str) -> None:
    path = tmp_path / "long.jsonl"
    pack(path, text.encode())
    tracemalloc.start()
    try:
        with pytest.raises(BadImport) as found:
            await import_file(record, path, bounds=ImportBounds(value=200_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if len(text) > 10_000_000:
        assert "has more than 200,000 characters" in str(found.value)
        assert str(found.value).endswith("gesta import --largest-value N, or ImportBounds(value=N).")
    assert peak < 8_000_000
    assert await record.store.runs() == []


@pytest.mark.sample(3)
@pytest.mark.parametrize(("pack", "what"), [(plain, "it"), (gz, "what is packed in it"), (zst, "what is packed in it")])
async def test_a_file_has_a_bound(record: gesta.Record, tmp_path: Path, pack: Pack, what: str) -> None:
    path = tmp_path / "long.jsonl"
    pack(path, LINE.encode() * 6_000)
    with pytest.raises(BadImport) as found:
        await import_file(record, path, bounds=SMALL)
    assert f"{what} has more than 400,000 bytes. Raise it if that is meant: gesta import --largest-file N" in str(
        found.value
    )
    assert await record.store.runs() == []


async def test_an_archive_has_a_bound_and_its_names_lead_nowhere(record: gesta.Record, tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("header.json", "../../escaped.json", "/tmp/escaped.json", *map(str, range(20))):
            archive.writestr(name, " " * 190_000)
    with pytest.raises(BadImport, match="all that is packed in it has more than 400,000 bytes"):
        await import_file(record, path, bounds=SMALL)
    with pytest.raises(BadImport):
        await import_file(record, path)
    assert [each.name for each in tmp_path.parent.rglob("escaped.json")] == []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", " " * 300_000)
    with pytest.raises(BadImport, match="has more than 200,000 characters"):
        await import_file(record, path, bounds=SMALL)


async def test_what_is_as_large_as_its_bounds_is_imported(record: gesta.Record, tmp_path: Path) -> None:
    path = tmp_path / "small.jsonl.gz"
    gz(path, LINE.encode() * 3)
    assert (await import_file(record, path, bounds=ImportBounds(value=len(LINE), file=3 * len(LINE)))).runs == 3


def test_the_command_raises_the_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain(tmp_path / "a.jsonl", LINE.encode() * 2)
    for words in (("--largest-value", "5"), ("--largest-file", "5")):
        done = gesta_command("import", "a.jsonl", *words, "--record", "r.gesta")
        assert done.exit_code == 1
        assert f"gesta import {words[0]} N" in done.stderr
    enough = ("import", "a.jsonl", "--largest-value", "500", "--largest-file", "500", "--record", "r.gesta")
    assert gesta_command(*enough).exit_code == 0


def user(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "Hi"}] * count


def backwards(count: int) -> list[dict[str, Any]]:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(count)]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": "r"} for n in reversed(range(count))]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


@pytest.mark.slow
@pytest.mark.parametrize(("made", "size"), [(user, 5_000), (backwards, 2_500)])
def test_a_conversation_costs_what_its_messages_cost_however_many_they_are(
    tmp_path: Path, made: Callable[[int], list[dict[str, Any]]], size: int
) -> None:
    for count in (size, 4 * size):
        plain(tmp_path / f"{count}.jsonl", json.dumps({"messages": made(count)}).encode())

    def read(count: int) -> None:
        (found,) = openai_chat.read(Source(tmp_path / f"{count}.jsonl"), Counter())
        assert len(found.entries) > count

    gc.collect()
    gc.disable()  # it looks at all objects again and again while they become more
    try:
        assert growth(read, size) < LINEAR
    finally:
        gc.enable()
