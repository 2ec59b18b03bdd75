"""Transcripts that are flat text come in whole: a call stands in where the source has lost one."""

import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ribs.test_bridges import conversations, formatted, reasons, sound, told, valid
from tests.ribs.test_import_who_and_when import encodable, inferred, kept, mutated, put

from gesta.address import open_record
from gesta.entry import Entry
from gesta.importers.file import import_file
from gesta.importers.foreign import ODDITIES
from gesta.importers.known import find_format
from gesta.importers.source import BadImport, Source
from gesta.kinds import BeginContent, ChatCompletionContent, ToolCallContent, ToolResultContent, UserContent
from gesta.record.record import Record
from gesta.views.lineage import unexplained

TEXT = """\
user: Where is my order?
assistant: Who are you?

I need a name.
user: Ann.
assistant: None
tool: ann_1
assistant: Let me look.
tool: {"order": "#W1"}
tool: Error: no such order
assistant: It is on its way.
user: Thanks. ###STOP###"""


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def rebuilt(entries: Sequence[Entry]) -> str:
    """The text of a source, from its entries."""
    calling = {cause for one in entries if isinstance(one.content, ToolCallContent) for cause in one.causes}
    lines = {}
    for entry in entries:
        place = (entry.annotations or {}).get("message")
        match entry.content:
            case _ if place is None:
                continue
            case UserContent(value=text):
                lines[place] = f"user: {text}"
            case ChatCompletionContent(output=text):
                lines[place] = f"assistant: {text or ('None' if entry.seq in calling else '')}"
            case ToolResultContent(tool_result=text):
                lines[place] = f"tool: {text}"
    assert sorted(lines) == list(range(len(lines)))
    return "\n".join(lines[place] for place in sorted(lines))


async def only(record: Record, path: Path, text: Any, **members: Any) -> tuple[list[Entry], dict[str, int]]:
    done = await import_file(record, put(path, {"messages_display": text, **members}))
    assert done.format == "tau-bench-few-shot"
    (entries,) = await conversations(record)
    sound(entries)
    for end in range(len(entries) + 1):
        encodable(entries[:end])
    assert await record.verify() == []
    assert len(unexplained(entries).entries) == done.oddities.get("orphan-result", 0)
    return entries, done.oddities


async def test_a_call_stands_in_for_each_that_is_lost(record: Record, path: Path) -> None:
    entries, oddities = await only(record, path, TEXT)
    lines = [" ".join([told(one), *(f"?{name}" for name in inferred(one))]) for one in entries]
    assert lines == [
        "begin import",
        "end",
        "begin turn",
        "user 'Where is my order?'",
        "chat-completion 'Who are you?\\n\\nI need a name.' <1 ?causes",
        "assistant 'Who are you?\\n\\nI need a name.' <1",
        "end answered",
        "begin turn",
        "user 'Ann.'",
        "chat-completion '' <5 <1 ?causes",
        "tool-call ?({}) success <1 ?tool_name ?tool_args",
        "tool-result ann_1 ok <1 ?call ?causes ?status",
        "chat-completion 'Let me look.' <1 ?causes",
        "tool-call ?({}) success <1 ?tool_name ?tool_args",
        "tool-call ?({}) success <2 ?tool_name ?tool_args",
        'tool-result {"order": "#W1"} ok <2 ?call ?causes ?status',
        "tool-result Error: no such order error <2 ?call ?causes ?status",
        "chat-completion 'It is on its way.' <2 <1 ?causes",
        "assistant 'It is on its way.' <1",
        "end answered",
        "begin closing",
        "user 'Thanks. ###STOP###'",
        "end",
    ]
    assert oddities == {"lost-call": 3, "missing-result-id": 3}
    assert rebuilt(entries) == TEXT
    assert [(one.role, one.text) for one in formatted(entries) if one.role == "tool"] == [
        ("tool", "ann_1"),
        ("tool", '{"order": "#W1"}'),
        ("tool", "Error: no such order"),
    ]


