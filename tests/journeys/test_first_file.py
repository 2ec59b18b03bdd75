"""A person's first program learns that it left no record, and how it keeps one; nobody else hears of it."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests import programs
from tests.commands import anew

import gesta
from gesta.first_file import NOTE

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """\
import gesta

agent = gesta.Agent("guide", model=gesta.scripted("Dry."))
print(gesta.run_sync(agent, "Rome?").answer)
print(gesta.run_sync(agent, "And Oslo?").answer)
"""
OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def started(folder: Path, text: str, env: dict[str, str] = OUTSIDE) -> subprocess.CompletedProcess[str]:
    (folder / "guide.py").write_text(text, encoding="utf-8")
    done = programs.run(["guide.py"], cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    return done


def test_a_program_that_names_no_record_is_told_once_that_it_left_none(tmp_path: Path):
    done = started(tmp_path, PROGRAM)
    assert done.stdout == "Dry.\nDry.\n"
    assert done.stderr == NOTE
    assert [path.name for path in tmp_path.iterdir()] == ["guide.py"], "nothing is written that was not asked for"


def test_what_it_is_told_works_as_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (option,) = re.findall(r"gesta\.run_sync\(\.\.\., (.+)\)", NOTE)
    (command,) = re.findall(r"  gesta (.+)", NOTE)
    done = started(
        tmp_path, PROGRAM.replace('"And Oslo?"', f'"And Oslo?", {option}').replace('"Rome?"', f'"Rome?", {option}')
    )
    assert done.stderr == ""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GESTA_RECORD", raising=False)
    why = anew(*command.split())
    assert why.exit_code == 0, why.stderr
    assert "And Oslo?" in why.stdout


def test_who_says_that_no_record_is_wanted_is_not_told(tmp_path: Path):
    assert started(tmp_path, PROGRAM.replace('?")', '?", record=":memory:")')).stderr == ""


def test_a_library_that_runs_an_agent_is_not_told(tmp_path: Path):
    (tmp_path / "library.py").write_text(PROGRAM, encoding="utf-8")
    done = started(tmp_path, "import library\n")
    assert (done.stdout, done.stderr) == ("Dry.\nDry.\n", "")


def test_a_program_that_a_test_starts_is_not_told(tmp_path: Path):
    assert started(tmp_path, PROGRAM, OUTSIDE | {"PYTEST_CURRENT_TEST": "test_x.py::test_y (call)"}).stderr == ""


def test_words_on_the_command_line_are_not_told(tmp_path: Path):
    assert programs.run(["-c", PROGRAM], cwd=tmp_path, env=OUTSIDE).stderr == ""


@pytest.mark.parametrize("end", ["sys.stderr.close()", "sys.stderr = None", "os.close(2)"])
def test_a_program_without_standard_error_goes_on(tmp_path: Path, end: str):
    done = started(tmp_path, f"import os, sys\n{end}\n{PROGRAM}")
    assert (done.stdout, done.stderr) == ("Dry.\nDry.\n", "")


def test_a_turn_that_failed_is_told_too(tmp_path: Path):
    assert started(tmp_path, PROGRAM.replace('"Dry."', "")).stderr == NOTE


def test_the_page_shows_what_is_said():
    page = (ROOT / "docs" / "record.md").read_text(encoding="utf-8")
    assert f"<!-- test:note -->\n```text\n{NOTE}```\n" in page


def test_a_record_of_none_is_a_private_one():
    outcome = gesta.run_sync(gesta.Agent("guide", model=gesta.scripted("Dry.")), "Rome?", record=None)
    assert outcome.answer == "Dry."
