"""Conversations as OpenAI takes them for fine-tuning: every message has its place, and nobody's data breaks anything."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ribs.test_bridges import (
    BIG,
    DEEP,
    VALUES,
    contents,
    conversations,
    formatted,
    put,
    reasons,
    sound,
    told,
    valid,
)
from tests.validators.chat_completions import history_violations

import gesta
from gesta.address import open_record
from gesta.entry import Entry
from gesta.importers.file import import_file
from gesta.importers.foreign import ODDITIES, Imported
from gesta.importers.known import find_format
from gesta.importers.source import BadImport, Source
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    EndContent,
    RequestHeaderContent,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.message import Message
from gesta.record.record import Record

EMPTY = "messages: empty array, needs an item at least"
DEFAULTS = {"system", "user", "assistant", "tool", "text", "function"}
"""Texts that say what the kind of an entry says: roles, and the usual types of parts and calls."""


# ------------------------------------------------------------------------------------- shared with other importers
def texts(value: Any) -> Iterator[str]:
    """Every text in a value, without the names of members."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from texts(each)
        case list() | tuple():
            for each in value:
                yield from texts(each)


def lost(document: Any, entries: Sequence[Entry]) -> set[str]:
    """Texts of a source that no entry holds, but for `DEFAULTS` and arguments that were JSON and now are an object."""
    held = DEFAULTS | {""}
    for entry in entries:
        held.update(texts(msgspec.to_builtins(entry.content)))
    left = {text for text in texts(document) if text not in held}
    args = [call.tool_args for call in contents(entries, ToolCallContent)] if left else []
    return {text for text in left if read(text) not in args}


