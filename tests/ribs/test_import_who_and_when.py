"""Failed runs of several agents come in as one conversation each, and the step to blame is found by its cause."""

import copy
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ribs.test_bridges import BIG, DEEP, VALUES, conversations, formatted, reasons, told, valid
from tests.validators.chat_completions import history_violations

import gesta
from gesta.address import open_record
from gesta.entry import Entry
from gesta.importers.file import import_file
from gesta.importers.foreign import ODDITIES
from gesta.importers.known import find_format
from gesta.importers.source import BadImport, Source
from gesta.kinds import AssistantContent, BeginContent, EdgeContent, EndContent, KeyValueContent, Kind, UserContent
from gesta.record.record import Record
from gesta.views.lineage import explain, unexplained

LEDGER = "Updated Ledger:\n" + json.dumps(
    {"next_speaker": {"reason": "It can search.", "answer": "WebSurfer"}, "instruction_or_question": {"answer": "Go."}}
)
ORCHESTRATED: dict[str, Any] = {
    "question": "Where is gold?",
    "ground_truth": "In the cellar.",
    "is_corrected": False,
    "question_ID": "q-1",
    "level": 2,
    "mistake_agent": "WebSurfer",
    "mistake_reason": "It looked in the garden.",
    "mistake_step": "4",
    "history": [
        {"content": "Where is gold?\n", "role": "human"},
        {"content": "Initial plan:\n\nSearch.", "role": "Orchestrator (thought)"},
        {"content": LEDGER, "role": "Orchestrator (thought)"},
        {"content": "Please search.", "role": "Orchestrator (-> WebSurfer)"},
        {"content": "I looked in the garden: nothing.", "role": "WebSurfer"},
        {"content": "Run this.", "role": "Orchestrator (-> ComputerTerminal)"},
        {
            "content": "The script ran, then exited with Unix exit code: 1\nIts output was:\nno such file",
            "role": "ComputerTerminal",
        },
        {
            "content": "Max rounds (30) reached.\nFINAL ANSWER: In the garden\nSCENARIO.PY COMPLETE !#!#",
            "role": "Orchestrator (termination condition)",
        },
    ],
}
GROUP: dict[str, Any] = {
    "is_correct": False,
    "question": "How many?",
    "question_ID": "q-2",
    "level": "1",
    "ground_truth": "8",
    "history": [
        {"content": "A task:\nHow many?\n```python\nprint(4)\n```", "name": "Count_Expert", "role": "assistant"},
        {
            "content": "exitcode: 0 (execution succeeded)\nCode output: 4\n",
            "name": "Computer_terminal",
            "role": "user",
        },
        {"content": "It is 4.", "role": "user", "name": "Check_Expert"},
        {"content": "There is no code for me to execute.", "role": "user", "name": "Computer_terminal"},
        {"content": "TERMINATE", "role": "user", "name": "Check_Expert"},
    ],
    "mistake_agent": "Count_Expert",
    "mistake_step": "0",
    "mistake_reason": "It counts odd ones only.",
    "system_prompt": {"Count_Expert": "You count.", "Check_Expert": "You check.", "Silent_Expert": "You wait."},
}


def put(path: Path, *documents: Any, packed: bool = False) -> Path:
    """Write documents as JSON lines, each under a path of its own if packed."""
    every = [{"path": f"d/{n}.json", "data": one} if packed else one for n, one in enumerate(documents, 1)]
    path.write_text("".join(json.dumps(one) + "\n" for one in every), encoding="utf-8")
    return path


@pytest.fixture
async def record() -> AsyncIterator[Record]:
    async with open_record() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def inferred(entry: Entry) -> list[str]:
    return [name for name in (entry.annotations or {}).get("inferred", []) if name != "at"]


def shown(entries: Sequence[Entry]) -> list[str]:
    """One line for each entry: its span's name, what it is, and what was inferred."""
    names = {entry.seq: entry.content.name for entry in entries if isinstance(entry.content, BeginContent)}
    return [" ".join([names[one.span], told(one), *(f"?{name}" for name in inferred(one))]) for one in entries]


def encodable(entries: Sequence[Entry]) -> None:
    """The history of a run is one that a provider takes."""
    messages = formatted(entries)
    valid(messages)
    asked = gesta.scripted("x")
    found = history_violations([json.loads(asked.encode(one)) for one in messages])
    assert [one for one in found if one != "messages: empty array, needs an item at least"] == []


