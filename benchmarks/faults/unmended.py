"""Checks that a mend is needed: in a copy of the sources without it, the campaign or its tests have to find the fault.

The copy is a whole tree, so every process that a case or a test starts lacks the mend, too.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults.mends import MENDS, Change

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "benchmarks", "examples", "pyproject.toml")
CASES, TIME_S = 200, 900
RESULT = re.compile(r"^(PASSED|FAILED) ([^\s\[]+)", re.MULTILINE)
"""Matches the result of a test. Tests with several parameters count under their common name."""


@contextmanager
def tree_without(name: str) -> Iterator[Path]:
    """Yield the folder of a copy of the sources without a mend."""
    with tempfile.TemporaryDirectory(prefix=f"gesta-without-{name}-", ignore_cleanup_errors=True) as folder:
        for each in COPIED:
            source, copy = ROOT / each, Path(folder) / each
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy)
        for change in MENDS[name].changes:
            path = Path(folder) / "src" / path_of(change)
            path.write_text(changed(path.read_text(), change))
        yield Path(folder)


def path_of(change: Change) -> Path:
    """Return the file that a change is in, relative to the folder of the package."""
    return Path(change.where.partition(":")[0].replace(".", "/")).with_suffix(".py")


def changed(text: str, change: Change) -> str:
    """Return the text of a module with one change made in one of its functions."""
    body: Sequence[ast.stmt] = ast.parse(text).body
    for part in change.where.partition(":")[2].split("."):
        named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((each for each in body if isinstance(each, named) and each.name == part), None)
        if found is None:
            raise SystemExit(f"{change.where} is not there any more: benchmarks/faults/mends.py has to follow.")
        body = found.body
    lines = text.splitlines(keepends=True)
    begin, end = found.lineno - 1, found.end_lineno  # type: ignore[union-attr]
    function = textwrap.dedent("".join(lines[begin:end]))
    if change.old not in function:
        raise SystemExit(f"{change.where} has no {change.old!r} any more: benchmarks/faults/mends.py has to follow.")
    other = textwrap.indent(function.replace(change.old, change.new), " " * found.col_offset)  # type: ignore[union-attr]
    return "".join((*lines[:begin], other, *lines[end:]))


def by_cases(name: str, words: Iterable[str]) -> int:
    """Run the campaign without a mend. Return 0 if it finds the fault within `CASES` cases."""
    mend = MENDS[name]
    limits = ("--until", mend.found, "--cases", str(CASES), "--seconds", str(TIME_S))
    with tree_without(name) as tree:
        ended = _run(tree, "benchmarks.faults", *words, *limits)
    said = ended.stdout.strip().splitlines() or ["the campaign said nothing"]
    print(f"{name}, {mend.what}: {said[-1]}", flush=True)
    return ended.returncode


def by_tests(name: str) -> int:
    """Run the tests of a mend without the mend. Return 0 if one of them fails."""
    mend = MENDS[name]
    options = ("-q", "-rA", "--tb=no", "--show-capture=no", "--no-header", "-p", "no:cacheprovider")
    with tree_without(name) as tree:
        ended = _run(tree, "pytest", *options, *mend.tests)
    results = RESULT.findall(ended.stdout)
    failed = {test for said, test in results if said == "FAILED"}
    print(f"{name}, {mend.what}: {len(failed)} of {len(mend.tests)} tests fail", flush=True)
    for test in mend.tests:
        print(f"    {'fails' if test in failed else 'passes'}  {test}")
    if not results:
        print(textwrap.indent(ended.stdout, "    "))
    return 0 if failed else 1


def _run(tree: Path, module: str, *words: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join((str(tree / "src"), str(tree)))
    environment = os.environ | {"PYTHONPATH": path, "GESTA_CORPUS": os.environ.get("GESTA_CORPUS") or str(tree)}
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=False)
