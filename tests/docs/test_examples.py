"""Every example runs in an empty folder and prints what its docstring says."""

import ast
import textwrap
from pathlib import Path

import anyio
import pytest
from tests import programs
from tests.commands import anew
from tests.postgres import Server

import gesta
from gesta.views.lineage import unexplained

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


@pytest.mark.sample(4)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(example: Path, tmp_path: Path) -> None:
    source = example.read_text(encoding="utf-8")
    told = (ast.get_docstring(ast.parse(source)) or "").split("Prints:\n", 1)[1]
    done = programs.run([str(example)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == textwrap.dedent(told) + "\n"
    assert len(source.splitlines()) <= 60
    for record in tmp_path.glob("*.gesta"):
        is_explained(record)


@pytest.mark.slow
def test_the_nightly_batch_goes_on_elsewhere_on_postgresql_too(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [example] = [each for each in EXAMPLES if each.stem == "nightly"]
    monkeypatch.setenv("NIGHTLY_RECORD", postgres.address())
    done = programs.run([str(example)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 letters to 4 people" in done.stdout
    assert list(tmp_path.iterdir()) == []


def is_explained(record: Path) -> None:
    """Law 8: no entry without a place, no answer without a path to its question; and why fits a page."""
    with gesta.open_sync(str(record)) as opened:
        runs = anyio.run(opened.record.store.runs)
        read = {row.run: opened.read(row.run) for row in runs}
    # a program of one's own that only records need name no causes
    taken = [run for run, entries in read.items() if getattr(entries[0].content, "agent", None) is not None]
    found = unexplained(entry for run in taken for entry in read[run])
    assert found.entries == {}
    assert found.answers == ()
    for row in runs:
        if row.parent_run is None:
            page = anew("why", row.run, "--record", str(record)).stdout.splitlines()
            assert page
            assert len(page) <= 40
            assert max(map(len, page)) <= 100
