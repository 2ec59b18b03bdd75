"""Each document is a program: every name that it shows is in `gesta.compat` under its own name, called as it shows.

What stands in `exceptions.md` is otherwise on purpose, each with a test of what the caller gets. What stands in
`not_yet/` is not built; a line of it that is built by now fails here, so these lists only shrink. That the reader reads
the documents right is seen where their originals are installed (`.ci/originals`): those have every name in its shape.
"""

import ast
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.seeds.documents import DOCUMENTS, HERE, compare, not_yet, read

ROOT = HERE.parents[1]
ORIGINALS = {
    "agent_catalog": ("agentc_core.activity.models.content",),
    "langchain": ("langchain_core.load.serializable", "langchain_core.messages", "langchain_core.agents"),
}
"""System, and the modules of the original that its document shows. The others have changed since."""


@cache
def compared(system: str, folder: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return all names of a document, and those that are missing."""
    every, missing = compare(system, folder)
    return frozenset(every), frozenset(missing)


def exceptions() -> list[list[str]]:
    """Return the rows of the table of exceptions: document, name, why, test."""
    lines = (HERE / "exceptions.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines if line[:2] == "| "]
    return rows[1:]


def excepted(system: str) -> set[str]:
    """Return the names of a document that are otherwise on purpose."""
    return {name for document, name, *_ in exceptions() if document == system}


@pytest.mark.parametrize("system", DOCUMENTS)
def test_every_name_of_a_document_is_there_in_its_shape(system: str, prior: Path) -> None:
    every, missing = compared(system, prior)
    waiting = set(not_yet(system))
    print(f"{system}: {len(every)} names, {len(every - missing)} found, {len(missing)} missing, of them "
          f"{len(missing & excepted(system))} excepted and {len(missing & waiting)} not yet built")  # fmt: skip
    assert sorted(missing - excepted(system) - waiting) == [], "build them, or put them into exceptions.md with a test"


@pytest.mark.parametrize("system", DOCUMENTS)
def test_what_is_built_is_struck_off_the_list_of_what_is_not(system: str, prior: Path) -> None:
    every, missing = compared(system, prior)
    listed = not_yet(system)
    assert sorted(set(listed) & (every - missing)) == [], f"strike these off tests/seeds/not_yet/{system}.txt"
    assert sorted(set(listed) - every) == [], "no document shows these"
    assert sorted(set(listed) & excepted(system)) == []
    assert listed == sorted(set(listed))


@pytest.mark.parametrize("system", DOCUMENTS)
def test_an_exception_is_still_one(system: str, prior: Path) -> None:
    every, missing = compared(system, prior)
    assert sorted(excepted(system) - every) == [], "no document shows these"
    assert sorted(excepted(system) & (every - missing)) == [], "these are there by now"


def test_each_exception_has_a_reason_and_a_test_that_mentions_it() -> None:
    for document, name, why, test in exceptions():
        assert document in DOCUMENTS, name
        assert why, name
        path, _, function = test.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8")
        bodies = [ast.unparse(node) for node in ast.parse(source).body if getattr(node, "name", "") == function]
        assert bodies, f"{test} is named for {name}"
        plain = name.split("(")[-1].strip("*)=").split(".")[-1].split(" ")[0]
        assert plain in bodies[0], f"{test} does not mention {plain}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("system", ORIGINALS)
def test_the_original_has_every_name_that_the_reader_sees(system: str, prior: Path) -> None:
    modules = [pytest.importorskip(name) for name in ORIGINALS[system]]
    whole = SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})
    every, missing = compare(system, prior, whole)
    assert len(every) > 50
    assert missing == []


@pytest.mark.parametrize("system", DOCUMENTS)
def test_every_name_of_a_document_stands_on_the_page_of_names(system: str, prior: Path) -> None:
    page = (ROOT / "docs" / "coming-from" / "seeds.md").read_text(encoding="utf-8")
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", page))))
    names = {name.rpartition(".")[2] for name in read(system, prior).shown}
    assert sorted(name for name in names - told if not name.startswith("__")) == []
