"""Docstrings are whole sentences in the field's words."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[2]
BEGINS = re.compile(r"(Give|Say|Take|Tell|Let)s?\b")
"""How no docstring begins: Return, Yield, Read, Write, Print, Add or Acquire say what is meant."""
CAUSATIVE = re.compile(r"(Have|See to it|Set going)\b")
"""Nor so in Gesta itself, outside of the names of others: Make, Ask, Call or Run say who does what."""
MAYBE = re.compile(rf"""["'][\s\\]*({BEGINS.pattern}|{CAUSATIVE.pattern})""")
"""What stands in a file with such a docstring; most have none, and are not parsed."""
OTHERS = ("src/gesta/compat/", "src/gesta/importers/", "tests/", "benchmarks/")
LEFT = (
    "benchmarks/retail/",
    "benchmarks/steps.py",
    "benchmarks/_loads.py",
    "benchmarks/_counts.py",
    "benchmarks/targets",
)
"""What measurements are compared by: it stays as it was when they were made."""


def files() -> Iterator[tuple[str, Path]]:
    """Yield each file of Python with its name below the repository."""
    for top in ("src/gesta", "tests", "benchmarks"):
        for path in sorted((HOUSE / top).rglob("*.py")):
            name = path.relative_to(HOUSE).as_posix()
            if not name.startswith(LEFT):
                yield name, path


def test_no_docstring_begins_with_a_word_that_can_mean_anything() -> None:
    found = []
    for name, path in files():
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if MAYBE.search(text) else ():
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node) or ""
                if BEGINS.match(docstring) or (CAUSATIVE.match(docstring) and not name.startswith(OTHERS)):
                    found.append(f"{name}:{node.lineno} {docstring.splitlines()[0]}")
    assert not found, "\n".join(found)
