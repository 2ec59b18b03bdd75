"""`gesta work`: a line for each run that goes on and for each that fails, and what Ctrl-C ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import httpx2
import pytest
from tests.cli.conftest import Gesta
from tests.commands import anew

import gesta as library
from gesta.kinds import AnswerContent

pytestmark = pytest.mark.sample(2, over="parent")

PROGRAMS = """
import sys

import anyio
import httpx2
import gesta
from gesta.errors import LeaseLost


class Panic(BaseException):
    "What a library that is not Python may raise."


async def bad(verbs, _text):
    await verbs.ask("go", "May I?")
    raise Panic("rust\\x1b[31m")


async def lost(verbs, _text):
    await verbs.ask("go", "May I?")
    raise LeaseLost("r", "epoch 1", "epoch 2")


async def good(verbs, _text):
    await verbs.ask("go", "May I?")
    return "fine"


met, at_work = anyio.Event(), []


async def counted(verbs, text):
    await verbs.ask("go", "May I?")
    at_work.append(text)
    if len(at_work) == int(text):
        met.set()
    await met.wait()
    for _ in range(100):
        await anyio.sleep(0)
    said = f"{len(at_work)} at once"
    at_work.remove(text)
    return said


@gesta.tool(effect="pure")
async def long() -> str:
    "Take for ever."
    print("begun", flush=True)
    await anyio.sleep_forever()


bad, lost, good, counted = (gesta.Agent(each.__name__, program=each) for each in (bad, lost, good, counted))
@gesta.tool(effect="once")
async def pay() -> str:
    "Pay, once a line is to be read."
    print("begun", flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline)
    return "paid"


