"""Which file may import which, and how large anything may grow.

The units of the spine stand below in reading order. Raising a budget, or a line more in a table of exceptions, takes a decision
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
from benchmarks.where import PARTS

SRC = Path(__file__).resolve().parents[1] / "src"
SPINE = (
    "text",
    "errors",
    "content",
    "kinds",
    "policy",
    "entry",
    "message",
    "function_tool",
    "hooks",
    "codec",
    "store",
    "lineage",
    "model",
    "log",
    "prompt",
    "integrity",
    "agent",
    "state",
    "decide",
    "events",
    "perform",
    "loop",
    "workflow",
    "record",
)
"""Units in reading order: files, or folders whose `ORDER` goes on with it. CONTRIBUTING has the same list."""
RIBS = ("stores", "models", "tools", "catalog", "formatters", "views", "patterns", "importers", "bridges", "compat")
RIBS_FOR = {"bridges": ("importers",), "compat": RIBS}  # rib -> further ribs that it may import; see docs/decisions
EDGES = ("address", "compare", "first_file", "sync", "demo", "worker", "serve", "web", "cli", "testing", "__main__")
SPINE_LIBRARIES = ("msgspec", "anyio")
LAZY = ("", "address", "cli", "demo", "testing")  # may import inside functions; "" is the door, `gesta/__init__.py`
HEAVY = {
    "models/prices.py": "genai_prices",
    "bridges/mcp/link.py": "mcp",
}  # rib file -> the one library that it may import inside functions
KEYWORDS = {  # functions and classes whose keywords are the user's own words, so that no signature can list them
    "call": "the arguments of any tool",
    "invoke": "as above",
    "log": "the annotations of an entry",
    "span": "the annotations of a span",
    "Spelled": "the fields of any struct, checked there",
    "Checked": "as above",
    "tool": "a TypedDict lists them",
    "Tool": "a tool is called as the function that it was made of",
    "store": "the options of `gesta.open`; a TypedDict lists them",
    "inline_store": "as above",
    "open_record": "as above",
    "open_sync": "as above",
    "run_sync": "as above",
    "hosted": "as above",
    "run": "the options of a turn; a TypedDict lists them",
    "stream": "as above",
    "resume": "as above",
    "popen": "the arguments of `subprocess.Popen`",
    "no_subprocess": "as above",
    "mcp": "as above",
    "new": "the annotations of a span of agent-catalog",
    "Span": "as above",
    "LLMMessage": "a dict of any message fields; its users need one",
    "Open": "the fields of a result, which are its user's own",
    "ResultTool": "as above",
    "ChatDocAttachment": "anything that goes along with a document",
}
FIXED = {"run", "run_async", "enable_message"} | {"run_batch_task_gen", "run_batch_tasks", "run_batch_agent_method"}
FIXED |= {"llm_response_batch", "agent_response_batch", "run_batched_tasks"}
FIXED |= {
    f"emit_{each}_triples"
    for each in ("session", "iteration", "final", "decomposition", "finding", "plan", "step_result", "synthesis")
} | {"agent_iteration_triples"}
FIXED |= {"response_template", "create_agent_response", "create_llm_response", "create_user_response"}
"""Functions of `compat/` whose parameters are the names that users know."""
EDGES_IN_RIBS = {
    "compat.langroid.home": ("address",),
    "compat.agent_catalog.spans": ("address",),
}  # rib file -> edges that it may import; see docs/decisions
EXTRA = {  # files that name `extra`, and why that is not a reader of a member of it
    "codec.upcasts": "entries of format 1, which version 0.1.0 wrote",
    "views.stats": "as above, in rows",
    "compare.differences": "it is left out",
    "compare.forks": "it cannot be changed",
    "compat.langroid.facts": "an option of pydantic's",
    "compat.agent_catalog.export": "it is written as it came",
    "compat.agent_catalog.contents": "as above",
    "models.responses_items": "a parameter of that name",
}
SQL_OF_FORMAT_1 = {"stores.views"}
FILE, FILE_OF = 400, {"kinds": 500}
FUNCTION, PARAMETERS, PUBLIC, MODULES, UNITS = 50, 6, 40, 120, 24

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
    left = [(child, around) for child in ast.iter_child_nodes(node)][::-1]
    while left:
        child, around = left.pop()
        yield child, around
        if below := [each for each in ast.iter_child_nodes(child) if not isinstance(each, ast.expr_context)]:
            within = (*around, child)
            left += [(each, within) for each in reversed(below)]


@functools.cache
def walked(name: str) -> list[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Every node of a file, with those around it."""
    return list(walk(tree(name)))


@functools.cache
def imports(name: str) -> tuple[Import, ...]:
    """What a file imports, at the top and inside functions; `from gesta.a import b` is `a.b` where that is a file."""
    return tuple(importing(name))


def importing(name: str) -> Iterator[Import]:
    for node, around in walked(name):
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
    """`ORDER` of a folder."""
    for node in tree(rib).body if rib in FILES else ():
        if isinstance(node, ast.Assign | ast.AnnAssign) and "ORDER" in ast.unparse(node).split("=")[0] and node.value:
            return tuple(ast.literal_eval(node.value))
    return ()


def before(name: str, target: str) -> bool:
    """Does a file of the same unit or rib come earlier? In each folder `ORDER` says it, and its `__init__` is first."""
    folder, parts, others = "", name.split("."), target.split(".")
    for part, other in zip(parts, others, strict=False):
        if part != other:
            return other in order(folder)[: [*order(folder), part].index(part)]
        folder = f"{folder}.{part}".lstrip(".")
    return len(parts) > len(others)


