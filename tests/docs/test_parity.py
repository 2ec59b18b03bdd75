"""The rows of parity are numbered without gaps, each has one status, and each test that one names exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "coming-from" / "parity.md"
STATUSES = ("done", "differs", "later", "out of scope")
SECTIONS = (
    *("AC2.1", "AC2.2", "AC2.3", "AC2.4", "AC2.5", "AC2.6", "AC3", "KO9.1", "KO9.2", "KO9.3", "KO9.4", "KO9.5"),
    *("KO9.6", "KO10", "LA2", "LA3", "LA4", "LA5.1", "LA5.2", "LA5.3", "LA5.4", "LA6", "LA7.1", "LA7.2", "LA7.3"),
    *("LA7.4", "LA7.5", "LA7.6", "LA7.7", "LA7.8", "LA7.9", "LA7.10", "LA7.11", "LA7.12", "LA8", "LA9", "LA12.1"),
    *("LA12.2", "LA12.3", "TG1.2", "TG1.3", "TG1.4", "TG1.5", "TG1.6", "TG1.7", "TG1.8", "TG1.9", "TG1.10"),
    *("TG2.1", "TG2.2", "TG2.3", "TG2.4", "TG2.5", "TG2.6", "TG2.7", "TG2.8", "LC6", "LC6.1", "LC8"),
    *("AC3-D", "AC8-D", "KO15-D", "LA6-D", "LA19-D", "TG5-D", "LC6-D", "LC8-D"),
)
"""What must be there; more may be."""
NUMBER = re.compile(r"((?:AC|KO|LA|TG|LC)\d+(?:\.\d+)?-D?)(\d+)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> Iterator[list[str]]:
    """Every row of the page: number, what it is, status, test or reason."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| no. "):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


@cache
def named_in(path: str) -> frozenset[str]:
    """The names of the tests in a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_numbers_run_without_gaps_section_by_section() -> None:
    found: dict[str, list[int]] = {}
    for number, *_ in rows():
        match = NUMBER.fullmatch(number)
        assert match, number
        found.setdefault(match[1].removesuffix("-"), []).append(int(match[2]))
    assert {name: numbers for name, numbers in found.items() if numbers != list(range(1, len(numbers) + 1))} == {}
    assert [section for section in SECTIONS if section not in found] == []


def test_each_row_has_one_status_and_says_which_test_or_why() -> None:
    for number, what, status, rest in rows():
        assert what, number
        assert status in STATUSES, number
        assert rest, number
        assert status != "done" or TEST.fullmatch(rest), number


def test_each_test_that_is_named_exists() -> None:
    missing = [
        f"{number}: {path}::{name}"
        for number, *_, rest in rows()
        for path, name in TEST.findall(rest)
        if not (ROOT / path).is_file() or name not in named_in(path)
    ]
    assert missing == []