payer = gesta.Agent("payer", gesta.scripted(gesta.call("pay"), "Paid."), tools=[pay])
slow = gesta.Agent("slow", gesta.scripted(gesta.call("long"), "Never."), tools=[long])
"""


@pytest.fixture
def runs(folder: Path) -> dict[str, str]:
    """A folder with these programs, and a record in which a run of each waited for an answer and has it."""
    (folder / "programs.py").write_text(PROGRAMS)
    space: dict[str, library.Agent] = {}
    exec(PROGRAMS, space)

    async def main() -> dict[str, str]:
        async with library.open("runs.gesta") as record:
            return {name: await answered(record, space[name], f"s-{name}") for name in ("bad", "lost", "good")}

    return anyio.run(main)


async def answered(record: library.Record, agent: library.Agent, session: str, text: str = "Go.") -> str:
    """Leave a run that waited for an answer, and has it."""
    outcome = await record.run(agent, text, session=session)
    answer = AnswerContent(of=outcome.waiting[0].of or 0, value="yes", by="ann")
    await record.send(outcome.run, answer, key="go")
    return outcome.run


AGENTS = ("programs.py:bad", "programs.py:lost", "programs.py:good")


def test_one_line_for_each_run_that_fails_and_the_others_go_on(runs: dict[str, str]):
    done = anew("work", *AGENTS, "--once")
    assert done.exit_code == 1
    assert sorted(done.stderr.splitlines()) == sorted(
        [
            "record: runs.gesta",
            f"run {runs['bad']}, session s-bad: Panic: rust\\x1b[31m; looked at again in 1 s",
            (
                f"run {runs['lost']}, session s-lost: Cannot append to run 'r': expected epoch 1, found epoch 2. "
                "Read the run again and go on from its head.; looked at again in 1 s"
            ),
            f"run {runs['good']}, session s-good: answered: fine",
            "1 turn went on.",
        ]
    )


def test_as_json_a_failure_is_a_line_too(runs: dict[str, str]):
    done = anew("work", *AGENTS, "--once", "--json")
    lines = {line["run"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert lines[runs["bad"]] == {
        "run": runs["bad"],
        "session": "s-bad",
        "error": {"type": "Panic", "message": "rust\x1b[31m"},
        "tries": 1,
        "again_s": 1.0,
    }
    assert lines[runs["good"]]["reason"] == "answered"
    assert f"run {runs['bad']}, session s-bad: Panic" in done.stderr


def test_what_a_run_waits_for_is_told_and_nobody_is_said_to_have_cancelled_it(gesta: Gesta, runs: dict[str, str]):
    anew("work", *AGENTS, "--once")
    shown = gesta("log", runs["bad"]).stdout
    assert "cancel" not in shown
    assert "Nothing was due." in anew("work", "programs.py:good", "--once").stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_as_many_turns_as_it_has_jobs_are_at_work_at_once(folder: Path, jobs: str):
    (folder / "programs.py").write_text(PROGRAMS)
    space: dict[str, library.Agent] = {}
    exec(PROGRAMS, space)

    async def main() -> None:
        async with library.open("other.gesta") as record:
            for session in ("a", "b"):
                await answered(record, space["counted"], session, jobs)

    anyio.run(main)
    done = anew("work", "programs.py:counted", "--once", "--jobs", jobs, "--record", "other.gesta", "--json")
    first, _ = map(json.loads, done.stdout.splitlines())
    assert first["said"] == f"{jobs} at once"


@pytest.mark.usefixtures("runs")
def test_ctrl_c_says_what_is_still_at_work_and_ends():
    code = "from gesta.cli import main; main()"
    first = [sys.executable, "-c", code, "run", "programs.py:slow", "Go.", "--session", "slow"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(first, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if "begun" in line:
                break
        run.kill()
    words = [sys.executable, "-c", code, "work", "programs.py:slow", "--every", "0.05"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment) as work:
        assert work.stderr is not None
        for line in work.stderr:
            if "begun" in line:
                break
        work.send_signal(signal.SIGINT)
        said = work.stderr.read()
    assert work.returncode == 0
    assert "Stopping: 1 turn at work. Ctrl-C again ends at once.\n" in said
    assert said.endswith("1 turn left open, for the next worker.\n")
    assert "Traceback" not in said


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("ignored", [False, True], ids=["alone", "in the background of a script"])
def test_sigterm_sees_a_payment_through_as_ctrl_c_does(gesta: Gesta, ignored: bool):
    code = "from gesta.cli import main; main()"
    if ignored:  # as a shell does for what it starts by `&`
        code = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {code}"
    words = [sys.executable, "-c", code, "run", "programs.py:payer", "Go.", "--session", "p"]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(words, **pipes, env=os.environ | {"PYTHONUNBUFFERED": "1"}) as run:  # type: ignore[call-overload]
        assert any("begun" in line for line in run.stderr)
        run.send_signal(signal.SIGTERM)
        said = run.communicate("go on\n")[1]
    assert "Go on with: gesta resume" in said
    assert run.returncode == 130
    assert '"paid"' in gesta("log", "p", "--json").stdout
    done = anew("work", "programs.py:payer", "--once")
    assert "answered: Paid." in done.stderr, "it was neither lost nor made again"


def test_sigterm_while_a_command_is_loaded_ends_it_without_a_traceback():
    loading = "cli.application = lambda verb: signal.raise_signal(signal.SIGTERM)"
    code = f"import signal; from gesta import cli; {loading}; cli.main()"
    done = subprocess.run([sys.executable, "-c", code, "runs"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.usefixtures("runs")
def test_sigterm_ends_the_viewer_as_ctrl_c_does(gesta: Gesta):
    gesta("run", "programs.py:payer", "Go.", "--session", "v")
    words = [sys.executable, "-c", "from gesta.cli import main; main()", "view", "--no-open", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(words, **pipes, env=os.environ | {"PYTHONUNBUFFERED": "1"}) as view:  # type: ignore[call-overload]
        assert view.stdout.readline().startswith("http://127.0.0.1:")
        view.send_signal(signal.SIGTERM)
        said = view.stdout.read()
    assert (view.returncode, "Traceback" in said) == (0, False)


@pytest.mark.usefixtures("runs")
def test_the_viewer_listens_where_it_is_told_and_answers_the_hosts_that_are_named(gesta: Gesta):
    gesta("run", "programs.py:payer", "Go.", "--session", "v")
    words = [sys.executable, "-c", "from gesta.cli import main; main()", "view", "--no-open", "--port", "0", "--json"]
    words += ["--record", "runs.gesta", "--host", "127.0.0.2", "--allow-host", "viewer.internal"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}) as view:
        assert view.stdout is not None
        address = json.loads(view.stdout.readline())["address"]
        assert address.startswith("http://127.0.0.2:")
        answers = [httpx2.get(address, headers={"host": host}) for host in ("viewer.internal", "elsewhere.internal")]
        view.send_signal(signal.SIGTERM)
    assert [each.status_code for each in answers] == [303, 403]
    assert view.returncode == 0


@pytest.mark.usefixtures("runs")
def test_nobody_reads_on():
    code = "from gesta.cli import main; main()"
    words = [sys.executable, "-c", code, "work", *AGENTS, "--json"]
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(words, stdout=writer, stderr=subprocess.PIPE, text=True) as work:
        os.close(writer)
        assert work.stderr is not None
        said = work.stderr.read()
    assert work.returncode == 141
    assert "Traceback" not in said
