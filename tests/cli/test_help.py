"""What `gesta` says of itself, how soon, and what it says to what it does not know."""

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests import programs
from tests.cli.conftest import Gesta

from gesta.cli import application
from gesta.cli.app import VERBS, app
from gesta.cli.talk import BROKEN_PIPE

pytestmark = pytest.mark.sample(2, over="parent")

MAIN = [sys.executable, "-c", "from gesta.cli import main; main()"]
EVERY = [verb for verbs in VERBS.values() for verb in verbs]
FIRST_WORDS_S = 0.3 * 3  # CPU, with room for a busy machine


def _gesta(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return programs.run([*MAIN[1:], *words], cwd=folder)


def test_every_verb_stands_under_its_heading(gesta: Gesta):
    said = gesta("--help").stdout
    found = {
        heading: tuple(re.findall(r"^  (\w+)  ", rest, re.MULTILINE))
        for heading, rest in re.findall(r"^(Run|Look|Compare|Data|Models):\n((?:  .*\n)+)", said, re.MULTILINE)
    }
    assert found == VERBS
    assert "..." not in said.split("Run:")[1], "a verb's first line is too long for the list"
    assert "--install-completion" in said
    assert "gesta demo" in said
    assert {command.name for command in app.registered_commands} == set(EVERY)


def test_no_word_at_all_shows_the_help(gesta: Gesta):
    shown = gesta()
    assert "Run:" in shown.output
    assert shown.exit_code == 2


def test_the_version_is_that_of_the_distribution(gesta: Gesta):
    from importlib.metadata import version

    assert gesta("--version").stdout == f"gesta {version('gesta')}\n"


@pytest.mark.parametrize("verb", EVERY)
def test_every_verb_has_help_with_one_example(gesta: Gesta, verb: str):
    said = gesta(verb, "--help").stdout
    assert "--json" in said
    assert "--debug" in said
    assert len(re.findall(r"^  Example:\n    gesta .+$", said, re.MULTILINE)) == 1
    assert re.findall(r"<(?:str|int|float)\b.*?>", said) == [], "what to write is named, and not a type of Python"


BEFORE = {
    "approve": ["run agent.py:desk pay"],
    "answer": ["run agent.py:asker go"],
    "resolve": ["run agent.py:sender go"],
    "cancel": ["run agent.py:desk pay"],
    "import": ["run agent.py:agent hello", "export last -o runs.jsonl"],
    "adopt": ["run agent.py:desk pay", "backup copy.gesta"],
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("verb", [verb for verb in EVERY if verb not in ("demo", "gone", "serve", "trace", "view")])
def test_the_example_of_every_verb_runs(gesta: Gesta, verb: str):
    for line in BEFORE.get(verb, ["run agent.py:agent hello"]):
        gesta(*shlex.split(line))
    (example,) = re.findall(r"^    gesta (.+)$", gesta(verb, "--help").stdout, re.MULTILINE)
    done = gesta(*shlex.split(example))
    assert done.exit_code == 0, done.output


def test_the_example_of_the_demo_runs(gesta: Gesta, folder: Path):
    (example,) = re.findall(r"^    gesta (.+)$", gesta("demo", "--help").stdout, re.MULTILINE)
    done = _gesta(folder, *shlex.split(example), "--json", "--full")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"record": "demo.gesta", "code": 0}
    assert "attempt 1 is on record (entry 34), the tool may start" in done.stderr
    assert "refunds fired: 1, model calls bought again: 0" in done.stderr


def test_the_demo_whose_reader_leaves_stops_as_other_commands_do(folder: Path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*MAIN, "demo", "--yes"], stdout=write, stderr=subprocess.PIPE, cwd=folder, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "record: runs.gesta\n")


def test_the_demo_without_anybody_to_ask_stops_and_can_be_gone_on_with(folder: Path):
    done = _gesta(folder, "demo")
    assert done.returncode == 3
    commands = "gesta approve last && gesta resume last gesta.demo:agent"
    assert commands in done.stdout
    for command in commands.split(" && "):
        done = _gesta(folder, *command.split()[1:])
        assert done.returncode == 0, done.stderr
    assert "64.90" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rn",), "No such command 'rn'. Did you mean 'run'"),
        (("expotr",), "No such command 'expotr'. Did you mean 'export'"),
        (("runs", "--limits", "3"), "--limit"),
        (("log", "--follows"), "--follow"),
        (("run",), "Missing argument 'FILE.py:NAME'"),
        (("resolve", "last", "don"), "'done', 'failed', 'retry'"),
        (("runs", "--limit", "0"), "Invalid value for '--limit'"),
    ],
)
def test_a_slip_of_the_pen_gets_the_nearest_word_and_exit_code_2(gesta: Gesta, words: tuple[str, ...], said: str):
    done = gesta(*words)
    assert said in done.stderr
    assert "Traceback" not in done.output
    assert done.exit_code == 2


def _cpu_s(words: list[str], folder: Path) -> tuple[float, subprocess.CompletedProcess[str]]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*MAIN, *words], capture_output=True, text=True, cwd=folder, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done


@pytest.mark.sample(2)
@pytest.mark.parametrize("words", [["--help"], ["run", "agent.py:plain", "hello"]])
def test_the_first_words_come_soon(folder: Path, words: list[str]):
    for _ in range(3):
        taken, done = _cpu_s(words, folder)
        assert done.returncode == 0, done.stderr
        if taken < FIRST_WORDS_S:
            return
    pytest.fail(f"{taken:.2f} s of CPU; the most is {FIRST_WORDS_S:.2f}")


LOADED = """
import sys
from gesta.cli import main
try:
    main()
except SystemExit:
    print([name for name in ("anyio", "apsw", "httpx2", "msgspec", "rich", "griffelib") if name in sys.modules])
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("words", "loaded"),
    [(["--help"], []), (["runs", "--help"], []), (["run", "agent.py:plain", "hello"], ["anyio", "apsw", "msgspec"])],
)
def test_nothing_is_loaded_that_is_not_used(folder: Path, words: list[str], loaded: list[str]):
    done = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == str(loaded)


@pytest.mark.parametrize("verb", EVERY)
def test_of_all_commands_the_one_that_was_typed_is_built(verb: str):
    assert [each.name for each in application(verb).registered_commands] == [verb]


@pytest.mark.parametrize("word", [None, "runz", "--help", "--version", ""])
def test_what_is_no_command_is_looked_for_among_all(word: str | None):
    assert {each.name for each in application(word).registered_commands} == set(EVERY)


def test_verbs_are_completed(folder: Path):
    env = os.environ | {"COMP_WORDS": "gesta ru", "COMP_CWORD": "1", "_GESTA_COMPLETE": "complete_bash"}
    done = subprocess.run(MAIN, capture_output=True, text=True, cwd=folder, env=env, check=False)
    assert done.stdout.split() == ["run", "runs"]
