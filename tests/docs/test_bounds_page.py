"""The page about bounds says of each bound what it is by default, and where it is set."""

from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "bounds.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("|") and "`gesta." in line
]


def default(setting: str) -> Any:
    module, _, name = setting.rpartition(".")
    if module.rpartition(".")[2][0].islower():
        return getattr(import_module(module), name)
    package, _, shape = module.rpartition(".")
    if hasattr(getattr(import_module(package), shape), "__dataclass_fields__"):
        return getattr(import_module(package), shape).__dataclass_fields__[name].default
    (field,) = [each for each in msgspec.structs.fields(getattr(import_module(package), shape)) if each.name == name]
    return field.default


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_bound_is_what_the_page_says(row: list[str]) -> None:
    _, said, setting, happens = row
    assert default(setting.partition(",")[0].strip("`")) == msgspec.json.decode(said)
    assert happens


SHAPES = (
    ("gesta.models.bounds", "Bounds"),
    ("gesta.policy", "Limits"),
    ("gesta.store", "QueryBounds"),
    ("gesta.importers.source", "ImportBounds"),
)


@pytest.mark.parametrize(("module", "shape"), SHAPES)
def test_the_page_has_every_bound(module: str, shape: str) -> None:
    settings = {row[2].partition(",")[0].strip("`") for row in ROWS}
    names = getattr(import_module(module), shape).__struct_fields__
    assert {f"{module}.{shape}.{name}" for name in names} <= settings
