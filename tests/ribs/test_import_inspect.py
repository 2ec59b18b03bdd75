"""Logs of Inspect AI come in whole: messages as turns, events in place, samples as runs; and archives of them safely."""

import contextlib
import gzip
import io
import json
import zipfile
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.validators.chat_completions import history_violations

import gesta
from gesta.address import open_record
from gesta.entry import Entry
from gesta.formatters.tool_calls import ToolCalls
from gesta.importers.file import import_file
from gesta.importers.foreign import ODDITIES, Imported
from gesta.importers.known import find_format
from gesta.importers.source import BadImport, ImportBounds, Source
from gesta.integrity.verify import audit
from gesta.kinds import (
    ApprovalContent,
    ApprovalRequestContent,
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
from gesta.record.record import Record
from gesta.views.lineage import unexplained

START, HEADER = "_journal/start.json", "header.json"
LARGEST = ImportBounds().value
EMPTY = "messages: empty array, needs an item at least"


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


# ----------------------------------------------------------------------------------------------- a log of our own
def seconds(number: float) -> str:
    return f"2026-02-01T10:00:{number:09.6f}+01:00"


def event(kind: str, at: float, **members: Any) -> dict[str, Any]:
    return {"event": kind, "timestamp": seconds(at), **members}


def answer(text: Any, *calls: Any, id: str, **more: Any) -> dict[str, Any]:
    made = {"tool_calls": list(calls)} if calls else {}
    return {"role": "assistant", "id": id, "content": text, "source": "generate", **made, **more}


def asked(message: dict[str, Any], at: float, *before: Any, **more: Any) -> dict[str, Any]:
    """The event of a model that makes a message, in two seconds."""
    stop = "tool_calls" if "tool_calls" in message else "stop"
    output = {
        "model": "m-1-2026",
        "choices": [{"message": message, "stop_reason": stop}],
        "usage": {"input_tokens": 7, "output_tokens": 2},
        "time": 1.5,
    }
    members: dict[str, Any] = {"model": "lab/m-1", "input": list(before), "tools": TOOLS, "tool_choice": "auto"}
    members |= {"config": {"temperature": 0.5}, "output": output, "completed": seconds(at + 2)}
    return event("model", at, **members | more)


TOOLS = [{"name": "weather", "description": "attachment://h1", "parameters": {"type": "object"}}]
CALL = {"id": "c1", "function": "weather", "arguments": {"city": "Rome"}, "type": "function", "view": {"title": "w"}}
SYSTEM = {"role": "system", "id": "m0", "content": "Be brief."}
QUESTION = {"role": "user", "id": "m1", "content": "attachment://h2", "source": "input"}
FIRST = answer([{"type": "reasoning", "reasoning": "Look."}, {"type": "text", "text": "Looking."}], CALL, id="m2")
RESULT = {"role": "tool", "id": "m3", "content": "sunny", "tool_call_id": "c1", "function": "weather"}
LAST = answer("It is sunny.", id="m4", model="m-1-2026")
GOOD = {"role": "user", "content": "Good?"}
MESSAGES = [SYSTEM, QUESTION, FIRST, RESULT, LAST]
EVENTS: list[dict[str, Any]] = [
    event("span_begin", 0, id="s1", type="solver", name="generate", span_id="s1"),
    event("sample_init", 0.5, span_id="s1", sample={"input": "attachment://h2"}, state={"messages": [QUESTION]}),
    asked(FIRST, 1, SYSTEM, QUESTION, span_id="s1", call={"request": {"n": 1}, "response": {"id": "r-1"}}),
    event("approval", 3.5, call=CALL, approver="eve", decision="approve", explanation="Harmless.", message="Looking."),
    event("tool", 4, id="c1", function="weather", arguments={"city": "Rome"}, result="sunny", completed=seconds(6)),
    event("span_begin", 4.5, id="s2", parent_id="s1", type="tool", name="weather", span_id="s2"),
    event("sandbox", 5, span_id="s2", action="exec", cmd="curl"),
    event("span_end", 5.5, id="s2", span_id="s2"),
    asked(LAST, 7, SYSTEM, QUESTION, FIRST, RESULT, span_id="s1"),
    event("span_end", 9.5, id="s1", span_id="s1"),
    event("score", 10, score={"value": "C"}, target="sunny", intermediate=False),
]
SAMPLE: dict[str, Any] = {
    "id": "rome",
    "epoch": 2,
    "input": "How is Rome?",
    "target": "sunny",
    "messages": MESSAGES,
    "events": EVENTS,
    "scores": {"match": {"value": "C"}},
    "turn_count": 1,
    "attachments": {"h1": "Tell the weather.", "h2": "How is Rome?"},
}
SPEC = {
    "task": "lab/forecast",
    "model": "lab/m-1",
    "eval_id": "e1",
    "created": "2026-02-01T09:00:00+00:00",
    "dataset": {"name": "cities", "sample_ids": ["rome"]},
}


def log(*samples: Any, **members: Any) -> dict[str, Any]:
    whole = {"version": 2, "status": "success", "eval": SPEC, "plan": {"name": "plan"}, **members}
    return whole | {"samples": list(samples)} if samples else whole


def put(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def archive(path: Path, members: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as made:
        for name, value in members.items():
            made.writestr(name, value if isinstance(value, str | bytes) else json.dumps(value))
    return path


def zstd_archive(path: Path, members: dict[str, Any]) -> Path:
    """Write an archive as Inspect does where it can: zipfile knows zstd from Python 3.14 on."""
    plain = {name: json.dumps(value).encode() for name, value in members.items()}
    pack = pytest.importorskip("zstandard").ZstdCompressor().compress
    archive(path, {name: pack(data) for name, data in plain.items()}, zipfile.ZIP_STORED)
    made, at = path.read_bytes(), 0
    for data in plain.values():
        at = made.index(b"PK\x01\x02", at) + 4
        facts = (93).to_bytes(2, "little"), made[at + 8 : at + 12], zlib.crc32(data).to_bytes(4, "little")
        size = len(data).to_bytes(4, "little")
        made = made[: at + 6] + b"".join(facts) + made[at + 16 : at + 20] + size + made[at + 24 :]
    path.write_bytes(made)
    return path


async def conversations(record: Record) -> list[list[Entry]]:
    return [await record.read(row.run) for row in await record.store.runs()]


async def only(record: Record, path: Path) -> tuple[list[Entry], Imported]:
    done = await import_file(record, path)
    (entries,) = await conversations(record)
    sound(entries)
    assert valid(entries) == []
    assert await audit(record.store) == []
    return entries, done


def valid(entries: list[Entry]) -> list[str]:
    formatter, model = ToolCalls(), gesta.scripted("x")
    history = [json.loads(model.encode(one)) for one in formatter.format(entries, formatter.start())]
    return [found for found in history_violations(history) if found != EMPTY]


def sound(entries: list[Entry]) -> None:
    """Spans are ended once, after those in them; turns are at the root; causes are of the kinds that they must be."""
    content = {entry.seq: entry.content for entry in entries}
    open_spans: dict[int, int | None] = {}
    for entry in entries:
        causes = [content[cause] for cause in entry.causes if isinstance(cause, int)]
        match entry.content:
            case BeginContent(role=role, parent=parent):
                assert parent is None or parent in open_spans
                assert (parent is None) == (role in ("import", "turn", "closing", "review"))
                open_spans[entry.seq] = parent
                continue
            case EndContent(reason=reason):
                begin = content[entry.span]
                assert isinstance(begin, BeginContent)
                assert (reason is not None) == (begin.role == "turn")
                del open_spans[entry.span]
                assert entry.span not in open_spans.values()
                continue
            case ChatCompletionContent():
                made = (UserContent, ToolResultContent, ChatCompletionContent, AssistantContent)
                assert all(isinstance(one, made) for one in causes)
                assert not causes or "causes" in (entry.annotations or {})["inferred"]
            case ToolCallContent() | ThoughtContent():
                assert [type(one) for one in causes] == [ChatCompletionContent]
            case ToolResultContent(call=call):
                assert list(entry.causes) == ([] if call is None else [call])
            case ApprovalRequestContent(of=call):
                assert isinstance(content[call], ToolCallContent)
        assert entry.span in open_spans
    assert not open_spans


def noted(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what is on record of the conversation as a whole."""
    first = entries[0].content
    assert isinstance(first, BeginContent)
    return dict(first.state or {})


def told(entry: Entry) -> str:
    match entry.content:
        case BeginContent(role=role, name=name, parent=parent):
            text = f" {role} {name}" + (f" in {parent}" if parent else "")
        case EndContent(reason=reason, status=status):
            text = f" {reason or status}"
        case KeyValueContent(key=key, value=value):
            text = f" {key} {value}"
        case ToolCallContent(tool_name=name, tool_args=args, status=status):
            text = f" {name}({args}) {status}"
        case ToolResultContent(tool_result=result, outcome=outcome):
            text = f" {result} {outcome}"
        case ChatCompletionContent(output=output, model=model, usage=usage, latency_ms=latency):
            text = f" {output!r} {model} {(usage or {}).get('output_tokens')} {latency}"
        case RequestHeaderContent(meta=meta, tools=tools):
            text = f" {meta} {tools}"
        case ApprovalContent(verdict=verdict, by=by, reason=why):
            text = f" {verdict} {by} {why}"
        case UserContent() | AssistantContent() | SystemContent() | ThoughtContent() as words:
            text = f" {words.value!r}"
        case _:
            text = ""
    back = "".join(f" <{cause}" for cause in entry.causes)
    inferred = ",".join((entry.annotations or {}).get("inferred", ()))
    return f"{entry.seq} in {entry.span}: {entry.kind}{text}{back}" + (f" ~{inferred}" if inferred else "")


WHOLE = """\
1 in 1: begin import import ~at
2 in 1: request-header {'model': 'lab/m-1', 'instructions': 'Be brief.', 'settings': {'temperature': 0.5}} \
[{'name': 'weather', 'description': 'Tell the weather.', 'args_schema': {'type': 'object'}}] ~at
3 in 1: end success ~at
4 in 4: begin turn forecast ~at
5 in 4: user 'How is Rome?' ~at
6 in 6: begin solver generate in 4
7 in 6: key-value sample_init-event {'sample': {'input': 'How is Rome?'}, 'state': {'messages': [{'message': 1}]}}
8 in 4: chat-completion 'Looking.' m-1-2026 2 1500.0 <5 ~causes
9 in 4: thought 'Look.' <8
10 in 4: tool-call weather({'city': 'Rome'}) success <8
11 in 6: approval-request <10 ~kind
12 in 6: approval approved eve Harmless. <11
13 in 13: begin tool weather in 6
14 in 13: key-value sandbox-event {'action': 'exec', 'cmd': 'curl'}
15 in 13: end success
16 in 4: tool-result sunny ok <10
17 in 4: chat-completion 'It is sunny.' m-1-2026 2 1500.0 <16 ~causes
18 in 4: assistant 'It is sunny.' <17
19 in 6: end success
20 in 4: end answered
21 in 21: begin review review ~at
22 in 21: key-value score-event {'score': {'value': 'C'}, 'target': 'sunny', 'intermediate': False}
23 in 21: key-value scores {'match': {'value': 'C'}} <18 ~at
24 in 21: end success ~kind,at"""


@pytest.mark.parametrize("packed", ["log.json", "log.json.gz", "log.eval", "zstd/log.eval"])
async def test_a_sample_becomes_a_run_with_its_events_in_place(record: Record, tmp_path: Path, packed: str) -> None:
    path = tmp_path / packed
    if packed.endswith(".eval"):
        path.parent.mkdir(exist_ok=True)
        made = zstd_archive if packed.startswith("zstd") else archive
        made(path, {START: {"version": 2}, "samples/rome_epoch_2.json": SAMPLE, HEADER: log()})
    else:
        put(path, log(SAMPLE))
        path.write_bytes(gzip.compress(path.read_bytes()) if packed.endswith(".gz") else path.read_bytes())
    entries, done = await only(record, path)
    assert [told(entry).replace("sample-init", "sample_init") for entry in entries] == (WHOLE % SPEC).split("\n")
    assert done == Imported(runs=1, entries=24, skipped=0, format="inspect")
    ((run,), again) = (await record.store.runs(), await import_file(record, path))
    assert (run.session, run.name) == ("log/rome.2", "forecast")
    assert again == Imported(runs=0, entries=0, skipped=1, format="inspect")
    completion, result, end = entries[7], entries[15], entries[19]
    assert isinstance(completion.content, ChatCompletionContent)
    assert completion.content.finish_reason == "tool_calls"
    assert completion.content.meta == {"raw": {"id": "r-1"}}
    kept = {"timestamp": seconds(1), "span_id": "s1", "model": "lab/m-1", "tool_choice": "auto"}
    assert completion.content.extra == {"id": "m2", "event": kept | {"call": {"request": {"n": 1}}}}
    assert isinstance(result.content, ToolResultContent)
    assert result.content.extra == {"id": "m3", "event": {"timestamp": seconds(4)}}
    times = [datetime(2026, 2, 1, 9, 0, second, tzinfo=UTC) for second in (3, 6, 9)]
    assert [completion.at, result.at, entries[16].at] == times
    assert end.at.microsecond == 500_000
    assert isinstance(entries[4].content, UserContent)
    assert entries[4].content.extra == {"id": "m1", "source": "input", "attachments": {"$.content": "attachment://h2"}}
    assert unexplained(entries).answers == ()
    assert len(unexplained(entries).entries) == 0


async def test_one_step_after_the_other_in_older_logs(record: Record, tmp_path: Path) -> None:
    """They have no ids, no spans and no time of completion; texts were `tc://` and stood in the transcript."""
    question, said = {"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "tc://h"}
    model = {"model": "m", "input": [question], "output": {"choices": [{"message": said}]}}
    transcript = {
        "events": [
            event("step", 0, action="begin", type="solver", name="generate"),
            event("model", 2, **model),
            event("step", 3, action="end", type="solver", name="generate"),
            event("step", 4, action="begin", type="scorer", name="judge"),
            event("model", 5, model="judge", input=[GOOD], output={"choices": []}),
            event("step", 6, action="end", type="scorer", name="judge"),
            event("step", 7, action="end", type="scorer", name="judge"),
        ],
        "content": {"h": "Hello."},
        "more": 1,
    }
    sample = {"id": 1, "epoch": 1, "messages": [question, said], "transcript": transcript}
    entries, done = await only(record, put(tmp_path / "log.json", log(sample)))
    assert [told(entry) for entry in entries[2:]] == [
        "3 in 1: end success ~at",
        "4 in 4: begin turn forecast ~at",
        "5 in 4: user 'Hi?' ~at",
        "6 in 6: begin solver generate in 4",
        "7 in 4: chat-completion 'Hello.' lab/m-1 None None <5 ~causes",
        "8 in 4: assistant 'Hello.' <7",
        "9 in 6: end success",
        "10 in 4: end answered ~reason",
        "11 in 11: begin review review ~at",
        "12 in 12: begin scorer judge in 11",
        f"13 in 12: key-value model-event {{'model': 'judge', 'input': {[GOOD]}, 'output': {{'choices': []}}}}",
        "14 in 12: end success",
        "15 in 11: key-value step-event {'action': 'end', 'type': 'scorer', 'name': 'judge'}",
        "16 in 11: end success ~kind,at",
    ]
    notes = noted(entries)
    assert (notes["transcript"], notes["attachments"], done.oddities) == ({"more": 1}, {"h": "Hello."}, {})


async def test_what_another_model_was_asked_is_written_once(record: Record, tmp_path: Path) -> None:
    """A tool asks a model of its own, with all that was said to it before: that is not a completion, and does not grow."""
    words = [{"role": "user", "id": f"i{number}", "content": f"inner {number}"} for number in range(4)]
    inner = [event("model", 4 + number, input=words[: number + 1], model="m-2") for number in range(4)]
    events = [*EVENTS[:5], *inner, *EVENTS[5:]]
    entries, _ = await only(record, put(tmp_path / "log.json", log({**SAMPLE, "events": events})))
    notes = [one for one in entries if isinstance(one.content, KeyValueContent) and one.content.key == "model-event"]
    seqs = [one.seq for one in notes]
    for number, note in enumerate(notes):
        assert isinstance(note.content, KeyValueContent)
        assert note.content.value["input"] == [*({"entry": seq} for seq in seqs[:number]), words[number]]
    assert sum(isinstance(one.content, ChatCompletionContent) for one in entries) == 2


async def test_spans_that_cross_or_outlive_their_turn_end_where_they_must(record: Record, tmp_path: Path) -> None:
    again, more = {"role": "user", "id": "m5", "content": "And Oslo?"}, answer("Rainy.", id="m6")
    events = [
        event("span_begin", 0, id="a", type="agent", name="one"),
        event("span_begin", 0.5, id="b", type="agent", name="two"),
        event("info", 1, span_id="a", data=1),
        event("span_begin", 1.5, id="c", parent_id="a", type="branch"),
        event("span_end", 2, id="a"),
        event("info", 2.5, span_id="c", data=2),
        asked(LAST, 3, id="e1"),
        asked(more, 6, id="e2"),
        event("span_end", 9, id="b"),
    ]
    sample = {"id": 1, "epoch": 1, "messages": [QUESTION, LAST, again, more], "events": events}
    entries, done = await only(record, put(tmp_path / "log.json", log(sample)))
    lines = [told(entry) for entry in entries]
    first = next(place for place, line in enumerate(lines) if "begin turn" in line)
    assert [line.partition(": ")[2] for line in lines[first + 2 :]] == [
        f"begin agent one in {first + 1}",
        f"begin agent two in {first + 3}",
        "key-value info-event {'data': 1}",
        f"begin span span in {first + 3}",
        *("end success ~kind", "end success ~kind", "end success"),
        "key-value info-event {'span_id': 'c', 'data': 2}",
        f"chat-completion 'It is sunny.' m-1-2026 2 1500.0 <{first + 2} ~causes",
        f"assistant 'It is sunny.' <{first + 11}",
        "end answered",
        "begin turn forecast ~at",
        "user 'And Oslo?' ~at",
        f"chat-completion 'Rainy.' m-1-2026 2 1500.0 <{first + 12} <{first + 15} ~causes",
        f"assistant 'Rainy.' <{first + 16}",
        "key-value span-end-event {'id': 'b'}",
        "end answered ~reason",
    ] or lines
    assert done.oddities == {}


@pytest.mark.parametrize(
    ("members", "status", "ended"),
    [
        ({"scores": {"match": {"value": 0}}}, "success", ("answered", None, True)),
        ({}, "success", ("answered", None, False)),
        ({"limit": {"type": "message", "limit": 9}}, "success", ("limit", "message", True)),
        ({"limit": "token"}, "success", ("limit", "token", True)),
        ({"limit": 5}, "success", ("limit", "unknown", True)),
        ({"error": {"message": "Boom()", "traceback": "t"}}, "error", ("failed", "error", True)),
        ({"error": "Boom()"}, "error", ("failed", "error", True)),
        ({"error": [], "limit": {}}, "error", ("failed", "error", True)),
        ({}, "cancelled", ("cancelled", "unfinished", False)),
        ({}, "started", ("cancelled", "unfinished", False)),
    ],
)
async def test_the_last_turn_ends_as_the_sample_says(
    record: Record, tmp_path: Path, members: dict[str, Any], status: str, ended: tuple[str, str | None, bool]
) -> None:
    sample = {"id": 1, "epoch": 1, "messages": MESSAGES[:4], **members}
    entries, _ = await only(record, put(tmp_path / "log.json", log(sample, status=status)))
    (end,) = [one for one in entries if isinstance(one.content, EndContent) and one.content.reason]
    assert isinstance(end.content, EndContent)
    sure = "reason" not in (end.annotations or {}).get("inferred", ())
    assert (end.content.reason, end.content.error and end.content.error.type) == ended[:2]
    assert sure == (ended[2] and ended[0] != "answered"), "nobody says that a result was the answer"


async def test_contents_in_parts_keep_what_is_no_text(record: Record, tmp_path: Path) -> None:
    image = {"type": "image", "image": "attachment://h", "detail": "auto"}
    parts = [{"type": "text", "text": "See:"}, image, {"type": "text", "text": "What?"}]
    hidden = {"type": "reasoning", "reasoning": "c2VjcmV0", "redacted": True, "summary": "It looked.", "signature": "s"}
    messages = [
        {"role": "user", "content": parts},
        answer([hidden, {"type": "text", "text": "A cat."}], id="a"),
        {"role": "user", "content": [{"type": "text", "text": "Sure?"}]},
        answer([{"type": "audio", "audio": "x", "format": "wav"}, {"type": "data", "data": {"k": "v"}}], id="b"),
    ]
    sample = {"id": 1, "epoch": 1, "messages": messages, "attachments": {"h": "data:image/png;base64,AAAA"}}
    entries, done = await only(record, put(tmp_path / "log.json", log(sample)))
    said = [one.content for one in entries if isinstance(one.content, UserContent | ChatCompletionContent)]
    thoughts = [one.content.value for one in entries if isinstance(one.content, ThoughtContent)]
    assert [one.value if isinstance(one, UserContent) else one.output for one in said] == [
        "See:\n[image]\nWhat?",
        "A cat.",
        "Sure?",
        "[audio]\n[data]",
    ]
    assert said[0].extra == {
        "content": [parts[0], image | {"image": "data:image/png;base64,AAAA"}, parts[2]],
        "attachments": {"$.content[1].image": "attachment://h"},
    }
    assert [one.extra and one.extra.get("content") for one in said[1:]] == [
        messages[1]["content"],
        None,
        messages[3]["content"],
    ]
    assert thoughts == ["It looked."]
    assert done.oddities == {}


async def test_results_that_failed_say_how(record: Record, tmp_path: Path) -> None:
    def result(id: str, content: Any, **error: str) -> dict[str, Any]:
        return {"role": "tool", "content": content, "tool_call_id": id, "function": "f"} | (
            {"error": error} if error else {}
        )

    names = ("fine", "slow", "no", "stopped", "parts")
    calls = [{"id": id, "function": "f", "arguments": {}} for id in names]
    calls[0]["parse_error"] = "no JSON"
    messages = [
        QUESTION,
        answer("", *calls, id="a"),
        result("fine", "Error: only words"),
        result("slow", "", type="timeout", message="took too long"),
        result("no", "not allowed", type="approval", message="denied"),
        result("stopped", "x", type="cancelled", message="stopped"),
        result("parts", [{"type": "text", "text": "one"}, {"type": "image", "image": "i"}]),
    ]
    sample = {"id": 1, "epoch": 1, "messages": messages}
    entries, _ = await only(record, put(tmp_path / "log.json", log(sample)))
    results = [one for one in entries if isinstance(one.content, ToolResultContent)]
    assert [told(one).rpartition(" <")[0].partition(": ")[2] for one in results] == [
        "tool-result Error: only words ok",
        "tool-result took too long error",
        "tool-result not allowed denied",
        "tool-result x interrupted",
        "tool-result one\n[image] ok",
    ]
    assert [(one.annotations or {}).get("inferred") for one in results[:2]] == [None, ["tool_result"]]
    made = [one.content for one in entries if isinstance(one.content, ToolCallContent)]
    assert [(one.status, one.meta) for one in made[:2]] == [("error", {"error": "no JSON"}), ("success", None)]


async def test_decisions_about_calls_are_approvals(record: Record, tmp_path: Path) -> None:
    changed = CALL | {"arguments": {"city": "Oslo"}}
    decisions: list[dict[str, Any]] = [
        {"decision": "escalate"},
        {"decision": "modify", "modified": changed},
        {"decision": "reject", "approver": None},
        {"decision": "approve", "stage": "result"},
        {"decision": ["odd"]},
        {"decision": "approve", "call": {"id": "unknown"}},
    ]
    asked_for = [event("approval", 3.5, **{"call": CALL, "approver": "ann", **each}) for each in decisions]
    sample = {**SAMPLE, "events": [*EVENTS[:3], *asked_for, *EVENTS[4:]]}
    entries, _ = await only(record, put(tmp_path / "log.json", log(sample)))
    given = [one.content for one in entries if isinstance(one.content, ApprovalContent)]
    assert [(one.verdict, one.by, one.args) for one in given] == [
        ("approved", "ann", {"city": "Oslo"}),
        ("denied", "unknown", None),
    ]
    notes = [one.content for one in entries if isinstance(one.content, KeyValueContent)]
    assert sum(one.key == "approval-event" for one in notes) == 4


async def test_events_inside_of_events_lie_in_a_span(record: Record, tmp_path: Path) -> None:
    inner: dict[str, Any] = event("info", 4.2, data="innermost")
    for _ in range(20):
        inner = event("subtask", 4.1, name="sub", input={}, events=[inner])
    tool = {**EVENTS[4], "events": [inner, 5]}
    sample = {**SAMPLE, "events": [*EVENTS[:4], tool, *EVENTS[8:]]}
    entries, done = await only(record, put(tmp_path / "log.json", log(sample)))
    roles = Counter(one.content.role for one in entries if isinstance(one.content, BeginContent))
    assert (roles["tool"], roles["task"]) == (1, 7), "what lies deeper stays a value"
    assert "innermost" in str([one.content for one in entries])
    assert done.oddities == {"wrong-type": 1}


async def test_tools_and_settings_that_change_are_a_new_header(record: Record, tmp_path: Path) -> None:
    events = [*EVENTS[:8], asked(LAST, 7, config={"temperature": 1}, tools=[]), *EVENTS[9:]]
    entries, _ = await only(record, put(tmp_path / "log.json", log({**SAMPLE, "events": events})))
    headers = [one.content for one in entries if isinstance(one.content, RequestHeaderContent)]
    assert [(one.tools is None, (one.meta or {})["settings"]) for one in headers] == [
        (False, {"temperature": 0.5}),
        (True, {"temperature": 1}),
    ]
    assert {(one.meta or {})["instructions"] for one in headers} == {"Be brief."}


@pytest.mark.parametrize(
    ("sample", "said", "oddities"),
    [
        ({"id": 1, "input": "Hi?"}, ["user"], {"no-messages": 1}),
        ({"id": 1, "input": [QUESTION], "messages": []}, ["user"], {"no-messages": 1}),
        ({"id": 1}, [], {}),
        ({}, [], {}),
        ({"events": EVENTS[:3]}, ["header", "user", "completion"], {"no-messages": 1, "unanswered-call": 1}),
        (
            {"message_pool": MESSAGES, "events": [asked(LAST, 1, input_refs=[[0, 2], [2, 4], [7, "x"]])]},
            ["header", "user", "completion", "result", "completion"],
            {"no-messages": 1},
        ),
    ],
)
async def test_a_sample_that_was_cut_comes_in_as_far_as_it_goes(
    record: Record, tmp_path: Path, sample: dict[str, Any], said: list[str], oddities: dict[str, int]
) -> None:
    entries, done = await only(record, put(tmp_path / "log.json", log(sample)))
    kinds = [one.kind.value for one in entries if "message" in (one.annotations or {})]
    assert [kind.replace("chat-", "").replace("request-", "").replace("tool-", "") for kind in kinds] == said
    assert (done.runs, done.oddities) == (1, oddities)


# ------------------------------------------------------------------------------------------- logs without samples
@pytest.mark.parametrize(
    ("members", "status", "why"),
    [
        ({}, "success", None),
        ({"status": "cancelled"}, "error", "cancelled"),
        ({"status": "started"}, "error", "started"),
        ({"status": "error"}, "error", "error"),
        ({"status": "error", "error": {"message": "Boom()"}}, "error", "error"),
        ({"samples": []}, "success", None),
        ({"samples": {"odd": 1}}, "success", None),
        ({"eval": SPEC | {"model_args": {"base_url": "u"}}}, "success", None),
    ],
)
async def test_a_log_without_samples_is_a_run_of_notes(
    record: Record, tmp_path: Path, members: dict[str, Any], status: str, why: str | None
) -> None:
    whole = log(**{"results": {"total_samples": 0}, "stats": {"started_at": seconds(1)}, **members})
    entries, done = await only(record, put(tmp_path / "log.json", whole))
    assert (await import_file(record, tmp_path / "log.json")).skipped == 1
    end = entries[-1].content
    assert isinstance(end, EndContent)
    assert (end.status, end.error and end.error.type) == (status, why)
    assert noted(entries) == {key: value for key, value in whole.items() if value != []}
    assert entries[1].at == datetime(2026, 2, 1, 9, tzinfo=UTC)
    assert ((await record.store.runs())[0].session, done.runs) == ("log/e1", 1)


async def test_what_a_log_lists_of_all_samples_stands_in_its_first_run(record: Record, tmp_path: Path) -> None:
    results = {"total_samples": 2, "sample_reductions": [{"sample_id": 1}]}
    whole = log({"id": 1, "epoch": 1}, {"id": 1, "epoch": 1, "x": 2}, results=results, reductions=["r"])
    await import_file(record, put(tmp_path / "log.json", whole))
    first, second = [noted(entries)["log"] for entries in await conversations(record)]
    assert (first["results"], first["reductions"]) == (results, ["r"])
    assert first["eval"]["dataset"] == SPEC["dataset"]
    assert second["eval"]["dataset"] == {"name": "cities"}
    assert (second["results"], "reductions" in second) == ({"total_samples": 2}, False)
    assert [row.session for row in await record.store.runs()] == ["log/1.1", "log/1.1~1"]


async def test_what_gives_access_to_a_model_is_hidden(record: Record, tmp_path: Path) -> None:
    spec = SPEC | {"model_args": {"api_key": "sk-1234", "top": 1}}
    for samples in ((), ({"id": 1, "epoch": 1},)):
        await import_file(record, put(tmp_path / f"{len(samples)}.json", log(*samples, eval=spec)))
    every = str([entry.content for entries in await conversations(record) for entry in entries])
    assert ("sk-1234" in every, every.count("'top': 1")) == (False, 2)


# -------------------------------------------------------------------------------------------------------- archives
async def test_an_archive_that_was_not_finished_comes_in_as_far_as_it_goes(record: Record, tmp_path: Path) -> None:
    summed = {"id": "oslo", "epoch": 1, "input": "And Oslo?", "scores": {"match": {"value": "I"}}, "completed": True}
    members = {
        START: {"version": 2, "eval": SPEC, "plan": {}},
        "samples/rome_epoch_2.json": SAMPLE,
        "_journal/summaries/1.json": [{"id": "rome", "epoch": 2, "target": "sunny", "retries": 0}, 7],
        "_journal/summaries/2.json": [summed],
        "notes/": "",
        "notes/odd.json": {"a": 1},
        "notes/any.bin": b"\xff",
    }
    done = await import_file(record, archive(tmp_path / "log.eval", members))
    rome, oslo = await conversations(record)
    assert (done.runs, done.oddities) == (2, {"no-messages": 1})
    notes = noted(rome)
    assert notes["summary"] == {"retries": 0}
    assert notes["log"]["members"] == {
        "_journal/summaries/1.json": [7],
        "notes/odd.json": {"a": 1},
        "notes/any.bin": None,
    }
    assert [told(one).partition(": ")[2] for one in oslo if isinstance(one.content, UserContent)] == [
        "user 'And Oslo?'"
    ]
    assert [row.session for row in await record.store.runs()] == ["log/rome.2", "log/oslo.1"]
    sound(oslo)


async def test_a_header_says_more_than_the_start_of_a_log(record: Record, tmp_path: Path) -> None:
    members = {START: {"version": 1, "eval": SPEC}, HEADER: log(), "reductions.json": [{"scorer": "match"}]}
    entries, done = await only(record, archive(tmp_path / "log.eval", members, zipfile.ZIP_STORED))
    notes = noted(entries)
    assert notes == {**log(), "start": {"version": 1}, "reductions": [{"scorer": "match"}]}
    assert done.runs == 1


def test_an_archive_shows_its_members(tmp_path: Path) -> None:
    source = Source(archive(tmp_path / "any.zip", {"b.json": [1], "a.json": {"x": "é"}, "d/": ""}))
    look = source.look([])
    assert (look.form, look.keys) == ("zip", ("b.json", "a.json"))
    assert look.found == "a zip archive with the members 'b.json', 'a.json'"
    assert [(one.path, one.place, one.value) for one in source.members(["a.json", "b.json"])] == [
        ("a.json", 0, {"x": "é"}),
        ("b.json", 1, [1]),
    ]
    assert Source(put(tmp_path / "plain.json", [])).names() == ()
    assert names_in(tmp_path) == ["any.zip", "plain.json"]
    with pytest.raises(BadImport, match="its format is not known; it is a zip archive with the members"):
        find_format(source)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def forged(data: bytes, place: int, value: int, size: int) -> bytes:
    """The same archive with a number changed in the central directory, of its first member."""
    at = data.index(b"PK\x01\x02") + place
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


async def test_archives_that_cannot_be_read_say_why(record: Record, tmp_path: Path) -> None:
    members = {START: {"eval": SPEC, "more": "word " * 200}, HEADER: log()}
    good = archive(tmp_path / "good.eval", members).read_bytes()
    zstd = zstd_archive(tmp_path / "good.eval", members).read_bytes()
    start = good.index(b"_journal")
    for data, why in (
        (good[:-30], "its packing is damaged or cut off: File is not a zip file"),
        (good[:40] + bytes(40) + good[80:], "its packing is damaged or cut off"),
        (forged(good, 24, LARGEST + 1, 4), f"its member '{START}', with .*, has more than {LARGEST:,} characters"),
        (forged(good, 24, 10, 4), "is not JSON|Bad CRC-32"),
        (forged(good, 20, 10_000_000, 4), "its members overlap"),
        (
            forged(good, 10, 77, 2),
            f"its member '{START}' is packed with unknown, method 77. Only stored, deflated, zstd",
        ),
        (forged(good, 10, 93, 2), "its packing is damaged or cut off: zstd"),
        (forged(zstd, 24, 10, 4), "its packing is damaged or cut off: Bad size or CRC-32"),
        (forged(zstd, 16, 10, 4), "its packing is damaged or cut off: Bad size or CRC-32"),
        (forged(zstd, 20, 30, 4), "its packing is damaged or cut off: Bad size or CRC-32"),
        (forged(zstd, 8, 1, 2), f"its member '{START}' cannot be unpacked: .*encrypted"),
        (forged(good, 8, 1, 2), f"its member '{START}' cannot be unpacked: .*encrypted"),
        (forged(good, 6, 99, 2), "its packing is damaged or cut off: zip file version"),
        (good[:start] + b"_journal/\xff\xff" + good[start + 11 :], "its packing is damaged"),
    ):
        (tmp_path / "bad.eval").write_bytes(data)
        with pytest.raises(BadImport, match=why):
            await import_file(record, tmp_path / "bad.eval")
    for name, value, why in (
        (START, "{", "_journal/start.json is not JSON"),
        (START, "{} {}", "'{' follows the end of '_journal/start.json'"),
        (START, {"eval": 1}, "expected an evaluation log with 'eval'"),
        (HEADER, [], "expected an evaluation log with 'eval'"),
        ("samples/x.json", [1], "expected a sample, found list at samples/x.json"),
        ("samples/../../x.json", "no", "x.json is not JSON"),
    ):
        path = archive(tmp_path / "bad.eval", {**({START: {"eval": SPEC}} if name != HEADER else {}), name: value})
        with pytest.raises(BadImport, match=why):
            await import_file(record, path)
    assert await record.store.runs() == []
    assert names_in(tmp_path) == ["bad.eval", "good.eval"], "nothing was unpacked"


async def test_members_that_are_held_together_have_the_room_of_one(record: Record, tmp_path: Path) -> None:
    """Each says that it has half of what is allowed; a name for each of many would else fill the memory."""
    path = archive(tmp_path / "log.eval", {f"_journal/summaries/{place}.json": [] for place in range(4)})
    data, sizes = path.read_bytes(), (LARGEST // 2).to_bytes(4, "little")
    for place in [place for place in range(len(data)) if data.startswith(b"PK\x01\x02", place)][1:]:
        data = data[: place + 24] + sizes + data[place + 28 :]
    path.write_bytes(data)
    members = Source(path).members(Source(path).names(), together=True)
    assert next(members).value == []
    assert next(members).place == 1
    with pytest.raises(
        BadImport, match=f"its member '_journal/summaries/2.json', with .*, has more than {LARGEST:,} characters"
    ):
        next(members)
    assert next(Source(path).members(Source(path).names()[:1])).place == 0
    assert await record.store.runs() == []


async def test_documents_that_are_no_logs_say_why(record: Record, tmp_path: Path) -> None:
    for value, why in (
        (log(7), r"expected a sample, found int at \$.samples\[0\]"),
        ([log()], "expected a JSON object with 'eval', found something else"),
        (3, "expected a JSON object with 'eval', found something else"),
        ({"status": 1}, "expected an evaluation log with 'eval', an object"),
        (log(eval=None), "expected an evaluation log with 'eval', an object"),
    ):
        with pytest.raises(BadImport, match=why):
            await import_file(record, put(tmp_path / "log.json", value), "inspect")
    assert await record.store.runs() == []


@given(place=st.integers(0, 2_000), bits=st.integers(1, 255), cut=st.booleans())
async def test_no_changed_byte_of_an_archive_breaks_an_import(
    tmp_path_factory: pytest.TempPathFactory, place: int, bits: int, cut: bool
) -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(START, json.dumps({"eval": SPEC}))
        made.writestr("samples/1.json", json.dumps({"id": 1, "input": "x" * 50}))
    data = bytearray(raw.getvalue())
    place %= len(data)
    data[place] ^= bits
    path = tmp_path_factory.mktemp("bytes") / "log.eval"
    path.write_bytes(data[:place] if cut else data)
    async with open_record() as record:
        with contextlib.suppress(BadImport):
            await import_file(record, path, "inspect")
            assert await record.verify() == []


# ---------------------------------------------------------------------------------------------------- nobody's data
ODDS: list[Any] = [None, True, -1, 10**400, 1e308, "", "x", "\ud800", [], [[]], {}, ["c1"], {"id": "s1"}]
ODDS += ["attachment://h1", "attachment://none", "assistant", "span_end", "9999-12-31T23:59:59-10:00"]
ODD = st.sampled_from([*ODDS, {"role": "user", "content": None}])
DEEP = "a list in a list"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, but what it is known by."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        if path or key == "samples":
            yield (*path, key)
        if path or key in ("samples", "eval"):
            yield from places(each, (*path, key))


WIDE = {
    **SAMPLE,
    "output": {"choices": [{"message": LAST, "stop_reason": "stop"}], "time": 1},
    "message_pool": MESSAGES,
    "events": [
        *EVENTS[:4],
        {**EVENTS[4], "events": [event("subtask", 4, name="t", events=[event("info", 4, data=1)])]},
        *EVENTS[5:10],
        event("step", 10, action="begin", type="scorer", name="j"),
        event("model", 10, input_refs=[[0, 1]], input=[QUESTION]),
        event("step", 10, action="end", type="scorer", name="j"),
    ],
    "limit": {"type": "time"},
}
DOCUMENT = log(WIDE, {"id": 2, "epoch": 1, "input": [QUESTION], "events": EVENTS[:3]}, status="started")
PLACES = [one for one in places(DOCUMENT) if one not in (("samples",), ("samples", 0), ("samples", 1))]


@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), ODD | st.just(DEEP)), min_size=1, max_size=4))
async def test_no_content_of_a_log_breaks_an_import(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[tuple[Any, ...], Any]]
) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    for path, value in changes:
        with contextlib.suppress(LookupError, TypeError):
            inside = document
            for step in path[:-1]:
                inside = inside[step]
            inside[path[-1]] = value
    path_to = tmp_path_factory.mktemp("any") / "any.json"
    text = json.dumps(document).replace(json.dumps(DEEP), "[" * 700 + "]" * 700)
    path_to.write_text(text, encoding="utf-8")
    async with open_record() as record:
        done = await import_file(record, path_to, "inspect")
        assert set(done.oddities) <= set(ODDITIES)
        for entries in await conversations(record):
            sound(entries)
            for end in range(0, len(entries) + 1, 3):
                assert valid(entries[:end]) == []
        assert await audit(record.store) == []
        assert (await import_file(record, path_to, "inspect")).runs == 0


MARK = "a text that stands nowhere else"


@given(place=st.sampled_from(PLACES))
async def test_no_text_is_lost_wherever_it_stands(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[Any, ...]
) -> None:
    value = json.loads(json.dumps(DOCUMENT))
    inside = value
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = MARK
    async with open_record() as record:
        await import_file(record, put(tmp_path_factory.mktemp("any") / "any.json", value))
        every = [entry for entries in await conversations(record) for entry in entries]
    assert MARK in "\n".join(leaves([[msgspec.to_builtins(one.content), one.annotations] for one in every])), place


# -------------------------------------------------------------------------------------------------------- the corpus
TOTAL = Counter(runs=21, messages=78, calls=9, results=20, orphans=11, events=272)
"""Over all files; 18 samples and three logs without any."""
SHORT = 3
"""Leaves of so many characters are not looked for: they are everywhere."""
SAID = {"assistant", "system", "tool", "user", "generate", "function", "model", "step", "begin", "approval"}
SAID |= {f"span_{end}" for end in ("begin", "end")} | {"sandbox", "state", "store", "score", "input", "sample_init"}
"""Leaves that the kind, the role or the key of an entry says: roles, sources, types of calls and of events."""


def logs(corpus: Path) -> list[Path]:
    return sorted(path for path in (corpus / "inspect-ai").iterdir() if path.suffix in (".json", ".gz", ".eval"))


def document(path: Path) -> tuple[list[Any], list[Any]]:
    """All documents of a file as they are, and the samples among them."""
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as packed:
            members = {name: json.loads(packed.read(name)) for name in packed.namelist()}
        return [*members.values()], [value for name, value in members.items() if name.startswith("samples/")]
    data = path.read_bytes()
    whole = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return [whole], whole.get("samples") or []


def counted(samples: list[Any]) -> Counter[str]:
    """What a file holds, straight from the source."""
    found = Counter(runs=len(samples) or 1)
    for sample in samples:
        made = {call["id"] for message in sample["messages"] for call in message.get("tool_calls") or []}
        answers = [message for message in sample["messages"] if message["role"] == "tool"]
        found["messages"] += len(sample["messages"])
        found["calls"] += len(made)
        found["results"] += len(answers)
        found["orphans"] += sum(message["tool_call_id"] not in made for message in answers)
        found["events"] += len(sample.get("events") or sample.get("transcript", {}).get("events", []))
    return found


def came_in(runs: list[list[Entry]]) -> Counter[str]:
    """The same from what was imported."""
    found = Counter(runs=len(runs))
    for entry in (entry for entries in runs for entry in entries):
        content, extra = entry.content, entry.content.extra or {}
        found["messages"] += "message" in (entry.annotations or {})
        found["calls"] += isinstance(content, ToolCallContent)
        found["results"] += isinstance(content, ToolResultContent)
        found["orphans"] += isinstance(content, ToolResultContent) and content.call is None
        noted = isinstance(content, KeyValueContent) and content.key.endswith("-event")
        made = isinstance(content, ChatCompletionContent | ToolResultContent) and "event" in extra
        found["events"] += noted or made or (isinstance(content, BeginContent | EndContent) and "type" in extra)
        found["events"] += isinstance(content, EndContent) and "id" in extra
    return found


@pytest.mark.slow
async def test_every_log_of_the_corpus_comes_in_whole_and_once(corpus: Path) -> None:
    total: Counter[str] = Counter()
    for path in logs(corpus):
        _, samples = document(path)
        async with open_record() as record:
            done = await import_file(record, path)
            runs = await conversations(record)
            assert came_in(runs) == counted(samples), path.name
            assert (done.runs, done.entries) == (len(runs), sum(map(len, runs)))
            assert done.oddities == ({"orphan-result": 11} if "error" in path.name else {})
            assert await audit(record.store) == []
            for entries in runs:
                sound(entries)
                assert [found for end in range(len(entries) + 1) for found in valid(entries[:end])] == []
                assert unexplained(entries).answers == ()
            again = await import_file(record, path)
            assert (again.runs, again.entries, again.skipped) == (0, 0, len(runs))
            total += came_in(runs)
    assert total == TOTAL


def leaves(value: Any) -> Iterator[str]:
    """All texts in a value, names of members too."""
    if isinstance(value, str):
        yield value
    for each in (*value, *value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from leaves(each)


async def test_no_text_of_the_corpus_is_lost(corpus: Path) -> None:
    lost: list[tuple[str, str]] = []
    for path in logs(corpus):
        documents, _ = document(path)
        async with open_record() as record:
            await import_file(record, path)
            runs = await conversations(record)
        every = [entry for entries in runs for entry in entries]
        kept = set(leaves([[msgspec.to_builtins(one.content), one.annotations] for one in every]))
        times = {one.at for one in every}
        for value in values(documents):
            for leaf in leaves([value]) if isinstance(value, str) else ():
                if len(leaf) <= SHORT or leaf in SAID or leaf in kept:
                    continue
                if leaf.startswith(("attachment://", "tc://")) and leaf.partition("://")[2] in kept:
                    continue  # its text is where it was, and the table has both
                with contextlib.suppress(ValueError):
                    if datetime.fromisoformat(leaf).astimezone(UTC) in times:
                        continue  # it is the time of an entry
                lost.append((path.name, leaf))
    assert lost == []


def values(value: Any) -> Iterator[Any]:
    """All values in a value that are not containers."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from values(each)
    else:
        yield value


async def test_every_usage_and_image_of_the_corpus_is_in_its_place(corpus: Path) -> None:
    images = 0
    for path in logs(corpus):
        _, samples = document(path)
        async with open_record() as record:
            await import_file(record, path)
            runs = await conversations(record)
        for sample, entries in zip(samples, runs, strict=False):
            made = [one.content for one in entries if isinstance(one.content, ChatCompletionContent)]
            spent = sum((one.usage or {}).get("total_tokens", 0) for one in made)
            if sample.get("model_usage"):
                graded = next((tokens for name, tokens in GRADED.items() if name in path.name), 0)
                assert spent == sum(tokens["total_tokens"] for tokens in sample["model_usage"].values()) - graded
            assert all(one.finish_reason and one.model for one in made)
            extras = [one.content.extra or {} for one in entries if isinstance(one.content, UserContent)]
            images += sum("data:image/png;base64" in str(extra.get("content")) for extra in extras)
    assert images == 2


GRADED = {"T13-31-45": 364, "T13-32-37": 376}
"""Tokens of calls of a grader, which are not completions of the agent, by what is in the name of the file."""
