"""Traces of Langfuse: observations of any framework become spans, and what models were told and gave, messages."""

import ast
import copy
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import sampled
from tests.ribs.test_bridges import BIG, DEEP, VALUES, contents, conversations, formatted, put, reasons, told, valid
from tests.validators.chat_completions import history_violations

import gesta
from gesta.address import open_record
from gesta.codec.rows import Secret
from gesta.entry import Entry
from gesta.importers import langfuse, langfuse_messages, python_text
from gesta.importers.chat import Said
from gesta.importers.file import import_file
from gesta.importers.foreign import ODDITIES, Imported, Read
from gesta.importers.known import find_format
from gesta.importers.source import BadImport, Source
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    EndContent,
    KeyValueContent,
    RequestHeaderContent,
    ToolCallContent,
    ToolResultContent,
)
from gesta.message import Message
from gesta.prompt import observation_text
from gesta.record.record import Record
from gesta.views.lineage import unexplained

pytestmark = pytest.mark.sample(2, over="parent")

SHORT = 3
"""Texts of so many characters are anywhere."""


# ------------------------------------------------------------------------------------- what holds for any run of spans
def in_spans(entries: Sequence[Entry]) -> None:
    """Every entry lies in an open span, every span ends once, after all that lie in it; causes stand before."""
    inside: dict[int, int] = {}
    begun = {entry.seq: entry.content for entry in entries if isinstance(entry.content, BeginContent)}
    open_spans: set[int] = set()
    for entry in entries:
        assert all(isinstance(cause, int) and cause < entry.seq for cause in entry.causes)
        if isinstance(entry.content, BeginContent):
            parent = entry.content.parent
            assert parent is None or parent in open_spans
            assert entry.span == entry.seq
            inside[entry.seq] = parent or 0
            open_spans.add(entry.seq)
        assert entry.span in open_spans
        if isinstance(entry.content, EndContent):
            open_spans.remove(entry.span)
            assert entry.span not in {inside[span] for span in open_spans}
            assert (entry.content.reason is not None) == (begun[entry.span].role == "turn")
    assert not open_spans


def accepted(entries: Sequence[Entry]) -> None:
    """Each history is valid, also at every prefix, and none has what a provider refuses."""
    encode = gesta.scripted("x").encode
    for end in {*range(0, len(entries), max(1, len(entries) // 12)), len(entries)}:
        history = formatted(entries[:end])
        valid(history)
        found = history_violations([json.loads(encode(one)) for one in history]) if history else []
        assert found == []


def texts(value: Any) -> Iterator[str]:
    """All texts in a value."""
    left = [value]
    while left:
        match left.pop():
            case str() as text:
                yield text
            case dict() as members:
                left += members.values()
            case list() | tuple() as items:
                left += items
            case other:
                left += [getattr(other, name) for name in getattr(other, "__struct_fields__", ())]


def value_in(text: str) -> Any:
    """The list or dict that a text is, as JSON or as Python shows it."""
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, dict | list | str) and value != text:
            return value
    return None


def all_texts(value: Any) -> set[str]:
    """All texts in a value, and in the values that they hold."""
    found, left = set[str](), list(texts(value))
    while left:
        text = left.pop()
        if text not in found:
            found.add(text)
            left += texts(value_in(text))
    return found


def lost(document: Any, entries: Sequence[Entry]) -> set[str]:
    """Texts of a source that no entry holds; of a text that holds a value, what is in that counts, and times are kept."""
    kept, times = all_texts([[entry.content, entry.annotations] for entry in entries]), {entry.at for entry in entries}
    gone = {text for text in all_texts(document) - kept if len(text) > SHORT and value_in(text) is None}
    return {text for text in gone if not is_time(text, times)}


def is_time(text: str, times: set[Any]) -> bool:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return False
    return at.tzinfo is not None and at in times


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where anything stands in a document."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(each, (*path, key))


def spoilt(document: Any, *, lines: bool = False) -> st.SearchStrategy[str]:
    """The text of a document in which some things, anywhere, are others or gone."""

    def make(changes: list[tuple[tuple[Any, ...], Any]]) -> str:
        made = copy.deepcopy(document)
        for path, value in changes:
            there = made
            try:
                for key in path[:-1]:
                    there = there[key]
                if value is ...:
                    del there[path[-1]]
                else:
                    there[path[-1]] = value
            except (LookupError, TypeError):
                continue  # an earlier change took its place away
        text = "\n".join(json.dumps(line) for line in made) if lines else json.dumps(made)
        return text.replace(json.dumps(BIG), "9" * 5000).replace(json.dumps(DEEP), "[" * 700 + "]" * 700)

    change = st.tuples(st.sampled_from(list(places(document))), VALUES | st.just(...))
    return st.lists(change, min_size=1, max_size=4).map(make)


def unkept(path: Path, document: Any, read: Read, *, lines: bool = False) -> list[tuple[Any, ...]]:
    """Where a document may hold anything that its entries do not: some odd value is put in each place in turn.

    In quick runs every second place gets the one value, and every other the other one.
    """
    gone = []
    for number, mark in enumerate(("AN ODD VALUE", {"odd": ["AN ODD VALUE"]})):
        for place in sampled(places(document), 2, number):
            made = there = copy.deepcopy(document)
            for key in place[:-1]:
                there = there[key]
            there[place[-1]] = mark
            put(path, "\n".join(map(json.dumps, made)) if lines else json.dumps(made))
            try:
                entries = [entry for foreign in read(Source(path), Counter()) for entry in foreign.entries]
            except BadImport:
                continue
            kept = texts([[entry.content, entry.annotations] for entry in entries])
            gone += [] if any("AN ODD VALUE" in text for text in kept) else [place]
    return gone


async def endured(path: Path, text: str, format: str) -> None:
    """A file is refused, or comes in sound, whole and once."""
    put(path, text)
    async with open_record() as record:
        try:
            done = await import_file(record, path, format)
        except BadImport:
            assert await record.store.runs() == []
            return
        for entries in await conversations(record):
            in_spans(entries)
            accepted(entries)
        assert set(done.oddities) <= set(ODDITIES)
        assert await record.verify() == []
        assert (await import_file(record, path, format)).entries == 0


async def flawless(record: Record, path: Path, runs: int) -> list[list[Entry]]:
    """What came in is sound, is explained as far as an importer can, and comes in once."""
    every = await conversations(record)
    assert len(every) == runs
    assert await record.verify() == []
    for entries in every:
        in_spans(entries)
        accepted(entries)
    again = await import_file(record, path)
    assert (again.runs, again.entries, again.skipped) == (0, 0, runs)
    return every


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


# --------------------------------------------------------------------------------------------------- one small trace
def at(second: float) -> str:
    return f"2026-01-01T10:00:{second:06.3f}Z"


def observed(id: str, type: str, begins: float, ends: float | None, parent: str | None = None, **more: Any) -> Any:
    return {
        "id": id,
        "type": type,
        "name": more.pop("name", id),
        "startTime": at(begins),
        "endTime": None if ends is None else at(ends),
        "parentObservationId": parent,
        "level": "DEFAULT",
        "usageDetails": {},
        **more,
    }


def asked(*messages: Any, **more: Any) -> str:
    return json.dumps({"messages": list(messages), **more})


def gave(content: Any, *calls: Any, **more: Any) -> str:
    message = {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {})}
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "model": "m-2", **more})


