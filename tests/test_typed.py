"""A user's program is read as its author means it by two strict checkers, and each line that is wrong is refused.

`tests/typed` has programs that are right, and beside each of them one in which every marked line is wrong.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("typed")
SRC = FOLDER.parents[1] / "src"
Lines = set[tuple[str, int]]


def marked() -> Lines:
    """Find the lines that are to be refused."""
    lines = ((path.name, path.read_text(encoding="utf-8").splitlines()) for path in FOLDER.glob("*.py"))
    return {(name, number) for name, text in lines for number, line in enumerate(text, 1) if "# refused: " in line}


def run(*command: str) -> str:
    """Run a checker over the folder."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: pip install 'gesta[lint]'")
    around = os.environ | {"MYPYPATH": str(SRC)}
    return subprocess.run(command, cwd=FOLDER, env=around, capture_output=True, text=True, check=False).stdout


def by_mypy() -> Lines:
    names = sorted(path.name for path in FOLDER.glob("*.py"))
    said = run(
        "mypy",
        "--strict",
        "--config-file=",
        "--follow-imports=silent",
        f"--cache-dir={SRC.parent / '.mypy_cache' / 'typed'}",
        *names,
    )
    return {(name, int(number)) for name, number in re.findall(r"^(\S+?):(\d+): error: ", said, re.MULTILINE)}


def by_pyright() -> Lines:
    found = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, "-p", "."))["generalDiagnostics"]
    return {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in found}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("checker", [by_mypy, by_pyright], ids=["mypy", "pyright"])
def test_each_line_of_users_programs_that_is_wrong_is_refused_and_no_other(checker):
    assert len(marked()) > 40
    assert sorted(checker()) == sorted(marked())