@pytest.mark.parametrize(
    ("text", "reason", "odd"),
    [
        ("", [], {}),
        ("user: a", ["limit"], {}),
        ("user: a ###STOP###", [], {}),
        ("user: a\nassistant: b", ["answered"], {}),
        ("user: a\nassistant: None", ["answered"], {"lost-call": 1, "unanswered-call": 1}),
        ("user: a\nassistant: None\ntool: b", ["limit"], {"lost-call": 1, "missing-result-id": 1}),
        (
            "user: a\nassistant: None\ntool: Transfer successful",
            ["answered"],
            {"lost-call": 1, "missing-result-id": 1},
        ),
        ("tool: b", ["limit"], {"orphan-result": 1, "missing-result-id": 1}),
        ("user: None\nassistant: b", ["answered"], {}),
        ("system: Be kind.\nuser: a\nassistant: b", ["answered"], {}),
        ("Dear all\nuser: a\nassistant: b", ["answered"], {"unreadable-message": 1}),
        ("assistant:b", [], {"unreadable-message": 1}),
    ],
)
async def test_how_a_text_ends_is_how_its_last_turn_ends(
    record: Record,
    path: Path,
    text: str,
    reason: list[str],
    odd: dict[str, int],
) -> None:
    entries, oddities = await only(record, path, text)
    assert (reasons(entries), oddities) == (reason, odd)


async def test_other_members_are_notes(record: Record, path: Path) -> None:
    entries, _ = await only(record, path, "user: a", task=7, none=None, more={"a": "b"})
    assert next(one.content.state for one in entries if isinstance(one.content, BeginContent)) == {
        "task": 7,
        "more": {"a": "b"},
    }
    ((row,), source) = (await record.store.runs(), Source(path))
    assert (row.session, row.name) == ("runs/0", "agent")
    assert find_format(source).name == "tau-bench-few-shot"


@pytest.mark.parametrize("content", [[7], [{"messages_display": "user: a"}, {"messages_display": None}]])
async def test_what_is_no_transcript_is_refused_and_nothing_is_written(
    record: Record,
    path: Path,
    content: list[Any],
) -> None:
    with pytest.raises(BadImport, match=f"found something else in document {len(content)}"):
        await import_file(record, put(path, *content), "tau-bench-few-shot")
    assert await record.store.runs() == []
    assert (await import_file(record, put(path), "tau-bench-few-shot")).oddities == {"no-conversations": 1}


def transcripts(corpus: Path) -> tuple[list[str], Path]:
    file = corpus / "tau-bench/few_shot-retail.jsonl.gz"
    lines = gzip.decompress(file.read_bytes()).splitlines()
    return [json.loads(line)["messages_display"] for line in lines], file


@pytest.mark.slow
async def test_every_transcript_of_the_corpus_comes_in_whole_and_once(corpus: Path, record: Record) -> None:
    texts, file = transcripts(corpus)
    done = await import_file(record, file)
    assert (done.runs, done.oddities) == (69, {"lost-call": 479, "missing-result-id": 479})
    runs = await conversations(record)
    counted = Counter(str(one.kind) for run in runs for one in run if "message" in (one.annotations or {}))
    assert counted == {"user": 533, "chat-completion": 943, "tool-result": 479}
    for entries, text in zip(runs, texts, strict=True):
        sound(entries)
        encodable(entries)
        assert rebuilt(entries) == text, "nothing is lost"
        found = unexplained(entries)
        assert (found.entries, found.answers) == ({}, ())
    for end in range(len(runs[0])):
        encodable(runs[0][:end])
    assert Counter(reason for run in runs for reason in reasons(run)) == {"answered": 468}
    assert await record.verify() == []
    again = await import_file(record, file)
    assert (again.runs, again.entries, again.skipped) == (0, 0, 69)


PIECES = st.lists(
    st.sampled_from(["user: ", "assistant: ", "tool: ", "system: ", "\n", "None", "a", "\ud800", "\r", "Error", ":"]),
    max_size=20,
).map("".join)


@given(data=st.data())
async def test_no_text_breaks_an_import(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    document = {"messages_display": data.draw(PIECES), "more": [{"a": 1}]}
    path = mutated(tmp_path_factory.mktemp("any") / "any.jsonl", data, document, PIECES)
    async with open_record() as record:
        try:
            done = await import_file(record, path, "tau-bench-few-shot")
        except BadImport:
            assert await record.store.runs() == []
            return
        (entries,) = await conversations(record)
        sound(entries)
        for end in range(len(entries) + 1):
            valid(formatted(entries[:end]))
        assert set(done.oddities) <= set(ODDITIES)
        text = next(Source(path).documents()).value["messages_display"]
        assert all(line.partition(": ")[2] in " ".join(kept(entries)) for line in text.split("\n"))
        assert await record.verify() == []
        assert (await import_file(record, path, "tau-bench-few-shot")).skipped == 1
