"""The log of a task: who responded, with which tool, and what stands under whom."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gesta import kinds
from gesta.compat.langroid.task_log import COLUMNS, LogFields, Row, task_log, tsv
from gesta.entry import Cause, Entry

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Book:
    """Entries of one run, as they are written."""

    def __init__(self, run: str, parent: str | None = None) -> None:
        self.run, self.entries = run, list[Entry]()
        opened = kinds.Opened(session="s", name=run, record="r", parent_run=parent)
        self.turn = self.add(kinds.BeginContent(name=run, role="turn", opened=opened))

    def add(self, content: kinds.Content, *causes: Cause, span: int = 1) -> int:
        seq = len(self.entries) + 1
        span = seq if isinstance(content, kinds.BeginContent) else span
        self.entries.append(Entry(run=self.run, seq=seq, at=AT, span=span, causes=causes, content=content))
        return seq

    def said(self, text: str, *calls: tuple[str, dict[str, Any]], ids: bool = True) -> list[int]:
        """A reply with its calls; gives their seqs."""
        reason = "tool_calls" if ids and calls else None
        made = self.add(kinds.ChatCompletionContent(output=text, finish_reason=reason))
        return [
            self.add(kinds.ToolCallContent(tool_name=name, tool_args=args, tool_call_id=f"c{n}" if ids else None), made)
            for n, (name, args) in enumerate(calls)
        ]

    def gave(self, call: int, result: Any) -> int:
        return self.add(kinds.ToolResultContent(tool_result=result, call=call), call)


def told(rows: Iterable[Row]) -> list[tuple[str, str, str]]:
    return [(row.task, row.responder, row.fields.content) for row in rows]


def test_a_person_a_model_and_tools_respond():
    book = Book("desk")
    book.add(kinds.RequestHeaderContent(meta={"instructions": "Be brief."}))
    book.add(kinds.UserContent(value="Rome and Oslo?", user_id="ann"))
    first, second = book.said("I look.", ("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"}))
    book.gave(second, {"sky": "wet"})
    book.gave(first, "dry")
    book.said("Dry, and wet.")
    book.add(kinds.AssistantContent(value="Dry, and wet."), len(book.entries))
    rows = task_log(book.entries)
    assert [list(row.cells().values()) for row in rows] == [
        ["", "desk", "SYSTEM", "SYSTEM", "", "", "", "", "", "Be brief."],
        ["", "desk", "USER", "USER", "ann", "", "", "", "", "Rome and Oslo?"],
        [
            *("", "desk", "LLM", "LLM", "desk", "", "", "OAI_TOOL", "weather,weather"),
            'I look.\nweather {"city": "Rome"}\nweather {"city": "Oslo"}',
        ],
        ["", "desk", "AGENT", "AGENT", "desk", "", "", "", "weather", '{"sky": "wet"}'],
        ["", "desk", "AGENT", "AGENT", "desk", "", "", "", "weather", "dry"],
        ["", "desk", "LLM", "LLM", "desk", "", "", "", "", "Dry, and wet."],
    ]
    assert tuple(rows[0].cells()) == COLUMNS


def test_a_call_that_was_read_from_a_text_is_a_tool_and_is_not_written_twice():
    book = Book("desk")
    text = 'Thought: look\nAction: weather\nArgs: {"city": "Rome"}'
    book.said(text, ("weather", {"city": "Rome"}), ids=False)
    (row,) = task_log(book.entries)
    assert (row.fields.tool_type, row.fields.tool, row.fields.content) == ("TOOL", "weather", text)


def test_arguments_that_are_no_json_stand_as_the_model_wrote_them():
    book = Book("desk")
    made = book.add(kinds.ChatCompletionContent(output="", finish_reason="tool_calls"))
    raw = {"raw_args": "{oops", "error": "no JSON"}
    book.add(kinds.ToolCallContent(tool_name="weather", tool_args={}, status="error", meta=raw), made)
    assert told(task_log(book.entries)) == [("desk", "LLM", "weather {oops")]


def test_a_person_who_approves_or_answers_is_a_user():
    book = Book("desk")
    asked = book.add(kinds.QuestionContent(value="Which lamp?"))
    book.add(kinds.AnswerContent(of=asked, value={"lamp": 2}, by="ann"), asked)
    book.add(kinds.ApprovalContent(of=1, verdict="denied", by="bob", reason="no photo"))
    assert told(task_log(book.entries)) == [
        ("desk", "AGENT", "Which lamp?"),
        ("desk", "USER", '{"lamp": 2}'),
        ("desk", "USER", "denied by bob: no photo"),
    ]


def test_an_answer_that_is_not_what_the_model_said_is_shown_beside_it():
    book = Book("desk")
    book.add(kinds.AssistantContent(value="Good morning."))
    made = book.add(kinds.ChatCompletionContent(output="a damn lamp"))
    book.add(kinds.AssistantContent(value="a lamp"), made)
    assert [content for *_, content in told(task_log(book.entries))] == ["Good morning.", "a damn lamp", "a lamp"]


def test_a_document_says_recipient_and_block_and_an_edge_says_a_recipient():
    book = Book("desk")
    book.add(kinds.UserContent(value="x", document={"metadata": {"recipient": "clerk", "block": "LLM"}}))
    made = book.add(kinds.ChatCompletionContent(output="yours"))
    book.add(kinds.EdgeContent(source=["desk"], dest=["hall", "porter"]), made)
    fields = [row.fields for row in task_log(book.entries)]
    assert [(each.recipient, each.block) for each in fields] == [("clerk", "LLM"), ("porter", "")]


def family() -> tuple[Book, Book, Book]:
    """A task that calls a sub-task twice, which calls one of its own the first time."""
    top, clerk, porter = Book("top"), Book("clerk", "top"), Book("porter", "clerk")

    def act(over: Book, under: Book, task: str, answer: str, role: str | None) -> None:
        span = over.add(kinds.BeginContent(name=under.run, role=role, parent=1))
        edge = over.add(kinds.EdgeContent(source=[over.run], dest=[over.run, under.run]), span=span)
        under.add(kinds.SystemContent(value=task, source=[over.run]), (over.run, edge))
        if (over, task) == (top, "carry"):
            act(clerk, porter, "lift", "lifted", "agent")
        under.said(answer)
        ended = under.add(kinds.EndContent(state=answer), len(under.entries), span=under.turn)
        over.add(kinds.EndContent(state=answer), (under.run, ended), span=span)

    top.add(kinds.UserContent(value="go"))
    act(top, clerk, "carry", "carried", "step")
    act(top, clerk, "sweep", "swept", "step")
    top.said("all done")
    return top, clerk, porter


def test_what_a_sub_task_says_stands_under_the_place_where_it_was_called():
    top, clerk, porter = family()
    rows = task_log([*porter.entries, *top.entries, *clerk.entries])
    assert [(row.depth, *each) for row, each in zip(rows, told(rows), strict=True)] == [
        (0, "top", "USER", "go"),
        (1, "clerk", "USER", "carry"),
        (2, "porter", "USER", "lift"),
        (2, "porter", "LLM", "lifted"),
        (1, "clerk", "porter", "lifted"),
        (1, "clerk", "LLM", "carried"),
        (0, "top", "clerk", "carried"),
        (1, "clerk", "USER", "sweep"),
        (1, "clerk", "LLM", "swept"),
        (0, "top", "clerk", "swept"),
        (0, "top", "LLM", "all done"),
    ]
    assert next(row.fields.sender_name for row in rows if row.depth == 1) == "top"


def test_what_a_tool_gives_that_is_an_agent_is_told_once():
    desk, clerk = Book("desk"), Book("clerk", "desk")
    (call,) = desk.said("", ("clerk", {"task": "carry"}))
    edge = desk.add(kinds.EdgeContent(source=["desk"], dest=["desk", "clerk"]), call)
    clerk.add(kinds.SystemContent(value="carry"), ("desk", edge))
    clerk.said("carried")
    ended = clerk.add(kinds.EndContent(state="carried"), 3)
    desk.add(kinds.ToolResultContent(tool_result="carried", call=call), call, ("clerk", ended))
    desk.add(kinds.EndContent(state="carried"), ("clerk", ended))
    assert told(task_log([*desk.entries, *clerk.entries])) == [
        ("desk", "LLM", 'clerk {"task": "carry"}'),
        ("clerk", "USER", "carry"),
        ("clerk", "LLM", "carried"),
        ("desk", "AGENT", "carried"),
    ]


def test_only_the_result_of_a_step_is_marked():
    rows = task_log([entry for book in family() for entry in book.entries])
    assert [row.fields.content for row in rows if row.mark] == ["carried", "swept"]
    assert {row.responder for row in rows if row.mark} == {"clerk"}


def test_a_sub_task_that_no_edge_leads_to_stands_at_the_end_and_a_run_alone_is_a_task():
    top, clerk = Book("top"), Book("clerk", "top")
    top.add(kinds.UserContent(value="go"))
    clerk.add(kinds.SystemContent(value="carry"))
    top.said("done")
    rows = task_log([*clerk.entries, *top.entries])
    assert [(row.depth, row.fields.content) for row in rows] == [(0, "go"), (0, "done"), (1, "carry")]
    assert told(task_log(clerk.entries)) == [("clerk", "USER", "carry")]


@given(st.lists(st.text(), min_size=1, max_size=10))
def test_a_line_of_tsv_gives_its_cells_back(cells: list[str]):
    line = tsv(cells)
    assert not {"\n", "\r"} & set(line)
    back = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
    read = []
    for cell in line.split("\t"):
        left, text = iter(cell), ""
        for character in left:
            text += back[next(left)] if character == "\\" else character
        read.append(text)
    assert read == cells


def test_content_is_whole():
    book = Book("desk")
    book.add(kinds.UserContent(value="x" * 100_000))
    assert len(task_log(book.entries)[0].fields.content) == 100_000
    assert LogFields().sender_entity == "USER"
