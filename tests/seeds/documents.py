"""What the five documents show, read from their own text: classes, functions, members, parameters, and calls.

Four of them are Python whose indentation is lost, so they are read one logical line at a time; the fifth is a rendered
page of an API. Nothing is listed by hand: what the reader does not see, the test does not ask for.

    python -m tests.seeds.documents langroid

prints what `gesta.compat.langroid` lacks, and with `--all` every name that its document shows; `--write` writes what is
lacking to the list in `tests/seeds/not_yet/`.
"""

import ast
import builtins
import enum
import importlib
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCUMENTS = {
    "agent_catalog": "content-kinds.txt",
    "langchain": "agent-actions.txt",
    "langroid": "agents-and-tasks.txt",
    "kodeagent": "history-formatters.txt",
    "trustgraph": "orchestrator-pattern.txt",
}
"""System, and the file of its document."""
OWN = ("trustgraph", "langchain_core")
"""Packages whose names a document imports from its own system; so are all relative imports."""
FOREIGN = re.compile(
    r"True|False|None|OrderedDict|ValidationError|BaseModel|BaseSettings|ChatCompletion|SquareTool|MyTool|ToolMessages"
)
"""Words of the rendered page that look like names of its system and are none of them."""
BROUGHT = {
    "pydantic.BaseModel": ("model_dump", "model_dump_json", "model_validate", "model_validate_json"),
    "Serializable": ("model_dump", "model_dump_json", "model_validate", "to_json"),
    "BaseModel": ("model_dump", "model_dump_json", "model_validate"),
}
"""Base class outside the documents, and what programs call that comes from there."""
BUILT_IN: dict[str, type] = {"dict": dict, "enum.StrEnum": enum.StrEnum}
PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD
EMPTY = inspect.Parameter.empty
STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@dataclass
class Shown:
    """One class, function, method, field or constant of a document."""

    name: str
    """Dotted: `PatternBase.iterate`."""
    parameters: inspect.Signature | None = None
    """As it is called, without `self`."""
    how: tuple[str, ...] = ()
    """`async`, `property`, `classmethod`, `staticmethod`, `abstractmethod`."""


@dataclass
class Document:
    """All that one document shows."""

    shown: dict[str, Shown] = field(default_factory=dict)
    bases: dict[str, list[str]] = field(default_factory=dict)
    """Class, and what it derives from."""
    fields: dict[str, dict[str, str | None]] = field(default_factory=dict)
    """Class, and the fields that it is made of: name, and the source of the default, if it has one."""
    calls: dict[str, set[str]] = field(default_factory=dict)
    """Name of its system, and how the document calls it: `goal=` by keyword, `4 in order` without."""

    def add(self, name: str, parameters: inspect.Signature | None = None, how: Sequence[str] = ()) -> None:
        """Write down a name, and keep the shape if it is already there."""
        if name not in self.shown or parameters is not None:
            self.shown[name] = Shown(name, parameters, tuple(how))


def signature_of(text: str) -> inspect.Signature:
    """Return what a parameter list says, without `self`; each default is its source."""
    tree = ast.parse(f"def f({text}): pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    args = tree.args
    plain = [*args.posonlyargs, *args.args]
    held: list[tuple[Any, ast.arg, ast.expr | None]] = [
        *((PLAIN, arg, None) for arg in plain[: len(plain) - len(args.defaults)]),
        *((PLAIN, *each) for each in zip(plain[len(plain) - len(args.defaults) :], args.defaults, strict=True)),
        *([(inspect.Parameter.VAR_POSITIONAL, args.vararg, None)] if args.vararg else []),
        *((inspect.Parameter.KEYWORD_ONLY, *each) for each in zip(args.kwonlyargs, args.kw_defaults, strict=True)),
        *([(inspect.Parameter.VAR_KEYWORD, args.kwarg, None)] if args.kwarg else []),
    ]
    return inspect.Signature(
        [
            inspect.Parameter(arg.arg, kind, default=EMPTY if default is None else ast.unparse(default))
            for kind, arg, default in held
            if arg.arg not in ("self", "cls")
        ]
    )


# ---------------------------------------------------------------------------------------------- Python without indents


def logical_lines(text: str) -> Iterator[str]:
    """Yield each statement's first line whole, brackets closed; comments and headings above the code are left out."""
    start = re.search(r'^(?:"""|import |from )', text, re.MULTILINE)
    assert start
    held: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text[start.start() :] + "\n").readline):
        if token.type == tokenize.NEWLINE:
            yield "".join(held).strip()
            held = []
        elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            held = [*held, token.string] if token.type == tokenize.STRING else [*held, token.string, " "]


