"""`runs`, `log` and `sql`: what they show, in each form, of which record, and of whatever stands in it."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest
from tests.cli.conftest import Gesta

import gesta as door
from gesta import kinds
from gesta.cli.talk import colours

pytestmark = pytest.mark.sample(2, over="parent")

Find = Callable[[str], str]
MAIN = [sys.executable, "-c", "from gesta.cli import main; main()"]
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
HOSTILE = "\x1b[2J\x1b]0;owned\x07 \u202edcba\u202c [bold red]x[/bold red] \x9b31m \r \u2066y\u2069 \x7f \ud800"


def test_runs_are_listed_newest_first(gesta: Gesta, run_id: Find):
    gesta("run", "agent.py:agent", "Rome?", "--session", "trip")
    gesta("run", "agent.py:desk", "pay")
    gesta("run", "agent.py:mute", "hello")
    gesta("run", "agent.py:sender", "send")
    lines = gesta("runs").stdout.splitlines()
    assert lines[0].split("  ")[0] == "run"
    assert [line.split("  ")[-1].strip() for line in lines] == [
        "stands",
        "in doubt: send",
        "failed (EmptyReply)",
        "waits for approval: refund",
        "answered",
    ]
    assert re.fullmatch(
        rf"{run_id('guide')}  trip +guide +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d +12 +39  answered", lines[-1]
    )
    assert len(gesta("runs", "--limit", "2").stdout.splitlines()) == 3
    first = json.loads(gesta("runs", "--json").stdout.splitlines()[-1])
    assert (first["session"], first["entries"], first["tokens_in"], first["tokens_out"]) == ("trip", 12, 30, 9)
    assert first["unknown_usage"] == 1


def test_a_record_without_runs_says_so(gesta: Gesta):
    with door.open_sync("runs.gesta"):
        pass
    done = gesta("runs")
    assert "There is no run in this record yet.\n" in done.stderr
    assert gesta("log", "last").exit_code == 2


def test_the_log_reads_as_a_conversation(gesta: Gesta, run_id: Find):
    gesta("run", "agent.py:agent", "What do I need in Rome?", "--session", "trip", "--user", "ann")
    shown = gesta("log").stdout
    time, day = r"\d\d:\d\d:\d\d", r"\d{4}-\d\d-\d\d"
    expected = [
        rf"run {run_id('guide')}  session trip  agent guide  begun {day} {time} UTC",
        "",
        rf"── turn 1 · guide · {day} ─+",
        rf"{time}  ann         What do I need in Rome\?",
        rf"{time}  guide       Let me look\.",
        rf'{time}  call 6      weather\(city="Rome"\)',
        rf"{time}  result 6    Rome: 21 degrees, dry",
        rf"{time}  guide       Rome is dry: no umbrella\.",
        r"── answered · 2 requests · 30 \+ 9 tokens · \d+\.\d s ─+",
    ]
    for line, pattern in zip(shown.splitlines(), expected, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


def test_all_shows_the_machinery_too(gesta: Gesta):
    gesta("run", "agent.py:agent", "Rome?")
    plain, everything = gesta("log").stdout, gesta("log", "--all").stdout
    for words in (
        "1 block, body ",
        "2 blocks after request 4, body ",
        "1 of call 6",
        "model scripted, 1 tool",
        "30 tokens in",
    ):
        assert words in everything
        assert words not in plain


def test_kinds_choose_entries(gesta: Gesta):
    gesta("run", "agent.py:agent", "Rome?")
    lines = gesta("log", "--kinds", "tool-call, attempt").stdout.splitlines()
    assert [line[10:] for line in lines[1:]] == ['call 6      weather(city="Rome")', "attempt     1 of call 6"]
    done = gesta("log", "--kinds", "tol-call")
    assert done.exit_code == 2
    assert "error: No kind 'tol-call'. Did you mean 'tool-call'? Kinds: system, tool-call, " in done.stderr


def test_raw_is_what_is_stored_and_json_what_it_says(gesta: Gesta):
    gesta("run", "agent.py:agent", "Rome?")
    stored = gesta("sql", "SELECT content FROM entries ORDER BY seq", "--json").stdout.splitlines()
    raw = [line.split("\t") for line in gesta("log", "--raw").stdout.splitlines()]
    assert [line[4] for line in raw] == [json.loads(line)["content"] for line in stored]
    entries = [json.loads(line) for line in gesta("log", "--json").stdout.splitlines()]
    assert [entry["seq"] for entry in entries] == list(range(1, 13))
    assert entries[5]["content"]["tool_args"] == {"city": "Rome"}
    assert entries[5]["causes"] == [5]


def test_long_results_are_folded_and_nothing_is_folded_in_all(gesta: Gesta):
    with door.open_sync("runs.gesta") as record, record.span("job", session="s") as span:
        span.log(kinds.ToolResultContent(tool_result="\n".join(f"line {n}" for n in range(100))))
        span.log(kinds.UserContent(value="word " * 3000))
        span.log(kinds.KeyValueContent(key="large", value="x" * 100_000))
    shown = gesta("log", "s").stdout
    assert "line 5\n" in shown
    assert "line 6\n" not in shown
    assert "... 94 lines more" in shown
    assert max(map(len, shown.splitlines())) <= 80
    everything = gesta("log", "s", "--all").stdout
    assert "line 99\n" in everything
    assert everything.count("x") >= 100_000


def test_a_program_that_only_records_shows_its_scopes(gesta: Gesta):
    with door.open_sync("runs.gesta") as record, record.span("job", session="s") as span:
        with span.span("inner", state={"n": 1}) as inner:
            inner["alpha"] = 1
        span.log(kinds.UserContent(value="hi"))
    shown = [line[10:] for line in gesta("log", "s").stdout.splitlines()[1:]]
    assert shown == [
        "begin       job",
        'begin         inner {"n": 1}',
        "note        alpha = 1",
        'end           inner {"n": 1}',
        "user        hi",
        "end         job",
    ]
    assert gesta("runs").stdout.splitlines()[1].endswith("recorded")


@pytest.mark.parametrize(
    "form",
    [
        ["log", "s"],
        ["log", "s", "--all"],
        ["log", "s", "--raw"],
        ["log", "s", "--json"],
        ["runs"],
        ["runs", "--json"],
        ["sql", "SELECT content FROM entries"],
        ["sql", "SELECT content FROM entries", "--json"],
    ],
)
def test_nothing_on_record_steers_the_terminal(gesta: Gesta, form: list[str]):
    with door.open_sync("runs.gesta") as record, record.span(HOSTILE, session="s", note=HOSTILE) as span:
        span.log(kinds.UserContent(value=HOSTILE, user_id=HOSTILE))
        span.log(kinds.ToolCallContent(tool_name=HOSTILE, tool_args={HOSTILE: HOSTILE}))
        span.log(kinds.ToolResultContent(tool_result={HOSTILE: [HOSTILE]}))
        span._log.write(kinds.SignalContent(name="cancel", by=HOSTILE, reason=HOSTILE))
        span.log(kinds.PlanContent(role="plan", steps=[kinds.Step(goal=HOSTILE)]))
        span[HOSTILE] = HOSTILE
    shown = gesta(*form)
    assert shown.exit_code == 0
    assert not STEERS.search(shown.stdout)
    if form in (["log", "s"], ["log", "s", "--all"]):
        assert "[bold red]x[/bold red]" in shown.stdout


def test_the_answer_on_a_terminal_is_harmless_and_in_a_pipe_exact(gesta: Gesta):
    assert gesta("run", "agent.py:hostile", "x").stdout.startswith("\x1b[31mred\x1b[0m")
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    child = pexpect.spawn(MAIN[0], [*MAIN[1:], "run", "agent.py:hostile", "x"], encoding="utf-8", timeout=15, env=env)
    child.expect(pexpect.EOF)
    assert "\\x1b[31mred\\x1b[0m \\x07 [bold]x[/bold] \\u202edcba \\x9b2J" in child.before
    assert "\x1b[2mrun " in child.before, "our own words are dim"


def test_the_name_of_a_file_that_is_imported_does_not_steer_the_terminal(gesta: Gesta):
    gesta("run", "agent.py:agent", "Go.")
    name = f"\x1b]0;owned\x07{'w' * 100}.jsonl"
    assert gesta("export", "last", "-o", name).exit_code == 0
    child = pexpect.spawn(MAIN[0], [*MAIN[1:], "import", name, "--record", "new.gesta"], encoding="utf-8", timeout=15)
    child.expect(pexpect.EOF)
    progress = child.before.split("\r")[1]
    assert (progress[:20], "\x07" in child.before) == ("\\x1b]0;owned\\x07wwww", False)
    assert len(progress) < 80, "a line that the terminal breaks is written again below, and not over itself"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colours(Terminal())
    assert not colours(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not colours(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours(Terminal())


def test_follow_shows_what_comes(gesta: Gesta, folder: Path):
    gesta("run", "agent.py:agent", "Rome?", "--session", "trip")
    with subprocess.Popen(
        [*MAIN, "log", "trip", "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        for line in child.stdout:
            if line.startswith("── answered"):
                break
        gesta("run", "agent.py:agent", "And the sun?", "--session", "trip")
        more = []
        for line in child.stdout:
            more.append(line)
            if line.startswith("── answered"):
                break
        child.send_signal(signal.SIGINT)
        assert child.wait() == 130
        assert "Traceback" not in child.stderr.read()
    assert any("And the sun?" in line for line in more)
    assert any("Bring a hat." in line for line in more)


def test_reading_looks_upwards_and_writing_does_not(gesta: Gesta, folder: Path, monkeypatch: pytest.MonkeyPatch):
    gesta("run", "agent.py:desk", "pay")
    (folder / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(folder / "a" / "b")
    for words in (["runs"], ["log"], ["verify"], ["sql", "SELECT 1"], ["export", "last"]):
        assert gesta(*words).exit_code == 0
    assert gesta("approve", "last").exit_code == 2


def test_the_only_record_of_a_folder_is_found_and_several_are_named(gesta: Gesta, folder: Path):
    gesta("run", "agent.py:plain", "x", "--record", "one.gesta")
    assert gesta("runs").exit_code == 0
    gesta("run", "agent.py:plain", "x", "--record", "two.gesta")
    done = gesta("runs")
    assert done.exit_code == 2
    assert done.stderr == "error: Several records lie here: one.gesta, two.gesta. Name one with --record FILE.\n"


def test_no_record_says_how_to_get_one(gesta: Gesta):
    for words, name in (
        (["runs"], "runs.gesta"),
        (["runs", "--record", "no.gesta"], "no.gesta"),
        (["verify", "no.gesta"], "no.gesta"),
    ):
        done = gesta(*words)
        assert done.exit_code == 2
        assert done.stderr == (
            f"error: No record at '{name}'. Name one with --record FILE, or run `gesta demo` to make one.\n"
        )
        assert not Path(name).exists()
    done = gesta("push", "no.gesta", "copy.gesta")
    todo = "Name one that is there, and where to copy it: gesta push FROM TO.\n"
    assert (done.exit_code, done.stderr) == (2, f"error: No record at 'no.gesta'. {todo}"), "it has no --record"


def test_sql_answers_in_three_forms(gesta: Gesta):
    gesta("run", "agent.py:agent", "Rome?")
    query = "SELECT kind, count(*) AS n, NULL AS none FROM entries WHERE kind LIKE 'tool%' GROUP BY kind"
    assert gesta("sql", query).stdout == "kind         n  none\ntool-call    1\ntool-result  1\n"
    rows = list(csv.reader(io.StringIO(gesta("sql", query, "--csv").stdout)))
    assert rows == [["kind", "n", "none"], ["tool-call", "1", ""], ["tool-result", "1", ""]]
    first = gesta("sql", query, "--json").stdout.splitlines()[0]
    assert json.loads(first) == {"kind": "tool-call", "n": 1, "none": None}
    endless = gesta("sql", "SELECT 9e999 AS most, 0.5 AS half", "--json").stdout
    assert endless == '{"most": "Infinity", "half": 0.5}\n', "JSON has no such number"
    assert re.fullmatch(r"[0-9a-f]{64}", gesta("sql", "SELECT digest FROM entries LIMIT 1").stdout.splitlines()[1])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("CHOOSE 1", 'near "CHOOSE"'),
        ("SELECT elsewhere FROM entries", "no such column: elsewhere"),
        ("DELETE FROM entries", "would change the record"),
        ("ATTACH 'x.db' AS x", "would change the record"),
    ],
)
def test_sql_that_is_wrong_or_would_write_is_refused(gesta: Gesta, query: str, said: str):
    gesta("run", "agent.py:plain", "x")
    done = gesta("sql", query)
    assert done.exit_code == 1
    assert said in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--stands", "Waiting"],
            "--stands 'Waiting' is not a state of a session. Did you mean 'waiting'? States: waiting,",
        ),
        (["--cost", "nan"], "An option is nan, expected a finite number."),
        (["--limit", "99999999999999999999"], "99999999999999999999 is too large a number, expected at most "),
    ],
)
def test_a_filter_that_no_session_can_fit_is_refused(gesta: Gesta, words: list[str], said: str):
    gesta("run", "agent.py:plain", "Hello.")
    done = gesta("sessions", *words)
    assert done.exit_code == 2
    assert f"error: {said}" in done.stderr


@pytest.mark.parametrize("words", [["runs"], ["approve"], ["verify"]])
def test_a_folder_is_said_to_be_one_and_the_records_in_it_are_named(gesta: Gesta, words: list[str]):
    Path("old").mkdir()
    no = "error: 'old' is a folder, and a record is a file."
    todo = "Name one with --record FILE, or in the variable GESTA_RECORD.\n"
    assert gesta(*words, "--record", "old").stderr == f"{no} {todo}"
    gesta("run", "agent.py:agent", "Go.", "--record", "old/a.gesta")
    assert gesta(*words, "--record", "old").stderr == f"{no} That folder has 'a.gesta'. {todo}"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--agent", "desk"], ["paid"]),
        (["--tool", "weather"], ["rome"]),
        (["--errors"], ["lost"]),
        (["--stands", "waiting"], ["paid"]),
        (["--stands", "failed"], ["lost"]),
        (["--cost", "0.01"], []),
        (["--since", "2999-01-01"], []),
        (["--until", "2000-01-01"], []),
        (["--since", "1d", "--sort", "entries", "-n", "1"], ["rome"]),
        (["--sort", "tokens", "-n", "1"], ["rome"]),
        (["--limit", "2"], ["lost", "paid"]),
    ],
)
def test_each_option_of_sessions_changes_which_are_listed(gesta: Gesta, words: list[str], names: list[str]):
    for agent, session in (("agent", "rome"), ("desk", "paid"), ("mute", "lost")):
        gesta("run", f"agent.py:{agent}", "Go.", "--session", session)
    listed = gesta("sessions", *words, "--json", "--record", "runs.gesta").stdout.splitlines()
    assert [json.loads(line)["name"] for line in listed] == names


def test_one_is_counted_in_the_singular(gesta: Gesta):
    gesta("run", "agent.py:agent", "Go.", "--session", "rome")
    assert "1 of 1 session shown. In all of them: 1 run, " in gesta("sessions").stderr
    assert gesta("verify", "--keep", "heads.txt").exit_code == 0
    (head,) = Path("heads.txt").read_text(encoding="utf-8").split()
    gesta("run", "agent.py:agent", "Go.", "--session", "paris")
    assert "and 1 more run. No head covers them." in gesta("verify", "--head", head).stderr
