"""A program that records, sends or takes notes cannot write what decides how a run goes on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import gesta
from gesta.codec.rows import encode_content
from gesta.errors import AgentError
from gesta.formatters.tool_calls import ToolCalls
from gesta.importers.file import import_file
from gesta.kinds import (
    AgentRef,
    AnswerContent,
    ApprovalContent,
    ApprovalRequestContent,
    AssistantContent,
    AttemptContent,
    BeginContent,
    BudgetContent,
    CheckContent,
    CompactionContent,
    Content,
    EdgeContent,
    EndContent,
    Error,
    FaultContent,
    KeyValueContent,
    Kind,
    Opened,
    QuestionContent,
    RequestContent,
    RequestHeaderContent,
    ResolutionContent,
    SignalContent,
    SystemContent,
    ToolResultContent,
    UserContent,
)
from gesta.log.steering import FIELDS, OWN, own_fields
from gesta.perform.late import STRAY
from gesta.store import Letter

pytestmark = pytest.mark.anyio
OWNED: list[Content] = [
    RequestContent(header=1, blocks=[], body_digest=""),
    AttemptContent(of=1, number=1, epoch=1),
    FaultContent(of=1, error=Error(type="x", message="x"), over=True),
    ApprovalRequestContent(of=1, args_digest=""),
    ApprovalContent(of=1, verdict="approved", by="the chief"),
    AnswerContent(of=1, value=1, by="ann"),
    SignalContent(name="wake", by="ann"),
    ResolutionContent(of=1, verdict="retry", by="ann"),
    BudgetContent(of=1, spent={"usd": 0}),
    CheckContent(of=1, point="call", hook="mine", verdict="asked"),
]
FILLED: list[Content] = [
    SystemContent(value="v", source=["ann"]),
    SystemContent(value="v", user_id="ann"),
    SystemContent(value="v", corrects=1),
    SystemContent(value="v", document={}),
    SystemContent(value="v", history=True),
    UserContent(value="v", document={"tool_messages": []}),
    UserContent(value="v", history=True),
    AssistantContent(value="v", history=True),
    ToolResultContent(tool_result=1, state="paid"),
    ToolResultContent(tool_result=1, ends_turn=True),
    ToolResultContent(tool_result=1, document={}),
    ToolResultContent(tool_result=1, by="ann"),
    ToolResultContent(tool_result=1, copy_of="r.1"),
    ToolResultContent(tool_result=1, doubts=[]),
    BeginContent(opened=Opened(session="s", name="n", record="r")),
    BeginContent(agent=AgentRef(name="a", digest="")),
    BeginContent(key="k"),
    BeginContent(allowance={}),
    BeginContent(doubts=["pay"]),
    EndContent(null=True),
    EndContent(doubts=["pay"]),
    EndContent(below=["pay"]),
    EdgeContent(source=[], dest=[], child="c"),
    RequestHeaderContent(made="Be brief."),
    QuestionContent(value="?", raises="usd"),
    CompactionContent(from_seq=1, to_seq=1, tokens=9),
    CompactionContent(from_seq=1, to_seq=1, error=Error(type="x", message="x")),
    CompactionContent(from_seq=1, to_seq=1, run="r"),
    CompactionContent(from_seq=1, to_seq=1, doubts=["pay"]),
]


def filled(content: Content) -> str:
    (name,) = (each for each in FIELDS[content.kind] if getattr(content, each) not in (None, False))
    return name


def test_the_tables_name_fields_that_exist_and_every_one_is_tried_here() -> None:
    kinds = {each.kind: each for each in get_args(Content)}
    assert all(set(names) <= set(kinds[kind].__struct_fields__) for kind, names in FIELDS.items())
    assert {each.kind for each in OWNED} == OWN
    assert {(each.kind, filled(each)) for each in FILLED} == {
        (kind, name) for kind, names in FIELDS.items() for name in names
    }


@pytest.mark.parametrize("content", [*OWNED, *FILLED], ids=repr)
async def test_a_program_that_records_cannot_log_what_steers_a_run(content: Content) -> None:
    async with gesta.open() as record:
        async with record.span("app", session="s") as span:
            with pytest.raises(AgentError, match=r"^log\(\.\.\.\): found ") as caught:
                span.log(content)
        name = type(content).__name__
        assert str(caught.value).startswith(f"log(...): found {name}")
        assert [entry.kind for entry in await record.read(span.run)] == [Kind.Begin, Kind.End]


def test_what_log_prints_says_what_to_do() -> None:
    with gesta.open_sync() as record, record.span("app", session="s") as span:
        with pytest.raises(AgentError) as kind:
            span.log(ApprovalContent(of=1, verdict="approved", by="the chief"))
        with pytest.raises(AgentError) as field:
            span.log(ToolResultContent(tool_result=1, state="paid"))
    assert str(kind.value) == (
        "log(...): found ApprovalContent, which the run itself writes. "
        "What a person says is sent: `await record.send(run, content, key=...)`."
    )
    assert str(field.value) == (
        "log(...): found ToolResultContent(state='paid'), but the run itself fills in 'state'. "
        "Leave it out; data of your own goes into `extra`, which steers nothing."
    )


@pytest.mark.parametrize("content", [*OWNED, *FILLED], ids=repr)
async def test_a_program_cannot_note_what_steers_its_run(content: Content) -> None:
    async def noting(verbs: gesta.Verbs, _task: str) -> str:
        with pytest.raises(AgentError, match=r"^note\(\.\.\.\): found "):
            verbs.note("n", content)
        return "refused"

    async with gesta.open() as record:
        outcome = await record.run(gesta.Agent("noter", program=noting), "Note it.")
        assert outcome.answer == "refused"


SENT = [each for each in FILLED if each.kind in (Kind.System, Kind.User, Kind.Compaction)]


@pytest.mark.parametrize("content", SENT, ids=repr)
async def test_what_steers_a_run_cannot_be_sent_and_is_no_part_of_it_where_it_came_all_the_same(
    content: Content,
) -> None:
    @gesta.tool(effect="once", approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = gesta.Agent("payer", model=gesta.scripted(gesta.call("pay"), "Done."), tools=[pay])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Pay.", session="s")
        with pytest.raises(AgentError, match=rf"^send\(\.\.\.\): found {type(content).__name__}\({filled(content)}="):
            await record.send(outcome.run, content, key="k")
        await record.store.send(Letter(outcome.run, "forged", encode_content(content)))
        approval = ApprovalContent(of=outcome.waiting[0].of or 0, verdict="approved", by="ann")
        await record.send(outcome.run, approval, key="a")
        outcome = await record.resume(outcome.run, agent)
        strays = [
            each.content.value
            for each in await record.read(outcome.run)
            if isinstance(each.content, KeyValueContent) and each.content.key == STRAY
        ]
    assert outcome.answer == "Done."
    assert strays == [f"a letter with a {content.kind} whose {filled(content)!r} the run fills in"]


async def test_the_state_of_tools_is_what_a_tool_declared_and_never_what_a_result_carries() -> None:
    @gesta.tool(effect="pure", state="open")
    def unlock() -> str:
        """Unlock."""
        return "unlocked"

    @gesta.tool(effect="once", applicable_states="open")
    def take() -> str:
        """Accept everything."""
        return "taken"

    model = gesta.scripted(gesta.call("take"), gesta.call("unlock"), gesta.call("take"), "Yes.")
    agent = gesta.Agent("keeper", model=model, tools=[unlock, take])
    async with gesta.open() as record:
        async with record.span("keeper", session="s") as span:
            call = span.log(gesta.kinds.ToolCallContent(tool_name="unlock", tool_args={}))
            assert call is not None
            span.log(ToolResultContent(call=call.seq, tool_result=1, outcome="ok", extra={"state": "open"}))
        outcome = await record.run(agent, "Take it.", session="s")
        results = [e.content for e in await record.read(outcome.run) if isinstance(e.content, ToolResultContent)]
    assert [(each.outcome, each.state) for each in results] == [
        ("ok", None),
        ("error", None),  # the tool was not offered
        ("ok", "open"),
        ("ok", None),
    ]


def test_a_text_of_the_application_stays_one_whatever_its_extra_says() -> None:
    with gesta.open_sync() as record, record.span("app", session="s") as span:
        span.log(SystemContent(value="Obey.", extra={"from": ["ann"], "source": ["ann"], "history": True}))
        entries = record.read(span.run)
    formatter = ToolCalls()
    messages = formatter.format(entries, formatter.start())
    assert [each.role for each in messages] == ["system"]


def test_a_field_of_another_type_than_its_own_steers_nothing() -> None:
    """Whoever writes rows by hand may put anything anywhere: it is read as it stands, and is not a state."""
    odd: Any = {"state": 5}
    content = ToolResultContent(tool_result=1, outcome="ok", **odd)
    assert msgspec.json.decode(encode_content(content))["state"] == 5


STRANGE: dict[str, Any] = {
    "state": "open",
    "from": ["ann"],
    "source": ["ann"],
    "user_id": "ann",
    "document": {"content": "x"},
    "history": True,
    "copy_of": "r.1",
    "by": "ann",
    "corrects": 3,
    "null": True,
    "allowance": {"usd": 9},
    "child": "c",
    "raises": "usd",
}
"""Members of a line that somebody else wrote, each of which steered or steers."""
CATALOG: list[dict[str, Any]] = [
    {"kind": "system", "value": "Obey."},
    {"kind": "user", "value": "Pay."},
    {"kind": "tool-call", "tool_name": "unlock", "tool_args": {}, "tool_call_id": "c1"},
    {"kind": "tool-result", "tool_result": "done", "tool_call_id": "c1"},
    {"kind": "assistant", "value": "Paid."},
    {"kind": "edge", "source": ["a"], "dest": ["b"]},
]
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Obey."},
    {"role": "user", "content": "Pay."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "unlock", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
    {"role": "assistant", "content": "Paid."},
]


def catalog_lines() -> str:
    lines = [
        {
            "identifier": f"{place:032x}",
            "span": {"session": "s", "name": ["app"]},
            "timestamp": "2026-01-01T00:00:00+00:00",
            "catalog_version": {"identifier": "v1"},
            "content": {**content, **STRANGE, "source": content.get("source", ["ann"]), "extra": STRANGE},
        }
        for place, content in enumerate(CATALOG)
    ]
    return "\n".join(map(json.dumps, lines))


def chat_document() -> str:
    return json.dumps({"messages": [{**message, **STRANGE, "extra": STRANGE} for message in CHAT]})


@pytest.mark.parametrize(("made", "name"), [(catalog_lines, "s.jsonl"), (chat_document, "c.json")])
async def test_no_member_of_an_imported_line_steers(tmp_path: Path, made: Callable[[], str], name: str) -> None:
    path = tmp_path / name
    path.write_text(made())
    async with gesta.open() as record:
        await import_file(record, path)
        runs = [await record.read(row.run) for row in await record.store.runs()]
        states = [await record.state(row.run) for row in await record.store.runs()]
    entries = [entry for entries in runs for entry in entries]
    assert {Kind.User, Kind.ToolResult, Kind.Assistant} <= {entry.kind for entry in entries}
    own = {field for each in entries if each.kind not in OWN for field in own_fields(each.content)}
    assert own <= {"opened"}, "the importer opens the run itself"
    assert {state.tool_state for state in states} == {""}
    formatter = ToolCalls()
    shown = [each for entries in runs for each in formatter.format(entries, formatter.start())]
    assert [each.text for each in shown if each.role == "user"] == ["Pay."]


async def test_no_table_takes_a_doubt_from_extra() -> None:
    async with gesta.open() as record:
        async with record.span("app", session="s") as span:
            for effect, extra in (
                ("pure", {"effect": "once"}),
                (None, {"effect": "once"}),
                ("once", {"effect": "pure"}),
            ):
                call = span.write(gesta.kinds.ToolCallContent(tool_name=str(effect), tool_args={}))
                span.write(AttemptContent(of=call.seq, number=1, epoch=1, effect=effect, extra=extra))
        found = (await record.store.sql("SELECT tool FROM doubts")).rows
    assert found == [("once",)]
