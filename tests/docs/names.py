"""Names of Gesta that stand in a text: are they there?

An attribute of a span in OpenTelemetry looks like one, as `gesta.seq`; it counts where the source writes it.
"""

import functools
import importlib
import re
from pathlib import Path
from typing import get_args

import gesta


@functools.cache
def _written() -> set[str]:
    """Return the dotted names that the source has as texts."""
    sources = Path(gesta.__file__).parent.rglob("*.py")
    return {
        name
        for path in sources
        for name in re.findall(r"[\"'](gesta(?:\.\w+)+)[\"']", path.read_text(encoding="utf-8"))
    }


def absent(text: str) -> list[str]:
    """Return the names in backticks that Gesta has not: `gesta.module.name`, and `Name.attribute` of a public name."""
    dotted = {name for name in re.findall(r"`@?(gesta(?:\.\w+)+)", text) if not _there(name) and name not in _written()}
    owned = {pair for pair in re.findall(r"`([A-Z]\w+)\.(\w+)", text) if pair[0] in gesta.__all__}
    return sorted(dotted | {f"{owner}.{name}" for owner, name in owned if not _has(getattr(gesta, owner), name)})


def _there(name: str) -> bool:
    """Is this the name of a module, or of what a module or one of its classes has?"""
    module, _, last = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ImportError:
        try:
            return _has(_named(module), last)
        except (ImportError, AttributeError):
            return False
    return True


def _named(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ImportError:
        module, _, last = name.rpartition(".")
        return getattr(importlib.import_module(module), last)


def _has(owner: object, name: str) -> bool:
    """Has it that attribute or field; of a union, has one of its members?"""
    if members := get_args(owner):
        return any(_has(each, name) for each in members)
    fields = (getattr(each, "__annotations__", {}) for each in getattr(owner, "__mro__", ()))
    return hasattr(owner, name) or any(name in each for each in fields)
