"""A log of requests and responses comes in as the conversations that it holds, each message once."""

import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.ribs.test_bridges import contents, conversations, put, reasons
from tests.ribs.test_bridges import told as told_of_others
from tests.ribs.test_import_mini_swe_agent import SAID, accepted, endured, flawless, history, lost, nested, spoilt

from gesta.address import open_record
from gesta.codec.rows import Secret
from gesta.entry import Entry
from gesta.importers.file import import_file
from gesta.importers.known import find_format
from gesta.importers.source import BadImport, Source
from gesta.kinds import (
    ChatCompletionContent,
    CompactionContent,
    EndContent,
    FaultContent,
    KeyValueContent,
    RequestContent,
    RequestHeaderContent,
    ToolCallContent,
    ToolResultContent,
)
from gesta.prompt import references
from gesta.record.record import Record
from gesta.views.lineage import unexplained

FORMAT = "swe-agent-interactions"
FOLDER = "swe-agent/llm_interactions"
FILES = {  # requests and responses as MANIFEST.json counts them; conversations, and what is odd
    "20251103_025309": (
        *(8, 7, 1),
        {"left-out": 1, "repeated-request": 1, "unanswered-call": 1, "unanswered-request": 1},
    ),
    "20251103_033709": (
        *(7, 6, 1),
        {"left-out": 1, "repeated-request": 1, "unanswered-call": 1, "unanswered-request": 1},
    ),
    "20251107_092915": (14, 14, 1, {"bad-arguments": 1, "left-out": 2, "repeated-call-id": 2, "unanswered-call": 2}),
    "20251129_080419": (35, 35, 1, {"left-out": 5, "unanswered-call": 2}),
    "20251201_085611": (2, 0, 2, {"unanswered-request": 2}),
}
IMPLIED = {"request", "response"}
"""Types of lines, which the kind of an entry says."""


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def told(entry: Entry) -> str:
    """An entry in one line."""
    back = "".join(f" <{entry.seq - cause}" for cause in entry.causes if isinstance(cause, int))
    match entry.content:
        case RequestContent(number=number, extends=extends) as request:
            after = "" if extends is None else f" after {extends}"
            return f"request {number}{after} {[list(seqs) for seqs in references(request)]}"
        case FaultContent(error=error, wait_s=wait_s):
            return f"fault {error.type} {wait_s}{back}"
        case CompactionContent(from_seq=first, to_seq=last):
            return f"compaction {first}-{last}"
        case RequestHeaderContent(meta=meta):
            return f"header {(meta or {}).get('model')}"
        case _:
            return told_of_others(entry)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def body(line: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = line.get("request_params", line)
    return found


def text_of(content: Any) -> str:
    return "".join(part["text"] for part in content) if isinstance(content, list) else content or ""


def test_every_log_of_the_corpus_is_counted(corpus: Path) -> None:
    assert sorted(f"interactions_{name}.jsonl.gz" for name in FILES) == sorted(
        one.name for one in (corpus / FOLDER).iterdir()
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FILES)
async def test_every_log_of_the_corpus_comes_in_whole_and_once(corpus: Path, record: Record, name: str) -> None:
    path = corpus / FOLDER / f"interactions_{name}.jsonl.gz"
    requests, responses, runs, odd = FILES[name]
    done = await import_file(record, path)
    assert (done.runs, done.format, done.oddities) == (runs, FORMAT, odd)
    every = await flawless(record, path, runs)
    found = [entry for entries in every for entry in entries]
    assert len(contents(found, RequestContent)) == requests
    assert len(contents(found, ChatCompletionContent)) == responses
    assert len(contents(found, FaultContent)) == odd.get("unanswered-request", 0)
    assert len(contents(found, CompactionContent)) == odd.get("left-out", 0)
    source = lines_of(path)
    assert {(entry.annotations or {}).get("message") for entry in found} - {None} == set(range(len(source)))
    keys = {body(line).get("api_key", "") for line in source}
    assert set(lost(source, found)) <= IMPLIED | keys
    calls = [call for line in source for output in line.get("outputs", ()) for call in output["tool_calls"]]
    assert len(contents(found, ToolCallContent)) == len(calls)
    for entries in every:
        assert unexplained(entries).entries == {}
        assert unexplained(entries).answers == ()


@pytest.mark.parametrize("name", FILES)
async def test_every_request_is_what_the_conversation_was_then(corpus: Path, record: Record, name: str) -> None:
    """What would be sent now holds the messages that were sent then; what they were beside is named."""
    path = corpus / FOLDER / f"interactions_{name}.jsonl.gz"
    await import_file(record, path)
    source, differences = lines_of(path), Counter[str]()
    for entries in await conversations(record):
        for entry in entries:
            if not isinstance(entry.content, RequestContent):
                continue
            sent = body(source[(entry.annotations or {})["message"]])["messages"][1:]
            shown = history(entries[: entry.seq - 1])
            otherwise = (entry.content.extra or {}).get("shown", {})
            for at in sorted(map(int, otherwise)):
                differences["a reply with calls that could not be run was sent without them"] += 1
                assert sent[at - 1]["role"] == "assistant" and "tool_calls" not in sent[at - 1]
                calls = shown[at - 1].pop("tool_calls")
                del shown[at : at + len(calls)]
            assert [(one["role"], text_of(one["content"])) for one in shown] == [
                (one["role"], text_of(one["content"])) for one in sent
            ]
            made = [[call["function"]["name"] for call in one.get("tool_calls", ())] for one in shown]
            assert made == [[call["function"]["name"] for call in one.get("tool_calls", ())] for one in sent]
    assert sum(differences.values()) == {"20251107_092915": 1, "20251129_080419": 1}.get(name, 0)


async def test_the_two_agents_of_a_log_are_two_runs(corpus: Path, record: Record) -> None:
    await import_file(record, corpus / FOLDER / "interactions_20251201_085611.jsonl.gz")
    assert [(row.session, row.name) for row in await record.store.runs()] == [
        ("interactions_20251201_085611/0", "Root Cause Analysis Agent"),
        ("interactions_20251201_085611/1", "Patch Generation Agent"),
    ]
    assert [reasons(entries) for entries in await conversations(record)] == [["failed"], ["failed"]]


# ----------------------------------------------------------------------------------------- one thing of each at a time
def said(role: str, content: Any, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}


def call(name: str, args: str = "{}", id: str = "c1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": args}}