def nested(entries: Sequence[Entry]) -> None:
    """Spans nest, causes point back, and every turn ends with a reason."""
    open_spans: list[int] = []
    for entry in entries:
        assert all(isinstance(cause, int) and 0 < cause < entry.seq for cause in entry.causes)
        match entry.content:
            case BeginContent(parent=parent):
                assert parent == (open_spans[-1] if open_spans else None)
                open_spans.append(entry.seq)
            case EndContent(reason=reason):
                begin = entries[open_spans[-1] - 1].content
                assert isinstance(begin, BeginContent) and (reason is not None) == (begin.role == "turn")
                assert entry.span == open_spans.pop()
            case _:
                assert entry.span == open_spans[-1]
    assert not open_spans


def leaves(value: Any) -> Iterator[str]:
    """The texts of a value, keys of objects too."""
    match value:
        case str():
            yield value
        case dict():
            for key, one in value.items():
                yield key
                yield from leaves(one)
        case list() | tuple():
            for one in value:
                yield from leaves(one)


def kept(entries: Sequence[Entry]) -> set[str]:
    """Every text of some entries."""
    return set(leaves([msgspec.to_builtins(entry.content) for entry in entries])) | set(
        leaves([entry.annotations for entry in entries])
    )


def rebuilt(entries: Sequence[Entry]) -> list[tuple[str, str, str]]:
    """The messages of a source, from its entries: role, speaker, text."""
    names = {entry.seq: entry.content.name for entry in entries if isinstance(entry.content, BeginContent)}
    found: dict[int, tuple[str, str, str]] = {}
    for entry in entries:
        if "message" in (entry.annotations or {}):
            content: Any = entry.content
            fields = ("output", "tool_result", "value")
            text = next(getattr(content, name) for name in fields if hasattr(content, name))
            found[(entry.annotations or {})["message"]] = (content.extra["role"], names[entry.span], text)
    assert sorted(found) == list(range(len(found)))
    return [found[place] for place in sorted(found)]


async def only(record: Record, path: Path, *documents: Any) -> list[Entry]:
    """Import documents and give the entries of the last run."""
    await import_file(record, put(path, *documents))
    entries = (await conversations(record))[-1]
    nested(entries)
    for end in range(len(entries) + 1):
        encodable(entries[:end])
    assert await record.verify() == []
    assert unexplained(entries).entries == {}
    return entries


# ------------------------------------------------------------------------------------------------ what becomes what
async def test_an_orchestrated_run_is_thoughts_decisions_edges_and_words(record: Record, path: Path) -> None:
    entries = await only(record, path, ORCHESTRATED)
    lines, first = shown(entries), entries[0].content
    assert lines[:2] == ["import begin import", "import end"]
    assert isinstance(first, BeginContent)
    assert first.state == {
        "question": "Where is gold?",
        "ground_truth": "In the cellar.",
        "is_corrected": False,
        "question_ID": "q-1",
        "level": 2,
    }
    decided = "DecisionContent(extra=None, choice='WebSurfer', candidates=['WebSurfer', 'ComputerTerminal'], rationale='It can search.', task_type=None)"
    source = "source=['Orchestrator', 'Orchestrator'], dest=['Orchestrator', "
    ending = ORCHESTRATED["history"][-1]["content"]
    blame = {
        "mistake_agent": "WebSurfer",
        "mistake_reason": "It looked in the garden.",
        "mistake_step": "4",
    }
    assert lines[2:] == [
        "Orchestrator begin turn",
        "Orchestrator user 'Where is gold?\\n'",
        "Orchestrator begin agent",
        "Orchestrator thought 'Initial plan:\\n\\nSearch.' <2 ?causes",
        f"Orchestrator thought {LEDGER!r} <1 ?causes",
        f"Orchestrator decision {decided} <1 ?candidates",
        "Orchestrator chat-completion 'Please search.' <1 ?causes",
        f"Orchestrator edge EdgeContent(extra=None, {source}'WebSurfer'], payload=None, allowance=None, child=None) <1",
        "Orchestrator end",
        "WebSurfer begin agent",
        "WebSurfer chat-completion 'I looked in the garden: nothing.' <4 ?causes",
        "WebSurfer end",
        "Orchestrator begin agent",
        "Orchestrator chat-completion 'Run this.' <3 ?causes",
        f"Orchestrator edge EdgeContent(extra=None, {source}'ComputerTerminal'], payload=None, allowance=None, child=None) <1",
        "Orchestrator end",
        "ComputerTerminal begin agent",
        f"ComputerTerminal tool-result {ORCHESTRATED['history'][6]['content']} error <4 ?causes",
        "ComputerTerminal end",
        "Orchestrator begin agent",
        f"Orchestrator key-value termination condition {ending} <3 ?causes",
        "Orchestrator end",
        "Orchestrator assistant 'In the garden' <2 ?kind ?causes",
        "Orchestrator end limit ?reason",
        "review begin review",
        f"review key-value mistake {blame} <15",
        "review end",
    ]


