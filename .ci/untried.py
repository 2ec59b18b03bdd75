#!/usr/bin/env python3
"""List the options of commands that no test and no page ever passes; a page's commands are run by tests.

An option counts as tried where its command and it stand in one test with its decorators, in one call, list or tuple of
another function, or in one command of a page. Whoever puts words together in another way is not seen: a line here is a
place to look, no verdict.
"""

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from gesta.cli import application

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def split(text: str) -> list[str]:
    """Return the words of a text, or the text where a shell would not take it."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def of_tests() -> Iterator[set[str]]:
    """Yield the words of each test, and of each call, list and tuple."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            if test or isinstance(node, ast.Call | ast.List | ast.Tuple):
                texts = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
                yield {word.partition("=")[0] for text in texts if isinstance(text, str) for word in split(text)}


def of_pages() -> Iterator[set[str]]:
    """Yield the words of each command of each page."""
    for page in PAGES:
        for block in FENCE.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                yield {word.partition("=")[0] for word in split(line)}


def main() -> None:
    """Print a line for each command with options that nobody tries."""
    group: Any = get_command(application())
    tried = [*of_tests(), *of_pages()]
    shared = set.intersection(
        *({opt for each in command.params for opt in each.opts} for command in group.commands.values())
    )
    every = set().union(*tried)
    for verb, command in sorted(group.commands.items()):
        with_verb = (shared & every).union(*(words for words in tried if verb in words))
        options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
        names = [each.opts + each.secondary_opts for each in options]
        left = ["/".join(each) for each in names if with_verb.isdisjoint(each)]
        if left:
            sys.stdout.write(f"{verb}: {', '.join(left)}\n")


if __name__ == "__main__":
    main()