def call(id: str | None, name: str = "weather", args: str = '{"city": "Rome"}') -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": args}}


SYSTEM, QUESTION = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What do I need?"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [call("c1")]}
DRY = {"role": "tool", "content": "dry", "tool_call_id": "c1"}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Looks.", "parameters": {"type": "object"}}}
SMALL: dict[str, Any] = {
    "trace": {
        "id": "t-1",
        "name": "guide",
        "timestamp": at(0),
        "tags": [],
        "input": '"What do I need?"',
        "scores": [{"name": "tone", "value": 0.9, "comment": "kind"}],
        "observations": [{"id": "a", "type": "AGENT", "input": None, "only": "here"}, {"id": "g1", "name": "g1"}],
    },
    "observations": [
        observed("g2", "GENERATION", 5, 6, "a", input=asked(SYSTEM, QUESTION, CALLED, DRY), output=gave("Nothing.")),
        observed("a", "AGENT", 0, 7),
        observed(
            "g1",
            "GENERATION",
            1,
            2,
            "a",
            model="m",
            modelParameters={"temperature": 0},
            input=asked(SYSTEM, QUESTION, tools=[TOOL]),
            output=gave(None, call("c1"), usage={"prompt_tokens": 9, "completion_tokens": 3}),
            costDetails={"total": 0.5},
            latency=1.5,
        ),
        observed("t", "TOOL", 3, 4, "a", name="weather", input='{"city": "Rome"}', output='{"sky": "dry"}'),
    ],
}


def trace(*observations: Any, **members: Any) -> dict[str, Any]:
    return {"trace": {"id": "t", "name": "guide", **members}, "observations": list(observations)}


def line(entry: Entry) -> str:
    """An entry with its causes, what it is in, and what was concluded."""
    inferred = (entry.annotations or {}).get("inferred", [])
    begin = entry.content
    shown = f"begin {begin.role} {begin.name}" if isinstance(begin, BeginContent) else told(entry)
    back = "".join(f" <{entry.seq - cause}" for cause in entry.causes if isinstance(cause, int))
    shown += back if isinstance(begin, BeginContent) else ""
    return f"{entry.span} {shown}" + (f" ?{','.join(inferred)}" if inferred else "")


async def story(record: Record, path: Path, document: Any) -> tuple[list[Entry], Imported]:
    put(path, json.dumps(document))
    done = await import_file(record, path)
    (entries,) = await flawless(record, path, 1)
    return entries, done


def after_import(entries: Sequence[Entry]) -> list[str]:
    first = next(entry.seq for entry in entries if isinstance(entry.content, EndContent))
    return [line(entry) for entry in entries if entry.seq > first]


async def test_a_trace_becomes_spans_and_messages(record: Record, path: Path) -> None:
    entries, done = await story(record, path, SMALL)
    assert done == Imported(runs=1, entries=len(entries), skipped=0, format="langfuse")
    assert contents(entries, BeginContent)[0].state == {
        "id": "t-1",
        "name": "guide",
        "input": "What do I need?",
        "scores": [{"name": "tone", "value": 0.9, "comment": "kind"}],
        "observations": [{"id": "a", "only": "here"}],
    }
    header, again = contents(entries, RequestHeaderContent)
    made = ChatCompletionContent(
        output="",
        model="m-2",
        finish_reason="stop",
        usage={"prompt_tokens": 9, "completion_tokens": 3},
        latency_ms=1500.0,
        meta={"cost_usd": 0.5, "raw": json.loads(SMALL["observations"][2]["output"])},
    )
    assert contents(entries, ChatCompletionContent)[0] == made
    assert header.meta == {"model": "m", "instructions": "Be brief.", "settings": {"temperature": 0}}
    assert header.tools == [{"name": "weather", "description": "Looks.", "args_schema": {"type": "object"}}]
    assert again.meta == {"instructions": "Be brief."}
    lines = [one for one in after_import(entries) if "request-header" not in one]
    assert lines == [
        "3 begin turn guide",
        "4 begin agent a",
        "5 begin model g1",
        "5 user 'What do I need?' ?at",
        "5 chat-completion '' <1 ?causes",
        "5 tool-call weather({'city': 'Rome'}) success <1",
        "5 end",
        "11 begin tool weather <2 ?causes",
        "11 tool-result dry ok <3",
        "11 end",
        "14 begin model g2",
        "14 chat-completion 'Nothing.' <4 ?causes",
        "14 end",
        "4 end",
        "3 assistant 'Nothing.' <3",
        "3 end answered ?reason",
    ]


async def test_what_was_given_and_gave_is_the_state_of_a_span(record: Record, path: Path) -> None:
    """Messages that are on record are named by what stands for them, so the record does not grow with the square."""
    entries, _ = await story(record, path, SMALL)
    states = {one.name: one.state for one in contents(entries, BeginContent) if one.role != "import"}
    assert states["g1"] == {"messages": [6, 7], "tools": [TOOL]}
    assert states["weather"] == {"city": "Rome"}
    assert states["g2"] == {"messages": [15, 7, 8, 12]}  # its header names no model, so it is another
    assert next(one.state for one in contents(entries, EndContent) if one.state) == {"sky": "dry"}
    begins = {one.name: one for one in contents(entries, BeginContent)}
    assert begins["g1"].annotations == {"observation": "g1"}
    assert begins["g1"].extra == {
        "model": "m",
        "modelParameters": {"temperature": 0},
        "costDetails": {"total": 0.5},
        "latency": 1.5,
    }
    assert begins["weather"].extra is None
    assert str(entries[begins_at(entries, "weather")].at) == "2026-01-01 10:00:03+00:00"