def parsed(line: str) -> ast.stmt | None:
    """Return a statement of one line, with an empty body if it opens a block; None of half a statement."""
    for source in (line, f"{line} pass", f"if 1: pass\n{line} pass", f"try: pass\n{line} pass"):
        try:
            return ast.parse(source).body[-1]
        except SyntaxError:
            continue
    return None


def read_python(text: str) -> Document:
    """Read a document that is Python, one logical line after the other."""
    document, owner, method = Document(), "", ""
    decorators: list[str] = []
    own: set[str] = set()
    for line in logical_lines(text):
        if line.startswith("@"):
            decorators.append(line.removeprefix("@").strip().split("(")[0].replace(" ", ""))
            continue
        match parsed(line):
            case ast.ImportFrom(module=module, names=names, level=level):
                if level or (module or "").split(".")[0] in OWN:
                    own |= {each.asname or each.name for each in names}
                    for each in names if module else ():
                        document.add(each.name)
            case ast.ClassDef(name=owner, bases=bases):
                method = ""
                document.add(owner)
                document.bases[owner] = [ast.unparse(each) for each in bases]
            case (ast.FunctionDef() | ast.AsyncFunctionDef()) as function:
                method = add_function(document, owner, method, function, decorators)
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if owner and not method and name[0] != "_":
                document.add(f"{owner}.{name}")
                document.fields.setdefault(owner, {})[name] = None if value is None else ast.unparse(value)
            case ast.Assign(targets=[ast.Name(id=name)]) if name[0].isupper():
                enumerated = any("Enum" in base for base in document.bases.get(owner, ()))
                document.add(f"{owner}.{name}" if enumerated else name)
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)]) if name[0] != "_":
                document.add(f"{owner}.{name}")
            case _:
                pass
        decorators = []
        add_calls(document, line, own)
    return document


def add_function(
    document: Document,
    owner: str,
    method: str,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    decorators: list[str],
) -> str:
    """Write down a method, or a function inside of one, and return the method that what follows is in."""
    first = function.args.args[0].arg if function.args.args else ""
    how = [each for each in decorators if each in ("property", "classmethod", "staticmethod", "abstractmethod")]
    if isinstance(function, ast.AsyncFunctionDef):
        how.append("async")
    shape = signature_of(ast.unparse(function.args))
    name = function.name
    hook = "ABC" in document.bases.get(owner, ())
    if first not in ("self", "cls") and "staticmethod" not in how:
        if owner and method and name[0] != "_":
            document.add(f"{owner}.{method}.{name}", shape, how)
        return method
    if name == "__init__":
        document.add(owner, shape)
    elif name != "__new__" and (name[0] != "_" or name[:2] == "__" or hook):
        document.add(f"{owner}.{name}", None if "property" in how else shape, how)
    return name


def add_calls(document: Document, line: str, own: set[str]) -> None:
    """Write down with which keywords a line calls what is its own system's."""
    tree = parsed(line)
    for call in ast.walk(tree) if tree else ():
        match call:
            case ast.Call(func=ast.Name(id=name)) if name in own or name in document.bases:
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if module in own:
                document.add(name)
            case _:
                continue
        said = document.calls.setdefault(name, set())
        said.update(f"{each.arg}=" for each in call.keywords if each.arg)
        if call.args:
            said.add(f"{len(call.args)} in order")


# ------------------------------------------------------------------------------------------------------ a rendered page

