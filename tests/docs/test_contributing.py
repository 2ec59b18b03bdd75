"""What CONTRIBUTING lists is what there is."""

import re
from pathlib import Path
from textwrap import wrap

from tests.test_shape import EDGES, RIBS, SPINE

HOUSE = Path(__file__).resolve().parents[2]
TEXT = (HOUSE / "CONTRIBUTING.md").read_text(encoding="utf-8")


def listed(begin: str, end: str) -> list[str]:
    """Return the names in backticks between two texts."""
    return re.findall(r"`([\w./]+)`", TEXT.split(begin, 1)[1].split(end, 1)[0])


def test_the_spine_is_listed_in_the_order_in_which_it_is_read() -> None:
    right = "\n".join(wrap(" ".join(f"`{name}`" for name in SPINE), 118))
    assert f"it takes an afternoon:\n\n{right}\n\nThe ribs are" in TEXT, f"CONTRIBUTING.md should list:\n{right}"


def test_ribs_and_edges_are_listed() -> None:
    assert listed("The ribs are folders", "The tuple") == [f"{rib}/" for rib in RIBS]
    edges = [name.removesuffix("/").removesuffix(".py") for name in listed("edges (", ")")]
    assert sorted(edges) == sorted(EDGES)


def test_what_a_change_touches_is_there() -> None:
    named = [name for name in listed("| you want | touch |", "If a change touches") if name.endswith((".py", "/"))]
    assert len(named) > 20
    missing = [name for name in named if not any((top / name).exists() for top in (HOUSE / "src/gesta", HOUSE))]
    assert not missing, f"CONTRIBUTING.md names what is not there: {missing}"