async def test_a_group_talks_in_turns_and_what_code_prints_is_a_result(record: Record, path: Path) -> None:
    entries = await only(record, path, GROUP)
    lines, first = shown(entries), entries[0].content
    blame = {key: value for key, value in GROUP.items() if key.startswith("mistake_")}
    header = "RequestHeaderContent(extra=None, tools=None, output=None, meta={'instructions': 'You %s.'}, made=None)"
    assert isinstance(first, BeginContent)
    assert (first.state or {})["system_prompt"] == {"Silent_Expert": "You wait."}
    assert lines[1:] == [
        "import end",
        "CaptainAgent begin turn",
        "CaptainAgent user 'How many?' ?kind",
        "Count_Expert begin agent",
        f"Count_Expert request-header {header % 'count'}",
        "Count_Expert chat-completion 'A task:\\nHow many?\\n```python\\nprint(4)\\n```' <3 ?causes",
        "Count_Expert end",
        "Computer_terminal begin agent",
        "Computer_terminal tool-result exitcode: 0 (execution succeeded)\nCode output: 4\n ok <3 ?causes",
        "Computer_terminal end",
        "Check_Expert begin agent",
        f"Check_Expert request-header {header % 'check'}",
        "Check_Expert chat-completion 'It is 4.' <4 ?causes",
        "Check_Expert end",
        "Computer_terminal begin agent",
        "Computer_terminal tool-result There is no code for me to execute. None <3 ?causes",
        "Computer_terminal end",
        "Check_Expert begin agent",
        "Check_Expert chat-completion 'TERMINATE' <3 ?causes",
        "Check_Expert end",
        "CaptainAgent assistant 'It is 4.' <8 ?kind ?causes",
        "CaptainAgent end answered ?reason",
        "review begin review",
        f"review key-value mistake {blame} <18",
        "review end",
    ]


async def test_the_history_shows_the_question_the_words_and_what_was_printed(record: Record, path: Path) -> None:
    told_to = formatted(await only(record, path, GROUP))
    assert [one.role for one in told_to] == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert not any(one.calls for one in told_to)


async def test_the_answer_is_explained_back_to_the_question(record: Record, path: Path) -> None:
    entries = await only(record, path, ORCHESTRATED)
    seq = next(entry.seq for entry in entries if entry.kind is Kind.Assistant)
    found = explain(entries, seq)
    assert found.complete
    named = [node.type for node in found.nodes]
    assert named[0] == "Question" and named[-1] == "Conclusion"
    assert {"Thought", "PatternDecision", "Observation"} <= set(named)


BLAMED = """
SELECT spans.name, blamed.kind, json_extract(blamed.annotations, '$.message'),
    json_extract(note.content, '$.value.mistake_agent')
FROM entries AS note, json_each(note.causes) AS cause
JOIN entries AS blamed ON blamed.run = note.run AND blamed.seq = cause.value
JOIN spans ON spans.run = blamed.run AND spans.span = blamed.span
WHERE note.kind = 'key-value' AND json_extract(note.content, '$.key') = 'mistake' ORDER BY note.pos
"""


async def test_plain_sql_finds_the_step_to_blame(tmp_path: Path, path: Path) -> None:
    async with open_record(str(tmp_path / "here.gesta")) as record:
        await import_file(record, put(path, ORCHESTRATED, GROUP))
        rows = [tuple(row) for row in (await record.store.sql(BLAMED)).rows]
    assert rows == [
        ("WebSurfer", "chat-completion", 4, "WebSurfer"),
        ("Count_Expert", "chat-completion", 0, "Count_Expert"),
    ]


