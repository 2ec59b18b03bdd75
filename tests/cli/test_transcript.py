"""Every kind of entry has a line, and lines are laid out by what characters take up."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gesta import kinds
from gesta.cli.layout import fold, table, wrap
from gesta.cli.talk import HOSTILE, count, harmless, json_line, short
from gesta.cli.transcript import Transcript, line_of
from gesta.entry import Entry, utc_text
from gesta.views.lines import lines

NOW = datetime(2026, 11, 21, 2, 10, 11, tzinfo=UTC)
SAMPLES: dict[type, dict[str, Any]] = {
    kinds.SystemContent: {"value": "Be brief."},
    kinds.UserContent: {"value": "Hello", "user_id": "ann"},
    kinds.AssistantContent: {"value": "Hi"},
    kinds.RequestHeaderContent: {"tools": [{}], "meta": {"model": "m", "instructions": "abc"}},
    kinds.RequestContent: {"header": 1, "blocks": [[[1], "x"]], "body_digest": "ab" * 32, "number": 2, "extends": 3},
    kinds.ChatCompletionContent: {"output": "Hi", "latency_ms": 1500.0, "finish_reason": "stop"},
    kinds.ThoughtContent: {"value": "Hm."},
    kinds.ToolCallContent: {"tool_name": "f", "tool_args": {"a": 1}},
    kinds.AttemptContent: {"of": 6, "number": 2, "epoch": 1},
    kinds.ToolResultContent: {"tool_result": {"a": 1}, "call": 6, "outcome": "late"},
    kinds.FaultContent: {"of": 6, "error": kinds.Error(type="timeout", message="slow"), "wait_s": 0.5},
    kinds.BeginContent: {"name": "job", "role": "task"},
    kinds.EndContent: {"status": "error", "error": kinds.Error(type="X", message="y"), "state": {"n": 2}},
    kinds.EdgeContent: {"source": ["a"], "dest": ["b", "c"], "payload": 1},
    kinds.KeyValueContent: {"key": "k", "value": [1, "two"]},
    kinds.DecisionContent: {"choice": "a", "candidates": ["a", "b"], "rationale": "first"},
    kinds.PlanContent: {"role": "plan", "steps": [kinds.Step(goal="begin"), kinds.Step(goal="end")]},
    kinds.RetrievalContent: {"query": "q", "hits": [kinds.Hit(document="d", chunk="c", score=0.5)]},
    kinds.ApprovalRequestContent: {"of": 6, "args_digest": "ab"},
    kinds.ApprovalContent: {"of": 7, "verdict": "approved", "by": "ann", "args": {"a": 2}, "reason": "fine"},
    kinds.QuestionContent: {"value": "Which one?"},
    kinds.AnswerContent: {"of": 6, "value": "that", "by": "ann"},
    kinds.SignalContent: {"name": "cancel", "by": "ann", "reason": "late"},
    kinds.TimerContent: {"due_at": NOW, "key": "t"},
    kinds.ResolutionContent: {"of": 8, "verdict": "done", "by": "ann", "result": 1},
    kinds.BudgetContent: {"of": 3, "reserved": {"usd": 1}},
    kinds.ArtifactContent: {"name": "a.png", "media_type": "image/png", "blob": "ab"},
    kinds.CheckContent: {"of": 1, "point": "call", "hook": "rule", "verdict": "refused", "words": "no"},
    kinds.CompactionContent: {"from_seq": 1, "to_seq": 5, "summary": "short"},
}
SHOWN = """\
system  Be brief.
ann  Hello
guide  Hi
header  model m, 1 tool, 3 characters of instructions
request  1 block after request 3, try 2, body abababababab
reply  model, tokens unknown, 1.5 s, stop
thinks  Hm.
call 9  f(a=1)
attempt  2 of call 6
result 6  late: {"a": 1}
fault  timeout (of 6): slow; tried again after 0.5 s
begin  job (task)
end  error {"n": 2} X: y
edge  a → b/c: 1
note  k = [1, "two"]
decision  a of a, b: first
plan  0. begin\\n1. end
retrieval  q\\n  d c 0.5
asks  may call 6 run?
approved  by ann, with {"a": 2}: fine
question  Which one?
answer  that (by ann)
cancel  by ann: late
timer  t at 2026-11-21T02:10:11
settled  done (attempt 8), by ann, giving 1
budget  of 3: reserved {"usd": 1}, spent null
artifact  a.png (image/png)
hook  rule refused the call: no
compaction  1 to 5: short
"""


def _entry(content: Any, seq: int = 9) -> Entry:
    return Entry(run="r", seq=seq, at=NOW, span=1, content=content)


def test_every_kind_has_its_line():
    assert set(SAMPLES) == set(get_args(kinds.Content))
    lines = [line_of(_entry(content(**fields)), "guide") for content, fields in SAMPLES.items()]
    assert "".join(f"{line.who}  {line.text}\n".replace("\n", "\\n", line.text.count("\n")) for line in lines) == SHOWN


@pytest.mark.parametrize("everything", [False, True])
def test_no_entry_stops_the_transcript_whatever_stands_before_it(everything: bool):
    page = Transcript(width=80, colour=True, everything=everything)
    for _ in range(2):
        for seq, (content, fields) in enumerate(SAMPLES.items(), 1):
            assert all(isinstance(line, str) for line in page.add(_entry(content(**fields), seq)))
    assert list(page.close()) == []


@pytest.mark.parametrize(
    ("day", "said"), [(21, "said at 01:00:00"), (20, "said at 2026-11-20 01:00:00")], ids=["same day", "day before"]
)
def test_what_a_person_said_is_shown_with_the_time_at_which_it_was_said(day: int, said: str):
    at = NOW.replace(day=day, hour=1, minute=0, second=0)
    for kind in (kinds.ApprovalContent, kinds.AnswerContent, kinds.ResolutionContent):
        content = kind(**SAMPLES[kind], sent_at=at)
        entry = Entry(run="r", seq=9, at=NOW, span=1, content=content)
        assert said in line_of(entry, "guide").text
        assert lines([entry], {})[0].said_at == utc_text(at)
        assert lines([Entry(run="r", seq=9, at=NOW, span=1, content=kind(**SAMPLES[kind]))], {})[0].said_at is None


def test_a_reply_that_became_no_answer_is_shown():
    page = Transcript(width=80, colour=False)
    assert list(page.add(_entry(kinds.ChatCompletionContent(output="Half an answer")))) == []
    assert [line[10:] for line in page.close()] == ["model       Half an answer"]


def test_an_answer_is_shown_once_also_where_an_account_is_kept():
    page = Transcript(width=80, colour=False)
    contents = [
        kinds.ChatCompletionContent(output="Rome."),
        kinds.BudgetContent(of=1, spent={"tokens": 5}),
        kinds.AssistantContent(value="Rome."),
    ]
    assert [line[10:] for content in contents for line in page.add(_entry(content))] == ["assistant   Rome."]


@given(st.text(), st.integers(20, 100))
def test_lines_are_no_wider_than_the_page_and_no_word_is_lost(text: str, width: int):
    lines = wrap(harmless(text), width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(harmless(text).expandtabs(4).split())


def test_indents_stay_and_words_are_kept_whole():
    assert wrap("if x:\n    return one two three", 16) == ["if x:", "    return one", "two three"]
    assert wrap("犬犬犬犬犬犬犬犬犬犬犬犬", 20) == ["犬" * 10, "犬" * 2]
    assert wrap("", 20) == [""]


def test_what_is_folded_says_how_much_there_is():
    assert fold(list("abcdef"), 3) == ["a", "b", "c", "... 3 lines more"]
    assert fold(list("abcd"), 3) == list("abcd")
    assert fold(list("abcdef"), None) == list("abcdef")


def test_tables_are_aligned_by_what_characters_take_up():
    rows = [("犬", "5", "x\ny"), ("dog", "1,000", "\x1b")]
    assert table(("who", "n", "what"), rows, right=("n",)) == [
        "who      n  what",
        "犬       5  x\\ny",
        "dog  1,000  \\x1b",
    ]


def test_a_table_that_is_too_wide_has_no_empty_columns_and_breaks_cells_at_spaces() -> None:
    headings = ("run", "agent", "started (UTC)", "errors", "tokens in", "stands")
    row = ("0123456789abcdef", "desk", "2026-01-01 12:00:00", "", "1,234,567", "waiting for approval of pay")
    wide = table(headings, [row], right=("errors", "tokens in"), room=92)
    assert [len(each) for each in wide] == [71, 92]
    narrow = table(headings, [row], right=("errors", "tokens in"), room=68)
    assert narrow[0].split("\n") == ["run               agent  started (UTC)    tokens in  stands"]
    assert narrow[1].split("\n") == [
        "0123456789abcdef  desk   2026-01-01       1,234,567  waiting for",
        "                         12:00:00                    approval of pay",
    ]
    narrower = "\n".join(table(headings, [row], right=("errors", "tokens in"), room=54)).split("\n")
    assert max(map(len, narrower)) <= 54
    assert "0123456789abcdef" in narrower[2]
    assert len(table(("a",), [("x" * 10**6,)], room=80)[1].split("\n")) == 10**6 // 80


@given(st.text() | st.text(st.characters(categories=("Cc", "Cf", "Cs"))))
def test_harmless_text_holds_nothing_that_steers(text: str):
    assert not HOSTILE.search(harmless(text))
    assert not HOSTILE.search(json_line({text: [text]}))


@given(st.dictionaries(st.text(), st.text(st.characters(categories=("Cc", "Cf", "Lu")))))
def test_harmless_json_is_the_same_json(value: dict[str, str]):
    import json

    assert json.loads(json_line(value)) == value


def test_numbers_and_nouns():
    assert [count(1, "entry"), count(2, "entry"), count(1200, "run")] == ["1 entry", "2 entries", "1,200 runs"]
    assert count(2, "reply") == "2 replies"
    assert short("a  b\nc", 10) == "a b c"
    assert short("abcdefghij", 8) == "abcde..."
