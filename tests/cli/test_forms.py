"""One conversation in other systems' forms: each says the same calls, results and answers, as a page and as data."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.cells import cell_len
from tests import programs
from tests.cli.conftest import Gesta
from tests.cli.test_looking import HOSTILE, STEERS
from tests.docs.test_commands import MAIN, commands

import gesta as door
from gesta import kinds
from gesta.cli.layout import WIDEST
from gesta.cli.talk import harmless
from gesta.compat.langchain.agents import AgentFinish, AgentStep
from gesta.compat.langchain.lc import from_lc
from gesta.compat.langroid.task_log import COLUMNS
from gesta.formatters.codeact_text import code_of
from gesta.prompt import observation_text

pytestmark = pytest.mark.sample(2, over="parent")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "coming-from" / "index.md").read_text(encoding="utf-8")
FORMS = ("activity", "steps", "task", "react", "codeact")
Call = tuple[str, dict[str, Any]]


class Facts(NamedTuple):
    """What every form must say."""

    calls: list[Call]
    results: list[str]
    answers: list[str]


def facts(gesta: Gesta) -> Facts:
    """Read calls, results in the order of their calls, and answers out of the last run itself."""
    contents = [json.loads(line)["content"] for line in gesta("log", "last", "--json").stdout.splitlines()]
    results = [each for each in contents if each["kind"] == "tool-result"]
    return Facts(
        [(each["tool_name"], each["tool_args"]) for each in contents if each["kind"] == "tool-call"],
        [observation_text(each["tool_result"]) for each in sorted(results, key=lambda each: each.get("call") or 0)],
        [each["value"] for each in contents if each["kind"] == "assistant"],
    )


def data(gesta: Gesta, form: str) -> Iterator[Any]:
    """Return a form of the last run as data."""
    done = gesta("log", "last", "--as", form, "--json")
    assert done.exit_code == 0, done.output
    return map(from_lc if form == "steps" else json.loads, done.stdout.splitlines())


def squeezed(text: str) -> str:
    """Return a text without spaces, since a page breaks lines where it must."""
    return "".join(text.split())


def six() -> list[list[str]]:
    """Return the commands of the page."""
    block = re.search(r"<!-- test:forms -->\n```bash\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert block is not None
    return [words[1:] for words, _ in commands(block[1])]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record that the demo leaves, under the name that it leaves it by."""
    folder = tmp_path_factory.mktemp("demo")
    done = programs.run([*MAIN[1:], "demo", "--yes"], cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs.gesta"


def seen(gesta: Gesta, found: Facts) -> None:
    """Look at the last run by the page's commands: each shows the calls and the last answer."""
    assert [words[words.index("--as") + 1] for words in six() if "--as" in words] == [*FORMS]
    assert six()[-1] == ["why", "last"]
    for words in six():
        done = gesta(*words, "--all")
        assert done.exit_code == 0, done.output
        shown = squeezed(done.stdout)
        assert squeezed(harmless(found.answers[-1])) in shown, words
        for name, args in found.calls:
            assert name in shown, words
            for value in args.values():
                assert squeezed(str(value)) in shown or squeezed(json.dumps(value)) in shown, (words, name)
        page = gesta(*words)
        assert page.exit_code == 0
        unmarked = page.stdout.replace("[", "").replace("]", "")  # `why` marks what stands in a source
        assert squeezed(harmless(found.answers[-1]))[:30] in squeezed(unmarked)
        assert max(map(len, page.stdout.splitlines()[1:])) <= 80  # the first line names the run, however long that is


def same(gesta: Gesta, found: Facts) -> None:
    """Compare every form, as data, with the run."""
    lines = [line["content"] for line in data(gesta, "activity")]
    assert [(line["tool_name"], line["tool_args"]) for line in lines if line["kind"] == "tool-call"] == found.calls
    assert [line["value"] for line in lines if line["kind"] == "assistant"] == found.answers

    steps = list(data(gesta, "steps"))
    done = [each for each in steps if isinstance(each, AgentStep)]
    assert [(each.action.tool, each.action.tool_input) for each in done] == found.calls
    assert [observation_text(each.observation) for each in done] == found.results
    assert [each.return_values["output"] for each in steps if isinstance(each, AgentFinish)] == found.answers

    rows = [row for row in data(gesta, "task") if row["responder"] != "USER"]
    asked = [row for row in rows if row["responder"] == "LLM" and row["tool"]]
    assert [name for row in asked for name in row["tool"].split(",")] == [name for name, _ in found.calls]
    assert all(row["tool_type"] == "OAI_TOOL" for row in asked)
    said = "\n".join(row["content"] for row in asked)
    assert all(f"{name} {observation_text(args)}" in said for name, args in found.calls)
    assert sorted(row["content"] for row in rows if row["responder"] == "AGENT") == sorted(found.results)
    assert [row["content"] for row in rows if row["responder"] == "LLM" and not row["tool"]] == found.answers

    for form in ("react", "codeact"):
        messages = list(data(gesta, form))
        made = [each["tool_calls"][0]["function"] for each in messages if each.get("tool_calls")]
        args = [json.loads(each["arguments"]) for each in made]
        if form == "react":
            assert [(each["name"], arg) for each, arg in zip(made, args, strict=True)] == found.calls
        else:
            assert [arg["code"] for arg in args] == [code_of(*call) for call in found.calls]
        assert [each["content"] for each in messages if each["role"] == "tool"] == found.results
        replies = [each["content"] for each in messages if each["role"] == "assistant" and "tool_calls" not in each]
        assert replies == found.answers


@pytest.mark.slow
def test_the_demo_is_one_conversation_six_ways(gesta: Gesta, folder: Path, demo: Path):
    shutil.copy(demo, folder / "runs.gesta")
    found = facts(gesta)
    assert [name for name, _ in found.calls] == ["find_customer", "order_status", "refund_policy", "refund"]
    seen(gesta, found)
    same(gesta, found)


def test_a_recorded_retail_conversation_is_one_conversation_six_ways(gesta: Gesta, corpus: Path):
    path = corpus / "tau2-bench" / "results" / "retail-gpt-4.1-mini.json.gz"
    assert gesta("import", str(path)).exit_code == 0
    found = facts(gesta)
    assert len(found.calls) == 5
    seen(gesta, found)
    same(gesta, found)


def test_actions_of_one_reply_share_one_message_log(gesta: Gesta):
    gesta("run", "agent.py:pair", "pay both")
    assert [line[6:] for line in gesta("log", "--as", "steps").stdout.splitlines()[3:]] == [
        "       log                    (2 actions share this message)",
        '6      AgentActionMessageLog  refund {"order": "W1", "amount": 1.0}',
        "6      AgentStep              This call has no result on record.",
        '7      AgentActionMessageLog  refund {"order": "W2", "amount": 2.0}',
        "7      AgentStep              This call has no result on record.",
    ]
    logs = [step.action.message_log for step in data(gesta, "steps")]
    assert logs[0] == logs[1]
    assert [call["args"]["order"] for call in logs[0][0].tool_calls] == ["W1", "W2"]


def test_steps_are_told_turn_by_turn_and_a_late_result_names_its_call(gesta: Gesta):
    with door.open_sync("runs.gesta") as record, record.span("job", session="s") as span:
        span.log(kinds.BeginContent(name="desk", role="turn"))
        span.log(kinds.ChatCompletionContent(output="", finish_reason="tool_calls"))
        span.log(kinds.ToolCallContent(tool_name="send", tool_args={"to": "ann"}))
        span.log(kinds.ToolResultContent(tool_result="unknown", call=4, outcome="unknown", status="error"))
        span.log(kinds.BeginContent(name="desk", role="turn"))
        span.log(kinds.ToolResultContent(tool_result="sent", call=4, outcome="late"))
        span.log(kinds.ChatCompletionContent(output="It was sent after all."))
    assert [line.split(None, 3) for line in gesta("log", "--as", "steps").stdout.splitlines()[3:]] == [
        ["1", "4", "AgentActionMessageLog", 'send {"to": "ann"}'],
        ["1", "4", "AgentStep", "unknown: unknown"],
        ["2", "4", "AgentActionMessageLog", 'send {"to": "ann"}'],
        ["2", "4", "AgentStep", "late: sent"],
        ["2", "AgentFinish", "It", "was sent after all."],
    ]


def test_the_task_of_an_agent_that_is_a_tool_stands_indented_under_its_call(gesta: Gesta):
    clerk = door.Agent("clerk", door.scripted("It is a lamp."))
    script = door.scripted(door.call("clerk", task="What is 42?"), "A lamp.")
    door.run_sync(door.Agent("desk", script, tools=[clerk.as_tool()]), "hi", record="runs.gesta")
    assert gesta("log", "--as", "task").stdout.splitlines()[3:] == [
        "desk       USER              hi",
        'desk       LLM        clerk  clerk {"task": "What is 42?"}',
        "  clerk#6  USER              What is 42?",
        "  clerk#6  LLM               It is a lamp.",
        "desk       AGENT      clerk  It is a lamp.",
        "desk       LLM               A lamp.",
    ]
    assert [row["depth"] for row in data(gesta, "task")] == [0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("form", ["react", "codeact"])
def test_a_call_without_a_result_has_a_placeholder_in_a_history(gesta: Gesta, form: str):
    gesta("run", "agent.py:desk", "pay")
    lines = gesta("log", "--as", form).stdout.splitlines()
    assert lines[-1] == "observation  This call has no result on record."
    assert ("code         refund(order='W1', amount=20.5)" in lines) == (form == "codeact")
    assert ("action       refund" in lines) == (form == "react")


def test_a_thought_stands_before_its_action(gesta: Gesta):
    gesta("run", "agent.py:agent", "Rome?")
    assert gesta("log", "--as", "react").stdout.splitlines()[2:] == [
        "user         Rome?",
        "thought      Let me look.",
        "action       weather",
        'args         {"city": "Rome"}',
        "observation  Rome: 21 degrees, dry",
        "answer       Rome is dry: no umbrella.",
    ]


def test_tsv_has_every_column_and_whole_texts(gesta: Gesta):
    text = "a\ttab, a\nline, a \\ and " + "x" * 5000
    with door.open_sync("runs.gesta") as record, record.span("job", session="s") as span:
        span.log(kinds.UserContent(value=text, user_id="ann"))
    for words in (["--format", "tsv"], ["--as", "task", "--format", "tsv"]):
        heading, line = gesta("log", "s", *words).stdout.splitlines()
        assert heading.split("\t") == list(COLUMNS)
        assert line.split("\t") == [*("", "job", "USER", "USER", "ann", "", "", "", ""), *line.split("\t")[-1:]]
        assert line.split("\t")[-1] == "a\\ttab, a\\nline, a \\\\ and " + "x" * 5000


def test_annotations_are_shown_where_they_change(gesta: Gesta):
    with door.open_sync("runs.gesta") as record, record.span("job", session="s", version="1") as span:
        span.log(kinds.UserContent(value="hi"), channel="chat")
        with span.span("inner") as inner:
            inner["alpha"] = 1
    shown = [line[10:] for line in gesta("log", "--as", "activity").stdout.splitlines()[3:]]
    assert shown == [
        "begin      job        [version=1]",
        "user       job        hi",
        "                      [channel=chat]",
        "begin      job/inner",
        "key-value  job/inner  alpha = 1",
        "end        job/inner",
        "end        job",
    ]
    assert gesta("log", "--as", "activity", "--all").stdout.count("[version=1") == 6
    assert [line["annotations"] for line in data(gesta, "activity")][1] == {"version": "1", "channel": "chat"}


def test_long_texts_are_folded_and_in_all_they_are_not(gesta: Gesta):
    with door.open_sync("runs.gesta") as record, record.span("job", session="s") as span:
        span.log(kinds.UserContent(value="\n".join(f"line {n}" for n in range(100))))
        span.log(kinds.ToolCallContent(tool_name="t", tool_args={"x": "y" * 1000}))
        span.log(kinds.AssistantContent(value="\n".join(f"word {n}" for n in range(100))))
    for form in FORMS:
        shown, everything = gesta("log", "--as", form).stdout, gesta("log", "--as", form, "--all").stdout
        assert "lines more" in shown
        assert max(map(len, shown.splitlines())) <= 80
        assert "word 99" not in shown
        assert "word 99" in everything


@pytest.mark.parametrize("columns", ["40", "60", "100", "200"])
def test_a_page_is_no_wider_than_the_terminal(gesta: Gesta, columns: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", columns)
    name = "a_tool_whose_name_is_rather_long_and_goes_on_and_on"
    with door.open_sync("runs.gesta") as record, record.span("job", session="s") as span:
        with span.span("inner") as inner, inner.span("innermost") as most:
            most.log(kinds.ToolCallContent(tool_name=name, tool_args={"word": "漢字" * 80, "n": 1}))
        span.log(kinds.ToolResultContent(tool_result="word " * 80, call=4))
    for form in FORMS:
        shown = gesta("log", "--as", form).stdout.splitlines()[2:]
        assert max(map(cell_len, shown)) <= min(int(columns), WIDEST)
    assert name in gesta("log", "--as", "task", "--all").stdout


@pytest.mark.sample(5)
@pytest.mark.parametrize("more", [[], ["--json"], ["--all"], ["--format", "tsv"]])
@pytest.mark.parametrize("form", FORMS)
def test_nothing_in_any_form_steers_the_terminal(gesta: Gesta, form: str, more: list[str]):
    if form != "task" and "tsv" in more:
        more = []
    with door.open_sync("runs.gesta") as record, record.span(HOSTILE, session="s", note=HOSTILE) as span:
        span.log(kinds.RequestHeaderContent(meta={"instructions": HOSTILE, "model": HOSTILE}))
        span.log(kinds.UserContent(value=HOSTILE, user_id=HOSTILE, extra={"recipient": HOSTILE}))
        span.log(kinds.ChatCompletionContent(output=HOSTILE))
        span.log(kinds.ToolCallContent(tool_name=HOSTILE, tool_args={HOSTILE: HOSTILE}, tool_call_id=HOSTILE))
        span.log(kinds.ToolResultContent(tool_result={HOSTILE: [HOSTILE]}, call=5))
        span.log(kinds.EdgeContent(source=[HOSTILE], dest=[HOSTILE], payload=HOSTILE))
        span.log(kinds.AssistantContent(value=HOSTILE))
        span[HOSTILE] = HOSTILE
    done = gesta("log", "s", "--as", form, *more)
    assert done.exit_code == 0, done.output
    assert not STEERS.search(done.stdout)
    assert "bold" in done.stdout


def test_lines_that_were_no_log_records_are_shown_as_they_came(gesta: Gesta, folder: Path):
    line = {"identifier": "1", "span": {"session": "s", "name": ["app"]}, "content": {"kind": "user", "value": "hi"}}
    (folder / "activity.log").write_text(json.dumps(line) + "\nno JSON\n", encoding="utf-8")
    gesta("import", "activity.log", "--format", "agent-catalog")
    shown = gesta("log", "--as", "activity").stdout
    assert "user  app   hi" in shown
    assert shown.splitlines()[-1].strip() == "no JSON"
    assert gesta("log", "--as", "activity", "--json").stdout.splitlines()[-1] == "no JSON"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--as", "tsk"], "No form 'tsk'. Did you mean 'task'? Forms: activity, steps, task, react, codeact."),
        (["--as", "task", "--raw"], "--as and --raw do not go together. Leave one of them out."),
        (["--as", "react", "--follow"], "--as and --follow do not go together. Leave one of them out."),
        (["--as", "steps", "--kinds", "user"], "--as and --kinds do not go together. Leave one of them out."),
        (["--format", "tsv", "--raw"], "--format and --raw do not go together. Leave one of them out."),
        (["--format", "tsv", "--json"], "--format and --json do not go together. Leave one of them out."),
        (["--format", "tvs"], "No format 'tvs'. Did you mean 'tsv'? Formats: tsv."),
        (["--as", "react", "--format", "tsv"], "--format tsv is a form of --as task, not of --as react."),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(gesta: Gesta, words: list[str], said: str):
    gesta("run", "agent.py:plain", "x")
    done = gesta("log", "last", *words)
    assert (done.exit_code, done.stderr) == (2, f"error: {said}\n")
