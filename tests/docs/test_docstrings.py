"""Docstrings are whole sentences in the field's words."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "src" / "gesta"
BEGINS = re.compile(r"(Give|Say|Take|Tell|Let)s?\b")
"""How no docstring begins: Return, Yield, Read, Write, Print, Add or Acquire say what is meant."""
CAUSATIVE = re.compile(r"(Have|See to it|Set going)\b")
"""Likewise, outside of the names of others: Make, Ask, Call or Run say who does what."""
OTHERS = ("compat", "importers")


def test_no_docstring_begins_with_a_word_that_can_mean_anything() -> None:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node) or ""
                other = path.relative_to(ROOT).parts[0] in OTHERS
                if BEGINS.match(docstring) or (CAUSATIVE.match(docstring) and not other):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {docstring.splitlines()[0]}")
    assert not found, "\n".join(found)
