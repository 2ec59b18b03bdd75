"""Reads a page of claims: its tables, its notes, and the tests that the notes name."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"\[\^([\w-]+)\](?!:)")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def notes_of(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\[\^([\w-]+)\]: (.*)$", text, re.MULTILINE))


def tables_of(text: str) -> list[tuple[list[str], list[list[str]]]]:
    """Tables of a page: the names of their columns, and their rows."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in block.splitlines()]
        found.append((head, rows))
    return found


@functools.cache
def defined_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(each.name for each in functions)


def check_note(note: str, text: str) -> None:
    """Check that a note names tests that exist, and nothing else."""
    named = re.findall(r"`([\w/.]+)::(\w+)`", text)
    assert named, f"note {note} names no test"
    assert ", ".join(f"`{path}::{name}`" for path, name in named) == text
    for path, name in named:
        assert (ROOT / path).is_file(), f"note {note} names {path}"
        assert name in defined_in(path), f"note {note} names {path}::{name}"