def begins_at(entries: Sequence[Entry], name: str) -> int:
    return next(place for place, one in enumerate(entries) if getattr(one.content, "name", None) == name)


async def test_what_the_model_read_is_the_result(record: Record, path: Path) -> None:
    """The tool was seen to give a value; the request says what the model was shown of it."""
    entries, _ = await story(record, path, SMALL)
    (result,) = contents(entries, ToolResultContent)
    assert result.tool_result == "dry"
    alone = trace(*[one for one in SMALL["observations"] if one["id"] != "g2"])
    async with open_record() as other:
        entries, done = await story(other, path, alone)
    (result,) = contents(entries, ToolResultContent)
    assert result.tool_result == {"sky": "dry"}
    assert reasons(entries) == ["limit"]
    assert done.oddities == {}


async def test_a_result_that_is_told_otherwise_later_is_kept_as_it_was_read(record: Record, path: Path) -> None:
    shorter = {**DRY, "content": "(left out)"}
    document = trace(
        observed("g", "GENERATION", 1, 2, input=asked(QUESTION, CALLED, DRY), output="Hm."),
        observed("h", "GENERATION", 3, 4, input=asked(QUESTION, CALLED, shorter), output="Nothing."),
    )
    entries, _ = await story(record, path, document)
    assert [one.tool_result for one in contents(entries, ToolResultContent)] == ["dry"]
    second = [one.state for one in contents(entries, BeginContent) if one.role == "model"][1]
    assert second == {"messages": [5, 6, shorter]}


async def test_times_of_parallel_work_are_kept_and_spans_nest_all_the_same(record: Record, path: Path) -> None:
    document = trace(
        observed("late", "SPAN", 1, 9, "root"),
        observed("root", "CHAIN", 2, 5),
        observed("early", "SPAN", 0, 3, "root"),
        observed("inner", "SPAN", 4, 20, "early"),
    )
    entries, done = await story(record, path, document)
    assert [(line(one).split(" ", 1)[1], str(one.at)[17:19]) for one in entries][-10:] == [
        ("begin trace guide", "01"),
        ("begin chain root", "02"),
        ("begin span early", "00"),
        ("begin span late", "01"),
        ("begin span inner", "04"),
        ("end", "09"),
        ("end", "20"),
        ("end", "03"),
        ("end", "05"),
        ("end", "05"),
    ]
    assert done.oddities == {}
    assert reasons(entries) == []


async def test_odd_observations_are_kept_and_counted(record: Record, path: Path) -> None:
    document = trace(
        observed("a", "SPAN", 1, 9, "nowhere"),
        observed("x", "SPAN", 1, 9, "y"),
        observed("y", "SPAN", 1, 9, "x"),
        observed("x", "SPAN", 1, None),
        7,
        observed("e", "EVENT", 2, None, "a", input='{"seen": "smoke"}', level="WARNING"),
        observed("g", "GENERATION", 3, 4, "a", input='{"strange": 1}', output="[1, 2]"),
        observed("t", "TOOL", 5, 6, "a", output="nobody asked"),
        observed("f", "AGENT", 5, 6, "a", level="ERROR", statusMessage="gone"),
        {"type": 5, "id": {}},
    )
    entries, done = await story(record, path, document)
    assert done.oddities == {
        "missing-parent": 2,
        "orphan-result": 1,
        "repeated-span-id": 1,
        "unended-span": 2,
        "unknown-form": 2,
        "unreadable-message": 1,
        "wrong-type": 1,
    }
    notes = [(note.key, note.value) for note in contents(entries, KeyValueContent)][-4:]
    assert notes == [
        ("unreadable-message", 7),
        ("e", {"input": {"seen": "smoke"}, "level": "WARNING"}),
        ("unknown-form", {"input": {"strange": 1}}),
        ("unknown-form", {"output": [1, 2]}),
    ]
    errors = [end.error.type for end in contents(entries, EndContent) if end.error is not None]
    assert sorted(errors) == ["ERROR", "unfinished", "unfinished"]
    assert lost(document, entries) == {"DEFAULT", "AGENT", "SPAN", "EVENT", "TOOL", "GENERATION"}


async def test_a_call_that_two_instruments_saw_is_made_once(record: Record, path: Path) -> None:
    document = trace(
        observed("outer", "GENERATION", 1, 4, input=asked(QUESTION), output=gave("Nothing.")),
        observed("inner", "GENERATION", 2, 3, "outer", input="user: What do I need?", output="Nothing."),
    )
    entries, done = await story(record, path, document)
    assert done.oddities == {"nested-generation": 1}
    assert [one.output for one in contents(entries, ChatCompletionContent)] == ["Nothing."]
    inner = next(one for one in contents(entries, BeginContent) if one.name == "inner")
    assert (inner.role, inner.state) == ("model", "user: What do I need?")


async def test_an_answer_that_only_the_trace_has_is_inferred(record: Record, path: Path) -> None:
    """Some instruments see requests alone; the rest of a reply may have been cut away, too."""
    cut = {"attributes": {"llm.output_messages.7.message.content": "ing."}}
    document = trace(
        observed("g", "GENERATION", 1, 2, input=asked(QUESTION), model="m"),
        observed("h", "GENERATION", 3, 4, metadata=json.dumps(cut)),
        output=json.dumps("{'role': 'assistant', 'text': 'Nothing\\u002e'}"),
    )
    entries, done = await story(record, path, document)
    assert done.oddities == {"cut-message": 1}
    assert after_import(entries)[-3:] == [
        "3 chat-completion 'Nothing.' <4 ?output,causes,at",
        "3 assistant 'Nothing.' <1",
        "3 end answered ?reason",
    ]
    assert contents(entries, ChatCompletionContent)[0].model == "m"
    assert lost(document, entries) == {"DEFAULT", "GENERATION", "user"}


async def test_a_tool_inside_a_generation_runs_after_its_call(record: Record, path: Path) -> None:
    """Some frameworks carry a call out before its generation ends: it was made by then, nobody knows when."""
    document = trace(
        observed(
            "g", "GENERATION", 1, 9, input=asked(QUESTION), output=gave(None, call(None)), usageDetails={"input": 4}
        ),
        observed("w", "SPAN", 2, 5, "g"),
        observed("t", "TOOL", 3, 4, "w", name="weather", input="{'city': 'Rome'}", output="dry"),
    )
    entries, done = await story(record, path, document)
    assert done.oddities == {"missing-call-id": 1}
    assert after_import(entries)[2:9] == [
        "4 user 'What do I need?' ?at",
        "6 begin span w",
        "4 chat-completion '' <2 ?causes,at",
        "4 tool-call weather({'city': 'Rome'}) success <1 ?at",
        "9 begin tool weather <1 ?causes",
        "9 tool-result dry ok <2",
        "9 end",
    ]
    (made,) = contents(entries, ChatCompletionContent)
    assert made.usage == {"input": 4, "input_tokens": 4}, "as the trace counted it, since the reply does not say"


