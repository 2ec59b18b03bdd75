"""Runtime events of tau2-bench: pairs become spans, what was said turns, and nothing is told twice."""

import gzip
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.ribs.test_bridges import contents, put, reasons
from tests.ribs.test_import_langfuse import after_import, endured, flawless, line, lost, spoilt, unkept

from gesta.address import open_record
from gesta.entry import Entry
from gesta.importers.file import import_file
from gesta.importers.foreign import Imported
from gesta.importers.known import find_format
from gesta.importers.research import activegraph
from gesta.importers.source import BadImport, Source
from gesta.kinds import BeginContent, ChatCompletionContent, EndContent, KeyValueContent, ToolCallContent
from gesta.record.record import Record
from gesta.views.lineage import unexplained

Event = dict[str, Any]


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runtime_events.jsonl"


# ------------------------------------------------------------------------------------------------- one small simulation
def event(number: int, kind: str, parent: int | None = None, task: Any = None, **inside: Any) -> Event:
    return {
        "component": "tau2",
        "event_id": f"e{number}",
        "event_type": kind,
        "parent_event_id": None if parent is None else f"e{parent}",
        "payload": {"runtime_trace": inside},
        "phase": "baseline",
        "run_id": "r-1",
        "task_id": task,
        "timestamp": f"2026-01-01T10:00:{number % 60:02}.000000+00:00",
        "tool_name": inside.get("tool"),
    }


def message(role: str, content: Any, *calls: Any, **more: Any) -> dict[str, Any]:
    raw = {"role": role, "content": content, "timestamp": "2026-01-01T03:00:00", **more}
    return {"class": role.title(), "raw": raw | ({"tool_calls": list(calls)} if calls else {})}


LOOK = {"id": "c1", "name": "look", "arguments": {"at": 7}, "requestor": "assistant"}
HELLO, ASKED = message("assistant", "Hello!"), message("user", "Is 7 on its way?", cost=0.1)
CALLED = message("assistant", None, LOOK, usage={"prompt_tokens": 4}, raw_data={"model": "m-2"}, cost=0.5)
FOUND: dict[str, Any] = {
    "class": "Tool",
    "raw": {"role": "tool", "id": "c1", "content": "sent", "requestor": "assistant", "error": False},
}
ANSWER, BYE = message("assistant", "Yes.", usage={"prompt_tokens": 5}), message("user", "###STOP###")
SIMULATION: list[Event] = [
    event(1, "batch_start", domain="shop", argv=["run", "--agent-llm", "m"]),
    event(2, "simulation_start", task="t1", domain="shop"),
    event(3, "orchestrator_run_start", task="t1", simulation_id="s-1"),
    event(4, "turn_start", task="t1", message=HELLO),
    event(5, "user_generate_start", input_message=HELLO),
    event(6, "user_generate_end", 5, result=[ASKED["raw"], {"messages": [HELLO["raw"], ASKED["raw"]]}]),
    event(7, "user_response", 4, "t1", message=ASKED),
    event(8, "turn_end", 4, "t1"),
    event(9, "turn_start", task="t1", message=ASKED),
    event(10, "agent_response", 9, "t1", message=CALLED),
    event(11, "turn_end", 9, "t1"),
    event(12, "turn_start", task="t1", message=CALLED),
    event(13, "tool_call_requested", 12, "t1", tool="look", tool_call=LOOK),
    event(14, "tool_dispatch_start", tool="look", arguments={"at": 7}),
    event(15, "tool_dispatch_end", 14, tool="look", response=FOUND, status="ok"),
    event(16, "message_observed", 12, "t1", message=FOUND),
    event(17, "turn_end", 12, "t1"),
    event(18, "turn_start", task="t1", message=FOUND),
    event(19, "agent_response", 18, "t1", message=ANSWER),
    event(20, "turn_end", 18, "t1"),
    event(21, "turn_start", task="t1", message=ANSWER),
    event(22, "user_response", 21, "t1", message=BYE),
    event(23, "turn_end", 21, "t1"),
    event(24, "orchestrator_run_end", 3, "t1"),
    event(25, "evaluation_start", task="t1"),
    event(26, "tool_dispatch_start", tool="look"),
    event(27, "tool_dispatch_end", 26, tool="look", response={**FOUND, "raw": {**FOUND["raw"], "content": "later"}}),
    event(28, "evaluation_end", 25, "t1", reward=1.0),
    event(29, "simulation_end", 2, "t1", termination_reason="user_stop"),
    event(30, "batch_end", 1),
]


def events(path: Path, *every: Any) -> Path:
    put(path, "\n".join(json.dumps(one) for one in every))
    return path


async def story(record: Record, path: Path, *every: Any) -> tuple[list[Entry], Imported]:
    done = await import_file(record, events(path, *every), "activegraph")
    (entries,) = await flawless(record, path, 1)
    return entries, done


