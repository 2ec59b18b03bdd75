"""Joins the JavaScript modules of the pages into one classic script.

A browser loads no module from a file on a disk, and from a server it requests each module separately.

Each module becomes a function that returns its exports, and the functions are called in the order of the imports.
Nothing else is changed, so the lines of a module can be recognized in the script.
"""

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

NAMES = r"\{([\w\s,$]*)\}"
IMPORT = re.compile(rf'^import (?:\* as (\w+)|{NAMES}) from "\./([\w-]+\.js)";$', re.MULTILINE)
PASSED_ON = re.compile(rf'^export {NAMES} from "\./([\w-]+\.js)";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?function\*? |class |const )([\w$]+)", re.MULTILINE)
LEFT = re.compile(r"^\s*(?:import|export)\b.*|\bimport\s*[(.].*", re.MULTILINE)
"""Forms of import and export that this file cannot translate; the script must not contain any."""


class BadModule(Exception):
    """A module has an import or export that cannot be translated. The modules in `static` have to be corrected."""


def one_script(modules: Mapping[str, str], first: str, instead: Mapping[str, str]) -> str:
    """Return a classic script that does the same as the module `first`.

    Args:
        modules: the text of each module by file name.
        first: file name of the module that imports, directly or indirectly, all others.
        instead: modules to replace by others, as in `{"source.js": "folder.js"}`.

    Raises:
        BadModule: two modules import each other, a module is missing, or an import or export cannot be translated.
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
    """Return the exports of a module: each exported name with the JavaScript expression that it refers to."""
    passed = [(old, new, source) for names, source in PASSED_ON.findall(text) for old, new in _names(names)]
    return {found[1]: found[1] for found in EXPORT.findall(text)} | {
        new: f'modules["{source}"].{old}' for old, new, source in passed
    }


def _part(name: str, text: str) -> str:
    """Return a module as a JavaScript function that is called at once. Raises BadModule if it cannot be translated."""
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
    """Return the names in the braces of an import or export, each as a pair: the name, and its new name after `as`."""
    found = [each.strip().partition(" as ") for each in text.split(",") if each.strip()]
    return [(old.strip(), (new or old).strip()) for old, _, new in found]