HEADING = re.compile(
    r"^(?P<name>[A-Za-z_]\w*)(?:\((?P<parameters>.*)\))?(?:: (?P<type>[\w\[\]]+))?\n"
    r"(?P<how>(?:(?:property|writable|async|staticmethod|classmethod)\n)*)¶$",
    re.MULTILINE,
)
TABLE = re.compile(r"^Attributes:\nName \|.*?(?=^Source code|\Z)", re.MULTILINE | re.DOTALL)
CALLABLE = re.compile(r"\b([a-z_]+)\(\)")
TYPE = re.compile(r"\b(?:[A-Z]+[a-z]+){2,}[A-Z]?\b|\b[A-Z]+_[A-Z]+\b|\b(?:Entity|Role)\b")


def read_page(text: str) -> Document:
    """Read a rendered page: a heading for each class and member, prose and tables below it."""
    text = text[text.index("Agent(config=AgentConfig())") :]
    document, owner = Document(), ""
    last = re.search(r"^(run)\((.*)\)$", text, re.MULTILINE)
    assert last, "the page breaks off in its last heading"
    text += "\n¶" if text.rstrip().endswith(")") else ""
    found = list(HEADING.finditer(text))
    for heading, following in zip(found, [*found[1:], None], strict=True):
        prose = text[heading.end() : following.start() if following else len(text)]
        name, parameters = heading["name"], heading["parameters"]
        shape = None if parameters is None else signature_of(parameters)
        if name[0].isupper():
            owner = name
            document.add(owner, shape)
            if bases := re.search(r"^Bases: (\w+(?:\n?, \w+)*)$", prose, re.MULTILINE):
                document.bases[owner] = re.findall(r"\w+", bases[1])
            fields_of_page(document, owner, prose)
        else:
            document.add(f"{owner}.{name}", shape, heading["how"].split())
        for own in re.findall(r"\bself\.([a-z_]\w*)\b(?!\()", prose):
            document.add(f"{owner}.{own}")
    for name in re.findall(r"\bmsg\.([a-z_]+)\b", text):
        document.add(f"ChatDocument.{name}")
    for name in [*re.findall(r"=([A-Z]\w+)", text), *TYPE.findall(text)]:
        if not FOREIGN.fullmatch(name):
            document.add(name)
    document.add(f"Task.{last[1]}", signature_of(last[2]))
    for name in CALLABLE.findall(text[text.index("\nTask(") :]):
        document.add(f"Task.{name}")
    return document


def fields_of_page(document: Document, owner: str, prose: str) -> None:
    """Write down the attributes of a class: a table, or lines that begin with a name."""
    names: list[str] = []
    if table := TABLE.search(prose):
        names = re.findall(r"^([a-z_]\w+) \|$", table[0], re.MULTILINE)
    elif "Attributes:" in prose:
        names = re.findall(r"^([a-z_]+): \w", prose[prose.index("Attributes:") :], re.MULTILINE)
    for name in names:
        document.add(f"{owner}.{name}")
        document.calls.setdefault(owner, set()).add(f"{name}=")


def read(system: str, folder: Path) -> Document:
    """Read the document of a system."""
    text = (folder / DOCUMENTS[system]).read_text(encoding="utf-8")
    return read_page(text) if "¶" in text else read_python(text)


# ---------------------------------------------------------------------------------------------------- what is compared


def compare(system: str, folder: Path, module: Any = None) -> tuple[list[str], list[str]]:
    """Return all names that a document shows, and those that `gesta.compat` lacks or has in another shape.

    Args:
        module: is looked through instead, as one where the original has its names.
    """
    module = module or importlib.import_module(f"gesta.compat.{system}")
    document = read(system, folder)
    every: dict[str, bool] = {}
    for shown in document.shown.values():
        every.update(compare_one(module, document, shown))
    for name in document.bases:
        every.update(compare_bases(module, document, name))
    for name, said in document.calls.items():
        for each in said:
            every.setdefault(f"{name}({each})", accepts(at(module, name), each))
    return sorted(every), sorted(name for name, good in every.items() if not good)


def at(module: Any, name: str) -> Any:
    """Return what a dotted name is in a module, or None."""
    found = module
    for part in name.split("."):
        held = getattr(found, part, None)
        if held is None and part in members(found):
            held = EMPTY  # a field without a default is on no class
        found = held
    return found