def written_otherwise(source: Sequence[Event]) -> set[str]:
    """Who speaks, which is the kind of an entry; events that begin and end spans, which are named by the rest."""
    return {"user", "assistant", "tool"} | {
        one["event_type"] for one in source if one["event_type"].endswith(("_start", "_end"))
    }


async def test_events_become_spans_beside_the_turns(record: Record, path: Path) -> None:
    entries, done = await story(record, path, *SIMULATION)
    assert done == Imported(runs=1, entries=len(entries), skipped=0, format="activegraph")
    assert find_format(Source(path)).name == "activegraph"
    assert [(row.session, row.name) for row in await record.store.runs()] == [("runtime_events/s-1", "shop")]
    assert [text if len(text) < 70 else text[:60] + "…" for text in after_import(entries)] == [
        "3 begin batch batch",
        "4 begin task simulation ?parent",
        "5 begin span orchestrator_run ?parent",
        "6 begin span turn ?parent",
        "7 begin turn shop",
        "7 assistant 'Hello!'",
        "9 begin user user_generate ?parent",
        "9 end <1",
        "6 key-value user_response {'runtime_trace': {'message': {'cl…",
        "7 end answered",
        "13 begin turn shop",
        "13 user 'Is 7 on its way?'",
        "6 end <9",
        "16 begin span turn ?parent",
        "16 key-value agent_response {'runtime_trace': {'message': {'…",
        "13 chat-completion '' <10 <4 ?causes",
        "13 tool-call look({'at': 7}) success <1",
        "16 end <4",
        "21 begin span turn ?parent",
        "21 key-value tool_call_requested {'runtime_trace': {'tool': …",
        "23 begin tool look ?parent",
        "23 end <1",
        "21 key-value message_observed {'runtime_trace': {'message': …",
        "13 tool-result sent ok <7",
        "21 end <6",
        "28 begin span turn ?parent",
        "28 key-value agent_response {'runtime_trace': {'message': {'…",
        "13 chat-completion 'Yes.' <4 ?causes",
        "13 assistant 'Yes.' <1",
        "28 end <4",
        "33 begin span turn ?parent",
        "33 key-value user_response {'runtime_trace': {'message': {'c…",
        "13 end answered",
        "36 begin closing closing",
        "36 user '###STOP###'",
        "36 end",
        "33 end <6",
        "5 end <35",
        "41 begin span evaluation ?parent",
        "42 begin tool look ?parent",
        "42 end <1",
        "41 end <3",
        "4 end <41",
        "3 end <43",
    ]
    assert lost(SIMULATION, entries) <= written_otherwise(SIMULATION)
    assert [call.model for call in contents(entries, ChatCompletionContent)] == ["m-2", "m"]
    assert str(entries[7].at) == "2026-01-01 10:00:04+00:00"
    assert contents(entries, ChatCompletionContent)[0].extra == {"timestamp": "2026-01-01T03:00:00"}


async def test_what_is_told_again_is_a_reference(record: Record, path: Path) -> None:
    entries, _ = await story(record, path, *SIMULATION)
    states: dict[Any, Any] = {(entry.annotations or {}).get("event"): entry.content for entry in entries}
    assert states["e5"].state == {"runtime_trace": {"input_message": {"class": "Assistant", "raw": {"message": 0}}}}
    assert states["e6"].state == {
        "runtime_trace": {"result": [{"message": 1}, {"messages": [{"message": 0}, {"message": 1}]}]}
    }
    assert states["e16"].value == {"runtime_trace": {"message": {"class": "Tool", "raw": {"message": 3}}}}
    places = [(entry.annotations or {}).get("message") for entry in entries]
    assert [place for place in places if place is not None] == [0, 1, 2, 3, 4, 5]
    assert states["e27"].state["runtime_trace"]["response"]["raw"]["content"] == "later", "it is another result"


async def test_each_simulation_is_a_run_with_all_that_is_around_them(record: Record, path: Path) -> None:
    """Those that run side by side are told apart by parents and tasks, or else taken for the one that was last."""
    sides = [
        [
            {
                **one,
                "event_id": side + one["event_id"],
                "parent_event_id": one["parent_event_id"] and side + one["parent_event_id"],
                "task_id": one["task_id"] and f"t{side}",
            }
            for one in SIMULATION[1:-1]
        ]
        for side in "ab"
    ]
    cuts = [0, 2, 7, 10, 16, 23, len(sides[0])]
    mixed = [one for begin, end in pairwise(cuts) for side in sides for one in side[begin:end]]
    done = await import_file(record, events(path, SIMULATION[0], *mixed, SIMULATION[-1]))
    assert (done.runs, done.oddities) == (2, {})
    every = await flawless(record, path, 2)
    for entries, own in zip(every, "ab", strict=True):
        named = [str(name) for entry in entries if (name := (entry.annotations or {}).get("event"))]
        assert {name[0] for name in named} == {own, "e"}
        assert len(named) == len(SIMULATION)
    assert sorted(row.session for row in await record.store.runs()) == [
        "runtime_events/s-1",
        "runtime_events/s-1~1",
    ]