def read(text: str) -> Any:
    """What a text says as JSON."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def refused(history: Sequence[Message]) -> list[str]:
    """What a provider would say against this history; that there is none yet is not a fault of it."""
    asked = gesta.scripted("x")
    return [found for found in history_violations([json.loads(asked.encode(one)) for one in history]) if found != EMPTY]


def lines(entries: Sequence[Entry]) -> list[str]:
    """Each entry with its causes and with what was concluded; times never are in the source."""
    made = []
    for entry in entries:
        inferred = [one for one in (entry.annotations or {}).get("inferred", []) if one != "at"]
        made.append(told(entry) + (f" ?{','.join(inferred)}" if inferred else ""))
    return made


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value: a container, and a key or index in it."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


@st.composite
def damaged(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """The document, with some of its values anywhere gone or replaced by others."""
    whole: dict[str, Any] = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 4))):
        every = list(places(whole))
        if not every:
            break
        container, key = draw(st.sampled_from(every))
        if draw(st.booleans()):
            container[key] = draw(VALUES)
        else:
            del container[key]
    return whole


async def survives(path: Path, document: Any, format: str) -> None:
    """A damaged document is refused, or comes in whole and sound; a second time there is nothing to do."""
    text = json.dumps(document).replace(json.dumps(BIG), "9" * 5000)
    put(path, text.replace(json.dumps(DEEP), "[" * 700 + "]" * 700))
    async with open_record() as record:
        try:
            done = await import_file(record, path, format)
        except BadImport:
            assert await record.store.runs() == []
            return
        (entries,) = await conversations(record)
        sound(entries)
        for end in range(len(entries) + 1):
            valid(formatted(entries[:end]))
        assert refused(formatted(entries)) == []
        assert lost(document, entries) - {BIG, DEEP} == set()
        messages = [DEEP] if document["messages"] == DEEP else document["messages"]  # a list in lists has one member
        assert sum("message" in (entry.annotations or {}) for entry in entries) == len(messages)
        assert set(done.oddities) <= set(ODDITIES)
        assert await record.verify() == []
        again = await import_file(record, path, format)
        assert (again.runs, again.entries, again.skipped) == (0, 0, 1)


# ---------------------------------------------------------------------------------------------------------- messages
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Today's weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": True,
    },
}
FULL: dict[str, Any] = {
    "messages": [
        {"role": "developer", "content": "Be brief.", "name": "desk"},
        {"role": "user", "content": [{"type": "text", "text": "Rome and Oslo?"}], "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "weight": 0,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
                {"id": "b", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "name": "weather", "content": "snow"},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "dry"}]},
        {"role": "assistant", "content": "Rome dry, Oslo snow.", "weight": 1},
        {"role": "user", "content": "And a bomb?"},
        {"role": "assistant", "content": None, "refusal": "I cannot help with that."},
    ],
    "tools": [WEATHER],
    "parallel_tool_calls": True,
}


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train.jsonl"


def conversation(*messages: Any, **members: Any) -> dict[str, Any]:
    return {"messages": list(messages), **members}


async def come_in(record: Record, path: Path, *documents: Any) -> Imported:
    put(path, "".join(json.dumps(document) + "\n" for document in documents))
    done = await import_file(record, path)
    assert done.format == "openai-chat"
    assert await record.verify() == []
    for entries, document in zip(await conversations(record), documents, strict=True):
        sound(entries)
        for end in range(len(entries) + 1):
            valid(formatted(entries[:end]))
        assert refused(formatted(entries)) == []
        assert lost(document, entries) == set()
    return done


async def test_a_conversation_becomes_turns_with_what_the_model_was_offered(record: Record, path: Path) -> None:
    done = await come_in(record, path, FULL)
    assert done == Imported(runs=1, entries=18, skipped=0, format="openai-chat")
    (entries,) = await conversations(record)
    header = entries[1]
    assert lines(entries[:1]) + lines(entries[2:]) == [
        "begin import",
        "end",
        "begin turn",
        "user 'Rome and Oslo?'",
        "chat-completion '' <1 ?causes",
        "tool-call weather({'city': 'Rome'}) success <1",
        "tool-call weather({'city': 'Oslo'}) success <2",
        "tool-result snow ok <1 ?status",
        "tool-result dry ok <3 ?status",
        "chat-completion 'Rome dry, Oslo snow.' <2 <1 ?causes",
        "assistant 'Rome dry, Oslo snow.' <1",
        "end answered",
        "begin turn",
        "user 'And a bomb?'",
        "chat-completion 'I cannot help with that.' <5 <1 ?causes",
        "assistant 'I cannot help with that.' <1",
        "end answered ?reason",
    ]
    assert header.content == RequestHeaderContent(
        meta={"instructions": "Be brief."},
        tools=[
            {
                "name": "weather",
                "description": "Today's weather in a city.",
                "args_schema": WEATHER["function"]["parameters"],
                "extra": {"function": {"strict": True}},
            }
        ],
        extra={"role": "developer", "name": "desk"},
    )
    assert [(entry.seq, entry.content.extra) for entry in entries if entry.content.extra] == [
        (2, {"role": "developer", "name": "desk"}),
        (5, {"name": "ann"}),
        (6, {"weight": 0}),
        (11, {"weight": 1}),
        (16, {"refusal": "I cannot help with that."}),
    ]
    assert {entry.at for entry in entries} == {entries[0].at}, "the source has no times"


async def test_a_call_of_the_older_kind_is_answered_by_the_function_that_it_called(record: Record, path: Path) -> None:
    function: dict[str, Any] = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
    called = {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}}
    done = await come_in(
        record,
        path,
        conversation(
            {"role": "user", "content": "Rome?"},
            called,
            {"role": "function", "name": "weather", "content": "dry"},
            called,
            {"role": "function", "name": "clock", "content": "noon"},
            {"role": "assistant", "content": "Dry."},
            functions=[function],
        ),
    )
    assert done.oddities == {"missing-call-id": 2, "missing-result-id": 2}
    (entries,) = await conversations(record)
    (header,) = contents(entries, RequestHeaderContent)
    schema = function["parameters"]
    assert header == RequestHeaderContent(tools=[{"name": "weather", "description": "", "args_schema": schema}])
    assert lines(entries)[4:-2] == [
        "user 'Rome?'",
        "chat-completion '' <1 ?causes",
        "tool-call weather({}) success <1",
        "tool-result dry ok <1 ?call,causes,status",
        "chat-completion '' <1 ?causes",
        "tool-call weather({}) success <1",
        "tool-result noon ok <1 ?call,causes,status",
        "chat-completion 'Dry.' <1 ?causes",
    ]
    results = contents(entries, ToolResultContent)
    assert [result.extra for result in results] == [{"role": "function"}, {"role": "function", "name": "clock"}]


@pytest.mark.parametrize(
    ("content", "text", "kept"),
    [
        ("words", "words", False),
        (None, "", False),
        ([], "", False),
        ([{"type": "text", "text": "words"}], "words", False),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo", True),
        ([{"type": "input_text", "text": "see"}, {"type": "output_text", "text": "it"}], "see\nit", True),
        ([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "u"}}], "see\n[image]", True),
        ([{"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}}], "[audio]", True),
        ([{"type": "file", "file": {"file_id": "f"}}], "[file]", True),
        ([{"type": "hologram\n", "rays": [1]}], "[hologram?]", True),
        ([{"type": "text", "text": "words", "annotations": ["a"]}], "words", True),
        ([{"type": "text", "text": 5}], "[text]", True),
        ([{"type": "refusal", "refusal": "No."}], "No.", True),
    ],
)
async def test_parts_become_text_and_what_is_no_text_is_kept(
    record: Record, path: Path, content: Any, text: str, kept: bool
) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
    said = [
        {"role": role, "content": content} for role in ("system", "developer", "user", "assistant", "user", "assistant")
    ]
    said[4]["content"], said[5] = "go", said[5] | {"tool_calls": [call]}
    await come_in(record, path, conversation(*said, {"role": "tool", "tool_call_id": "a", "content": content}))
    (entries,) = await conversations(record)
    every = [entry.content for entry in entries if "message" in (entry.annotations or {})]
    header, system, user, answer, _, step, result = every
    assert isinstance(header, RequestHeaderContent)
    assert header.meta == {"instructions": text}
    assert isinstance(system, SystemContent)
    assert isinstance(user, UserContent)
    assert isinstance(answer, ChatCompletionContent)
    assert isinstance(step, ChatCompletionContent)
    assert isinstance(result, ToolResultContent)
    assert [system.value, user.value, answer.output, step.output] == [text] * 4
    assert result.tool_result == (content if content in ([], None) else text)
    assert [(one.extra or {}).get("content") for one in every] == [
        content if kept and place != 4 else None for place in range(7)
    ]


async def test_tools_without_a_system_message_stand_in_a_header_of_their_own(record: Record, path: Path) -> None:
    user, system = {"role": "user", "content": "hi"}, {"role": "system", "content": "late"}
    odd = [{"type": "web_search"}, 7, {"type": "function", "function": {"description": "nameless"}}]
    done = await come_in(
        record,
        path,
        conversation(user, system, tools=[WEATHER, *odd], functions={"name": "f"}),
        conversation(system, user, tools=odd),
        conversation(user, tools="none"),
    )
    assert done.oddities == {"wrong-type": 7}
    first, second, third = await conversations(record)
    (header,) = contents(first, RequestHeaderContent)
    assert [tool["name"] for tool in header.tools or []] == ["weather", "f"]
    assert header.meta is None
    assert [one.value for one in contents(first, SystemContent)] == ["late"]
    assert [(one.meta, one.tools) for one in contents(second, RequestHeaderContent)] == [
        ({"instructions": "late"}, None)
    ]
    assert contents(third, RequestHeaderContent) == []
    kept = [[*(contents(one, BeginContent)[0].state or {}).items()] for one in (first, second, third)]
    assert kept == [[("tools", odd)], [("tools", odd)], [("tools", ["none"])]]


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "ended"),
    [
        ([], []),
        ([{"role": "system", "content": "s"}], []),
        ([{"role": "assistant", "content": "hi"}], ["answered"]),
        ([{"role": "user", "content": "hi"}], ["cancelled"]),
        ([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a"}], ["answered"]),
        ([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a"}, 7], ["answered"]),
        ([{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [CALL]}], ["cancelled"]),
        ([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}], ["answered", "cancelled"]),
        (
            [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "a", "content": "x"}],
            ["cancelled"],
        ),
        ([{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}}], ["cancelled"]),
    ],
)
async def test_a_conversation_that_ends_before_an_answer_was_cut_off(
    record: Record, path: Path, messages: list[Any], ended: list[str]
) -> None:
    await come_in(record, path, conversation(*messages))
    (entries,) = await conversations(record)
    assert reasons(entries) == ended
    end = entries[-1].content
    assert isinstance(end, EndContent)
    assert (end.status, end.error is not None) == (("error", True) if "cancelled" in ended else ("success", False))
    assert ("reason" in (entries[-1].annotations or {}).get("inferred", ())) == bool(ended)


async def test_reasoning_and_odd_calls_have_their_place(record: Record, path: Path) -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    odd = {"id": 5, "type": "function", "index": 0, "function": {"name": "f", "arguments": "[1]", "more": "m"}}
    done = await come_in(
        record,
        path,
        conversation(
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": [custom, odd, "call"]},
            {"role": "narrator", "content": "then"},
            {"role": "assistant", "content": "b", "audio": {"id": "audio_1"}},
        ),
    )
    assert done.oddities == {
        "bad-arguments": 1,
        "unknown-member": 1,
        "call-without-name": 2,
        "missing-call-id": 3,
        "unanswered-call": 3,
        "unreadable-message": 1,
        "wrong-type": 3,
    }
    (entries,) = await conversations(record)
    assert "thought 'hm' <1" in lines(entries)
    calls = contents(entries, ToolCallContent)
    assert [call.extra for call in calls] == [
        {"call": custom},
        {"id": 5, "index": 0, "function": {"more": "m"}},
        {"call": "call"},
    ]
    assert [one.value for one in contents(entries, AssistantContent)] == ["b"]


# ------------------------------------------------------------------------------------------------------------- files
async def test_each_line_is_a_conversation_and_comes_in_once(record: Record, path: Path) -> None:
    documents = [FULL, conversation({"role": "user", "content": "hi"}), FULL]
    await come_in(record, path, *documents)
    assert [row.session for row in await record.store.runs()] == ["train/0", "train/1", "train/2"]
    assert {row.name for row in await record.store.runs()} == {"agent"}
    documents.append(conversation({"role": "user", "content": "new"}))
    put(path, "\n\n".join(map(json.dumps, documents)))
    again = await import_file(record, path)
    assert (again.runs, again.skipped) == (1, 3)


async def test_one_document_laid_out_and_a_pack_of_them_are_read_too(record: Record, path: Path) -> None:
    put(path, json.dumps(FULL, indent=2))
    assert (await import_file(record, path)).runs == 1
    path = path.with_name("pack.jsonl")
    put(path, "\n".join(json.dumps({"path": f"p/{place}.json", "data": FULL}) for place in range(2)))
    done = await import_file(record, path)
    assert (done.runs, done.format) == (2, "openai-chat")
    packed = [one for one in await conversations(record) if "path" in (contents(one, BeginContent)[0].state or {})]
    assert [contents(one, BeginContent)[0].state["path"] for one in packed] == ["p/0.json", "p/1.json"]


async def test_a_format_that_also_has_messages_is_not_taken_for_this_one(path: Path) -> None:
    for members, format in (({}, "openai-chat"), ({"suite_name": "s", "user_task_id": "t"}, "agentdojo")):
        put(path, json.dumps({"messages": [], **members}))
        assert find_format(Source(path)).name == format


@pytest.mark.parametrize(
    ("second", "where"), [({"messages": {}}, "document 2"), ([FULL], "document 2"), ("x", "document 2")]
)
async def test_a_line_that_is_no_conversation_is_named_and_nothing_is_written(
    record: Record, path: Path, second: Any, where: str
) -> None:
    put(path, json.dumps(FULL) + "\n" + json.dumps(second))
    with pytest.raises(BadImport, match=f"expected a conversation .* in {where}. Nothing of it was imported"):
        await import_file(record, path, "openai-chat")
    assert await record.store.runs() == []


async def test_a_file_without_conversations_says_so(record: Record, path: Path) -> None:
    put(path, "\n")
    assert (await import_file(record, path, "openai-chat")).oddities == {"no-conversations": 1}


@given(document=damaged(FULL))
async def test_no_damage_of_a_conversation_breaks_an_import_or_loses_a_word(
    tmp_path_factory: pytest.TempPathFactory, document: Any
) -> None:
    await survives(tmp_path_factory.mktemp("any") / "any.jsonl", document, "openai-chat")