async def test_the_calls_of_a_vercel_generation_are_answered(record: Record, path: Path) -> None:
    output = json.dumps([{"toolCallId": "c1", "toolName": "weather", "input": '{"city": "Rome"}'}])
    document = trace(
        observed("g", "GENERATION", 1, 2, input=asked(QUESTION), output=output),
        observed("t", "TOOL", 3, 4, name="weather", input='{"city": "Rome"}', output="dry"),
        observed("h", "GENERATION", 5, 6, input=asked(QUESTION, CALLED, DRY), output={"type": "AIMessageChunk", "content": "Nothing."}),
    )  # fmt: skip
    entries, done = await story(record, path, document)
    assert done.oddities == {}
    assert [(one.tool_name, one.tool_call_id) for one in contents(entries, ToolCallContent)] == [("weather", "c1")]
    assert [(one.tool_result, one.call is None) for one in contents(entries, ToolResultContent)] == [("dry", False)]
    assert reasons(entries) == ["answered"]


@pytest.mark.parametrize(
    ("latency", "ends", "found"),
    [
        (1.5, 2.5, 1500),
        (1500, 2.5, 1500),
        (1500.0, None, 1_500_000),
        (1.5, None, 1500),
        (0.9, 1.001, 0.9),
        (0, 2.5, 0),
        (0, None, 0),
        (5, 1, 5),
        (None, 2.5, None),
    ],
)
async def test_a_latency_is_in_seconds_or_milliseconds_as_its_times_say(
    record: Record, path: Path, latency: float | None, ends: float | None, found: float | None
) -> None:
    document = trace(observed("g", "GENERATION", 1, ends, input=asked(QUESTION), output=gave("Dry."), latency=latency))
    entries, _ = await story(record, path, document)
    assert [one.latency_ms for one in contents(entries, ChatCompletionContent)] == [found]


@pytest.mark.parametrize("kind", ["TOOL", "SPAN"])
async def test_a_tool_beside_its_generation_may_begin_before_the_recorded_end_of_that(
    record: Record, path: Path, kind: str
) -> None:
    document = trace(
        observed("g", "GENERATION", 1, 4, input=asked(QUESTION), output=gave(None, call("c1"))),
        observed("t", kind, 2, 3, name="weather", input='{"city": "Rome"}', output="dry"),
        observed("h", "GENERATION", 5, 6, input=asked(QUESTION, CALLED, DRY), output=gave("Nothing.")),
    )
    entries, done = await story(record, path, document)
    assert done.oddities == {}
    assert after_import(entries)[1:9] == [
        "4 begin model g",
        "4 user 'What do I need?' ?at",
        "4 chat-completion '' <1 ?causes,at",
        "4 tool-call weather({'city': 'Rome'}) success <1 ?at",
        "8 begin tool weather <1 ?causes",
        "8 tool-result dry ok <2",
        "8 end",
        "4 end",
    ]


async def test_a_request_may_tell_a_reply_before_the_recorded_end_of_that(record: Record, path: Path) -> None:
    document = trace(
        observed("g", "GENERATION", 1, 4, input=asked(QUESTION), output=gave(None, call("c1")), model="m"),
        observed("h", "GENERATION", 3, 6, input=asked(QUESTION, CALLED, DRY), output=gave("Nothing.")),
    )
    entries, done = await story(record, path, document)
    assert done.oddities == {}
    assert [one.model for one in contents(entries, ChatCompletionContent)] == ["m-2", "m-2"]
    assert len(contents(entries, ToolCallContent)) == len(contents(entries, ToolResultContent)) == 1


async def test_parallel_generations_that_know_nothing_of_each_other_end_when_they_end(
    record: Record, path: Path
) -> None:
    document = trace(
        observed("g", "GENERATION", 1, 4, input=asked(QUESTION), output=gave(None, call("c1"))),
        observed("h", "GENERATION", 2, 3, input=asked({"role": "user", "content": "And now?"}), output=gave("Well.")),
        observed("t", "TOOL", 5, 6, name="weather", input='{"city": "Rome"}', output="dry"),
    )
    entries, done = await story(record, path, document)
    assert done.oddities == {}
    assert [one.output for one in contents(entries, ChatCompletionContent)] == ["Well.", ""]


async def test_a_tool_that_failed_gives_an_error(record: Record, path: Path) -> None:
    document = trace(
        observed("g", "GENERATION", 1, 2, input=asked(QUESTION), output=gave(None, call("c1"), call("c2"))),
        observed("t", "TOOL", 3, 4, level="ERROR", statusMessage="no sky", metadata={"attributes": {"gen_ai.tool.call.id": "c2"}}),
        observed("h", "GENERATION", 5, 6, input=asked(QUESTION, CALLED, DRY), output=None),
    )  # fmt: skip
    entries, done = await story(record, path, document)
    assert done.oddities == {}
    results = [(one.tool_result, one.status, one.outcome, one.call) for one in contents(entries, ToolResultContent)]
    assert results == [(None, "error", "error", 8), ("dry", "success", "ok", 7)]
    assert reasons(entries) == ["limit"]


async def test_what_stands_in_attributes_alone_is_read_too(record: Record, path: Path) -> None:
    """Where it stands in both places, it is kept once; keys to somebody's account are not kept."""
    start = "llm.input_messages.0.message."
    told = {f"{start}role": "user", f"{start}content": "What do I need?", f"{start}name": "Ann"}
    back = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Nothing."}
    more = {"http.request.header.authorization": "Bearer x", "input.value": asked(QUESTION), "llm.system": "openai"}
    attributes = json.dumps({"attributes": {**told, **back, **more}})
    document = trace(
        observed("g", "GENERATION", 1, 2, metadata=attributes),
        observed("h", "GENERATION", 3, 4, metadata=attributes, input=asked(QUESTION), output=gave("Nothing.")),
    )
    entries, done = await story(record, path, document)
    assert done.oddities == {}
    assert [one.output for one in contents(entries, ChatCompletionContent)] == ["Nothing.", "Nothing."]
    first, second = [one.extra for one in contents(entries, BeginContent) if one.role == "model"]
    hidden = {"llm.system": "openai", "http.request.header.authorization": Secret("http.request.header.authorization")}
    assert first == {"metadata": {"attributes": {**told, **back, **hidden, "input.value": asked(QUESTION)}}}
    assert second == {"metadata": {"attributes": {**hidden, f"{start}name": "Ann"}}}


