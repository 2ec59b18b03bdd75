"""Runs of SWE-agent come in whole: calls by function or by text, with what only their steps say."""

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.ribs.test_bridges import contents, put, told
from tests.ribs.test_import_mini_swe_agent import accepted, endured, flawless, history, lost, nested, spoilt

from gesta.address import open_record
from gesta.codec.rows import Secret
from gesta.entry import Entry
from gesta.importers.file import import_file
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
from gesta.record.record import Record
from gesta.views.lineage import unexplained

FOLDER = "swe-agent/traj"
FILES = {  # messages and calls as MANIFEST.json counts them; calls that were read from text, and steps without a message
    "test-data--6e44b9__sweagenttestrepo-1c2844": (10, 4, 0, 1),
    "ctf-crypto-BabyTimeCapsule": (19, 0, 9, 0),
    "ctf-crypto-katy": (37, 0, 18, 0),
    "ctf-misc-networking_1": (9, 0, 4, 0),
    "ctf-pwn-warmup": (15, 0, 7, 0),
    "function_calling_simple": (12, 5, 0, 0),
    "marshmallow-1867--default___install_from_source": (29, 0, 14, 0),
    "marshmallow-1867--function_calling": (24, 11, 0, 0),
    "marshmallow-1867--xml_sys-env_window100": (23, 0, 11, 0),
}
IMPLIED = {"system_prompt", "observation", "action"}
"""Message types that the kind of an entry says."""


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "repo-1.traj"


def test_every_run_of_the_corpus_is_counted(corpus: Path) -> None:
    assert sorted(FILES) == sorted(one.name.removesuffix(".traj.gz") for one in (corpus / FOLDER).iterdir())


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", FILES)
async def test_every_run_of_the_corpus_comes_in_whole_and_once(corpus: Path, record: Record, name: str) -> None:
    path = corpus / FOLDER / f"{name}.traj.gz"
    whole = json.loads(gzip.decompress(path.read_bytes()))
    messages, calls, read, more = FILES[name]
    done = await import_file(record, path)
    repeated = {"repeated-call-id": 5} if name.endswith("--function_calling") else {}
    by_order = {"missing-result-id": read + more} if read + more else {}
    assert (done.runs, done.format, done.oddities) == (1, "swe-agent", repeated | by_order)
    (entries,) = await flawless(record, path, 1)
    assert sum("message" in (entry.annotations or {}) for entry in entries) == messages
    made = [entry for entry in entries if entry.kind is Kind.ToolCall]
    assert len(made) == calls + read + more
    assert sum("tool_name" in (entry.annotations or {}).get("inferred", ()) for entry in made) == read + more
    assert len(contents(entries, ToolResultContent)) == len(made), "the last one stands in a step, if nowhere else"
    submission = whole.get("info", {}).get("submission")
    assert [one.value for one in contents(entries, AssistantContent)] == ([submission] if submission else [])
    assert set(lost(whole, entries)) <= IMPLIED
    assert unexplained(entries).answers == ()
    given = [one["content"] for one in whole["history"] if one["role"] != "system"]
    shown = [one["content"] or "" for one in history(entries)]
    assert shown[: len(given)] == given


def said(role: str, content: str, kind: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "agent": "main", **({"message_type": kind} if kind else {}), **more}


def acted(content: str, action: str, thought: str, *calls: tuple[str, str, str]) -> dict[str, Any]:
    """A message of the agent; its calls are id, name and arguments."""
    made = [{"id": id, "type": "function", "function": {"name": name, "arguments": args}} for id, name, args in calls]
    more = {"tool_calls": made} if made else {}
    return said("assistant", content, "action", thought=thought, action=action, **more)


def step(action: str, observation: str, response: str, thought: str, **more: Any) -> dict[str, Any]:
    return {"action": action, "observation": observation, "response": response, "thought": thought, **more}


SYSTEM = said("system", "Be brief.", "system_prompt")
TASK = said("user", "Fix it.", "observation")
TYPED = {
    "environment": "main",
    "trajectory": [
        step("ls\n", "a.py", "Look.\n```\nls\n```", "Look.\n", state='{"open": "n/a"}', query=[SYSTEM, TASK, {"a": 1}]),
        step("submit\n", "diff --git", "Done.\n<command>submit</command>", "Done!\n", execution_time=0.5),
    ],
    "history": [
        SYSTEM,
        said("user", "One did it so.", "demonstration", is_demo=True),
        TASK,
        acted("Look.\n```\nls\n```", "ls\n", "Look.\n"),
        said("user", "a.py\n(Open: n/a)", "observation"),
        acted("Done.\n<command>submit</command>", "submit\n", "Done.\n"),
    ],
    "info": {"exit_status": "submitted", "submission": "diff --git", "model_stats": {"api_calls": 2}},
}
CALLED = {
    "history": [
        SYSTEM,
        TASK,
        acted("Look.", "find a", "Look.", ("c1", "find", '{"name": "a"}')),
        said("tool", "found", "observation", tool_call_ids=["c1"]),
        acted("Send.", "submit", "Send.", ("c1", "submit", "{}")),
        said("tool", "diff --git", "observation", tool_call_ids=["c1", "c2"]),
    ],
    "replay_config": json.dumps({"agent": {"model": {"name": "m-1", "api_key": "sk-123456"}}}),
    "trajectory": [step("find a", "found", "Look.", "Look.", state={"open": "n/a"})],
}


