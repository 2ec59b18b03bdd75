"""Trajectories of mini-swe-agent come in whole, and nothing in them stops an import or an agent that goes on."""

import copy
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import sampled
from tests.ribs.test_bridges import BIG, DEEP, VALUES, contents, conversations, put, reasons, told
from tests.validators.chat_completions import history_violations

import gesta
from gesta.address import open_record
from gesta.codec.rows import Secret
from gesta.entry import Entry
from gesta.formatters.tool_calls import ToolCalls
from gesta.importers.file import import_file
from gesta.importers.foreign import ODDITIES
from gesta.importers.known import find_format
from gesta.importers.source import BadImport, Source
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    EndContent,
    Kind,
    RequestHeaderContent,
    SystemContent,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
)
from gesta.prompt import Prompt
from gesta.record.record import Record
from gesta.views.lineage import unexplained

SHORT = 4
"""Strings of so many characters or fewer are in any text."""
SAID = {"function", "assistant", "system"}
"""Strings that the kind of an entry says: types of calls, roles."""
MODEL = gesta.scripted("unused")


# --------------------------------------------------------------- what every importer of these agents owes, see below
def history(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The messages that the next request of a run would have."""
    prompt = Prompt(ToolCalls(), MODEL)
    for entry in entries:
        prompt.add(entry)
    prompt.close()
    return [json.loads(block) for block in prompt.blocks]


def accepted(entries: Sequence[Entry], step: int = 1) -> None:
    """Every history is taken by the API, at every prefix or at each after so many entries."""
    for end in {*range(0, len(entries) + 1, step), len(entries)}:
        messages = [json.loads(json.dumps(message)) for message in history(entries[:end])]
        assert not messages or history_violations(messages) == []


def nested(entries: Sequence[Entry]) -> None:
    """Spans nest and end, turns have a reason, causes stand before."""
    open_spans: list[int] = []
    begun = {entry.seq: entry.content for entry in entries if isinstance(entry.content, BeginContent)}
    for entry in entries:
        assert all(isinstance(cause, int) and cause < entry.seq for cause in entry.causes)
        if isinstance(entry.content, BeginContent):
            open_spans.append(entry.seq)
        assert entry.span == open_spans[-1]
        if isinstance(entry.content, EndContent):
            begin = begun[open_spans.pop()]
            assert (entry.content.reason is not None) == (begin.role == "turn")
    assert not open_spans


def leaves(value: Any) -> list[str]:
    """All strings in a value."""
    found, left = [], [value]
    while left:
        match left.pop():
            case str() as text:
                found.append(text)
            case dict() as members:
                left += members.values()
            case list() | tuple() as items:
                left += items
            case other:
                left += [getattr(other, name) for name in getattr(other, "__struct_fields__", ())]
    return found


def lost(value: Any, entries: Sequence[Entry]) -> list[str]:
    """Strings of a source that no entry holds. The text of an object counts as what is in it."""
    kept = set(leaves([[entry.content, entry.annotations] for entry in entries]))
    kept |= {entry.at.replace(tzinfo=None).isoformat() for entry in entries}
    whole, gone, left = "\0".join(kept), [], leaves(value)
    while left:
        leaf = left.pop()
        if len(leaf) <= SHORT or leaf in SAID or leaf in kept or leaf in whole:
            continue
        try:
            read = json.loads(leaf, strict=False)
        except ValueError:
            read = leaf
        if isinstance(read, dict):
            left += leaves(read)
        else:
            gone.append(leaf)
    return gone


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where anything stands in a document."""
    yield path
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(each, (*path, key))


def spoilt(document: Any) -> st.SearchStrategy[str]:
    """The text of a document in which some things are others, or gone."""
    paths = list(places(document))[1:]
    change = st.tuples(st.sampled_from(paths), VALUES | st.just(...))

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
        text = json.dumps(made).replace(json.dumps(BIG), "9" * 5000)
        return text.replace(json.dumps(DEEP), "[" * 700 + "]" * 700)

    return st.lists(change, min_size=1, max_size=4).map(make)


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
            nested(entries)
            accepted(entries)
        assert set(done.oddities) <= set(ODDITIES)
        assert await record.verify() == []
        assert (await import_file(record, path, format)).entries == 0


async def flawless(record: Record, path: Path, runs: int) -> list[list[Entry]]:
    """What came in is sound, explained as far as it can be, goes on, and comes in once."""
    every = await conversations(record)
    assert len(every) == runs
    assert await record.verify() == []
    for entries in every:
        nested(entries)
        accepted(entries, step=max(1, len(entries) // 3))
    again = await import_file(record, path)
    assert (again.runs, again.entries, again.skipped) == (0, 0, runs)
    return every


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


# --------------------------------------------------------------------------------------------------- this importer
FOLDER = "mini-swe-agent"
FILES = [  # trajectories, messages, calls, results, thoughts and endings, as SOURCES.md and MANIFEST.json count them
    ("deepseek-chat-dev", (18, 2774, 1369, 1351, 0), {"answered": 18}),
    ("deepseek-reasoner-dev", (12, 1341, 655, 650, 652), {"answered": 5, "failed": 7}),
    ("deepseek-chat-test-part1", (12, 1590, 783, 771, 0), {"answered": 12}),
]


def documents(path: Path) -> list[dict[str, Any]]:
    """The trajectories of a packed file."""
    zstandard = pytest.importorskip("zstandard")
    with path.open("rb") as packed, zstandard.ZstdDecompressor().stream_reader(packed) as plain:
        return [json.loads(line)["data"] for line in io.TextIOWrapper(plain, "utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "counts", "ended"), sampled(FILES, 3, 2), ids=str)
async def test_every_trajectory_of_the_corpus_comes_in_whole_and_once(
    corpus: Path, record: Record, name: str, counts: tuple[int, ...], ended: dict[str, int]
) -> None:
    path = corpus / FOLDER / f"{name}.jsonl.zst"
    source = documents(path)
    done = await import_file(record, path)
    unanswered = counts[2] - counts[3]
    assert (done.runs, done.format, done.oddities) == (counts[0], FOLDER, {"unanswered-call": unanswered})
    every = await flawless(record, path, counts[0])
    kinds = Counter(entry.kind for entries in every for entry in entries)
    messages = sum("message" in (entry.annotations or {}) for entries in every for entry in entries)
    assert (messages, kinds[Kind.ToolCall], kinds[Kind.ToolResult], kinds[Kind.Thought]) == counts[1:]
    assert Counter(reason for entries in every for reason in reasons(entries)) == ended
    assert kinds[Kind.Assistant] == ended["answered"] == unanswered
    for entries, whole in zip(every, source, strict=True):
        assert lost(whole, entries) == []
        usage = [one["extra"]["response"]["usage"] for one in whole["messages"] if one["role"] == "assistant"]
        assert [one.usage for one in contents(entries, ChatCompletionContent)] == usage
        spent = [(one.meta or {})["cost_usd"] for one in contents(entries, ChatCompletionContent)]
        assert sum(spent) == pytest.approx(whole["info"]["model_stats"]["instance_cost"])
        assert unexplained(entries).answers == ()


async def test_the_history_is_what_the_agent_saw(corpus: Path, record: Record) -> None:
    path = corpus / FOLDER / "deepseek-chat-test-part1.jsonl.zst"
    await import_file(record, path)
    for entries, whole in zip(await conversations(record), documents(path), strict=True):
        given = [one for one in whole["messages"] if one["role"] not in ("system", "exit")]
        shown = [one for one in history(entries) if one["role"] != "system"]
        assert [(one["role"], one["content"] or "") for one in shown[: len(given)]] == [
            (one["role"], one["content"]) for one in given
        ]
        made = [call["function"]["arguments"] for one in shown for call in one.get("tool_calls", ())]
        source = [call["function"]["arguments"] for one in given for call in one.get("tool_calls", ())]
        assert [json.loads(one) for one in made] == [json.loads(one) for one in source]


def reply(content: str, command: str | None, number: int, **message: Any) -> dict[str, Any]:
    """A message of the assistant as the agent keeps it, with the reply that it came from."""
    function = {"arguments": json.dumps({"command": command}), "name": "bash"}
    calls = [] if command is None else [{"index": 0, "function": function, "id": f"c{number}", "type": "function"}]
    made = {"content": content, "role": "assistant", "tool_calls": calls or None, "function_call": None, **message}
    response = {
        "id": f"r{number}",
        "created": 1_700_000_000 + number,
        "model": "m-1-2026",
        "choices": [{"finish_reason": "tool_calls", "index": 0, "message": made, "provider_specific_fields": {}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": number},
    }
    actions = [] if command is None else [{"command": command, "tool_call_id": f"c{number}"}]
    extra = {"actions": actions, "response": response, "cost": 0.5, "timestamp": 1_700_000_001.5 + number}
    return {"provider_specific_fields": None, **made, "extra": extra}


def printed(text: str, number: int, code: int = 0, exception: str = "", **extra: Any) -> dict[str, Any]:
    known = {"raw_output": text, "returncode": code, "timestamp": 1_700_000_100.0, "exception_info": exception}
    return {"content": f"<output>{text}</output>", "role": "tool", "tool_call_id": f"c{number}", "extra": known | extra}


def submitted(text: str) -> dict[str, Any]:
    return {"role": "exit", "content": text, "extra": {"exit_status": "Submitted", "submission": text}}


def trajectory(*messages: Any, status: Any = "Submitted", **info: Any) -> dict[str, Any]:
    config = {"model": {"model_name": "maker/m-1", "model_kwargs": {"api_key": "sk-123456", "max_tokens": 5}}}
    return {
        "info": {"exit_status": status, "config": config, **info},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Fix it."}, *messages],
        "trajectory_format": "mini-swe-agent-1.1",
        "instance_id": "repo-1",
    }


async def story(record: Record, path: Path, document: Any) -> tuple[list[str], list[Entry], dict[str, int]]:
    """The entries that a trajectory becomes after those about it as a whole, one line each."""
    put(path, json.dumps(document))
    done = await import_file(record, path)
    assert done.format == FOLDER
    (entries,) = await conversations(record)
    nested(entries)
    accepted(entries)
    assert await record.verify() == []
    first = next(entry.seq for entry in entries if isinstance(entry.content, EndContent))
    return [told(entry) for entry in entries if entry.seq > first], entries, done.oddities


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "repo-1.traj.json"


SMALL = trajectory(
    reply("", "ls", 1, reasoning_content="Look first.", provider_specific_fields={"reasoning_content": "Look first."}),
    printed("a.py", 1),
    reply("Now fix.", "sleep 9", 2),
    printed("", 2, -1, "it took too long", exception_type="TimeoutExpired"),
    reply("Done.", "submit", 3),
    submitted("diff --git"),
    submission="diff --git",
    model_stats={"api_calls": 3},
)


async def test_a_trajectory_is_one_turn_that_ends_with_what_was_submitted(record: Record, path: Path) -> None:
    lines, entries, oddities = await story(record, path, SMALL)
    assert lines == [
        "begin turn",
        "user 'Fix it.'",
        "chat-completion '' <1",
        "thought 'Look first.' <1",
        "tool-call bash({'command': 'ls'}) success <2",
        "tool-result <output>a.py</output> ok <1",
        "chat-completion 'Now fix.' <1",
        "tool-call bash({'command': 'sleep 9'}) success <1",
        "tool-result <output></output> error <1",
        "chat-completion 'Done.' <1",
        "tool-call bash({'command': 'submit'}) success <1",
        "assistant 'diff --git' <1",
        "end answered",
    ]
    assert oddities == {"unanswered-call": 1}
    assert [(entry.annotations or {}).get("message") for entry in entries][-13:] == [
        *(None, 1, 2, None, None, 3, 4, None, 5, 6, None, 7, None)
    ]
    assert [(entry.annotations or {}).get("inferred") for entry in entries][-11:] == [
        *(["causes"], None, None, None, ["causes"], None, None, ["causes"], None, ["causes", "at"], ["at"])
    ]
    (run,) = await record.store.runs()
    assert (run.session, run.name) == ("repo-1.traj/repo-1", "mini-swe-agent")


async def test_what_a_message_holds_beside_its_text_has_its_place(record: Record, path: Path) -> None:
    _, entries, _ = await story(record, path, SMALL)
    first, *_ = contents(entries, ChatCompletionContent)
    assert (first.model, first.finish_reason, first.usage) == (
        "m-1-2026",
        "tool_calls",
        {"prompt_tokens": 10, "completion_tokens": 1},
    )
    assert (first.meta, first.extra) == ({"cost_usd": 0.5, "raw": {"id": "r1", "created": 1_700_000_001}}, None)
    ok, failed = contents(entries, ToolResultContent)
    assert ok.extra == {"raw_output": "a.py", "returncode": 0}
    assert (failed.status, failed.extra) == (
        "error",
        {
            "raw_output": "",
            "returncode": -1,
            "exception_info": "it took too long",
            "exception_type": "TimeoutExpired",
        },
    )
    (header,) = contents(entries, RequestHeaderContent)
    assert header.meta == {"model": "maker/m-1", "instructions": "Be brief."}
    notes = contents(entries, BeginContent)[0].state
    hidden = {"model_name": "maker/m-1", "model_kwargs": {"api_key": Secret("api_key"), "max_tokens": 5}}
    assert notes == {
        "info": {"exit_status": "Submitted", "config": {"model": hidden}, "model_stats": {"api_calls": 3}},
        "trajectory_format": "mini-swe-agent-1.1",
        "instance_id": "repo-1",
    }
    times = [entry.at.isoformat() for entry in entries if isinstance(entry.content, ChatCompletionContent)]
    assert times[:2] == ["2023-11-14T22:13:22.500000+00:00", "2023-11-14T22:13:23.500000+00:00"]


@pytest.mark.parametrize(
    ("status", "extra", "ended", "odd"),
    [
        ("LimitsExceeded", {}, "limit", {}),
        ("TimeExceeded", {}, "limit", {}),
        ("UserInterruption", {}, "cancelled", {}),
        ("RateLimitError", {"traceback": "Traceback: …", "exception_str": "too many"}, "failed", {}),
        ("Meteorite", {}, "failed", {"unknown-ending": 1}),
        (7, {}, "failed", {"unknown-ending": 1}),
    ],
)
async def test_a_run_that_was_stopped_says_why(
    record: Record, path: Path, status: Any, extra: dict[str, Any], ended: str, odd: dict[str, int]
) -> None:
    last = {"role": "exit", "content": "too many", "extra": {"exit_status": status, "submission": "", **extra}}
    document = trajectory(reply("", "ls", 1), printed("a", 1), last, status=status, **extra)
    lines, entries, oddities = await story(record, path, document)
    assert lines[-2:] == ["key-value exit {'content': 'too many'}", f"end {ended}"]
    assert oddities == odd
    end = entries[-1].content
    assert isinstance(end, EndContent)
    assert end.error is not None
    assert (end.error.type, end.error.message, end.error.traceback) == (str(status), "too many", extra.get("traceback"))
    assert (entries[-1].annotations or {}).get("inferred") == ["at"]
    assert lost(document, entries) == ["sk-123456"]


async def test_a_trajectory_without_an_ending_is_taken_for_cut_off(record: Record, path: Path) -> None:
    lines, entries, oddities = await story(record, path, trajectory(reply("", "ls", 1), status=None))
    assert lines[-1] == "end limit"
    assert (entries[-1].annotations or {})["inferred"] == ["reason"]
    assert oddities == {"unanswered-call": 1}


async def test_words_of_the_program_stay_in_the_turn_and_a_person_opens_another(record: Record, path: Path) -> None:
    wrong = {"role": "user", "content": "Call a tool.", "extra": {"interrupt_type": "FormatError", "from": "x"}}
    person = {"role": "user", "content": "Stop that.", "extra": {"interrupt_type": "UserInterruption"}}
    lines, entries, oddities = await story(
        record,
        path,
        trajectory(reply("I think …", None, 1), wrong, reply("", "ls", 2), printed("a", 2), person, status=None),
    )
    assert lines == [
        "begin turn",
        "user 'Fix it.'",
        "chat-completion 'I think …' <1",
        "system 'Call a tool.'",
        "chat-completion '' <2 <1",
        "tool-call bash({'command': 'ls'}) success <1",
        "tool-result <output>a</output> ok <1",
        "end cancelled",
        "begin turn",
        "user 'Stop that.'",
        "end limit",
    ]
    assert oddities == {"unanswered-turn": 1, "unknown-member": 1}
    (words,) = contents(entries, SystemContent)
    assert words.source == ["mini-swe-agent"]
    assert words.extra == {"interrupt_type": "FormatError", "from": "x"}, "a member of the file is not a source"
    assert [one["role"] for one in history(entries)] == ["user", "assistant", "user", "assistant", "tool", "user"]
    assert contents(entries, AssistantContent) == []


def responded(text: str, command: str, number: int) -> dict[str, Any]:
    """A message of the model as the agent keeps it when it asks the Responses API (`litellm_response`)."""
    said: dict[str, Any] = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
    function = {"arguments": json.dumps({"command": command}), "call_id": f"c{number}", "name": "bash"}
    return {
        "id": f"resp-{number}",
        "created_at": 1_700_000_000 + number,
        "model": "m-1-2026",
        "object": "response",
        "output": [
            {"id": "rs-1", "summary": [{"text": "Look first.", "type": "summary_text"}], "type": "reasoning"},
            {"id": "msg-1", "content": [said], "role": "assistant", "status": "completed", "type": "message"},
            {**function, "type": "function_call", "id": "fc-1", "status": "completed"},
        ],
        "parallel_tool_calls": True,
        "usage": {"input_tokens": 10, "output_tokens": number},
        "extra": {"actions": [{"command": command, "tool_call_id": f"c{number}"}], "cost": 0.5},
    }


RESPONSES = trajectory(
    responded("Look.", "ls", 1),
    {"type": "function_call_output", "call_id": "c1", "output": "a.py", "extra": {"returncode": 0}},
    responded("Done.", "submit", 2),
    submitted("diff --git"),
)
RESPONSES["messages"][1] |= {"type": "message", "content": [{"type": "input_text", "text": "Fix it."}]}


async def test_a_trajectory_of_the_responses_api_has_the_same_turns(record: Record, path: Path) -> None:
    lines, entries, oddities = await story(record, path, RESPONSES)
    assert lines == [
        "begin turn",
        "user 'Fix it.'",
        "chat-completion 'Look.' <1",
        "thought 'Look first.' <1",
        "tool-call bash({'command': 'ls'}) success <2",
        "tool-result a.py ok <1",
        "chat-completion 'Done.' <1",
        "thought 'Look first.' <1",
        "tool-call bash({'command': 'submit'}) success <2",
        "assistant 'diff --git' <1",
        "end answered",
    ]
    assert oddities == {"unanswered-call": 1}
    first, _ = contents(entries, ChatCompletionContent)
    assert (first.model, first.usage) == ("m-1-2026", {"input_tokens": 10, "output_tokens": 1})
    assert first.meta is not None
    assert first.meta["raw"]["output"] == [
        {"id": "rs-1", "type": "reasoning"},
        {"id": "msg-1", "role": "assistant", "status": "completed", "type": "message"},
        {"call_id": "c1", "type": "function_call", "id": "fc-1", "status": "completed"},
    ]
    assert set(lost(RESPONSES, entries)) == {"sk-123456", "summary_text", "function_call_output"}


async def test_actions_that_were_read_from_text_are_calls_whose_name_is_inferred(record: Record, path: Path) -> None:
    spoken = {"role": "assistant", "content": "Look.\n```\nls\n```", "extra": {"actions": [{"command": "ls"}, 5]}}
    seen = {"role": "user", "content": "a.py", "extra": {"returncode": 1, "raw_output": "a.py"}}
    lines, entries, oddities = await story(record, path, trajectory(spoken, seen, status="LimitsExceeded"))
    assert lines[2:6] == [
        "chat-completion 'Look.\\n```\\nls\\n```' <1",
        "tool-call bash({'command': 'ls'}) success <1",
        "tool-call bash({}) success <2",
        "tool-result a.py ok <2",
    ]
    assert [
        (entry.annotations or {})["inferred"] for entry in entries if isinstance(entry.content, ToolCallContent)
    ] == [
        ["tool_name"],
        ["tool_name", "tool_args"],
    ]
    assert [one.extra for one in contents(entries, ToolCallContent)] == [None, {"action": 5}]
    assert oddities == {"missing-result-id": 1, "unanswered-call": 1}


async def test_a_reply_that_says_something_else_is_kept(record: Record, path: Path) -> None:
    odd = reply("Look.", "ls", 1)
    odd["extra"]["response"]["choices"][0]["message"] = {"content": "Look!"}
    odd["extra"]["response"]["choices"].append("more")
    odd["extra"]["actions"] = [{"command": "rm"}]
    bare = {"role": "assistant", "content": "No reply.", "extra": "none"}
    _, entries, oddities = await story(record, path, trajectory(odd, bare, 5, {"role": "narrator"}, status="Submitted"))
    first, second = contents(entries, ChatCompletionContent)
    assert first.meta is not None
    assert first.meta["raw"]["choices"] == [
        {"index": 0, "message": {"content": "Look!"}, "provider_specific_fields": {}},
        "more",
    ]
    assert (first.extra, second.extra, second.model) == (
        {"actions": [{"command": "rm"}]},
        {"extra": "none"},
        "maker/m-1",
    )
    assert oddities == {"unanswered-call": 1, "unreadable-message": 2}
    assert contents(entries, ThoughtContent) == []


async def test_two_trajectories_of_one_task_have_names_of_their_own(record: Record, path: Path) -> None:
    put(path, json.dumps({"path": "a/repo-1", "data": SMALL}) + "\n" + json.dumps({"path": "b/repo-1", "data": SMALL}))
    assert find_format(Source(path)).name == FOLDER
    assert (await import_file(record, path)).runs == 2
    assert [row.session for row in await record.store.runs()] == ["repo-1.traj/repo-1", "repo-1.traj/repo-1~1"]
    assert [contents(entries, BeginContent)[0].state["path"] for entries in await conversations(record)] == [
        "a/repo-1",
        "b/repo-1",
    ]


@pytest.mark.parametrize("wrong", [5, {}, {"messages": {}}, [1]])
async def test_what_is_no_trajectory_is_refused_with_its_place(record: Record, path: Path, wrong: Any) -> None:
    put(path, json.dumps(SMALL) + "\n" + json.dumps(wrong))
    with pytest.raises(BadImport, match=r"expected a trajectory with its list of messages, .* in document 2"):
        await import_file(record, path)
    assert await record.store.runs() == []


@given(text=spoilt(SMALL) | spoilt(RESPONSES))
async def test_no_change_of_a_trajectory_breaks_an_import(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    await endured(tmp_path_factory.mktemp("any") / "any.json", text, FOLDER)