SYSTEM, TASK = said("system", "Be brief."), said("user", "Fix it.")
START = [SYSTEM, TASK]
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}, "strict": True}}


def asked(second: int, *messages: Any, **more: Any) -> dict[str, Any]:
    params = {"model": "m-1", "messages": list(messages), "temperature": 0.0, "api_key": "sk-123456", "n": None, **more}
    return {"timestamp": f"2026-01-01T00:00:{second:02}", "type": "request", "request_params": params}


def replied(second: int, content: str | None, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "tool_calls": list(calls) or None}
    response = {
        "id": f"r{second}",
        "model": "m-1-2026",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": second},
    }
    outputs = [{"message": content or "", "tool_calls": list(calls)}]
    line = {"type": "response", "response": response, "outputs": outputs, "cost": 0.5, **more}
    return {"timestamp": f"2026-01-01T00:00:{second:02}", **line}


async def story(record: Record, path: Path, *lines: Any) -> tuple[list[list[str]], list[list[Entry]], dict[str, int]]:
    """The entries that the lines of a log become, one line each, without the span that says where they come from."""
    put(path, "\n".join(json.dumps(line) for line in lines))
    done = await import_file(record, path)
    assert done.format == FORMAT
    every = await conversations(record)
    shown = []
    for entries in every:
        nested(entries)
        accepted(entries)
        first = next(entry.seq for entry in entries if isinstance(entry.content, EndContent))
        shown.append([told(entry) for entry in entries if entry.seq > first])
    assert await record.verify() == []
    found = [entry for entries in every for entry in entries]
    assert set(lost(lines, found)) <= IMPLIED | SAID | {"sk-123456"}
    return shown, every, done.oddities


LOOK, SENT = said("assistant", "", call("ls")), said("assistant", "", call("submit", id="c2"))
SEEN = said("tool", [{"type": "text", "text": "a.py"}], tool_call_id="c1", cache_control={"type": "ephemeral"})
LOG = [
    asked(1, *START, tools=[TOOL, "odd"]),
    replied(2, None, call("ls")),
    asked(3, *START, LOOK, SEEN, tools=[TOOL, "odd"]),
    asked(9, *START, LOOK, said("tool", "a.py", tool_call_id="c1"), tools=[TOOL, "odd"]),
    replied(10, "I am done."),
    asked(11, *START, LOOK, SEEN, said("assistant", "I am done."), said("user", "Call!"), tools=[TOOL, "odd"]),
    replied(12, None, call("submit", id="c2")),
    asked(13, *START, LOOK, SEEN, SENT, said("tool", "Sure?", tool_call_id="c2"), tools=[TOOL, "odd"]),
    replied(14, None, call("submit", id="c3")),
]


