"""The rows of parity are numbered without gaps, each has one status, and each test that one names tests that row.

How much of the last can be seen mechanically: the test exists where pytest collects it, and what the row names in code
is named in the test, in what its parameters are, or in what of its file it uses.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

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
NUMBERS = re.compile(r"(?:AC|KO|LA|TG|LC)[\d.]+-D?\d+")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
TESTS = re.compile(rf"{TEST.pattern}(?:, {TEST.pattern})*")
TICKED = re.compile(r"`([^`]+)`")
NAME = re.compile(r"[A-Za-z_]\w+")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
ABSENT = ("later", "out of scope")


def rows() -> Iterator[list[str]]:
    """Every row of the page: number, what it is, status, test or reason."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line == "## What is not here":
            return
        if line.startswith("| ") and not line.startswith("| no. "):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


@cache
def defined_in(path: str) -> dict[str, ast.stmt]:
    """Everything that stands at the top level of a file of tests, by name."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id: node for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return found


def mentioned(path: str, test: str) -> set[tuple[str, ...]]:
    """Every identifier, as its words in lower case, in a test and in what of its file it uses."""
    known, seen, todo = defined_in(path), set[str](), [test]
    source = ""
    while todo:
        name = todo.pop()
        if name in known and name not in seen:
            seen.add(name)
            source += ast.unparse(known[name]) + "\n"
            todo += [each.id for each in ast.walk(known[name]) if isinstance(each, ast.Name)]
            todo += [each.arg for each in ast.walk(known[name]) if isinstance(each, ast.arg)]
    return {words_of(each) for each in NAME.findall(source)}


def words_of(name: str) -> tuple[str, ...]:
    """The words that a name is made of: `ToolInvocations` and `tool_invocations` are the same."""
    return tuple(each.lower() for each in WORD.findall(name))


def holds(words: tuple[str, ...], name: str) -> bool:
    """Whether a name is a whole identifier, or some of its words in a row."""
    wanted = words_of(name)
    return any(words[place : place + len(wanted)] == wanted for place in range(len(words)))


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
        assert status != "done" or TESTS.fullmatch(rest), number


def test_each_test_that_is_named_exists_and_is_collected() -> None:
    missing = [
        f"{number}: {path}::{name}"
        for number, *_, rest in rows()
        for path, name in TEST.findall(rest)
        if not (
            (ROOT / path).is_file()
            and Path(path).name.startswith("test_")
            and name.startswith("test_")
            and isinstance(defined_in(path).get(name), ast.FunctionDef | ast.AsyncFunctionDef)
        )
    ]
    assert missing == []


@pytest.mark.slow
def test_each_test_mentions_what_its_row_names() -> None:
    missing = []
    for number, what, status, rest in rows():
        words = (
            {each for path, name in TEST.findall(rest) for each in mentioned(path, name)} if status == "done" else {()}
        )
        for ticked in TICKED.findall(what) if status == "done" else ():
            missing += [f"{number}: {name}" for name in NAME.findall(ticked) if not any(holds(w, name) for w in words)]
    assert missing == []


def test_of_each_row_that_is_not_here_the_page_says_what_a_user_loses() -> None:
    text = PAGE.read_text(encoding="utf-8")
    _, _, end = text.partition("## What is not here\n")
    said = [
        number for line in end.splitlines() if line.startswith("| ") for number in NUMBERS.findall(line.split("|")[1])
    ]
    assert sorted(said) == sorted(number for number, _, status, _ in rows() if status in ABSENT)