async def test_events_without_a_simulation_are_one_run(record: Record, path: Path) -> None:
    entries, done = await story(record, path, SIMULATION[0], SIMULATION[-1])
    assert done.oddities == {}
    assert after_import(entries) == ["3 begin batch batch", "3 end <1"]
    assert reasons(entries) == []


async def test_spans_that_do_not_pair_are_kept_and_counted(record: Record, path: Path) -> None:
    entries, done = await story(
        record,
        path,
        event(1, "batch_end"),
        event(2, "a_start"),
        event(3, "b_start", 2),
        event(4, "c_start", 99),
        event(5, "a_end", 2, status="error", error="no disk"),
        event(6, "c_end", 4),
        event(7, "d_start"),
        event(8, "d_end"),
        event(9, "e_start"),
        event(10, "seen", 2),
        7,
        {"event_type": None},
    )
    assert done.oddities == {"missing-parent": 1, "unbegun-span": 2, "unended-span": 3, "unreadable-message": 2}
    assert after_import(entries) == [
        "3 begin event batch_end",
        "3 key-value batch_end {'runtime_trace': {}}",
        "3 end",
        "6 begin span a",
        "7 begin span b <1",
        "8 begin span c ?parent",
        "8 end ?at",
        "7 end ?at",
        "6 end <5",
        "12 begin event c_end",
        "12 key-value c_end {'runtime_trace': {}} <5",
        "12 end",
        "15 begin span d",
        "15 end <1 ?span,causes",
        "17 begin span e",
        "17 key-value seen {'runtime_trace': {}} <12",
        "17 key-value unreadable-message 7 ?at",
        "17 key-value unreadable-message {'event_type': None} ?at",
        "17 end ?at",
    ]
    errors = [(end.error.type, end.error.message) for end in contents(entries, EndContent) if end.error]
    assert errors[2] == ("error", "no disk")
    assert [type for type, _ in errors] == ["unfinished", "unfinished", "error", "unfinished"]


async def test_a_simulation_that_never_ends_comes_in_as_far_as_it_went(record: Record, path: Path) -> None:
    entries, done = await story(record, path, *SIMULATION[:11])
    assert done.oddities == {"unanswered-call": 1, "unended-span": 3}
    assert reasons(entries) == ["answered", "limit"]
    assert [line(entry) for entry in entries[-5:]] == [
        "13 end limit ?reason",
        "16 end <5",
        "5 end ?at",
        "4 end ?at",
        "3 end ?at",
    ]


@pytest.mark.parametrize("data", [b"", b" \n\n", gzip.compress(b"", mtime=0)])
async def test_an_empty_file_is_said_to_be_empty(record: Record, tmp_path_factory: Any, data: bytes) -> None:
    """What it would be cannot be seen; whoever says what it is, is told that it holds nothing."""
    path = written(tmp_path_factory.mktemp("empty"), data)
    with pytest.raises(BadImport, match="its format is not known; it is an empty file"):
        await import_file(record, path)
    done = await import_file(record, path, "activegraph")
    assert done == Imported(runs=0, entries=0, skipped=0, format="activegraph", oddities={"no-conversations": 1})
    assert await record.store.runs() == []


def written(folder: Path, data: bytes) -> Path:
    path = folder / "observer_events.jsonl"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["20260601-041151-558787-retail", "20260601-041221-091109-telecom"])
async def test_the_empty_files_of_the_corpus_hold_nothing(corpus: Path, record: Record, name: str) -> None:
    path = corpus / FOLDER / name / "observer_events.jsonl.gz"
    with pytest.raises(BadImport, match="it is an empty file"):
        await import_file(record, path)
    done = await import_file(record, path, "activegraph")
    assert (done.runs, done.oddities) == (0, {"no-conversations": 1})


@pytest.mark.slow
def test_whatever_stands_anywhere_in_an_event_is_kept(path: Path) -> None:
    assert unkept(path, SIMULATION[:20], activegraph.read, lines=True) == []