async def test_a_conversation_is_taken_in_once_however_often_it_was_sent(record: Record, path: Path) -> None:
    (lines,), (entries,), oddities = await story(record, path, *LOG)
    assert lines == [
        "begin turn",
        "user 'Fix it.'",
        "request 1 [[5]]",
        "chat-completion '' <1",
        "tool-call ls({}) success <1",
        "tool-result a.py ok <1",
        "request 1 after 6 [[7, 8], [9]]",
        "fault no-response 6.0 <1",
        "request 2 after 10 []",
        "chat-completion 'I am done.' <1",
        "system 'Call!'",
        "request 1 after 12 [[13], [14]]",
        "chat-completion '' <1",
        "tool-call submit({}) success <1",
        "tool-result Sure? ok <1",
        "compaction 13-14",
        "request 1 [[5], [7, 8], [9], [16, 17], [18]]",
        "chat-completion '' <1",
        "tool-call submit({}) success <1",
        "end answered",
    ]
    assert oddities == {"left-out": 1, "repeated-request": 1, "unanswered-call": 1, "unanswered-request": 1}
    assert [one["role"] for one in history(entries)][-3:] == ["tool", "assistant", "tool"]
    inferred = {str(entry.content.kind): (entry.annotations or {}).get("inferred") for entry in entries}
    assert inferred == {
        "begin": None,
        "request-header": None,
        "user": None,
        "request": ["extends", "blocks", "body_digest", "causes"],
        "fault": ["entry"],
        "chat-completion": ["causes"],
        "tool-call": None,
        "tool-result": ["status"],
        "system": ["kind"],
        "compaction": ["entry"],
        "end": ["reason"],
    }
    assert [(entry.annotations or {}).get("message") for entry in entries][3:12] == [None, 0, 0, 1, None, 2, 2, None, 3]


async def test_what_lines_hold_beside_messages_has_its_place(record: Record, path: Path) -> None:
    _, (entries,), _ = await story(record, path, *LOG)
    (header,) = contents(entries, RequestHeaderContent)
    assert header.meta == {
        "model": "m-1",
        "instructions": "Be brief.",
        "settings": {"temperature": 0.0, "api_key": Secret("api_key")},
    }
    schema = {"name": "ls", "description": "", "args_schema": {"type": "object"}}
    assert header.tools == [schema | {"extra": {"function": {"strict": True}}}]
    assert header.extra == {"tools": ["odd"]}
    first, *_ = contents(entries, ChatCompletionContent)
    assert (first.model, first.finish_reason, first.usage, first.extra) == (
        *("m-1-2026", "stop"),
        {"prompt_tokens": 5, "completion_tokens": 2},
        None,
    )
    assert first.meta == {"cost_usd": 0.5, "raw": {"id": "r2"}}
    marks = [request.extra for request in contents(entries, RequestContent)]
    assert marks == [None, None, None, *[{"marks": {"3": {"cache_control": {"type": "ephemeral"}}}}] * 2]
    assert next(iter(contents(entries, ToolResultContent))).extra == {"cache_control": {"type": "ephemeral"}}
    shown = [entry.at.strftime("%S") for entry in entries if isinstance(entry.content, RequestContent | FaultContent)]
    assert shown == ["01", "03", "09", "09", "11", "13"]


async def test_a_log_of_another_time_holds_the_same(record: Record, path: Path) -> None:
    old = {"timestamp": "2026-01-01T00:00:01", "type": "request", "model": "m-1", "messages": START, "temperature": 0.0}
    output = {"message": "Done.", "tool_calls": []}
    new = {"timestamp": "2026-01-01T00:00:02", "type": "response", "model": "m-2", "outputs": [output, output]}
    (lines,), (entries,), oddities = await story(record, path, old, new | {"input_tokens": 5, "output_tokens": 0})
    assert lines[2:] == ["request 1 [[5]]", "chat-completion 'Done.' <1", "assistant 'Done.' <1", "end answered"]
    (made,), (header,) = contents(entries, ChatCompletionContent), contents(entries, RequestHeaderContent)
    assert (made.model, made.usage) == ("m-2", {"input_tokens": 5, "output_tokens": 0})
    assert made.extra == {"outputs": [output, output]}
    assert header.meta == {"model": "m-1", "instructions": "Be brief.", "settings": {"temperature": 0.0}}
    assert (entries[-2].annotations or {})["inferred"] == ["kind"]
    assert oddities == {}


