"""What the page on compatibility promises, as far as a test can hold it."""

import re
import tomllib
from pathlib import Path

import pytest
from tests.api.test_surface import SECTIONS
from tests.docs.names import absent

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions")
SOURCES = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_that_a_page_shows_is_there(page: Path):
    assert absent(page.read_text(encoding="utf-8")) == []


def test_a_name_that_is_not_there_is_seen():
    shown = "`gesta.Agent` `gesta.errors.NoAnswer` `@gesta.tool(strict=True)` `Outcome.waiting` `Event.type` `gesta.policy.Compact`"
    assert absent(shown) == []
    wrong = (
        "`gesta.Agents` `gesta.approver.SignedApprovals` `Outcome.child` `gesta.errors.NoAnswer.nothing` `Event.kind`"
    )
    assert absent(wrong) == [
        "Event.kind",
        "Outcome.child",
        "gesta.Agents",
        "gesta.approver.SignedApprovals",
        "gesta.errors.NoAnswer.nothing",
    ]


def test_what_holds_a_promise_is_there():
    held = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert len(held) > 6
    assert [path for path in held if not (ROOT / path).exists()] == []
    rows = re.findall(r"^\| (.+?) \|.*`tests/api/surface.txt` \|$", PAGE, re.MULTILINE)
    assert len(rows) == len(SECTIONS) - 2, "commands and their JSON share a row, as codes and variables do"


def test_something_is_deprecated_if_and_only_if_the_page_does_not_deny_it():
    warned = [text for text in SOURCES if re.search(r"\bDeprecationWarning\b", text)]
    assert bool(warned) == ("Nothing is deprecated today." not in PAGE)
    assert all(re.search(r"instead|renamed", text) for text in warned), (
        "such a warning names what to write in its place"
    )


def test_the_pythons_of_the_page_are_those_of_the_metadata():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert f"which is {named[0]} to {named[-1]} now" in PAGE
    assert f"from {project['requires-python'].removeprefix('>=')} on" in PAGE
