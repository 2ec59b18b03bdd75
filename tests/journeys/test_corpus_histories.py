"""Real runs, cut after their entries, give bodies that every provider takes, in every form; the full campaign is a command."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.histories import ANEW, Judge, imported, main, table
from msgspec.structs import replace
from tests.conftest import FULL
from tests.laws.dialects import STRICT, Spoken
from tests.validators.chat_completions import parse

from gesta import address
from gesta.entry import Entry
from gesta.formatters.tool_calls import UNANSWERED, ToolCalls
from gesta.message import Message
from gesta.prompt import Formatter

SOME = (
    *("inspect-ai", "langfuse-traces", "swe-agent", "tau-bench", "who-and-when/hand-crafted.jsonl.gz"),
    *("tau2-bench/results/retail-gpt-4.1.json.gz", "mini-swe-agent/deepseek-chat-test-part1.jsonl.zst"),
    *("agentdojo/runs/claude-3-opus-20240229.jsonl.zst", "agentdojo/runs/command-r.jsonl.zst"),
)
"""Folders and files, of every format one that is soon read."""
EVERY, RUNS, BODIES = (25, 2, 80) if FULL else (240, 1, 8)
"""Each so many-th prefix is taken, of so many runs of a file; of each form and dialect that gives so many bodies."""


def calls(*names: str) -> list[dict[str, Any]]:
    return [{"id": f"c-{name}", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names]


CONVERSATION = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "two things"},
        {"role": "assistant", "content": "", "tool_calls": calls("a", "b")},
        {"role": "tool", "tool_call_id": "c-a", "content": "one"},
        {"role": "tool", "tool_call_id": "c-b", "content": "two"},
        {"role": "assistant", "content": "done"},
    ]
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A corpus of one conversation."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.jsonl").write_text(json.dumps(CONVERSATION) + "\n", encoding="utf-8")
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main([*words, "--jobs", "1"])
    return code, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(240)  # each body is built and judged, many times over
def test_sampled_prefixes_of_real_runs_are_valid_in_every_form(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = ran(capsys, *SOME, "--corpus", str(corpus), "--every", str(EVERY), "--runs", str(RUNS), "--json")
    found = json.loads(out)
    assert (code, found["flaws"], found["problems"], found["refused"]) == (0, {}, [], {})
    assert {*found["bodies"]} == {f"{name} {each.speaks}" for name in address.FORMATTERS for each in STRICT}
    assert min(found["bodies"].values()) >= BODIES
    assert found["runs"] >= 25 * RUNS


def test_each_prefix_is_judged_once_with_its_open_calls_closed(runs: Path) -> None:
    bodies: list[Any] = []

    def taking(body: bytes) -> list[str]:
        bodies.append(parse(body.decode())["messages"])
        return []

    judge = Judge([STRICT[0]._replace(judge=taking)], ["tool-calls"])
    (entries,) = imported(runs / "runs" / "a.jsonl")
    judge.take(entries)
    said = [
        [message["content"] or [call["id"] for call in message["tool_calls"]] for message in body] for body in bodies
    ]
    asked = ["Be brief.", "two things"]
    assert said[:-1] == [
        asked,
        [*asked, ["c-a"], UNANSWERED],
        [*asked, ["c-a", "c-b"], UNANSWERED, UNANSWERED],
        [*asked, ["c-a", "c-b"], "one", UNANSWERED],
        [*asked, ["c-a", "c-b"], "one", "two"],
        [*asked, ["c-a", "c-b"], "one", "two", "done"],
    ]
    late = [text for text in said[-1] if isinstance(text, str) and text.startswith("[Late result")]
    assert len(late) == 2, "had a request been sent after each entry, both results would have come late"
    judge.take(entries)
    assert (judge.report.runs, judge.report.bodies) == (2, {"tool-calls chat-completions": 7})


def test_a_violation_is_counted_and_one_example_is_shown(runs: Path) -> None:
    def judge(body: bytes) -> list[str]:
        return ["messages[3]: 'c-a' is odd", "messages[4]: 'c-b' is odd"] if b"c-a" in body else []

    broken: list[Spoken] = [STRICT[0], STRICT[1]._replace(judge=judge)]
    judging = Judge(broken, ["tool-calls"])
    (entries,) = imported(runs / "runs" / "a.jsonl")
    judging.take(entries, "runs/a.jsonl")
    (flaw,) = judging.report.flaws.values()
    assert (flaw.bodies, flaw.rule, flaw.dialect) == (6, "… is odd", "anthropic-messages")
    assert not judging.report.ok
    shown = "\n".join(table(judging.report))
    assert "6 / 7" in shown
    assert "VIOLATION in 6 bodies: tool-calls, anthropic-messages: messages[3]: 'c-a' is odd" in shown
    assert f"as in runs/a.jsonl, run {entries[0].run}, up to entry" in shown


def test_a_formatter_that_depends_on_where_segments_end_is_found(runs: Path) -> None:
    class Counting(ToolCalls):
        def format(self, entries: Sequence[Entry], state: Any) -> list[Message]:
            return [replace(each, text=f"{each.text} of {len(entries)}") for each in super().format(entries, state)]

    class Lenient(Judge):
        @staticmethod
        def formatter(name: str) -> Formatter[Any]:
            del name
            return Counting()

    judge = Lenient(STRICT[:1], ["tool-calls"])
    (entries,) = imported(runs / "runs" / "a.jsonl")
    judge.take(entries)
    assert [flaw.violation for flaw in judge.report.flaws.values()] == [ANEW]


def test_the_table_has_a_row_for_each_formatter_and_a_column_for_each_dialect(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = ran(capsys, "runs", "--corpus", str(runs))
    head, *rows, _, totals = out.splitlines()
    assert (code, head.split()) == (0, [*(each.speaks for each in STRICT), "all"])
    assert [row.split()[0] for row in rows] == [*address.FORMATTERS, "all"]
    assert all(row.split()[1] == "0" for row in rows)
    assert totals.startswith("1 files, 1 runs, ")


def test_a_file_that_does_not_come_in_fails(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "runs" / "b.json").write_text('{"letters": 1}', encoding="utf-8")
    code, out = ran(capsys, "--corpus", str(runs))
    assert code == 1
    assert "PROBLEM runs/b.json" in out


def test_where_there_is_no_corpus_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GESTA_CORPUS", str(tmp_path / "nowhere"))
    code, out = ran(capsys)
    assert (code, out.startswith("SKIPPED: no corpus at ")) == (0, True)
    for words in (["planets", "--corpus", str(tmp_path)], ["--corpus", str(tmp_path), "--every", "0"]):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 2