@cache
def members(owner: Any) -> frozenset[str]:
    """Return names of the fields that objects of a class have, and of what its methods set on `self`."""
    if not isinstance(owner, type):
        return frozenset()
    names = {*getattr(owner, "__struct_fields__", ()), *getattr(owner, "model_fields", ())}
    for each in owner.__mro__:
        names |= {*inspect.get_annotations(each), *each.__dict__.get("__slots__", ())}
        if each.__module__.startswith("gesta."):
            names |= set(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(each)))
    return frozenset(names)


def compare_one(module: Any, document: Document, shown: Shown) -> Iterator[tuple[str, bool]]:
    """Yield a name and each of its parameters, and whether it is there in the shape that the document shows."""
    owner, _, name = shown.name.rpartition(".")
    if "." in owner and "async" in document.shown[owner].how:
        return  # a function inside of a coroutine is only seen by what the coroutine calls
    found = returned(at(module, owner.split(".")[0]), owner.split(".")[1]) if "." in owner else at(module, shown.name)
    there = found is not None
    yield shown.name, there
    for how in shown.how:
        raw = found if "." in owner else inspect.getattr_static(at(module, owner), name, None)
        yield f"{shown.name} {how}", there and is_of(raw, how)
    if shown.parameters is not None:
        for parameter, good in compare_shapes(module, shown, found):
            yield f"{shown.name}({parameter})", there and good
    elif shown.name in document.fields:
        for parameter, default in document.fields[shown.name].items():
            yield f"{shown.name}({parameter}=)", there and takes(module, found, parameter, default)


def returned(owner: Any, method: str) -> Any:
    """Return what a method of an object returns that was made, and is called, with None wherever a value is needed."""
    try:
        made = owner(*[None] * len(needed(owner)))
        return getattr(made, method)(*[None] * len(needed(getattr(made, method))))
    except (AttributeError, TypeError):
        return None


def needed(found: Any) -> list[str]:
    """Return the parameters without a default."""
    ours = shape_of(found)
    plain = (PLAIN, inspect.Parameter.KEYWORD_ONLY)
    return [
        each.name
        for each in (ours.parameters.values() if ours else ())
        if each.default is each.empty and each.kind in plain
    ]


def is_of(raw: Any, how: str) -> bool:
    """Return whether a member, as it stands in its class, is asynchronous, abstract, and so on, as said."""
    match how:
        case "async":
            return inspect.iscoroutinefunction(inspect.unwrap(raw)) if callable(raw) else False
        case "property":
            return not inspect.isroutine(raw)
        case "classmethod" | "staticmethod":
            return isinstance(raw, classmethod | staticmethod)
        case "abstractmethod":
            return getattr(raw, "__isabstractmethod__", False)
        case "writable":
            return not isinstance(raw, property) or raw.fset is not None
    raise AssertionError(how)


def shape_of(found: Any) -> inspect.Signature | None:
    """Return how something is called, without `self`."""
    if not callable(found):
        return None
    shape = inspect.signature(found)
    plain = [each for each in shape.parameters.values() if each.name not in ("self", "cls")]
    return shape.replace(parameters=plain)


def compare_shapes(module: Any, shown: Shown, found: Any) -> Iterator[tuple[str, bool]]:
    """Yield each parameter, and whether it stands at the same place under the same name with the same default."""
    ours = shape_of(found)
    have = list(ours.parameters.values()) if ours else []
    assert shown.parameters is not None
    for place, want in enumerate(shown.parameters.parameters.values()):
        if want.kind in STARS:
            yield f"{STARS[want.kind]}{want.name}", starred(found, want.kind)
            continue
        mine = next((each for each in have if each.name == want.name), None)
        if want.kind is PLAIN:
            there = place < len(have) and mine is have[place] and mine.kind is want.kind
        else:
            there = mine is not None and mine.kind in (want.kind, PLAIN)
        yield want.name, there and mine is not None and same_default(module, want.default, mine.default)
    open_ended = any(each.kind is each.VAR_KEYWORD for each in shown.parameters.parameters.values())
    if found is not None and not open_ended and (more := set(needed(found)) - set(shown.parameters.parameters)):
        yield f"needs no {', '.join(sorted(more))}", False