async def story(record: Record, path: Path, document: Any) -> tuple[list[str], list[Entry], dict[str, int]]:
    """The entries that a run becomes after those about it as a whole, one line each."""
    put(path, json.dumps(document))
    done = await import_file(record, path)
    assert (done.runs, done.format) == (1, "swe-agent")
    (row,) = await record.store.runs()
    entries = await record.read(row.run)
    nested(entries)
    accepted(entries)
    assert await record.verify() == []
    first = next(entry.seq for entry in entries if isinstance(entry.content, EndContent))
    return [told(entry) for entry in entries if entry.seq > first], entries, done.oddities


async def test_an_action_that_was_written_is_a_call_and_what_the_user_says_its_result(
    record: Record, path: Path
) -> None:
    lines, entries, oddities = await story(record, path, TYPED)
    assert lines == [
        "begin turn",
        "user 'Fix it.'",
        "chat-completion 'Look.\\n```\\nls\\n```' <4 <1",
        "thought 'Look.\\n' <1",
        "tool-call bash({'command': 'ls\\n'}) success <2",
        "tool-result a.py\n(Open: n/a) ok <1",
        "chat-completion 'Done.\\n<command>submit</command>' <1",
        "thought 'Done.\\n' <1",
        "tool-call bash({'command': 'submit\\n'}) success <2",
        "tool-result diff --git ok <1",
        "assistant 'diff --git' <1",
        "end answered",
    ]
    assert oddities == {"missing-result-id": 2}
    inferred = [(entry.annotations or {}).get("inferred") for entry in entries][-10:]
    assert inferred == [
        *(["causes"], None, ["tool_name"], ["call", "causes", "status"]),
        *(["causes"], None, ["tool_name"], ["call", "causes", "status"]),
        *(["causes"], None),
    ]
    places = [(entry.annotations or {}).get("message") for entry in entries][-10:]
    assert places == [3, None, None, 4, 5, None, None, None, None, None]


async def test_what_only_a_step_says_stands_beside_its_completion(record: Record, path: Path) -> None:
    _, entries, _ = await story(record, path, TYPED)
    first, second = contents(entries, ChatCompletionContent)
    assert first.extra == {"step": {"state": '{"open": "n/a"}', "query": [0, 2, {"a": 1}]}}
    assert second.extra == {"step": {"execution_time": 0.5, "thought": "Done!\n"}}
    assert [one.extra for one in contents(entries, ToolResultContent)] == [{"observation": "a.py"}, None]
    assert contents(entries, BeginContent)[0].state == {
        "environment": "main",
        "info": {"exit_status": "submitted", "model_stats": {"api_calls": 2}},
        "history": {"agent": "main"},
    }
    assert set(lost(TYPED, entries)) <= IMPLIED


async def test_a_demonstration_is_shown_but_is_nobodys_work(record: Record, path: Path) -> None:
    shown = [
        acted("Look.", "ls", "Look.", ("d1", "bash", '{"command": "ls"}')) | {"is_demo": True},
        said("tool", "x.py", tool_call_ids=["d1"], is_demo=True),
    ]
    document = {"history": [*shown, SYSTEM, TASK, acted("Done.", "submit", "Done.")]}
    lines, entries, _ = await story(record, path, document)
    assert [one["role"] for one in history(entries)] == ["user", "user", "user", "assistant", "tool"]
    assert len(contents(entries, ToolCallContent)) == 1
    (first, second), (header,) = contents(entries, SystemContent), contents(entries, RequestHeaderContent)
    assert first.extra is not None and second.extra is not None
    assert (first.source, first.extra["role"], first.extra["action"]) == (["demonstration"], "assistant", "ls")
    assert second.extra["tool_call_ids"] == ["d1"]
    assert header.meta == {"instructions": "Be brief."}
    assert lines[-1] == "end answered"
    assert set(lost(document, entries)) <= IMPLIED


async def test_calls_by_function_keep_their_ids_also_when_they_repeat(record: Record, path: Path) -> None:
    lines, entries, oddities = await story(record, path, CALLED)
    assert lines == [
        "begin turn",
        "user 'Fix it.'",
        "chat-completion 'Look.' <1",
        "tool-call find({'name': 'a'}) success <1",
        "tool-result found ok <1",
        "chat-completion 'Send.' <1",
        "tool-call submit({}) success <1",
        "tool-result diff --git ok <1",
        "end answered",
    ]
    assert oddities == {"repeated-call-id": 1}
    assert (entries[-1].annotations or {})["inferred"] == ["reason"]
    assert [one.tool_call_id for one in contents(entries, ToolCallContent)] == ["c1", "c1"]
    assert [one.extra for one in contents(entries, ToolResultContent)] == [None, {"tool_call_ids": ["c1", "c2"]}]
    assert [one.extra for one in contents(entries, ChatCompletionContent)] == [
        {"action": "find a", "step": {"state": {"open": "n/a"}}},
        {"action": "submit"},
    ]
    (header,) = contents(entries, RequestHeaderContent)
    assert header.meta == {"model": "m-1", "instructions": "Be brief."}
    assert contents(entries, BeginContent)[0].state["replay_config"] == {
        "agent": {"model": {"name": "m-1", "api_key": Secret("api_key")}}
    }
    assert contents(entries, ThoughtContent) == []
    assert contents(entries, AssistantContent) == []


