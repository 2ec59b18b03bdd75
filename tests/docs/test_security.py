"""Every claim of the page on security is shown by a test that exists, or is said to be open."""

import pytest
from tests.docs.pages import MARK, ROOT, check_note, notes_of, page, tables_of

PAGE = page("security.md")
NOTES = notes_of(PAGE)
STRANGERS = ["it can", "they can"]


@pytest.mark.parametrize("note", NOTES)
def test_every_named_test_exists(note: str) -> None:
    check_note(note, NOTES[note])


def test_every_note_is_used_and_every_mark_has_a_note() -> None:
    assert set(MARK.findall(PAGE)) == set(NOTES)


def test_every_claim_is_shown_by_a_test_or_is_open() -> None:
    rows = [row for head, rows in tables_of(PAGE) if head[0] in STRANGERS for row in rows]
    assert len(rows) > 25
    for can, cannot in rows:
        assert MARK.search(cannot) or "**open**" in can + cannot, can


def test_every_stranger_that_is_named_has_a_section() -> None:
    ((_, who),) = [(head, rows) for head, rows in tables_of(PAGE) if head[0] == "who"]
    assert [row[0].partition("**:")[0].strip("*") for row in who] == [
        "the operator",
        "the author of a tool",
        "a provider",
        "the model",
        "the sender of a file",
        "another user of the machine",
        "who reads a log or an export",
    ]
    for section in ("The model", "A provider", "Who sends a record", "Who sends another file", "Another user"):
        assert f"\n## {section}" in PAGE


def test_how_to_report_names_no_address_and_the_private_form() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "Report a vulnerability" in text
    assert "@" not in text
    assert "docs/security.md" in text