@pytest.mark.parametrize(
    ("step", "agent", "cause", "odd"),
    [
        ("4", "WebSurfer", 4, {}),
        (4, "WebSurfer", 4, {}),
        ("4", "Orchestrator", 4, {"other-speaker": 1}),
        ("3", None, 3, {"other-speaker": 1}),
        ("8", "WebSurfer", None, {"unknown-step": 1}),
        ("-1", "WebSurfer", None, {"unknown-step": 1}),
        ("9" * 50, "WebSurfer", None, {"unknown-step": 1}),
        ("last", "WebSurfer", None, {"unknown-step": 1}),
        ("²", "WebSurfer", None, {"unknown-step": 1}),
        (True, "WebSurfer", None, {"unknown-step": 1}),
        ([4], "WebSurfer", None, {"unknown-step": 1}),
    ],
)
async def test_a_step_that_is_not_there_and_a_wrong_agent_are_counted(
    record: Record, path: Path, step: Any, agent: Any, cause: int | None, odd: dict[str, int]
) -> None:
    done = await import_file(record, put(path, ORCHESTRATED | {"mistake_step": step, "mistake_agent": agent}))
    assert done.oddities == odd
    (entries,) = await conversations(record)
    (note,) = [one for one in entries if isinstance(one.content, KeyValueContent) and one.content.key == "mistake"]
    places = [(entries[seq - 1].annotations or {})["message"] for seq in note.causes if isinstance(seq, int)]
    assert places == ([] if cause is None else [cause])
    assert "causes" not in inferred(note)


CUT = "The source ends here, before an answer, and does not say why."
WEB = "WebSurfer"


@pytest.mark.parametrize(
    ("last", "reason", "answer", "error"),
    [
        (("Found.\nFINAL ANSWER: 42\nSCENARIO.PY COMPLETE !#!#", WEB), "answered", "42", None),
        (("FINAL ANSWER: a\nb", "Orchestrator (thought)"), "answered", "a\nb", None),
        (
            ("Max time (1500s) reached.\nFINAL ANSWER: 42", "Orchestrator (termination condition)"),
            "limit",
            "42",
            "time",
        ),
        (("oops\nSCENARIO.PY EXITED WITH CODE: 1 !#!#", WEB), "failed", None, "exit"),
        (("Still looking.", WEB), "limit", None, "rounds"),
        (("FINAL ANSWER: 42", "human"), "limit", None, "rounds"),
    ],
)
async def test_the_end_of_an_orchestrated_run_is_read_from_its_last_message(
    record: Record, path: Path, last: tuple[str, str], reason: str, answer: str | None, error: str | None
) -> None:
    history = [*ORCHESTRATED["history"][:5], {"content": last[0], "role": last[1]}]
    entries = await only(record, path, ORCHESTRATED | {"history": history})
    assert reasons(entries) == [reason]
    assert [one.content.value for one in entries if isinstance(one.content, AssistantContent)] == (
        [] if answer is None else [answer]
    )
    end = next(one.content for one in entries if isinstance(one.content, EndContent) and one.content.reason)
    assert (end.error and end.error.type, end.status) == (error, "success" if reason == "answered" else "error")


@pytest.mark.parametrize(
    ("last", "answer"),
    [
        (("It is 5.\n\nTERMINATE", "Check_Expert"), "It is 5.\n\nTERMINATE"),
        (("Let me go on.", "Check_Expert"), None),
        (('Tell me "TERMINATE".', "Computer_terminal"), None),
    ],
)
async def test_a_group_that_did_not_end_its_talk_gave_no_answer(
    record: Record, path: Path, last: tuple[str, str], answer: str | None
) -> None:
    history = [*GROUP["history"][:4], {"content": last[0], "role": "user", "name": last[1]}]
    entries = await only(record, path, GROUP | {"history": history})
    assert reasons(entries) == ["limit" if answer is None else "answered"]
    said = [one.content.value for one in entries if isinstance(one.content, AssistantContent)]
    assert said == ([] if answer is None else [answer])


async def test_a_word_of_the_person_in_between_is_a_user_message(record: Record, path: Path) -> None:
    history = [*ORCHESTRATED["history"][:5], {"role": "human", "content": "Hurry."}, *ORCHESTRATED["history"][5:]]
    entries = await only(record, path, ORCHESTRATED | {"history": history})
    assert [one.content.value for one in entries if isinstance(one.content, UserContent)] == [
        "Where is gold?\n",
        "Hurry.",
    ]
    assert reasons(entries) == ["limit"]