def allowed(name: str, found: Import) -> bool:
    """May this file import that file of Gesta?"""
    top, other = name.partition(".")[0], found.target.partition(".")[0]
    if top in EDGES:
        return other in ("", *SPINE, *RIBS, *EDGES)
    if not name:  # the door
        return other in SPINE + RIBS or (other in ("address", "sync") and (found.lazy or found.typing))
    if other == top:  # the `__init__` of a unit may hand on names of its files
        hands_on = name == top in SPINE or (top == "compat" and found.target.startswith(f"{name}."))
        return before(name, found.target) or hands_on
    if top in SPINE:
        return other in SPINE[: SPINE.index(top)]
    return other in (*SPINE, "views", *RIBS_FOR.get(top, ()), *EDGES_IN_RIBS.get(name, ()))


def place(name: str) -> Found:
    """A file belongs to the spine, a rib or an edge, a rib file into the order of its folder."""
    top = name.partition(".")[0]
    if top not in ("", *SPINE, *RIBS, *EDGES):
        yield 1, f"found a file {name!r}; expected one of the spine, a rib or an edge"
    folder, _, last = name.rpartition(".")
    if top in (*SPINE, *RIBS) and last not in order(folder) and folder:
        yield 1, f"found {last!r} outside the budget of files: it is missing in ORDER of {folder}/__init__.py"


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
        sys.stdlib_module_names - {"asyncio"} if name.partition(".")[0] in SPINE else sys.stdlib_module_names,
    )
    more = {
        found.target: found.line
        for found in imports(name)
        if not found.ours and not found.typing and found.target not in own
    }
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
    for node, _ in walked(name):
        if isinstance(node, FUNCTIONS):
            lines, given = (node.end_lineno or node.lineno) - node.lineno + 1, node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            parameters = sum(each is not None and each.arg not in ("self", "cls", "mcls") for each in every)
            if lines > FUNCTION:
                yield node.lineno, f"found {lines} lines in {node.name}; the budget is {FUNCTION}"
            if parameters > PARAMETERS and not (name.startswith("compat.") and node.name in FIXED):
                yield node.lineno, f"found {parameters} parameters of {node.name}; the budget is {PARAMETERS}"


def plumbing(name: str) -> Found:
    """State is passed down, and every parameter has a name; `**` is for decorators that keep a signature."""
    for node, around in walked(name):
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


def extra(name: str) -> Found:
    """No member of `extra` is read: it belongs to users and importers, and what steers is a field of its kind."""
    if name.startswith("importers.") or name in EXTRA:
        return
    for node, around in walked(name):
        match node:
            case ast.Attribute(attr="extra", ctx=ast.Load()):
                yield node.lineno, "found a reader of `extra`; the budget is 0"
            case ast.Constant(value="extra"):
                yield node.lineno, "found the name of `extra` in a text; the budget is 0"
            case ast.Constant(value=str() as text) if "$.extra" in text and name not in SQL_OF_FORMAT_1:
                yield node.lineno, "found `extra` in a statement; the budget is 0"
            case ast.MatchClass(kwd_attrs=names) if "extra" in names:
                yield around[-1].lineno, "found a pattern that reads `extra`; the budget is 0"  # type: ignore[attr-defined]


def test_the_spine_is_read_in_an_afternoon() -> None:
    assert len(SPINE) <= UNITS, f"found {len(SPINE)} units; the budget is {UNITS}"


@pytest.mark.parametrize("rule", [place, direction, libraries, lazy_imports, size, plumbing, extra])
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


def test_each_unit_of_the_spine_has_a_file_of_tests() -> None:
    missing = [unit for unit in SPINE if not (SRC.parent / f"tests/spine/test_{unit}.py").exists()]
    assert not missing, f"tests/spine: found no test_<unit>.py of {missing}; the budget is 0"


def defined(name: str) -> Iterator[str]:
    """What a file defines at its top level; `ORDER` and type variables belong to each file."""
    for node in tree(name).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign(targets=targets, value=value) if "TypeVar(" not in ast.unparse(value):
                yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=found)):
                yield found


def test_no_name_is_defined_in_two_files_of_the_spine() -> None:
    """A reader who finds a name has found the one thing that bears it."""
    places: dict[str, list[str]] = {}
    for name, path in FILES.items():
        if name.partition(".")[0] in SPINE:
            for each in set(defined(name)) - {"ORDER", "__all__"}:
                places.setdefault(each, []).append(str(path.relative_to(SRC.parent)))
    doubled = [f"{files[0]}:1: found {each!r}, also in {files[1:]}" for each, files in places.items() if files[1:]]
    assert not doubled, "\n".join(["the budget is 0", *sorted(doubled)])


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


def test_each_part_of_which_the_time_is_measured_is_a_function_that_there_is() -> None:
    """A function that got another name would count for the one that called it."""
    found = {
        ".".join([*(outer.name for outer in around if isinstance(outer, ast.ClassDef)), node.name])
        for name in FILES
        for node, around in walked(name)
        if isinstance(node, FUNCTIONS)
    }
    missing = [each for each in PARTS if each not in found and not each.startswith("BaseEventLoop.")]
    assert not missing, f"benchmarks/where.py:1: found {missing}, which are not functions of Gesta; the budget is 0"