async def test_the_history_before_a_trace_is_told_by_its_first_request(record: Record, path: Path) -> None:
    old = [QUESTION, CALLED, DRY, {"role": "assistant", "content": "Nothing."}, {"role": "user", "content": "Why?"}]
    document = trace(
        observed("g", "GENERATION", 1, 2, input=asked(*old), output=gave("It is dry.")),
        observed("h", "GENERATION", 3, 4, input=asked(*old, {"role": "user", "content": "Why?"}), output="Dry."),
    )
    entries, done = await story(record, path, document)
    assert done.oddities == {}
    assert after_import(entries)[1:] == [
        "4 begin model g",
        "4 user 'What do I need?' ?at",
        "4 chat-completion '' <1 ?causes,at",
        "4 tool-call weather({'city': 'Rome'}) success <1 ?at",
        "4 tool-result dry ok <1 ?status,at",
        "4 chat-completion 'Nothing.' <1 ?causes,at",
        "4 user 'Why?' ?at",
        "4 chat-completion 'It is dry.' <1 ?causes",
        "4 end",
        "13 begin model h",
        "13 user 'Why?' ?at",
        "13 chat-completion 'Dry.' <5 <1 ?causes",
        "13 end",
        "3 assistant 'Dry.' <2",
        "3 end answered ?reason",
    ]


# ------------------------------------------------------------------------------------------------------------- forms
def plain(said: Said) -> tuple[Any, ...]:
    """A message as anybody would write it down."""
    calls = [
        (made.id, made.name, value_in(made.args) if isinstance(made.args, str) else made.args) for made in said.calls
    ]
    return (said.role, said.call_id, said.result) if said.role == "tool" else (said.role, said.text, calls)


