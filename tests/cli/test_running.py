"""`gesta run` and `gesta resume`: what goes to stdout, what to stderr, and how it ends."""

import json
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.cli.conftest import Gesta

pytestmark = pytest.mark.sample(2, over="parent")

MAIN = [sys.executable, "-c", "from gesta.cli import main; main()"]


def test_the_answer_is_data_and_all_else_is_talk(gesta: Gesta, run_id: Callable[[str], str]):
    done = gesta("run", "agent.py:agent", "What do I need in Rome?", "--session", "trip", "--user", "ann")
    assert done.exit_code == 0
    assert done.stdout == "Rome is dry: no umbrella.\n"
    printed = "a tool may print\n"  # at its own time
    assert printed in done.stderr.partition("  ←")[0]
    assert done.stderr.replace(printed, "") == (
        "record: runs.gesta\n"
        "  Let me look.\n"
        '  → weather(city="Rome")\n'
        "  ← Rome: 21 degrees, dry\n"
        f"run {run_id('guide')}, session trip: answered; 2 requests; 30 tokens in, 9 out; "
        "1 reply without a count of tokens\n"
    )


def test_a_session_goes_on_and_a_key_counts_once(gesta: Gesta):
    first = gesta("run", "agent.py:agent", "Rome?", "--session", "trip", "--key", "m0")
    again = gesta("run", "agent.py:agent", "Rome?", "--session", "trip", "--key", "m0")
    next_ = gesta("run", "agent.py:agent", "Sun?", "--session", "trip", "--key", "m1")
    assert (first.stdout, again.stdout) == ("Rome is dry: no umbrella.\n",) * 2
    assert next_.stdout == "Bring a hat.\n"
    assert len(gesta("runs", "--json").stdout.splitlines()) == 1


@pytest.mark.parametrize("words", [["-"], []])
def test_the_task_is_read_from_a_pipe(gesta: Gesta, words: list[str]):
    done = gesta("run", "agent.py:echo", *words, input="line one\nline two\n")
    assert done.stdout == "You said: 'line one\\nline two'\n"


def test_bytes_that_are_no_text_do_not_stop_it(gesta: Gesta):
    assert gesta("run", "agent.py:plain", input=b"\xff\xfe odd").stdout == "One.\n"
    assert "\\udcff" in gesta("log", "last").stdout


@pytest.mark.parametrize("words", [[], ["-"], ["  "]])
def test_no_task_is_said_before_anything_is_opened(gesta: Gesta, words: list[str]):
    done = gesta("run", "agent.py:plain", *words)
    assert done.exit_code == 2
    assert done.stderr == (
        'error: There is no task. Write it after the agent, as in: gesta run agent.py:agent "What is new?"\n'
    )
    assert not Path("runs.gesta").exists()


def test_json_gives_events_and_then_the_outcome(gesta: Gesta):
    done = gesta("run", "agent.py:agent", "Rome?", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"answer", "observation", "explain", "outcome"} <= {line["type"] for line in lines}
    assert lines[-1]["answer"] == "Rome is dry: no umbrella."
    assert lines[-1]["reason"] == "answered"


