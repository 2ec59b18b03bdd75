"""Tools and prompts, read from the text of files.

A tool is a function in a `.py` file with Gesta's decorator `tool`. Its file is read as text and not run. A prompt is a
file `NAME.prompt.md`: TOML between two lines `+++`, and the text of the prompt below.
"""

import ast
import tomllib
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from gesta.catalog.version import Version
from gesta.errors import GestaError

PYTHON, PROMPT = ".py", ".prompt.md"
"""Endings of the names of files that may hold tools, and of files that hold a prompt."""
FENCE = "+++"
ANNOTATIONS = "ANNOTATIONS"
"""Name of a dict in a Python file that maps the name of a tool to the annotations of the tool."""
MEMBERS = ("name", "description", "tools", "output", "annotations")
"""Keys that the TOML at the head of a prompt may have."""


class Item(Struct, frozen=True, kw_only=True):
    """One tool or prompt of a catalog."""

    kind: Literal["tool", "prompt"]
    name: str
    description: str
    source: str
    """Path of the item's file, relative to the folder of the catalog."""
    line: int
    """Line of the file in which the item begins, counted from 1."""
    version: Version
    """Version of the item's file."""
    annotations: dict[str, str] = {}
    signature: str | None = None
    """The parameters of a tool, as the file writes them; `None` for a prompt."""
    content: str | None = None
    """The text of a prompt; `None` for a tool."""
    tools: list[str] = []
    """Names of the tools that a prompt uses; empty for a tool."""
    output: dict[str, Any] | None = None
    """JSON Schema of the answer to a prompt; `None` for a tool, or for an answer in words."""


class BadItem(GestaError):
    """Raised if a tool or prompt cannot be read from its file. The message names the file and the line."""

    def __init__(self, source: str, line: int, found: str) -> None:
        super().__init__(f"{source}:{line}: {found}.")


def items(source: str, text: str, version: Version) -> Iterator[Item]:
    """Yield the tools and prompts of a file, in their order. Raises BadItem for an item that cannot be read.

    Args:
        source: path of the file, relative to the folder of the catalog.
        text: content of the file.
        version: version of the file.
    """
    if source.endswith(PROMPT):
        yield _prompt(source, text, version)
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise BadItem(source, getattr(error, "lineno", None) or 1, f"it is not Python: {error}") from error
    notes: Any = next((value for node in tree.body if (value := _assigned(node, ANNOTATIONS)) is not None), {})
    for node in tree.body:
        found = _decorator(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and found is not None:
            given = {word.arg: _literal(word.value) for word in found.keywords} if isinstance(found, ast.Call) else {}
            name = given.get("name") if isinstance(given.get("name"), str) else node.name
            described = given.get("description") or ast.get_docstring(node) or ""
            yield Item(
                kind="tool",
                name=str(name),
                description=str(described),
                source=source,
                line=node.lineno,
                version=version,
                annotations=_texts(notes.get(name) if isinstance(notes, dict) else None, source, node.lineno),
                signature=ast.unparse(node.args),
            )


def _prompt(source: str, text: str, version: Version) -> Item:
    lines = text.removeprefix("\ufeff").splitlines()
    fences = [place for place, line in enumerate(lines) if line.strip() == FENCE][:2]
    if len(fences) < 2 or fences[0] != 0:
        raise BadItem(source, 1, f"a prompt begins with TOML between two lines {FENCE}")
    try:
        head = tomllib.loads("\n".join(lines[1 : fences[1]]))
    except tomllib.TOMLDecodeError as error:
        raise BadItem(source, 2, f"its head is not TOML: {error}") from error
    for name in head:
        if name not in MEMBERS:
            raise BadItem(source, 2, f"its head has {name!r}, expected {', '.join(MEMBERS)}")
    name = head.get("name", source.rsplit("/", 1)[-1].removesuffix(PROMPT))
    description, tools, output = head.get("description", ""), head.get("tools", []), head.get("output")
    if not (isinstance(name, str) and isinstance(description, str)):
        raise BadItem(source, 2, "`name` and `description` are texts")
    if not (isinstance(tools, list) and all(isinstance(each, str) for each in tools)):
        raise BadItem(source, 2, "`tools` is a list of names")
    if not isinstance(output, dict | None):
        raise BadItem(source, 2, "`output` is a table, a JSON Schema")
    return Item(
        kind="prompt",
        name=name,
        description=description,
        source=source,
        line=1,
        version=version,
        annotations=_texts(head.get("annotations"), source, 2),
        content="\n".join(lines[fences[1] + 1 :]).strip(),
        tools=tools,
        output=output,
    )


def _decorator(node: ast.AST) -> ast.expr | None:
    """Return the decorator `tool` of a function; `None` if the node is not a function with this decorator."""
    for each in getattr(node, "decorator_list", ()):
        called = each.func if isinstance(each, ast.Call) else each
        if (called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")) == "tool":
            found: ast.expr = each
            return found
    return None


def _assigned(node: ast.stmt, name: str) -> Any:
    """Return the literal value that a statement assigns to a name; `None` if the statement assigns no such value."""
    match node:
        case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
            return _literal(value)
        case ast.AnnAssign(target=ast.Name(id=found), value=value) if found == name:
            return _literal(value)
    return None


def _literal(node: ast.expr | None) -> Any:
    """Return the value of a literal expression; `None` for any other expression."""
    try:
        return ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None


def _texts(value: Any, source: str, line: int) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, dict) and all(isinstance(key, str) and isinstance(each, str) for key, each in value.items()):
        return value
    raise BadItem(source, line, "annotations are a table of texts by their names")
