"""Makes one classic script of the modules of the pages.

A browser loads no module from a file of a disk, and asks a server for each module by itself.

Each module becomes a function that returns what the module exports, and the functions are called in the order of the
imports. Nothing else is changed, so the lines of a module are found again in the script.
"""

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

NAMES = r"\{([\w\s,$]*)\}"
IMPORT = re.compile(rf'^import (?:\* as (\w+)|{NAMES}) from "\./([\w-]+\.js)";$', re.MULTILINE)
PASSED_ON = re.compile(rf'^export {NAMES} from "\./([\w-]+\.js)";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?function\*? |class |const )([\w$]+)", re.MULTILINE)
LEFT = re.compile(r"^\s*(?:import|export)\b.*|\bimport\s*[(.].*", re.MULTILINE)
"""What the script must not have: a form of import or export that is not known here."""


class BadModule(Exception):
    """A module has an import or export that this file cannot translate; the texts of the pages are at fault."""


def one_script(modules: Mapping[str, str], first: str, instead: Mapping[str, str]) -> str:
    """Return the script that does what the module `first` does.

    Args:
        modules: the text of each module by the name of its file.
        instead: names of modules in whose place others stand, as `{"source.js": "folder.js"}`.

    Raises:
        BadModule: two modules import each other, or a module has another form of import or export.
    """
    needs, left = dict[str, list[str]](), [first]
    while left:
        name = left.pop()
        if name not in needs:
            text = _text(modules, instead, name)
            needs[name] = [found[-1] for found in IMPORT.findall(text) + PASSED_ON.findall(text)]
            left += needs[name]
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        raise BadModule(f"Modules import each other: {' → '.join(error.args[1])}.") from error
    texts = {name: _text(modules, instead, name) for name in order}
    exports = {name: set(_exported(text)) for name, text in texts.items()}
    for name, text in texts.items():
        for source, asked in [
            (found[-1], _names(found[-2])) for found in IMPORT.findall(text) + PASSED_ON.findall(text)
        ]:
            if lost := [old for old, _ in asked if old not in exports[source]]:
                raise BadModule(f"{name} imports {lost[0]!r}, which {source} does not export by itself.")
    parts = [_part(name, text) for name, text in texts.items()]
    return '"use strict";\n(() => {\nconst modules = {};\n' + "".join(parts) + "})();\n"


def _text(modules: Mapping[str, str], instead: Mapping[str, str], name: str) -> str:
    found = modules.get(instead.get(name, name))
    if found is None:
        raise BadModule(f"There is no module {name!r}.")
    return found


def _exported(text: str) -> dict[str, str]:
    """Return the names that a module exports, each with what it stands for."""
    passed = [(old, new, source) for names, source in PASSED_ON.findall(text) for old, new in _names(names)]
    return {found[1]: found[1] for found in EXPORT.findall(text)} | {
        new: f'modules["{source}"].{old}' for old, new, source in passed
    }


def _part(name: str, text: str) -> str:
    """Return a module as a function that is called at once."""
    body = PASSED_ON.sub("", IMPORT.sub(_imported, text))
    body = EXPORT.sub(r"\1\2", body)
    if strange := LEFT.search(body):
        raise BadModule(f"{name} has a form of import or export that is not translated: {strange[0].strip()!r}.")
    given = [new if new == old else f"{new}: {old}" for new, old in _exported(text).items()]
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(given)} }};\n}})();\n'


def _imported(found: re.Match[str]) -> str:
    whole, names, source = found.groups()
    if whole:
        return f'const {whole} = modules["{source}"];'
    given = ", ".join(old if old == new else f"{old}: {new}" for old, new in _names(names))
    return f'const {{ {given} }} = modules["{source}"];'


def _names(text: str) -> list[tuple[str, str]]:
    """Return the names in braces, each with the name that it gets."""
    found = [each.strip().partition(" as ") for each in text.split(",") if each.strip()]
    return [(old.strip(), (new or old).strip()) for old, _, new in found]