ROME = [("c1", "weather", {"city": "Rome"})]
FORMS: list[tuple[str, Any, list[tuple[Any, ...]]]] = [
    ("list of messages", [QUESTION, CALLED, DRY], [("user", "What do I need?", []), ("assistant", "", ROME), ("tool", "c1", "dry")]),
    ("list of messages", [{"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}], [("system", "Be brief.", [])]),
    (
        "list of messages",  # Responses
        [
            {"type": "reasoning", "summary": [], "content": "hm"},
            {"type": "function_call", "call_id": "c1", "id": "f", "name": "weather", "arguments": '{"city": "Rome"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "dry"},
        ],
        [("assistant", "", []), ("assistant", "", ROME), ("tool", "c1", "dry")],
    ),
    (
        "list of messages",  # Anthropic
        [
            {"role": "assistant", "content": [{"type": "text", "text": "So"}, {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "dry"}, {"type": "text", "text": "Well?"}]},
        ],
        [("assistant", "So", ROME), ("tool", "c1", "dry"), ("user", "Well?", [])],
    ),
    (
        "list of messages",  # Vercel
        [
            {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Rome"}}]},
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "weather", "output": {"type": "text", "value": "dry"}}]},
        ],
        [("assistant", "", ROME), ("tool", "c1", {"type": "text", "value": "dry"})],
    ),
    (
        "list of messages",  # OpenTelemetry
        [
            {"role": "user", "parts": [{"type": "text", "content": "What do I need?"}]},
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Rome"}}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "dry"}]},
        ],
        [("user", "What do I need?", []), ("assistant", "", ROME), ("tool", "c1", "dry")],
    ),
    (
        "chat request",  # LangGraph
        {"messages": [{"type": "human", "content": "What do I need?"}, {"type": "ai", "content": "", "tool_calls": [{"name": "weather", "args": {"city": "Rome"}, "id": "c1", "type": "tool_call"}]}, {"type": "tool", "content": "dry", "tool_call_id": "c1"}]},
        [("user", "What do I need?", []), ("assistant", "", ROME), ("tool", "c1", "dry")],
    ),
    (
        "chat request",  # texts that Python shows of messages
        {"messages": ["role='user' content=\"It's\\nhot\" name=None tool_calls=None", "role='assistant' content=None tool_calls=[{'id': 'c1', 'function': {'arguments': '{\"city\": \"Rome\"}', 'name': 'weather'}, 'type': 'function'}] timer=<Timer>"]},
        [("user", "It's\nhot", []), ("assistant", "", ROME)],
    ),
    (
        "Gemini request",
        {"model": "g", "contents": [{"role": "user", "parts": [{"text": "What do "}, {"text": "I need?"}]}, {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Rome"}}}]}, {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "weather", "response": {"sky": "dry"}}}]}]},
        [("user", "What do I need?", []), ("assistant", "", ROME), ("tool", "c1", {"sky": "dry"})],
    ),
    ("Gemini request", {"contents": "What do I need?"}, [("user", "What do I need?", [])]),
    ("arguments", {"args": ["What do I need?"], "kwargs": {}}, [("user", "What do I need?", [])]),
    ("chat reply", {"choices": [{"message": CALLED}]}, [("assistant", "", ROME)]),
    ("Gemini reply", {"candidates": [{"content": {"parts": [{"text": "Dry."}], "role": "model"}}]}, [("assistant", "Dry.", [])]),
    ("Responses reply", {"object": "response", "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Dry."}]}]}, [("assistant", "Dry.", [])]),
    ("choice", {"index": 0, "message": {"role": "assistant", "content": "Dry."}}, [("assistant", "Dry.", [])]),
    ("event", {"content": {"parts": [{"text": "Dry."}]}, "author": "guide"}, [("assistant", "Dry.", [])]),
    ("message", {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": [call("c1")]}}, [("assistant", "", ROME)]),
    ("message", {"role": "tool", "content": json.dumps([call("c1")])}, [("assistant", "", ROME)]),
    ("message", {"role": "user", "content": "[{'type': 'text', 'text': \"It's hot\"}]"}, [("user", "It's hot", [])]),
    ("lines", "system: Be brief.\nuser: One: a\nb\nassistant: None\ntool: dry", [("system", "Be brief.", []), ("user", "One: a\nb", []), ("assistant", "", []), ("tool", None, "dry")]),
    ("list of messages", [{"toolCallId": "c1", "toolName": "weather", "input": {"city": "Rome"}}], [("assistant", "", ROME)]),  # Vercel, from here on
    ("list of messages", [{"type": "tool-call", "toolCallType": "function", "toolCallId": "c1", "toolName": "weather", "args": '{"city": "Rome"}'}], [("assistant", "", ROME)]),
    ("list of messages", [{"toolCallId": "c1", "toolName": "weather", "args": {"city": "Rome"}, "result": "dry"}], [("tool", "c1", "dry")]),
    ("list of messages", [{"toolCallId": "c1", "toolName": "weather", "output": "dry"}], [("tool", "c1", "dry")]),
    ("message", {"text": "So", "toolCalls": [{"toolCallId": "c1", "toolName": "weather", "input": {"city": "Rome"}}]}, [("assistant", "So", ROME)]),
    ("prompt", {"prompt": "What do I need?"}, [("user", "What do I need?", [])]),
    ("message", {"type": "AIMessageChunk", "content": "", "tool_calls": [{"name": "weather", "args": {"city": "Rome"}, "id": "c1", "type": "tool_call"}]}, [("assistant", "", ROME)]),  # LangChain, from here on
    ("list of messages", [{"type": "HumanMessage", "content": "What do I need?"}, {"type": "ToolMessageChunk", "content": "dry", "tool_call_id": "c1"}], [("user", "What do I need?", []), ("tool", "c1", "dry")]),
    ("list of messages", [[{"type": "SystemMessage", "content": "Be brief."}, {"type": "human", "content": "What do I need?"}]], [("system", "Be brief.", []), ("user", "What do I need?", [])]),
    ("message", {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": "Dry.", "type": "ai"}}, [("assistant", "Dry.", [])]),
    ("generations", {"generations": [[{"text": "Dry.", "message": {"type": "ai", "content": "Dry."}}]], "llm_output": None}, [("assistant", "Dry.", [])]),
    ("generations", {"generations": [[{"text": "Dry."}]]}, [("assistant", "Dry.", [])]),
    ("Converse reply", {"output": {"message": {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Rome"}}}]}}, "stopReason": "tool_use", "usage": {"inputTokens": 1}}, [("assistant", "", ROME)]),
    ("list of messages", [{"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "dry"}], "status": "success"}}]}], [("tool", "c1", [{"text": "dry"}])]),
    ("words", "Dry.", [("assistant", "Dry.", [])]),
    ("words", "42", [("assistant", "42", [])]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "messages"), FORMS, ids=[f"{place} {one[0]}" for place, one in enumerate(FORMS)]
)
def test_every_form_gives_the_same_messages(name: str, value: Any, messages: list[tuple[Any, ...]]) -> None:
    for written in (value, json.dumps(value)):
        odd: Counter[str] = Counter()
        found = langfuse_messages.read(written, "assistant", odd)
        assert found is not None
        assert (found.form, [plain(said) for said in found.said], odd) == (name, messages, Counter())


def test_the_table_of_forms_is_tried_out_whole() -> None:
    assert {name for name, *_ in FORMS} == set(langfuse_messages.FORMS)


@pytest.mark.parametrize(
    "value", [{}, [], {"strange": 1}, [1], [{"title": "a"}], 7, None, {"choices": []}, {"messages": 5}]
)
def test_what_is_in_no_form_is_left_to_the_asker(value: Any) -> None:
    assert langfuse_messages.read(value, "user", Counter()) is None


@pytest.mark.parametrize(
    ("value", "oddity", "said"),
    [
        ([QUESTION, {"title": "a"}], "unknown-message", [("user", "What do I need?", [])]),
        ([QUESTION, {"role": "narrator", "content": "x"}], "unknown-message", [("user", "What do I need?", [])]),
        ([{"role": "user", "content": [{"type": "hologram"}]}], "unknown-part", [("user", "[hologram]", [])]),
        ([{"role": "user", "content": [7]}], "unknown-part", [("user", "", [])]),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], None, [("user", "[image_url]", [])]),
    ],
)
def test_what_no_form_of_a_message_knows_is_counted(value: Any, oddity: str | None, said: list[Any]) -> None:
    odd: Counter[str] = Counter()
    found = langfuse_messages.read(value, "user", odd)
    assert found is not None
    assert [plain(one) for one in found.said] == said
    assert odd == ({oddity: 1} if oddity else {})


def test_what_a_message_says_beside_its_words_stays_with_it() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}
    content = [{"type": "text", "text": "Look:", "cache": 1}, image]
    found = langfuse_messages.read([{"role": "human", "content": content, "id": "m"}], "user", Counter())
    assert found is not None
    (said,) = found.said
    assert (said.text, said.extra) == ("Look:\n[image_url]", {"role": "human", "content": content, "id": "m"})


def test_messages_are_gathered_from_attributes() -> None:
    start = "llm.input_messages"
    attributes = {
        f"{start}.10.message.role": "tool",
        f"{start}.10.message.tool_call_id": "c1",
        f"{start}.10.message.content": "dry",
        f"{start}.2.message.role": "assistant",
        f"{start}.2.message.tool_calls.0.tool_call.function.name": "weather",
        f"{start}.2.message.tool_calls.0.tool_call.function.arguments": '{"city": "Rome"}',
        f"{start}.2.message.tool_calls.0.tool_call.id": "c1",
        f"{start}.1.message.role": "user",
        f"{start}.1.message.contents.0.message_content.type": "text",
        f"{start}.1.message.contents.0.message_content.text": "What do I need?",
        "llm.other": 1,
    }
    listed = langfuse_messages.from_attributes(attributes, langfuse_messages.INPUTS)
    found = langfuse_messages.read(listed, "user", Counter())
    assert found is not None
    assert [plain(said) for said in found.said] == FORMS[0][2]
    older = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "What do I need?"}
    assert langfuse_messages.from_attributes(older, langfuse_messages.INPUTS) == [QUESTION]
    assert langfuse_messages.from_attributes({"llm.other": 1}, langfuse_messages.INPUTS) is None


# ------------------------------------------------------------------------------------------------------------ corpus
FOLDER = "langfuse-traces"
NAMES = {  # observations and their types as SOURCES.md of the corpus counts them; what is odd about each
    "agno-2025-06-11": ({"SPAN": 2, "GENERATION": 4}, {"nested-generation": 2}),
    "autogen-2025-06-06": ({"SPAN": 1, "GENERATION": 1}, {}),
    "beeai-2025-08-01": ({"SPAN": 24, "GENERATION": 5}, {"cut-message": 1, "orphan-result": 1}),
    "crewai-2025-07-11": ({"GENERATION": 1, "SPAN": 5}, {}),
    "google-adk-2025-08-28": ({"GENERATION": 2, "CHAIN": 1, "AGENT": 1, "TOOL": 1}, {"missing-call-id": 1}),
    "google-gemini-2025-08-01": ({"GENERATION": 1}, {}),
    "koog-2025-08-26": ({"AGENT": 2, "SPAN": 7, "GENERATION": 2}, {}),
    "langgraph-python-2025-08-22": ({"SPAN": 7, "GENERATION": 2}, {}),
    "llamaindex-2025-06-05": ({"SPAN": 1, "GENERATION": 1}, {}),
    "openai-agents-2025-09-30": ({"AGENT": 2, "GENERATION": 2, "TOOL": 1}, {}),
    "pydantic-ai-2025-06-06": ({"GENERATION": 1, "SPAN": 2}, {}),
    "pydantic-ai-tools-2025-06-06": ({"SPAN": 2, "GENERATION": 1}, {}),
}
MADE = {  # completions, calls, results, answers on record
    "agno-2025-06-11": (2, 1, 1, 1),
    "beeai-2025-08-01": (3, 0, 0, 1),
    "google-adk-2025-08-28": (2, 1, 1, 1),
    "koog-2025-08-26": (2, 2, 2, 1),
    "langgraph-python-2025-08-22": (2, 1, 1, 1),
    "openai-agents-2025-09-30": (2, 1, 1, 1),
}
WRITTEN_OTHERWISE = {
    *("SPAN", "GENERATION", "AGENT", "TOOL", "CHAIN", "DEFAULT"),
    *("system", "user", "assistant", "tool", "function_call_output"),
}
"""Types, which are roles, and the level of what went well; who speaks, which is the kind of an entry."""


def unpacked(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
async def test_every_trace_of_the_corpus_comes_in_whole(corpus: Path, record: Record, name: str) -> None:
    path = corpus / FOLDER / f"{name}.trace.json.gz"
    done = await import_file(record, path)
    (entries,) = await flawless(record, path, 1)
    whole, (types, oddities) = unpacked(path), NAMES[name]
    assert (done.format, done.runs, done.oddities) == ("langfuse", 1, oddities)
    assert Counter(one["type"] for one in whole["observations"]) == types
    spans = {one["id"]: one for one in whole["observations"]}
    named = [(begin.annotations or {}).get("observation") for begin in contents(entries, BeginContent)]
    assert sorted(one for one in named if one is not None) == sorted(spans)
    assert lost(whole, entries) <= WRITTEN_OTHERWISE
    kinds = (ChatCompletionContent, ToolCallContent, ToolResultContent, AssistantContent)
    assert tuple(len(contents(entries, kind)) for kind in kinds) == MADE.get(name, (1, 0, 0, 1))
    assert reasons(entries) == ["answered"]
    assert unexplained(entries).entries == {}
    assert unexplained(entries).answers == ()


def test_no_trace_of_the_corpus_is_left_out(corpus: Path) -> None:
    assert {path.name.split(".")[0] for path in (corpus / FOLDER).glob("*.trace.json.gz")} == set(NAMES)


# ------------------------------------------------------------------------------------------------------------ oracle
def of_oracle(message: dict[str, Any]) -> tuple[Any, ...]:
    """A message as the product itself normalised it."""
    role = {"model": "assistant"}.get(message["role"], message["role"])
    if role == "tool":
        return role, message.get("tool_call_id"), message["content"]
    calls = [(one["id"] or None, one["name"], json.loads(one["arguments"])) for one in message.get("tool_calls") or []]
    return role, message.get("content") or "", calls


def reread(message: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """What the product left as it came, read by what stands there, and the class of this difference."""
    role, text = message[0], message[2 if message[0] == "tool" else 1]
    value = value_in(text) if isinstance(text, str) else text
    if isinstance(value, list) and all("function" in one for one in value):
        made = [(one["id"], one["function"]["name"], json.loads(one["function"]["arguments"])) for one in value]
        return "calls written as a text", ("assistant", "", made)
    if isinstance(value, list) and all(one.keys() == {"type", "text"} for one in value):
        return "words in parts", (role, "\n".join(one["text"] for one in value), message[2])
    if role == "user" and isinstance(value, dict):
        return "a result as if the person said it", ("tool", None, value)
    return "another", message


def compared(name: str, corpus: Path) -> tuple[Counter[str], list[Any]]:
    """Each message of each generation as read here and as the product expects it: how they compare, by class."""
    whole = unpacked(corpus / FOLDER / f"{name}.trace.json.gz")
    oracle, classes = unpacked(corpus / FOLDER / f"{name}.chatml.json.gz"), Counter[str]()
    different: list[Any] = []
    anywhere = all_texts(whole)
    for one in (one for one in whole["observations"] if one["type"] == "GENERATION"):
        for side, by in (("input", "user"), ("output", "assistant")):
            expected = oracle.get(one["id"], {}).get(side)
            if one[side] is None or not expected["success"]:
                classes["no messages for the product" if one[side] else "no words at all"] += 1
                continue
            given = langfuse_messages.read(one[side], by, Counter())
            assert given is not None
            ours: list[Any] = [("system", given.instructions, [])] if given.instructions and side == "input" else []
            for own, message in zip([*ours, *map(plain, given.said)], expected["data"], strict=True):
                if "role" not in message:  # the product kept it unread: what is read here stands elsewhere, too
                    same, theirs = "unread by the product", own
                    different += [] if set(texts(own)) - {own[0]} - {""} <= anywhere else [(name, one["id"], own, None)]
                else:
                    same, theirs = "the same", of_oracle(message)
                    same, theirs = (same, theirs) if own == theirs else reread(theirs)
                classes[same] += 1
                different += [(name, one["id"], own, theirs)] if own != theirs else []
    return classes, different


def test_every_generation_says_what_the_product_expects(corpus: Path) -> None:
    """Nothing differs: what is in a class of its own stands unread in the product's form, and says the same."""
    classes, different = Counter[str](), []
    for name in NAMES:
        found = compared(name, corpus)
        classes.update(found[0])
        different += found[1]
    assert different == []
    assert classes == {
        "the same": 41,
        "words in parts": 6,
        "calls written as a text": 4,
        "a result as if the person said it": 1,
        "unread by the product": 8,
        "no messages for the product": 9,
        "no words at all": 7,
    }


Words = tuple[list[tuple[str, str]], list[tuple[str, Any]], list[str]]


def of_history(messages: Sequence[Message]) -> Words:
    """Who said what, what was called with what, and what came of it."""
    said = [(str(one.role), one.text) for one in messages if one.role != "tool" and one.text]
    calls: list[tuple[str, Any]] = [(one.name, one.args) for message in messages for one in message.calls]
    return said, calls, [one.text for one in messages if one.role == "tool"]


def of_request(every: Sequence[Said]) -> Words:
    """The same of a request; instructions are in the header."""
    said = [(one.role, one.text) for one in every if one.role not in ("system", "tool") and one.text]
    calls = [(name, args) for one in every if one.role == "assistant" for _, name, args in plain(one)[2]]
    return said, calls, [observation_text(one.result) for one in every if one.role == "tool"]


@pytest.mark.parametrize("name", NAMES)
async def test_the_history_before_a_completion_is_its_request(corpus: Path, record: Record, name: str) -> None:
    """What stands on record when a model gave something is what it was given, message by message."""
    await import_file(record, corpus / FOLDER / f"{name}.trace.json.gz")
    (entries,) = await conversations(record)
    given = {one["id"]: one for one in unpacked(corpus / FOLDER / f"{name}.trace.json.gz")["observations"]}
    spans = {entry.seq: entry.content for entry in entries if isinstance(entry.content, BeginContent)}
    checked = 0
    for place, entry in enumerate(entries):
        one = given.get((spans[entry.span].annotations or {}).get("observation", ""), {})
        if isinstance(entry.content, ChatCompletionContent) and one.get("output") is not None:
            asked = langfuse_messages.read(one["input"], "user", Counter())
            assert asked is not None
            assert of_history(formatted(entries[:place])) == of_request(asked.said)
            checked += 1
    assert checked == {"beeai-2025-08-01": 0}.get(name, MADE.get(name, (1,))[0])  # which saw no replies


# ------------------------------------------------------------------------------------------------------ nobody's data
WHOLE = {
    **SMALL,
    "observations": [
        *SMALL["observations"],
        observed("n", "GENERATION", 1.2, 1.8, "g1", input="user: What do I need?", output="None"),
        observed("s", "SPAN", 3, 4, "t", metadata=json.dumps({"attributes": {"openinference.span.kind": "CHAIN"}})),
        observed("e", "EVENT", 3, None, "s", input={"a": [1]}),
        observed(
            "g3",
            "GENERATION",
            6,
            7,
            "a",
            input=[*(FORMS[place][1][0] for place in range(6)), "role='user' content='x' name=None"],
            output={"object": "response", "output": FORMS[2][1], "usage": {"input_tokens": 1}, "tools": [TOOL]},
            usageDetails={"input": 5, "output": 2},
        ),
        observed("g4", "GENERATION", 7, 8, "a", input=FORMS[8][1], output=FORMS[12][1], statusMessage="x"),
    ],
}


@given(text=spoilt(WHOLE))
async def test_no_content_of_a_trace_breaks_an_import(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    await endured(tmp_path_factory.mktemp("any") / "any.json", text, "langfuse")


def opened(value: Any) -> Any:
    """A document in which no value stands as a text."""
    if isinstance(value, dict):
        return {key: opened(each) for key, each in value.items()}
    if isinstance(value, list):
        return [opened(each) for each in value]
    inner = value_in(value) if isinstance(value, str) else None
    return value if inner is None else opened(inner)


@pytest.mark.slow
def test_whatever_stands_anywhere_in_a_trace_is_kept(path: Path) -> None:
    assert unkept(path, opened(WHOLE), langfuse.read) == []


@given(value=VALUES, by=st.sampled_from(["user", "assistant", "tool"]))
def test_no_value_breaks_the_reading_of_messages(value: Any, by: str) -> None:
    langfuse_messages.read(value, by, Counter())
    langfuse_messages.read(repr(value), by, Counter())
    langfuse_messages.read([{"role": by, "content": repr([value]), "tool_calls": value}], by, Counter())


@pytest.mark.parametrize(
    "document", ['{"trace": 1, "observations": []}', '{"trace": {}, "observations": {}}', "[]", "7"]
)
async def test_what_is_no_trace_is_refused(record: Record, path: Path, document: str) -> None:
    put(path, f"{json.dumps(trace())}\n{document}")
    with pytest.raises(
        BadImport, match="expected a trace with its list of observations, found something else in document 2"
    ):
        await import_file(record, path, "langfuse")
    assert await record.store.runs() == []


async def test_several_traces_of_one_file_are_several_runs(record: Record, path: Path) -> None:
    put(path, "\n".join(json.dumps(each) for each in (SMALL, trace(), trace(observed("a", "SPAN", 0, 1)))))
    done = await import_file(record, path)
    assert (done.runs, done.oddities) == (3, {})
    assert find_format(Source(path)).name == "langfuse"
    rows = await record.store.runs()
    assert [(row.session, row.name) for row in rows] == [
        ("trace/t-1", "guide"),
        ("trace/t", "guide"),
        ("trace/t~2", "guide"),
    ]
    await flawless(record, path, 3)


# -------------------------------------------------------------------------------------------------- values in a text
@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"a": [1, -2.5, 1e300, None, True, False]},
        [("it's", 'a "word"'), (1,), ((),)],
        {"lines": "a\r\n\tb\\", "odd": "\x00\x7f\u2028\ud800😀"},
        [[[["deep"]]], {"b": {"c": {}}}],
    ],
)
def test_what_python_shows_is_read_back(value: Any) -> None:
    assert python_text.whole(repr(value)) == json.loads(json.dumps(value))
    assert python_text.fields(f"a={value!r} b='x' c=<Timer 7>") == {"a": json.loads(json.dumps(value)), "b": "x"}


@pytest.mark.parametrize(
    "text", ["[", "[1", "{'a'}", "{1, 2}", "[x]", "[1] 2", "['a", "[f('a')]", "[1,,2]", "[0x1]", "(1)", ""]
)
def test_what_is_no_value_is_left_as_text(text: str) -> None:
    assert python_text.whole(text) is None
    assert python_text.decoded(text) == text


@pytest.mark.slow
def test_reading_a_text_back_is_linear() -> None:
    """A hostile text costs its length: hundreds of thousands of brackets, quotes or escapes."""
    for piece in ("[", "'", "\\", "{'", "[1,", "(("):
        python_text.whole("[" + piece * 50_000)
        python_text.fields(f"a={piece * 50_000}")