async def test_a_reply_that_could_not_be_run_is_known_again_by_its_words(record: Record, path: Path) -> None:
    bad, words = said("assistant", "So:"), said("user", "No JSON!")
    (lines,), (entries,), oddities = await story(
        record,
        path,
        asked(1, *START),
        replied(2, "So:", call("edit", '{"a": ')),
        asked(3, *START, bad, words),
        replied(4, "So:", call("edit", '{"a": 1}')),
        asked(5, *START, said("assistant", "So:", call("edit", '{"a": 1}')), said("tool", "ok", tool_call_id="c1")),
    )
    assert lines[2:] == [
        "request 1 [[5]]",
        "chat-completion 'So:' <1",
        "tool-call edit({}) error <1",
        "system 'No JSON!'",
        "request 1 after 6 [[7, 8], [9]]",
        "chat-completion 'So:' <1",
        "tool-call edit({'a': 1}) success <1",
        "tool-result ok ok <1",
        "compaction 7-9",
        "request 1 [[5], [11, 12], [13]]",
        "fault no-response None <1",
        "end failed",
    ]
    wrong, _ = contents(entries, ToolCallContent)
    assert wrong.meta is not None
    assert wrong.meta["raw_args"] == '{"a": '
    assert contents(entries, RequestContent)[1].extra == {"shown": {"2": bad}}
    assert oddities == {
        "bad-arguments": 1,
        "left-out": 1,
        "repeated-call-id": 1,
        "unanswered-call": 1,
        "unanswered-request": 1,
    }


async def test_a_result_that_was_shortened_is_the_same_result(record: Record, path: Path) -> None:
    short = said("tool", "(1 line)", tool_call_id="c1")
    (lines,), (entries,), oddities = await story(
        record,
        path,
        asked(1, *START),
        replied(2, None, call("ls")),
        asked(3, *START, LOOK, SEEN),
        replied(4, None, call("submit", id="c2")),
        asked(5, *START, LOOK, short, SENT, said("tool", "Sure?", tool_call_id="c2")),
        replied(6, "Done."),
    )
    assert lines[-5:] == [
        "tool-result Sure? ok <1",
        "request 1 [[5], [7, 8], [9], [11, 12], [13]]",
        "chat-completion 'Done.' <1",
        "assistant 'Done.' <1",
        "end answered",
    ]
    assert contents(entries, RequestContent)[2].extra == {"shown": {"3": short}}
    assert oddities == {}


async def test_conversations_are_told_apart_by_how_they_begin(record: Record, path: Path) -> None:
    other = [said("developer", "You are a Test Agent. Go."), TASK]
    every, entries, oddities = await story(
        record,
        path,
        asked(1, *START),
        asked(2, *other, model="m-2"),
        replied(3, None, call("ls")),
        replied(4, None, call("ls")),
        asked(5, *START, LOOK, SEEN),
        replied(6, "One."),
        asked(7, *other, LOOK, SEEN, model="m-3"),
        replied(8, "Two."),
        asked(9, *START),
        replied(10, "Again."),
    )
    assert [lines[-2] for lines in every] == ["assistant 'One.' <1", "assistant 'Two.' <1", "assistant 'Again.' <1"]
    assert [(row.session, row.name) for row in await record.store.runs()] == [
        ("log/0", "swe-agent"),
        ("log/1", "Test Agent"),
        ("log/2", "swe-agent"),
    ]
    headers = contents(entries[1], RequestHeaderContent)
    assert [(header.meta or {})["model"] for header in headers] == ["m-2", "m-3"]
    assert [header.extra for header in headers] == [{"role": "developer"}] * 2
    assert oddities == {}


