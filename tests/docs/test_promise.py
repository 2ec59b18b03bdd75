"""Every cell of the page on the promise is shown by a test that exists, or says that it is not promised."""

import ast
import functools
import re
from pathlib import Path

import pytest

from gesta.doubt import CERTAIN, DOUBTFUL, WEAK

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "promise.md").read_text(encoding="utf-8")
EFFECTS = ["`pure`", "`idempotent`", "`once`", "`transactional`", "agent as a tool"]
MARK = re.compile(r"\[\^([\w-]+)\](?!:)")
NOTES = dict(re.findall(r"^\[\^([\w-]+)\]: (.*)$", PAGE, re.MULTILINE))
FAULTS = (
    *("`kill -9` before", "`kill -9` between", "loss of power", "`SIGSTOP`", "another host", "two versions"),
    *("`timeout_s`", "stops waiting", "a person cancels", "leaves a doubt", "any other exception", "no `Exception`"),
    *("`context.popen`", "a thread", "same call again", "same message", "another message", "a listener", "another run"),
    *("a full disk", "for long", "connection is lost", "`-wal`", "`gesta prune`", "a restored backup", "a plain `cp`"),
    *("`gesta push`", "`gesta push --move`", "`gesta fork`", "expired"),
)
"""Words by which the row of each kind of fault is known."""
STORES, DURABILITIES = ["SQLite", "PostgreSQL", "memory"], ['`durability="synced"`', '`durability="normal"`']


def tables() -> list[tuple[list[str], list[list[str]]]]:
    """Tables of the page: the names of their columns, and their rows."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", PAGE, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in block.splitlines()]
        found.append((head, rows))
    return found


def with_columns(names: list[str]) -> list[list[str]]:
    """Rows of all tables whose columns, after the first, begin so."""
    return [row for head, rows in tables() if len(head) > 1 and _begin(head[1:], names) for row in rows]


def _begin(head: list[str], names: list[str]) -> bool:
    return len(head) == len(names) and all(map(str.startswith, head, names))


@functools.cache
def defined_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(each.name for each in functions)


@pytest.mark.parametrize("note", NOTES)
def test_every_named_test_exists(note: str) -> None:
    named = re.findall(r"`([\w/.]+)::(\w+)`", NOTES[note])
    assert named, f"note {note} names no test"
    assert ", ".join(f"`{path}::{name}`" for path, name in named) == NOTES[note]
    for path, name in named:
        assert (ROOT / path).is_file(), f"note {note} names {path}"
        assert name in defined_in(path), f"note {note} names {path}::{name}"


def test_every_note_is_used_and_every_mark_has_a_note() -> None:
    assert set(MARK.findall(PAGE)) == set(NOTES)


def test_every_pair_of_an_effect_and_a_fault_has_a_cell() -> None:
    rows = with_columns(EFFECTS)
    for fault in FAULTS:
        assert [row for row in rows if fault in row[0]], f"no row for {fault}"
    names = [row[0] for row in rows]
    assert len(set(names)) == len(names)
    for row in rows:
        assert len(row) == 1 + len(EFFECTS), row[0]


@pytest.mark.parametrize("columns", [EFFECTS, STORES, DURABILITIES], ids=["effects", "stores", "durabilities"])
def test_every_cell_is_shown_by_a_test_or_not_promised(columns: list[str]) -> None:
    rows = with_columns(columns)
    assert rows
    for name, *cells in rows:
        for cell in cells:
            assert MARK.search(cell) or "**Not promised" in cell, f"{name}: {cell}"
            assert cell.endswith((".", "]", "*"))


def test_the_names_that_decide_about_doubt_are_those_of_the_code() -> None:
    rows = {row[0]: set(re.findall(r"`([\w.=]+)`", row[1])) for row in with_columns(["names", "so"])}
    assert rows["what may come after the effect"] - {"gesta.InDoubt", "BaseException", "Exception"} == DOUBTFUL
    assert rows["what comes before anything was sent"] - {"certain="} == CERTAIN
    assert rows["a base that libraries use for both"] == WEAK
