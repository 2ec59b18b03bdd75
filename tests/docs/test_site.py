"""The index links every page, the site's menu has every page, and files that pages name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
FILE = re.compile(r"`(\.?[\w./-]+\.(?:py|md|toml|txt|yml)|[\w./-]+/)`")


def test_the_index_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8")))
    decisions = {page for page in PAGES if page.startswith("decisions/")} - {"decisions/index.md"}
    assert linked == set(PAGES) - decisions - {"index.md", "reference/index.md"}


def test_the_index_of_decisions_links_every_decision() -> None:
    linked = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (DOCS / "decisions" / "index.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(path.name for path in (DOCS / "decisions").glob("[0-9]*.md"))


def test_the_menu_has_every_page() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    pages = re.findall(r"[-:] ([\w/-]+\.md)$", menu, re.MULTILINE)
    assert sorted(pages) == [page for page in PAGES if not re.match(r"decisions/\d", page)]


def test_the_reference_shows_every_module_that_it_lists() -> None:
    for page in sorted((DOCS / "reference").glob("*.md")):
        if page.name != "index.md":
            module = re.findall(r"^::: (gesta[\w.]*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert module == ["gesta" if page.stem == "gesta" else f"gesta.{page.stem}"]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/walk.md"])
def test_files_that_a_page_names_are_there(page: str) -> None:
    named = set(FILE.findall((ROOT / page).read_text(encoding="utf-8"))) - {"docs/decisions/NNNN-title.md"}
    missing = [name for name in named if not any((place / name).exists() for place in (ROOT, ROOT / "src" / "gesta"))]
    assert not missing, f"{page} names {sorted(missing)}"
