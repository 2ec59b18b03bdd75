"""Every cell of the page on the promise is shown by a test that exists, or says that it is not promised."""

import re

import pytest
from tests.docs.pages import MARK, check_note, notes_of, page, tables_of

from gesta.function_tool.doubt import CERTAIN, DOUBTFUL, WEAK

PAGE = page("promise.md")
EFFECTS = ["`pure`", "`idempotent`", "`once`", "`transactional`", "agent as a tool"]
NOTES = notes_of(PAGE)
FAULTS = (
    *("`kill -9` before", "`kill -9` between", "loss of power", "`SIGSTOP`", "another host", "two versions"),
    *(
        "`timeout_s`",
        "stops waiting",
        "a person cancels",
        "leaves a doubt",
        "any other exception",
        "not an `Exception`",
    ),
    *("`context.popen`", "a thread", "same call again", "same message", "another message", "a listener", "another run"),
    *(
        "a full disk",
        "for long",
        "connection is lost",
        "`-wal`",
        "`-shm`",
        "`gesta prune`",
        "a restored backup",
        "a plain `cp`",
    ),
    *("`gesta push`", "`gesta push --move`", "`gesta fork`", "expired"),
)
"""Words by which the row of each kind of fault is known."""
STORES, DURABILITIES = ["SQLite", "PostgreSQL", "memory"], ['`durability="synced"`', '`durability="normal"`']


def with_columns(names: list[str]) -> list[list[str]]:
    """Rows of all tables whose columns, after the first, begin so."""
    return [row for head, rows in tables_of(PAGE) if len(head) > 1 and _begin(head[1:], names) for row in rows]


def _begin(head: list[str], names: list[str]) -> bool:
    return len(head) == len(names) and all(map(str.startswith, head, names))


@pytest.mark.parametrize("note", NOTES)
def test_every_named_test_exists(note: str) -> None:
    check_note(note, NOTES[note])


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
