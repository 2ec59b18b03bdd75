"""Which file may import which, and how large anything may grow.

The spine stands below in reading order. Raising a budget, or a line more in a table of exceptions, takes a decision
record under `docs/decisions/`.
"""

import ast
import functools
import graphlib
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"
SPINE = (
    *(
        "errors",
        "doubt",
        "stop",
        "kinds",
        "entry",
        "codec",
        "blob",
        "store",
        "forking",
        "tombstone",
        "audit",
        "log",
        "view",
        "origins",
        "message",
        "scan",
        "signature",
        "context",
        "tooling",
        "output",
    ),
    *(
        "model",
        "formatter",
        "prompt",
        "policy",
        "event",
        "agent",
        "pending",
        "acts",
        "usage",
        "spending",
        "turn",
        "standing",
        "approver",
        "opening",
    ),
    *(
        "affording",
        "decide",
        "outcome",
        "desk",
        "outlive",
        "result",
        "late",
        "calling",
        "settle",
        "compacting",
        "generated",
        "asking",
        "using",
        "perform",
        "run",
        "acting",
        "verbs",
        "playing",
        "fencing",
        "leases",
        "cancel",
        "holder",
        "stream",
        "record",
    ),
)
RIBS = ("stores", "models", "tools", "formatters", "views", "patterns", "bridges")
EDGES = ("address", "compare", "blocking", "demo", "worker", "cli", "web", "crashing", "sentences", "testing")
SPINE_LIBRARIES = ("msgspec", "anyio")
LAZY = ("", "address", "cli", "demo")  # may import inside functions; "" is the door, `gesta/__init__.py`
HEAVY = {"models/prices.py": "genai_prices"}  # rib file -> the one library that it may import inside functions
KEYWORDS = {  # functions and classes whose keywords are the user's own words, so that no signature can list them
    "call": "the arguments of any tool",
    "log": "the annotations of an entry",
    "span": "the annotations of a span",
    "Spelled": "the fields of any struct, checked there",
    "tool": "a TypedDict lists them",
    "Tool": "a tool is called as the function that it was made of",
    "store": "the options of `gesta.open`; a TypedDict lists them",
    "inline_store": "as above",
    "open_record": "as above",
    "open_sync": "as above",
    "popen": "the arguments of `subprocess.Popen`",
    "no_subprocess": "as above",
    "LLMMessage": "a dict of any message fields; its users need one",
    "Open": "the fields of a result, which are its user's own",
    "ResultTool": "as above",
    "ChatDocAttachment": "anything that goes along with a document",
    "response_template": "the fields of a ChatDocument",
    "create_agent_response": "as above",
    "create_llm_response": "as above",
    "create_user_response": "as above",
}
FIXED = {"run", "run_async", "enable_message"}
"""Functions of `patterns/` whose parameters are the names that users know."""
EDGES_IN_RIBS = {"patterns.home": ("address",)}  # rib file -> edges that it may import; see docs/decisions
FILE, FILE_OF = 400, {"kinds": 500}
FUNCTION, PARAMETERS, PUBLIC, MODULES = 50, 6, 40, 120

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
Found = Iterator[tuple[int, str]]  # line, and what was found there against which budget


class Import(NamedTuple):
    """One thing that a file imports."""

    line: int
    target: str  # of Gesta: the path below `gesta.`; of others: the library
    ours: bool
    lazy: bool  # inside a function, or by a string
    typing: bool  # under `if TYPE_CHECKING:`


def listed() -> Iterator[tuple[str, Path]]:
    for path in sorted((SRC / "gesta").rglob("*.py")):
        name = ".".join(path.relative_to(SRC / "gesta").with_suffix("").parts)
        yield name.removesuffix("__init__").rstrip("."), path


FILES = dict(listed())


