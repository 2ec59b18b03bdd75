"""The command `catalog`, which lists the tools and prompts of a folder with their versions."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gesta.cli.app import command
from gesta.cli.options import Common
from gesta.cli.talk import DIM, FAILED, Stop, harmless, json_line, put_all, say

if TYPE_CHECKING:
    from gesta.catalog.item import Item


@dataclass(frozen=True, kw_only=True)
class CatalogOptions(Common):
    """Command-line options of `gesta catalog`."""

    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder with the files.", show_default=True)] = "."
    find: Annotated[
        str, typer.Option("--find", metavar="WORDS", help="Only items with one of these words, best first.")
    ] = ""
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Show the whole item of this name.", show_default=False)
    ] = None
    kind: Annotated[
        Literal["tool", "prompt"] | None,
        typer.Option("--kind", help="Only tools, or only prompts.", show_default=False),
    ] = None
    annotations: Annotated[
        list[str] | None,
        typer.Option(
            "--annotation", metavar="KEY=VALUE", help="Only items with this annotation; repeatable.", show_default=False
        ),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", min=1, help="Greatest number of items listed.", show_default=False),
    ] = None


@command(CatalogOptions, example="gesta catalog . --find refund")
def catalog(options: CatalogOptions) -> int:
    """List the tools and prompts of a folder, with their versions.

    A tool is a function with `@gesta.tool` in a .py file. A prompt is a file NAME.prompt.md. Versions are from git. No
    code of the folder runs. The exit code is 1 if an item could not be read.
    """
    from gesta.catalog.index import index

    made = index(options.folder)
    if options.name is not None:
        found = [(made.item(options.name, options.kind), 0.0)]
    else:
        wanted = _annotations(options.annotations or [])
        hits = made.find(options.find, kind=options.kind, annotations=wanted, limit=options.limit)
        found = [(hit.item, hit.score) for hit in hits]
    if options.json:
        put_all(json_line(facts(item) | ({"score": score} if options.find else {})) for item, score in found)
    elif options.name is not None:
        put_all(_whole(found[0][0]))
    elif found:
        put_all(_listed([item for item, _ in found]))
    else:
        say("Nothing was found.")
    say(f"The catalog of {made.folder} is at {made.version.short}.", DIM)
    for problem in made.problems:
        say(problem)
    return FAILED if made.problems else 0


def facts(item: "Item") -> dict[str, Any]:
    """Return the facts about a tool or prompt that `gesta catalog --json` writes.

    Facts that are `None` are left out.
    """
    members = {name: getattr(item, name) for name in item.__struct_fields__}
    return {name: value for name, value in members.items() if value is not None} | {"version": str(item.version)}


def _annotations(given: list[str]) -> dict[str, str]:
    """Return the values `KEY=VALUE` of the option `--annotation` as a dict. Raises Stop for a text of another form."""
    pairs = [each.partition("=") for each in given]
    for (key, mark, _), each in zip(pairs, given, strict=True):
        if not (key and mark):
            raise Stop(f"--annotation {each!r}: expected KEY=VALUE.")
    return {key: value for key, _, value in pairs}


def _listed(items: "list[Item]") -> list[str]:
    from gesta.cli.layout import table

    rows = [(one.kind, one.name, one.version.short, f"{one.source}:{one.line}", _first(one)) for one in items]
    return table(("kind", "name", "version", "file", "description"), rows)


def _first(item: "Item") -> str:
    return item.description.partition("\n")[0]


def _whole(item: "Item") -> list[str]:
    """Return the lines that show one tool or prompt in full: its name, description, file, version, text and so on."""
    notes = ", ".join(f"{key}={value}" for key, value in item.annotations.items())
    called = f"{item.name}({item.signature})" if item.kind == "tool" else item.name
    told = {
        item.kind: called,
        "description": item.description,
        "file": f"{item.source}:{item.line}",
        "version": str(item.version),
        "at": item.version.at or "",
        "annotations": notes,
        "tools": ", ".join(item.tools),
    }
    lines = [f"{name + ':':<13} {value}" for name, value in told.items() if value]
    return [harmless(line) for line in [*lines, *(["", item.content] if item.content else [])]]