def starred(found: Any, kind: Any) -> bool:
    """Return whether something takes any number of values or keywords; pydantic's classes hide that of theirs."""
    known = [inspect.signature(each) for each in (found, getattr(found, "__init__", None)) if callable(each)]
    return any(each.kind == kind for shape in known for each in shape.parameters.values())


def same_default(module: Any, want: Any, mine: Any) -> bool:
    """Return whether a default is what the source of one says; of a default that is made, None stands for a new one."""
    if want is EMPTY or mine is EMPTY:
        return want is mine
    tree = ast.parse(want, mode="eval").body
    try:
        value = eval(want, {**vars(builtins), **vars(module)})
    except Exception:  # noqa: BLE001 - a name in it is missing, which is reported under that name
        return False
    if isinstance(tree, ast.Call | ast.List | ast.Dict) and mine in (None, ()):
        return isinstance(tree, ast.Call) or mine == ()
    return bool(mine == value) or (isinstance(tree, ast.Call) and type(mine) is type(value))


def takes(module: Any, found: Any, name: str, default: str | None) -> bool:
    """Return whether a class takes a field by keyword: without a default where it is needed, else with that default."""
    ours = shape_of(found)
    mine = ours.parameters.get(name) if ours else None
    if mine is None:
        return False
    if default is not None and "Field(" in default:
        made = ast.parse(default, mode="eval").body
        assert isinstance(made, ast.Call)
        default = next((ast.unparse(each.value) for each in made.keywords if each.arg == "default"), None)
    if default is None:
        return mine.default is mine.empty
    return same_default(module, default, mine.default)


def accepts(found: Any, said: str) -> bool:
    """Return whether something can be called with a keyword, or with so many values in order."""
    ours = shape_of(found)
    try:
        if ours is not None and said.endswith("="):
            ours.bind_partial(**{said.removesuffix("="): None})
        elif ours is not None:
            ours.bind_partial(*[None] * int(said.split(maxsplit=1)[0]))
    except TypeError:
        return False
    return ours is not None


def compare_bases(module: Any, document: Document, name: str) -> Iterator[tuple[str, bool]]:
    """Yield that a class derives from those that it is shown to derive from, and has what foreign ones would bring."""
    found = at(module, name)
    for base in document.bases[name]:
        known = BUILT_IN.get(base) or (at(module, base) if base in document.bases else None)
        if known or base in document.bases:
            yield f"{name} is {base}", isinstance(found, type) and isinstance(known, type) and issubclass(found, known)
    for base in ancestors(document, name):
        for brought in BROUGHT.get(base, ()):
            yield f"{name}.{brought}", hasattr(found, brought)
        for each, default in document.fields.get(base, {}).items():
            if base != name and each not in document.fields.get(name, ()) and document.shown[name].parameters is None:
                yield f"{name}({each}=)", takes(module, found, each, default)


def ancestors(document: Document, name: str) -> Iterator[str]:
    """Yield a class, and all that it is shown to derive from."""
    yield name
    for base in document.bases.get(name, ()):
        yield from ancestors(document, base)


def not_yet(system: str) -> list[str]:
    """Return what the list of a system says is not built."""
    return (HERE / "not_yet" / f"{system}.txt").read_text(encoding="utf-8").splitlines()


def main(arguments: Sequence[str]) -> None:
    """Print what is missing, or every name, or write it into the lists."""
    folder = HERE.parents[2] / "shared" / "prior"
    for system in [each for each in arguments if each in DOCUMENTS] or list(DOCUMENTS):
        every, missing = compare(system, folder)
        sys.stdout.write(f"{system}: {len(every)} names, {len(missing)} missing\n")
        sys.stdout.write("".join(f"    {name}\n" for name in (every if "--all" in arguments else missing)))
        if "--write" in arguments:
            lines = "".join(f"{name}\n" for name in missing)
            (HERE / "not_yet" / f"{system}.txt").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