async def test_what_is_no_message_is_kept_and_counted(record: Record, path: Path) -> None:
    odd = [
        7,
        {"content": "nobody"},
        {"role": "", "content": "nobody"},
        {"role": "WebSurfer", "content": {"a": "list"}, "more": "kept"},
        {"role": f" {'x' * 300} (-> )", "content": "a"},
        {"role": "user", "name": "  ", "content": "b"},
    ]
    done = await import_file(record, put(path, ORCHESTRATED | {"history": odd, "mistake_step": "0"}))
    assert done.oddities == {"unknown-member": 1, "unreadable-message": 3, "wrong-type": 1}
    (entries,) = await conversations(record)
    nested(entries)
    encodable(entries)
    texts = kept(entries)
    assert {"nobody", "list", "kept", f" {'x' * 300} (-> )", "  ", "a", "b"} <= texts
    (edge,) = [one.content for one in entries if isinstance(one.content, EdgeContent)]
    assert edge.dest[1:] == ["agent"]


async def test_members_of_the_wrong_type_stay_notes(record: Record, path: Path) -> None:
    members = {"question": ["no", "text"], "system_prompt": "none", "path": "own", "question_ID": None}
    done = await import_file(record, put(path, GROUP | members, packed=True))
    assert done.oddities == {"wrong-type": 2}
    ((row,), (entries,)) = (await record.store.runs(), await conversations(record))
    assert (row.session, row.name) == ("runs/d/1.json", "CaptainAgent")
    first = entries[0].content
    assert isinstance(first, BeginContent)
    assert first.state.keys() >= {"path", "question", "system_prompt"}
    assert first.state["path"] == ["d/1.json", "own"]
    assert not [one for one in entries if one.kind is Kind.User]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([7], "found something else in document 1"),
        ([{"history": {"a": 1}}], "found something else in document 1"),
        ([ORCHESTRATED, {"mistake_step": "1"}], "found something else in document 2"),
        ([{"path": "a/b.json", "data": {"history": None}}], r"found something else in document 1, 'a/b.json'"),
    ],
)
async def test_what_is_no_run_is_refused_and_nothing_is_written(
    record: Record, path: Path, content: list[Any], why: str
) -> None:
    with pytest.raises(BadImport, match=why):
        await import_file(record, put(path, *content), "who-and-when")
    assert await record.store.runs() == []


async def test_an_empty_file_has_no_conversations(record: Record, path: Path) -> None:
    done = await import_file(record, put(path), "who-and-when")
    assert (done.runs, done.oddities) == (0, {"no-conversations": 1})


# ------------------------------------------------------------------------------------------------------- the corpus
FOLDER = "who-and-when"
CORPUS = [  # counted from the files: runs and messages as MANIFEST.json has them, then what the messages became
    (
        "algorithm-generated.jsonl.gz",
        {"chat-completion": 394, "tool-result": 146, "thought": 0, "edge": 0, "decision": 0, "user": 63},
        {"answered": 39, "limit": 24},
        {"other-speaker": 3},
    ),
    (
        "hand-crafted.jsonl.gz",
        {"chat-completion": 631, "tool-result": 2, "thought": 737, "edge": 324, "decision": 355, "user": 29},
        {"answered": 22, "limit": 6, "failed": 1},
        {"other-speaker": 2},
    ),
]


def documents(corpus: Path, name: str) -> list[dict[str, Any]]:
    lines = gzip.decompress((corpus / FOLDER / name).read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "kinds", "ends", "oddities"), CORPUS, ids=[name for name, *_ in CORPUS])