@given(text=spoilt(SIMULATION, lines=True))
async def test_no_content_of_an_event_breaks_an_import(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    await endured(tmp_path_factory.mktemp("any") / "any.jsonl", text, "activegraph")


# ------------------------------------------------------------------------------------------------------------ corpus
FOLDER = "activegraph-tau2"
COUNTS = {  # simulations, and events as MANIFEST.json of the corpus counts them
    "20260531-153843-240865-mock": (1, 30),
    "20260531-155904-128551-mock": (1, 44),
    "20260531-170523-841701-mock": (1, 48),
    "20260531-170618-525260-mock": (1, 44),
    "20260531-184109-726391-mock": (10, 446),
    "20260531-191847-173904-mock": (1, 85),
    "20260601-041151-558787-retail": (1, 120),
    "20260601-041221-091109-telecom": (1, 164),
}
AROUND = 6
"""Events around the simulations of each file: begins and ends of the trace, the batch and the saving of results."""


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", COUNTS)
async def test_every_run_of_the_corpus_comes_in_whole(corpus: Path, record: Record, name: str) -> None:
    path, (runs, count) = corpus / FOLDER / name / "runtime_events.jsonl.gz", COUNTS[name]
    done = await import_file(record, path)
    assert (done.format, done.runs, done.oddities) == ("activegraph", runs, {})
    every = await flawless(record, path, runs)
    source = [json.loads(text) for text in gzip.decompress(path.read_bytes()).splitlines()]
    assert len(source) == count
    told = Counter((entry.annotations or {}).get("event") for entries in every for entry in entries)
    del told[None]
    assert set(told) == {one["event_id"] for one in source}
    assert told.total() == count + AROUND * (runs - 1)
    assert Counter(told.values()) == Counter({1: count}) if runs == 1 else Counter({1: count - AROUND, runs: AROUND})
    assert lost(source, [entry for entries in every for entry in entries]) <= written_otherwise(source)
    for entries in every:
        assert unexplained(entries).entries == {}
        by_id = {event: entry for entry in entries if (event := (entry.annotations or {}).get("event"))}
        parents = {one["event_id"]: one["parent_event_id"] for one in source if one["parent_event_id"]}
        linked = {event: by_id[parents[event]].seq for event in by_id if event in parents}
        assert all(seq in by_id[event].causes for event, seq in linked.items())


def said(entries: Sequence[Entry]) -> list[Any]:
    """What was said and done, message by message: the same of both importers."""
    found: list[Any] = []
    for entry in entries:
        content = entry.content
        if "message" in (entry.annotations or {}):
            words = [
                getattr(content, name, None) for name in ("value", "output", "tool_result", "tool_call_id", "usage")
            ]
            found.append((content.kind.value, words))
        elif isinstance(content, ToolCallContent):
            found.append(("call", [content.tool_name, content.tool_args, content.tool_call_id]))
        elif isinstance(content, KeyValueContent) and content.key == "user-tool-call":
            found.append(("call", content.value))
    return found


def dialogue(entries: Sequence[Entry]) -> list[Any]:
    """What is in the conversation, without the spans of events, and in each call only what is called."""
    roles = ("turn", "closing", "user-tools")
    spans = {entry.seq for entry in entries if isinstance(entry.content, BeginContent) and entry.content.role in roles}
    shown = (line(entry).partition(" ")[2] for entry in entries if entry.span in spans)
    return [re.split(r"\(\{| <| \?", one)[0] for one in shown]


async def test_events_tell_the_same_as_the_results_beside_them(corpus: Path) -> None:
    """Two files of one run, and two ways to read them: the same messages, calls and results, and the same turns."""
    classes: Counter[str] = Counter()
    for name in COUNTS:
        async with open_record() as record:
            await import_file(record, corpus / FOLDER / name / "runtime_events.jsonl.gz")
            await import_file(record, corpus / FOLDER / name / "results.json.gz")
            runs = {row.session: await record.read(row.run) for row in await record.store.runs()}
            results = {session.partition("/")[2]: one for session, one in runs.items() if session.startswith("results")}
            traced = {session.partition("/")[2]: one for session, one in runs.items() if session.startswith("runtime")}
        assert results.keys() == traced.keys()
        for id, entries in traced.items():
            own, theirs = said(entries), said(results[id])
            for kind, _ in theirs:
                classes["calls" if kind == "call" else "messages"] += 1
            if own == theirs:
                assert dialogue(entries) == dialogue(results[id])
                classes["the same"] += 1
                continue
            more = len(theirs) - len(own)  # what a task gives as history was said before; events tell its last message
            assert own[1:] == theirs[more + 1 :]
            assert (own[0][0], own[0][1][0]) == ("assistant", theirs[more][1][1])
            classes["with a history from the task"] += 1
            for kind, _ in theirs[:more]:
                classes[f"{'calls' if kind == 'call' else 'messages'} of that history, in no event"] += 1
    assert classes == {
        "messages": 162,
        "calls": 38,
        "the same": 15,
        "with a history from the task": 2,
        "messages of that history, in no event": 6,
        "calls of that history, in no event": 2,
    }