@pytest.mark.parametrize(
    ("status", "ended", "odd"),
    [
        ("submitted (exit_cost)", "budget", {}),
        ("exit_context", "limit", {}),
        ("exit_format", "failed", {}),
        ("exit_meteorite", "failed", {"unknown-ending": 1}),
        (7, "failed", {"unknown-ending": 1}),
        (None, "limit", {}),
    ],
)
async def test_a_run_that_was_stopped_says_why(
    record: Record, path: Path, status: Any, ended: str, odd: dict[str, int]
) -> None:
    last = step("", "Exit.", "", "It was enough.")
    history = [SYSTEM, TASK, acted("Look.", "", "Look."), said("user", "Act!"), acted("Hm.", "ls", "Hm.")]
    info = {"exit_status": status, "submission": "half a diff"}
    lines, entries, oddities = await story(
        record, path, {"history": history, "trajectory": [{}, {}, last], "info": info}
    )
    assert lines[2:] == [
        "chat-completion 'Look.' <1",
        "system 'Act!'",
        "chat-completion 'Hm.' <2 <1",
        "tool-call bash({'command': 'ls'}) success <1",
        "key-value step {'action': '', 'observation': 'Exit.', 'response': '', 'thought': 'It was enough.'}",
        f"end {ended}",
    ]
    assert oddities == {"unanswered-call": 1} | odd
    assert contents(entries, BeginContent)[0].state["info"] == info
    assert ("reason" in (entries[-1].annotations or {}).get("inferred", ())) == (status is None or bool(odd))


async def test_a_step_after_the_last_message_is_a_completion(record: Record, path: Path) -> None:
    steps = [step("ls", "a.py", "Look.", "Look."), step("submit", "diff", "Done.", "Done."), 5]
    document = {"history": [SYSTEM, TASK, acted("Look.", "ls", "Look.")], "trajectory": steps}
    lines, entries, _ = await story(record, path, document)
    assert lines[2:] == [
        "chat-completion 'Look.' <1",
        "tool-call bash({'command': 'ls'}) success <1",
        "tool-result a.py ok <1",
        "chat-completion 'Done.' <1",
        "tool-call bash({'command': 'submit'}) success <1",
        "tool-result diff ok <1",
        "key-value step 5",
        "end limit",
    ]
    assert sum("message" in (entry.annotations or {}) for entry in entries) == 3


async def test_odd_messages_are_kept_and_counted(record: Record, path: Path) -> None:
    odd = acted("Look.", "ls", "Look.") | {"agent": "helper", "thinking_blocks": [1], "action": ["ls"]}
    document = {"history": [SYSTEM, 5, TASK, odd, said("narrator", "then"), said("user", "again")], "trajectory": "no"}
    lines, entries, oddities = await story(record, path, document)
    assert lines == [
        "begin turn",
        "user 'Fix it.'",
        "chat-completion 'Look.' <1",
        f"key-value unreadable-message {said('narrator', 'then')}",
        "system 'again'",
        "end limit",
    ]
    (made,) = contents(entries, ChatCompletionContent)
    assert made.extra == {"thinking_blocks": [1], "agent": "helper", "action": ["ls"]}
    assert oddities == {"unreadable-message": 2, "wrong-type": 1}
    assert set(lost(document, entries)) <= IMPLIED


async def test_a_run_is_known_by_its_history_if_nothing_else_fits(record: Record, path: Path) -> None:
    put(path, json.dumps({"history": [], "replay_config": {"problem_statement": {"id": "p-1"}}}))
    assert find_format(Source(path)).name == "swe-agent"
    await import_file(record, path)
    assert [(row.session, row.name) for row in await record.store.runs()] == [("repo-1.traj/p-1", "swe-agent")]
    put(path, json.dumps({"history": [], "mistake_step": "1"}))
    assert find_format(Source(path)).name == "who-and-when"


@pytest.mark.parametrize("wrong", [5, {}, {"history": {}}, [1]])
async def test_what_is_no_run_is_refused_with_its_place(record: Record, path: Path, wrong: Any) -> None:
    put(path, json.dumps(CALLED) + "\n" + json.dumps(wrong))
    with pytest.raises(BadImport, match="expected a run with a list 'history', found something else in document 2"):
        await import_file(record, path)
    assert await record.store.runs() == []


@given(text=spoilt(TYPED) | spoilt(CALLED))
async def test_no_change_of_a_run_breaks_an_import(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    await endured(tmp_path_factory.mktemp("any") / "any.json", text, "swe-agent")