async def test_every_run_of_the_corpus_comes_in_whole_and_once(
    corpus: Path,
    record: Record,
    name: str,
    kinds: dict[str, int],
    ends: dict[str, int],
    oddities: dict[str, int],
) -> None:
    manifest = json.loads((corpus / "MANIFEST.json").read_text(encoding="utf-8"))["files"]
    stats = next(one["stats"] for one in manifest if one["path"] == f"{FOLDER}/{name}")
    done = await import_file(record, corpus / FOLDER / name)
    assert (done.format, done.runs, done.oddities) == ("who-and-when", stats["traj"], oddities)
    runs, given = await conversations(record), documents(corpus, name)
    assert sum("message" in (entry.annotations or {}) for run in runs for entry in run) == stats["messages"]
    assert sum(len(text) for run in runs for *_, text in rebuilt(run)) == stats["chars"]
    counted = Counter(str(entry.kind) for run in runs for entry in run)
    assert {kind: counted[kind] for kind in kinds} == kinds
    assert Counter(reason for run in runs for reason in reasons(run)) == ends
    for entries, line in zip(runs, given, strict=True):
        source = line["data"]
        nested(entries)
        encodable(entries)
        named = [
            (one["role"], one.get("name") or one["role"].partition(" (")[0], one["content"])
            for one in source["history"]
        ]
        people = [(role, "Orchestrator" if role == "human" else name, text) for role, name, text in named]
        assert rebuilt(entries) == people
        lost = {text for text in leaves([line["path"], *source.values()]) if len(text) > 3} - kept(entries)
        assert lost <= {"role", "name", "content"}, "keys of a message, which have their place; else nothing is lost"
        found = unexplained(entries)
        assert (found.entries, found.answers, found.unprompted) == ({}, (), ())
    assert await record.verify() == []
    again = await import_file(record, corpus / FOLDER / name)
    assert (again.runs, again.entries, again.skipped, again.oddities) == (0, 0, stats["traj"], oddities)


async def test_every_step_to_blame_in_the_corpus_is_found(corpus: Path, tmp_path: Path) -> None:
    async with open_record(str(tmp_path / "all.gesta")) as record:
        for name, *_ in CORPUS:
            await import_file(record, corpus / FOLDER / name)
        rows = (await record.store.sql(BLAMED)).rows
    source = [line["data"] for name, *_ in CORPUS for line in documents(corpus, name)]
    assert [(row[2], row[3]) for row in rows] == [(int(one["mistake_step"]), one["mistake_agent"]) for one in source]
    assert sum(row[0] != row[3] for row in rows) == 5, "of 92, the source blames another than who spoke"


async def test_prefixes_of_the_longest_run_format_too(corpus: Path, record: Record) -> None:
    await import_file(record, corpus / FOLDER / CORPUS[1][0])
    entries = max(await conversations(record), key=len)
    for end in range(0, len(entries), 7):
        encodable(entries[:end])


# -------------------------------------------------------------------------------------------------------- no licence
def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value in a document."""
    yield here
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in children:
        yield from paths(one, (*here, key))


def mutated(path: Path, data: st.DataObject, document: Any, values: st.SearchStrategy[Any] = VALUES) -> Path:
    """Write a document with anything at any place in it, or without that."""
    document = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        *there, key = data.draw(st.sampled_from([one for one in paths(document) if one]))
        inner = document
        for step in there:
            inner = inner[step]
        if data.draw(st.booleans()):
            inner[key] = data.draw(values)
        else:
            del inner[key]
        if not any(paths(document)):
            break
    text = json.dumps(document).replace(json.dumps(BIG), "9" * 5000)
    path.write_text(text.replace(json.dumps(DEEP), "[" * 700 + "]" * 700) + "\n", encoding="utf-8")
    return path


ROLES = st.sampled_from(
    ["A (thought)", "A (-> B)", "A (-> A)", "A ()", "(x)", "human", "user", "B", "\ud800 (-> \x00)"]
)


@given(data=st.data(), document=st.sampled_from([ORCHESTRATED, GROUP]))
async def test_no_change_anywhere_breaks_an_import(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, document: Any
) -> None:
    path = mutated(tmp_path_factory.mktemp("any") / "any.jsonl", data, document, VALUES | ROLES)
    async with open_record() as record:
        try:
            done = await import_file(record, path, "who-and-when")
        except BadImport:
            assert await record.store.runs() == []
            return
        (entries,) = await conversations(record)
        nested(entries)
        for end in range(len(entries) + 1):
            valid(formatted(entries[:end]))
        assert set(done.oddities) <= set(ODDITIES)
        assert await record.verify() == []
        assert (await import_file(record, path, "who-and-when")).skipped == 1


def test_a_single_document_and_a_pack_are_told_by_their_members(path: Path) -> None:
    for packed in (False, True):
        assert find_format(Source(put(path, GROUP, packed=packed))).name == "who-and-when"