@functools.cache
def tree(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


def walk(node: ast.AST, around: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Every node below, with those around it."""
    for child in ast.iter_child_nodes(node):
        yield child, around
        yield from walk(child, (*around, child))


@functools.cache
def imports(name: str) -> tuple[Import, ...]:
    """What a file imports, at the top and inside functions; `from gesta.a import b` is `a.b` where that is a file."""
    return tuple(importing(name))


def importing(name: str) -> Iterator[Import]:
    for node, around in walk(tree(name)):
        by_string = False
        match node:
            case ast.Import():
                full = [alias.name for alias in node.names]
            case ast.ImportFrom(level=0, module=str(module)):
                longer = [f"{module}.{alias.name}" for alias in node.names]
                full = [name if name.removeprefix("gesta.") in FILES else module for name in longer]
            case ast.ImportFrom():
                full = ["gesta.<relative>"]
            case ast.Call(func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module")):
                full, by_string = ["<by a string>"], True
            case _:
                continue
        lazy = by_string or any(isinstance(outer, FUNCTIONS | ast.Lambda) for outer in around)
        typing = any(isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.unparse(outer.test) for outer in around)
        for library, _, rest in (each.partition(".") for each in dict.fromkeys(full)):
            yield Import(node.lineno, rest if library == "gesta" else library, library == "gesta", lazy, typing)


def order(rib: str) -> tuple[str, ...]:
    """`ORDER` of a rib's folder."""
    for node in tree(rib).body if rib in FILES else ():
        if isinstance(node, ast.Assign | ast.AnnAssign) and "ORDER" in ast.unparse(node).split("=")[0] and node.value:
            return tuple(ast.literal_eval(node.value))
    return ()


def allowed(name: str, found: Import) -> bool:
    """May this file import that file of Gesta?"""
    (top, _, unit), (other, _, other_unit) = name.partition("."), found.target.partition(".")
    unit, other_unit = unit.partition(".")[0], other_unit.partition(".")[0]
    if top in EDGES:
        return other in ("", *SPINE, *RIBS, *EDGES)
    if not name:  # the door
        return other in SPINE + RIBS or (other in ("address", "blocking") and (found.lazy or found.typing))
    if top in SPINE:
        return other in SPINE[: SPINE.index(top)]
    if other in EDGES_IN_RIBS.get(name, ()):
        return True
    if other == top:
        earlier = (
            order(top)[: [*order(top), unit].index(unit)] if unit else ()
        )  # the folder's own `__init__` comes first
        return other_unit == unit != "" or other_unit in earlier
    return other in (*SPINE, "views")


def place(name: str) -> Found:
    """A file belongs to the spine, a rib or an edge, a rib file into the order of its folder."""
    top, _, unit = name.partition(".")
    if top not in ("", *SPINE, *RIBS, *EDGES):
        yield 1, f"found a file {name!r}; expected one of the spine, a rib or an edge"
    if top in RIBS and unit and unit.partition(".")[0] not in order(top):
        yield 1, f"found {unit!r} outside the budget of files: it is missing in ORDER of {top}/__init__.py"


def direction(name: str) -> Found:
    """The spine imports upwards, a rib the spine, earlier files of its own and views; nobody imports an edge."""
    top = name.partition(".")[0]
    upper = "the spine, earlier files in ORDER, views"
    if top in ("", *SPINE):
        upper = (
            ", ".join(SPINE[: SPINE.index(top)]) or "nothing" if top else "the spine, the ribs, address in a function"
        )
    for found in imports(name):
        if found.ours and not allowed(name, found):
            yield found.line, f"found an import of gesta.{found.target}; allowed here: {upper}"


def libraries(name: str) -> Found:
    """The spine needs two libraries and no event loop of its own, a rib file one more."""
    top, own = (
        name.partition(".")[0],
        sys.stdlib_module_names - {"asyncio"} if name in SPINE else sys.stdlib_module_names,
    )
    more = {found.target: found.line for found in imports(name) if not found.ours and found.target not in own}
    more = {library: line for library, line in more.items() if library not in (*SPINE_LIBRARIES, "<by a string>")}
    if more and (top in SPINE or (top in RIBS and len(more) > 1)):
        yield (
            max(more.values()),
            f"found {', '.join(more)}; the budget is {'msgspec, anyio' if top in SPINE else 'one library'}",
        )


def lazy_imports(name: str) -> Found:
    """An import inside a function hides a dependency; where one is wanted, it is listed."""
    heavy = HEAVY.get(str(FILES[name].relative_to(SRC / "gesta")))
    for found in imports(name):
        if found.lazy and name.partition(".")[0] not in LAZY and (found.ours or found.target != heavy):
            yield found.line, f"found an import of {found.target} in a function; the budget is 0"


def size(name: str) -> Found:
    """A file is read in one sitting, a function on one screen."""
    lines, budget = len(FILES[name].read_text(encoding="utf-8").splitlines()), FILE_OF.get(name, FILE)
    if lines > budget:
        yield lines, f"found {lines} lines; the budget is {budget}"
    for node in ast.walk(tree(name)):
        if isinstance(node, FUNCTIONS):
            lines, given = (node.end_lineno or node.lineno) - node.lineno + 1, node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            parameters = sum(each is not None and each.arg not in ("self", "cls", "mcls") for each in every)
            if lines > FUNCTION:
                yield node.lineno, f"found {lines} lines in {node.name}; the budget is {FUNCTION}"
            if parameters > PARAMETERS and not (name.startswith("patterns.") and node.name in FIXED):
                yield node.lineno, f"found {parameters} parameters of {node.name}; the budget is {PARAMETERS}"


def plumbing(name: str) -> Found:
    """State is passed down, and every parameter has a name; `**` is for decorators that keep a signature."""
    for node, around in walk(tree(name)):
        if isinstance(node, ast.Global):
            yield node.lineno, f"found `global {', '.join(node.names)}`; the budget is 0"
        if isinstance(node, FUNCTIONS) and (rest := node.args.kwarg):
            names = {node.name, *(outer.name for outer in around if isinstance(outer, ast.ClassDef))}
            if not (
                isinstance(rest.annotation, ast.Attribute) and rest.annotation.attr == "kwargs"
            ) and names.isdisjoint(KEYWORDS):
                yield (
                    node.lineno,
                    f"found **{rest.arg} in {node.name}; the budget is P.kwargs of a ParamSpec, or {[*KEYWORDS]}",
                )


@pytest.mark.parametrize("rule", [place, direction, libraries, lazy_imports, size, plumbing])
def test_every_file_keeps_the_rule(rule: Callable[[str], Found]) -> None:
    found = [
        f"{path.relative_to(SRC.parent)}:{line}: {what}" for name, path in FILES.items() for line, what in rule(name)
    ]
    assert not found, "\n".join([rule.__doc__ or "", *found])


def test_no_import_cycles() -> None:
    """Counted with imports inside functions, where cycles hide."""
    try:
        graphlib.TopologicalSorter({name: {i.target for i in imports(name) if i.ours} for name in FILES}).prepare()
    except graphlib.CycleError as error:
        name, *others = error.args[1]
        pytest.fail(f"{FILES[name].relative_to(SRC.parent)}:1: found the cycle {[name, *others]}; the budget is 0")


def test_the_door_is_short_and_hides_no_module() -> None:
    gesta = importlib.import_module("gesta")
    assert len(gesta.__all__) <= PUBLIC, (
        f"gesta/__init__.py:1: found {len(gesta.__all__)} names; the budget is {PUBLIC}"
    )
    hidden = [name for name in gesta.__all__ if name in FILES and not isinstance(getattr(gesta, name), ModuleType)]
    assert not hidden, f"gesta/__init__.py:1: found {hidden}, which are modules too; the budget is 0"


PROBE = """
import os, sys
bare, touched = set(sys.modules), []
sys.path.insert(0, sys.argv[1])
effects = "socket. subprocess. _thread. os.chdir os.mkdir os.putenv os.remove os.rename os.unsetenv".split()
def watch(event, args):
    if event == "open" and not str(args[0]).endswith((".py", ".pyc", ".so", ".pyd", ".dylib")):
        touched.append(f"open {args[0]}")
    elif event.startswith(tuple(effects)):
        touched.append(event)
def files():
    return os.path.isdir("/proc/self/fd") and sorted(os.listdir("/proc/self/fd"))
before = files()
sys.addaudithook(watch)
import gesta
after, touched, modules = files(), list(touched), sorted(set(sys.modules) - bare)
import json, threading
print(json.dumps([modules, touched, before, after, threading.active_count()]))
"""


def test_import_is_light_and_touches_nothing() -> None:
    probe = subprocess.run([sys.executable, "-IB", "-c", PROBE, str(SRC)], capture_output=True, text=True, check=False)
    assert not probe.returncode, probe.stderr
    modules, touched, before, after, threads = json.loads(probe.stdout)
    where = "gesta/__init__.py:1: `import gesta`:"
    assert len(modules) <= MODULES, f"{where} found {len(modules)} modules, {modules}; the budget is {MODULES}"
    assert "asyncio" not in modules, f"{where} found asyncio; the budget is 0, anyio chooses the event loop"
    assert not touched, f"{where} found {touched}; the budget is 0"
    assert before == after, f"{where} found open files {after}; expected {before}"
    assert threads == 1, f"{where} found {threads} threads; the budget is 1"
