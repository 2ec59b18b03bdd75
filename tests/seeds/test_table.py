"""The table of names is true: every path in it can be imported, and every name in it is found there."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.seeds.documents import members

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from" / "seeds.md"
TICKED = re.compile(r"`([^`]+)`")
DOCUMENTS = ("000", "001", "002", "003", "004")


def rows() -> Iterator[tuple[str, list[str], str, str]]:
    """Every row of every table: heading, cells, and its place on the page."""
    heading = ""
    for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| ") and not line.startswith("| names "):
            yield heading, [cell.strip() for cell in line.strip("| ").split(" | ")], line, f"line-{number}"


def placed() -> Iterator[Any]:
    for heading, (names, places, *_), _, place in rows():
        if heading != "Not taken":
            yield pytest.param(here(names), TICKED.findall(places), id=f"{heading[:3]}-{place}")


def here(cell: str) -> list[str]:
    """The names that hold here: behind an arrow, or where there is none."""
    found = []
    for part in re.split(r"(?<=`), (?=`)", cell):
        before, arrow, after = part.partition(" → ")
        found += TICKED.findall(after if arrow else before)
    return found


def at(path: str) -> Any:
    """What a dotted path leads to: a module, or something in one."""
    names = path.split(".")
    for end in range(len(names), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(names[:end]))
        except ModuleNotFoundError:
            continue
        for name in names[end:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"{path} leads nowhere")


def has(place: Any, name: str) -> bool:
    """Whether a name is the place itself, or a member, a field or a parameter of it."""
    if name == getattr(place, "__name__", None) or hasattr(place, name):
        return True
    known = {*members(place), *getattr(place, "__annotations__", ())}
    if callable(place) and not known:
        known |= set(inspect.signature(place).parameters)
    return name in known


@pytest.mark.parametrize(("names", "paths"), list(placed()))
def test_every_name_is_at_its_place(names: list[str], paths: list[str]) -> None:
    assert names
    places = [at(path) for path in paths]
    assert places
    for name in names:
        assert any(has(place, name) for place in places), f"{name} is at none of {paths}"


def test_every_document_has_a_table_and_what_is_not_taken_a_reason() -> None:
    found = list(rows())
    assert {heading[:3] for heading, *_ in found if heading[:3].isdigit()} == set(DOCUMENTS)
    assert all(len(cells) == 2 and cells[1] for heading, cells, *_ in found if heading == "Not taken")


def test_no_name_stands_twice_in_one_table_with_one_place() -> None:
    seen: set[tuple[str, str, str]] = set()
    for heading, (names, places, *_), line, _ in rows():
        for name in here(names) if heading != "Not taken" else ():
            one = (heading, places, name)
            assert one not in seen or "→" in line, one
            seen.add(one)
