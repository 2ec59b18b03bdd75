"""Reads a docstring: its description, and a text for each parameter, in any of the three usual styles.

All three styles are tried, and the one that finds the most parameters is used. Only parameters are taken out of the
description, because the model should read the sections on returned values and warnings. Nothing raises. If no parameter
is found, the text is returned unchanged.
"""

import re
import warnings
from typing import Any

import griffe

STYLES = (griffe.parse_google, griffe.parse_numpy, griffe.parse_sphinx)
CROWDED = re.compile(r"(?<=\S)\n(?=[A-Z][A-Za-z ]*:[ \t]*\n)")
"""Matches the place above a heading that has no empty line above it, where griffe would read the heading as text."""
WRAPPED = re.compile(r"\s*\n\s*(?![\s*-])")
"""Matches the place where a line is continued on the next line, unless the next line is an item of a list."""


def read(text: str) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and the text about each parameter by its name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # griffe compiles what stands where types do
        return _read(text)


def _read(text: str) -> tuple[str, dict[str, str]]:
    best: tuple[str, dict[str, str]] = text, {}
    for parse in STYLES:
        try:
            sections: list[Any] = [*parse(griffe.Docstring(CROWDED.sub("\n\n", text)), warnings=False)]
            texts = _texts(sections)
            if len(texts) > len(best[1]):
                best = "\n\n".join(filter(None, map(_shown, sections))), texts
        except Exception:  # noqa: BLE001, S112 - a parser's trouble with odd text is no reason to lose a tool
            continue
    return best


def _texts(sections: list[Any]) -> dict[str, str]:
    items = [item for each in sections if each.kind.value in ("parameters", "other parameters") for item in each.value]
    return {item.name: WRAPPED.sub(" ", item.description.strip()) for item in items if item.description.strip()}


def _shown(section: Any) -> str:
    """Return a section of a docstring as plain text, without parameters."""
    match section.kind.value:
        case "text":
            return str(section.value).strip()
        case "parameters" | "other parameters":
            return ""
        case "admonition" | "deprecated":
            parts = [section.value.description]
        case "examples":
            parts = [text for _, text in section.value]
        case _:
            items = [(getattr(item, "name", ""), item.annotation, item.description) for item in section.value]
            parts = [": ".join(str(fact) for fact in item if fact) for item in items]
    lines = [f"    {line}".rstrip() for part in parts for line in part.strip().splitlines()]
    return "\n".join([f"{section.title or section.kind.value.capitalize()}:", *lines])
