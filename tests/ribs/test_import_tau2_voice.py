"""A conversation by voice in which both may speak at once: ticks without words, and spans of who speaks."""

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.ribs.test_bridges import contents, put, reasons
from tests.ribs.test_import_langfuse import after_import, endured, flawless, lost, spoilt, unkept

from gesta.address import open_record
from gesta.importers.file import import_file
from gesta.importers.foreign import Imported
from gesta.importers.known import find_format
from gesta.importers.research import tau2_voice
from gesta.importers.source import BadImport, Source
from gesta.kinds import BeginContent, KeyValueContent
from gesta.record.record import Record


def tick(number: int, agent: Any, user: Any, action: str | None = None, **more: Any) -> dict[str, Any]:
    chunk = {"speech_effects": None, "turn_taking_action": None, "contains_speech": agent}
    said = {"role": "user", "contains_speech": user, "turn_taking_action": action and {"action": action}, **more}
    return {
        "tick_id": number,
        "timestamp": f"2026-01-01T10:00:{number:02}.250000",
        "agent_chunk": {"role": "assistant", **chunk},
        "user_chunk": said,
    }


CALL: dict[str, Any] = {
    "id": "v-1",
    "task_id": "40",
    "start_time": "2026-01-01T09:59:59",
    "end_time": "2026-01-01T10:01:00",
    "termination_reason": "user_stop",
    "mode": "full_duplex",
    "ticks": [
        tick(0, agent=False, user=False),
        tick(1, agent=True, user=False),
        tick(2, agent=True, user=True, action="keep_talking"),
        tick(3, agent=False, user=True, source_effects={"noise": "dog"}),
        tick(4, agent=False, user=False),
        tick(5, agent=False, user=True),
    ],
}


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "voice.json"


async def test_ticks_are_notes_and_speech_is_spans(record: Record, path: Path) -> None:
    put(path, json.dumps(CALL))
    assert find_format(Source(path)).name == "tau2-voice"
    done = await import_file(record, path)
    (entries,) = await flawless(record, path, 1)
    assert done == Imported(runs=1, entries=len(entries), skipped=0, format="tau2-voice")
    silent, speaks = {"contains_speech": False}, {"contains_speech": True}
    talking = {"contains_speech": True, "turn_taking_action": {"action": "keep_talking"}}
    noisy = {"contains_speech": True, "source_effects": {"noise": "dog"}}
    assert after_import(entries) == [
        "3 begin turn agent",
        f"3 key-value tick { ({'tick_id': 0, 'agent_chunk': silent, 'user_chunk': silent}) }",
        "5 begin speech assistant ?span",
        f"3 key-value tick { ({'tick_id': 1, 'agent_chunk': speaks, 'user_chunk': silent}) }",
        "7 begin speech user ?span",
        f"3 key-value tick { ({'tick_id': 2, 'agent_chunk': speaks, 'user_chunk': talking}) }",
        "5 end ?span",
        f"3 key-value tick { ({'tick_id': 3, 'agent_chunk': silent, 'user_chunk': noisy}) }",
        "7 end ?span",
        f"3 key-value tick { ({'tick_id': 4, 'agent_chunk': silent, 'user_chunk': silent}) }",
        "13 begin speech user ?span",
        f"3 key-value tick { ({'tick_id': 5, 'agent_chunk': silent, 'user_chunk': speaks}) }",
        "13 end ?span",
        "3 end answered",
    ]
    assert [str(entry.at)[11:22] for entry in entries if entry.seq in (3, 4, 8, 16)] == [
        "09:59:59+00",
        "10:00:00.25",
        "10:00:02.25",
        "10:01:00+00",
    ]
    assert lost(CALL, entries) == {one["timestamp"] for one in CALL["ticks"]}, "they are `at`"


@pytest.mark.parametrize(
    ("named", "reason", "inferred"),
    [
        ("max_steps", "limit", ""),
        ("timeout", "limit", ""),
        (None, "answered", " ?reason"),
        ("odd", "failed", " ?reason"),
    ],
)
async def test_the_call_ends_as_the_source_says(
    record: Record, path: Path, named: Any, reason: str, inferred: str
) -> None:
    put(path, json.dumps({**CALL, "termination_reason": named}))
    done = await import_file(record, path)
    (entries,) = await flawless(record, path, 1)
    assert after_import(entries)[-1].endswith(f" end {reason}{inferred}")
    assert done.oddities == ({"unknown-ending": 1} if named == "odd" else {})


async def test_odd_ticks_are_kept_and_counted(record: Record, path: Path) -> None:
    odd: list[Any] = [None, 7, {}, {"agent_chunk": {"contains_speech": "yes"}, "timestamp": 5}, {"user_chunk": []}]
    put(path, json.dumps({"task_id": None, "ticks": odd}))
    done = await import_file(record, path)
    (entries,) = await flawless(record, path, 1)
    assert done.oddities == {"unreadable-message": 2, "wrong-type": 1}
    assert [(note.key, note.value) for note in contents(entries, KeyValueContent)] == [
        ("unreadable-message", None),
        ("unreadable-message", 7),
        ("tick", {}),
        ("tick", {"agent_chunk": {"contains_speech": "yes"}, "timestamp": 5}),
        ("tick", {"user_chunk": []}),
    ]
    assert [row.session for row in await record.store.runs()] == ["voice/0"]


@pytest.mark.parametrize("document", ["[]", "7", "{}", '{"ticks": {}}'])
async def test_what_has_no_ticks_is_refused(record: Record, path: Path, document: str) -> None:
    put(path, document)
    with pytest.raises(
        BadImport, match="expected a simulation with its list of ticks, found something else in document 1"
    ):
        await import_file(record, path, "tau2-voice")


def test_whatever_stands_anywhere_in_a_call_is_kept(path: Path) -> None:
    assert unkept(path, CALL, tau2_voice.read) == []


@given(text=spoilt(CALL))
async def test_no_content_of_a_tick_breaks_an_import(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    await endured(tmp_path_factory.mktemp("any") / "any.json", text, "tau2-voice")


async def test_the_call_of_the_corpus_comes_in_whole(corpus: Path, record: Record) -> None:
    path = corpus / "tau2-bench/voice-ticks/49b22f0c.json.gz"
    source = json.loads(gzip.decompress(path.read_bytes()))
    done = await import_file(record, path)
    assert (done.format, done.runs, done.oddities) == ("tau2-voice", 1, {})
    (entries,) = await flawless(record, path, 1)
    ticks = [note.value for note in contents(entries, KeyValueContent) if note.key == "tick"]
    assert [one["tick_id"] for one in ticks] == list(range(973))
    for side, name in (("agent_chunk", "assistant"), ("user_chunk", "user")):
        speaks = [one[side]["contains_speech"] for one in source["ticks"]]
        begun = sum(now and not before for before, now in zip([False, *speaks], speaks, strict=False))
        assert sum(begin.name == name for begin in contents(entries, BeginContent)) == begun
    assert reasons(entries) == ["answered"]
    times = {one["timestamp"] for one in source["ticks"]}
    assert lost(source, entries) == times
    assert len(times) == len({entry.at for entry in entries if getattr(entry.content, "key", None) == "tick"})