async def test_a_reply_that_was_thrown_away_is_hidden_and_one_without_a_line_is_kept(
    record: Record, path: Path
) -> None:
    (lines,), (entries,), oddities = await story(
        record,
        path,
        asked(1, *START),
        replied(2, "Bad."),
        asked(3, *START),
        asked(4, *START, LOOK, SEEN),
        replied(5, "Good."),
    )
    assert lines[2:] == [
        "request 1 [[5]]",
        "chat-completion 'Bad.' <1",
        "compaction 7-7",
        "request 2 [[5]]",
        "chat-completion '' <1",
        "tool-call ls({}) success <1",
        "tool-result a.py ok <1",
        "request 1 after 9 [[10, 11], [12]]",
        "chat-completion 'Good.' <1",
        "assistant 'Good.' <1",
        "end answered",
    ]
    assert oddities == {"left-out": 1, "repeated-request": 1, "unanswered-request": 1}
    assert [one["content"] for one in history(entries)] == ["Fix it.", None, "a.py", "Good."]


async def test_odd_lines_are_kept_and_counted(record: Record, path: Path) -> None:
    failed = {"timestamp": "yesterday", "type": "response", "error": {"message": "overloaded"}}
    every, (alone, entries), oddities = await story(
        record,
        path,
        replied(1, "Hm?"),
        {"type": "request", "messages": "none"},
        asked(2, *START, 5, more="more") | {"host": "h-1"},
        7,
        failed,
        asked(4, *START, 5, said("narrator", "then"), model=8),
        replied(5, None, {"id": "c1"}) | {"response": {"choices": [1]}, "outputs": [{"message": "So.", "more": 1}]},
    )
    assert [note.key for note in contents(alone, KeyValueContent)] == ["orphan-response", "unreadable-message"]
    assert every[1] == [
        "begin turn",
        "user 'Fix it.'",
        "key-value unreadable-message 5",
        "request 1 [[5], [6]]",
        "key-value unreadable-message 7",
        "fault no-message None <2",
        "header 8",
        "key-value unreadable-message {'role': 'narrator', 'content': 'then'}",
        "request 1 after 7 [[11]]",
        "chat-completion 'So.' <1",
        "assistant 'So.' <1",
        "end answered",
    ]
    (fault,), (first, second), (made,) = (
        contents(entries, FaultContent),
        contents(entries, RequestContent),
        contents(entries, ChatCompletionContent),
    )
    assert fault.extra == {"timestamp": "yesterday", "error": {"message": "overloaded"}}
    assert (first.extra, second.extra) == ({"host": "h-1"}, None)
    assert (made.meta, made.extra) == (
        {"cost_usd": 0.5, "raw": {"choices": [1]}},
        {"outputs": [{"message": "So.", "more": 1}]},
    )
    assert oddities == {"bad-time": 1, "orphan-response": 1, "unknown-member": 1, "unreadable-message": 4}


async def test_a_log_is_known_by_its_lines(record: Record, path: Path) -> None:
    for line in (asked(1, *START), replied(1, "Hm?"), {"timestamp": "t", "type": "request", "messages": []}):
        put(path, json.dumps(line))
        assert find_format(Source(path)).name == FORMAT
    put(path, json.dumps({"timestamp": "t", "type": "begin"}) + "\n" + json.dumps(asked(1, *START)))
    with pytest.raises(BadImport, match="expected a log of requests and responses, found neither in its first line"):
        await import_file(record, path)
    assert await record.store.runs() == []
    put(path, "")
    assert (await import_file(record, path, FORMAT)).oddities == {"no-conversations": 1}


async def test_a_longer_log_is_another_conversation_that_stands_beside(record: Record, path: Path) -> None:
    """Runs that came in stay as they are, so what grew since comes in again, under a name with its digest."""
    put(path, "\n".join(json.dumps(line) for line in LOG[:2]))
    await import_file(record, path)
    put(path, "\n".join(json.dumps(line) for line in LOG))
    assert (await import_file(record, path)).oddities["other-conversation"] == 1
    assert len(await record.store.runs()) == 2


@given(text=spoilt(LOG).map(lambda text: "\n".join(split(text))))
async def test_no_change_of_a_log_breaks_an_import(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    await endured(tmp_path_factory.mktemp("any") / "any.jsonl", text, FORMAT)


def split(text: str) -> list[str]:
    """The lines of a log that was spoilt as one list."""
    found, at, reader = [], 1, json.JSONDecoder(parse_int=str)
    while at < len(text) - 1:
        _, end = reader.raw_decode(text, at)
        found.append(text[at:end])
        at = end + 2
    return found
