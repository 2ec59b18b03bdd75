"""Every example runs in an empty folder and prints what its docstring says."""

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(example: Path, tmp_path: Path) -> None:
    source = example.read_text(encoding="utf-8")
    told = (ast.get_docstring(ast.parse(source)) or "").split("Prints:\n", 1)[1]
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == textwrap.dedent(told) + "\n"
    assert len(source.splitlines()) <= 60