def test_a_value_of_any_type_ends_the_json(gesta: Gesta, folder: Path):
    (folder / "typed.py").write_text(
        "import gesta, pydantic\n"
        "class Town(pydantic.BaseModel):\n    city: str\n"
        """agent = gesta.Agent("a", model=gesta.scripted('{"city": "Rome"}'), output=Town)\n"""
    )
    done = gesta("run", "typed.py:agent", "Where?", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["value"] == {"city": "Rome"}


def test_which_record_is_written(gesta: Gesta, folder: Path, monkeypatch: pytest.MonkeyPatch):
    assert "record:" not in gesta("run", "agent.py:plain", "x", "--record", "named.gesta").stderr
    monkeypatch.setenv("GESTA_RECORD", "by-variable.gesta")
    assert "record: by-variable.gesta\n" in gesta("run", "agent.py:plain", "x").stderr
    monkeypatch.delenv("GESTA_RECORD")
    (folder / "below").mkdir()
    gesta("run", "agent.py:plain", "x")
    monkeypatch.chdir(folder / "below")
    gesta("run", "../agent.py:plain", "x")
    made = {str(path.relative_to(folder)) for path in folder.rglob("*.gesta")}
    assert made == {"named.gesta", "by-variable.gesta", "runs.gesta", "below/runs.gesta"}


def test_a_record_that_ends_with_the_command_is_refused(gesta: Gesta):
    done = gesta("run", "agent.py:plain", "x", "--record", ":memory:")
    assert "Name a file: --record FILE.gesta" in done.stderr
    assert done.exit_code == 2


def test_what_is_no_record_is_left_alone(gesta: Gesta, folder: Path):
    (folder / "text.gesta").write_text("not a database, but long enough to look like one" * 50, encoding="utf-8")
    done = gesta("run", "agent.py:plain", "x", "--record", "text.gesta")
    assert "'text.gesta' is not a readable Gesta record" in done.stderr.replace(str(folder) + "/", "")
    assert done.exit_code == 1
    with closing(sqlite3.connect("other.gesta")) as other, other:
        other.execute("CREATE TABLE mine(x)")
    assert "is not a readable Gesta record" in gesta("run", "agent.py:plain", "x", "--record", "other.gesta").stderr


def test_a_folder_that_is_not_there_is_named(gesta: Gesta):
    done = gesta("run", "agent.py:plain", "x", "--record", "no/such/folder/runs.gesta")
    assert done.exit_code == 1
    assert "no/such/folder" in done.stderr
    assert "Traceback" not in done.output


# ------------------------------------------------------------------------------------------------- how turns end


def test_a_failed_turn_says_why_and_where_to_look(gesta: Gesta, run_id: Callable[[str], str]):
    done = gesta("run", "agent.py:mute", "hello")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "error: The turn ended with failed: The model answered with nothing" in done.stderr
    assert f"What happened: gesta log {run_id('mute')}\n" in done.stderr


def test_a_script_without_items_says_so(gesta: Gesta):
    done = gesta("run", "agent.py:empty", "hello")
    assert done.exit_code == 1
    assert "Model 'scripted' was asked for answer 1 but holds 0." in done.stderr


def test_a_limit_ends_with_4(gesta: Gesta):
    done = gesta("run", "agent.py:endless", "hello")
    assert done.exit_code == 4
    todo = "Raise Policy(limits=Limits(requests=3)) if it needs more."
    assert f"error: The turn ended with limit: The turn reached its limit of 3 requests. {todo}" in done.stderr


def test_a_lost_stream_is_said_and_what_it_had_shown_is_not_in_the_answer(gesta: Gesta):
    done = gesta("run", "agent.py:shaky", "hello")
    assert done.stdout == "There you are.\n"
    assert "! http-503: try later; again in 0 s" in done.stderr


@pytest.mark.parametrize("agent", ["agent.py:plain", "agent.py:live"])
def test_a_server_of_ones_own_is_asked(gesta: Gesta, server: str, agent: str):
    done = gesta("run", agent, "x", "--base-url", server, *(["--model", "tiny"] if agent.endswith("plain") else []))
    if agent.endswith("live"):  # it names a provider, and that one's key is asked for
        assert "set OPENAI_API_KEY" in done.stderr
    else:
        assert (done.exit_code, done.stdout) == (0, "Live.\n")


def test_a_turn_that_waited_goes_on_with_another_model(gesta: Gesta, server: str):
    assert gesta("run", "agent.py:desk", "pay", "--session", "s").exit_code == 3
    gesta("approve", "s")
    done = gesta("resume", "s", "agent.py:desk", "--model", "tiny", "--base-url", server)
    assert (done.exit_code, done.stdout) == (0, "Live.\n")
    assert "refunded 20.5 for W1" in done.stderr


def test_a_file_goes_along_with_the_task(gesta: Gesta, folder: Path):
    (folder / "receipt.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "terms.txt").write_text("Thirty days.", encoding="utf-8")
    done = gesta("run", "agent.py:echo", "Is it due?", "--file", "receipt.png", "--file", "terms.txt")
    assert done.exit_code == 0
    asked = json.loads(gesta("log", "last", "--kinds", "user", "--json").stdout)["content"]
    assert [asked["value"], *(part["media_type"] for part in asked["parts"])] == [
        "Is it due?",
        "image/png",
        "text/plain",
    ]
    done = gesta("run", "agent.py:echo", "Is it due?", "--file", "lost.png")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: Cannot send 'lost.png' with the message: No such file or directory. Name a file that can be read.\n",
    )


def test_closed_streams_do_not_stop_it(folder: Path):
    command = f"{' '.join(map(shlex.quote, MAIN))} run agent.py:plain hello <&- >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 0


def test_no_key_names_the_variable_and_the_keyless_way(gesta: Gesta):
    for words in (["agent.py:live", "x"], ["agent.py:plain", "x", "--model", "openai:gpt-4o"]):
        done = gesta("run", *words)
        assert done.exit_code == 1
        assert done.stderr == (
            "error: No key for 'openai': set OPENAI_API_KEY. Without a key, `gesta demo` runs, and so do agents on "
            "gesta.scripted(...) or gesta.replay(...).\n"
        )


def test_a_wrong_model_gets_the_form_and_the_nearest(gesta: Gesta):
    done = gesta("run", "agent.py:plain", "x", "--model", "opnai:gpt-4o")
    assert done.exit_code == 2
    assert "write provider:model, as in 'openai:gpt-4o'" in done.stderr
    assert "Did you mean 'openai'?" in done.stderr
    assert (
        "--base-url says where, but not which model"
        in gesta("run", "agent.py:plain", "x", "--base-url", "http://localhost:1/v1").stderr
    )


def test_nobody_there_to_approve_stops_with_3_and_the_two_commands(gesta: Gesta, run_id: Callable[[str], str]):
    done = gesta("run", "agent.py:desk", "pay it back")
    run = run_id("desk")
    assert done.exit_code == 3
    assert done.stdout == ""
    assert done.stderr.endswith(
        'Waiting for approval of refund(order="W1", amount=20.5) (call 6).\n'
        "Go on with:\n"
        f"  gesta approve {run} && gesta resume {run} agent.py:desk\n"
    )
    assert gesta("approve", run).exit_code == 0
    done = gesta("resume", run, "agent.py:desk")
    assert (done.exit_code, done.stdout) == (0, "It is done.\n")
    assert "  ← refunded 20.5 for W1\n" in done.stderr


def test_the_commands_to_go_on_name_the_record_that_was_named(gesta: Gesta):
    done = gesta("run", "agent.py:desk", "pay", "--record", "my shop.gesta")
    *_, last = done.stderr.splitlines()
    assert last.count(" --record 'my shop.gesta'") == 2


def test_several_calls_are_named_one_by_one(gesta: Gesta, run_id: Callable[[str], str]):
    done = gesta("run", "agent.py:pair", "pay")
    run = run_id("pair")
    assert done.exit_code == 3
    assert f"gesta approve {run} --call 6 && gesta approve {run} --call 7 && gesta resume {run} agent.py:pair" in (
        done.stderr
    )


def test_yes_approves_in_its_own_name(gesta: Gesta):
    done = gesta("run", "agent.py:pair", "pay", "--yes")
    assert (done.exit_code, done.stdout) == (0, "Both are done.\n")
    assert done.stderr.count("approved by --yes") == 2


def test_a_doubt_about_a_tool_that_declared_nothing_says_what_to_declare(gesta: Gesta, run_id: Callable[[str], str]):
    done = gesta("run", "agent.py:undeclared", "weather?")
    run = run_id("undeclared")
    assert done.exit_code == 5
    assert (
        '`get_weather` said nothing about its effect, so it was not run again; if it only reads: @tool(effect="pure")\n'
    ) in done.stderr
    assert f"  gesta resolve {run} done && gesta resume {run} agent.py:undeclared\n" in done.stderr


def test_a_doubt_about_a_tool_that_did_says_how_to_settle_it(gesta: Gesta, run_id: Callable[[str], str]):
    done = gesta("run", "agent.py:sender", "send")
    assert done.exit_code == 5
    assert "`send` was started and left no result: nobody knows whether it happened" in done.stderr
    assert "\nThe reason: the line went dead\n" in done.stderr
    assert (
        "Find out whether it happened. If it did not, say `failed` below instead of `done`, or `retry`." in done.stderr
    )
    assert "said nothing about its effect" not in done.stderr
    again = gesta("resume", "last", "agent.py:sender")
    assert again.exit_code == 5


def test_a_message_waits_behind_a_turn_that_waits_for_somebody(gesta: Gesta):
    gesta("run", "agent.py:desk", "pay", "--session", "s")
    done = gesta("run", "agent.py:desk", "and now?", "--session", "s")
    assert done.exit_code == 3
    assert (
        "The message waits behind an open turn, which waits for what follows.\nWaiting for approval of" in done.stderr
    )
    gesta("approve", "s")
    gesta("resume", "s", "agent.py:desk")
    shown = gesta("log", "s").stdout
    assert shown.index("turn 1") < shown.index("turn 2") < shown.index("and now?")


def test_a_turn_that_is_open_refuses_another_message_where_the_policy_says_so(gesta: Gesta):
    gesta("run", "agent.py:strict", "pay", "--session", "s")
    done = gesta("run", "agent.py:strict", "and now?", "--session", "s")
    assert done.exit_code == 1
    assert "has an open turn" in done.stderr
    assert "Resume or cancel it first: gesta resume" in done.stderr


# ------------------------------------------------------------------------------------------------------ resuming


def test_resuming_what_is_finished_says_so_and_gives_the_answer(gesta: Gesta, run_id: Callable[[str], str]):
    gesta("run", "agent.py:plain", "hello")
    done = gesta("resume", "last", "agent.py:plain")
    assert (done.exit_code, done.stdout) == (0, "One.\n")
    assert f"Nothing is open in run {run_id('plain')}; its last turn ended with: answered.\n" in done.stderr


def test_another_agent_does_not_go_on_with_a_run(gesta: Gesta, run_id: Callable[[str], str]):
    gesta("run", "agent.py:desk", "pay")
    done = gesta("resume", "last", "agent.py:plain")
    assert done.exit_code == 2
    assert (
        f"error: Run {run_id('desk')} was begun by agent 'desk', and agent.py:plain is agent 'plain'. "
        f"Name the one that began it: gesta resume {run_id('desk')} agent.py:desk\n"
    ) in done.stderr


def test_no_such_run_and_no_such_record(gesta: Gesta):
    assert gesta("resume", "last", "agent.py:plain").stderr == (
        "error: No record at 'runs.gesta'. Name one with --record FILE, or run `gesta demo` to make one.\n"
    )
    gesta("run", "agent.py:plain", "hello", "--session", "trip-7")
    done = gesta("resume", "trip-8", "agent.py:plain")
    assert done.exit_code == 2
    assert (
        "error: No run or session 'trip-8' in this record. Did you mean 'trip-7'? `gesta runs` lists them.\n"
        in done.stderr
    )


SLOW = """
import pathlib
import time
import gesta

@gesta.tool(effect="once")
def hang() -> str:
    '''Hangs.'''
    pathlib.Path("begun").touch()
    time.sleep(60)
    return "never"

@gesta.tool(effect="pure")
def once_slow() -> str:
    '''Hangs the first time.'''
    if not pathlib.Path("begun").exists():
        pathlib.Path("begun").touch()
        time.sleep(60)
    return "awake"

hanging = gesta.Agent("hanging", gesta.scripted(gesta.call("hang"), "Done."), tools=[hang])
strict = gesta.Agent("hanging", gesta.scripted("Done."), policy=gesta.Policy(when_busy="raise"))
sleeping = gesta.Agent("sleeping", gesta.scripted(gesta.call("once_slow"), "Done."), tools=[once_slow])
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(("agent", "times", "code"), [("hanging", 2, 5), ("sleeping", 1, 0)])
def test_ctrl_c_prints_the_resume_line_at_once_and_that_line_works(
    gesta: Gesta, folder: Path, agent: str, times: int, code: int
):
    """What only reads is broken off at once, what has effects is seen through until Ctrl-C is pressed again."""
    (folder / "slow.py").write_text(SLOW, encoding="utf-8")
    words = [*MAIN, "run", f"slow.py:{agent}", "go", "--record", "r.gesta"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert "→" in child.stderr.readline()
        while not (folder / "begun").exists():
            pass
        child.send_signal(signal.SIGINT)
        for patience_s in (0.2, 5)[: 2 * times - 2]:  # the first may not have been noticed before the second came
            with suppress(subprocess.TimeoutExpired):
                child.wait(patience_s)
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
        said = child.stderr.read()
        assert child.wait() == 130
    run = json.loads(gesta("runs", "--record", "r.gesta", "--json").stdout)["run"]
    line = f"gesta resume {run} slow.py:{agent} --record r.gesta"
    assert said.endswith(f"\nInterrupted; the turn is left open. Go on with: {line}\n")
    assert gesta(*line.split()[1:]).exit_code == code


def test_a_run_that_somebody_else_writes_is_not_touched(gesta: Gesta, folder: Path):
    (folder / "slow.py").write_text(SLOW, encoding="utf-8")
    words = [*MAIN, "run", "slow.py:hanging", "go", "--record", "r.gesta", "--session", "s"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert "→" in child.stderr.readline()
        for attempt in (
            ["resume", "s", "slow.py:hanging"],
            ["run", "slow.py:strict", "again", "--session", "s"],
            ["resolve", "s", "done"],
        ):
            done = gesta(*attempt, "--record", "r.gesta")
            assert done.exit_code == 1
            assert "is being written by" in done.stderr
            assert "Wait until it is done, or end that process." in done.stderr
        done = gesta("cancel", "s", "--record", "r.gesta")
        assert done.exit_code == 0
        assert "will end the turn at its next step.\n" in done.stderr
        child.kill()
    done = gesta("resume", "s", "slow.py:hanging", "--record", "r.gesta")
    assert done.exit_code == 1
    assert "error: The turn ended with cancelled" in done.stderr


def test_a_record_of_a_later_release_is_refused(gesta: Gesta):
    gesta("run", "agent.py:plain", "x")
    with closing(sqlite3.connect("runs.gesta")) as file:
        file.execute("PRAGMA user_version = 99")
    for words in (["run", "agent.py:plain", "x"], ["runs"], ["verify"]):
        done = gesta(*words)
        assert done.exit_code == 1
        assert "has format 99; this release reads up to 2. Install a newer gesta to read it.\n" in done.stderr


def test_a_damaged_record_is_refused_without_a_traceback(gesta: Gesta, folder: Path):
    gesta("run", "agent.py:agent", "x")
    whole = (folder / "runs.gesta").read_bytes()
    (folder / "runs.gesta").write_bytes(whole[: len(whole) // 2])
    for words in (["run", "agent.py:plain", "x"], ["runs"], ["verify"], ["log"]):
        done = gesta(*words)
        assert done.exit_code == 1
        assert "is not a readable Gesta record" in done.stderr
        assert "Nothing was changed." in done.stderr


@pytest.mark.slow
def test_a_full_disk_is_an_error_without_a_traceback(gesta: Gesta):
    gesta("run", "agent.py:plain", "x")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*MAIN, "log", "--json"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: [Errno 28] No space left on device\n"


def test_ctrl_c_before_anything_was_begun(folder: Path):
    (folder / "slow.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n", encoding="utf-8")
    with subprocess.Popen(
        [*MAIN, "run", "slow.py:agent", "go"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        assert "importing" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        said = child.stderr.read()
        assert child.wait() == 130
    assert "Traceback" not in said


def test_a_reader_that_leaves_is_no_error(folder: Path):
    command = f"{' '.join(map(shlex.quote, MAIN))} run agent.py:plain hello --record r.gesta | true"
    done = subprocess.run(
        ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=True
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert done.stdout.strip() in ("0", "141")
