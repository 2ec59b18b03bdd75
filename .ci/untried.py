#!/usr/bin/env python3
"""List the options of commands and the parameters of Python that no test and no page ever passes.

The commands and programs of a page are run by tests.

An option counts as tried where its command and it stand in one test with its decorators, in one call, list or tuple of
another function, or in one command of a page. Whoever puts words together in another way is not seen: a line here is a
place to look, no verdict. A parameter of Python counts as tried where a function of that name is called with it.
"""

import ast
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import gesta
import gesta.serve
import gesta.testing
from gesta.cli import application
from gesta.patterns.plan import plan_then_execute
from gesta.patterns.react import react
from gesta.patterns.router import router
from gesta.patterns.supervisor import supervisor
from gesta.sync import SyncRecord

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)


PROGRAMS = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PYTHON: tuple[Any, ...] = (
    *(gesta.tool, gesta.scripted, gesta.function, gesta.hosted, gesta.call, gesta.reply, gesta.fault, gesta.mcp),
    *(gesta.replay, gesta.run_sync, gesta.open_sync, gesta.open, gesta.Agent, gesta.Policy, gesta.Limits, gesta.Retry),
    *(gesta.Budget, gesta.ToolError, gesta.InDoubt, gesta.NotDone, react, plan_then_execute, supervisor, router),
    *(gesta.serve.Access, gesta.serve.app, gesta.testing.crash_test),
)
"""Functions that a program calls, and classes that it makes objects of."""
USED = gesta.Record, SyncRecord, gesta.Verbs, gesta.Log, gesta.Context
"""Classes whose methods a program calls."""
OURS = {"hint", "sources"}
"""Fields of an agent that Gesta sets."""


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


def calls() -> dict[str, tuple[set[str], int]]:
    """Return by the name of a function the keywords that it is called with, and the most arguments without keyword."""
    found: dict[str, tuple[set[str], int]] = {}
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))]
    texts += [block for page in PAGES for block in PROGRAMS.findall(page.read_text(encoding="utf-8"))]
    for text in texts:
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except SyntaxError:  # a part of a program on a page
            continue
        for node in nodes:
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                    if name == "partial" and isinstance(node.args[0], ast.Attribute | ast.Name):
                        name = ast.unparse(node.args[0]).rpartition(".")[2]
                    keywords, most = found.get(name, (set(), 0))
                    keywords |= {each.arg for each in node.keywords if each.arg}
                    found[name] = keywords, max(most, len(node.args))
    return found


def of_python() -> Iterator[tuple[str, list[str]]]:
    """Yield functions of Python with their optional parameters that nobody passes."""
    tried = calls()
    methods = {
        f"{each.__name__}.{name}": method
        for each in USED
        for name, method in inspect.getmembers(each, callable)
        if not name.startswith("_")
    }
    for name, function in {each.__name__: each for each in PYTHON}.items() | methods.items():
        keywords, most = tried.get(name.rpartition(".")[2], (set(), 0))
        given = [one for one in inspect.signature(function).parameters.values() if one.name not in ("self", "cls")]
        left = [
            one.name
            for place, one in enumerate(given)
            if one.default is not one.empty and one.name not in keywords | OURS
            if one.kind is one.KEYWORD_ONLY or place >= most
        ]
        if left:
            yield name, left


def main() -> None:
    """Print a line for each command and each function with options that nobody tries."""
    for name, left in sorted(of_python()):
        sys.stdout.write(f"{name}(): {', '.join(left)}\n")
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
